"""Replies of a fake provider, as the bytes that go over the wire, and those of two dialects."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Pause = float | Callable[[int], Awaitable[None]]
Cut = Literal["fin", "rst", "hang"]
Call = tuple[str, Any] | tuple[str, Any, str]
"""A tool call: name, arguments (an object, or the raw text of broken ones), and an id."""


@dataclass(frozen=True)
class Reply:
    """Bytes to send, each of `writes` in a TCP write of its own, and what happens after the last.

    `end`: `keep` the connection, close it in order (`fin`), reset it (`rst`), or stay silent (`hang`).
    `pause`: seconds, or a function of the write's number, awaited before each write past `pause_after`.
    """

    writes: Sequence[bytes]
    end: Literal["keep", "fin", "rst", "hang"] = "keep"
    pause: Pause | None = None
    pause_after: int = 0


def reply_json(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None, *, cut: Cut | None = None
) -> Reply:
    """A whole JSON answer in one write. With `cut`, only its first half arrives."""
    raw = json.dumps(body).encode()
    head = _head(status, {"Content-Type": "application/json", "Content-Length": str(len(raw))}, headers)
    return Reply([head + raw[: len(raw) // 2]], cut) if cut else Reply([head + raw])


def reply_bytes(*writes: bytes, end: Literal["keep", "fin", "rst", "hang"] = "fin") -> Reply:
    """The raw answer, status line included, one TCP write for each argument."""
    return Reply(writes, end)


def hang() -> Reply:
    """Take the request and never answer."""
    return Reply((), "hang")


def stream(
    chunks: Sequence[bytes],
    *,
    content_type: str = "text/event-stream",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    pause: Pause | None = None,
    cut: Cut | None = None,
    framing: Literal["chunked", "close"] = "chunked",
) -> Reply:
    """A streamed body, each chunk in a TCP write of its own, so that it may end inside a character.

    `pause` comes between chunks. `cut` ends the body early: after the last chunk the connection is
    closed, reset or left silent, without the end that HTTP's framing asks for. With framing
    `close` the body has no other end than the closed connection.
    """
    extra = {"Content-Type": content_type}
    extra |= {"Transfer-Encoding": "chunked"} if framing == "chunked" else {"Connection": "close"}
    writes = [_head(status, extra, headers)]
    writes += [b"%x\r\n%b\r\n" % (len(c), c) for c in chunks if c] if framing == "chunked" else chunks
    if framing == "close":
        return Reply(writes, cut or "fin", pause, 1)
    return Reply(writes, cut, pause, 1) if cut else Reply([*writes, b"0\r\n\r\n"], "keep", pause, 1)


def split(data: bytes, size: int) -> list[bytes]:
    """Cut bytes into pieces of `size`, wherever that falls."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def sse(*events: Any, done: bool = False) -> list[bytes]:
    """Server-sent events as bytes, one `data:` line each; text is taken as it is, the rest as JSON."""
    texts = [e if isinstance(e, str) else json.dumps(e, ensure_ascii=False) for e in events]
    return [f"data: {text}\n\n".encode() for text in (*texts, *(["[DONE]"] if done else []))]


def _head(status: int, own: Mapping[str, str], given: Mapping[str, str] | None) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted"]
    lines += [f"{name}: {value}" for name, value in {**own, **(given or {})}.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


# ---------------------------------------------------------------- chat completions


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


# ---------------------------------------------------------------- generateContent


def gemini_text(text: str, *, finish_reason: str = "STOP", **extra: Any) -> Reply:
    """A generateContent answer that is plain text; `extra` replaces top-level fields."""
    return reply_json({**_gemini([{"text": text}], finish_reason), **extra})


def gemini_calls(
    calls: Sequence[Call], text: str | None = None, *, finish_reason: str = "STOP", **extra: Any
) -> Reply:
    """A generateContent answer that asks for calls; one without an id in `calls` has none on the wire."""
    parts = [] if text is None else [{"text": text}]
    return reply_json({**_gemini(parts + _gemini_calls(calls), finish_reason), **extra})


def gemini_sse(
    *deltas: str,
    calls: Sequence[Call] = (),
    finish_reason: str | None = "STOP",
    size: int | None = None,
    pause: Pause | None = None,
    cut: Cut | None = None,
) -> Reply:
    """A streamed generateContent answer: text deltas, then each call whole; the last event ends it."""
    parts = [{"text": delta} for delta in deltas] + _gemini_calls(calls)
    reasons = [None] * (len(parts) - 1) + [finish_reason]
    chunks = sse(*(_gemini([part], reason) for part, reason in zip(parts, reasons, strict=True)))
    return stream(split(b"".join(chunks), size) if size else chunks, pause=pause, cut=cut)


def _gemini(parts: list[dict[str, Any]], finish_reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake-model"}


def _gemini_calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"name": name, "args": args, **({"id": given[0]} if given else {})}}
        for name, args, *given in calls
    ]
