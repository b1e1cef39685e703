"""Calls that wait: for a person's approval, or for the front end to execute them.

A run that leaves such calls ends as `paused`, so that nothing waits on a worker. The answers start a
new run of the same turn; a new user message instead is a no.
"""

from collections.abc import Sequence
from typing import Any

from playhead.encode import encode_result, error_text
from playhead.errors import ToolError
from playhead.port import ToolReply
from playhead.tools.registry import ToolRegistry
from playhead.types import (
    AssistantMessage,
    CallAnswer,
    ChatMessage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    ToolResult,
    UserMessage,
)

_DENIED = "Not approved."
_PASSED_OVER = "Not approved: a new message came instead of an answer."


def waits(tools: ToolRegistry, call: ToolCall, context: Any) -> bool:
    """Must somebody else answer this call? One that is invalid need not: it is refused at once."""
    tool = tools.named(call.name) if call.error is None else None
    if tool is None or not (tool.client or tool.approval):
        return False
    try:
        tool.validate(call.args)
    except ToolError:
        return False
    return tool.client or asks_approval(tool, call, context)


def asks_approval(tool: ToolDefinition[..., Any], call: ToolCall, context: Any) -> bool:
    """Does the tool want a person's word for this call?"""
    return tool.approval(call.args, context) if callable(tool.approval) else tool.approval


def left_open(messages: Sequence[ChatMessage]) -> tuple[AssistantMessage | None, list[ToolCall], bool]:
    """Return the last message with calls, its calls without a result, and whether the user spoke since."""
    answered: set[str] = set()
    spoke = False
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, UserMessage):
            spoke = True
        elif isinstance(message, AssistantMessage):
            calls = [call for call in message.tool_calls if call.id not in answered]
            return message, calls, spoke
    return None, [], spoke


def denied(call: ToolCall, answer: CallAnswer | None) -> ToolReply:
    """The reply to a call that nobody allowed."""
    text = _PASSED_OVER if answer is None else _DENIED
    if answer is not None and answer.reason:
        text = f"{_DENIED} {answer.reason}"
    return ToolReply(ToolResult(call.id, call.name, error=text, text=text))


def executed_by_client(call: ToolCall, answer: CallAnswer) -> ToolReply:
    """The reply that the front end gave."""
    if answer.error is not None:
        text = error_text(ToolError(answer.error))
        return ToolReply(ToolResult(call.id, call.name, error=text, text=text))
    text, value = encode_result(answer.result)
    return ToolReply(ToolResult(call.id, call.name, value, None, text))
