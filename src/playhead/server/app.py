"""`create_app`: the parts joined, the route table, the page."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from playhead import __version__
from playhead.config import (
    Settings,
    create_library,
    create_previews,
    create_registry,
    create_speech,
    load_settings,
)
from playhead.errors import ConfigError, PlayheadError
from playhead.events import Event, LLMDelta
from playhead.llm.base import AgentLLM
from playhead.loop import AgentLoop
from playhead.media.library import MediaLibrary
from playhead.media.service import SpeechService
from playhead.prompt import build_system_prompt
from playhead.server import branches, chat, media, projects, runs, signin, views
from playhead.server.access import Access
from playhead.server.errors import ApiError, handle
from playhead.server.guard import PAGE_POLICY, Guard
from playhead.server.offer import page_step, page_tools
from playhead.server.openapi import openapi
from playhead.server.parts import STATIC, ConfiguredModel, Parts, ServerOptions, parts_of
from playhead.server.routes import Endpoint, starlette_routes
from playhead.server.wire import (
    ChatBody,
    ChatReply,
    ContextBody,
    ContextTaken,
    EditBody,
    ForkBody,
    Forked,
    Health,
    MediaItem,
    MediaList,
    ModelState,
    RetryBody,
    RunBody,
    RunStarted,
    ThreadUsage,
    ThreadView,
    ToolAnswer,
    dump,
)
from playhead.server.workspace import EditedSpeech, Workspace
from playhead.session.durable.options import Durable
from playhead.session.sessions import Sessions
from playhead.tools.joined import JoinedTools
from playhead.tools.registry import ToolRegistry
from playhead.types import ToolDefinition

# In a wheel it lies here, in a clone at the root.
_HERE, _CLONE = Path(__file__).parent / "web", Path(__file__).parents[3] / "web"
PANEL = _HERE if _HERE.is_dir() else _CLONE
_FRESH = {"Cache-Control": "no-cache"}

_PAGE_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# What a stopped run may take to end: the whole server must be gone within five seconds.
_STOP_SECONDS = 1.5


def create_app(
    *,
    llm: AgentLLM | None = None,
    registry: ToolRegistry | None = None,
    tools: Sequence[ToolDefinition[..., Any]] = (),
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
            for the mock model. Runs in a project of the page have `search_transcript`, `make_captions`,
            `correct_transcript` and `seek` beside them.
        tools: more tools, beside those of the registry.
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
    workspace = Workspace(library, speech, create_previews(held), lambda: held_sessions.books())
    if registry is None:
        registry = create_registry(held, library, EditedSpeech(speech, workspace), llm=llm)
    registry = _with_tools(registry, tools)
    model = ConfiguredModel(llm, settings, options.loop)
    limits = replace(options.loop, prepare_step=page_step(workspace, registry, options.loop.prepare_step))
    loop = AgentLoop(model, tools=page_tools(workspace, registry), system=build_system_prompt, options=limits)
    held_sessions = sessions or Sessions(loop, held.database_url, stop_timeout=_STOP_SECONDS, durable=durable)
    model.breakers = held_sessions.breakers
    parts = Parts(
        model=model,
        registry=registry,
        sessions=held_sessions,
        library=library,
        speech=speech,
        workspace=workspace,
        options=options,
        own_sessions=sessions is None,
        access=_access(options, held),
    )
    return _app(parts)


def _with_tools(registry: Any, tools: Sequence[ToolDefinition[..., Any]]) -> ToolRegistry:
    if not isinstance(registry, ToolRegistry):
        kind = type(registry).__name__
        raise ConfigError(f"registry: It is a {kind}; give a ToolRegistry, or tools of yours as tools=[...].")
    if not tools:
        return registry
    more = ToolRegistry(tools)
    taken = [tool.name for tool in more.get_all() if registry.has(tool.name)]
    if taken:
        raise ConfigError(f"tools: There is a tool {taken[0]!r} already; give yours another name.")
    return JoinedTools(registry, more.get_all())


def endpoints() -> Sequence[Endpoint]:
    """The route table."""
    code = [("code", "That of the link.")]
    return (
        *_agent_endpoints(),
        *_media_endpoints(),
        *views.view_endpoints(),
        *projects.project_endpoints(),
        Endpoint(
            "GET",
            "/sign-in",
            signin.sign_in,
            status=303,
            query=code,
            errors=[429],
            open=True,
        ),
        Endpoint("POST", "/sign-out", signin.sign_out, status=204, open=True),
        Endpoint("GET", "/healthz", healthz, reply=Health, open=True),
        Endpoint("GET", "/readyz", readyz, reply=Health, errors=[503]),
        Endpoint("GET", "/api/model", model_state, reply=ModelState),
        Endpoint("GET", "/openapi.json", openapi_document, download=["application/json"]),
        Endpoint("GET", "/", page, download=["text/html"], errors=[401, 429], open=True),
        Endpoint("GET", "/panel.js", panel, download=["text/javascript"], open=True),
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
        Endpoint(
            "PUT",
            f"{thread}/context",
            runs.update_context,
            body=ContextBody,
            reply=ContextTaken,
            errors=[400, 413],
        ),
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
    named = [
        ("name", "The file's name, if the body is the file itself."),
        ("project", "The id of the project that it is for."),
    ]
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
            errors=[400, 404, 413, 415, 503],
        ),
        Endpoint("GET", "/api/media", media.list_media, reply=MediaList),
        Endpoint("DELETE", file, media.delete_media, status=204, errors=[404]),
        Endpoint(
            "GET", f"{file}/content", media.media_content, download=shown, query=saved, errors=[404, 416]
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


async def model_state(request: Request) -> Response:
    """Whether a model answers, for a page to say so."""
    parts = parts_of(request)
    try:
        parts.check_model()
        state = ModelState("mock" if parts.own_sessions and parts.model.is_mock else "ready")
    except ConfigError as error:
        state = ModelState("missing", str(error))
    return Response(dump(state), media_type="application/json")


async def openapi_document(request: Request) -> Response:
    """This API as an OpenAPI document."""
    document = openapi(endpoints(), version=__version__, server=request.scope.get("root_path") or "/")
    return Response(dump(document), media_type="application/json")


async def page(request: Request) -> Response:
    """The page: a player, its transcript and a chat."""
    return await signin.instead(request) or FileResponse(STATIC / "index.html", headers=_PAGE_HEADERS)


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

    app = Starlette(
        routes=[
            *starlette_routes(endpoints()),
            Mount("/static", _Files(directory=STATIC)),
            Mount("/panel", _Files(directory=PANEL / "panel")),
        ],
        middleware=_middleware(parts),
        exception_handlers={PlayheadError: handle, HTTPException: handle, ClientDisconnect: handle},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.playhead = parts
    return app


def _access(options: ServerOptions, settings: Settings) -> Access:
    for origin in options.origins:
        scheme, _, place = origin.partition("://")
        if scheme not in ("http", "https") or not place or set("*/") & set(place):
            raise ConfigError(
                f"ServerOptions: the origin is {origin!r}; it must be one such as 'https://app.example',"
                " without a path. Its pages may do whatever the user may."
            )
    token = options.token or (None if options.identify else settings.token)
    return Access(token, options.identify, session_seconds=options.session_seconds)


def _middleware(parts: Parts) -> list[Middleware]:
    options = parts.options
    middleware = [Middleware(Guard, parts=parts)]
    if options.proxies:
        from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

        middleware.insert(0, Middleware(ProxyHeadersMiddleware, trusted_hosts=list(options.proxies)))
    if options.origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=options.origins,
                allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
                allow_headers=["*"],
                allow_credentials=True,
                expose_headers=["Retry-After", "Run-Id"],
            )
        )
    return middleware
