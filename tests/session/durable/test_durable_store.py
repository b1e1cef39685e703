"""Durable runs whose database fails at the moment that matters, in this process."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.exc import OperationalError

from playhead.errors import StoreError
from playhead.session.durable import takeover
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from tests.session.durable.support import lines_of
from tests.session.models import GateLLM, StrictLLM, loop_of
from tests.session.readers import all_of, terminals, text_of
from tests.session.test_outages import limit

pytestmark = pytest.mark.anyio


def away() -> StoreError:
    error = StoreError("The database cannot be reached.")
    error.passing = True
    return error


async def test_a_run_whose_turn_it_is_while_the_database_is_away_begins_later(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: it was taken out of the queue, and is not lost when it cannot be read."""
    model = GateLLM()
    async with Sessions(loop_of(model), url, durable=True) as sessions:
        await sessions.start("t", "one")
        second = await sessions.start("t", "two")
        ledger, failed = lines_of(sessions)._ledger, asyncio.Event()
        find = ledger.run

        async def unread(*args: Any, **named: Any) -> Any:
            if not failed.is_set():
                failed.set()
                raise away()
            return await find(*args, **named)

        monkeypatch.setattr(ledger, "run", unread)
        model.gate.set()
        async with asyncio.timeout(10):
            await failed.wait()
        assert (await all_of(sessions, second.run_id))[-1].result.text == "done"  # type: ignore[union-attr]
        assert (await sessions.run("t", "three")).text == "done"


async def test_a_message_whose_commit_was_not_answered_is_carried_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: who sent it is told that it failed, though it is written. It begins soon, and not only with
    the next process; sending it again finds it."""
    monkeypatch.setattr(takeover, "STRAYS", 0.1)
    model = StrictLLM()
    async with Sessions(loop_of(model), url, durable=True) as sessions:
        ledger = lines_of(sessions)._ledger
        begin = ledger.begin

        async def unheard(*args: Any, **named: Any) -> Any:
            await begin(*args, **named)
            raise away()

        with monkeypatch.context() as patch:
            patch.setattr(ledger, "begin", unheard)
            with pytest.raises(StoreError, match="cannot be reached"):
                await sessions.start("t", "one", message_id="m")
        (open_run,) = await sessions.open_runs("t")
        told = await all_of(sessions, open_run.run_id)
        assert (terminals(told), text_of(told)) == (["run_end"], "done")
        assert (await sessions.start("t", "one", message_id="m")).run_id == open_run.run_id
        assert len(model.seen) == 1


@pytest.mark.parametrize("at", ["start_queued_partitioned_workflows", "get_workflow_statuses"])
async def test_a_run_that_was_taken_from_the_queue_without_an_answer_begins(
    url: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: the engine wrote that it is this process's, and did not hear so."""
    monkeypatch.setattr(takeover, "STRAYS", 0.1)
    model = GateLLM()
    async with Sessions(loop_of(model), url, durable=True) as sessions:
        await sessions.start("t", "one")
        second = await sessions.start("t", "two")
        system, failed = lines_of(sessions).engine._dbos._sys_db, asyncio.Event()
        loop, take = asyncio.get_running_loop(), getattr(system, at)

        def unheard(*args: Any, **named: Any) -> Any:
            taken = take(*args, **named)
            if taken and not failed.is_set():
                loop.call_soon_threadsafe(failed.set)
                raise OperationalError("", {}, Exception("the connection was lost"))
            return taken

        monkeypatch.setattr(system, at, unheard)
        model.gate.set()
        async with asyncio.timeout(10):
            await failed.wait()
        assert (await all_of(sessions, second.run_id))[-1].result.text == "done"  # type: ignore[union-attr]
        assert len(model.seen) == 2


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_run_waits_for_room_on_a_full_disk(url: str) -> None:
    """Issue 6: for as long as it takes. What is sent meanwhile is refused, and says why."""
    long = "x" * 200_000
    model = GateLLM(long)
    async with (
        await open_database(url) as database,
        Sessions(loop_of(model), database, durable=True) as sessions,
    ):
        engine: Any = lines_of(sessions).engine._engine
        full = True

        @event.listens_for(engine, "checkout")
        def of_the_engine(connection: Any, *_: Any) -> None:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages if full else 2**30}").close()

        run = await sessions.start("t", "go")
        await model.waiting.wait()
        await limit(database, 0)
        model.gate.set()
        with pytest.raises(StoreError, match="no room left"):
            await sessions.start("u", "y" * 200_000, message_id="m")
        await asyncio.sleep(1.0)  # for some tries
        assert (await sessions.find(run.run_id)).state == "running"
        await limit(database, 1_000_000)
        full = False
        assert text_of(await all_of(sessions, run.run_id)) == long
        for thread in ("t", "u"):
            assert (await sessions.run(thread, "and now", message_id="m")).text == long
        assert len(model.seen) == 3


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_run_waits_while_another_program_holds_the_database(url: str) -> None:
    """Issue 6: also for longer than a write waits for a lock."""
    model = GateLLM()
    other = create_engine(url)
    async with (
        await open_database(url, busy_timeout=0.2) as database,
        Sessions(loop_of(model), database, durable=True) as sessions,
    ):
        run = await sessions.start("t", "go")
        await model.waiting.wait()
        with other.connect() as connection:
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
            model.gate.set()
            with pytest.raises(StoreError, match="locked by others"):
                await sessions.start("u", "hello", message_id="m")
            await asyncio.sleep(1.0)  # for some tries
            assert (await sessions.find(run.run_id)).state == "running"
            connection.exec_driver_sql("ROLLBACK")
        assert text_of(await all_of(sessions, run.run_id)) == "done"
        for thread in ("t", "u"):
            assert (await sessions.run(thread, "and now", message_id="m")).text == "done"
        assert len(model.seen) == 3
    other.dispose()


async def test_a_process_goes_on_looking_for_dead_ones_whatever_fails(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: a look that fails, for lack of room or of files that may be open, is not the last."""
    monkeypatch.setattr(takeover, "LOOK", 0.01)
    async with Sessions(loop_of(StrictLLM()), url, durable=True) as sessions:
        engine, looks, again = lines_of(sessions).engine, 0, asyncio.Event()
        executors = engine.executors

        async def failing() -> Any:
            nonlocal looks
            looks += 1
            if looks <= 2:
                raise OSError("No space left on device")
            again.set()
            return await executors()

        monkeypatch.setattr(engine, "executors", failing)
        async with asyncio.timeout(10):
            await again.wait()
        assert (await sessions.run("t", "hello")).text == "done"
