"""Summaries beside the raw log: what they may stand for, and when they go."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import insert

from playhead.ids import new_id
from playhead.storage.engine import Database, open_database
from playhead.storage.ledger import Entry, Ledger, RunRow, Thread
from playhead.storage.memory_ledger import MemoryLedger
from playhead.storage.sql_ledger import SQLLedger
from playhead.storage.summaries import Summary
from playhead.storage.tables import agent_summaries, key_of
from playhead.types import AssistantMessage, UserMessage

pytestmark = pytest.mark.anyio

T = Thread("t", "acme")


@pytest.fixture
async def ledger(store_url: str | None) -> AsyncIterator[Ledger]:
    if store_url is None:
        yield MemoryLedger()
        return
    async with await open_database(store_url) as opened:
        yield SQLLedger(opened)


async def talk(ledger: Ledger, thread: Thread, first: int, count: int) -> list[RunRow]:
    """Turns of two rows each."""
    runs = []
    for n in range(first, first + count):
        said = UserMessage(f"q{n}", id=f"{n}/q")
        run = RunRow(new_id(), f"{thread.thread_id}/{n}", *_names(thread), message=said)
        await ledger.accept(run)
        await ledger.record(Entry(run, messages=[(said, 0), (AssistantMessage("a", id=f"{n}/a"), 1)]))
        await ledger.record(Entry(run, state="ended", finish_reason="final"))
        runs.append(run)
    return runs


def _names(thread: Thread) -> tuple[str, str | None]:
    return thread.thread_id, thread.tenant_id


async def put(ledger: Ledger, through: int, after: int, rows: int, thread: Thread = T) -> bool:
    summary = Summary(through, f"up to {through}", 5)
    return await ledger.summaries.put(
        thread.thread_id, summary, after=after, rows=rows, tenant_id=thread.tenant_id
    )


async def last(ledger: Ledger, thread: Thread = T) -> int | None:
    found = await ledger.summaries.last(thread.thread_id, tenant_id=thread.tenant_id)
    return None if found is None else found.through_seq


async def test_a_summary_is_kept_beside_the_rows(ledger: Ledger) -> None:
    """Q206: each message once, a summary of its own; the last is the one that reaches furthest."""
    await talk(ledger, T, 0, 4)
    before = await ledger.turns.window("t", turns=None, tenant_id="acme")
    assert await ledger.summaries.last("t", tenant_id="acme") is None
    assert await put(ledger, 4, 0, 4)
    assert await put(ledger, 6, 4, 2)
    assert await ledger.summaries.last("t", tenant_id="acme") == Summary(6, "up to 6", 5)
    assert await ledger.summaries.last("t") is None
    assert await ledger.turns.window("t", turns=None, tenant_id="acme") == before


@pytest.mark.parametrize(("through", "after", "rows"), [(4, 0, 3), (4, 2, 2), (0, 0, 0), (8, 0, 10)], ids=str)
async def test_a_summary_of_what_the_thread_no_longer_holds_is_not_kept(
    ledger: Ledger, through: int, after: int, rows: int
) -> None:
    """Q197: what changed while the model wrote makes what it wrote worthless, not wrong."""
    await talk(ledger, T, 0, 4)
    assert not await put(ledger, through, after, rows)
    assert await last(ledger) is None
    assert not await put(ledger, 2, 0, 2, Thread("unknown"))


async def test_the_same_summary_is_not_made_twice(ledger: Ledger) -> None:
    """Q197: of two that summarise the same, one is kept."""
    await talk(ledger, T, 0, 4)
    assert [await put(ledger, 4, 0, 4), await put(ledger, 4, 0, 4), await put(ledger, 6, 0, 6)] == [
        True,
        False,
        False,
    ]


def contents(rows: Sequence[Any]) -> list[Any]:
    return [row.content for row in rows]


async def test_the_first_turns_past_a_place_are_read_whole(ledger: Ledger) -> None:
    """Q190: turns, oldest first, no more of them than were asked for."""
    await talk(ledger, T, 0, 4)
    read = ledger.summaries.rows_after
    assert contents(await read("t", 0, turns=2, tenant_id="acme")) == ["q0", "a", "q1", "a"]
    assert contents(await read("t", 2, turns=2, tenant_id="acme")) == ["q1", "a", "q2", "a"]
    assert contents(await read("t", 4, turns=9, tenant_id="acme")) == ["q2", "a", "q3", "a"]
    assert contents(await read("t", 8, turns=9, tenant_id="acme")) == []
    assert contents(await read("t", 0, turns=9)) == []


async def test_what_an_edit_reaches_behind_loses_its_summary(ledger: Ledger) -> None:
    """Q209: a summary of words that left the conversation goes with them; an earlier one is back."""
    await talk(ledger, T, 0, 5)
    for through, after, rows in ((4, 0, 4), (6, 4, 2), (8, 6, 2)):
        assert await put(ledger, through, after, rows)
    new = RunRow(new_id(), new_id(), "t", "acme", message=UserMessage("instead"), state="ended")
    await ledger.accept(new, replaces=9)
    assert await last(ledger) == 8
    await ledger.accept(
        RunRow(new_id(), new_id(), "t", "acme", message=UserMessage("x"), state="ended"), replaces=5
    )
    assert await last(ledger) == 4
    await ledger.accept(RunRow(new_id(), new_id(), "t", "acme", message=UserMessage("y")), replaces=1)
    assert await last(ledger) is None


async def test_a_copy_has_the_summaries_that_still_apply(ledger: Ledger) -> None:
    """Q206: of what was copied, by its places there; also where something was replaced before."""
    await talk(ledger, T, 0, 3)
    await ledger.accept(RunRow(new_id(), new_id(), "t", "acme", message=UserMessage("x")), replaces=5)
    await talk(ledger, T, 7, 2)
    assert await put(ledger, 4, 0, 4)
    assert await put(ledger, 8, 4, 2)
    for name, through, place in (("whole", 10, 6), ("exact", 8, 6), ("half", 7, 4), ("less", 3, None)):
        copy = Thread(name, "acme")
        await ledger.copy(T, copy, through)
        assert await last(ledger, copy) == place
    read = await ledger.summaries.rows_after("whole", 6, turns=9, tenant_id="acme")
    assert contents(read) == ["q8", "a"]
    await ledger.delete_thread(T)
    assert (await last(ledger), await last(ledger, Thread("whole", "acme"))) == (None, 6)


async def test_deleting_leaves_no_summary(ledger: Ledger) -> None:
    """Q206: a thread and a tenant go with their summaries."""
    others = [Thread("u"), Thread("v")]
    for thread in (T, *others):
        await talk(ledger, thread, 0, 2)
        assert await put(ledger, 2, 0, 2, thread)
    await ledger.delete_thread(T)
    await talk(ledger, T, 0, 2)
    assert [await last(ledger, thread) for thread in (T, *others)] == [None, 2, 2]
    assert await ledger.delete_tenant("nobody") == 0
    assert await ledger.delete_tenant(None) == 8
    for thread in others:
        await talk(ledger, thread, 0, 2)
        assert await last(ledger, thread) is None


async def test_forgetting_by_age_leaves_no_summary_of_what_was_forgotten(
    ledger: Ledger, clock: Callable[[int], None]
) -> None:
    """Q206: what should be forgotten is not kept in other words; what is young keeps its summary."""
    for n, time in enumerate((100, 200, 300)):
        clock(time)
        await talk(ledger, T, n, 1)
    clock(200)
    await talk(ledger, Thread("young", "acme"), 0, 2)
    assert await put(ledger, 2, 0, 2)
    assert await put(ledger, 4, 2, 2)
    assert await put(ledger, 2, 0, 2, Thread("young", "acme"))
    assert await ledger.delete_before(100) == 0
    assert await last(ledger) == 4
    assert await ledger.delete_before(150) == 2
    assert await last(ledger) is None
    assert await last(ledger, Thread("young", "acme")) == 2
    assert not await put(ledger, 6, 4, 2)
    assert await put(ledger, 4, 0, 2)


async def test_a_summary_of_a_later_version_is_kept_and_not_read(database: Database) -> None:
    """Q205: until one of this version reaches as far."""
    ledger = SQLLedger(database)
    await talk(ledger, T, 0, 3)
    assert await put(ledger, 2, 0, 2)
    later = {"thread_key": key_of("acme", "t"), "text": "?", "format": 99, "created_at": 5}
    await database.write(
        lambda connection: connection.execute(insert(agent_summaries), {**later, "through_seq": 4}).rowcount
    )
    assert await last(ledger) == 2
    assert await put(ledger, 4, 2, 2)
    assert await last(ledger) == 4


async def test_text_that_a_database_does_not_take_is_replaced(database: Database) -> None:
    """Q202: NUL and half surrogates, as in messages."""
    ledger = SQLLedger(database)
    await talk(ledger, T, 0, 1)
    assert await ledger.summaries.put("t", Summary(2, "a\0b\ud83d"), after=0, rows=2, tenant_id="acme")
    found = await ledger.summaries.last("t", tenant_id="acme")
    assert found is not None
    assert found.text == "a\ufffdb\ufffd"
