"""The usual whole answer of the chat completions API, read in one go.

`OpenAIReader` reads whatever servers send, which costs as much as the rest of a step. What it would
do nothing about, which is nearly all that comes, is read here; the rest is left to it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from playhead.encode import scrub
from playhead.llm.openai_chunks import Message, decode_chunk, map_usage
from playhead.types import AssistantMessage, JsonObject, LLMResult, StopReason, ToolCall

_decode = msgspec.json.Decoder().decode
_REASONS: Mapping[str, StopReason] = {"stop": "stop", "tool_calls": "tool_calls"}
_FIELDS = frozenset(("id", "type", "function", "index"))


def read_plain(body: bytes, model: str, names: Mapping[str, str], cap: int | None) -> LLMResult | None:
    """Return the answer, or None for one that wants the reader, whose arguments these are."""
    try:
        response = decode_chunk(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if response.error or not response.choices:
        return None
    choice = response.choices[0]
    message, reason = choice.message, _REASONS.get(choice.finish_reason or "")
    if reason is None or message is None or choice.delta is not None or _is_more(message):
        return None
    content = message.content or ""
    if type(content) is not str or "<" in content:
        return None
    calls: tuple[ToolCall, ...] | None = ()
    if message.tool_calls:
        # At the output limit, a call may be half of what was meant.
        calls = _calls(message.tool_calls, names) if cap is None else None
    if calls is None:
        return None
    told = AssistantMessage(content, calls, None, reason)
    return LLMResult(told, reason, map_usage(response.usage), "", scrub(response.model or model))


def _is_more(message: Message) -> bool:
    """Is there anything but text and calls?"""
    return bool(
        message.reasoning_content
        or message.reasoning
        or message.reasoning_details
        or message.refusal
        or message.function_call
    )


def _calls(pieces: Sequence[JsonObject], names: Mapping[str, str]) -> tuple[ToolCall, ...] | None:
    if len(pieces) == 1:
        call = _call(pieces[0], names)
        return None if call is None else (call,)
    calls: list[ToolCall] = []
    ids: set[str] = set()
    for piece in pieces:
        call = _call(piece, names)
        if call is None or call.id in ids:
            return None
        calls.append(call)
        ids.add(call.id)
    return tuple(calls)


def _call(piece: JsonObject, names: Mapping[str, str]) -> ToolCall | None:
    id, function = piece.get("id"), piece.get("function")
    if type(id) is not str or type(function) is not dict or not piece.keys() <= _FIELDS:
        return None
    name, raw = function.get("name"), function.get("arguments")
    if type(name) is not str or type(raw) is not str or not (id and name):
        return None
    if id[0].isspace() or id[-1].isspace() or name[0].isspace() or name[-1].isspace():
        return None
    try:
        args: Any = _decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return ToolCall(id, names.get(name, name), args) if type(args) is dict else None
