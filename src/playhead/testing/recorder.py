"""From a live exchange with a provider to a fixture, and from the fixture back to a provider.

async with record("https://api.example.com/v1", "hello.json") as recorder:
    await connect("openai-compatible", model, key, recorder.url).generate(request)

async with replay("hello.json") as provider:
    await connect("openai-compatible", "any", "any", provider.url).generate(request)
"""

import errno
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from playhead.errors import LLMConnectionError, PlayheadError
from playhead.http import checked_base, where
from playhead.testing.fixture import (
    Exchange,
    RecordedRequest,
    RecordedResponse,
    Redactor,
    read_fixture,
    to_bytes,
    write_fixture,
)
from playhead.testing.provider import FakeProvider, Request
from playhead.testing.replies import Reply, http_head, stream

if TYPE_CHECKING:
    from aiohttp import ClientResponse, web

_OUR_OWN_HOP = frozenset(
    {
        "host",
        "connection",
        "keep-alive",
        "content-length",
        "content-encoding",
        "transfer-encoding",
        "accept-encoding",
        "upgrade",
        "proxy-authorization",
    }
)
_GRACE = 1.0


def record(base_url: str, path: str | Path) -> "Recorder":
    """Return a recorder between a client and the provider at `base_url`; use it as a context manager.

    Give its `url` to the client as base URL. At the end of the block all that went through is
    written to `path`, as a fixture that `replay` serves: bytes with the borders of their chunks,
    how each answer ended, and no secret. The values of headers that are not known to be harmless,
    keys in the query, and the same keys in any body are replaced by stars. What people and models
    said is kept as it is: look at it before you share it.

    Any client may be recorded, also another SDK. Raises `ConfigError` for a base URL that is none,
    at the end `LLMConnectionError` when the provider could not be reached, and `PlayheadError`
    when nothing was asked.
    """
    return Recorder(checked_base(base_url), Path(path))


def replay(path: str | Path) -> FakeProvider:
    """Return a provider that answers as recorded, in order; use it as a context manager.

    Its `url` is the base URL for the client, with the path that the recorded one had. Each request
    must have the method and the path of the one that was recorded in its place; bodies may differ.
    Raises `PlayheadError` for a file that is no fixture.
    """
    fixture = read_fixture(Path(path))
    script = [partial(_answer, exchange) for exchange in fixture.exchanges]
    return FakeProvider(*script, base_path=fixture.base_path)


@dataclass(eq=False)
class _Recording:
    """One exchange while it goes on."""

    request: RecordedRequest
    redactor: Redactor
    pieces: list[bytes] = field(default_factory=list)
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: Literal["chunked", "length", "close"] = "chunked"
    length: int | None = None
    end: Literal["keep", "fin", "rst", "hang"] = "hang"

    def exchange(self) -> Exchange:
        headers = self.redactor.headers(self.headers)
        chunks = self.redactor.chunks(self.pieces)
        return Exchange(
            self.request,
            RecordedResponse(self.status, headers, chunks, self.framing, self.length, self.end),
        )


class Recorder:
    """A loopback proxy in front of one provider. Made by `record`.

    Attributes:
        url: the base URL for the client, once the block is entered.
    """

    def __init__(self, base_url: str, path: Path) -> None:
        parts = urlsplit(base_url)
        self.url = ""
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._base_path = parts.path
        self._path = path
        self._recordings: list[_Recording] = []
        self._failure: Exception | None = None

    async def __aenter__(self) -> "Recorder":
        import aiohttp
        from aiohttp import web

        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
        )
        server = web.Server(self._handle, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=_GRACE)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}{self._base_path}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._client.close()
        exchanges = [recording.exchange() for recording in self._recordings]
        if exchanges:
            write_fixture(self._path, self._base_path, exchanges)
        if error is not None:
            return
        if self._failure is not None:
            raise self._failure
        if not exchanges:
            raise PlayheadError(f"Nothing was recorded: no request came to {where(self.url)}.")

    async def _handle(self, request: "web.BaseRequest") -> "web.StreamResponse":
        import aiohttp
        from aiohttp import web
        from yarl import URL

        body = await request.content.read()
        query = dict(request.query)
        redactor = Redactor(request.headers, query)
        asked = redactor.request(request.method, request.path, query, request.headers, body)
        recording = _Recording(asked, redactor)
        self._recordings.append(recording)
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _OUR_OWN_HOP]
        try:
            answer = await self._client.request(
                request.method,
                URL(f"{self._origin}{request.raw_path}", encoded=True),
                data=io.BytesIO(body) if body else None,
                headers=[*headers, ("Accept-Encoding", "identity")],
                allow_redirects=False,
            )
        except aiohttp.ClientConnectorError:
            self._recordings.remove(recording)
            self._failure = LLMConnectionError(f"The recorder could not connect to {where(self._origin)}.")
            return web.json_response({"error": {"message": str(self._failure)}}, status=502)
        except (aiohttp.ClientError, OSError) as error:
            recording.end = _ending(error)
            return _dropped(request, recording.end)
        async with answer:
            return await _relay(answer, request, recording)


async def _relay(
    answer: "ClientResponse", request: "web.BaseRequest", recording: _Recording
) -> "web.StreamResponse":
    """Pass the answer on, piece by piece as it comes, and keep it. A cut is passed on, too."""
    from aiohttp import web

    chunked = "chunked" in answer.headers.get("Transfer-Encoding", "").lower()
    length = None if "Content-Encoding" in answer.headers else answer.content_length
    recording.status, recording.headers = answer.status, answer.headers
    recording.framing = "chunked" if chunked else "close" if length is None else "length"
    recording.length = length
    passed = web.StreamResponse(
        status=answer.status,
        headers=[(k, v) for k, v in answer.headers.items() if k.lower() not in _OUR_OWN_HOP],
    )
    passed.content_length = length
    await passed.prepare(request)
    whole = True
    pieces = answer.content.iter_chunks()
    while True:
        try:
            data, ended = await anext(pieces)
        except StopAsyncIteration:
            break
        except (OSError, _client_error()) as error:
            recording.end = _ending(error)
            return _dropped(request, recording.end, passed)
        _keep(recording.pieces, data, whole)
        whole = ended or not chunked
        try:
            await passed.write(data)
        except ConnectionError:  # the client left, as it does when a run is stopped
            return passed
    recording.end = "fin" if recording.framing == "close" else "keep"
    return passed


def _keep(pieces: list[bytes], data: bytes, new: bool) -> None:
    """One chunk of the sender may come in several reads."""
    if new:
        pieces.append(data)
    else:
        pieces[-1] += data


def _client_error() -> type[Exception]:
    from aiohttp import ClientError

    return ClientError


def _ending(error: Exception) -> Literal["fin", "rst"]:
    numbers = [getattr(e, "errno", None) for e in (error, error.__cause__, error.__context__)]
    return "rst" if errno.ECONNRESET in numbers else "fin"


def _dropped(
    request: "web.BaseRequest", end: str, passed: "web.StreamResponse | None" = None
) -> "web.StreamResponse":
    """Drop the client's connection as the provider dropped ours."""
    from aiohttp import web

    transport = request.transport
    if transport is not None:
        if end == "rst":
            transport.abort()
        else:
            transport.close()
    return passed or web.StreamResponse()


def _answer(exchange: Exchange, request: Request) -> Reply:
    asked, came = exchange.request, exchange.response
    if (request.method, request.path) != (asked.method, asked.path):
        raise AssertionError(
            f"Recorded was {asked.method} {asked.path}, and asked is {request.method} {request.path}."
        )
    chunks = [to_bytes(chunk) for chunk in came.chunks]
    if not came.status:
        return Reply((), came.end)
    kind = came.headers.get("content-type", "")
    rest = {name: value for name, value in came.headers.items() if name != "content-type"}
    if came.framing != "length":
        cut = None if came.end == "keep" or came.framing == "close" else came.end
        return stream(
            chunks, content_type=kind, status=came.status, headers=rest, cut=cut, framing=came.framing
        )
    head = http_head(came.status, {"Content-Type": kind, "Content-Length": str(came.length), **rest})
    return Reply([head, *chunks], came.end)
