"""The scripted model: what a test says it answers is what the loop gets, whole or as a stream."""

import asyncio
from typing import Any

import pytest

from playhead import (
    AgentLoop,
    AssistantMessage,
    LLMError,
    LLMRequest,
    LLMResult,
    RateLimitError,
    RunEnd,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolMessage,
    UserMessage,
    tool,
)
from playhead.events import LLMDelta, ReasoningDelta
from playhead.llm.base import AgentLLM
from playhead.testing import ScriptedLLM

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


CALL = [
    pytest.param([("add", {"a": 2, "b": 3})], id="a list of tuples"),
    pytest.param(("add", {"a": 2, "b": 3}), id="a tuple"),
    pytest.param(ToolCall("call_1", "add", {"a": 2, "b": 3}), id="a call"),
    pytest.param(lambda request: ("add", {"a": len(request.messages) + 1, "b": 3}), id="a function"),
]


def ask() -> LLMRequest:
    return LLMRequest([UserMessage(content="hi")])


@pytest.mark.parametrize("call", CALL)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_run_goes_by_the_script(call: Any, streamed: bool) -> None:
    """Issue 3 item 7: calls, then text, with the loop's own tools in between."""
    llm = ScriptedLLM(call, "The sum is 5.")
    loop = AgentLoop(llm, tools=[add])
    if streamed:
        events = [event async for event in loop.stream("what is 2 + 3?")]
        assert [e.text for e in events if isinstance(e, TextDelta)] == ["The", " sum", " is", " 5."]
        (end,) = [e for e in events if isinstance(e, RunEnd)]
        result = end.result
    else:
        result = await loop.run("what is 2 + 3?")
    assert (result.finish_reason, result.text) == ("final", "The sum is 5.")
    (answer,) = [m for m in llm.requests[1].messages if isinstance(m, ToolMessage)]
    assert (answer.tool_call_id, answer.content) == ("call_1", "5")
    assert llm.unused == 0


@pytest.mark.parametrize("text", ["", "one", " two  words\n", "\n\n", "x\ty "])
async def test_the_pieces_of_a_stream_make_the_text(text: str) -> None:
    deltas: list[LLMDelta] = []
    result = await ScriptedLLM(text).generate(ask(), deltas.append)
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == text == result.message.content


async def test_a_result_is_given_as_it_is_and_all_of_it_is_streamed() -> None:
    call = ToolCall("mine", "add", {"a": 1})
    given = LLMResult(AssistantMessage(content="so", reasoning="hm", tool_calls=[call]), "interrupted")
    deltas: list[LLMDelta] = []
    assert await ScriptedLLM(given).generate(ask(), deltas.append) is given
    assert deltas == [
        ReasoningDelta(text="hm"),
        TextDelta(text="so"),
        ToolCallStart(call_id="mine", name="add"),
        ToolCallDelta(call_id="mine", text='{"a":1}'),
    ]


async def test_ids_of_calls_are_made_and_never_twice_the_same() -> None:
    llm = ScriptedLLM([("a", {}), ("b", {}, "own")], ("c", {}))
    first, second = await llm.generate(ask()), await llm.generate(ask())
    ids = [call.id for result in (first, second) for call in result.message.tool_calls]
    assert ids == ["call_1", "own", "call_3"]
    assert (first.stop_reason, second.stop_reason) == ("tool_calls", "tool_calls")


@pytest.mark.parametrize("error", [RateLimitError("slow down"), ValueError("odd")])
async def test_an_exception_is_raised(error: Exception) -> None:
    llm: AgentLLM = ScriptedLLM(error, "fine")
    with pytest.raises(type(error)):
        await llm.generate(ask())
    assert (await llm.generate(ask())).message.content == "fine"


async def test_a_coroutine_function_may_wait_and_others_go_on() -> None:
    gate = asyncio.Event()

    async def late(request: LLMRequest) -> str:
        await gate.wait()
        return "late"

    waiting = asyncio.create_task(ScriptedLLM(late).generate(ask()))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()
    assert (await waiting).message.content == "late"


async def test_a_call_beyond_the_script_is_told_in_the_run() -> None:
    """A test that expected less must not see a run that looks complete."""
    llm = ScriptedLLM(("add", {"a": 1, "b": 1}))
    result = await AgentLoop(llm, tools=[add]).run("hi")
    assert result.finish_reason == "error"
    assert "The script has 1 answers, and this is call 2" in (result.error_message or "")
    assert len(llm.requests) == 2
    with pytest.raises(LLMError):
        await llm.generate(ask())


async def test_a_default_answers_for_ever_and_a_script_can_grow() -> None:
    llm = ScriptedLLM("one", default="more")
    llm.add("two")
    said = [(await llm.generate(ask())).message.content for _ in range(4)]
    assert said == ["one", "two", "more", "more"]
    assert len(llm.requests) == 4
