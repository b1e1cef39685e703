"""The client-side run: the one loop with a model behind the chat route, shown in the two stores."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from playhead.encode import masked_traceback
from playhead.errors import PlayheadError, StoreError
from playhead.events import Attempt, Event, LiveEvent, RunEnd, StepStart, TextDelta, ToolResultEvent
from playhead.llm.route import RouteLLM
from playhead.loop import AgentLoop
from playhead.options import LoopOptions
from playhead.port import PlainPort
from playhead.session.stores import AgentStore, ChatStore
from playhead.tools.registry import ToolRegistry
from playhead.types import (
    AgentContext,
    AgentRunResult,
    AssistantMessage,
    ChatMessage,
    ToolDefinition,
    ToolMessage,
)

logger = logging.getLogger("playhead")

T = TypeVar("T")

MAX_ITERATIONS = 8
LIMIT_REACHED = "Reached maximum iteration limit"
_CANCELLED = "Cancelled: the run was stopped before this call finished."


class Orchestrator:
    """Runs a conversation against a chat route; the tools run here.

    Args:
        url: the address of the chat route, such as `http://127.0.0.1:8765/api/agent/chat`.
        registry: the tools.
        chat_store: gets the replies and the tool results, `loading` and `error`.
        agent_store: gets `status`, `active_tool` and `context`.
        headers: what the server asks for besides, such as `Authorization`.
        options: limits of a run; `max_steps` is 8 at most, whatever is given.

    Raises `ConfigError` for what is no address.
    """

    def __init__(
        self,
        url: str,
        registry: ToolRegistry | Sequence[ToolDefinition[..., Any]],
        chat_store: ChatStore,
        agent_store: AgentStore,
        *,
        headers: Mapping[str, str] | None = None,
        options: LoopOptions | None = None,
    ) -> None:
        options = options or LoopOptions()
        # The server behind the route retries; two layers that do would multiply their calls.
        options = replace(options, max_steps=min(options.max_steps, MAX_ITERATIONS), retries=0)
        self._loop = AgentLoop(RouteLLM(url, headers=headers), tools=registry, options=options)
        self._chat = chat_store
        self._agent = agent_store
        self._running = False

    async def run(
        self,
        messages: Sequence[ChatMessage],
        context: AgentContext | None = None,
        *,
        cancel: asyncio.Event | None = None,
        on_event: Callable[[Event], Any] | None = None,
    ) -> AgentRunResult:
        """Carry out one turn and show it in the stores.

        Args:
            messages: the conversation, the new user message last. They are in the chat store
                already, or are not to be: only what the run adds is appended there.
            context: goes to the route and to the tools; the agent store's own when not given.
            cancel: set it to stop the run; it then ends with `finish_reason "cancelled"`.
            on_event: takes each event of the run, deltas included. It must not block.

        `loading` is True from here on and False at every end. A failing route or network is a result
        with `finish_reason "error"`, its text in the chat store's `error`. At the iteration limit
        the text of the result is the message that says so. Raises `StoreError` while another run of
        this orchestrator goes on, and when the chat store cannot be written.
        """
        if self._running:
            raise StoreError("A run goes on already: wait for its end, or stop it with `cancel`.")
        self._running = True
        port = _ShownPort(messages, self._chat, self._agent, on_event, cancel)
        try:
            if context is not None:
                self._agent.set_context(context)
            port.begin()
            result = await self._loop.run_on(port, context=self._agent.context)
            return port.result or result
        except BaseException as error:
            port.break_off(error)
            raise
        finally:
            self._running = False
            self._chat.set_loading(False)


class _ShownPort(PlainPort):
    """A `PlainPort` whose events are shown in the two stores before they are told."""

    def __init__(
        self,
        messages: Sequence[ChatMessage],
        chat: ChatStore,
        agent: AgentStore,
        listener: Callable[[Event], Any] | None,
        cancel: asyncio.Event | None,
    ) -> None:
        super().__init__(messages, on_event=self._tell, cancel=cancel)
        self.delta = self._show_delta
        self.result: AgentRunResult | None = None
        self._chat = chat
        self._agent = agent
        self._listener = listener
        self._step = 0
        self._asked: AssistantMessage | None = None
        self._results: dict[int, ToolMessage] = {}
        self._answered = 0
        self._at_work: dict[int, str] = {}

    def begin(self) -> None:
        self._chat.set_error(None)
        self._chat.set_loading(True)
        self._agent.set_active_tool(None)
        self._agent.set_status("sending")

    def step(self, name: str, type: type[T], fn: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        _, kind, *place = name.split("/")
        if kind != "tool":
            return super().step(name, type, fn)
        return super().step(name, type, lambda: self._shown_at_work(int(place[0]), fn))

    async def emit(self, key: str, event: Event, message: ChatMessage | None = None) -> None:
        self._show(key, event, message)
        await super().emit(key, event, message)

    def break_off(self, error: BaseException) -> None:
        """Leave the stores in order after an end that the loop did not tell."""
        with suppress(StoreError):  # the run has failed already; this is the best that can be done
            self._close_calls()
        self._agent.set_active_tool(None)
        if not isinstance(error, Exception):
            self._agent.set_status("idle")
            return
        told = isinstance(error, PlayheadError)
        self._chat.set_error(str(error) if told else f"The run failed: {type(error).__name__}.")
        self._agent.set_status("error")

    # ------------------------------------------------------------ what is shown

    def _show(self, key: str, event: Event, message: ChatMessage | None) -> None:
        if isinstance(event, StepStart):
            self._step = event.step
            self._agent.set_status("sending")
        elif isinstance(event, ToolResultEvent) and isinstance(message, ToolMessage):
            self._results[int(key.rpartition("/")[2])] = message
            self._append_results()
        elif isinstance(message, AssistantMessage):
            if message.tool_calls or message.content.strip():
                self._chat.add_message(message)
            if message.tool_calls:
                self._asked = message
        elif isinstance(event, RunEnd):
            self._show_end(event)

    def _show_delta(self, delta: LiveEvent) -> None:
        if isinstance(delta, TextDelta):
            if self._agent.status == "sending":
                self._agent.set_status("responding")
        elif isinstance(delta, Attempt) and delta.number > 1:
            self._agent.set_status("sending")
        self._tell(delta)

    async def _shown_at_work(self, n: int, fn: Callable[[], Awaitable[T]]) -> T:
        calls = self._asked.tool_calls if self._asked else ()
        self._at_work[n] = calls[n].name
        self._show_tool()
        self._agent.set_status("processing")
        try:
            return await fn()
        finally:
            del self._at_work[n]
            self._show_tool()

    def _show_tool(self) -> None:
        self._agent.set_active_tool(self._at_work[min(self._at_work)] if self._at_work else None)

    def _append_results(self) -> None:
        """Append the results in call order: each once those before it are there."""
        while (message := self._results.get(self._answered)) is not None:
            self._chat.add_message(message)
            self._answered += 1
        if self._asked is not None and self._answered == len(self._asked.tool_calls):
            self._asked, self._answered, self._results = None, 0, {}

    def _close_calls(self) -> None:
        for n, call in enumerate(self._asked.tool_calls if self._asked else ()):
            self._results.setdefault(
                n,
                ToolMessage(call.id, call.name, _CANCELLED, True, id=f"{self.turn_id}/{self._step}/{n + 1}"),
            )
        self._append_results()

    def _show_end(self, event: RunEnd) -> None:
        result = event.result
        if result.finish_reason == "max_steps":
            limit = AssistantMessage(LIMIT_REACHED)
            self._chat.add_message(limit)
            result = replace(result, text=LIMIT_REACHED, messages=(*result.messages, limit))
        self.result = event.result = result
        if result.finish_reason == "error":
            self._chat.set_error(result.error_message or "The run failed.")
        self._chat.set_loading(False)
        self._agent.set_active_tool(None)
        self._agent.set_status("error" if result.finish_reason == "error" else "idle")

    def _tell(self, event: Event) -> None:
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception as error:  # a listener's fault must not break the run
            text = "A listener of the run failed; it gets no more of its events.\n%s"
            logger.error(text, masked_traceback(error))
            self._listener = None
