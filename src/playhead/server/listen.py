"""`serve`: the app on an address, until a signal ends it. Others than loopback take an access token."""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

from playhead.errors import ConfigError
from playhead.server.access import HOW_TO_MAKE
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
        host: an address, or a name of this machine; other than loopback only where who asks must be known.
        port: 0 for any that is free.
        on_ready: called with the address once connections are taken.

    Raises:
        ConfigError: the address is one that others reach, and anybody may ask; or it is taken.
    """
    check_address(app, host)
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
    """The URL of a listening socket, as it is reached from this machine."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(app: Starlette, host: str) -> None:
    """Raise `ConfigError` if others reach an address, and the app does not ask who they are."""
    parts: Parts = app.state.playhead
    if is_loopback(host) or (host and parts.access.required):
        return
    raise ConfigError(
        f"The host is {host!r}, which is no loopback address: whoever reaches it could use this server."
        f" Set an access token, PLAYHEAD_TOKEN (make one with: {HOW_TO_MAKE}), or serve on 127.0.0.1."
    )


def listen(host: str, port: int) -> socket.socket:
    """Bind an address. Raises `ConfigError` for one that is taken, or is not of this machine."""
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
