"""Durable runs whose database fails at the moment that matters, in this process."""

import asyncio
from typing import Any

import pytest

from playhead.errors import StoreError
from playhead.session.sessions import Sessions
from tests.session.durable.test_going_on import lines_of
from tests.session.models import GateLLM, loop_of
from tests.session.readers import all_of

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
