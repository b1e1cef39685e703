"""The cable between a process and its Postgres, which can be cut, and can swallow what is sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote, urlsplit

from tests.support.postgres import socket_of


class Cable:
    """A TCP proxy before the socket of a server.

    Attributes:
        url: of the database, at this end of the cable.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._socket = socket_of(url)
        self._passing = asyncio.Event()
        self._passing.set()
        self._is_cut = False
        self._near: set[asyncio.StreamWriter] = set()
        self._far: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Both ends are told at once that the connection is gone, and no new one can be made."""
        self._is_cut = True
        self.drop()

    def drop(self) -> None:
        """Break what there is."""
        for writer in (*self._near, *self._far):
            writer.transport.abort()

    def swallow(self) -> None:
        """Nothing comes through any more, in either direction, and nobody is told."""
        self._passing.clear()

    def end_far(self) -> None:
        """The server finds out, as its keepalive tells it, and lets go of the session and its locks."""
        for writer in self._far:
            writer.transport.abort()

    def mend(self) -> None:
        """What was swallowed comes through, and new connections can be made."""
        self._is_cut = False
        self._passing.set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        self._near.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            with suppress(OSError):
                await self._passing.wait()
                back, far = await asyncio.open_unix_connection(self._socket)
                self._far.add(far)
                await asyncio.gather(self._pass(reader, far), self._pass(back, writer))
        finally:
            self._near.discard(writer)
            writer.transport.abort()
            if far is not None:
                self._far.discard(far)
                far.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await reader.read(65_536)
            await self._passing.wait()
            if not data:
                break
            writer.write(data)
            await writer.drain()
        # Who reads at the other end is told; what is on its way the other way is not lost.
        raise ConnectionResetError


@asynccontextmanager
async def cable_to(url: str) -> AsyncIterator[Cable]:
    """A cable to a server of ours."""
    cable = Cable(url)
    listening = await asyncio.start_server(cable.take, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    database = urlsplit(url).path
    options = [part for part in urlsplit(url).query.split("&") if not part.startswith("host=")]
    cable.url = f"postgresql://postgres@127.0.0.1:{port}{quote(database)}?{'&'.join(options)}"
    try:
        yield cable
    finally:
        listening.close()
        cable.mend()
        cable.cut()
        # Their tasks end by themselves once both ends are gone.
        while cable._near:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
