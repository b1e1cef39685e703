"""Request bodies: bounded, read leniently where that is harmless, judged strictly otherwise."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from playhead.encode import scrub
from playhead.server.errors import ApiError

T = TypeVar("T")

# A client that is still sending reads the answer only once its bytes were taken; beyond these
# bounds the connection is closed under it.
_DRAIN_BYTES = 32 * 1024 * 1024
_DRAIN_SECONDS = 2.0

# Of a wrong value, no more than this is said again.
_SHOWN = 200

_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_FAULT = re.compile(r"(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<path>.*)`)?", re.S)
_MISSING = re.compile(r"missing required field `(.+)`")


async def read_json(
    request: Request, type: type[T], limit: int, prepare: Callable[[Any], None] | None = None
) -> T:
    """Return the body as `type`; `prepare` may tidy the plain JSON in place before it is judged.

    Raises `ApiError` 400 naming the path of the fault, 413 above `limit` bytes.
    """
    raw = b"".join([piece async for piece in bounded(request, limit)])
    value = _parse(raw)
    if prepare is not None:
        prepare(value)
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise _fault(str(error)) from None
    except RecursionError:
        raise _too_deep() from None


async def bounded(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the body as it arrives. Raises `ApiError` 413 above `limit` bytes."""
    length = request.headers.get("content-length", "")
    async with aclosing(request.stream()) as pieces:
        size = int(length) if length.isdigit() else 0
        if size > limit:
            # A client that waits for a go-ahead has not sent anything yet.
            if "100-continue" not in request.headers.get("expect", "").lower():
                await drain(pieces)
            raise _too_large(limit)
        size = 0
        async for piece in pieces:
            size += len(piece)
            if size > limit:
                await drain(pieces)
                raise _too_large(limit)
            if piece:
                yield piece


async def drain(pieces: AsyncIterator[bytes]) -> None:
    """Take what a client still sends, within bounds, so that it comes to read why it was refused."""
    size = 0
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for piece in pieces:
                size += len(piece)
                if size > _DRAIN_BYTES:
                    return
    except TimeoutError:
        return


def _parse(raw: bytes) -> Any:
    try:
        return _decode(raw)
    except msgspec.ValidationError:
        raise ApiError(400, "invalid", "The body holds a number that is out of range.", path="$") from None
    except ValueError as error:
        text = "The body is empty" if not raw.strip() else f"The body is not JSON: {error}"
        raise ApiError(400, "invalid", f"{text.rstrip('.')}.", path="$") from None
    except RecursionError:
        raise _too_deep() from None


def _decode(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        if not _HALF_PAIR.search(raw):
            raise
    # Half a surrogate pair: a browser sends one when an emoji was cut. JSON can carry it, text cannot.
    return _scrubbed(json.loads(raw, parse_constant=_refuse))


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    if isinstance(value, dict):
        return {scrub(key): _scrubbed(item) for key, item in value.items()}
    return value


def _fault(text: str) -> ApiError:
    found = _FAULT.fullmatch(text)
    what, path = (found["what"], found["path"] or "") if found else (text, "")
    if missing := _MISSING.search(what):
        path, what = f"{path}.{missing[1]}", "Missing"
    path = path.removeprefix(".") or "$"
    what = what if len(what) <= _SHOWN else f"{what[:_SHOWN]}…"
    return ApiError(400, "invalid", f"{'The body' if path == '$' else path}: {what}.", path=path)


def _too_deep() -> ApiError:
    return ApiError(400, "invalid", "The body is nested too deeply.", path="$")


def _too_large(limit: int) -> ApiError:
    return ApiError(413, "too_large", f"The body is too large: at most {limit:,} bytes are taken here.")


def tidy_messages(body: Any) -> None:
    """Read chat messages as generously as `Settled` allows: see requirement C.

    Null ids, timestamps and calls count as absent, null content as empty, and milliseconds may have
    a fraction. What is wrong otherwise stays wrong.
    """
    messages = body.get("messages") if isinstance(body, dict) else None
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            continue
        for name in ("id", "timestamp", "toolCalls"):
            if name in message and message[name] in (None, ""):
                del message[name]
        if "content" in message and message["content"] is None:
            message["content"] = ""
        if isinstance(message.get("timestamp"), float):
            message["timestamp"] = int(message["timestamp"])
