"""What every message log promises: in memory, on SQLite and on Postgres."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import Connection, text, update

from playhead.errors import StoreError
from playhead.storage.engine import Database, open_database
from playhead.storage.memory_messages import MemoryMessageLog
from playhead.storage.messages import (
    STATES,
    ChannelMessage,
    Direction,
    MessageFilter,
    MessageId,
    MessageLog,
    MessageRow,
    MessageState,
    after,
)
from playhead.storage.sql_messages import SQLMessageLog, prepare_message
from playhead.storage.tables import message_log

pytestmark = pytest.mark.anyio

IN = ChannelMessage("whatsapp", "inbound", "4917", "hello", channel_id="wamid.in")
OUT = ChannelMessage("whatsapp", "outbound", "4917", "hi", own_id="turn/1")
EVERYTHING = replace(IN, kind="audio", own_id="o", tenant_id="acme", thread_id="t", turn_id="turn")
BY_OWN = MessageId("whatsapp", "outbound", own_id="turn/1")
EVERYONE = MessageFilter(all_tenants=True)


def by_channel(channel_id: str, direction: Direction = "outbound") -> MessageId:
    return MessageId("whatsapp", direction, channel_id=channel_id)


def by_both(channel_id: str) -> MessageId:
    return replace(BY_OWN, channel_id=channel_id)


def texts(rows: Sequence[MessageRow]) -> str:
    return "".join(row.message.text for row in rows)


async def fill(messages: MessageLog, *changes: dict[str, Any]) -> None:
    """Write an inbound message for each change, its number as text and as the channel's id."""
    for n, change in enumerate(changes):
        await messages.add(replace(IN, **{"text": str(n), "channel_id": str(n), **change}))


async def tell(messages: MessageLog, which: MessageId, *states: MessageState) -> MessageRow:
    """The row after all these news."""
    for state in states:
        row = await messages.set_state(which, state)
    assert row is not None
    return row


# ---------------------------------------------------------------- what is written


async def test_a_message_comes_back_with_every_column(
    messages: MessageLog, clock: Callable[[int], None]
) -> None:
    """S25: one row for each message, with all that is known of it."""
    clock(1_000)
    added = await messages.add(EVERYTHING)
    assert added.new
    assert added.row == MessageRow(added.row.row_id, EVERYTHING, "received", None, 1_000, 1_000)
    assert list(await messages.messages(tenant_id="acme")) == [added.row]
    assert await messages.find(EVERYTHING.id, tenant_id="acme") == added.row
    assert await messages.find(by_channel("wamid.in"), tenant_id="acme") is None  # the other direction


async def test_a_message_delivered_again_is_known_and_its_state_says_what_is_left(
    messages: MessageLog, clock: Callable[[int], None]
) -> None:
    """S25, Q226, Q239: nothing is written, and only what is not done is to be done again."""
    clock(1_000)
    first = await messages.add(IN)
    clock(2_000)
    again = await messages.add(replace(IN, text="other", peer="other"))
    assert again == (first.row, False)
    done = await messages.set_state(IN.id, "done", turn_id="turn")
    assert done == replace(first.row, state="done", message=replace(IN, turn_id="turn"), updated_at=2_000)
    assert await messages.add(IN) == (done, False)
    assert list(await messages.messages()) == [done]


async def test_an_id_is_known_by_its_tenant_channel_and_direction(messages: MessageLog) -> None:
    """S25: a message to oneself has one id on both sides; another channel's ids are other ids."""
    changes: list[dict[str, Any]] = [
        {},
        {"direction": "outbound"},
        {"channel": "telegram"},
        *({"tenant_id": tenant} for tenant in ("", "acme", "a\0", "a\ufffd")),
    ]
    for change in changes:
        assert (await messages.add(replace(IN, **change))).new
        assert not (await messages.add(replace(IN, **change))).new
    assert len(await messages.messages(EVERYONE)) == len(changes)
    for tenant in (None, "", "acme", "a\0", "a\ufffd"):
        row = await messages.find(IN.id, tenant_id=tenant)
        assert row is not None
        assert await messages.set_state(IN.id, "done", tenant_id=tenant) is not None
    assert await messages.set_state(IN.id, "done", tenant_id="nobody") is None


async def test_of_many_that_deliver_one_message_one_is_told_that_it_is_new(messages: MessageLog) -> None:
    """Q239: a webhook that comes ten times at once is one message."""
    added = await asyncio.gather(*(messages.add(replace(IN, text=str(n))) for n in range(10)))
    assert [one.new for one in added].count(True) == 1
    assert len({one.row.message.text for one in added}) == 1


async def test_two_processes_agree_which_delivery_was_the_first(url: str) -> None:
    """Q239: the database decides, and not who looked first."""
    async with await open_database(url) as one, await open_database(url) as two:
        logs = [SQLMessageLog(one), SQLMessageLog(two)]
        added = await asyncio.gather(
            *(logs[n % 2].add(replace(IN, channel_id=str(n // 4), text=str(n))) for n in range(80))
        )
        for first in range(0, 80, 4):
            same = added[first : first + 4]
            assert [one.new for one in same].count(True) == 1
            assert len({one.row.row_id for one in same}) == 1
        states: list[MessageState] = ["sent", "read", "delivered", "failed"]
        await logs[0].add(OUT)
        await asyncio.gather(*(logs[n % 2].set_state(by_both("w"), states[n % 4]) for n in range(40)))
        row = await logs[1].find(by_channel("w"))
        assert row is not None
        assert (row.state, row.error_message) == ("read", None)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_news_waits_for_other_news_of_the_same_message(url: str) -> None:
    """S25: what another process is about to write is not overwritten by what came before it."""
    begun, release = threading.Event(), threading.Event()

    def read(connection: Connection) -> None:
        connection.execute(update(message_log).values(state="read"))
        begun.set()
        release.wait(30)

    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    async with await open_database(url) as one, await open_database(url) as two:
        await SQLMessageLog(one).add(OUT)
        first = asyncio.create_task(one.write(read))
        await asyncio.to_thread(begun.wait, 30)
        second = asyncio.create_task(SQLMessageLog(two).set_state(BY_OWN, "delivered"))
        while not await one.read(lambda connection: connection.execute(waiting).scalar_one()):
            pass
        release.set()
        await first
        row = await second
        assert row is not None
        assert row.state == "read"


async def test_a_message_is_written_with_what_follows_of_it_or_not_at_all(database: Database) -> None:
    """Q239: in one transaction with an inbox; what failed is new when it is delivered again."""
    log = SQLMessageLog(database)

    def accept(connection: Connection) -> None:
        assert log.put(connection, prepare_message(IN)).new
        raise LookupError("the inbox is closed")

    with pytest.raises(StoreError, match="LookupError"):
        await database.write(accept)
    assert await log.find(IN.id) is None
    new = prepare_message(IN)
    added = await database.write(lambda connection: log.put(connection, new), order=new.order)
    assert added.new
    assert await log.find(IN.id) == added.row


async def test_texts_are_readable_and_hold_no_secret_of_ours(messages: MessageLog) -> None:
    """S25, Q202: NUL and half surrogates go; an error is masked and cut at 500 characters."""
    await messages.add(replace(OUT, text="a\0\ud83d", peer="\ud800", kind="x\0", own_id="o\0"))
    row = await messages.set_state(
        replace(BY_OWN, own_id="o\0", channel_id="c\0"),
        "failed",
        error="bad key sk-abcdefghijklmnop1234 \0 " + "x" * 900,
        turn_id="u\0",
    )
    assert row is not None
    assert row.message == ChannelMessage(
        "whatsapp", "outbound", "\ufffd", "a\ufffd\ufffd", "x\ufffd", "c\ufffd", "o\ufffd", turn_id="u\ufffd"
    )
    assert row.error_message is not None
    assert row.error_message.startswith("bad key *** \ufffd ")
    assert len(row.error_message) <= 500
    assert await messages.find(by_channel("c\0")) == await messages.find(replace(BY_OWN, own_id="o\0")) == row
    assert await messages.find(by_channel("c\ufffd")) is None
    assert list(await messages.messages(MessageFilter(turn_id="u\0", peer="\ud800"))) == [row]


@pytest.mark.parametrize(
    "wrong",
    [
        replace(IN, channel_id=None),
        replace(IN, channel_id=None, own_id="o"),
        replace(OUT, own_id=None),
        replace(IN, direction="sideways"),
    ],
)
async def test_a_message_that_could_not_be_known_again_is_refused(
    messages: MessageLog, wrong: ChannelMessage
) -> None:
    """S25: without an id a repeat could not be told."""
    for work in (messages.add(wrong), messages.find(wrong.id), messages.set_state(wrong.id, "failed")):
        with pytest.raises(StoreError, match=r"give one|inbound or outbound"):
            await work
    assert list(await messages.messages(EVERYONE)) == []


# ---------------------------------------------------------------- what becomes of it


async def test_an_outbound_message_is_known_before_the_channel_knows_it(messages: MessageLog) -> None:
    """S25, Q227: it is written before it is sent, and takes the channel's id when that is known."""
    added = await messages.add(OUT)
    assert added.row.state == "pending"
    assert not (await messages.add(OUT)).new
    assert await messages.set_state(by_channel("wamid.1"), "delivered") is None
    sent = await tell(messages, by_both("wamid.1"), "sent")
    assert (sent.state, sent.message.channel_id) == ("sent", "wamid.1")
    read = await tell(messages, by_channel("wamid.1"), "read")
    assert read.state == "read"
    assert await messages.find(BY_OWN) == await messages.find(by_channel("wamid.1")) == read
    assert (await messages.add(replace(OUT, own_id=None, channel_id="wamid.1"))).row == read
    assert (await messages.add(replace(OUT, own_id="phone", channel_id="wamid.2"))).row.state == "sent"


async def test_news_by_our_own_id_may_come_before_the_answer_to_the_sending(messages: MessageLog) -> None:
    """Q227: the answer was lost, and a status says that the message was sent after all."""
    await messages.add(OUT)
    assert (await tell(messages, by_both("wamid.1"), "delivered", "sent")).state == "delivered"
    assert (await tell(messages, by_channel("wamid.1"), "sent")).state == "delivered"


@pytest.mark.parametrize(
    ("news", "state"),
    [
        ("read delivered sent", "read"),
        ("sent failed", "failed"),
        ("failed sent", "failed"),
        ("failed delivered", "delivered"),
        ("delivered failed", "delivered"),
        ("read failed pending", "read"),
    ],
)
async def test_late_news_takes_nothing_back(messages: MessageLog, news: str, state: MessageState) -> None:
    """S25: whatever the order; that it was delivered is proof against a failure."""
    await messages.add(OUT)
    for one in news.split():
        row = await messages.set_state(by_both("w"), one, error="too many")  # type: ignore[arg-type]
    assert row is not None
    assert (row.state, row.error_message) == (state, "too many" if state == "failed" else None)


@given(direction=st.sampled_from(list(STATES)), data=st.data())
def test_the_state_is_the_one_furthest_on(direction: Direction, data: st.DataObject) -> None:
    """S25: of news of one attempt neither order nor repeats matter."""
    order = STATES[direction]
    news = data.draw(st.lists(st.sampled_from(order)))
    row = first = MessageRow(1, replace(IN, direction=direction), order[0])
    for n, state in enumerate(news):
        before, row = row, after(row, IN.id, state, None, None, n)
        assert (row is before) == (row == before)
    assert row.state == max([first.state, *news], key=order.index)


async def test_what_failed_is_sent_again_under_a_new_id_only(messages: MessageLog) -> None:
    """S25: a second attempt begins anew, and the news of the first can no longer hurt it."""
    await messages.add(OUT)
    await messages.set_state(BY_OWN, "failed", error="no connection")
    failed = await messages.set_state(by_both("w1"), "failed", error="too many")
    assert failed is not None
    assert (failed.error_message, failed.message.channel_id) == ("too many", "w1")
    assert await messages.set_state(by_both("w0"), "failed", error="older") == failed
    assert (await tell(messages, by_both("w1"), "sent", "pending")).state == "failed"
    sent = await tell(messages, by_both("w2"), "sent")
    assert (sent.state, sent.error_message, sent.message.channel_id) == ("sent", None, "w2")
    assert await messages.find(by_channel("w1")) is None
    late = await messages.set_state(by_both("w1"), "failed", error="late")
    assert late == sent
    arrived = await tell(messages, by_both("w1"), "delivered")
    assert (arrived.state, arrived.message.channel_id) == ("delivered", "w2")


async def test_an_inbound_message_that_failed_may_be_done_later(
    messages: MessageLog, clock: Callable[[int], None]
) -> None:
    """S25: and what is done stays done."""
    clock(1)
    await messages.add(IN)
    row = await messages.set_state(IN.id, "received", turn_id="a")
    assert row is not None
    assert (row.state, row.message.turn_id) == ("received", "a")
    clock(2)
    row = await messages.set_state(IN.id, "failed", error="the model is gone")
    assert row is not None
    assert (row.state, row.error_message, row.updated_at) == ("failed", "the model is gone", 2)
    clock(3)
    assert await messages.set_state(IN.id, "failed", error="the model is gone") == row
    assert await messages.set_state(IN.id, "received") == row
    row = await messages.set_state(IN.id, "done", turn_id="b")
    assert row is not None
    assert (row.state, row.error_message, row.message.turn_id, row.created_at) == ("done", None, "b", 1)
    assert await messages.set_state(IN.id, "failed", error="late") == row
    assert list(await messages.messages(MessageFilter(turn_id="b"))) == [row]
    assert list(await messages.messages(MessageFilter(turn_id="a"))) == []


@pytest.mark.parametrize("which", [IN.id, OUT.id])
async def test_a_state_of_the_other_direction_is_refused(messages: MessageLog, which: MessageId) -> None:
    """S25: the text says which states there are."""
    await messages.add(IN)
    await messages.add(OUT)
    wrong: MessageState = "read" if which.direction == "inbound" else "done"
    with pytest.raises(StoreError, match=f"An {which.direction} message is .*{wrong}"):
        await messages.set_state(which, wrong)


async def test_an_id_that_is_another_messages_is_not_taken(messages: MessageLog) -> None:
    """S25: one id is one message; neither of the two is changed."""
    await messages.add(OUT)
    await messages.add(replace(OUT, own_id=None, channel_id="w", text="other"))
    with pytest.raises(StoreError, match="'w' is that of another message"):
        await messages.set_state(by_both("w"), "sent")
    assert [row.state for row in await messages.messages()] == ["sent", "pending"]
    own = await messages.find(by_both("w"))
    assert own is not None
    assert own.message == OUT


# ---------------------------------------------------------------- what is read and forgotten


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (MessageFilter(), "6543210"),
        (MessageFilter(channel="telegram"), "1"),
        (MessageFilter(direction="outbound"), "2"),
        (MessageFilter(peer="4918"), "3"),
        (MessageFilter(kind="audio"), "4"),
        (MessageFilter(thread_id="t"), "65"),
        (MessageFilter(thread_id="t", turn_id="u"), "6"),
        (MessageFilter(state="sent"), "2"),
        (MessageFilter(since=1_000, until=2_000), "6543210"),
        (MessageFilter(until=1_000), ""),
        (MessageFilter(since=1_001), ""),
        (MessageFilter(peer="'; --\0\ud800"), ""),
    ],
)
async def test_a_list_is_of_the_messages_that_were_asked_for(
    messages: MessageLog, clock: Callable[[int], None], which: MessageFilter, expected: str
) -> None:
    """S25: by channel, direction, peer, kind, state, thread, turn and time, the newest first."""
    clock(1_000)
    await fill(
        messages,
        {},
        {"channel": "telegram"},
        {"direction": "outbound"},
        {"peer": "4918"},
        {"kind": "audio"},
        {"thread_id": "t", "turn_id": "v"},
        {"thread_id": "t", "turn_id": "u"},
    )
    assert texts(await messages.messages(which)) == expected
    first = await messages.messages(which, limit=2)
    assert texts(first) == expected[:2]
    if first:
        assert texts(await messages.messages(which, before=first[-1].row_id)) == expected[2:]
    assert texts(await messages.messages(which, limit=0)) == ""


async def test_the_newest_come_first_also_after_their_state_has_changed(messages: MessageLog) -> None:
    """S25, Q203: the order is that of the rows."""
    await fill(messages, {}, {}, {})
    await messages.set_state(by_channel("0", "inbound"), "done")
    assert texts(await messages.messages()) == "210"


async def test_messages_are_deleted_by_thread_tenant_and_age(
    messages: MessageLog, clock: Callable[[int], None]
) -> None:
    """Q206: what is told to forget is forgotten, and no more; it is new when it comes again."""
    clock(1_000)
    await fill(
        messages,
        {"thread_id": "t"},
        {"thread_id": "t", "tenant_id": "acme"},
        {"thread_id": "u", "tenant_id": "acme"},
        {"thread_id": "u"},
    )
    clock(2_000)
    await messages.add(replace(IN, text="4"))
    assert await messages.delete_thread("t") == 1
    assert await messages.delete_thread("t") == 0
    assert texts(await messages.messages(EVERYONE)) == "4321"
    assert await messages.delete_tenant("acme") == 2
    assert await messages.delete_before(2_000) == 1
    assert texts(await messages.messages(EVERYONE)) == "4"
    assert await messages.find(by_channel("0", "inbound")) is None
    assert (await messages.add(replace(IN, channel_id="0"))).new


async def test_messages_are_there_after_closing_and_opening(url: str) -> None:
    """S25: the log outlives the process, and knows what was delivered before."""
    async with await open_database(url) as database:
        first = await SQLMessageLog(database).add(EVERYTHING)
    async with await open_database(url) as database:
        log = SQLMessageLog(database)
        assert await log.add(EVERYTHING) == (first.row, False)
    for work in (log.add(EVERYTHING), log.set_state(EVERYTHING.id, "done"), log.messages()):
        with pytest.raises(StoreError, match="was closed"):
            await work


async def test_the_log_in_memory_does_not_grow_without_bound() -> None:
    """Q206: it keeps the newest."""
    log = MemoryMessageLog(limit=3)
    await fill(log, *({} for _ in range(5)))
    assert texts(await log.messages()) == "432"
    assert await log.find(by_channel("1", "inbound")) is None
    assert len(log._by_key) == 3
