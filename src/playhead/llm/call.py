"""One model call over HTTP, for every dialect: send, read whole or as a stream, map what fails."""

import asyncio
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import perf_counter
from typing import Any, Protocol

from msgspec.structs import replace

from playhead import http
from playhead.encode import mask
from playhead.errors import (
    AuthError,
    BadRequestError,
    ContentFilterError,
    ContextTooLongError,
    LLMConnectionError,
    LLMError,
    LLMTimeoutError,
    ModelNotFoundError,
    OverloadedError,
    ProtocolError,
    QuotaError,
    RateLimitError,
)
from playhead.events import EmitDelta
from playhead.llm.sse import EventParser
from playhead.llm.structured import OutputWay, Shaped
from playhead.types import LLMRequest, LLMResult

_ERROR_BODY = 64 * 1024
# A stream wraps each token in some hundred bytes, so that it may be longer than a whole answer; this
# much is several hundred thousand tokens. A provider that streams for ever is cut off here.
MAX_STREAM = 2 * http.MAX_BODY
# Once the end was said, counts may follow, and then the connection should end.
_AFTER_THE_END = 5.0


class StreamReader(Protocol):
    """Reads the events of one stream."""

    def take(self, name: str, data: bytes) -> None:
        """Take one event. Raises `LLMError` for an error that the provider sent in the stream."""
        ...

    def result(self) -> LLMResult:
        """Return what arrived. Without a finish reason or an end marker it is `interrupted`."""
        ...

    @property
    def empty(self) -> bool: ...


class Dialect(Protocol):
    """A wire API, as pure functions."""

    provider: str

    def build_request(self, request: LLMRequest, stream: bool) -> http.HttpRequest: ...
    def can_stream(self, request: LLMRequest) -> bool: ...
    def parse_response(self, request: LLMRequest, body: bytes, emit: EmitDelta | None) -> LLMResult: ...
    def reader(self, request: LLMRequest, emit: EmitDelta) -> StreamReader: ...
    def map_error(self, status: int, body: bytes, retry_after: float | None) -> LLMError: ...
    def output_way(self, request: LLMRequest) -> OutputWay: ...


async def call(dialect: Dialect, request: LLMRequest, emit: EmitDelta | None) -> LLMResult:
    """Make one call. Raises an `LLMError` with the provider's name."""
    shaped = None
    take = emit
    if request.output_schema is not None:
        shaped = Shaped(request, emit, dialect.output_way, dialect)
        request, take = shaped.request, shaped.emit
    stream = emit is not None and dialect.can_stream(request)
    started = perf_counter()
    try:
        response = await http.post(dialect.build_request(request, stream))
        try:
            if response.status != 200:
                raise await _refused(dialect, response)
            if take is not None and stream and response.content_type != "application/json":
                wait = request.first_token_timeout
                result = await _read_stream(dialect.reader(request, take), response, wait)
            else:
                result = dialect.parse_response(request, await response.read(), take)
        finally:
            response.close()
    except LLMError as error:
        error.provider = error.provider or dialect.provider
        raise
    if shaped is not None:
        result = shaped.result(result)
    latency = round((perf_counter() - started) * 1000)
    return replace(result, provider=dialect.provider, latency_ms=latency)


async def _read_stream(
    reader: StreamReader, response: http.Response, first_token_timeout: float | None
) -> LLMResult:
    if response.content_type not in ("text/event-stream", ""):
        raise ProtocolError(
            f"The provider answered a stream request with {response.content_type!r}. Is the base URL right?"
        )
    parser = EventParser()
    try:
        async with asyncio.timeout(first_token_timeout) as guard:
            await response.each(_Feed(parser, reader, guard).take)
    except TimeoutError:
        if not getattr(reader, "ended", False):
            raise LLMTimeoutError(f"No content within {first_token_timeout:.3g} s.") from None
    except (LLMConnectionError, LLMTimeoutError):
        _take_tail(parser, reader)
        # What was said is kept, and said to be cut; with nothing said, the call failed.
        if reader.empty:
            raise
        return reader.result()
    _take_tail(parser, reader)
    result = reader.result()
    if result.stop_reason == "interrupted" and reader.empty:
        raise LLMConnectionError("The provider's stream ended before any content arrived.")
    return result


def _take_tail(parser: EventParser, reader: StreamReader) -> None:
    for name, data in parser.finish():
        try:
            reader.take(name, data)
        except ProtocolError:
            break  # the cut went through this event: the stream has no end marker either


class _Feed:
    """Takes the pieces of a stream: events for the reader, and how long to wait for more for the guard."""

    def __init__(self, parser: EventParser, reader: StreamReader, guard: asyncio.Timeout) -> None:
        self._parse = parser.feed
        self._reader = reader
        self._guard = guard
        self._waiting = guard.when() is not None
        self._size = 0

    def take(self, piece: bytes) -> None:
        reader, data = self._reader, b""
        try:
            events = self._parse(piece)
            for name, data in events:
                reader.take(name, data)
            self._size += len(piece)
            if self._size > MAX_STREAM:
                text = f"The provider streamed more than {MAX_STREAM} bytes in one answer."
                raise ProtocolError(text, passing=False)
        except ProtocolError as error:
            error.add_note(f"In the stream, soon after byte {self._size}: {data[:200]!r}")
            raise
        if getattr(reader, "ended", False):
            if events:  # keep-alives do not count
                self._guard.reschedule(asyncio.get_running_loop().time() + _AFTER_THE_END)
        elif self._waiting and not reader.empty:
            self._waiting = False
            self._guard.reschedule(None)


async def _refused(dialect: Dialect, response: http.Response) -> LLMError:
    if 300 <= response.status < 400:
        return BadRequestError(
            f"The provider redirected the request ({response.status}), which is not followed because it "
            "would carry the key along. Correct the base URL.",
            status=response.status,
        )
    try:
        body = await response.read(_ERROR_BODY)
    except LLMError:
        body = b""
    return dialect.map_error(response.status, body, retry_after(response.headers))


def retry_after(headers: Any) -> float | None:
    """Return the seconds to wait; `retry-after-ms` wins over `Retry-After` (seconds or a date)."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers.get(name, "")) * scale)
        except ValueError:
            continue
    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


_BY_STATUS: dict[int, tuple[type[LLMError], str]] = {
    400: (BadRequestError, "rejected the request"),
    401: (AuthError, "refused the API key. Check LLM_API_KEY"),
    402: (QuotaError, "says that the account has no credit left"),
    403: (AuthError, "refused access with this API key. Check the key and its permissions"),
    404: (ModelNotFoundError, "knows no such model or address. Check LLM_MODEL and LLM_BASE_URL"),
    408: (LLMTimeoutError, "took too long to answer"),
    413: (ContextTooLongError, "says that the request is too large. Start a new thread or shorten it"),
    422: (BadRequestError, "rejected the request"),
    429: (RateLimitError, "says that there were too many requests. Wait and try again"),
}
_BY_KIND: dict[str, tuple[type[LLMError], str]] = {
    "context": (ContextTooLongError, "says that the history is too long for the model. Start a new thread"),
    "filter": (ContentFilterError, "refused the content. Rephrase the request"),
    "quota": (QuotaError, "says that the quota is used up. Waiting will not help; check the account"),
    "overloaded": (OverloadedError, "is overloaded or failing. Try again later"),
}


def error_for(
    provider: str, status: int, kind: str = "", retry_after: float | None = None, said: str = ""
) -> LLMError:
    """Return the error of an HTTP status and of what the provider's own code means (`kind`).

    `said` is the provider's text: it goes into a note for developers, capped, never into the text.
    """
    if kind in _BY_KIND:
        cls, what = _BY_KIND[kind]
    elif status in _BY_STATUS:
        cls, what = _BY_STATUS[status]
    elif status >= 500:
        cls, what = _BY_KIND["overloaded"]
    else:
        cls, what = BadRequestError, "rejected the request"
    error = cls(f"{provider} {what} ({status}).", provider=provider, status=status, retry_after=retry_after)
    if said:
        error.add_note(f"{provider} said: {mask(said, 200)}")
    return error
