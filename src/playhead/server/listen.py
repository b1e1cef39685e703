"""`serve`: the app on a loopback address, until a signal ends it."""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

from playhead.errors import ConfigError
from playhead.server.parts import Parts

# Together well under five seconds: what runs may take to end, then what open connections may.
_STOP_SECONDS = 2.5
_GRACE_SECONDS = 1


async def serve(
    app: Starlette,
    host: str = "127.0.0.1",
    port: int = 8765,
    *,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve an app of `create_app` until SIGINT or SIGTERM.

    A signal stops the runs, ends every open stream with its last event, and returns within five
    seconds, whatever hangs; the signal is then raised again, as uvicorn does. Cancelling the await
    ends the server in the same way.

    Args:
        host: a loopback address or name.
        port: 0 for any that is free.
        on_ready: called with the address once connections are taken.

    Raises:
        ConfigError: the address is not a loopback one, or is taken.
    """
    with listen(host, port) as listener:
        server = Server(app, lambda: on_ready and on_ready(address_of(listener)))
        try:
            await server.serve([listener])
        except asyncio.CancelledError:
            if server.started:
                await server.shutdown([listener])
            raise


class Server(uvicorn.Server):
    """uvicorn, with the app's work ended before open connections are waited for.

    On its own it tells the app of the end only after every stream has ended by itself.
    """

    def __init__(self, app: Starlette, on_ready: Callable[[], object]) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        super().__init__(config)
        self._parts: Parts = app.state.playhead
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._parts.stop()
        except TimeoutError:
            pass
        await super().shutdown(sockets)


def address_of(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _check_loopback(host: str) -> None:
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"Playhead serves loopback addresses only, and host is {host!r}: whoever reaches it may use it,"
            " and access tokens come with a later version. Use 127.0.0.1, or mount `create_app()` in an app"
            " that checks who asks."
        )


def listen(host: str, port: int) -> socket.socket:
    """Bind a loopback address. Raises `ConfigError` for another one, or one that is taken."""
    _check_loopback(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, as asyncio turns Nagle's delay off (40 ms an answer) only where it is.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"Cannot listen on {host} port {port}: {reason}. Choose another port.") from None
    return listener
