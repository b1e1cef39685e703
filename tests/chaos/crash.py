"""The crash test itself: conversations go on while their processes are killed; then all comes to rest."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec

from playhead.session.durable.lines import MOST_ATTEMPTS
from playhead.session.durable.options import Lock
from playhead.session.durable.records import EngineRun, Records, schema_of
from playhead.storage.engine import Database, open_database
from playhead.storage.sql_ledger import SQLLedger
from tests.chaos.fleet import Fleet, Worker
from tests.chaos.model import Effects
from tests.chaos.people import Reader, Sender, threads
from tests.chaos.verdict import Conversation, Verdict, conversation, judge, judge_effects
from tests.support.until import until

# What all may take to come to rest once nothing is killed any more, in seconds.
_REST = 60.0
# A worker stands still for so long at most: longer than a heart may be silent.
_STILL = 6.0
# A reader sees the last event this long after it was written, at most, in seconds.
_SEEN = 20.0


@dataclass(frozen=True)
class Kill:
    """A kill, in milliseconds since 1970. `at_work` are the runs that were there; `watched`: the other
    process was left alone until they had gone on."""

    at: int
    at_work: Sequence[str]
    watched: bool


@dataclass
class Crashes:
    """What was done, and what came of it. Times are in milliseconds."""

    seed: int
    kills: int = 0
    both: int = 0
    pauses: int = 0
    takeovers: list[int] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def faults(self) -> Sequence[str]:
        """Every fault in words."""
        return [f"{kind}: {one}" for kind, all in self.verdict.faults.items() for one in all]


async def crash(
    url: str,
    folder: Path,
    *,
    kills: int,
    seed: int,
    many: int = 6,
    gently: float = 0.0,
    pauses: float = 0.0,
    takeover: Lock = "lock",
) -> Crashes:
    """Kill workers on a database so many times, and return what was counted.

    Args:
        folder: for what the workers leave behind: a file of effects and a log.
        seed: of the moments, the victims and what is said. Processes are not driven by it: two tests with
            one seed are alike, and not the same.
        many: how many conversations go on at once.
        gently: which part of the workers is asked to end (SIGTERM) and not killed.
        pauses: which part of the moments has a worker stand still (SIGSTOP) until others took its runs, if
            they do, and then go on.
        takeover: as `Durable` takes it.
    """
    crashes = Crashes(seed)
    fleet = Fleet(url, folder, takeover=takeover)
    async with await open_database(url) as database, aiohttp.ClientSession() as http:
        try:
            killer = Killer(fleet, database, crashes, gently, pauses)
            async with _people(http, fleet, seed, many) as (senders, readers):
                await killer.kill(kills, readers)
                await _rest(crashes, fleet, database, senders, readers)
        finally:
            await fleet.aclose()
        await _judge(crashes, fleet, database, senders, readers, killer.done)
    return crashes


@asynccontextmanager
async def _people(
    http: aiohttp.ClientSession, fleet: Fleet, seed: int, many: int
) -> AsyncIterator[tuple[Sequence[Sender], Sequence[Sequence[Reader]]]]:
    """Of each thread a sender, a reader that stays as long as it is let, and one that comes and goes."""
    for place in range(fleet.size):
        fleet.start(place)
    readers, senders = [], []
    for thread in threads(many):
        steady = Reader(thread, http, fleet, f"{seed} {thread} steady")
        readers.append((steady, Reader(thread, http, fleet, f"{seed} {thread} parted", 40)))
        senders.append(Sender(thread, http, fleet, f"{seed} {thread} sender", steady))
    tasks = [asyncio.create_task(reader.read()) for pair in readers for reader in pair]
    tasks += [asyncio.create_task(sender.send()) for sender in senders]
    try:
        yield senders, readers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and task.exception() is not None:
            await task


class Killer:
    """Kills at moments that the seed names in events: so many after the last kill."""

    def __init__(
        self, fleet: Fleet, database: Database, crashes: Crashes, gently: float, pauses: float
    ) -> None:
        self.done: list[Kill] = []
        self._fleet = fleet
        self._database = database
        self._crashes = crashes
        self._gently, self._pauses = gently, pauses
        # Of each run what it had told by its last death, and how often it died since without telling more.
        self._deaths: dict[str, tuple[int, int]] = {}
        self._chance = random.Random(f"{crashes.seed} kills")

    async def kill(self, kills: int, readers: Sequence[Sequence[Reader]]) -> None:
        """Kill so many times."""
        steady = [pair[0] for pair in readers]
        await self._fleet.wait_ready(self._fleet.size)
        while len(self.done) < kills:
            watched, both = self._chance.random() < 0.5, self._chance.random() < 0.15
            events, most = self._chance.randint(1, 60), self._chance.uniform(0.5, 2.0)
            if watched:
                await self._fleet.wait_ready(self._fleet.size)
            await _told(steady, events, most)
            if self._chance.random() < self._pauses:
                await self._stand_still()
            await self._fleet.wait_ready()
            victims = self._victims(both)
            await self._spare(victims)
            gently = self._chance.random() < self._gently
            kill = Kill(_now(), await self._at_work(victims), watched and len(victims) == 1 and not gently)
            await self._fleet.kill(victims, gently=gently)
            self.done.append(kill)
            self._crashes.kills += 1
            self._crashes.both += len(victims) > 1
            if kill.watched:
                await self._watch(kill)

    async def _stand_still(self) -> None:
        worker = self._chance.choice(await self._fleet.wait_ready(self._fleet.size))
        kill = Kill(_now(), await self._at_work([worker]), watched=False)
        worker.pause()
        await self._watch(kill, within=_STILL)
        worker.wake()
        self._crashes.pauses += 1

    async def _spare(self, victims: Sequence[Worker]) -> None:
        """Let a run come a step further that would be given up, and rightly: its process died at this step
        again and again."""
        ledger = SQLLedger(self._database)
        for run_id in await self._at_work(victims):
            before, deaths = self._deaths.get(run_id, (0, 0))
            deadline = time.monotonic() + _REST
            while True:
                done = await steps_told(ledger, run_id)
                if done > before or deaths < MOST_ATTEMPTS - 3 or time.monotonic() > deadline:
                    break
                await asyncio.sleep(0.02)
            self._deaths[run_id] = (done, 1 if done > before else deaths + 1)

    def _victims(self, both: bool) -> Sequence[Worker]:
        living = self._fleet.living
        if both:
            return living
        # One that is about to begin is killed too, now and then.
        return [self._chance.choice(self._fleet.ready if self._chance.random() < 0.8 else living)]

    async def _at_work(self, workers: Sequence[Worker]) -> Sequence[str]:
        pids = [f"/{worker.pid}/" for worker in workers]
        runs = await engine_runs(self._database)
        pending = [run for run in runs if run.status == "PENDING" and run.executor]
        return [run.run_id for run in pending if any(pid in (run.executor or "") for pid in pids)]

    async def _watch(self, kill: Kill, within: float = 10.0) -> None:
        """Wait until the runs of the dead have told something elsewhere, or for so many seconds."""
        ledger = SQLLedger(self._database)
        deadline = time.monotonic() + within
        for run_id in kill.at_work:
            while time.monotonic() < deadline and await next_event(ledger, run_id, kill.at) is None:
                run = await ledger.run(run_id)
                if run is None or run.state not in ("queued", "running"):
                    break
                await asyncio.sleep(0.02)


async def _told(readers: Sequence[Reader], events: int, most: float) -> None:
    """Wait until so many more events were told, or for so many seconds."""
    enough = sum(reader.events for reader in readers) + events
    with suppress(TimeoutError):
        await until(lambda: sum(reader.events for reader in readers) >= enough, within=most)


async def next_event(ledger: SQLLedger, run_id: str, after: int) -> int | None:
    """Return when a run told something for the first time after a moment, in milliseconds."""
    run = await ledger.run(run_id)
    if run is None:
        return None
    rows = (await ledger.events.after(run.thread_id, 0, run_id=run_id, limit=10_000)).rows
    times = [_at(row.data).at for row in rows]
    return next((at for at in times if at > after), None)


async def steps_told(ledger: SQLLedger, run_id: str) -> int:
    """Return how many steps of a run have told their results, with its end."""
    run = await ledger.run(run_id)
    if run is None:
        return 0
    rows = (await ledger.events.after(run.thread_id, 0, run_id=run_id, limit=10_000)).rows
    return sum(row.type in ("tool_result", "step_end", "run_end") for row in rows)


async def engine_runs(database: Database) -> Sequence[EngineRun]:
    """Return what waits and what is at work, as the engine knows it."""
    query = Records(database, await schema_of(database)).open_runs
    return await database.read(lambda connection: [EngineRun(*row) for row in connection.execute(query)])


async def _rest(
    crashes: Crashes,
    fleet: Fleet,
    database: Database,
    senders: Sequence[Sender],
    readers: Sequence[Sequence[Reader]],
) -> None:
    """Let everything come to its end with nobody killed."""
    for sender in senders:
        sender.stop()
    await fleet.wait_ready(fleet.size)
    ledger = SQLLedger(database)
    deadline = time.monotonic() + _REST
    while time.monotonic() < deadline:
        said = all(set(sender.policies) == set(sender.acknowledged) for sender in senders)
        if said and not await ledger.runs() and not await engine_runs(database):
            break
        await asyncio.sleep(0.05)
    else:
        for run in await ledger.runs():
            crashes.verdict.blame("runs that do not end", f"{run.thread_id}: {run.run_id} {run.state}")
        for one in await engine_runs(database):
            crashes.verdict.blame("runs that do not end", f"engine: {one}")
    for pair in readers:
        for reader in pair:
            last = (await ledger.events.after(reader.thread, 0, limit=100_000)).through
            await reader.wait_for(lambda reader=reader, last=last: reader.client.seq >= last, _SEEN)


async def _judge(
    crashes: Crashes,
    fleet: Fleet,
    database: Database,
    senders: Sequence[Sender],
    readers: Sequence[Sequence[Reader]],
    kills: Sequence[Kill],
) -> None:
    verdict, ledger = crashes.verdict, SQLLedger(database)
    talks: list[Conversation] = []
    for sender, pair in zip(senders, readers, strict=True):
        talk = await conversation(ledger, sender.thread, sender, pair)
        judge(verdict, talk)
        talks.append(talk)
        verdict.sent_again += sender.again
        for fault in sender.faults:
            verdict.blame("refused", fault)
    judge_effects(verdict, Effects.read(fleet.effects), talks)
    for failure in fleet.failures:
        verdict.blame("workers that failed", failure)
    for kill in kills:
        if kill.watched:
            found = [await next_event(ledger, run_id, kill.at) for run_id in kill.at_work]
            crashes.takeovers += [at - kill.at for at in found if at is not None]


class _At(msgspec.Struct):
    at: int = 0


_at = msgspec.json.Decoder(_At).decode


def _now() -> int:
    return time.time_ns() // 1_000_000
