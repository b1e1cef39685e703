"""What the routes work with: one set of parts for each app, none of it global."""

import asyncio
import copy
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from playhead.config import Settings, connect_with, create_router, load_settings
from playhead.errors import ConfigError, LLMError
from playhead.events import EmitDelta
from playhead.llm.attempts import AttemptPolicy, Attempts
from playhead.llm.base import AgentLLM
from playhead.llm.breaker import BreakerStore
from playhead.media.library import MediaLibrary
from playhead.media.service import SpeechService
from playhead.options import LoopOptions
from playhead.server.access import Access, Identify, Identity
from playhead.server.errors import ApiError
from playhead.server.limits import Buckets, Places, address_of_client, check_room
from playhead.server.tenants import sessions_of
from playhead.server.workspace import Workspace
from playhead.session.sessions import Sessions
from playhead.tools.registry import ToolRegistry
from playhead.types import LLMRequest, LLMResult

T = TypeVar("T")

STATIC = Path(__file__).parent / "static"
MIB = 1024 * 1024
_LONGEST_WAIT = 5.0


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and doors of the server.

    Attributes:
        loop: limits of each run; those of a model call hold for the chat route too.
        max_body: bytes of a JSON body.
        max_upload: bytes of a media file.
        heartbeat: seconds of silence after which a stream sends a comment.
        hosts: values of the `Host` header that are served, without port. None: on a loopback
            address the loopback names only, elsewhere any, because only the application knows.
        origins: origins of other sites' pages that may use this server, such as `http://localhost:5173`;
            they may send cookies along, so each is to be trusted.
        token: who asks must have it, or a cookie that a sign-in link gave. None: that of the settings
            (`PLAYHEAD_TOKEN`), unless there is an `identify`.
        identify: the application's own authentication: `async (request) -> Identity | None`. See `Access`.
        session_seconds: for how long a browser stays signed in.
        stream_seconds: where who asks must be known, a stream of events ends after so long, and the
            client comes back to it, if it still may.
        proxies: addresses of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
        requests_per_minute: of one identity, or of one address where all have the same; None: no limit.
        refusals_per_minute: answers of 401 to one address, before it is told to wait.
        max_runs: of one tenant's or user's runs at a time, those in line included.
        max_streams: of one identity's, or address's, event streams at a time.
        max_stored: bytes of media of one tenant or user in all.
    """

    loop: LoopOptions = LoopOptions()
    max_body: int = 20 * MIB
    max_upload: int = 4096 * MIB
    heartbeat: float = 15.0
    hosts: Sequence[str] | None = None
    origins: Sequence[str] = ()
    token: str | None = None
    identify: Identify | None = None
    session_seconds: float = 14 * 86_400.0
    stream_seconds: float = 900.0
    proxies: Sequence[str] = ()
    requests_per_minute: int | None = 1_200
    refusals_per_minute: int | None = 30
    max_runs: int | None = 50
    max_streams: int | None = 50
    max_stored: int | None = None

    def __repr__(self) -> str:
        return f"ServerOptions(hosts={self.hosts!r}, origins={self.origins!r}, ...)"


class NotConfiguredError(LLMError):
    """There is no model to call; the text says which setting is missing."""

    code = "config"


class ConfiguredModel:
    """The model that was given, or the one that the configuration names, looked up when first needed:
    with `AI_CHAIN_*`, a router.

    A server without a configuration starts, and each call says what is missing until it is there.
    The attempt loop is here, so the chat route has it, too; no client behind the route retries.
    """

    owns_attempts = True

    def __init__(self, given: AgentLLM | None, settings: Settings | None, options: LoopOptions) -> None:
        self._given = given
        self._model = None if given is None else _attempting(given, options)
        self._settings = settings
        self._options = options
        self.breakers: BreakerStore | None = None

    def resolve(self) -> AgentLLM:
        """Return the model. Raises `ConfigError` naming what is missing or unknown."""
        if self._model is None:
            settings = self._settings or load_settings()
            if settings.chains:
                self._model = create_router(settings, breakers=self.breakers)
            else:
                self._model = _attempting(connect_with(settings), self._options)
        return self._model

    @property
    def is_mock(self) -> bool:
        """Whether it is the one that stands in for a model. Raises `ConfigError`."""
        if self._given is not None:
            return getattr(self._given, "provider", None) == "mock"
        settings = self._settings or load_settings()
        return settings.llm_provider == "mock" and not settings.chains

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """See `AgentLLM`. Raises `NotConfiguredError`, whose text a run can tell."""
        try:
            model = self.resolve()
        except ConfigError as error:
            raise NotConfiguredError(str(error)) from None
        return await model.generate(request, emit)


def _attempting(model: AgentLLM, options: LoopOptions) -> AgentLLM:
    if getattr(model, "owns_attempts", False):
        return model
    # Somebody waits for the answer of a route: a long Retry-After is told instead of slept through.
    return Attempts([model], AttemptPolicy(retries=options.retries, longest_wait=_LONGEST_WAIT))


class Parts:
    """The parts of one app, and the work that goes on in it.

    `stop` ends that work, so that open streams end with their last event; after it every request is
    told that the server is stopping.
    """

    def __init__(
        self,
        model: ConfiguredModel,
        registry: ToolRegistry,
        sessions: Sessions,
        library: MediaLibrary,
        speech: SpeechService,
        workspace: Workspace,
        options: ServerOptions,
        own_sessions: bool,
        access: Access,
    ) -> None:
        self.model = model
        self.registry = registry
        self.sessions = sessions
        self.library = library
        self.speech = speech
        self.workspace = workspace
        self.options = options
        self.own_sessions = own_sessions
        self.access = access
        self.tenant: str | None = None
        self.requests = Buckets(options.requests_per_minute)
        self.refusals = Buckets(options.refusals_per_minute)
        self.streams = Places(options.max_streams, "event streams")
        # Shared with what `of` returns.
        self._end = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()

    async def identity(self, request: Request) -> Identity:
        """Return who sends a request. Raises `ApiError` 401, 403, or 429 after too many of the first."""
        try:
            return await self.access.identity(request)
        except ApiError as error:
            if error.status == 401:
                self.refusals.take(address_of_client(request.scope))
            raise

    def of(self, identity: Identity) -> "Parts":
        """Return these parts as one of those who ask sees them: with their threads and their media only."""
        seen = copy.copy(self)
        tenant, most = identity.scope, self.options.max_runs
        seen.tenant = tenant
        seen.sessions = sessions_of(self.sessions, tenant, lambda n: check_room(n, most, "runs"))
        if tenant is not None:
            seen.workspace = self.workspace.of_tenant(tenant)
            seen.library = seen.workspace.library
        return seen

    @property
    def stopping(self) -> bool:
        """Whether the server's end is near."""
        return self._end.is_set()

    @property
    def stream_seconds(self) -> float | None:
        """After how long a stream ends, so that who follows it is asked again who they are."""
        return self.options.stream_seconds if self.access.required else None

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work that ends with the server at the latest. Raises `ApiError` once that is near."""
        if self.stopping:
            work.close()
            raise self.stopped()
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def carry_out(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work of a request to its end. Raises `ApiError` if the server's own end cuts it short."""
        task = self.begin(work)
        try:
            await asyncio.wait((task,))
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        return self.outcome(task)

    def outcome(self, task: asyncio.Task[T]) -> T:
        """The result of work that `begin` started. Raises as `carry_out`."""
        if task.cancelled():
            raise self.stopped()
        return task.result()

    def check_model(self) -> None:
        """Raise `ConfigError` if our own sessions have no model to run on; given ones have theirs."""
        if self.own_sessions:
            self.model.resolve()

    def stopped(self) -> ApiError:
        """What a request is told whose work the server's own end cut short."""
        return ApiError(503, "stopping", "The server is stopping. Try again when it is back.")

    def check_open(self) -> None:
        """Raise `ApiError` once the server is stopping."""
        if self.stopping:
            raise self.stopped()

    async def stop(self) -> None:
        """End what goes on. Safe to call twice."""
        self._end.set()
        for task in tuple(self._calls):
            task.cancel()
        await asyncio.gather(self.sessions.aclose(), self.speech.aclose())


def parts_of(request: Request) -> Parts:
    """The parts of who asks; in an endpoint that is open to all, those of the whole app."""
    parts: Parts = request.scope["playhead"]
    return parts
