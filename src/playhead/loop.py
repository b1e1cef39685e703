"""THE loop: model call, tool calls, model call, ... answer.

`run` is `stream` without a reader: both drive `run_on`, which works on a port (see `port.py`) and
is the only place where a turn is carried out. Tool failures are results that the model reads,
provider failures end the run with its finished steps kept, misuse raises.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from playhead.answers import NOT_RUN, Answered, Answers
from playhead.asking import Asking, System, with_attempts
from playhead.deltas import Deltas, EventQueue, Listener, Teller
from playhead.events import Event, RunEnd, RunPaused, RunStart, StepEnd, StepStart, UserMessageEvent
from playhead.limits import NOT_RUN_FOR_LIMIT, Limits
from playhead.llm.base import AgentLLM
from playhead.llm.records import total_usage
from playhead.options import LoopOptions
from playhead.output import Judge, Output
from playhead.port import Inbox, ModelReply, PlainPort, Port, id_base
from playhead.tools.registry import ToolRegistry
from playhead.types import (
    AgentRunResult,
    AgentStep,
    AssistantMessage,
    CallAnswer,
    ChatMessage,
    FinishReason,
    LLMResult,
    StopReason,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    Usage,
    UserMessage,
)

StopWhen = Callable[[Sequence[AgentStep]], bool]

_MAX_ERROR = 500
_NO_TOOLS = "Not run: no tools are to be called now. Answer with what is there."
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
        output_type: what the final text is to hold, as `playhead.output.Output` takes it. A text that
            does not is sent back with what is wrong, `LoopOptions.max_asks` times at most.
    """

    def __init__(
        self,
        llm: AgentLLM,
        *,
        tools: ToolRegistry | Sequence[ToolDefinition[..., Any]] = (),
        system: System | None = None,
        options: LoopOptions | None = None,
        stop_when: StopWhen | None = None,
        output_type: Any = None,
    ) -> None:
        self.options = options or LoopOptions()
        self.llm = with_attempts(llm, self.options)
        self.tools = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self.system = system
        self.stop_when = stop_when
        self.judge = Judge(None if output_type is None else Output(output_type), self.options.check)

    def with_tools(self, tools: ToolRegistry) -> "AgentLoop":
        """Return the same loop with other tools."""
        other = copy.copy(self)
        other.tools = tools
        return other

    async def run(
        self,
        input: str | Sequence[ChatMessage],
        *,
        context: Any = None,
        cancel: asyncio.Event | None = None,
        inbox: Inbox | None = None,
        answers: Sequence[CallAnswer] = (),
        turn_id: str | None = None,
        emit: Callable[[Event], Any] | None = None,
    ) -> AgentRunResult:
        """Carry out one turn.

        Args:
            input: the user's text, or the history with the new user message last.
            context: the application's own, handed to the tools untouched; what is in a `LiveContext`
                may become another while the run goes on.
            cancel: set it to stop the run; it then ends with `finish_reason "cancelled"`.
            inbox: messages put there are taken before the next model call.
            answers: to the `pending` calls of an earlier run, whose messages end the history.
            turn_id: that of the earlier run, so that both are one turn.
            emit: takes each event as it happens, deltas included; it must not block. This costs
                less than `stream`, which hands events over to another task.

        With a text as input, `messages` of the result begin with the user message made from it.
        A model failure is a result with `finish_reason "error"`, never an exception.
        """
        made, messages = _messages(input)
        port = PlainPort(
            messages,
            on_event=None if emit is None else Listener(emit),
            stream=emit is not None,
            cancel=cancel,
            inbox=inbox,
            answers=answers,
            turn_id=turn_id,
        )
        return await _Run(self, port, context, made).carry_out()

    async def stream(
        self,
        input: str | Sequence[ChatMessage],
        *,
        context: Any = None,
        cancel: asyncio.Event | None = None,
        inbox: Inbox | None = None,
        answers: Sequence[CallAnswer] = (),
        turn_id: str | None = None,
    ) -> AsyncIterator[Event]:
        """The same run, as events. The last is `run_end` or `run_paused`; closing the iterator ends it."""
        made, messages = _messages(input)
        queue = EventQueue()
        more: dict[str, Any] = {"inbox": inbox, "answers": answers, "turn_id": turn_id}
        port = PlainPort(messages, on_event=queue.put, stream=True, cancel=cancel, **more)
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
        self.asks = 0
        self.output: Any = None
        self.deltas = Deltas(port)
        self.tell = Teller(port)
        system = loop.system if isinstance(loop.system, str) else ""
        self.limits = Limits(loop.options, loop.tools.to_tool_schemas(), system)
        run = (port, self.deltas, context, self.limits, loop.judge)
        self.asking = Asking(loop.llm, loop.tools, loop.system, loop.options, run)
        self.answers = Answers(port, loop.tools, loop.options, self.deltas, context, self.tell)

    async def carry_out(self) -> AgentRunResult:
        self.messages = list(await self.port.history())
        if not self.port.quiet:
            await self.tell("start", RunStart(turn_id=self.port.turn_id))
        # Who shows a conversation knows a call by its id.
        asked = (m.tool_calls for m in self.messages if isinstance(m, AssistantMessage))
        self.deltas.call_ids.took(chain.from_iterable(asked))
        answered = await self.answers.to_open(self.messages)
        if answered is not None:
            ended = await self.after(answered)
            if ended is not None:
                return ended
        while self.index < self.options.max_steps:
            if self.port.stopping():
                return await self.finish("cancelled")
            self.index += 1
            self.tell.step = self.index
            ended = await self.step()
            if ended is not None:
                return ended
        if self.options.wrap_up and not self.port.stopping():
            self.index += 1
            self.tell.step = self.index
            ended = await self.step(closing=True)
            if ended is not None and ended.finish_reason in ("error", "cancelled"):
                return ended
        return await self.finish("max_steps")

    async def step(self, closing: bool = False) -> AgentRunResult | None:
        """One model call and its tools. The result, if the run ends here."""
        quiet = self.port.quiet
        if not quiet:
            await self.tell("step", StepStart())
        ask = partial(self.asking.ask, self.index, self.messages, self.steps, closing)
        reply = await self.port.step(f"{self.index}/model", ModelReply, ask)
        if reply.steer:
            for n, steer in enumerate(reply.steer):
                await self.tell(f"steer/{n}", UserMessageEvent(message=steer), steer)
            self.add(*reply.steer)
        if reply.result is None:
            if reply.cancelled:
                return await self.finish("cancelled")
            return await self.finish("error", reply.error or "The model call failed.", reply.error_code)
        result = reply.result
        message = result.message
        self.stop_reason = result.stop_reason
        self.usages.append(result.usage)
        self.limits.took(self.messages, result)
        self.add(message)
        answered = None
        if message.tool_calls:
            self.deltas.call_ids.took(message.tool_calls)
            answered = await self.answers.to(message, self.index, self.refusal(result, closing))
        step = self.close_step(result, answered.messages if answered else ())
        if not quiet:
            await self.tell("end", StepEnd(result=step), None if message.tool_calls else message)
        ended = await self.after(answered) if answered else None
        if ended is not None:
            return ended
        if reply.cancelled or self.port.stopping():
            return await self.finish("cancelled")
        if not message.tool_calls or result.stop_reason == "content_filter":
            ended = await self.finish_with(message, reply, closing)
            if ended is not None:
                return ended
        if closing:
            return None
        if self.limits.reached:
            return await self.finish("error", self.limits.reached, "limit")
        if self.loop.stop_when is not None and self.loop.stop_when(tuple(self.steps)):
            return await self.finish("stop")
        if reply.complaint is not None:
            await self.ask_again(reply.complaint)
        return None

    def refusal(self, result: LLMResult, closing: bool) -> str | None:
        """Why no call of this response may run, if none may."""
        if closing or self.options.tool_choice == "none":
            return _NO_TOOLS
        return NOT_RUN_FOR_LIMIT if self.limits.reached else NOT_RUN.get(result.stop_reason)

    async def after(self, answered: Answered) -> AgentRunResult | None:
        """The result, if what came of the calls ends the run."""
        self.add(*answered.messages)
        for reply in answered.replies:
            if reply.result.error is None:
                self.asking.executed = True
            elif reply.fatal:
                return await self.finish("error", reply.result.error, "tool_fatal")
        if answered.pending:
            return await self.finish("paused", pending=answered.pending)
        most, limit = self.answers.repeats.most, self.options.stop_on_repeat
        if limit is not None and most >= limit:
            text = f"The same call failed {most} times in the same way."
            return await self.finish("error", text, "repeated_tool_error")
        return None

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
            usage=result.usage,
        )
        self.steps.append(step)
        return step

    async def finish_with(
        self, message: AssistantMessage, reply: ModelReply, closing: bool
    ) -> AgentRunResult | None:
        """The result of a final text; None if the run goes on, because the text was not taken."""
        if not message.content.strip():
            text = _EMPTY.get(self.stop_reason or "", _EMPTY_PLAIN)
            return None if closing else await self.finish("error", text, "empty_answer")
        if reply.error is not None:
            return await self.finish("error", reply.error, reply.error_code)
        if reply.complaint is None:
            self.output = self.loop.judge.value(message.content)
            return None if closing else await self.finish("final")
        last = self.asks >= self.options.max_asks or self.index >= self.options.max_steps
        if closing or not (last or self.stop_reason == "content_filter"):
            return None
        text = f"None of {self.asks + 1} answers was taken. The last complaint: {reply.complaint}"
        return await self.finish("error", text[:_MAX_ERROR], "output_mismatch")

    async def ask_again(self, complaint: str) -> None:
        """Answer a text that was not taken with what is wrong."""
        self.asks += 1
        ask = UserMessage(complaint, id=f"{id_base(self.port)}/{self.index}/ask")
        await self.tell("ask", UserMessageEvent(message=ask), ask)
        self.add(ask)

    async def finish(
        self,
        reason: FinishReason,
        error: str | None = None,
        code: str | None = None,
        pending: Sequence[ToolCall] = (),
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
            usage=total_usage(self.usages),
            messages=tuple(self.new),
            pending=tuple(pending),
            output=self.output,
        )
        if not self.port.quiet:
            await self.tell("run_end", (RunPaused if reason == "paused" else RunEnd)(result=result))
        return result

    def add(self, *messages: ChatMessage) -> None:
        self.messages.extend(messages)
        self.new.extend(messages)


def _messages(input: str | Sequence[ChatMessage]) -> tuple[Sequence[ChatMessage], Sequence[ChatMessage]]:
    if isinstance(input, str):
        made = (UserMessage(input),)
        return made, made
    return (), input
