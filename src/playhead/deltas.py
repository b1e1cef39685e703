"""What streams out of a run while it works: deltas of the model, progress of the tools."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from playhead.encode import masked_traceback
from playhead.events import (
    Attempt,
    Event,
    LiveEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolProgress,
)
from playhead.ids import new_id, now_ms
from playhead.port import Port
from playhead.types import AssistantMessage, ChatMessage, LLMResult, ToolCall

logger = logging.getLogger("playhead")

# Past this many unread deltas a slow reader gets its neighbours merged, up to so many characters in
# one: text grows by copying, and without an end to it a reader that never reads would cost ever more.
_MERGE_ABOVE = 1_000
_MERGE_UP_TO = 8_192


class Teller:
    """Stamps a run's events and hands them to its port, with the message each one stands for."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self.step = 0

    async def __call__(self, key: str, event: Event, message: ChatMessage | None = None) -> None:
        if self._port.quiet:
            return
        event.run_id = self._port.run_id
        event.step = self.step
        event.at = now_ms()
        await self._port.emit(f"{self.step}/{key}", event, message)


class CallIds:
    """The ids of calls, each of one call: some servers count anew in every response.

    An id that the history has, or that came before in the turn, gets a new one, the same in all that tells
    of the call.
    """

    def __init__(self) -> None:
        self._used = {""}
        self._new: dict[str, str] = {}

    def begin(self) -> None:
        """Another response begins."""
        self._new = {}

    def of(self, id: str) -> str:
        """Return the id of a call that this response gives the id `id`."""
        if id not in self._used:
            return id
        if id not in self._new:
            self._new[id] = new_id()
        return self._new[id]

    def settled(self, message: AssistantMessage) -> AssistantMessage:
        """Return the message of this response, each of its calls with an id of its own."""
        given = [call.id for call in message.tool_calls]
        ids: list[str] = []
        for id in map(self.of, given):
            ids.append(new_id() if id in ids else id)
        if ids == given:
            return message
        calls = [replace(call, id=id) for call, id in zip(message.tool_calls, ids, strict=True)]
        return replace(message, tool_calls=calls)

    def took(self, calls: Iterable[ToolCall]) -> None:
        """These were called."""
        self._used.update(call.id for call in calls)


class Deltas:
    """Stamps the deltas of one model call on their way out, and keeps its text for a stop."""

    def __init__(self, port: Port) -> None:
        self.sink = port.delta
        self.call_ids = CallIds()
        self.loop = asyncio.get_running_loop()
        self.open(port.run_id, 0)

    def open(self, run_id: str, step: int) -> None:
        self.run_id = run_id
        self.step = step
        self.begin()

    def begin(self) -> None:
        # Without a reader nobody has seen an id, and the message keeps its own.
        self.message_id = new_id() if self.sink is not None else ""
        self.call_ids.begin()
        self.text: list[str] = []
        self.offset = 0
        self.reasoning_offset = 0

    def put(self, delta: LiveEvent) -> None:
        delta.run_id = self.run_id
        delta.step = self.step
        delta.at = now_ms()
        if type(delta) is TextDelta:
            delta.message_id = self.message_id
            delta.offset = self.offset
            self.offset += len(delta.text)
            self.text.append(delta.text)
        elif type(delta) is ReasoningDelta:
            delta.message_id = self.message_id
            delta.offset = self.reasoning_offset
            self.reasoning_offset += len(delta.text)
        elif type(delta) is ToolCallStart or type(delta) is ToolCallDelta:
            delta.call_id = self.call_ids.of(delta.call_id)
        elif type(delta) is Attempt and delta.number > 1:
            self.begin()
        if self.sink is not None:
            try:
                self.sink(delta)
            except Exception as error:  # a reader's fault must not break the run
                text = "A reader of deltas failed; it gets no more of this run.\n%s"
                logger.error(text, masked_traceback(error))
                self.sink = None

    def partial(self) -> LLMResult:
        """What a stopped call had said."""
        text = "".join(self.text)
        message = AssistantMessage(text, stop_reason="interrupted", id=self.message_id)
        return LLMResult(message, "interrupted")


class ToolLine:
    """The link from a running tool to its run: progress out, cancellation in, from any thread."""

    def __init__(self, port: Port, deltas: Deltas, call_id: str) -> None:
        self.port = port
        self.deltas = deltas
        self.call_id = call_id
        self.over = False

    def is_cancelled(self) -> bool:
        return self.over or self.port.stopping()

    def progress(self, fraction: float | None = None, text: str = "") -> None:
        if self.deltas.sink is not None and not self.over:
            self.deltas.loop.call_soon_threadsafe(
                self.tell, ToolProgress(call_id=self.call_id, fraction=fraction, text=text)
            )

    def tell(self, event: ToolProgress) -> None:
        if not self.over:
            self.deltas.put(event)


class Listener:
    """A callback of the application's: what it raises is logged, and it gets no more of the run."""

    def __init__(self, take: Callable[[Event], Any]) -> None:
        self._take: Callable[[Event], Any] | None = take

    def __call__(self, event: Event) -> None:
        if self._take is None:
            return
        try:
            self._take(event)
        except Exception as error:  # a reader's fault must not break the run
            text = "A listener failed; it gets no more events of this run.\n%s"
            logger.error(text, masked_traceback(error))
            self._take = None


class EventQueue:
    """A deque and one waiter. It never makes the run wait."""

    def __init__(self) -> None:
        self.items: deque[Event] = deque()
        self.waiter: asyncio.Future[None] | None = None
        self._new_waiter = asyncio.get_running_loop().create_future

    def put(self, event: Event) -> None:
        items = self.items
        if len(items) > _MERGE_ABOVE and isinstance(event, TextDelta | ReasoningDelta):
            last = items[-1]
            if (
                type(last) is type(event)
                and last.message_id == event.message_id
                and len(last.text) < _MERGE_UP_TO
            ):
                last.text += event.text
                return
        items.append(event)
        if self.waiter is not None:
            self.wake()

    def wake(self, _: Any = None) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        self.waiter = waiter = self._new_waiter()
        return waiter
