"""Measure what durable runs cost over stored ones. `make bench ARGS=--durable`.

On SQLite in a temp folder; the model is in this process and takes 20 ms a call; a run has seven steps.
CPU is user and system time of this process, medians of rounds that take turns.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

from bench.sessions import Model, add
from playhead import AgentLoop
from playhead.events import EmitDelta
from playhead.session.sessions import Sessions
from playhead.types import LLMRequest, LLMResult

ROUNDS = 5
RUNS, STEPS, AT_ONCE = 15, 7, 200
_numbers = iter(range(10**9))


class Asked(Model):
    """Notes when it was asked for the first time."""

    at = 0.0

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        Asked.at = Asked.at or time.perf_counter()
        return await super().generate(request, emit)


async def measure(url: str | None = None) -> None:
    """Print the table. `url` names another database than a new SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        place = url or f"sqlite:///{Path(folder) / 'durable.db'}"
        stored: list[float] = []
        durable: list[float] = []
        for _ in range(ROUNDS):
            stored.append(await _cpu(place, durable=False))
            durable.append(await _cpu(place, durable=True))
        async with Sessions(AgentLoop(Asked(), tools=[add]), place, durable=True) as sessions:
            started = [await _to_running(sessions) for _ in range(20)]
            rate = await _rate(sessions)
    added = (statistics.median(durable) - statistics.median(stored)) / STEPS
    rows = [
        ("a stored run of 7 steps, CPU", f"{statistics.median(stored):.1f} ms", ""),
        ("a durable run of 7 steps, CPU", f"{statistics.median(durable):.1f} ms", ""),
        ("a durable step adds to a stored one, CPU", f"{added:.2f} ms", ""),
        (
            "a durable step, all its rows, CPU",
            f"{statistics.median(durable) / STEPS:.2f} ms",
            "6 ms",
        ),
        ("message to running, median", f"{statistics.median(started):.1f} ms", "20 ms"),
        (f"7-step runs a second, {AT_ONCE} in flight", f"{rate:.0f}", "24"),
    ]
    print("| | measured | goal |\n|---|---|---|")
    for name, value, goal in rows:
        print(f"| {name} | {value} | {goal} |")


async def _cpu(url: str, *, durable: bool) -> float:
    async with Sessions(AgentLoop(Model(), tools=[add]), url, durable=durable) as sessions:
        await sessions.run(f"warm{next(_numbers)}", "hello")
        before = time.process_time()
        for _ in range(RUNS):
            await sessions.run(f"t{next(_numbers)}", "hello")
        return (time.process_time() - before) / RUNS * 1_000


async def _to_running(sessions: Sessions) -> float:
    begun = time.perf_counter()
    Asked.at = 0.0
    await sessions.run(f"m{next(_numbers)}", "hello")
    return (Asked.at - begun) * 1_000


async def _rate(sessions: Sessions) -> float:
    begun = time.perf_counter()
    runs: list[Awaitable[object]] = [sessions.run(f"r{next(_numbers)}", "hello") for _ in range(AT_ONCE)]
    await asyncio.gather(*runs)
    return AT_ONCE / (time.perf_counter() - begun)


def main(url: str | None = None) -> None:
    """Measure on a database; a new SQLite file by default."""
    asyncio.run(measure(url))
