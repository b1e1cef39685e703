"""Durable processes whose Postgres ends, or whose way to it does."""

import asyncio
import itertools
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import Connection

from playhead.session.durable.locks import locks_of
from playhead.session.durable.takeover import LOOK
from playhead.storage.engine import open_database
from tests.session.durable.cable import cable_to
from tests.session.durable.workers import Worker, check, ends, noted, worker
from tests.support.postgres import Postgres, in_schema, own_postgres

pytestmark = pytest.mark.anyio
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with own_postgres() as own:
        yield own


@pytest.fixture
def url(server: Postgres) -> str:
    return in_schema(server.url, f"own{next(_numbers)}")


async def sent(one: Worker, text: str, thread: str) -> str:
    """Send a message until it is taken, as a page does."""
    while True:
        one.told = [told for told in one.told if told.get("of") != text]
        one.do("say", thread=thread, text=text, id=text)
        told = await one.hears(of=text)
        if "run" in told:
            return str(told["run"])
        assert told["failed"] == "store", told
        await asyncio.sleep(0.05)


async def at_work(one: Worker, *texts: str) -> list[str]:
    """Have runs begin, each in a thread of its own, and wait until they are held in a model and a tool."""
    runs = [await one.say(text, text) for text in texts]
    if any(text.startswith("hold") for text in texts):
        await one.hears(at="model")
    await one.hears(at="tool")
    for run in runs:
        one.do("read", run=run)
    return runs


async def test_a_postgres_that_ends_and_comes_back_costs_nothing(
    server: Postgres, url: str, tmp_path: Path
) -> None:
    """Issue 6: stopped at once and started again in mid-run. What was at work goes on where it was; what is
    sent meanwhile is refused clearly, or lands once with its id."""
    async with worker(url, tmp_path) as one:
        runs = await at_work(one, "hold", "act")
        server.stop()
        try:
            one.do("say", thread="hold", text="between", id="between")
            (tmp_path / "answer").touch()
            (tmp_path / "done").touch()
            told = await one.hears(of="between")
            assert told["failed"] == "store"
            assert "cannot be reached" in told["text"]
        finally:
            server.start()
        one.told.clear()
        runs += [await one.say("between", "hold"), await one.say("after", "act")]
        await ends(url, *runs)
        answers = await check(url, {"hold": ["hold", "between"], "act": ["act", "after"]})
        assert answers["act"][0] == "answer to act, and done"
        assert noted(tmp_path, "asked").count("hold") == 1
        assert len(noted(tmp_path, "acted")) == 1


async def test_no_process_takes_another_for_dead_because_postgres_came_back(
    server: Postgres, url: str, tmp_path: Path
) -> None:
    """Issue 6: all locks went with the server. Who is back first finds those of the others free, and leaves
    them the time to take theirs again: a tool that must not be repeated is not given up for that."""
    async with worker(url, tmp_path) as one, worker(url, tmp_path) as two:
        runs = [*await at_work(one, "act 1"), *await at_work(two, "act 2")]
        server.stop()
        server.start()
        # Both have been back for a while, and have looked for dead ones.
        until = monotonic() + 6 * LOOK
        others: list[str] = []
        while monotonic() < until:
            others.append(f"m{len(others)}")
            runs += [await sent(each, others[-1], f"v{each.process.pid}") for each in (one, two)]
        (tmp_path / "done").touch()
        await ends(url, *runs)
        said = {f"v{each.process.pid}": others for each in (one, two)}
        answers = await check(url, {"act 1": ["act 1"], "act 2": ["act 2"], **said})
        assert [answers[f"act {n}"][0] for n in (1, 2)] == [f"answer to act {n}, and done" for n in (1, 2)]
        assert len(noted(tmp_path, "acted")) == 2


async def test_a_way_to_postgres_that_is_cut_is_waited_for(url: str, tmp_path: Path) -> None:
    """Issue 6: nobody else is there, and the process goes on with its runs when the way is back."""
    async with cable_to(url) as cable, worker(cable.url, tmp_path) as one:
        runs = await at_work(one, "hold", "act")
        cable.cut()
        (tmp_path / "answer").touch()
        (tmp_path / "done").touch()
        one.do("say", thread="hold", text="between", id="between")
        assert (await one.hears(of="between"))["failed"] == "store"
        cable.mend()
        one.told.clear()
        runs += [await one.say("between", "hold")]
        await ends(url, *runs)
        await check(url, {"hold": ["hold", "between"], "act": ["act"]})
        assert len(noted(tmp_path, "acted")) == 1


async def test_a_way_to_postgres_that_swallows_all_for_a_while_is_waited_for(
    url: str, tmp_path: Path
) -> None:
    """Issue 6: nobody is told that anything is wrong, and what was sent arrives late."""
    async with cable_to(url) as cable, worker(cable.url, tmp_path) as one, worker(url, tmp_path) as two:
        runs = await at_work(one, "hold", "act")
        cable.swallow()
        (tmp_path / "answer").touch()
        (tmp_path / "done").touch()
        one.do("say", thread="hold", text="between", id="between")
        # The server holds the lock for a process of which it hears nothing: nobody takes its runs.
        for n in range(5):
            await ends(url, await two.say(f"m{n}", "v"))
        cable.mend()
        between = (await one.hears(of="between"))["run"]
        await ends(url, *runs, between)
        await check(url, {"hold": ["hold", "between"], "act": ["act"], "v": [f"m{n}" for n in range(5)]})
        assert noted(tmp_path, "asked").count("hold") == 1
        assert len(noted(tmp_path, "acted")) == 1


@pytest.mark.parametrize("how", ["cut", "swallow"])
async def test_runs_of_a_process_that_postgres_lost_go_on_in_another(
    how: str, url: str, tmp_path: Path
) -> None:
    """Issue 6: its lock was let go with its connection. It is fenced when it is back, shows what the other
    did, and takes part again."""
    async with cable_to(url) as cable, worker(cable.url, tmp_path) as one, worker(url, tmp_path) as two:
        runs = await at_work(one, "hold", "act")
        if how == "cut":
            cable.cut()
        else:
            cable.swallow()
            cable.end_far()
        await two.hears(at="model", said="hold")
        await two.hears(at="model", said="act")
        (tmp_path / "answer").touch()
        await ends(url, *runs)
        (tmp_path / "done").touch()
        cable.mend()
        if how == "swallow":
            cable.drop()
        answers = await check(url, {"hold": ["hold"], "act": ["act"]})
        assert "unknown" in answers["act"][0]
        assert [await one.read(run) for run in runs] == [answers["hold"], answers["act"]]
        await ends(url, await one.say("and now", "act"))
        await check(url, {"hold": ["hold"], "act": ["act", "and now"]})
        assert len(noted(tmp_path, "acted")) == 1


@pytest.mark.parametrize("seed", range(2))
async def test_ways_that_are_cut_again_and_again_lose_and_double_nothing(
    seed: int, url: str, tmp_path: Path
) -> None:
    """Issue 6: at any moment, in the midst of a commit too: each message is answered once, in order."""
    chance = random.Random(seed)
    (tmp_path / "answer").touch()
    (tmp_path / "done").touch()
    threads = {f"t{n}": [f"{chance.choice(['act', 'say'])} {n} {m}" for m in range(6)] for n in range(8)}
    async with (
        cable_to(url) as first,
        cable_to(url) as second,
        worker(first.url, tmp_path) as one,
        worker(second.url, tmp_path) as two,
    ):
        over = asyncio.Event()

        async def cutting() -> None:
            while not over.is_set():
                cable = chance.choice([first, second])
                cable.drop() if chance.random() < 0.5 else cable.cut()
                await asyncio.sleep(chance.uniform(0, 0.1))
                cable.mend()
                await asyncio.sleep(chance.uniform(0, 0.4))

        async def talk(thread: str, texts: list[str]) -> list[str]:
            return [await sent(chance.choice([one, two]), text, thread) for text in texts]

        cuts = asyncio.create_task(cutting())
        runs = await asyncio.gather(*(talk(*of) for of in threads.items()))
        over.set()
        await cuts
        await ends(url, *itertools.chain(*runs))
        await check(url, threads)
        acted = noted(tmp_path, "acted")
        assert len(acted) == len(set(acted))


async def test_a_server_that_is_gone_without_a_word_is_noticed_within_half_a_minute(url: str) -> None:
    """Issue 6: a machine that lost its power, or a way that swallows all for good: the kernel asks, on every
    connection that may wait for the other end, and gives it up. (That takes its time, so that what was set
    is looked at here.)"""

    def noticed_within(connection: Any) -> int:
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, every, count = (
                line.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
        return idle + every * count

    def of_engine(connection: Connection) -> int:
        return noticed_within(connection.connection.dbapi_connection)

    async with cable_to(url) as cable, await open_database(cable.url) as database:
        assert await database.read(of_engine) <= 30
        assert await database.write(of_engine) <= 30
        engine = database.another_engine(1)

        def guest() -> int:
            with engine.connect() as connection:
                return of_engine(connection)

        assert await asyncio.to_thread(guest) <= 30
        engine.dispose()
        locks = locks_of(database)
        await locks.hold("host/1")
        assert noticed_within(locks._connection) <= 15  # type: ignore[attr-defined]
        await locks.aclose()
