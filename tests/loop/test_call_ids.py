"""Ids of calls: each is of one call, whatever the server counts. Q034, Q035."""

from typing import Any

import pytest

from playhead import (
    AgentLoop,
    AssistantMessage,
    CallAnswer,
    Event,
    LLMRequest,
    LLMResult,
    ToolCall,
    UserMessage,
    tool,
)
from playhead.events import EmitDelta, ToolCallDelta, ToolCallEvent, ToolCallStart, ToolResultEvent
from playhead.testing import FakeProvider, openai_text, sse, stream
from tests.loop.support import Scripted, add, assert_pairs, loop_on, text

pytestmark = pytest.mark.anyio


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def counted(*amounts: int, name: str = "pay") -> LLMResult:
    """Calls of a server that counts from 0 in each response."""
    made = [ToolCall(f"call_{n}", name, {"amount": amount}) for n, amount in enumerate(amounts)]
    return LLMResult(AssistantMessage("", made), "tool_calls")


def ids_of(messages: object) -> list[str]:
    assert isinstance(messages, list | tuple)
    return [call.id for m in messages if isinstance(m, AssistantMessage) for call in m.tool_calls]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_id_that_comes_again_in_a_turn_gets_a_new_one_everywhere(streamed: bool) -> None:
    """Q034: start, deltas, call, result and message have one id; the first keeps the server's."""

    class Counting(Scripted):
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            result = await super().generate(request, emit)
            for call in result.message.tool_calls:
                if emit is not None:
                    emit(ToolCallStart(call_id=call.id, name=call.name))
                    emit(ToolCallDelta(call_id=call.id, text="{}"))
            return result

    def two() -> LLMResult:
        calls = [ToolCall(f"call_{n}", "add", {"a": n, "b": 1}) for n in range(2)]
        return LLMResult(AssistantMessage("", calls), "tool_calls")

    events: list[Event] = []
    loop = AgentLoop(Counting(two(), two(), text()), tools=[add])
    result = await loop.run("go", emit=events.append if streamed else None)
    ids = ids_of(result.messages)
    assert (ids[:2], len(set(ids))) == (["call_0", "call_1"], 4)
    assert_pairs(result.messages)
    if streamed:
        assert [e.call_id for e in events if isinstance(e, ToolCallStart)] == ids
        assert [e.call_id for e in events if isinstance(e, ToolCallDelta)] == ids
        assert [e.call.id for e in events if isinstance(e, ToolCallEvent)] == ids
        assert [e.result.tool_call_id for e in events if isinstance(e, ToolResultEvent)] == ids


async def test_ids_are_unique_over_all_runs_of_a_turn_and_kept_where_they_are() -> None:
    """Q035, Q241: a call that is asked for after an answer is another; that of another turn is not in its
    way."""
    model = Scripted(counted(1), counted(2), text(), counted(3))
    loop = AgentLoop(model, tools=[pay])
    first = await loop.run("go")
    yes = CallAnswer(first.pending[0].id, approved=True)
    second = await loop.run(list(first.messages), answers=[yes], turn_id=first.turn_id)
    assert first.pending[0].id == "call_0"
    assert second.pending[0].id != "call_0"
    history = [*first.messages, *second.messages]
    yes = CallAnswer(second.pending[0].id, approved=True)
    third = await loop.run(history, answers=[yes], turn_id=first.turn_id)
    assert [m.content for m in third.messages] == ["paid 2", "done"]
    assert (await loop.run("again")).pending[0].id == "call_0"


@pytest.mark.parametrize("id", ["", "x"], ids=["none", "the same"])
async def test_calls_of_one_message_have_ids_of_their_own(id: str) -> None:
    """Q028, Q034: also those of a model of the application's own."""
    calls = [ToolCall(id, "add", {"a": n, "b": 0}) for n in range(3)]
    result = await AgentLoop(
        Scripted(LLMResult(AssistantMessage("", calls), "tool_calls"), text()), tools=[add]
    ).run("go")
    ids = ids_of(result.messages)
    assert len({*ids, ""}) == 4
    assert [m.content for m in result.messages if m.role == "tool"] == ["0", "1", "2"]
    assert_pairs(result.messages)


async def test_what_belongs_to_a_call_goes_back_with_it_whatever_its_id_is_now() -> None:
    """Q151, Q034: a signature that a server hid in a call, under the id that came twice."""

    def asked(signature: str) -> object:
        function = {"name": "add", "arguments": '{"a": 1, "b": 1}'}
        call = {
            "index": 0,
            "id": "call_0",
            "type": "function",
            "function": function,
            "extra_content": signature,
        }
        chunks: tuple[Any, ...] = ({"tool_calls": [call]}, None), ({}, "tool_calls")
        return stream(
            sse(*({"choices": [{"index": 0, "delta": d, "finish_reason": f}]} for d, f in chunks), done=True)
        )

    async with FakeProvider(asked("S1"), asked("S2"), openai_text("ok")) as server:  # type: ignore[arg-type]
        assert (await loop_on(server).run("go", emit=lambda event: None)).text == "ok"
        sent = [m["tool_calls"][0] for m in server.requests[-1].json["messages"] if m.get("tool_calls")]
    assert [call["extra_content"] for call in sent] == ["S1", "S2"]
    assert len({call["id"] for call in sent}) == 2


async def test_a_call_id_of_an_earlier_turn_gets_a_new_one() -> None:
    """Q034: whoever shows the conversation knows a call by its id, and has the turns before in sight."""
    loop = AgentLoop(Scripted(counted(1, name="add"), text(), counted(2, name="add"), text()), tools=[add])
    first = await loop.run("go")
    second = await loop.run([UserMessage("go"), *first.messages, UserMessage("again")])
    (before,), (after,) = ids_of(first.messages), ids_of(second.messages)
    assert before == "call_0"
    assert after != before
    assert_pairs(second.messages)
