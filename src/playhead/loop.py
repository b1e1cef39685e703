"""THE loop: model call, tool calls, model call, ... answer.

`run` is `stream` without a reader: both drive `run_on`, which works on a port (see `port.py`) and
is the only place where a turn is carried out. Tool failures are results that the model reads,
provider failures end the run with its finished steps kept, misuse raises.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from playhead.answers import NOT_RUN, Answers
from playhead.deltas import Deltas, EventQueue
from playhead.errors import LLMError
from playhead.events import (
    Event,
    RunEnd,
    RunStart,
    StepEnd,
    StepStart,
    TextDelta,
)
from playhead.ids import now_ms
from playhead.llm.attempts import AttemptPolicy, Attempts
from playhead.llm.base import AgentLLM
from playhead.options import LoopOptions
from playhead.port import ModelReply, PlainPort, Port, ToolReply
from playhead.tools.registry import ToolRegistry
from playhead.types import (
    AgentContext,
    AgentRunResult,
    AgentStep,
    AssistantMessage,
    ChatMessage,
    FinishReason,
    LLMRequest,
    LLMResult,
    StopReason,
    ToolDefinition,
    ToolMessage,
    Usage,
    UserMessage,
)

logger = logging.getLogger("playhead")

StopWhen = Callable[[Sequence[AgentStep]], bool]
System = str | Callable[[Any], str]

_EMPTY = {
    "length": "The model used its whole output limit without writing an answer. Raise max_tokens.",
    "content_filter": "The provider's content filter stopped the answer. Rephrase the request.",
    "interrupted": "The connection to the provider broke before any text arrived. Try again.",
}
_EMPTY_PLAIN = "The model answered with neither text nor a tool call. Try again, or use another model."


class AgentLoop:
    """A model, its tools and its instructions; safe to share between any number of runs.

    Args:
        llm: the model, for example of `connect()`.
        tools: a `ToolRegistry`, or the tools themselves.
        system: instructions, or a function from the context to them, called for each step.
        options: limits.
        stop_when: called with the finished steps after each; true ends the run with `stop`.
    """

    def __init__(
        self,
        llm: AgentLLM,
        *,
        tools: ToolRegistry | Sequence[ToolDefinition[..., Any]] = (),
        system: System | None = None,
        options: LoopOptions | None = None,
        stop_when: StopWhen | None = None,
    ) -> None:
        self.options = options or LoopOptions()
        self.llm = llm if getattr(llm, "owns_attempts", False) else self._with_attempts(llm)
        self.tools = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self.system = system
        self.stop_when = stop_when

    def _with_attempts(self, llm: AgentLLM) -> AgentLLM:
        return Attempts([llm], AttemptPolicy(retries=self.options.retries))

    async def run(
        self,
        input: str | Sequence[ChatMessage],
        *,
        context: Any = None,
        cancel: asyncio.Event | None = None,
    ) -> AgentRunResult:
        """Carry out one turn.

        Args:
            input: the user's text, or the history with the new user message last.
            context: the application's own, handed to the tools untouched.
            cancel: set it to stop the run; it then ends with `finish_reason "cancelled"`.

        With a text as input, `messages` of the result begin with the user message made from it.
        A model failure is a result with `finish_reason "error"`, never an exception.
        """
        made, messages = _messages(input)
        return await self.run_on(PlainPort(messages, cancel=cancel), context=context, made=made)

    async def stream(
        self,
        input: str | Sequence[ChatMessage],
        *,
        context: Any = None,
        cancel: asyncio.Event | None = None,
    ) -> AsyncIterator[Event]:
        """The same run, as events. The last one is `run_end`; closing the iterator ends the run."""
        made, messages = _messages(input)
        queue = EventQueue()
        port = PlainPort(messages, on_event=queue.put, stream=True, cancel=cancel)
        run = asyncio.ensure_future(self.run_on(port, context=context, made=made))
        run.add_done_callback(queue.wake)
        try:
            items = queue.items
            while True:
                while items:
                    yield items.popleft()
                if run.done():
                    break
                await queue.wait()
            run.result()
        finally:
            if not run.done():
                run.cancel()
                await asyncio.wait((run,))

    async def run_on(
        self, port: Port, *, context: Any = None, made: Sequence[ChatMessage] = ()
    ) -> AgentRunResult:
        """Carry out one turn on a port. `made` are messages that the result shall begin with."""
        return await _Run(self, port, context, made).carry_out()


class _Run:
    """The state of one run."""

    def __init__(self, loop: AgentLoop, port: Port, context: Any, made: Sequence[ChatMessage]) -> None:
        self.loop = loop
        self.port = port
        self.context = context
        self.options = loop.options
        self.index = 0
        self.messages: list[ChatMessage] = []
        self.new: list[ChatMessage] = list(made)
        self.steps: list[AgentStep] = []
        self.usages: list[Usage] = []
        self.stop_reason: StopReason | None = None
        self.memo: dict[str, Any] = {}
        self.deltas = Deltas(port)
        self.answers = Answers(port, loop.tools, loop.options, self.deltas, context, self.emit)

    async def carry_out(self) -> AgentRunResult:
        self.messages = list(await self.port.history())
        await self.emit("start", RunStart(turn_id=self.port.turn_id))
        while self.index < self.options.max_steps:
            if self.port.stopping():
                return await self.finish("cancelled")
            self.index += 1
            ended = await self.step()
            if ended is not None:
                return ended
        return await self.finish("max_steps")

    async def step(self) -> AgentRunResult | None:
        """One model call and its tools. The result, if the run ends here."""
        await self.emit("step", StepStart())
        reply = await self.port.step(f"{self.index}/model", ModelReply, self.call_model)
        self.add(*reply.steer)
        if reply.result is None:
            if reply.cancelled:
                return await self.finish("cancelled")
            return await self.finish("error", reply.error or "The model call failed.", reply.error_code)
        result = reply.result
        message = result.message
        self.stop_reason = result.stop_reason
        self.usages.append(result.usage)
        self.add(message)
        replies: Sequence[ToolReply] = ()
        told: Sequence[ToolMessage] = ()
        if message.tool_calls:
            refusal = NOT_RUN.get(result.stop_reason)
            replies, told = await self.answers.to(message, self.index, refusal)
            self.add(*told)
        step = self.close_step(result, told)
        await self.emit("end", StepEnd(result=step), None if message.tool_calls else message)
        fatal = next((r.result.error for r in replies if r.fatal), None)
        if fatal is not None:
            return await self.finish("error", fatal, "tool_fatal")
        if reply.cancelled or self.port.stopping():
            return await self.finish("cancelled")
        if not message.tool_calls or result.stop_reason == "content_filter":
            return await self.finish_with(message)
        if self.loop.stop_when is not None and self.loop.stop_when(tuple(self.steps)):
            return await self.finish("stop")
        return None

    async def call_model(self) -> ModelReply:
        steer = tuple(await self.port.inbox(self.index))
        request = self.request(steer)
        deltas = self.deltas
        deltas.open(self.port.run_id, self.index)
        started = perf_counter()
        try:
            result = await self.loop.llm.generate(request, deltas.put if deltas.sink else None)
        except LLMError as error:
            return ModelReply(steer, error=str(error), error_code=error.code)
        except asyncio.CancelledError:
            if not self.port.stopping():
                raise
            partial_result = deltas.partial() if deltas.text else None
            return ModelReply(steer, result=partial_result, cancelled=True)
        except Exception as error:  # a model of the application's own must not take the run down
            logger.exception("The model raised %s instead of an LLMError.", type(error).__name__)
            return ModelReply(steer, error=f"The model failed: {type(error).__name__}.", error_code="llm")
        if deltas.sink and result.message.content and not deltas.text:
            deltas.put(TextDelta(text=result.message.content))
        return ModelReply(steer, self.settled(result, started))

    def settled(self, result: LLMResult, started: float) -> LLMResult:
        """The result with the message's id and stop reason as they were told, and its latency."""
        message = result.message
        id = self.deltas.message_id or message.id
        if message.id != id or message.stop_reason != result.stop_reason:
            message = replace(message, id=id, stop_reason=result.stop_reason)
        if message is result.message and result.latency_ms:
            return result
        latency = result.latency_ms or round((perf_counter() - started) * 1000)
        return replace(result, message=message, latency_ms=latency)

    def request(self, steer: Sequence[UserMessage]) -> LLMRequest:
        system, options = self.loop.system, self.options
        return LLMRequest(
            messages=[*self.messages, *steer],
            tools=self.loop.tools.to_tool_schemas(),
            system=system(self.context) if callable(system) else system,
            context=self.context if isinstance(self.context, AgentContext) else None,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            timeout=options.call_timeout,
            total_timeout=options.total_timeout,
            first_token_timeout=options.first_token_timeout,
            memo=self.memo,
        )

    def close_step(self, result: LLMResult, told: Sequence[ToolMessage]) -> AgentStep:
        step = AgentStep(
            self.index,
            result.message,
            tuple(told),
            provider=result.provider or None,
            model=result.model or None,
            latency_ms=result.latency_ms,
            tokens_in=result.usage.input_tokens,
            tokens_out=result.usage.output_tokens,
        )
        self.steps.append(step)
        return step

    async def finish_with(self, message: AssistantMessage) -> AgentRunResult:
        if message.content.strip():
            return await self.finish("final")
        return await self.finish("error", _EMPTY.get(self.stop_reason or "", _EMPTY_PLAIN), "empty_answer")

    async def finish(
        self, reason: FinishReason, error: str | None = None, code: str | None = None
    ) -> AgentRunResult:
        texts = (s.assistant_message.content for s in reversed(self.steps))
        result = AgentRunResult(
            turn_id=self.port.turn_id,
            finish_reason=reason,
            text=next((text for text in texts if text), ""),
            steps=tuple(self.steps),
            stop_reason=self.stop_reason,
            error_message=error,
            error_code=code,
            usage=_total(self.usages),
            messages=tuple(self.new),
        )
        await self.emit("run_end", RunEnd(result=result))
        return result

    def add(self, *messages: ChatMessage) -> None:
        self.messages.extend(messages)
        self.new.extend(messages)

    async def emit(self, key: str, event: Event, message: ChatMessage | None = None) -> None:
        if self.port.quiet:
            return
        event.run_id = self.port.run_id
        event.step = self.index
        event.at = now_ms()
        await self.port.emit(f"{self.index}/{key}", event, message)


def _messages(input: str | Sequence[ChatMessage]) -> tuple[Sequence[ChatMessage], Sequence[ChatMessage]]:
    if isinstance(input, str):
        made = (UserMessage(input),)
        return made, made
    return (), input


def _total(usages: Sequence[Usage]) -> Usage:
    """The sum; a count that one response did not report is unknown for the run."""

    def add(name: str) -> int | None:
        counts = [getattr(usage, name) for usage in usages]
        return None if not counts or None in counts else sum(counts)

    return Usage(*(add(name) for name in Usage.__struct_fields__))
