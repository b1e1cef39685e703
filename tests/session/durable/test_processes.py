"""Who lives, who does not, and what runs where."""

import asyncio
from typing import Any

import pytest

from playhead.session.durable import locks as locks_module
from playhead.session.durable.locks import locks_of
from playhead.session.durable.options import Durable, Lock
from playhead.session.durable.survey import survey
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from tests.session.durable.support import change, durable
from tests.session.models import GateLLM, StrictLLM, loop_of
from tests.session.readers import all_of
from tests.support.until import until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["lock", "heartbeat"])
async def test_a_name_is_free_when_nobody_holds_it(
    url: str, kind: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: a lock says who lives; it is held by one, and free once that lets go."""
    monkeypatch.setattr(locks_module, "GRACE", 0.0)  # the server of the tests is young
    async with await open_database(url) as database:
        mine, other = locks_of(database, kind), locks_of(database, kind)
        await mine.hold("host/1")
        assert not await other.is_free("host/1")
        assert await other.is_free("host/2")
        assert await other.take("sweeper")
        assert not await mine.take("sweeper")
        await other.give_back("sweeper")
        assert await mine.take("sweeper")
        await mine.aclose()
        assert await other.is_free("host/1")
        assert await other.is_free("sweeper")
        await other.aclose()


async def test_a_process_whose_heart_is_silent_is_dead(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: behind PgBouncer a row that is not renewed stands for the lock, by the database's clock."""
    monkeypatch.setattr(locks_module, "BEAT", 0.05)
    monkeypatch.setattr(locks_module, "SILENT", 0.4)
    async with await open_database(url) as database:
        mine, other = locks_of(database, "heartbeat"), locks_of(database, "heartbeat")
        await mine.hold("host/1")
        for _ in range(12):
            await asyncio.sleep(0.05)
            assert not await other.is_free("host/1")
        task: Any = mine._task  # type: ignore[attr-defined]
        task.cancel()
        free = False
        async with asyncio.timeout(5):
            while not free:
                free = await other.is_free("host/1")
        await mine.aclose()


async def test_runs_are_taken_over_by_heartbeat(url: str) -> None:
    """Issue 6: the heartbeat form does what the lock does."""
    model = GateLLM()
    beating = Durable(takeover="heartbeat")
    async with Sessions(loop_of(model), url, durable=beating, stop_timeout=0.2) as sessions:
        run = await sessions.start("t", "hello")
        await model.waiting.wait()
    model.gate.set()
    async with Sessions(loop_of(model), url, durable=beating, stop_timeout=0.2) as sessions:
        assert (await all_of(sessions, run.run_id))[-1].result.text == "done"  # type: ignore[union-attr]


async def test_a_process_that_does_not_work_leaves_runs_to_others(url: str) -> None:
    """Issue 6: a server beside workers accepts and shows runs, and carries none out."""
    model = StrictLLM()
    async with Sessions(loop_of(model), url, durable=Durable(works=False)) as sessions:
        run = await sessions.start("t", "hello")
        assert (await sessions.find(run.run_id)).state == "queued"
        async with await open_database(url) as database:
            (found,) = await survey(database)
            assert (found.run_id, found.place) == (run.run_id, "waiting")
    assert not model.seen
    async with durable(loop_of(model), url) as sessions:
        assert (await all_of(sessions, run.run_id))[-1].result.text == "done"  # type: ignore[union-attr]


async def test_it_is_told_what_runs_where(url: str) -> None:
    """Issue 6: what is at work and where, what waits behind it, and what nobody goes on with."""
    model = GateLLM()
    async with durable(loop_of(model), url) as sessions:
        first = await sessions.start("t", "one")
        second = await sessions.start("t", "two")
        await model.waiting.wait()
        async with await open_database(url) as database:
            found = await survey(database)
            assert [(at.run_id, at.place) for at in found] == [
                (first.run_id, "at work"),
                (second.run_id, "waiting"),
            ]
            assert found[0].process
            assert found[0].attempts == 1
    async with await open_database(url) as database:
        await change(url, "workflow_status", "UPDATE {table} SET status = 'PENDING', executor_id = 'host/1'")
        assert [at.place for at in await survey(database)] == ["stuck", "stuck"]
        assert "start `playhead serve`" in (await survey(database))[0].todo
        await change(url, "workflow_status", "DELETE FROM {table}")
        assert [at.place for at in await survey(database)] == ["orphaned", "orphaned"]


async def test_a_run_that_the_engine_lost_is_ended(url: str) -> None:
    """Issue 6: nobody goes on with it, so its thread is told, and takes the next message."""
    model = GateLLM()
    async with durable(loop_of(model), url) as sessions:
        run = await sessions.start("t", "one")
        await model.waiting.wait()
    await change(url, "workflow_status", "DELETE FROM {table}")
    model.gate.set()
    async with durable(loop_of(model), url) as sessions:
        told = await all_of(sessions, run.run_id)
        assert told[-1].result.error_code == "interrupted"  # type: ignore[union-attr]
        assert (await sessions.run("t", "two")).text == "done"


async def test_a_database_without_durable_runs_is_surveyed_too(url: str) -> None:
    """Issue 6: `playhead runs` says what a plain process has at work."""
    model = GateLLM()
    async with Sessions(loop_of(model), url) as sessions:
        run = await sessions.start("t", "one")
        await until(lambda: model.seen)
        async with await open_database(url) as database:
            (found,) = await survey(database)
            assert (found.run_id, found.place) == (run.run_id, "at work")
        model.gate.set()
