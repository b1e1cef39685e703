"""A model provider on a real loopback socket that speaks raw bytes: no HTTP library in between.

    async with FakeProvider(openai_text("Hello"), stream([b"data: \\xc3", b"\\xa9\\n\\n"])) as provider:
        ... base_url=f"{provider.url}/v1" ...
        assert provider.requests[0].json["model"] == "some-model"

Replies are used up in order; one may also be a function of the request that returns a reply.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from playhead.testing.replies import Reply, reply_json


@dataclass(frozen=True)
class Request:
    """One request as it arrived. `path` has no query; header names are lower-case.

    `closed` is set once the connection that carried the request is gone, by either side.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    closed: asyncio.Event = field(repr=False, compare=False)

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


Script = Reply | Callable[[Request], Reply]


class FakeProvider:
    """A scripted HTTP/1.1 server. `default` answers once the script is used up.

    Without a `default`, a request beyond the script is answered 500 and fails the test at exit.
    `url` is where it listens, with `base_path` behind it.
    """

    def __init__(self, *script: Script, default: Script | None = None, base_path: str = "") -> None:
        self.requests: list[Request] = []
        self.url = ""
        self._script = list(script)
        self._default = default
        self._base_path = base_path
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._failures: list[BaseException] = []
        self._arrived = asyncio.Condition()

    def add(self, *script: Script) -> None:
        """Append replies to the script."""
        self._script += script

    @property
    def unused(self) -> int:
        """How many scripted replies nobody asked for."""
        return len(self._script)

    async def wait_for_requests(self, count: int, timeout: float = 10) -> None:
        """Return once `count` requests have arrived in all."""
        async with asyncio.timeout(timeout), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def __aenter__(self) -> "FakeProvider":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(partial(_protocol, self._accept), "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}{self._base_path}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A client may be connecting right now: let what was accepted become a connection, or it leaks.
        asyncio.get_running_loop().remove_reader(self._server.sockets[0].fileno())
        await _turns()
        self._server.close()
        for task in self._connections.values():
            task.cancel()
        await asyncio.gather(*self._connections.values(), return_exceptions=True)
        for writer in self._connections:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await self._server.wait_closed()
        if self._failures and error is None:
            raise self._failures[0]

    def _accept(self, reader: "_Reader", writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = asyncio.get_running_loop().create_task(self._serve(reader, writer))

    async def _serve(self, reader: "_Reader", writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while (request := await _read_request(reader)) is not None:
                async with self._arrived:
                    self.requests.append(request)
                    self._arrived.notify_all()
                await _answer(self._reply(request), reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # The client went away, as clients do.
        except Exception as error:
            self._failures.append(error)
        finally:
            writer.close()

    def _reply(self, request: Request) -> Reply:
        script = self._script.pop(0) if self._script else self._default
        if script is None:
            text = f"no reply is scripted for request {len(self.requests)}: {request.method} {request.path}"
            self._failures.append(AssertionError(text))
            return reply_json({"error": {"message": text}}, status=500)
        return script if isinstance(script, Reply) else script(request)


class _Reader(asyncio.StreamReader):
    """A reader that tells when its peer is gone, also while nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        self.gone.set()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.gone.set()
        super().set_exception(exc)


def _protocol(accept: Callable[[Any, asyncio.StreamWriter], None]) -> asyncio.StreamReaderProtocol:
    return asyncio.StreamReaderProtocol(_Reader(), accept)


async def _read_request(reader: _Reader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    start, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = start.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, value = line.split(":", 1)
        name = name.strip().lower()
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    body = await _read_body(reader, headers)
    parts = urlsplit(target)
    return Request(method, parts.path, dict(parse_qsl(parts.query)), headers, body, reader.gone)


async def _read_body(reader: _Reader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers
    return body


async def _answer(reply: Reply, reader: _Reader, writer: asyncio.StreamWriter) -> None:
    for number, piece in enumerate(reply.writes):
        if reply.pause is not None and number > reply.pause_after:
            await (asyncio.sleep(reply.pause) if isinstance(reply.pause, float) else reply.pause(number))
        writer.write(piece)
        await writer.drain()
        # A client in this event loop reads the piece by itself before the next one is sent.
        await _turns()
    if reply.end == "hang":
        await reader.gone.wait()
    if reply.end == "rst":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    if reply.end != "keep":
        raise ConnectionResetError


async def _turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
