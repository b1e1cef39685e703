"""Durable runs whose database fails at the moment that matters, in this process."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from playhead.errors import StoreError
from playhead.session.durable import takeover
from playhead.session.sessions import Sessions
from tests.session.durable.test_going_on import lines_of
from tests.session.models import GateLLM, StrictLLM, loop_of
from tests.session.readers import all_of, terminals, text_of

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
