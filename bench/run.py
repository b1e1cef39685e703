"""Measure this project against a hand-written loop, in interleaved rounds, and print a table.

    make bench                                           everything but speech, about two minutes
    make bench ARGS="--measures steps,growth --rounds 3"
    make bench ARGS="--peers openai,pydantic_ai"         beside others, each in a venv of its own
    make bench ARGS=--sessions                           what writing sessions down costs
    make bench ARGS=--durable                            what durable runs cost beside that
    make bench ARGS=--panel                              the panel in a browser
    make bench ARGS=--speech                             transcription (--hour: an hour of it)

A figure is the median of its rounds, with half their spread as noise; a ratio is the median of the
ratios within a round. Absolute times depend on the machine and on what else it does: judge by ratios.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.measure import MEASURES, Figures

ROOT = Path(__file__).parent.parent
VENVS = Path(__file__).parent / "out" / "venvs"
PEERS = {"openai": "openai", "pydantic_ai": "pydantic-ai-slim[openai]"}
FLOOR, OURS = "floor", "playhead"


@dataclass(frozen=True)
class Row:
    """One figure: where it comes from, what it is called, and the goal of this project for it."""

    measure: str
    key: str
    title: str
    digits: int = 2
    at_most: float | None = None
    at_most_times_floor: float | None = None


ROWS = [
    Row("cold", "cpu_ms", "process start to first answer, CPU ms", 0, at_most_times_floor=1.2),
    Row("cold", "rss_mb", "memory then, MB", 1, at_most=45),
    Row("steps", "step_ms", "a step of an 8-step run, CPU ms", at_most_times_floor=1.5),
    Row("stream", "chunk_us", "a streamed chunk in a burst, CPU us", at_most_times_floor=2),
    Row("paced", "listen_us", "a chunk by itself, to a callback, CPU us", 1, at_most_times_floor=1.1),
    Row("paced", "chunk_us", "a chunk by itself, to an iterator, CPU us", 1, at_most_times_floor=1.2),
    Row("growth", "turn_ms", "a turn at 1,000 messages, CPU ms", at_most=1),
    Row("growth", "cold_ms", "the same when nothing of them is known, CPU ms", at_most=3),
    Row("growrun", "step_ms", "a step of a 128-step run, CPU ms"),
    Row("growrun", "by_short", "a step of a 512-step run, by one of an 8-step run", at_most=1.2),
    Row("conc", "run_ms", "a 3-step run, 200 in flight, CPU ms", at_most_times_floor=1.4),
    Row("conc", "session_kb", "memory of one of these, KB", 0),
    Row("router", "by_bare", "a call through a router of three, by a bare one", at_most=1.1),
]


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--measures", default=",".join(MEASURES), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="", help=f"of {','.join(PEERS)}")
    parser.add_argument("--speech", action="store_true", help="measure transcription instead")
    parser.add_argument("--hour", action="store_true", help="with --speech: an hour of sound")
    parser.add_argument("--durable", nargs="?", const="", metavar="URL", help="measure durable runs instead")
    parser.add_argument("--sessions", action="store_true", help="measure stored sessions instead")
    parser.add_argument("--panel", action="store_true", help="measure the panel in a browser instead")
    options = parser.parse_args()
    if options.panel:
        from bench import panel

        panel.main()
        return
    if options.durable is not None:
        from bench import durable

        durable.main(options.durable or None)
        return
    if options.sessions:
        from bench import sessions

        sessions.main()
        return
    if options.speech:
        from bench import speech

        speech.main(seconds=3600 if options.hour else 240)
        return
    measures = _known(options.measures, MEASURES)
    pythons = {FLOOR: sys.executable, OURS: sys.executable}
    pythons |= {name: _peer_python(name) for name in _known(options.peers, PEERS)}
    print(*table(collect(pythons, measures, options.rounds)), sep="\n")


def _known(given: str, known: Mapping[str, object]) -> list[str]:
    names = [name for name in given.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    return names


def _peer_python(name: str) -> str:
    folder = VENVS / name
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {PEERS[name]}", file=sys.stderr)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", PEERS[name]], check=True)
    return str(python)


def collect(
    pythons: dict[str, str], measures: list[str], rounds: int
) -> dict[tuple[str, str], list[Figures]]:
    """Figures by agent and measure, one for each round; agents take turns within a round."""
    found: dict[tuple[str, str], list[Figures]] = {}
    with fake_provider() as base_url:
        for number in range(rounds):
            for measure in measures:
                print(f"round {number + 1} of {rounds}: {measure}", file=sys.stderr)
                for name, python in pythons.items():
                    command = [python, "-m", "bench.measure", name, measure, base_url]
                    found.setdefault((name, measure), []).append(_figures(command))
    return found


def _figures(command: list[str]) -> Figures:
    # Without written bytecode, compilation would be charged to every start.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, timeout=300)
    figures: Figures = json.loads(done.stdout)
    return figures


@contextlib.contextmanager
def fake_provider() -> Iterator[str]:
    """The fake provider in a process of its own, which ends with its standard input."""
    command = [sys.executable, "-m", "bench.fake_llm"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        server.stdin.close()


def table(found: dict[tuple[str, str], list[Figures]]) -> Iterator[str]:
    """A markdown table: one line for each figure, one column for each agent."""
    names = list(dict.fromkeys(name for name, _ in found))
    yield "| | " + " | ".join(names) + " | goal |"
    yield "|---" * (len(names) + 2) + "|"
    for row in ROWS:
        if (OURS, row.measure) not in found:
            continue
        values = {name: [figures[row.key] for figures in found[name, row.measure]] for name in names}
        ratios = {
            n: statistics.median(a / b for a, b in zip(v, values[FLOOR], strict=True))
            for n, v in values.items()
        }
        cells = [_cell(values[name], row.digits, None if name == FLOOR else ratios[name]) for name in names]
        goal = _goal(row, statistics.median(values[OURS]), ratios[OURS])
        yield f"| {row.title} | " + " | ".join([*cells, goal]) + " |"


def _cell(values: list[float], digits: int, ratio: float | None) -> str:
    middle = statistics.median(values)
    noise = (max(values) - min(values)) / 2 / middle
    return f"{middle:,.{digits}f} ±{noise:.0%}" + ("" if ratio is None else f" ({ratio:.2f}x)")


def _goal(row: Row, value: float, ratio: float) -> str:
    if row.at_most is not None:
        return f"{row.at_most:g}: {'met' if value <= row.at_most else 'MISSED'}"
    if row.at_most_times_floor is not None:
        return f"{row.at_most_times_floor:g}x: {'met' if ratio <= row.at_most_times_floor else 'MISSED'}"
    return ""


if __name__ == "__main__":
    main()
