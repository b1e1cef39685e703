"""What an attempt tells again is what the one before wrote."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from playhead.events import RunStart, StepStart
from playhead.session.feed import Cursor, Feed, follow
from playhead.session.journal import Journal, new_event
from playhead.session.shown import Shown
from playhead.storage.engine import open_database
from playhead.storage.ledger import Entry, Thread
from playhead.storage.sql_ledger import SQLLedger
from playhead.types import UserMessage
from tests.session.models import new_run

pytestmark = pytest.mark.anyio


async def test_who_follows_a_run_that_moved_is_shown_what_is_written(url: str) -> None:
    """Issue 6: a reader in the process that goes on may not have seen the last events of the dead one, which
    are told again by the replay: it gets those that are in the log, and not others with their `seq`."""
    async with await open_database(url) as database:
        ledger, feed = SQLLedger(database), Feed()
        run = await ledger.accept(new_run(UserMessage("hello")))
        stamp: dict[str, Any] = {"run_id": run.run_id, "at": 1}
        start, step = RunStart(turn_id=run.turn_id, **stamp), StepStart(step=1, **stamp)
        shown: list[Shown] = []

        async def read() -> None:
            async with aclosing(follow(feed, ledger.events, Thread("t"), Cursor())) as following:
                async for one in following:
                    shown.append(one)
                    if len(shown) == 3:
                        return

        reading = asyncio.create_task(read())
        while not feed.readers:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await ledger.events.after("t", 0)
        # The process that dies writes, and its readers elsewhere have not looked yet.
        await ledger.record(Entry(run, [new_event("0/start", start), new_event("1/step", step)]))
        journal = Journal(ledger, run, feed, 0.5, resumed=True)
        again: list[tuple[str, Any]] = [("0/start", replace(start, at=2)), ("1/step", replace(step, at=2))]
        await journal.write([*again, ("2/step", StepStart(step=2, run_id=run.run_id, at=3))])
        async with asyncio.timeout(10):
            await reading
        assert [(one.seq, one.event.at) for one in shown] == [(1, 1), (2, 1), (3, 3)]
