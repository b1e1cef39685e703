"""Measure what it costs to write sessions down, and to follow them. `make bench ARGS=--sessions`.

Everything is on SQLite in a temp folder; the model is in this process. CPU is user and system time of
this process. Added CPU is beside the same runs in memory, in turns, and beside a floor: as many commits
of the same rows by the standard library alone, from a thread. It is measured with a model that answers
at once and with one that takes 20 ms a call: a virtual machine that wakes from a pause pays for that
too, by how busy its host is.
"""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from pathlib import Path

from playhead import AgentLoop, tool
from playhead.events import EmitDelta, TextDelta
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from playhead.storage.turns import SQLTurnStore
from playhead.types import AssistantMessage, LLMRequest, LLMResult, ToolCall, UserMessage

ROUNDS = 5
RUNS, READERS = 100, 10
RUNS_A_ROUND = 20
# Of a run of `Model`: its message, each reply, and each result.
COMMITS = 8
PAUSE = 0.02


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Model:
    """Calls `add` three times, then says four words: with its tools, a run of seven steps."""

    provider = model = "bench"
    owns_attempts = True

    def __init__(self, words: int = 4, pause: float = 0.0, wait: float = PAUSE) -> None:
        self.words, self.pause, self.wait = words, pause, wait

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        await asyncio.sleep(self.wait)
        turn = list(request.messages)
        while not isinstance(turn[0], UserMessage) or any(isinstance(m, UserMessage) for m in turn[1:]):
            turn.pop(0)
        asked = sum(isinstance(message, AssistantMessage) for message in turn)
        if asked < 3:
            call = ToolCall(f"{turn[0].id}-{asked}", "add", {"a": asked, "b": 1})
            return LLMResult(AssistantMessage("", (call,)), "tool_calls")
        for _ in range(self.words):
            if emit is not None:
                emit(TextDelta("word "))
            await asyncio.sleep(self.pause)
        return LLMResult(AssistantMessage("word " * self.words), "stop")


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        lines = asyncio.run(_all(Path(folder)))
    print("| | measured | goal |", "|---|---|---|", *lines, sep="\n")


async def _all(folder: Path) -> Sequence[str]:
    added, floor = await added_cpu(folder)
    paced, paced_floor = await added_cpu(folder, PAUSE)
    short, long = await appends(folder)
    few, many = await openings(folder)
    gap = await reconnect(folder)
    lost, told, seconds = await crowd(folder)
    rows = {
        "a stored run of 7 steps, CPU ms added": (f"{added:.1f} ({added / floor:.2f}x the floor)", "5"),
        "the same with a model of 20 ms a call": (f"{paced:.1f} ({paced / paced_floor:.2f}x the floor)", ""),
        "an append to a thread of 10,000 messages, by one of 10": (
            f"{long / short:.2f}x ({long:.2f} ms)",
            "1x",
        ),
        "opening it for a turn (20 turns), by a thread of just those": (
            f"{many / few:.2f}x ({many:.1f} ms)",
            "1x",
        ),
        "the gap of a reader that comes back (500 events), ms": (f"{gap:.0f}", "100"),
        f"{RUNS * READERS} readers on {RUNS} runs, {told:,} events in {seconds:.1f} s: lost": (
            str(lost),
            "0",
        ),
    }
    return [f"| {title} | {measured} | {goal} |" for title, (measured, goal) in rows.items()]


async def added_cpu(folder: Path, wait: float = 0.0) -> tuple[float, float]:
    """Milliseconds of CPU that SQLite adds to a run whose model takes `wait` seconds, and the floor's."""

    async def one(url: str | None) -> float:
        async with Sessions(AgentLoop(Model(wait=wait), tools=[add]), url) as sessions:
            return await _cpu(lambda n: sessions.run(f"t{n}", "go"), RUNS_A_ROUND)

    rounds = []
    for number in range(ROUNDS):
        ours, floor = (folder / f"{name}-{wait}-{number}.db" for name in ("added", "floor"))
        rounds.append((await one(None), await one(f"sqlite:///{ours}"), await _floor(floor, wait)))
    stored = statistics.median(stored - plain for plain, stored, _ in rounds)
    return stored, statistics.median(floor for *_, floor in rounds)


async def _floor(file: Path, wait: float) -> float:
    """Milliseconds of CPU of what a run commits, each a row of a thread and an event, indexed."""
    with (
        closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as database,
        ThreadPoolExecutor(1) as writer,
    ):
        database.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE turns (thread, seq, row, PRIMARY KEY (thread, seq)) WITHOUT ROWID;"
            "CREATE TABLE events (thread, seq, event, PRIMARY KEY (thread, seq)) WITHOUT ROWID;"
        )

        def commit(thread: int, seq: int) -> None:
            database.execute("BEGIN IMMEDIATE")
            for table, size in (("turns", 200), ("events", 300)):
                database.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (thread, seq, "x" * size))
            database.execute("COMMIT")

        async def run(thread: int) -> None:
            for seq in range(COMMITS):
                if seq % 2:
                    await asyncio.sleep(wait)
                await asyncio.get_running_loop().run_in_executor(writer, commit, thread, seq)

        return await _cpu(run, RUNS_A_ROUND)


async def _cpu(work: Callable[[int], Awaitable[object]], times: int = 100) -> float:
    await work(-1)
    started = time.process_time()
    for n in range(times):
        await work(n)
    return (time.process_time() - started) / times * 1e3


async def appends(folder: Path) -> tuple[float, float]:
    """Milliseconds of CPU of an append to a short thread, and to a long one."""
    async with await open_database(f"sqlite:///{folder / 'append.db'}") as database:
        store = SQLTurnStore(database)
        await _fill(store, "long", 10_000)
        await _fill(store, "short", 10)
        found = []
        for round in range(ROUNDS):
            pair = []
            for thread in ("short", "long"):
                name = f"{thread}-{round}"

                async def one(n: int, thread: str = thread, name: str = name) -> None:
                    await store.append(thread, UserMessage("x" * 200), turn_id=f"{name}-{n}")

                pair.append(await _cpu(one, 30))
            found.append(pair)
        short, long = (statistics.median(pair[n] for pair in found) for n in (0, 1))
        return short, long


async def openings(folder: Path) -> tuple[float, float]:
    """Milliseconds of CPU to read the window of a thread that is one, and of a long thread."""
    async with await open_database(f"sqlite:///{folder / 'open.db'}") as database:
        store = SQLTurnStore(database)
        await _fill(store, "long", 10_000)
        await _fill(store, "window", 20 * 2)
        few = await _cpu(lambda n: store.window("window", turns=20))
        many = await _cpu(lambda n: store.window("long", turns=20))
        return few, many


async def _fill(store: SQLTurnStore, thread: str, messages: int) -> None:
    for first in range(0, messages, 500):
        numbers = range(first, min(first + 500, messages))
        await asyncio.gather(
            *(
                store.append(thread, UserMessage("q" * 100), turn_id=f"{thread}{n // 2}")
                if n % 2 == 0
                else store.append(
                    thread, AssistantMessage("a" * 100), turn_id=f"{thread}{n // 2}", step_index=1
                )
                for n in numbers
            )
        )


async def reconnect(folder: Path) -> float:
    """Milliseconds until a reader that comes back has some 500 events that it missed."""
    async with Sessions(AgentLoop(Model(), tools=[add]), f"sqlite:///{folder / 'gap.db'}") as sessions:
        for _ in range(25):
            await sessions.run("t", "go")
        last, times = await sessions.last_seq("t"), []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            async with aclosing(sessions.shown_in("t", after=last - 500 if last > 500 else 0)) as shown:
                async for event in shown:
                    if event.seq == last:
                        break
            times.append((time.perf_counter() - started) * 1e3)
        return statistics.median(times)


async def crowd(folder: Path) -> tuple[int, int, float]:
    """Events that readers lost, events that they got, and seconds, with many on many runs."""
    async with Sessions(
        AgentLoop(Model(words=50, pause=0.02), tools=[add]), f"sqlite:///{folder / 'crowd.db'}"
    ) as sessions:

        async def read(run_id: str) -> tuple[int, int]:
            text, ends, count = "", 0, 0
            async with aclosing(sessions.shown(run_id)) as shown:
                async for one in shown:
                    count += 1
                    event = one.event
                    if isinstance(event, TextDelta):
                        assert event.offset == len(text), "a gap or a repetition"
                        text += event.text
                    ends += one.type == "run_end"
            return (text != "word " * 50) + (ends != 1), count

        started = time.perf_counter()
        runs = [await sessions.start(f"t{n}", "go") for n in range(RUNS)]
        outcomes = await asyncio.gather(*(read(run.run_id) for run in runs for _ in range(READERS)))
        lost, told = (sum(outcome[n] for outcome in outcomes) for n in (0, 1))
        return lost, told, time.perf_counter() - started
