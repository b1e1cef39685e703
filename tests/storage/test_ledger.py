"""What a session writes, in memory and in databases: atomically, once, and only while it may."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, text

from playhead.errors import StoreError
from playhead.ids import new_id, now_ms
from playhead.storage.engine import open_database
from playhead.storage.ledger import (
    Entry,
    Ledger,
    NewEvent,
    PendingCall,
    Policy,
    RunRow,
    RunState,
    Thread,
)
from playhead.storage.memory_ledger import MemoryLedger
from playhead.storage.sql_calls import SQLCallLog
from playhead.storage.sql_ledger import SQLLedger
from playhead.storage.summaries import Summary
from playhead.storage.tables import agent_threads, key_of, metadata
from playhead.storage.turns import SQLTurnStore
from playhead.types import (
    AssistantMessage,
    CallAnswer,
    CallRecord,
    ChatMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.support.databases import new_url

pytestmark = pytest.mark.anyio

CALL = ToolCall("c1", "pay", {"z": 1, "a": 2})


@pytest.fixture
async def ledger(store_url: str | None) -> AsyncIterator[Ledger]:
    if store_url is None:
        yield MemoryLedger()
        return
    async with await open_database(store_url) as database:
        yield SQLLedger(database)


def a_run(text: str | None = "go", thread: str = "t", policy: Policy = "queue", **named: Any) -> RunRow:
    message = None if text is None else UserMessage(text, id=named.pop("message_id", new_id()))
    given = {"turn_id": new_id(), "tenant_id": None, "created_at": now_ms(), **named}
    return RunRow(new_id(), thread_id=thread, policy=policy, message=message, **given)


def event(key: str, kind: str = "step_start", data: bytes = b'{"type":"step_start"}') -> NewEvent:
    return NewEvent(key, kind, data, now_ms())


async def seqs(ledger: Ledger, thread: str = "t", after: int = 0, **named: Any) -> list[int]:
    return [row.seq for row in (await ledger.events.after(thread, after, **named)).rows]


async def test_a_message_begins_one_run(ledger: Ledger) -> None:
    """Sent twice, accepted once: the first run is returned, whatever the second says."""
    run = await ledger.accept(a_run(message_id="m"))
    again = await ledger.accept(a_run("else", message_id="m"))
    assert again.run_id == run.run_id
    assert again.message == run.message
    other = await ledger.accept(a_run(thread="other", message_id="m"))
    tenant = await ledger.accept(a_run(message_id="m", tenant_id="acme"))
    assert len({run.run_id, other.run_id, tenant.run_id}) == 3
    assert [r.run_id for r in await ledger.runs(Thread("t"))] == [run.run_id]
    assert await ledger.run(run.run_id, tenant_id="acme") is None


async def test_messages_events_and_state_are_written_together(ledger: Ledger) -> None:
    """Design 5: a row and its event in one transaction; both orders begin at 1 and have no gap."""
    run = await ledger.accept(a_run())
    assert run.message is not None
    first = await ledger.record(Entry(run, [event("a"), event("b")], [(run.message, 0)], "running"))
    assert ([row.seq for row in first.rows], first.seqs) == ([1], [1, 2])
    said: list[tuple[ChatMessage, int]] = [
        (AssistantMessage("", [CALL]), 1),
        (ToolMessage("c1", "pay", "ok"), 1),
    ]
    second = await ledger.record(Entry(run, [event("c")], said))
    assert ([row.seq for row in second.rows], second.seqs) == ([2, 3], [3])
    assert [row.turn_id for row in await ledger.turns.window("t")] == [run.turn_id] * 3
    held = await ledger.run(run.run_id)
    assert held is not None
    assert (held.state, held.first_seq) == ("running", 1)
    await ledger.record(Entry(run, [event("end", "run_end")], state="ended", finish_reason="final"))
    held = await ledger.run(run.run_id)
    assert held is not None
    assert (held.state, held.finish_reason) == ("ended", "final")
    assert await ledger.runs() == []


async def test_a_run_ends_once(ledger: Ledger) -> None:
    """Rule 7: a second end is refused, and nothing that came with it is written."""
    run = await ledger.accept(a_run())
    await ledger.record(Entry(run, [event("end", "run_end")], state="ended", finish_reason="final"))
    states: tuple[RunState, ...] = ("ended", "paused", "running")
    for state in states:
        late = Entry(run, [event("late", "run_end")], [(AssistantMessage("late"), 1)], state)
        with pytest.raises(StoreError) as caught:
            await ledger.record(late)
        assert caught.value.code == "conflict"
    assert await seqs(ledger) == [1]
    assert await ledger.turns.window("t") == []


async def test_a_message_of_another_turn_is_not_said_again(ledger: Ledger) -> None:
    """Q239: where the thread holds the message already, nothing of the entry is written."""
    message = UserMessage("go", id="m")
    await ledger.turns.append("t", message, turn_id="earlier")
    run = await ledger.accept(a_run(message_id="m"))
    recorded = await ledger.record(Entry(run, [event("a")], [(message, 0)], "running"))
    assert ([row.turn_id for row in recorded.rows], recorded.seqs) == (["earlier"], [None])
    assert await seqs(ledger) == []
    after = await ledger.record(Entry(run, [event("a")]))
    assert after.seqs == [1], "no place was used up"


async def test_what_may_have_been_written_is_looked_for(ledger: Ledger) -> None:
    """Q212: a retry after a commit whose outcome is unknown adds nothing and leaves no gap."""
    run = await ledger.accept(a_run())
    message = AssistantMessage("so")
    entry = Entry(run, [event("a"), event("b")], [(message, 1)])
    await ledger.record(entry)
    again = Entry(run, [event("a"), event("b"), event("c")], [(message, 1)], again=True)
    recorded = await ledger.record(again)
    assert recorded.seqs == [1, 2, 3]
    assert [row.seq for row in recorded.rows] == [1]
    assert await seqs(ledger) == [1, 2, 3]


async def test_a_beginning_and_an_end_may_be_written_again(ledger: Ledger) -> None:
    """Q212, Q239: what became of a commit is not known; if it was made, that is no conflict."""
    run = await ledger.accept(a_run())
    opening = Entry(run, [event("start"), event("message")], state="running")
    ending = Entry(run, [event("last"), event("end", "run_end")], state="ended", finish_reason="final")
    for entry in (opening, ending):
        first = await ledger.record(entry)
        assert (await ledger.record(replace(entry, again=True))).seqs == first.seqs
    found = await ledger.run(run.run_id)
    assert found is not None
    assert (found.state, found.finish_reason, found.first_seq) == ("ended", "final", 1)
    assert await seqs(ledger) == [1, 2, 3, 4]
    with pytest.raises(StoreError) as caught:
        await ledger.record(Entry(run, [event("other end", "run_end")], state="ended", again=True))
    assert caught.value.code == "conflict"


async def test_events_are_read_in_pages_by_thread_and_by_run(ledger: Ledger) -> None:
    """Design 5: a reader knows how far it has read, also where a page holds nothing of its run."""
    first, second = await ledger.accept(a_run()), await ledger.accept(a_run("more"))
    for n in range(5):
        await ledger.record(Entry(first if n % 2 else second, [event(f"k{n}")]))
    page = await ledger.events.after("t", 1, limit=2)
    assert ([row.seq for row in page.rows], page.through) == ([2, 3], 3)
    mine = await ledger.events.after("t", 0, run_id=first.run_id)
    assert ([row.seq for row in mine.rows], mine.through) == ([2, 4], 5)
    none = await ledger.events.after("t", 5, run_id=first.run_id)
    assert (none.rows, none.through) == ([], 5)
    assert (await ledger.events.after("nope", 3)).through == 3
    assert await seqs(ledger, tenant_id="acme") == []
    last = await ledger.events.last([Thread("t"), Thread("nope"), Thread("t", "acme")])
    assert last == {Thread("t"): 5, Thread("nope"): 0, Thread("t", "acme"): 0}


async def test_the_json_of_an_event_is_kept_to_the_byte(ledger: Ledger) -> None:
    """The order of keys is the sender's, and an escape stays one."""
    data = '{"type":"x","z":1,"a":"\\u0000 \\ud83d ä 🎬","b":1.0}'.encode()
    run = await ledger.accept(a_run())
    await ledger.record(Entry(run, [event("a", "x", data)]))
    (row,) = (await ledger.events.after("t", 0)).rows
    assert (row.type, row.data) == ("x", data)


async def test_queued_runs_are_absorbed_once(ledger: Ledger) -> None:
    """Q244: a message is taken in by one run or begins its own, never both."""
    active = await ledger.accept(a_run())
    waiting = [await ledger.accept(a_run(f"m{n}", policy="steer")) for n in range(3)]
    assert waiting[1].message is not None
    await ledger.record(Entry(waiting[1], [event("a")], [(waiting[1].message, 0)], "running"))
    ids = [run.run_id for run in waiting]
    assert list(await ledger.absorb(waiting, active, 2)) == [ids[0], ids[2]]
    assert list(await ledger.absorb(waiting, active, 3)) == []
    rows = await ledger.turns.turn(active.turn_id)
    assert [(row.content, row.step_index) for row in rows] == [("m0", 2), ("m2", 2)]
    held = await ledger.run(ids[0])
    assert held is not None
    assert (held.state, held.absorbed_by) == ("absorbed", active.run_id)
    with pytest.raises(StoreError):
        await ledger.record(Entry(waiting[0], state="running"))
    last = await ledger.last_run(Thread("t"))
    assert last is not None
    assert last.run_id == ids[1]


async def test_a_call_that_waits_is_answered_once(ledger: Ledger) -> None:
    """Q220: with the run that goes on from it, in one transaction."""
    run = await ledger.accept(a_run())
    pending = [PendingCall(CALL, "approval", "h", 9), PendingCall(ToolCall("c0", "x", {}), "client", "i", 9)]
    await ledger.record(Entry(run, [event("end", "run_paused")], state="paused", pending=pending))
    assert await ledger.pending(run.turn_id) == pending
    answers = (CallAnswer("c1", approved=True),)
    answering = await ledger.accept(a_run(None, turn_id=run.turn_id, answers=answers))
    held = await ledger.run(answering.run_id)
    assert held is not None
    assert (tuple(held.answers), held.message) == (answers, None)
    for wrong in ("c1", "nope"):
        late = a_run(None, turn_id=run.turn_id, answers=(CallAnswer(wrong, approved=True),))
        with pytest.raises(StoreError) as caught:
            await ledger.accept(late)
        assert caught.value.code == "conflict"
        assert await ledger.run(late.run_id) is None
    assert [call.answered_by for call in await ledger.pending(run.turn_id)] == [answering.run_id, None]
    await ledger.accept(a_run("never mind"))
    with pytest.raises(StoreError, match="new message"):
        await ledger.accept(a_run(None, turn_id=run.turn_id, answers=(CallAnswer("c0", result=1),)))
    assert (await ledger.pending(run.turn_id))[1].answered_by is None


async def test_what_takes_the_place_of_rows_is_accepted_with_it(ledger: Ledger) -> None:
    """The rows leave the conversation and stay in the store: their ids are known."""
    for n in range(4):
        await ledger.turns.append("t", UserMessage(f"q{n}", id=f"m{n}"), turn_id=f"turn{n}")
    await ledger.accept(a_run("new"), replaces=3)
    assert [row.id for row in await ledger.turns.window("t", turns=None)] == ["m0", "m1"]
    assert [row.id for row in await ledger.turns.window("t", turns=1)] == ["m1"]
    again = await ledger.turns.append("t", UserMessage("x", id="m3"), turn_id="else")
    assert (again.turn_id, again.content) == ("turn3", "q3")
    assert (await ledger.turns.append("t", UserMessage("next"), turn_id="else")).seq == 5


async def test_all_that_belongs_to_a_thread_goes_with_it(ledger: Ledger) -> None:
    """Q206: and the order of its messages begins anew."""
    run = await ledger.accept(a_run(message_id="m"))
    assert run.message is not None
    pending = [PendingCall(CALL, "approval", "h", 9)]
    await ledger.record(Entry(run, [event("a")], [(run.message, 0)], "paused", pending=pending))
    other = await ledger.accept(a_run(thread="other"))
    assert await ledger.delete_thread(Thread("t")) == 1
    assert await ledger.run(run.run_id) is None
    assert await ledger.pending(run.turn_id) == []
    assert await seqs(ledger) == []
    assert await ledger.run(other.run_id) is not None
    anew = await ledger.accept(a_run(message_id="m"))
    assert anew.run_id != run.run_id
    assert anew.message is not None
    recorded = await ledger.record(Entry(anew, [event("a")], [(anew.message, 0)]))
    assert [row.seq for row in recorded.rows] == [1]


FORGET: list[Callable[[Ledger], Awaitable[int]]] = [
    lambda ledger: ledger.delete_thread(Thread("t", "acme")),
    lambda ledger: ledger.delete_tenant("acme"),
    lambda ledger: ledger.delete_before(now_ms() + 1_000),
]


@pytest.mark.parametrize("forget", FORGET, ids=["thread", "tenant", "age"])
async def test_events_of_a_thread_that_begins_anew_come_after_those_of_the_deleted_one(
    forget: Callable[[Ledger], Awaitable[int]], ledger: Ledger
) -> None:
    """Q206, Q248: however often it was forgotten, whoever has read the one before misses nothing."""
    for last in (2, 4, 6):
        run = await ledger.accept(a_run(tenant_id="acme"))
        assert run.message is not None
        ending = Entry(run, [event("a"), event("end")], [(run.message, 0)], "ended", "final")
        assert (await ledger.record(ending)).seqs == [last - 1, last]
        for _ in range(2):
            await forget(ledger)
            assert await seqs(ledger, tenant_id="acme") == []
            assert await ledger.turns.window("t", tenant_id="acme") == []
            assert await ledger.runs(states=("ended",)) == []
            assert await ledger.events.last([Thread("t", "acme")]) == {Thread("t", "acme"): last}
    other = await ledger.accept(a_run())
    assert (await ledger.record(Entry(other, [event("a")]))).seqs == [1]


@pytest.mark.parametrize("forget", FORGET, ids=["thread", "tenant", "age"])
async def test_of_a_deleted_thread_a_database_keeps_one_number_and_no_name(
    forget: Callable[[Ledger], Awaitable[int]], url: str
) -> None:
    """Q206: what stays says nothing of who spoke, when, or of what."""
    async with await open_database(url) as database:
        ledger = SQLLedger(database)
        run = await ledger.accept(a_run("secret", tenant_id="acme"))
        assert run.message is not None
        pending = [PendingCall(CALL, "approval", "h", 9)]
        entry = Entry(run, [event("a")], [(run.message, 0)], "paused", pending=pending)
        await ledger.record(entry)
        await ledger.results.put("t", "r", "long", turn_id=run.turn_id, tenant_id="acme")
        summary = Summary(1, "They said it.", now_ms())
        assert await ledger.summaries.put("t", summary, after=0, rows=1, tenant_id="acme")
        call = CallRecord("chat", "p", "m", "success", 1, tenant_id="acme", thread_id="t")
        await SQLCallLog(database).record(call)
        await ledger.accept(a_run("silent", thread="without events", tenant_id="acme"))
        await ledger.delete_thread(Thread("without events", "acme"))
        await forget(ledger)

        def held(connection: Connection) -> dict[str, list[Any]]:
            found = {t.name: list(connection.execute(t.select())) for t in metadata.sorted_tables}
            return {name: rows for name, rows in found.items() if rows and name != "playhead_schema"}

        found = await database.read(held)
        key = key_of("acme", "t")
        assert found == {"agent_threads": [(key, "", "", None, 0, 0, 0, 1)]}
        again = await ledger.accept(a_run(tenant_id="acme"))
        await ledger.record(Entry(again, [event("a")], state="ended"))
        ((*_, created_at, updated_at, seq),) = (await database.read(held))["agent_threads"]
        assert (created_at > 0, updated_at > 0, seq) == (True, True, 2)
        assert await ledger.delete_tenant("acme") == 0
        assert await ledger.run(again.run_id, tenant_id="acme") is None, "it is the tenant's again"


async def test_nothing_is_written_of_a_run_that_is_not_there(ledger: Ledger) -> None:
    """Q206: its thread was deleted; that another began under the same id changes nothing."""
    run = await ledger.accept(a_run(message_id="m"))
    assert run.message is not None
    await ledger.record(Entry(run, [event("a")], [(run.message, 0)], "running"))
    await ledger.delete_thread(Thread("t"))
    for _ in range(2):
        for late in (
            Entry(run, [event("b")], [(AssistantMessage("late"), 1)]),
            Entry(run, [event("a"), event("end")], state="ended", again=True),
            Entry(run, state="paused", pending=[PendingCall(CALL, "approval", "h", 9)]),
        ):
            with pytest.raises(StoreError, match="'t' was deleted") as caught:
                await ledger.record(late)
            assert caught.value.code == "deleted"
        with pytest.raises(StoreError):
            await ledger.results.put("t", "r", "long", turn_id=run.turn_id)
        assert await ledger.results.page("t", "r", 0, 9) is None
        assert (await seqs(ledger), await ledger.turns.window("t"), await ledger.pending(run.turn_id)) == (
            [],
            [],
            [],
        )
        other = await ledger.accept(a_run(message_id="m"))
        with pytest.raises(StoreError) as caught:
            await ledger.absorb([other], run, 2)
        assert caught.value.code == "deleted"
        assert [r.state for r in await ledger.runs(Thread("t"))] == ["queued"]
    assert other.message is not None
    recorded = await ledger.record(Entry(other, [event("a")], [(other.message, 0)], "running"))
    assert ([row.seq for row in recorded.rows], recorded.seqs) == ([1], [2])


async def test_who_waits_for_a_deletion_to_be_done_finds_it_done(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Q193, Q206: on a server both have begun by then; what was seen before the lock counts no more."""
    url = new_url(request, "postgres", tmp_path)
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    async with await open_database(url) as one, await open_database(url) as two:
        ledger = SQLLedger(two)
        run = await ledger.accept(a_run())
        await ledger.record(Entry(run, [event("a")], state="running"))

        def forget(connection: Connection) -> None:
            SQLTurnStore(one).forget(connection, agent_threads.c.thread_key == key_of(None, "t"))
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(20)

        def waits(connection: Connection) -> bool:
            query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            return connection.execute(text(query)).first() is not None

        deleting = asyncio.create_task(one.write(forget))
        await begun.wait()
        recording = asyncio.create_task(ledger.record(Entry(run, [event("b")])))
        accepting = asyncio.create_task(ledger.accept(a_run()))
        async with asyncio.timeout(20):
            while not await one.read(waits):
                pass
            go_on.set()
            await deleting
            with pytest.raises(StoreError) as caught:
                await recording
            assert caught.value.code == "deleted"
            anew = await accepting
        assert (await ledger.record(Entry(anew, [event("a")]))).seqs == [2]
