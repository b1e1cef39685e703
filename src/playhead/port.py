"""What the loop runs on: a few effects, so that one loop is plain, stored, durable and distributed.

The loop itself knows no store, no HTTP and no engine. It calls these effects in a fixed order with
deterministic names, so a port that records them can replay a run exactly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from playhead.events import Event, LiveEvent
from playhead.ids import new_id
from playhead.types import CallAnswer, ChatMessage, LLMResult, ToolResult, UserMessage

T = TypeVar("T")
LiveSink = Callable[[LiveEvent], Any]


class OutcomeUnknown(msgspec.Struct, frozen=True):
    """Returned by `once` for an effect that had started before a crash and may have happened."""


class ModelReply(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The record of a model step: what came in meanwhile, and the answer, the error or the stop.

    `complaint` says why a final text is not taken as the answer.
    """

    steer: Sequence[UserMessage] = ()
    result: LLMResult | None = None
    error: str | None = None
    error_code: str | None = None
    cancelled: bool = False
    complaint: str | None = None


class ToolReply(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The record of a tool step."""

    result: ToolResult
    fatal: bool = False


class Inbox:
    """User messages that reach a run while it goes on: `steer` puts one before the next model call.

    What no model call took is still `waiting` when the run has ended.
    """

    def __init__(self) -> None:
        self.waiting: list[UserMessage] = []

    def steer(self, message: str | UserMessage) -> None:
        """Add a message. It never comes between a call and its result."""
        self.waiting.append(UserMessage(message) if isinstance(message, str) else message)

    def take(self) -> list[UserMessage]:
        """Return what waits, and forget it."""
        taken, self.waiting = self.waiting, []
        return taken


class LiveContext:
    """A context that may become another while a run goes on: each model call and each tool call is given
    the `value` of then.
    """

    def __init__(self, value: Any = None) -> None:
        self.value = value


def context_now(context: Any) -> Any:
    """Return the application's own context, as it is now."""
    return context.value if isinstance(context, LiveContext) else context


class Port(Protocol):
    """The effects of a run.

    `answers` are those to calls that an earlier run of the turn left waiting; `tenant` is whose run it is.

    `step` and `once` are plain functions: they take their place when called and return an
    awaitable, so parallel effects are recorded in call order. `step` may run `fn` again after a
    crash, `once` never does. What `fn` returns is of the msgspec type `type`; errors and stops are
    values of it, never exceptions. `emit` writes the event, and the message it stands for, in one
    transaction, unless the key is there already. `delta` is the hot path and may be None: do not
    stream. With `quiet`, nobody takes events or messages, and `emit` need not be called.
    """

    turn_id: str
    run_id: str
    tenant: str | None
    delta: LiveSink | None
    quiet: bool
    answers: Sequence[CallAnswer]

    async def history(self) -> Sequence[ChatMessage]: ...
    def step(self, name: str, type: type[T], fn: Callable[[], Awaitable[T]]) -> Awaitable[T]: ...
    def once(
        self, name: str, type: type[T], fn: Callable[[], Awaitable[T]]
    ) -> Awaitable[T | OutcomeUnknown]: ...
    async def inbox(self, step: int) -> Sequence[UserMessage]: ...
    async def emit(self, key: str, event: Event, message: ChatMessage | None = None) -> None: ...
    def stopping(self) -> bool: ...


def id_base(port: Port) -> str:
    """What the ids of all that a run makes begin with: the same in a replay, and in no other run.

    A run that answers calls is not the first of its turn, whose steps had the same numbers.
    """
    return f"{port.turn_id}/{port.run_id}" if port.answers else port.turn_id


class PlainPort:
    """Everything in memory: the history is a list, an effect is a call, an event a callback.

    Args:
        messages: the history, the new user message last.
        on_event: takes each event, deltas included when `stream` is set. It must not block.
        stream: ask the model for deltas.
        cancel: when set, the run is stopped: open work is cancelled and becomes a value.
        inbox: messages that may come in while the run goes on.
        answers: to calls that an earlier run of the turn left waiting.
    """

    def __init__(
        self,
        messages: Sequence[ChatMessage],
        *,
        on_event: Callable[[Event], Any] | None = None,
        stream: bool = False,
        cancel: asyncio.Event | None = None,
        inbox: Inbox | None = None,
        answers: Sequence[CallAnswer] = (),
        turn_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self.turn_id = turn_id or new_id()
        self.run_id = run_id or new_id()
        self.tenant: str | None = None
        self.delta: LiveSink | None = on_event if stream else None
        self._messages = messages
        self._on_event = on_event
        self.quiet = on_event is None
        self._cancel = cancel
        self._inbox = inbox
        self.answers = answers

    async def history(self) -> Sequence[ChatMessage]:
        return self._messages

    def step(self, name: str, type: type[T], fn: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        return Effect(fn if self._cancel is None else partial(_stoppable, fn, self._cancel))

    def once(self, name: str, type: type[T], fn: Callable[[], Awaitable[T]]) -> Awaitable[T | OutcomeUnknown]:
        return self.step(name, type, fn)

    async def inbox(self, step: int) -> Sequence[UserMessage]:
        return self._inbox.take() if self._inbox is not None else ()

    async def emit(self, key: str, event: Event, message: ChatMessage | None = None) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def stopping(self) -> bool:
        return self._cancel is not None and self._cancel.is_set()


class Effect(Generic[T]):
    """An effect that begins when it is awaited; one that never is leaves nothing behind."""

    __slots__ = ("_fn",)

    def __init__(self, fn: Callable[[], Awaitable[T]]) -> None:
        self._fn = fn

    def __await__(self) -> Generator[Any, None, T]:
        return self._fn().__await__()


async def _stoppable(fn: Callable[[], Awaitable[T]], cancel: asyncio.Event) -> T:
    """Run `fn` in a task of its own that is cancelled once `cancel` is set; `fn` returns a value."""

    async def body() -> T:
        return await fn()

    work = asyncio.create_task(body())
    watch = asyncio.create_task(cancel.wait())
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
        return await work
    except asyncio.CancelledError:
        # The caller's own cancellation: nothing may outlive it.
        work.cancel()
        await asyncio.wait((work,))
        raise
    finally:
        watch.cancel()
