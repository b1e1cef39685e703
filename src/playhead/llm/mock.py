"""A model without a model: it transcribes when asked to, and echoes the context otherwise.

It needs neither key nor network, and answers in text once the result of its call is there, or when the
tools on offer are others.
"""

import json
from collections.abc import Sequence
from typing import Any

from playhead.events import EmitDelta, ToolCallDelta, ToolCallStart
from playhead.ids import new_id
from playhead.llm.assembly import Assembly
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    LLMResult,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

_INTENT = "transcri"
_SHOWN = 400
# Who tries an agent with tools of their own is told why nothing happens.
_NOT_MINE = (
    "This is the mock model. It would call {name}, which is not among the tools here ({offered}), and it "
    "knows no others. Set LLM_PROVIDER, LLM_MODEL and LLM_API_KEY to have a real model choose."
)


class MockLLM:
    """The `AgentLLM` of `LLM_PROVIDER=mock`."""

    provider = "mock"
    model = "mock"

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """Answer by rule. Never fails."""
        asked, results = _turn(request.messages)
        if results:
            return _said(_answer(results), emit)
        name = "transcribe_video" if _INTENT in asked.lower() else "echo_context"
        offered = [tool.name for tool in request.tools]
        if offered and name not in offered:
            return _said(_NOT_MINE.format(name=name, offered=", ".join(offered)), emit)
        return _called(name, emit)


def _turn(messages: Sequence[ChatMessage]) -> tuple[str, list[ToolMessage]]:
    """Return the last user text, and the results that came after it."""
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results.insert(0, message)
        elif isinstance(message, UserMessage):
            return _text(message), results
    return "", results


def _text(message: UserMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return " ".join(part.text for part in message.content if isinstance(part, TextPart))


def _called(name: str, emit: EmitDelta | None) -> LLMResult:
    call = ToolCall(new_id(), name, {})
    if emit is not None:
        emit(ToolCallStart(call.id, call.name))
        emit(ToolCallDelta(call.id, "{}"))
    message = AssistantMessage("", (call,), stop_reason="tool_calls")
    return LLMResult(message, "tool_calls", provider="mock", model="mock")


def _said(text: str, emit: EmitDelta | None) -> LLMResult:
    assembly = Assembly(emit)
    for word in text.split(" "):
        assembly.text(word if assembly.empty else f" {word}")
    return LLMResult(assembly.message("stop"), "stop", provider="mock", model="mock")


def _answer(results: Sequence[ToolMessage]) -> str:
    last = results[-1]
    if last.is_error:
        return f"That did not work: {last.content}"
    try:
        value = json.loads(last.content)
    except ValueError:
        value = None
    if last.tool_name == "transcribe_video" and isinstance(value, dict):
        return _of_transcript(value)
    return f"The context is: {_short(last.content)}"


def _of_transcript(value: dict[str, Any]) -> str:
    text = str(value.get("text") or "").strip()
    asset = value.get("assetName") or "the recording"
    return (
        f"Here is the transcript of {asset}: {_short(text)}" if text else f"No speech was found in {asset}."
    )


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN].rsplit(" ", 1)[0] + " ..."
