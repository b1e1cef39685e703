"""The model without a model. Requirements R62-R66."""

import pytest

from playhead import (
    AgentLoop,
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)
from playhead.events import LLMDelta, TextDelta
from playhead.llm.mock import MockLLM
from playhead.types import TextPart

pytestmark = pytest.mark.anyio


async def ask(*messages: ChatMessage) -> tuple[AssistantMessage, str]:
    deltas: list[LLMDelta] = []
    result = await MockLLM().generate(LLMRequest(messages), deltas.append)
    return result.message, "".join(d.text for d in deltas if isinstance(d, TextDelta))


@pytest.mark.parametrize("text", ["Transcribe this video", "TRANSCRIPTION please", "a transcript?"])
async def test_a_wish_to_transcribe_is_a_call_of_the_tool(text: str) -> None:
    """R63: case-insensitive "transcri", with `{}`."""
    message, _ = await ask(UserMessage(text))
    (call,) = message.tool_calls
    assert (call.name, call.args) == ("transcribe_video", {})
    assert call.id


@pytest.mark.parametrize("text", ["Hi", "", "What scene is this?"])
async def test_anything_else_echoes_the_context(text: str) -> None:
    """R64."""
    message, _ = await ask(UserMessage(text))
    assert [(c.name, c.args) for c in message.tool_calls] == [("echo_context", {})]


async def test_parts_of_a_message_are_read() -> None:
    """R66: the last user message, in whatever form."""
    message, _ = await ask(UserMessage("Hi"), UserMessage([TextPart("please transcribe")]))
    assert message.tool_calls[0].name == "transcribe_video"


@pytest.mark.parametrize(
    ("name", "content", "is_error", "expected"),
    [
        ("transcribe_video", '{"assetName":"a.mp4","text":" Ask not."}', False, "Ask not."),
        ("transcribe_video", '{"assetName":"a.mp4","text":""}', False, "No speech was found in a.mp4"),
        ("transcribe_video", "No media is loaded.", True, "No media is loaded."),
        ("echo_context", '{"projectId":"p1"}', False, '"projectId":"p1"'),
    ],
)
async def test_the_result_is_answered_in_text(name: str, content: str, is_error: bool, expected: str) -> None:
    """R66 settled: so that a run ends; streamed and whole are the same text."""
    call = ToolCall("c", name, {})
    answer = ToolMessage("c", name, content, is_error)
    message, streamed = await ask(UserMessage("transcribe"), AssistantMessage("", [call]), answer)
    assert message.tool_calls == ()
    assert expected in message.content
    assert streamed == message.content


async def test_a_new_question_starts_over() -> None:
    """R66: results before the last user message do not count."""
    call = ToolCall("c", "echo_context", {})
    history: list[ChatMessage] = [UserMessage("Hi"), AssistantMessage("", [call])]
    history += [ToolMessage("c", "echo_context", "{}"), AssistantMessage("ok"), UserMessage("transcribe")]
    message, _ = await ask(*history)
    assert message.tool_calls[0].name == "transcribe_video"


async def test_tools_that_it_does_not_know_are_left_alone_and_the_answer_says_so() -> None:
    """R62: an agent with tools of one's own ends in a text that says what to do, not in a failed call."""

    @tool
    def add(a: int, b: int) -> int:
        return a + b

    result = await AgentLoop(MockLLM(), tools=[add]).run("What is 2 + 3?")
    assert (result.finish_reason, len(result.steps)) == ("final", 1)
    assert "mock model" in result.text
    assert "(add)" in result.text
    assert "LLM_PROVIDER" in result.text
