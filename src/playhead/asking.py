"""The model call of one step: what is asked, of whom, and how the outcome becomes a record."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from playhead.deltas import Deltas
from playhead.encode import masked_traceback
from playhead.errors import LLMError
from playhead.events import TextDelta
from playhead.limits import Limits
from playhead.llm.attempts import AttemptPolicy, Attempts
from playhead.llm.base import AgentLLM
from playhead.options import LoopOptions
from playhead.output import Judge
from playhead.port import ModelReply, Port, context_now
from playhead.tools.registry import ToolRegistry
from playhead.types import (
    AgentContext,
    AgentStep,
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    LLMResult,
    UserMessage,
)

logger = logging.getLogger("playhead")

System = str | Callable[[Any], str]

_WRAP_UP = "The limit of steps is reached: no more tools. Answer now, from what is there."


class Asking:
    """Calls the model for a run."""

    def __init__(
        self,
        llm: AgentLLM,
        tools: ToolRegistry,
        system: System | None,
        options: LoopOptions,
        run: tuple[Port, Deltas, Any, Limits, Judge],
    ) -> None:
        self._llm = llm
        self._tools = tools
        self._system = system
        self._options = options
        self._port, self._deltas, self._given, self._limits, self._judge = run
        self._memo: dict[str, Any] = {}
        self.executed = False

    async def ask(
        self, index: int, messages: Sequence[ChatMessage], steps: Sequence[AgentStep], closing: bool = False
    ) -> ModelReply:
        """Take what came in meanwhile and call the model. `closing` asks for an answer without tools."""
        steer = tuple(await self._port.inbox(index))
        if self._port.stopping():
            return ModelReply(steer, cancelled=True)
        deltas = self._deltas
        deltas.open(self._port.run_id, index)
        started = perf_counter()
        request = self._request([*messages, *steer], closing)
        try:
            llm = self._llm
            if self._options.prepare_step is not None:
                llm, request = await self._prepared(index, request, steps)
            refusal = self._limits.before(request)
            if refusal is not None:
                return ModelReply(steer, error=refusal, error_code="limit")
            try:
                result = await llm.generate(request, deltas.put if deltas.sink else None)
            except LLMError:
                raise
            except Exception as error:  # the application's own model must not take the run down
                logger.error("A model raised instead of an LLMError:\n%s", masked_traceback(error))
                raise LLMError(f"The model failed: {type(error).__name__}.") from None
        except LLMError as error:
            return ModelReply(steer, error=str(error), error_code=error.code)
        except asyncio.CancelledError:
            if not self._port.stopping():
                raise
            partial = deltas.partial() if deltas.text else None
            return ModelReply(steer, result=partial, cancelled=True)
        if deltas.sink and result.message.content and not deltas.text:
            deltas.put(TextDelta(text=result.message.content))
        reply = ModelReply(steer, self._settled(result, started))
        return reply if self._judge.idle else await self._judged(reply)

    def _request(self, messages: list[ChatMessage], closing: bool) -> LLMRequest:
        system, options, choice = self._system, self._options, self._options.tool_choice
        context = context_now(self._given)
        if closing:
            messages.append(UserMessage(_WRAP_UP))
        return LLMRequest(
            messages=messages,
            tools=() if closing else self._tools.to_tool_schemas(),
            system=system(context) if callable(system) else system,
            context=context if isinstance(context, AgentContext) else None,
            tenant=self._port.tenant,
            # A choice that is never released makes the model call for ever.
            tool_choice=None if self.executed and choice != "none" else choice,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            timeout=options.call_timeout,
            total_timeout=options.total_timeout,
            first_token_timeout=options.first_token_timeout,
            output_schema=self._judge.schema,
            memo=self._memo,
        )

    async def _judged(self, reply: ModelReply) -> ModelReply:
        try:
            return await self._judge.judged(reply)
        except asyncio.CancelledError:
            if not self._port.stopping():
                raise
            return reply  # the run ends as cancelled, with its text

    async def _prepared(
        self, index: int, request: LLMRequest, steps: Sequence[AgentStep]
    ) -> tuple[AgentLLM, LLMRequest]:
        assert self._options.prepare_step is not None
        prepared = self._options.prepare_step(index, request, tuple(steps))
        if inspect.isawaitable(prepared):
            prepared = await prepared
        if isinstance(prepared, LLMRequest):
            return self._llm, prepared
        llm, request = prepared
        return with_attempts(llm, self._options), request

    def _settled(self, result: LLMResult, started: float) -> LLMResult:
        """The result with the message's ids and stop reason as they were told, and its latency."""
        message = result.message
        if message.tool_calls:
            message = self._named(self._deltas.call_ids.settled(message))
        id = self._deltas.message_id or message.id
        if message.id != id or message.stop_reason != result.stop_reason:
            message = replace(message, id=id, stop_reason=result.stop_reason)
        if message is result.message and result.latency_ms:
            return result
        latency = result.latency_ms or round((perf_counter() - started) * 1000)
        return replace(result, message=message, latency_ms=latency)

    def _named(self, message: AssistantMessage) -> AssistantMessage:
        """The same, each call by the name of the tool that it means: who executes it may be elsewhere."""
        calls = message.tool_calls
        if all(self._tools.has(call.name) for call in calls):
            return message
        meant = [self._tools.named(call.name) for call in calls]
        named = [c if t is None else replace(c, name=t.name) for c, t in zip(calls, meant, strict=True)]
        return replace(message, tool_calls=named)


def with_attempts(llm: AgentLLM, options: LoopOptions) -> AgentLLM:
    """Return the model under the one attempt loop, unless it brings its own."""
    if getattr(llm, "owns_attempts", False):
        return llm
    return Attempts([llm], AttemptPolicy(retries=options.retries))
