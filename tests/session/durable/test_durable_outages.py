"""Durable processes that are stopped, killed and replaced, on databases that go away for a while."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

import pytest

from playhead.errors import StoreError
from playhead.session.durable.options import Durable
from playhead.session.durable.records import Records, schema_of
from playhead.session.durable.takeover import LOOK
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from tests.session.durable.workers import Worker, check, ends, noted, starting, stopped, worker
from tests.session.models import StrictLLM, loop_of

pytestmark = pytest.mark.anyio


async def take(url: str, run: str) -> None:
    """Do what a process does that takes the one of a run for dead."""
    async with await open_database(url) as database:
        sql = Records(database, await schema_of(database))
        (at_work,) = [
            found
            for found in await database.read(lambda c: c.execute(sql.open_runs).all())
            if found[0] == run and found[1] == "PENDING"
        ]
        values = {"of_executor": at_work[2], "less": 0}
        assert await database.write(lambda c: c.execute(sql.recover, values).rowcount) >= 1


async def test_a_process_that_stands_still_keeps_its_runs_and_goes_on_with_them(
    url: str, tmp_path: Path
) -> None:
    """Issue 6: SIGSTOP and SIGCONT. Its lock is the kernel's, or Postgres's, and is not free while it
    stands: nobody takes what it would go on with. No clock says that it is dead."""
    async with worker(url, tmp_path) as one, worker(url, tmp_path) as two:
        held, acting = await one.say("hold", "t"), await one.say("act", "u")
        await one.hears(at="model")
        await one.hears(at="tool")
        await stopped(one)
        # Meanwhile the other carries out its own, and looks for dead processes several times.
        others: list[str] = []
        until = monotonic() + 3 * LOOK
        while monotonic() < until:
            others.append(f"m{len(others)}")
            await ends(url, await two.say(others[-1], "v"))
        (tmp_path / "answer").touch()
        (tmp_path / "done").touch()
        one.signal(signal.SIGCONT)
        await ends(url, held, acting)
        assert noted(tmp_path, "asked").count("hold") == 1
        assert len(noted(tmp_path, "acted")) == 1
        said = {"t": ["hold"], "u": ["act"], "v": others}
        assert (await check(url, said))["u"] == ["answer to act, and done"]


async def test_a_process_that_lost_its_runs_while_it_stood_still_is_fenced(url: str, tmp_path: Path) -> None:
    """Issue 6: another took them all the same. The woken one writes nothing, and shows what the other did."""
    async with worker(url, tmp_path) as one, worker(url, tmp_path) as two:
        held, acting = await one.say("hold", "t"), await one.say("act", "u")
        await one.hears(at="model")
        await one.hears(at="tool")
        for run in (held, acting):
            one.do("read", run=run)
        await stopped(one)
        await take(url, held)
        await two.hears(at="model", said="hold")
        (tmp_path / "answer").touch()
        await ends(url, held, acting)
        (tmp_path / "done").touch()
        one.signal(signal.SIGCONT)
        assert len(noted(tmp_path, "acted")) == 1
        answers = await check(url, {"t": ["hold"], "u": ["act"]})
        assert "unknown" in answers["u"][0]
        assert await one.read(held) == answers["t"]
        assert await one.read(acting) == answers["u"]
        # It is none the worse for it.
        await ends(url, await one.say("and now", "u"))
        await check(url, {"t": ["hold"], "u": ["act", "and now"]})
        assert len(noted(tmp_path, "acted")) == 1


async def test_the_runs_of_a_killed_process_go_on_in_a_living_one(url: str, tmp_path: Path) -> None:
    """Issue 6: kill -9, and another process is at work on them a moment later."""
    async with worker(url, tmp_path) as one, worker(url, tmp_path) as two:
        held, acting = await one.say("hold", "t"), await one.say("act", "u")
        await one.hears(at="model")
        await one.hears(at="tool")
        for run in (held, acting):
            two.do("read", run=run)
        one.signal(signal.SIGKILL)
        # A moment is half a second; a busy machine may make more of it.
        await two.hears(at="model", said="hold", within=5)
        await two.hears(at="model", said="act", within=5)
        (tmp_path / "answer").touch()
        answers = {"t": await two.read(held), "u": await two.read(acting)}
        assert await check(url, {"t": ["hold"], "u": ["act"]}) == answers
        assert len(noted(tmp_path, "acted")) == 1


async def test_processes_are_replaced_one_by_one_while_messages_come(url: str, tmp_path: Path) -> None:
    """Issue 6: a rolling restart. What a process does not take any more is sent to the next, and what it was
    at goes on there; every message is answered once, in order."""
    said: dict[str, list[str]] = {f"t{n}": [] for n in range(3)}
    runs: list[str] = []

    async def send(to: list[Worker], text: str, thread: str) -> None:
        for one in (*to, *to):
            one.do("say", thread=thread, text=text, id=text)
            try:
                told = await one.hears(of=text)
            except AssertionError:
                continue  # it has ended
            if "run" in told:
                said[thread].append(text)
                runs.append(told["run"])
                return
            assert told["failed"] == "stopping", told

    async with worker(url, tmp_path) as one, worker(url, tmp_path) as two:
        held = await one.say("hold", "h")
        await one.hears(at="model")
        for n in range(6):
            await send([one, two], f"before {n}", f"t{n % 3}")
        one.signal(signal.SIGTERM)
        await two.hears(at="model", said="hold", within=8)
        await asyncio.gather(*(send([one, two], f"after {n}", f"t{n}") for n in range(3)))
        await one.hears(at="over")
        async with worker(url, tmp_path) as three:
            two.signal(signal.SIGTERM)
            await three.hears(at="model", said="hold", within=8)
            await asyncio.gather(*(send([two, three], f"at last {n}", f"t{n}") for n in range(3)))
            (tmp_path / "answer").touch()
            await ends(url, held, *runs)
        await check(url, {**said, "h": ["hold"]})
        assert len(runs) == len(set(runs)) == 12


async def test_processes_that_open_a_new_database_at_once_all_come_up(url: str, tmp_path: Path) -> None:
    """Issue 6: each would make our tables and the engine's; one does, and the others find them."""
    async with AsyncExitStack() as stack:
        together = [await stack.enter_async_context(starting(url, tmp_path)) for _ in range(3)]
        await asyncio.gather(*(each.hears(at="ready") for each in together))
        runs = await asyncio.gather(*(each.say(f"m{n}", f"t{n}") for n, each in enumerate(together)))
        await ends(url, *runs)
        await check(url, {f"t{n}": [f"m{n}"] for n in range(3)})


async def test_a_run_is_stopped_in_the_process_that_carries_it_out(url: str, tmp_path: Path) -> None:
    """Issue 6: whoever stops it is told when it has ended, though nobody reads in that process."""
    async with worker(url, tmp_path) as one:
        run = await one.say("hold")
        await one.hears(at="model")
        async with Sessions(loop_of(StrictLLM()), url, durable=Durable(works=False)) as elsewhere:
            async with asyncio.timeout(10):
                await elsewhere.cancel(run)
            assert (await elsewhere.find(run)).finish_reason == "cancelled"
            again = await one.say("hold again")
            await one.hears(at="model", said="hold again")
            async with asyncio.timeout(10):
                await elsewhere.delete("t")
            with pytest.raises(StoreError, match="no run"):
                await elsewhere.find(again)
