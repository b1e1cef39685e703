"""`make chaos`: the crash test, long, with its report. `make chaos ARGS="--kills 20 --database sqlite"`."""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.driver import Driver, Run
from tests.chaos.verdict import Verdict, judge
from tests.support.postgres import postgres


async def crash(url: str, folder: Path, *, kills: int, seed: int) -> tuple[Run, Verdict]:
    """Run the crash test on an empty database."""
    run = await Driver(url, folder, kills=kills, seed=seed).go()
    return run, await judge(url, folder, run)


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'chaos.db'}"
        return
    with postgres() as url:
        yield url


def main() -> int:
    """Parse, crash, report. Returns the exit code: 1 if anything is not zero that must be."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--kills", type=int, default=200, help="a database; default: %(default)s")
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds = ("sqlite", "postgres") if options.database == "both" else (options.database,)
    failed = False
    for kind in kinds:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as place, _database(kind, Path(place)) as url:
            work = crash(url, Path(place), kills=options.kills, seed=options.seed)
            run, verdict = asyncio.run(work)
            failed |= _report(kind, run, verdict, time.monotonic() - begun)
    return int(failed)


def _report(kind: str, run: Run, verdict: Verdict, seconds: float) -> bool:
    rows: list[tuple[str, object]] = [
        ("kills (both processes at once)", f"{run.kills} ({run.both})"),
        ("messages acknowledged", len(run.sent)),
        ("readers that came back", run.reconnects),
        *sorted(verdict.counts.items()),
    ]
    if run.takeovers:
        worst = f"{statistics.median(run.takeovers):.2f} s, {max(run.takeovers):.2f} s"
        rows.append(("takeover: median, worst", worst))
    print(f"\n## {kind}, {seconds:.0f} s\n\n| | |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value} |")
    for name, count in verdict.must_be_zero.items():
        print(f"| **{name}** | {count}{'' if count == 0 else '  <-- must be 0'} |")
    for fault in verdict.faults[:10]:
        print(f"fault: {fault}")
    sys.stdout.flush()
    return any(verdict.must_be_zero.values())


if __name__ == "__main__":
    sys.exit(main())
