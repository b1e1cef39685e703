"""How a run ends, over real HTTP against a provider in raw bytes. Requirements H."""

import json
from collections.abc import Sequence

import pytest

from playhead import (
    AgentStep,
    AssistantMessage,
    LoopOptions,
    tool,
)
from playhead.testing import (
    FakeProvider,
    gemini_calls,
    gemini_text,
    openai_calls,
    openai_text,
    reply_json,
)
from tests.loop.support import assert_pairs, loop_on, run

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("provider", ["openai-compatible", "gemini"])
async def test_a_tool_call_and_then_an_answer(provider: str) -> None:
    """S1, S2: model, tool, model, answer; `final` when there are no calls left."""
    script = {
        "openai-compatible": (openai_calls([("add", {"a": 2, "b": 3})]), openai_text("It is 5.")),
        "gemini": (gemini_calls([("add", {"a": 2, "b": 3})]), gemini_text("It is 5.")),
    }[provider]
    async with FakeProvider(*script) as server:
        result = await loop_on(server, provider).run("what is 2 + 3?")
    assert (result.finish_reason, result.text, result.stop_reason) == ("final", "It is 5.", "stop")
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.messages[2].content == "5"
    assert "5" in json.dumps(server.requests[1].json)
    assert_pairs(result.messages)


async def test_steps_tell_what_happened() -> None:
    """S9, S11, S12: 1-based index, message, results, provider, model, tokens; text is the last."""
    result = await run(openai_calls([("add", {"a": 2, "b": 3})], "Let me see."), openai_text("5"))
    first, second = result.steps
    assert (first.step_index, second.step_index) == (1, 2)
    assert first.assistant_message.content == "Let me see."
    assert [m.content for m in first.tool_results] == ["5"]
    assert (first.provider, first.model) == ("openai-compatible", "fake-model")
    assert (first.tokens_in, first.tokens_out) == (11, 7)
    assert first.latency_ms is not None
    assert second.tool_results == ()
    assert result.text == "5"
    assert result.usage.input_tokens == 22


async def test_unknown_usage_stays_unknown() -> None:
    """Design 4: unknown is unknown, never zero."""
    result = await run(openai_calls([("add", {"a": 1, "b": 1})], usage=None), openai_text("2"))
    assert result.usage.input_tokens is None


async def test_stop_when_ends_the_run_after_a_step() -> None:
    """S2: checked after each step, with the finished steps."""
    seen: list[int] = []

    def after_two(steps: Sequence[AgentStep]) -> bool:
        seen.append(len(steps))
        return len(steps) == 2

    replies = [openai_calls([("add", {"a": n, "b": 1})]) for n in range(2)]
    result = await run(*replies, stop_when=after_two)
    assert result.finish_reason == "stop"
    assert seen == [1, 2]
    assert_pairs(result.messages)


async def test_the_cap_ends_the_run_with_the_last_tools_run() -> None:
    """S2, Q175: `max_steps`; the calls of the last step have their results."""
    replies = [openai_calls([("add", {"a": n, "b": 1})]) for n in range(3)]
    result = await run(*replies, options=LoopOptions(max_steps=3))
    assert result.finish_reason == "max_steps"
    assert [m.content for s in result.steps for m in s.tool_results] == ["1", "2", "3"]


async def test_a_provider_failure_keeps_the_finished_steps() -> None:
    """S2: `error` with a message and a code; what was done stays."""
    result = await run(openai_calls([("add", {"a": 2, "b": 3})]), reply_json({"error": {}}, 401))
    assert (result.finish_reason, result.error_code) == ("error", "auth")
    assert "LLM_API_KEY" in (result.error_message or "")
    assert len(result.steps) == 1
    assert_pairs(result.messages)


async def test_a_cut_answer_is_final_and_says_so() -> None:
    """Design 4: `final` with `length`, in the result and in the message; never plain."""
    result = await run(openai_text("The three rea", finish_reason="length"))
    assert (result.finish_reason, result.stop_reason) == ("final", "length")
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert last.stop_reason == "length"


@pytest.mark.parametrize(("reason", "word"), [("stop", "neither text"), ("length", "max_tokens")])
async def test_no_text_at_all_is_an_error(reason: str, word: str) -> None:
    """Design 4, Q184: code `empty_answer`, with what to do."""
    # An empty answer that nothing explains is asked for once more.
    replies = [openai_text("", finish_reason=reason)] * (2 if reason == "stop" else 1)
    result = await run(*replies)
    assert (result.finish_reason, result.error_code) == ("error", "empty_answer")
    assert word in (result.error_message or "")


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_calls_of_a_cut_answer_do_not_run(reason: str) -> None:
    """Design 7.1, Q055: not even those that parse; each is answered."""
    ran: list[int] = []

    @tool
    async def note() -> str:
        """Note."""
        ran.append(1)
        return "noted"

    replies = [openai_calls([("note", {}), ("note", {})], "x", finish_reason=reason), openai_text("ok")]
    async with FakeProvider(*replies) as server:
        result = await loop_on(server, tools=[note]).run("go")
    assert ran == []
    assert [m.is_error for m in result.steps[0].tool_results] == [True, True]
    assert_pairs(result.messages)


async def test_a_label_of_tool_calls_without_calls_is_an_answer() -> None:
    """Q061: calls decide."""
    result = await run(openai_text("done", finish_reason="tool_calls"))
    assert (result.finish_reason, result.text) == ("final", "done")


async def test_calls_labelled_stop_run() -> None:
    """Design 7.1: complete calls run whatever the label."""
    result = await run(openai_calls([("add", {"a": 1, "b": 1})], finish_reason="stop"), openai_text("2"))
    assert result.steps[0].tool_results[0].content == "2"
