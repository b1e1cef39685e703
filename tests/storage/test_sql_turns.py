"""What the turn store in a database promises beyond what every turn store does."""

import asyncio
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, func, select, update

from playhead.errors import StoreError
from playhead.storage import turns
from playhead.storage.engine import Database, open_database
from playhead.storage.rows import prepare
from playhead.storage.tables import FORMAT, agent_turns, key_of
from playhead.storage.turns import SQLTurnStore
from playhead.types import AssistantMessage, TextPart, ToolCall, ToolMessage, UserMessage

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(database: Database) -> SQLTurnStore:
    return SQLTurnStore(database)


async def column(database: Database, name: str) -> list[Any]:
    query = select(agent_turns.c[name]).order_by(agent_turns.c.row_id)
    return await database.read(lambda connection: list(connection.execute(query).scalars()))


async def test_what_was_said_is_there_after_closing_and_opening(url: str) -> None:
    """S18: turns outlive the process that wrote them."""
    async with await open_database(url) as database:
        written = await SQLTurnStore(database).append("t", UserMessage("hello"), turn_id="a")
    async with await open_database(url) as database:
        store = SQLTurnStore(database)
        assert list(await store.window("t")) == [written]
        assert (await store.append("t", UserMessage("more"), turn_id="b")).seq == 2


async def test_the_columns_can_be_read_without_this_library(store: SQLTurnStore, database: Database) -> None:
    """S18: text is text, and arguments are JSON text in the order of their keys."""
    call = ToolCall("c1", "look", {"z": 1, "a": {"y": 2, "b": 3}})
    await store.append("t", UserMessage("[1]"), turn_id="turn")
    await store.append("t", UserMessage((TextPart("see"),)), turn_id="turn")
    await store.append("t", AssistantMessage("so", (call,), reasoning="why"), turn_id="turn", step_index=1)
    await store.append("t", ToolMessage("c1", "look", '{"z":1,"a":2}'), turn_id="turn", step_index=1)
    assert await column(database, "content") == ["[1]", None, "so", '{"z":1,"a":2}']
    assert await column(database, "content_parts") == [None, '[{"type":"text","text":"see"}]', None, None]
    calls = '[{"id":"c1","name":"look","args":{"z":1,"a":{"y":2,"b":3}}}]'
    assert await column(database, "tool_calls") == [None, None, calls, None]
    assert await column(database, "role") == ["user", "user", "assistant", "tool"]
    assert await column(database, "tool_name") == [None, None, None, "look"]
    assert await column(database, "format") == [FORMAT] * 4
    assert '"reasoning":"why"' in (await column(database, "extra"))[2]


async def test_nul_and_half_surrogates_are_replaced_everywhere(store: SQLTurnStore) -> None:
    """Q202: they become U+FFFD, pairs stay, and what is returned is what is read back."""
    bad, good = "a\0b\ud83d \U0001f600 \\u0000", "a\ufffdb\ufffd \U0001f600 \\u0000"
    call = ToolCall("c", bad, {bad: [bad], "z": 1})
    for message in (
        UserMessage(bad),
        UserMessage((TextPart(bad),)),
        AssistantMessage(bad, (call,), reasoning=bad, provider_metadata={"x": bad}),
        ToolMessage("c", bad, bad),
    ):
        row = await store.append("t", message, turn_id="turn")
        assert (await store.window("t"))[-1] == row
        said = msgspec.json.encode(row.message).decode()
        assert "\\u0000" not in said.replace("\\\\u0000", "")
    rows = await store.turn("turn")
    assert [row.content for row in rows] == [good, [TextPart(good)], good, good]
    assert rows[2].tool_calls == [ToolCall("c", good, {good: [good], "z": 1})]
    assert isinstance(rows[2].message, AssistantMessage)
    assert (rows[2].message.reasoning, rows[2].message.provider_metadata) == (good, {"x": good})


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (Decimal("1.10"), "1.10"),
        (float("nan"), None),
        (2**200, 2**200),
        (b"\xff", "/w=="),
        ("x" * 3_000_000, "x" * 3_000_000),
        ({1, 2}, [1, 2]),
    ],
    ids=["decimal", "nan", "huge", "bytes", "long", "set"],
)
async def test_arguments_of_any_kind_are_written(store: SQLTurnStore, value: Any, kept: Any) -> None:
    """Q202: a value without a JSON form is written in the form that the encoder gives it."""
    await store.append("t", AssistantMessage("", (ToolCall("c", "f", {"v": value}),)), turn_id="turn")
    (row,) = await store.window("t")
    assert row.tool_calls[0].args == {"v": kept}


async def test_a_message_that_is_none_is_refused(store: SQLTurnStore) -> None:
    """Q205: what could not be read back is not written."""
    with pytest.raises(StoreError, match="does not have the form"):
        await store.append("t", UserMessage(5), turn_id="a")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="step's index"):
        await store.append("t", UserMessage("x"), turn_id="a", step_index=2**63)
    assert list(await store.window("t")) == []


@pytest.mark.parametrize(
    "strange",
    [{"role": "observer"}, {"format": FORMAT + 1}, {"extra": "{"}, {"content": None}],
    ids=["role", "format", "broken", "missing"],
)
async def test_a_row_of_another_version_is_kept_and_skipped(
    store: SQLTurnStore, database: Database, strange: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Q205: unknown kinds, later formats and missing fields are left out of what is read, and stay."""
    for n in range(3):
        await store.append("t", UserMessage(f"text {n}", id=f"m{n}"), turn_id=f"turn{n}")
    change = update(agent_turns).where(agent_turns.c.id == "m1").values(**strange)
    await database.write(lambda connection: connection.execute(change).close())
    assert [row.content for row in await store.window("t")] == ["text 0", "text 2"]
    assert list(await store.turn("turn1")) == []
    assert "cannot read" in caplog.text
    with pytest.raises(StoreError, match=r"'m1'.*update Playhead"):
        await store.append("t", UserMessage("again", id="m1"), turn_id="turn1")
    assert (await store.append("t", UserMessage("last"), turn_id="turn3")).seq == 4
    assert await column(database, "id") == ["m0", "m1", "m2", (await store.turn("turn3"))[0].id]


async def test_fields_of_a_later_version_are_kept(store: SQLTurnStore, database: Database) -> None:
    """Q205: a field that this version does not know does not hide the message, and stays."""
    await store.append("t", UserMessage("text"), turn_id="turn")
    later = update(agent_turns).values(extra='{"mood":"good","timestamp":5}')
    await database.write(lambda connection: connection.execute(later).close())
    (row,) = await store.window("t")
    assert (row.content, row.message.timestamp) == ("text", 5)
    assert await column(database, "extra") == ['{"mood":"good","timestamp":5}']


async def test_a_write_is_made_though_nobody_waits_for_it_any_more(
    store: SQLTurnStore, database: Database
) -> None:
    """S19: a cancelled run does not take back what it has said."""
    hold = threading.Event()
    held = asyncio.create_task(database.write(lambda _: hold.wait(30)))
    waiting = asyncio.create_task(store.append("t", UserMessage("said"), turn_id="turn"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    hold.set()
    assert await held
    assert [row.content for row in await store.window("t")] == ["said"]


async def test_what_was_deleted_is_not_left_in_the_file(tmp_path: Path) -> None:
    """Q206: SQLite would keep the bytes of deleted rows in its free pages."""
    path = tmp_path / "x.db"
    async with await open_database(f"sqlite:///{path}") as database:
        store = SQLTurnStore(database)
        for n in range(50):
            await store.append("gone", UserMessage(f"secret {n} " * 20), turn_id=f"{n}")
            await store.append("kept", UserMessage(f"kept {n}"), turn_id=f"{n}")
    assert b"secret 7" in path.read_bytes()
    async with await open_database(f"sqlite:///{path}") as database:
        assert await SQLTurnStore(database).delete_thread("gone") == 50
    assert b"secret" not in path.read_bytes()
    assert b"kept 7" in path.read_bytes()


@pytest.fixture
def steps_of(database: Database) -> Callable[[Callable[[Connection], object]], Any]:
    """Count the instructions of SQLite's machine that a piece of work takes: a clock that never jumps."""

    async def count(work: Callable[[Connection], object]) -> int:
        def counted(connection: Connection) -> int:
            steps = 0

            def step() -> int:
                nonlocal steps
                steps += 1
                return 0

            driver: Any = connection.connection.driver_connection
            driver.set_progress_handler(step, 1)
            try:
                work(connection)
            finally:
                driver.set_progress_handler(None, 0)
            return steps

        return await database.write(counted)

    return count


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_long_thread_costs_what_a_short_one_does(
    store: SQLTurnStore, database: Database, steps_of: Callable[[Callable[[Connection], object]], Any]
) -> None:
    """S18: appending to and opening a thread of 10,000 messages costs what one of 40 does."""

    def fill(connection: Connection) -> None:
        for thread, count in (("short", 40), ("long", 10_000)):
            for n in range(count):
                new = prepare(thread, UserMessage(f"text {n}"), turn_id=f"{thread}{n // 2}")
                store.put(connection, new)

    await database.write(fill)
    costs: dict[str, list[int]] = {}
    for thread in ("short", "long"):
        new = prepare(thread, UserMessage("one more"), turn_id=f"{thread}-new")
        costs[thread] = [
            await steps_of(lambda connection, new=new: store.put(connection, new)),  # type: ignore[misc]
            await steps_of(
                lambda connection, thread=thread: connection.execute(*opening(thread)).all()  # type: ignore[misc]
            ),
        ]
    for short, long in zip(costs["short"], costs["long"], strict=True):
        assert long <= short * 1.1
    total = select(func.count()).select_from(agent_turns)
    assert await database.read(lambda connection: connection.execute(total).scalar()) == 10_042


def opening(thread: str) -> tuple[Any, dict[str, Any]]:
    """The query of a window of ten turns, and its values."""
    query = turns._window(limited=True, bounded=False)
    return query, {"thread_key": key_of(None, thread), "skipped": 9}
