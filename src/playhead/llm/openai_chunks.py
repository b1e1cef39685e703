"""What the chat completions API sends, whole or as chunks, and how its counts are read.

Source: https://platform.openai.com/docs/api-reference/chat. Fields are as loose as servers are.
"""

import json
from typing import Any

import msgspec

from playhead.types import JsonObject, Usage

DONE = (b"[DONE]", b'"[DONE]"')


class Message(msgspec.Struct):
    # Text, or parts of several forms.
    content: Any = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[JsonObject] | None = None
    # As they come: servers add fields to a call that they want back.
    tool_calls: list[JsonObject] | None = None
    function_call: JsonObject | None = None


class Choice(msgspec.Struct):
    index: int | None = None
    delta: Message | None = None
    message: Message | None = None
    finish_reason: str | None = None


class Details(msgspec.Struct):
    cached_tokens: int | float | None = None
    cache_write_tokens: int | float | None = None
    reasoning_tokens: int | float | None = None


class Counts(msgspec.Struct):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None


class Response(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: Counts | None = None
    # An object or a text; where there is none, servers send null, "", false or {}.
    error: Any = None
    model: str | None = None


decode_chunk = msgspec.json.Decoder(Response).decode


def is_text(choice: Choice, delta: Message) -> bool:
    """Is this text without a tag, and nothing else?"""
    content = delta.content
    return (
        type(content) is str
        and content != ""
        and "<" not in content
        and not (delta.tool_calls or delta.reasoning_content or delta.reasoning or delta.refusal)
        and not (delta.reasoning_details or delta.function_call or choice.finish_reason or choice.message)
    )


def documents(data: bytes) -> list[bytes]:
    """The documents of an event that does not parse: servers forget the blank line between two."""
    lines = data.split(b"\n")
    whole = len(lines) > 1 and all(line in DONE or _is_object(line) for line in lines)
    return lines if whole else [data]


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


def map_usage(usage: Counts | None) -> Usage:
    """Return the counts as reported; what was not reported is unknown, and none is below zero."""
    if usage is None:
        return Usage()
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        _count(usage.prompt_tokens),
        _count(usage.completion_tokens),
        _count(prompt.cached_tokens if prompt else None),
        _count(completion.reasoning_tokens if completion else None),
        cache_write_tokens=_count(prompt.cache_write_tokens if prompt else None),
    )


def merged_counts(before: Counts | None, after: Counts) -> Counts:
    """The last value of each count: they are cumulative."""
    if before is not None:
        for name in Counts.__struct_fields__:
            if getattr(after, name) is None:
                setattr(after, name, getattr(before, name))
    return after


def _count(number: float | None) -> int | None:
    # Whole numbers also come as 5.0; what no counter can hold is no count.
    return None if number is None or not number < 2**53 else max(int(number), 0)
