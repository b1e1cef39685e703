"""What every turn store promises."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import pytest

from playhead.errors import StoreError
from playhead.storage.base import TurnRow, TurnStore
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    ImagePart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

pytestmark = pytest.mark.anyio


def texts(rows: Sequence[TurnRow]) -> list[str]:
    return [row.content for row in rows]


async def say(store: TurnStore, turn: str, *contents: str) -> None:
    """Write a turn: what the user said, then answers."""
    for step, content in enumerate(contents):
        message: ChatMessage = AssistantMessage(content) if step else UserMessage(content)
        await store.append("t", message, turn_id=turn, step_index=step)


async def test_a_row_has_every_column(store: TurnStore) -> None:
    """S18: one row per message, with what it belongs to, its order and its text."""
    call = ToolCall("c1", "look", {"z": 1, "a": 2})
    user = await store.append("t", UserMessage("hi", id="m1"), turn_id="turn", tenant_id="acme")
    asked = await store.append(
        "t", AssistantMessage("", [call]), turn_id="turn", step_index=1, tenant_id="acme"
    )
    told = await store.append(
        "t", ToolMessage("c1", "look", "seen"), turn_id="turn", step_index=1, tenant_id="acme"
    )
    assert (user.id, user.turn_id, user.thread_id, user.tenant_id) == ("m1", "turn", "t", "acme")
    assert (user.role, user.content, user.step_index, user.tool_calls) == ("user", "hi", 0, ())
    assert (user.tool_call_id, user.tool_name) == (None, None)
    assert (asked.role, list(asked.tool_calls), asked.step_index) == ("assistant", [call], 1)
    assert (told.role, told.tool_call_id, told.tool_name, told.content) == ("tool", "c1", "look", "seen")
    assert user.seq < asked.seq < told.seq
    assert user.created_at > 1_600_000_000_000


async def test_a_message_comes_back_whole(store: TurnStore) -> None:
    """S18: nothing of a message is lost: parts, reasoning, opaque data, key order, error marks."""
    messages: list[ChatMessage] = [
        UserMessage((TextPart("see"), ImagePart("data:image/png;base64,AA==", "image/png"))),
        AssistantMessage(
            "so",
            (ToolCall("c", "f", {"b": 1, "a": [None, 1.5, "é"]}, error="unreadable"),),
            reasoning="because",
            stop_reason="tool_calls",
            provider_metadata={"gemini": {"signature": "S"}},
        ),
        ToolMessage("c", "f", "no", is_error=True),
    ]
    for message in messages:
        await store.append("t", message, turn_id="turn")
    back = [row.message for row in await store.window("t")]
    assert [msgspec.json.encode(m) for m in back] == [msgspec.json.encode(m) for m in messages]


async def test_a_message_is_written_once_by_its_id(store: TurnStore) -> None:
    """S19: appending is idempotent: the first row of an id stays, and its order with it."""
    first = await store.append("t", UserMessage("one", id="m"), turn_id="a")
    await store.append("t", AssistantMessage("two"), turn_id="a", step_index=1)
    again = await store.append("t", UserMessage("changed", id="m"), turn_id="b", step_index=4)
    assert (again.seq, again.turn_id, again.content, again.step_index) == (first.seq, "a", "one", 0)
    assert texts(await store.window("t")) == ["one", "two"]


async def test_writers_at_once_get_an_order_without_gaps_or_doubles(store: TurnStore) -> None:
    """S18: `seq` is monotonic per thread, also when many write at once."""
    rows = await asyncio.gather(
        *(store.append("t", UserMessage(str(n)), turn_id=f"turn{n}") for n in range(50)),
        *(store.append("other", UserMessage(str(n)), turn_id=f"other{n}") for n in range(5)),
    )
    assert sorted(row.seq for row in rows if row.thread_id == "t") == list(range(1, 51))
    assert sorted(row.seq for row in rows if row.thread_id == "other") == [1, 2, 3, 4, 5]


async def test_order_is_the_sequence_and_not_a_clock(store: TurnStore) -> None:
    """S19: oldest first by `seq`, whatever the timestamps say (Q196, Q203)."""
    for n, timestamp in enumerate([3_000, 1_000, 1_000, 2_000]):
        await store.append("t", UserMessage(str(n), timestamp=timestamp), turn_id=str(n))
    assert texts(await store.window("t")) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (0, []),
        (1, ["q3", "call3", "a3"]),
        (2, ["q2", "call2", "a2", "q3", "call3", "a3"]),
        (99, [f"{what}{n}" for n in range(4) for what in ("q", "call", "a")]),
        (None, [f"{what}{n}" for n in range(4) for what in ("q", "call", "a")]),
    ],
)
async def test_the_window_counts_turns_and_cuts_between_them(
    store: TurnStore, turns: int | None, expected: list[str]
) -> None:
    """S17: the window is counted in turns, oldest first, and no turn is cut (Q190)."""
    for n in range(4):
        await say(store, f"turn{n}", f"q{n}", f"call{n}", f"a{n}")
    assert texts(await store.window("t", turns=turns)) == expected


async def test_the_window_is_of_twenty_turns_by_default(store: TurnStore) -> None:
    """S17: 20 turns, however many messages they have."""
    for n in range(25):
        await say(store, f"turn{n}", f"q{n}", *(["step"] * n))
    rows = await store.window("t")
    assert [row.content for row in rows if row.role == "user"] == [f"q{n}" for n in range(5, 25)]


async def test_the_window_below_a_row_sees_nothing_of_it_or_later(store: TurnStore) -> None:
    """S17: `before_seq` cuts off what came later, so that a replay reads the same history."""
    await say(store, "a", "one", "two")
    start = await store.append("t", UserMessage("three"), turn_id="b")
    await say(store, "c", "four")
    await store.append("t", AssistantMessage("late"), turn_id="a", step_index=2)
    assert texts(await store.window("t", before_seq=start.seq)) == ["one", "two"]
    assert texts(await store.window("t", turns=1, before_seq=start.seq + 1)) == ["three"]
    assert texts(await store.window("t", before_seq=1)) == []


async def test_the_rows_of_a_turn_stay_together(store: TurnStore) -> None:
    """S17: turns written side by side are not mixed: nothing stands between a call and its result."""
    await say(store, "a", "ask a")
    await say(store, "b", "ask b", "answer b")
    await store.append("t", AssistantMessage("answer a"), turn_id="a", step_index=1)
    assert texts(await store.window("t")) == ["ask a", "answer a", "ask b", "answer b"]
    assert texts(await store.window("t", turns=1)) == ["ask b", "answer b"]


async def test_an_earlier_identical_message_is_kept(store: TurnStore) -> None:
    """S17: saying the same thing twice is two messages."""
    await say(store, "a", "yes", "first answer")
    await say(store, "b", "yes")
    assert texts(await store.window("t")) == ["yes", "first answer", "yes"]


async def test_a_turn_is_loaded_by_its_id(store: TurnStore) -> None:
    """S10, S19: one id finds all rows of a turn, oldest first."""
    await say(store, "a", "one", "two")
    await say(store, "b", "three")
    await store.append("t", AssistantMessage("four"), turn_id="a", step_index=2)
    assert texts(await store.turn("a")) == ["one", "two", "four"]
    assert list(await store.turn("nothing")) == []
    assert list(await store.window("nothing")) == []


async def test_tenants_never_see_each_other(store: TurnStore) -> None:
    """S19: the same thread, turn and message ids of two tenants are two of each."""
    for tenant in (None, "acme", "other"):
        row = await store.append("t", UserMessage(f"of {tenant}", id="m"), turn_id="a", tenant_id=tenant)
        assert (row.seq, row.content) == (1, f"of {tenant}")
    for tenant in (None, "acme", "other"):
        assert texts(await store.window("t", tenant_id=tenant)) == [f"of {tenant}"]
        assert texts(await store.turn("a", tenant_id=tenant)) == [f"of {tenant}"]
    assert list(await store.window("t", tenant_id="nobody")) == []
    assert list(await store.turn("a", tenant_id="nobody")) == []


async def test_a_system_message_is_refused(store: TurnStore) -> None:
    """S3: instructions are never stored."""
    with pytest.raises(StoreError, match="system message"):
        await store.append("t", SystemMessage("be terse"), turn_id="a")
    assert list(await store.window("t")) == []


async def test_what_was_read_does_not_change_with_what_is_written(store: TurnStore) -> None:
    """S19: a window and a turn are what they were when they were read."""
    await say(store, "a", "one")
    window, turn = await store.window("t"), await store.turn("a")
    await store.append("t", AssistantMessage("two"), turn_id="a", step_index=1)
    assert (texts(window), texts(turn)) == (["one"], ["one"])


async def test_a_deleted_thread_is_gone_and_begins_anew(store: TurnStore) -> None:
    """Q206: deleting a thread takes all its rows, and no one else's."""
    await say(store, "a", "one", "two")
    await store.append("other", UserMessage("kept"), turn_id="b")
    await store.append("t", UserMessage("of acme"), turn_id="a", tenant_id="acme")
    assert await store.delete_thread("t") == 2
    assert await store.delete_thread("t") == 0
    assert texts(await store.window("t")) == texts(await store.turn("a")) == []
    assert texts(await store.window("other")) == ["kept"]
    assert texts(await store.window("t", tenant_id="acme")) == ["of acme"]
    assert (await store.append("t", UserMessage("new"), turn_id="c")).seq == 1


@pytest.mark.parametrize("tenant", [None, "", "acme"])
async def test_a_deleted_tenant_is_gone_and_the_others_stay(store: TurnStore, tenant: str | None) -> None:
    """Q206, S19: deleting a tenant takes all its threads; None and "" are tenants like any other."""
    for of in (None, "", "acme"):
        for thread in ("t", "u"):
            await store.append(thread, UserMessage(f"of {of}"), turn_id=thread, tenant_id=of)
    assert await store.delete_tenant(tenant) == 2
    for of in (None, "", "acme"):
        left = [] if of == tenant else [f"of {of}"]
        assert texts(await store.window("t", tenant_id=of)) == left
        assert texts(await store.turn("u", tenant_id=of)) == left


async def test_old_turns_are_deleted_whole_and_the_order_goes_on(
    store: TurnStore, clock: Callable[[int], None]
) -> None:
    """Q206: a turn goes when its last row is older than the time, and never in part."""
    clock(1_000)
    await say(store, "old", "one", "two")
    await say(store, "long", "three")
    await store.append("gone", UserMessage("four"), turn_id="x")
    clock(2_000)
    await store.append("t", AssistantMessage("five"), turn_id="long", step_index=1)
    assert await store.delete_before(1_000) == 0
    assert await store.delete_before(2_000) == 3
    assert texts(await store.window("t")) == ["three", "five"]
    assert texts(await store.turn("old")) == texts(await store.window("gone")) == []
    assert (await store.append("t", UserMessage("six"), turn_id="new")).seq == 5
    assert (await store.append("gone", UserMessage("seven"), turn_id="x")).seq == 1
    assert await store.delete_before(9_000) == 4


async def test_one_turn_id_in_two_threads_is_a_turn_in_each(store: TurnStore) -> None:
    """S19: what a turn's id finds in another thread does not change the order of this one."""
    await say(store, "a", "one")
    await say(store, "b", "two")
    await store.append("other", UserMessage("far"), turn_id="b")
    await store.append("other", UserMessage("first"), turn_id="a")
    await store.append("t", AssistantMessage("three"), turn_id="a", step_index=1)
    assert texts(await store.window("t")) == ["one", "three", "two"]
    assert texts(await store.window("other")) == ["far", "first"]
    assert texts(await store.turn("b")) == ["two", "far"]
    await store.delete_thread("t")
    assert texts(await store.turn("a")) == ["first"]


@pytest.mark.parametrize("name", ["", "x" * 100_000, "ein Fäden/..%2f'; --", "\ud83d", "a\0b", "[1]"])
async def test_ids_of_any_length_and_form_are_taken(store: TurnStore, name: str) -> None:
    """S18: thread, turn, message and tenant ids are data; two that differ are two."""
    for n, of in enumerate((name, name + "2")):
        message = UserMessage(f"text {n}", id=name)
        row = await store.append(of, message, turn_id=name, tenant_id=of)
        assert row.seq == 1
        assert (await store.append(of, message, turn_id=name, tenant_id=of)).seq == 1
        assert texts(await store.window(of, tenant_id=of)) == [f"text {n}"]
        assert texts(await store.turn(name, tenant_id=of)) == [f"text {n}"]
