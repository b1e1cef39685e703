"""`create_app`: the parts joined, the route table, the page."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from playhead import __version__
from playhead.config import Settings, create_library, create_registry, create_speech, load_settings
from playhead.errors import ConfigError, PlayheadError
from playhead.events import Event, LLMDelta
from playhead.llm.base import AgentLLM
from playhead.loop import AgentLoop
from playhead.media.captions import CONTENT_TYPES
from playhead.media.library import MediaLibrary
from playhead.media.service import SpeechService
from playhead.media.types import Transcript
from playhead.prompt import build_system_prompt
from playhead.server import branches, chat, media, runs
from playhead.server.errors import ApiError, handle
from playhead.server.guard import Guard
from playhead.server.openapi import openapi
from playhead.server.parts import ConfiguredModel, Parts, ServerOptions, parts_of
from playhead.server.routes import Endpoint, starlette_routes
from playhead.server.wire import (
    ChatBody,
    ChatReply,
    EditBody,
    ForkBody,
    Forked,
    Health,
    MediaItem,
    MediaList,
    RetryBody,
    RunBody,
    RunStarted,
    ThreadUsage,
    ThreadView,
    ToolAnswer,
    dump,
)
from playhead.session.durable.options import Durable
from playhead.session.sessions import Sessions
from playhead.tools.registry import ToolRegistry

CAPTION_TYPES = [kind.partition(";")[0] for kind in CONTENT_TYPES.values()]
STATIC = Path(__file__).parent / "static"
# In a wheel it lies here, in a clone at the root.
_HERE, _CLONE = Path(__file__).parent / "web", Path(__file__).parents[3] / "web"
PANEL = _HERE if _HERE.is_dir() else _CLONE
_FRESH = {"Cache-Control": "no-cache"}

# No script but our own files, no other host, no frame around us.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _PAGE_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# What a stopped run may take to end: the whole server must be gone within five seconds.
_STOP_SECONDS = 1.5


def create_app(
    *,
    llm: AgentLLM | None = None,
    registry: ToolRegistry | None = None,
    library: MediaLibrary | None = None,
    speech: SpeechService | None = None,
    sessions: Sessions | None = None,
    settings: Settings | None = None,
    options: ServerOptions | None = None,
    durable: bool | Durable = False,
) -> Starlette:
    """Return the ASGI app: serve it with `serve`, or mount it in another app under any prefix.

    Args:
        llm: the model. None: the one that the settings name, looked up when it is first needed, so
            that the app starts without any; until then calls answer 502 and name what is missing.
        registry: the tools. None: `transcribe_video` over the library, and `echo_context` beside it
            for the mock model.
        library: the media files. None: the folder of the settings.
        speech: what transcribes. None: the engine of the settings. It is closed when the app stops.
        sessions: threads and runs. None: in the database of the settings, over the model and the tools
            above. It is closed when the app stops.
        settings: None: those of the environment.
        options: limits and doors.
        durable: as `Sessions` takes it, for the sessions that are made here.

    Nothing is opened or started here. Another app that mounts this one need not pass on its start
    and stop; where it does (`app.router.lifespan_context(app)`), runs end with it. Served by a uvicorn
    of your own, give that a `timeout_graceful_shutdown`, or it waits for open streams.
    Raises `ConfigError` for settings that are wrong, though never for a model that is missing.
    """
    options = options or ServerOptions()
    held = settings or load_settings()
    library = library or create_library(held, max_bytes=options.max_upload)
    speech = speech or create_speech(held)
    registry = registry or create_registry(held, library, speech, llm=llm)
    model = ConfiguredModel(llm, settings, options.loop)
    loop = AgentLoop(model, tools=registry, system=build_system_prompt, options=options.loop)
    held_sessions = sessions or Sessions(loop, held.database_url, stop_timeout=_STOP_SECONDS, durable=durable)
    model.breakers = held_sessions.breakers
    parts = Parts(
        model=model,
        registry=registry,
        sessions=held_sessions,
        library=library,
        speech=speech,
        options=options,
        own_sessions=sessions is None,
    )
    return _app(parts)


def endpoints() -> Sequence[Endpoint]:
    """The route table."""
    return (
        *_agent_endpoints(),
        *_media_endpoints(),
        Endpoint("GET", "/healthz", healthz, reply=Health),
        Endpoint("GET", "/readyz", readyz, reply=Health, errors=[503]),
        Endpoint("GET", "/openapi.json", openapi_document, download=["application/json"]),
        Endpoint("GET", "/", page, download=["text/html"]),
        Endpoint("GET", "/panel.js", panel, download=["text/javascript"]),
    )


def _agent_endpoints() -> Sequence[Endpoint]:
    thread, run = "/api/agent/threads/{thread_id}", "/api/agent/runs/{run_id}"
    ask = (400, 413, 502, 503)
    after = [("after", "The id of the last event that the client has, if it has any.")]
    return (
        Endpoint(
            "POST", "/api/agent/chat", chat.chat, body=ChatBody, reply=ChatReply, events=LLMDelta, errors=ask
        ),
        Endpoint(
            "POST",
            f"{thread}/runs",
            runs.start_run,
            body=RunBody,
            reply=RunStarted,
            status=202,
            events=Event,
            errors=ask,
        ),
        Endpoint("GET", thread, runs.read_thread, reply=ThreadView, errors=[400]),
        Endpoint("DELETE", thread, runs.delete_thread, status=204, errors=[400]),
        *_branch_endpoints(thread),
        Endpoint("GET", f"{thread}/events", runs.thread_events, events=Event, query=after, errors=[400]),
        Endpoint("GET", f"{run}/events", runs.run_events, events=Event, query=after, errors=[400, 404]),
        Endpoint("POST", f"{run}/cancel", runs.cancel_run, reply=RunStarted, errors=[404, 409]),
        Endpoint(
            "POST",
            f"{run}/tool-results",
            runs.answer_call,
            body=ToolAnswer,
            reply=RunStarted,
            status=202,
            events=Event,
            errors=(*ask, 404, 409),
        ),
    )


def _branch_endpoints(thread: str) -> Sequence[Endpoint]:
    begins: dict[str, Any] = {
        "reply": RunStarted,
        "status": 202,
        "events": Event,
        "errors": (400, 404, 409, 413, 502, 503),
    }
    return (
        Endpoint("POST", f"{thread}/edit", branches.edit_message, body=EditBody, **begins),
        Endpoint("POST", f"{thread}/retry", branches.retry_answer, body=RetryBody, **begins),
        Endpoint(
            "POST",
            f"{thread}/fork",
            branches.fork_thread,
            body=ForkBody,
            reply=Forked,
            status=201,
            errors=[400, 404, 409, 413, 503],
        ),
        Endpoint("GET", f"{thread}/usage", branches.thread_usage, reply=ThreadUsage, errors=[400]),
    )


def _media_endpoints() -> Sequence[Endpoint]:
    file = "/api/media/{media_id}"
    upload = ("application/octet-stream", "multipart/form-data")
    shown = ("video/*", "audio/*", "image/*", "application/octet-stream")
    named = [("name", "The file's name, if the body is the file itself.")]
    saved = [("download", "If given, the file is saved rather than shown.")]
    return (
        Endpoint(
            "POST",
            "/api/media",
            media.upload_media,
            upload=upload,
            query=named,
            reply=MediaItem,
            status=201,
            errors=[400, 413, 415, 503],
        ),
        Endpoint("GET", "/api/media", media.list_media, reply=MediaList),
        Endpoint("DELETE", file, media.delete_media, status=204, errors=[404]),
        Endpoint(
            "GET", f"{file}/content", media.media_content, download=shown, query=saved, errors=[404, 416]
        ),
        Endpoint("GET", f"{file}/transcript", media.media_transcript, reply=Transcript, errors=[404]),
        Endpoint(
            "GET", f"{file}/captions.{{form}}", media.media_captions, download=CAPTION_TYPES, errors=[404]
        ),
    )


async def healthz(request: Request) -> Response:
    """Whether the process serves."""
    return Response(dump(Health()), media_type="application/json")


async def readyz(request: Request) -> Response:
    """Whether a run could start now.

    503 while the model is not configured or the database is away, and once the server is stopping.
    """
    parts = parts_of(request)
    parts.check_open()
    await parts.sessions.check()
    try:
        parts.check_model()
    except ConfigError as error:
        raise ApiError(503, "config", str(error)) from None
    return Response(dump(Health()), media_type="application/json")


async def openapi_document(request: Request) -> Response:
    """This API as an OpenAPI document."""
    document = openapi(endpoints(), version=__version__, server=request.scope.get("root_path") or "/")
    return Response(dump(document), media_type="application/json")


async def page(request: Request) -> Response:
    """The page: a player, its transcript and a chat."""
    return FileResponse(STATIC / "index.html", headers=_PAGE_HEADERS)


async def panel(request: Request) -> Response:
    """The module that defines `<playhead-panel>`; what it imports stands beside it."""
    return FileResponse(PANEL / "panel.js", media_type="text/javascript", headers=_FRESH)


class _Files(StaticFiles):
    """Files that are asked for anew: modules of two versions do not go together."""

    def file_response(self, *given: Any, **named: Any) -> Response:
        response = super().file_response(*given, **named)
        response.headers.update(_FRESH)
        return response


def _app(parts: Parts) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await parts.stop()

    middleware = [Middleware(Guard, parts=parts)]
    if parts.options.origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=parts.options.origins,
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["*"],
                expose_headers=["Run-Id"],
            )
        )
    app = Starlette(
        routes=[
            *starlette_routes(endpoints()),
            Mount("/static", _Files(directory=STATIC)),
            Mount("/panel", _Files(directory=PANEL / "panel")),
        ],
        middleware=middleware,
        exception_handlers={PlayheadError: handle, HTTPException: handle, ClientDisconnect: handle},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.playhead = parts
    return app
