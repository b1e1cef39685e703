"""Replies as the chat completions API gives them.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from playhead.testing.replies import Call, Cut, Pause, Reply, reply_json, split, sse, stream


def openai_text(text: str, *, finish_reason: str = "stop", **extra: Any) -> Reply:
    """A chat completion that is plain text; `extra` replaces top-level fields."""
    return _openai({"role": "assistant", "content": text}, finish_reason, extra)


def openai_calls(
    calls: Sequence[Call], text: str | None = None, *, finish_reason: str = "tool_calls", **extra: Any
) -> Reply:
    """A chat completion that asks for calls, beside a text if one is given."""
    message = {"role": "assistant", "content": text, "tool_calls": _openai_calls(calls)}
    return _openai(message, finish_reason, extra)


def openai_sse(
    *deltas: str,
    calls: Sequence[Call] = (),
    finish_reason: str | None = "",
    usage: bool = True,
    done: bool = True,
    size: int | None = None,
    pause: Pause | None = None,
    cut: Cut | None = None,
) -> Reply:
    """A streamed chat completion: text deltas, then calls, each call opened and then written in two halves.

    `finish_reason` is derived when empty, and left out when None. `size` cuts the whole body into
    writes of so many bytes; without it each event is a write.
    """
    parts: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": d} for d in deltas)]
    for index, call in enumerate(_openai_calls(calls)):
        arguments, middle = call["function"]["arguments"], len(call["function"]["arguments"]) // 2
        opening = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        halves = [
            {"index": index, "function": {"arguments": a}} for a in (arguments[:middle], arguments[middle:])
        ]
        parts += [{"tool_calls": [piece]} for piece in (opening, *halves)]
    events = [_openai_chunk(part) for part in parts]
    if finish_reason is not None:
        events.append(_openai_chunk({}, finish_reason or ("tool_calls" if calls else "stop")))
    if usage:
        events.append({**_openai_chunk({}), "choices": [], "usage": OPENAI_USAGE})
    chunks = sse(*events, done=done)
    return stream(split(b"".join(chunks), size) if size else chunks, pause=pause, cut=cut)


OPENAI_USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def _openai(message: dict[str, Any], finish_reason: str, extra: Mapping[str, Any]) -> Reply:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "fake-model"}
    return reply_json({**body, "choices": [choice], "usage": OPENAI_USAGE, **extra})


def _openai_chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-model"}
    return {**body, "choices": [choice]}


def _openai_calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    out = []
    for number, (name, args, *given) in enumerate(calls, 1):
        text = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
        function = {"name": name, "arguments": text}
        out.append({"id": given[0] if given else f"call_{number}", "type": "function", "function": function})
    return out
