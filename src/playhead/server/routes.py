"""The route table: what is served, and what `/openapi.json` says of it. One cannot differ from the other."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
        errors: statuses that this endpoint answers with an error body, beside 403, 421 and 500.
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


def starlette_routes(endpoints: Sequence[Endpoint]) -> list[Route]:
    """One route for each path, so that a wrong method is told all the right ones."""
    by_path: dict[str, dict[str, Handler]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint.handler
    return [Route(path, _by_method(handlers), methods=list(handlers)) for path, handlers in by_path.items()]


def _by_method(handlers: dict[str, Handler]) -> Handler:
    async def answer(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return answer
