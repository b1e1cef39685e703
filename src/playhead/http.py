"""The one outgoing HTTP client: a session per running event loop, time-outs, and errors in our words.

aiohttp is imported at the first request. A session ends with its event loop, so nobody has to close
one. No text made here holds a header, a query string or a body.
"""

import asyncio
import io
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import copy_context
from functools import cache, lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from playhead.encode import mask
from playhead.errors import ConfigError, LLMConnectionError, LLMError, LLMTimeoutError, ProtocolError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession, ClientTimeout, StreamReader

    from playhead.sending import Connector

CONNECT_TIMEOUT = 15.0
# An answer of a model is text; more than this is a fault or an attack.
MAX_BODY = 64 * 1024 * 1024
# aiohttp warns when more bytes than this are handed over in one piece.
_ONE_PIECE = 1024 * 1024

_sessions: dict[asyncio.AbstractEventLoop, "_Held"] = {}


class _Held(NamedTuple):
    """The session of an event loop, its connections, and what keeps it open."""

    session: "ClientSession"
    connector: "Connector"
    holder: AsyncGenerator["ClientSession", None]


class HttpRequest(msgspec.Struct, frozen=True):
    """A POST with a JSON body. `timeout` bounds the first byte and each silence between bytes."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float | None = None
    total_timeout: float | None = None


class Response:
    """A response whose body is not read yet. Close it."""

    __slots__ = ("_connector", "_content", "_request", "_response", "_watch", "status")

    def __init__(self, response: "ClientResponse", request: HttpRequest, connector: "Connector") -> None:
        self._connector: Connector | None = connector
        self._response = response
        self._content = response.content
        self._request = request
        self._watch: _Watch | None = None
        self.status = response.status

    @property
    def content_type(self) -> str:
        """The media type, lower-case, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self, limit: int = MAX_BODY) -> bytes:
        """Return the whole body. Raises `ProtocolError` past `limit` bytes, or as `each` does."""
        told = self._response.content_length
        if told is not None and "Content-Encoding" not in self.headers:
            if told > limit:
                raise self._too_much(limit)
            if self._content.is_eof():
                return self._content.read_nowait()  # it came with the headers
        pieces: list[bytes] = []
        left = limit

        def take(piece: bytes) -> None:
            nonlocal left
            left -= len(piece)
            if left < 0:
                raise self._too_much(limit)
            pieces.append(piece)

        await self.each(take)
        return b"".join(pieces)

    def _too_much(self, limit: int) -> ProtocolError:
        return ProtocolError(
            f"{where(self._request.url)} sent more than {limit} bytes in one answer.", passing=False
        )

    async def each(self, take: Callable[[bytes], None]) -> None:
        """Hand the body over as it arrives. Raises `LLMTimeoutError` or `LLMConnectionError`."""
        content, request = self._content, self._request
        watch = None
        if not content.is_eof():
            self._watch = watch = _Watch(content, request.timeout)
            if request.total_timeout is None and content.exception() is None:
                await self._listen(watch, take)
        while not content.at_eof():
            try:
                piece = await content.readany()
            except (TimeoutError, OSError, ValueError, _client_error()) as error:
                raise _mapped(error, where(request.url)) from None
            if watch is not None:
                watch.heard, watch.seen = monotonic(), content.total_bytes
            if piece:
                take(piece)

    async def _listen(self, watch: "_Watch", take: Callable[[bytes], None]) -> None:
        connection = self._response.connection
        protocol = None if connection is None else connection.protocol
        if not hasattr(protocol, "listener"):
            return
        ear = _Ear(protocol, self._content, watch, take)
        ear()
        try:
            if ear.failure is None:
                await self._content.wait_eof()
        except (TimeoutError, OSError, ValueError, _client_error()) as error:
            if ear.failure is None:
                raise _mapped(error, where(self._request.url)) from None
        finally:
            ear.close()
        if ear.failure is not None:
            raise ear.failure

    def close(self) -> None:
        """Give the connection back, or drop it when the body was not read to its end."""
        if self._watch is not None:
            self._watch.end()
        if self._connector is not None:
            self._connector.end()
            self._connector = None
        if self._response.connection is None:
            return  # given back when the last byte came
        if self._content.at_eof():
            self._response.release()
        else:
            self._response.close()


class _Ear:
    """Takes each piece of a body in the call that brings it: to wake a task for it costs more than that."""

    __slots__ = ("_content", "_protocol", "_run", "_take", "_watch", "failure")

    def __init__(
        self, protocol: Any, content: "StreamReader", watch: "_Watch", take: Callable[[bytes], None]
    ) -> None:
        self._protocol = protocol
        self._content = content
        self._watch = watch
        self._take = take
        self._run = copy_context().run  # the call that brings a piece knows nothing of the run's
        self.failure: Exception | None = None

    def __call__(self) -> None:
        self._run(self._hear)

    def _hear(self) -> None:
        content, watch = self._content, self._watch
        self._protocol.listener = None  # to read may bring more, which has to wait for its turn
        try:
            while content.total_bytes > watch.seen:
                watch.heard, watch.seen = monotonic(), content.total_bytes
                self._take(content.read_nowait())
        except Exception as error:
            self.failure = error
            content.set_exception(error)
            return
        if not content.is_eof():  # else the connection may be somebody else's already
            self._protocol.listener = self

    def close(self) -> None:
        if self._protocol.listener is self:
            self._protocol.listener = None


class _Watch:
    """Bounds each silence of a body by one timer that looks when the last piece came.

    aiohttp sets a timer anew for each piece, which costs more than to read the piece.
    """

    __slots__ = ("_content", "_silence", "_timer", "heard", "seen")

    def __init__(self, content: "StreamReader", silence: float | None) -> None:
        self._content = content
        self._silence = silence
        self.heard = monotonic()
        self.seen = 0
        self._timer = None if silence is None else self._look_after(silence)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_after(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        assert self._silence is not None
        unread = self._content.total_bytes > self.seen
        rest = self._silence if unread else self.heard + self._silence - monotonic()
        if rest > 0:
            self._timer = self._look_after(rest)
        else:
            self._content.set_exception(TimeoutError())


async def post(request: HttpRequest) -> Response:
    """Send a request and return once the headers are there.

    Redirects are not followed: they would carry the key to another host.
    Raises `LLMTimeoutError`, `LLMConnectionError`, `ProtocolError`, or `ConfigError` for a bad URL.
    """
    body = request.body if len(request.body) < _ONE_PIECE else io.BytesIO(request.body)
    timeout = _timeout(request.timeout, request.total_timeout)
    held = _sessions.get(asyncio.get_running_loop())
    if held is None or held.session.closed:
        held = await _new_session()
    held.connector.begin()
    try:
        response = await held.session.post(
            request.url, data=body, headers=request.headers, timeout=timeout, allow_redirects=False
        )
    except BaseException as error:
        held.connector.end()
        if isinstance(error, TimeoutError | OSError | ValueError | _client_error()):
            raise _mapped(error, where(request.url)) from None
        raise
    return Response(response, request, held.connector)


@lru_cache(64)
def _timeout(silence: float | None, total: float | None) -> "ClientTimeout":
    from aiohttp import ClientTimeout

    connect = min(CONNECT_TIMEOUT, silence or CONNECT_TIMEOUT)
    return ClientTimeout(total=total, sock_connect=connect, sock_read=silence)


def checked_base(url: str) -> str:
    """Return a base URL without its trailing slash.

    Raises `ConfigError` for what is not an http(s) URL with a host.
    """
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"The base URL {mask(url)!r} is not one; give http(s)://host[:port]/path.")
    return url


def where(url: str) -> str:
    """Return the host and port of a URL, which is all that an error text may say of it."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the configured address"
    return f"{parts.hostname}{port}" if parts.hostname else "the configured address"


@cache
def _client_error() -> type[Exception]:
    from aiohttp import ClientError

    return ClientError


def _mapped(error: Exception, what: str) -> Exception:
    import aiohttp

    if isinstance(error, aiohttp.InvalidURL):
        return ConfigError(f"The base URL is not a URL: give http(s)://host/path, not {what!r}.")
    if isinstance(error, asyncio.TimeoutError):
        return LLMTimeoutError(f"{what} sent nothing within the time allowed.")
    if isinstance(error, aiohttp.ClientConnectorError):
        return LLMConnectionError(f"Could not connect to {what}. Is the base URL right and the server up?")
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | OSError):
        return LLMConnectionError(f"{what} closed the connection before its answer was complete.")
    mapped: LLMError = ProtocolError(f"{what} did not answer in HTTP ({type(error).__name__}).")
    return mapped


async def _new_session() -> _Held:
    from playhead.sending import Connector

    loop = asyncio.get_running_loop()
    connector = Connector()
    holder = _hold_session(loop, connector)
    held = _sessions[loop] = _Held(await anext(holder), connector, holder)
    return held


async def _hold_session(
    loop: asyncio.AbstractEventLoop, connector: "Connector"
) -> AsyncGenerator["ClientSession", None]:
    # An event loop closes the asynchronous generators that are still open when it ends
    # (loop.shutdown_asyncgens), so the session lives exactly as long as its loop.
    import aiohttp

    from playhead.sending import Request

    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent",),
        request_class=Request,
    )
    try:
        yield session
    finally:
        _sessions.pop(loop, None)
        await session.close()
