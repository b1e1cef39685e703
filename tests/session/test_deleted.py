"""Threads that are deleted: by this process or another, under their readers and under their runs."""

import asyncio

import pytest

from playhead.session.sessions import Sessions
from playhead.storage.memory_ledger import MemoryLedger
from tests.session.models import StrictLLM, loop_of
from tests.session.readers import all_of, text_of

pytestmark = pytest.mark.anyio


async def test_who_had_read_a_deleted_thread_is_told_all_of_the_one_that_begins_anew(
    store_url: str | None,
) -> None:
    """Q206, Q248: a cursor of the thread before is not one of its future; in other processes neither."""
    place = store_url or MemoryLedger()
    async with (
        Sessions(loop_of(StrictLLM()), place) as sessions,
        Sessions(loop_of(StrictLLM()), place) as other,
    ):
        run = await sessions.start("t", "one")
        cursor = (await all_of(sessions, run.run_id))[-1].seq
        await other.delete("t")
        # In memory nobody else tells what is written.
        following = (sessions if store_url is None else other).thread_events("t", after=f"{cursor}.7")
        first = asyncio.ensure_future(anext(following))
        anew = await sessions.start("t", "two")
        async with asyncio.timeout(10):
            found = [await first]
            while found[-1].type != "run_end":
                found.append(await anext(following))
        await following.aclose()
        assert ({event.run_id for event in found}, text_of(found)) == ({anew.run_id}, "done")
        recorded = [event.seq for event in found if event.seq is not None]
        assert recorded[:2] == [(cursor or 0) + 1, (cursor or 0) + 2]
