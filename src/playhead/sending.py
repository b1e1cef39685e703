"""aiohttp's connections and requests, without what takes them long.

Imported with aiohttp, at the first request. Where a later aiohttp calls none of this, or makes its
responses of something else, it does it its way.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from inspect import signature
from typing import Any

from aiohttp import ClientRequest, ClientResponse, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_writer import StreamWriter

from playhead.stretch import FirstStretch

_TOLD = {"method", "url", "writer", "continue100", "timer", "request_info", "traces", "loop", "session"}
_tells = signature(ClientResponse).parameters.keys()
_tells_writer = "stream_writer" in _tells
_known = _TOLD | {"stream_writer"} >= _tells >= _TOLD
# A transport takes as much before it asks to wait.
_AT_ONCE = 32 * 1024


class Protocol(ResponseHandler):
    """Calls a listener, if there is one, once what came was put where it is read from."""

    listener: Callable[[], None] | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.listener is not None:
            self.listener()


class Connector(TCPConnector):
    """Connections without a limit, which know whether requests come alone.

    Requests of many runs that are written one right after another cost least, and so do their answers,
    which then come together. A lone one is written at once. What it will be is guessed from what it
    was when last there was any.
    """

    def __init__(self) -> None:
        super().__init__(limit=0)
        made: Any = partial(Protocol, loop=self._loop)
        self._factory = made
        self.in_flight = 0
        self._met = self._meet = False

    @property
    def crowded(self) -> bool:
        """Are there, or will there be, others beside a request?"""
        return self._met or self._meet

    def begin(self) -> None:
        self.in_flight += 1
        if self.in_flight > 1:
            self._met = True

    def end(self) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self._meet, self._met = self._met, False


class Request(ClientRequest):
    """A POST whose body is bytes is written without the task that aiohttp has write it."""

    _plain: bytes | None = None

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        for name, value in self.DEFAULT_HEADERS.items():
            if name not in self.headers:
                self.headers[name] = value

    def update_body_from_data(self, body: Any, *args: Any, **kwargs: Any) -> None:
        if _known and type(body) is bytes:
            self._plain = body
            self.headers["Content-Length"] = str(len(body))
        else:
            super().update_body_from_data(body, *args, **kwargs)

    async def send(self, conn: Any) -> ClientResponse:
        protocol, body = conn.protocol, self._plain
        if body is None or protocol.writing_paused:
            if body is not None:
                super().update_body_from_data(body)
            return await super().send(conn)
        writer = StreamWriter(protocol, self.loop)
        await writer.write_headers(f"POST {self.url.raw_path_qs} HTTP/1.1", self.headers)
        together = len(body) < _AT_ONCE and getattr(self._session.connector, "crowded", False)
        response = self.response_class(
            self.method,
            self.original_url,
            writer=None if together else _write(writer, body),
            continue100=None,
            timer=self._timer,
            request_info=self.request_info,
            traces=self._traces,
            loop=self.loop,
            session=self._session,
            **({"stream_writer": writer} if _tells_writer else {}),
        )
        if together:
            self.loop.call_soon(_write_later, response, writer, body)
        return response


def _write_later(response: ClientResponse, writer: StreamWriter, body: bytes) -> None:
    # Not once it was given up: the connection may be somebody else's then.
    if response.connection is not None:
        with suppress(OSError):  # the connection broke: whoever reads from it finds out
            _write(writer, body)


def _write(writer: StreamWriter, body: bytes) -> asyncio.Task[None] | None:
    """Write a request. What is returned goes on with one that the peer does not take at once."""
    writing = FirstStretch(writer.write_eof(body))
    if not writing.done:
        return asyncio.create_task(_written(writing, writer.protocol))
    _wait_for_first_byte(writer.protocol)
    return None


async def _written(writing: FirstStretch, protocol: Any) -> None:
    with suppress(OSError):  # here, too
        await writing
        _wait_for_first_byte(protocol)


def _wait_for_first_byte(protocol: Any) -> None:
    protocol.start_timeout()
    protocol.read_timeout = None  # for the first byte alone: the body is watched by our own timer
