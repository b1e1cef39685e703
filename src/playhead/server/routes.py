"""The route table: what is served, and what `/openapi.json` says of it. One cannot differ from the other.

Every endpoint asks who is there before its handler is called, unless it is `open` to all: what is
decided by the route cannot be got round by another way to write its path.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from playhead.server.limits import address_of_client
from playhead.server.parts import Parts, parts_of
from playhead.server.streams import wants_events

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """One method of one path. The first paragraph of the handler's docstring is its summary.

    Args:
        body: the type of the JSON body.
        reply: the type of the JSON answer.
        status: of the answer.
        events: an event stream of that type is sent to a client that accepts one (with `reply`), or
            to every client (without).
        upload: media types of a body that is a file.
        download: media types of an answer that is a file.
        query: query parameters and what they are for.
        errors: statuses that this endpoint answers with an error body, beside those that all do.
        open: everybody may ask, whoever they are, and as often as they like.
    """

    method: str
    path: str
    handler: Handler
    body: Any = None
    reply: Any = None
    status: int = 200
    events: Any = None
    upload: Sequence[str] = ()
    download: Sequence[str] = ()
    query: Sequence[tuple[str, str]] = ()
    errors: Sequence[int] = ()
    open: bool = False


def starlette_routes(endpoints: Sequence[Endpoint]) -> list[Route]:
    """One route for each path, so that a wrong method is told all the right ones."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _Entry(methods), methods=list(methods)) for path, methods in by_path.items()]


class _Entry:
    """An ASGI app: it asks who is there, counts, and hands the handler what they may see."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        endpoint = self._endpoints["GET" if request.method == "HEAD" else request.method]
        parts, key = parts_of(request), ""
        if not endpoint.open:
            scope["playhead"], key = await _admitted(request, parts)
        streams = endpoint.events is not None and (endpoint.reply is None or wants_events(request))
        # For as long as the answer lasts, which is not known before it is sent.
        with parts.streams.taken(key) if streams else nullcontext():
            response = await endpoint.handler(request)
            await response(scope, receive, send)


async def _admitted(request: Request, parts: Parts) -> tuple[Parts, str]:
    """Return the parts of who asks, and what they are counted by. Raises `ApiError` 401, 403 or 429."""
    identity = await parts.identity(request)
    key = address_of_client(request.scope) if identity.scope is None else f"of {identity.scope}"
    parts.requests.take(key)
    return parts.of(identity), key
