"""`playhead serve`: the page and the HTTP API until Ctrl-C."""

import asyncio
import sys
from contextlib import suppress

from starlette.applications import Starlette

from playhead.cli.bridge import Bridge
from playhead.cli.exits import DONE
from playhead.cli.screen import put
from playhead.config import Settings, connect_with
from playhead.errors import ConfigError
from playhead.server import ServerOptions, create_app
from playhead.server.access import LINK_SECONDS, Access
from playhead.server.listen import Server, address_of, check_address, is_loopback, listen
from playhead.session.durable.options import Durable


def serve(settings: Settings, host: str, port: int, durable: Durable, options: ServerOptions) -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit code."""
    serving = Serving(create_app(settings=settings, durable=durable, options=options), host, port)
    try:
        connect_with(settings)
    except ConfigError as error:
        put(sys.stderr, f"Chats will not work yet. {error}\n")
    with Bridge() as bridge, suppress(KeyboardInterrupt):
        try:
            bridge.run(serving.check())
            url = bridge.run(serving.start())
            put(sys.stderr, "Ctrl-C ends it.\n")
            put(sys.stdout, f"Serving {url}\n{serving.sign_in()}")
            bridge.run(serving.wait())
        finally:
            bridge.run(serving.stop())
    return DONE


def work(settings: Settings, durable: Durable) -> int:
    """Carry out runs that others accept, until SIGINT or SIGTERM. Returns the exit code."""
    connect_with(settings)
    parts = create_app(settings=settings, durable=durable).state.playhead
    with Bridge() as bridge, suppress(KeyboardInterrupt):
        try:
            bridge.run(parts.sessions.check())
            put(sys.stderr, "Working; Ctrl-C ends it.\n")
            bridge.run(asyncio.Event().wait())
        finally:
            bridge.run(parts.stop())
    return DONE


def link(settings: Settings, url: str) -> int:
    """Print a new sign-in link of a server that has the same access token. Returns the exit code."""
    put(sys.stdout, sign_in_link(Access(settings.token), url) + "\n")
    put(sys.stderr, f"It works once, within {LINK_SECONDS / 60:.0f} minutes.\n")
    return DONE


def sign_in_link(access: Access, url: str) -> str:
    """Return a new sign-in link. Raises `ConfigError` without a token."""
    return f"{url.rstrip('/')}/sign-in?code={access.link_code()}"


class Serving:
    """An app that is served while something else goes on.

    The address is taken at once: raises `ConfigError` if others reach it though nobody is asked who they
    are, or if it is taken.
    """

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        check_address(app, host)
        self._app = app
        self._host = host
        self._socket = listen(host, port)
        self.url = address_of(self._socket)
        self._ready = asyncio.Event()
        self._server = Server(app, self._ready.set)
        self._task: asyncio.Task[None] | None = None

    def sign_in(self) -> str:
        """The lines that say how to sign in; none where nobody has to."""
        access: Access = self._app.state.playhead.access
        if access.token is None:
            return ""
        lines = f"Sign in {sign_in_link(access, self.url)}\n"
        if not is_loopback(self._host):
            lines += (
                "From another machine, put the name or address of this one in its place; over a network,\n"
            )
            lines += "let a proxy with TLS stand before it.\n"
        return lines

    async def check(self) -> None:
        """Raise `StoreError` or `ConfigError` if the database cannot be used."""
        await self._app.state.playhead.sessions.check()

    async def start(self) -> str:
        """Return the address once connections are taken."""
        self._task = asyncio.create_task(self._server.serve([self._socket]))
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self._task
        return self.url

    async def wait(self) -> None:
        """Return when the server has ended by itself."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """End it: open streams get their last event. It takes less than five seconds."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        else:
            await self._app.state.playhead.stop()
        self._socket.close()
