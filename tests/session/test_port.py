"""A run that is written down as it happens."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from playhead import AgentLoop, AgentRunResult, connect, tool
from playhead.errors import StoreError
from playhead.events import ToolCallEvent
from playhead.storage.base import TurnRow
from playhead.storage.ledger import Entry, Ledger, Recorded
from playhead.storage.memory_ledger import MemoryLedger
from playhead.testing import FakeProvider, openai_calls, openai_text
from playhead.types import AssistantMessage, ToolCall, ToolMessage, UserMessage
from tests.session.models import (
    CALLS,
    StrictLLM,
    YieldingLedger,
    assert_valid,
    loop_of,
    new_port,
    quick,
    shown,
)

pytestmark = pytest.mark.anyio

CALLED = ToolCallEvent(call=CALLS[0])


async def say(loop: AgentLoop, ledger: Ledger, text: str, **named: Any) -> AgentRunResult:
    message = UserMessage(text)
    return await loop.run_on(await new_port(ledger, message, **named), made=(message,))


def said(rows: Sequence[TurnRow]) -> list[Any]:
    return [row.content for row in rows]


async def test_a_turn_is_written_in_order_under_one_id() -> None:
    """S10, S18: user, assistant with calls, results, answer; one turn id; the steps that made them."""
    store = MemoryLedger()
    result = await say(loop_of(StrictLLM(*CALLS, reply="so")), store, "go")
    rows = await store.turns.window("t")
    assert [(r.role, r.step_index) for r in rows] == [
        ("user", 0),
        ("assistant", 1),
        ("tool", 1),
        ("tool", 1),
        ("assistant", 2),
    ]
    assert {r.turn_id for r in rows} == {result.turn_id}
    assert list(await store.turns.turn(result.turn_id)) == rows
    assert sorted(m.id for m in result.messages) == sorted(r.id for r in rows)


async def test_the_next_run_reads_what_was_said() -> None:
    """S1: the recent turns are loaded, the new message comes last."""
    store = MemoryLedger()
    async with FakeProvider(
        openai_calls([("quick", {"a": 2}, "c1")]), openai_text("two"), openai_text("again two")
    ) as server:
        loop = AgentLoop(
            connect("openai-compatible", "m", "k", f"{server.url}/v1"), tools=[quick], system="Be terse."
        )
        await say(loop, store, "how many?")
        result = await say(loop, store, "how many?")
        messages = server.requests[2].json["messages"]
    assert result.text == "again two"
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert [m["content"] for m in messages if m["role"] == "user"] == ["how many?", "how many?"]


async def test_the_system_message_is_never_stored() -> None:
    """S3: instructions go to the model, not into the thread."""
    store = MemoryLedger()
    async with FakeProvider(openai_text("hi")) as server:
        loop = AgentLoop(connect("openai-compatible", "m", "k", f"{server.url}/v1"), system="SECRET")
        await say(loop, store, "hello")
        assert server.requests[0].json["messages"][0] == {"role": "system", "content": "SECRET"}
    assert [row.role for row in await store.turns.window("t")] == ["user", "assistant"]


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_the_window_is_of_earlier_turns(turns: int) -> None:
    """S17: so many turns come before the new message, and each is whole."""
    store = MemoryLedger()
    llm = StrictLLM(*CALLS, reply="so")
    for n in range(5):
        await say(loop_of(llm), store, f"q{n}", turns=turns)
    first_step = llm.seen[-2]
    assert len(first_step) == turns * 5 + 1
    assert [m.content for m in first_step if m.role == "user"] == [f"q{n}" for n in range(4 - turns, 5)]


async def test_the_history_is_what_was_there_when_the_run_began() -> None:
    """S17: rows that come later, its own or another's, do not change what a run reads at its start."""
    store = MemoryLedger()
    await say(loop_of(StrictLLM()), store, "one")
    port = await new_port(store, UserMessage("two"))
    before = await port.history()
    await store.turns.append("t", AssistantMessage("late"), turn_id=port.turn_id, step_index=1)
    await store.turns.append("t", UserMessage("other"), turn_id="other")
    assert await port.history() == before
    assert [m.content for m in before] == ["one", "done", "two"]


class Watching(MemoryLedger):
    """Tells the order of what is written and what happens."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    async def record(self, entry: Entry) -> Recorded:
        recorded = await super().record(entry)
        self.order += [f"{message.role} written" for message, _ in entry.messages]
        self.order += [e.type for e in entry.events if e.type in ("tool_call", "tool_result", "run_end")]
        return recorded


async def test_everything_is_written_before_it_counts_as_done() -> None:
    """S18, Q247: the user's message before the model is called, calls before tools, results as they land."""
    store = Watching()

    class Told(StrictLLM):
        async def generate(self, *args: Any) -> Any:
            store.order.append("model called")
            return await super().generate(*args)

    @tool
    async def slow(a: int) -> int:
        """Return the number."""
        store.order.append("tool runs")
        return a

    await say(AgentLoop(Told(CALLS[0], reply="so"), tools=[slow]), store, "go")
    assert store.order == [
        "user written",
        "model called",
        "assistant written",
        "tool_call",
        "tool runs",
        "tool written",
        "tool_result",
        "model called",
        "assistant written",
        "run_end",
    ]


async def test_an_event_is_told_once_for_its_key() -> None:
    """The same key again tells and writes nothing."""
    store = MemoryLedger()
    port = await new_port(store, UserMessage("go"))
    message = AssistantMessage("so")
    for _ in range(2):
        await port.emit("1/call/0", CALLED, message)
        await port.journal.barrier()
    assert (await shown(store), said(await store.turns.window("t"))) == (["tool_call"], ["so"])


async def never() -> str:
    raise AssertionError("no effect begins before what was said is written")


async def test_a_message_is_not_told_when_it_could_not_be_written() -> None:
    """The row comes first: without it there is no event, and a second try may succeed."""

    class Full(MemoryLedger):
        full = True

        async def record(self, entry: Entry) -> Recorded:
            if self.full:
                raise StoreError("full")
            return await super().record(entry)

    store = Full()
    port = await new_port(store, UserMessage("go"))
    message = AssistantMessage("so")
    await port.emit("1/call/0", CALLED, message)
    with pytest.raises(StoreError):
        await port.step("1/tool/0", str, never)
    assert await shown(store) == []
    store.full = False
    await port.emit("1/call/0", CALLED, message)
    await port.journal.barrier()
    assert (await shown(store), said(await store.turns.window("t"))) == (["tool_call"], ["so"])


async def test_a_run_that_was_given_up_writes_nothing_more() -> None:
    """What is still at work after the end of its run cannot write into the next one's history."""
    store = MemoryLedger()
    port = await new_port(store, UserMessage("go"))
    await port.open()
    port.close()
    with pytest.raises(StoreError, match="over"):
        await port.emit("1/call/0", CALLED, AssistantMessage("late"))
    assert said(await store.turns.window("t")) == ["go"]


async def interrupt(how: str, after: int, store: Ledger) -> bool:
    """Run a turn and interrupt it after so many rounds of the event loop; True if it was over by then."""
    cancel = asyncio.Event()
    loop = loop_of(StrictLLM(*CALLS, reply="so"))
    run = asyncio.create_task(say(loop, store, "first", cancel=cancel))
    for _ in range(after):
        await asyncio.sleep(0)
    if run.done():
        return True
    if how == "stop":
        cancel.set()
        result = await run
        # The stop may come when all is said.
        assert result.finish_reason in ("cancelled", "final")
        told = await shown(store)
        assert (told.count("run_end"), told[-1]) == (1, "run_end")
        assert_valid(result.messages)
    else:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    return False


@pytest.mark.parametrize("how", ["stop", "CancelledError"])
async def test_whatever_interrupts_a_run_the_next_one_works(how: str) -> None:
    """S17: stopped or cancelled at any await, the thread stays usable and nothing said is lost."""
    cut = 0
    for after in range(500):
        store = YieldingLedger()
        if await interrupt(how, after, store):
            break
        rows = await store.turns.window("t")
        llm = StrictLLM(*CALLS, reply="well")  # it refuses a history that is not valid
        result = await say(loop_of(llm), store, "second")
        assert (result.finish_reason, result.text) == ("final", "well")
        assert llm.seen[0][-1].content == "second"
        kept = await store.turns.window("t")
        assert list(kept[: len(rows)]) == list(rows), "what was written stays as it was"
        calls = [c.id for r in rows for c in r.tool_calls]
        if how == "stop":
            answered = [str(r.tool_call_id) for r in rows if r.role == "tool"]
            assert sorted(answered) == sorted(calls), "a stop answers every open call"
        cut += 1
    else:
        pytest.fail("the run never came to its end")
    assert cut > 20, "the run has many more awaits than that"


async def test_a_lost_result_is_made_up_only_for_the_model() -> None:
    """S17: a process that died within a tool leaves a call without a result; the log stays raw."""
    store = MemoryLedger()
    await store.turns.append("t", UserMessage("go"), turn_id="a")
    await store.turns.append(
        "t", AssistantMessage("", [ToolCall("c", "slow", {})]), turn_id="a", step_index=1
    )
    llm = StrictLLM()
    await say(loop_of(llm), store, "and now?")
    (seen,) = llm.seen
    made_up = seen[2]
    assert isinstance(made_up, ToolMessage)
    assert (made_up.tool_call_id, made_up.is_error) == ("c", True)
    assert [row.role for row in await store.turns.window("t")] == ["user", "assistant", "user", "assistant"]
