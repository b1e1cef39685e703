"""`make chaos`: many kills on each database, and a report. `--kills 20 --database sqlite --seed 7`."""

import argparse
import asyncio
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

from playhead.session.durable.options import Lock
from tests.chaos.crash import Crashes, crash
from tests.chaos.report import report
from tests.support.databases import DATABASES
from tests.support.postgres import in_schema, postgres


def main() -> int:
    """Run the test, print the report, and return 1 if anything is not zero that must be."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="on each database (200)")
    parser.add_argument("--database", choices=DATABASES, help="one of them alone")
    parser.add_argument("--seed", type=int, default=None, help="one that is drawn, and printed, if not given")
    parser.add_argument("--threads", type=int, default=6, help="conversations at once (6)")
    parser.add_argument("--gently", type=float, default=0.0, help="the part that gets SIGTERM instead (0)")
    parser.add_argument("--pauses", type=float, default=0.0, help="the part that is stopped and woken (0)")
    parser.add_argument("--takeover", choices=get_args(Lock), default="lock", help="how the dead are seen")
    parser.add_argument("--keep", type=Path, help="a folder to leave effects and logs in")
    given = parser.parse_args()
    seed = random.randrange(10_000) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr)
    found: dict[str, Crashes] = {}
    with ExitStack() as held:
        folder = given.keep or Path(held.enter_context(tempfile.TemporaryDirectory()))
        for database in [given.database] if given.database else DATABASES:
            place = folder / database
            place.mkdir(parents=True, exist_ok=True)
            url = f"sqlite:///{place / 'chaos.db'}"
            if database == "postgres":
                url = in_schema(held.enter_context(postgres()), "chaos")
            found[database] = asyncio.run(
                crash(
                    url,
                    place,
                    kills=given.kills,
                    seed=seed,
                    many=given.threads,
                    gently=given.gently,
                    pauses=given.pauses,
                    takeover=given.takeover,
                )
            )
    print(report(found))
    return int(any(one.faults for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
