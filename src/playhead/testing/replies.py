"""Replies of a fake provider, as the bytes that go over the wire. Those of a dialect stand beside this."""

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
    head = http_head(
        status, {"Content-Type": "application/json", "Content-Length": str(len(raw)), **(headers or {})}
    )
    return Reply([head + raw[: len(raw) // 2]], cut) if cut else Reply([head + raw])


def reply_bytes(*writes: bytes, end: Literal["keep", "fin", "rst", "hang"] = "fin") -> Reply:
    """The raw answer, status line included, one TCP write for each argument."""
    return Reply(writes, end)


def reply_html(html: str = "<html><h1>Bad gateway</h1></html>", status: int = 502) -> Reply:
    """A page, as gateways answer where an API was expected."""
    return _whole(html.encode(), "text/html", status)


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
    writes = [http_head(status, {**extra, **(headers or {})})]
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


def _whole(
    raw: bytes, kind: str, status: int, headers: Mapping[str, str] | None = None, cut: Cut | None = None
) -> Reply:
    own = {"Content-Type": kind, "Content-Length": str(len(raw))}
    head = http_head(status, {**own, **(headers or {})})
    return Reply([head + raw[: len(raw) // 2]], cut) if cut else Reply([head + raw])


def http_head(status: int, headers: Mapping[str, str]) -> bytes:
    """The status line and the headers, up to the body."""
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
