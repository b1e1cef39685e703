"""What stands before every route: who may ask, and the last net under an error.

A server on a loopback address answers every page that the same machine's browser shows, unless it
looks at two headers. `Host`: a foreign name that was rebound to this address is refused (421).
`Origin`: a request that changes something must come from a page of ours (403). Who asks is looked at
behind it, where the route is known (`routes.py`).
"""

import asyncio
import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from playhead.server.errors import ApiError, api_error, json_error
from playhead.server.parts import Parts

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
# No script but our own files, no other host, no frame around us.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Guard:
    """The outermost middleware of the app."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self.app = app
        self.parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _harden(MutableHeaders(scope=message))
            await send(message)

        scope["playhead"] = self.parts
        try:
            check_host(scope, self.parts.options.hosts)
            check_origin(scope, self.parts.options.origins)
            await self.app(scope, receive, guarded)
        except asyncio.CancelledError:
            if not self.parts.stopping:
                raise  # else the server gave up waiting, and the open connection says enough
        except Exception as error:  # nothing above us may show or log it unmasked
            response = json_error(api_error(error))
            if not started:
                await response(scope, receive, guarded)


def check_host(scope: Scope, hosts: Sequence[str] | None) -> None:
    """Refuse a `Host` that is not ours: one of `hosts`, or, on a loopback address, a loopback name."""
    if hosts is None:
        if not _on_loopback(scope):
            return
        hosts = LOOPBACK_NAMES
    host = Headers(scope=scope).get("host", "")
    if _without_port(host) not in {name.lower() for name in hosts}:
        raise ApiError(
            421,
            "bad_host",
            f"The host {host[:200]!r} is not served here. If it should be, name it in"
            " ServerOptions(hosts=...).",
        )


def check_origin(scope: Scope, origins: Sequence[str]) -> None:
    """Refuse a change that a page of another origin asks for. A request without `Origin` is no page's."""
    if scope["method"] in _SAFE_METHODS:
        return
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    if origin is None or origin in origins:
        return
    scheme, _, place = origin.lower().partition("://")
    port = _DEFAULT_PORTS.get(scheme, "")
    # Behind a proxy that is not named, we do not know that a page came by https; never the other way round.
    downgraded = scope["scheme"] == "https" and scheme != "https"
    host = headers.get("host", "").lower().removesuffix(port)
    if downgraded or not place or place.removesuffix(port) != host:
        raise ApiError(
            403,
            "bad_origin",
            f"Pages of {origin[:200]!r} may not use this server. If they should, name that origin in"
            " ServerOptions(origins=...).",
        )


def _harden(headers: MutableHeaders) -> None:
    """Give every answer what keeps a browser from making more of it than it is."""
    headers.setdefault("X-Content-Type-Options", "nosniff")
    if headers.get("content-type", "").startswith("text/html"):
        headers.setdefault("Content-Security-Policy", PAGE_POLICY)
        headers.setdefault("Referrer-Policy", "no-referrer")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower().rstrip(".")


def _on_loopback(scope: Scope) -> bool:
    """True if the connection came in on a loopback address; a test client or a socket file has none."""
    server = scope.get("server")
    try:
        address = ipaddress.ip_address(server[0] if server else "")
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
