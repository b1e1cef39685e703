"""What the routes work with: one set of parts for each app, none of it global."""

import asyncio
from collections.abc import Coroutine, Sequence
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
from playhead.server.errors import ApiError
from playhead.server.workspace import Workspace
from playhead.session.sessions import Sessions
from playhead.tools.registry import ToolRegistry
from playhead.types import LLMRequest, LLMResult

T = TypeVar("T")

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
        origins: origins of other sites' pages that may use this server, such as `http://localhost:5173`.
    """

    loop: LoopOptions = LoopOptions()
    max_body: int = 20 * MIB
    max_upload: int = 4096 * MIB
    heartbeat: float = 15.0
    hosts: Sequence[str] | None = None
    origins: Sequence[str] = ()


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
    ) -> None:
        self.model = model
        self.registry = registry
        self.sessions = sessions
        self.library = library
        self.speech = speech
        self.workspace = workspace
        self.options = options
        self.own_sessions = own_sessions
        self.stopping = False
        self._calls: set[asyncio.Task[Any]] = set()

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
        self.stopping = True
        for task in tuple(self._calls):
            task.cancel()
        await asyncio.gather(self.sessions.aclose(), self.speech.aclose())


def parts_of(request: Request) -> Parts:
    """The parts that `Guard` put into the request."""
    parts: Parts = request.scope["playhead"]
    return parts
