"""The calls of one step, answered: run side by side, or told why they were not run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from playhead.deltas import Deltas, ToolLine
from playhead.errors import FatalToolError
from playhead.events import Event, ToolCallEvent, ToolResultEvent
from playhead.options import LoopOptions
from playhead.port import OutcomeUnknown, Port, ToolReply
from playhead.tools.registry import ToolRegistry
from playhead.types import AssistantMessage, ChatMessage, ToolCall, ToolContext, ToolMessage, ToolResult

Emit = Callable[[str, Event, ChatMessage | None], Awaitable[None]]

# A response that was cut may hold half of what the model meant: none of its calls run.
NOT_RUN = {
    "length": "Not run: the answer hit the output limit before it was complete. Send less in one call.",
    "content_filter": "Not run: the provider's content filter stopped the answer.",
    "interrupted": "Not run: the connection broke before the answer was complete. Call again if needed.",
}
_CANCELLED = "Cancelled: the run was stopped before this call finished."
_UNKNOWN = "Interrupted: it is unknown whether this call took effect. It was not run again."


class Answers:
    """Answers the calls of a run, step by step."""

    def __init__(
        self, port: Port, tools: ToolRegistry, options: LoopOptions, deltas: Deltas, context: Any, emit: Emit
    ) -> None:
        self._port = port
        self._tools = tools
        self._options = options
        self._deltas = deltas
        self._context = context
        self._emit = emit
        self._limit: asyncio.Semaphore | None = None

    async def to(
        self, message: AssistantMessage, step: int, refusal: str | None = None
    ) -> tuple[list[ToolReply], list[ToolMessage]]:
        """Answer each call of a message, in call order; with `refusal`, say only why it is not run.

        Each result is told as it lands.
        """
        calls = message.tool_calls
        if not self._port.quiet:
            for n, call in enumerate(calls):
                # The row of the message is written with its first call, before any tool starts.
                await self._emit(f"call/{n}", ToolCallEvent(call=call), message if n == 0 else None)
        if refusal is not None:
            landed = [await self._landed(step, n, refused(call, refusal)) for n, call in enumerate(calls)]
        elif len(calls) == 1:
            landed = [await self._landing(step, 0, calls[0], self._start(step, 0, calls[0]))]
        else:
            landed = await self._side_by_side(step, calls)
        return [reply for reply, _ in landed], [told for _, told in landed]

    async def _side_by_side(
        self, step: int, calls: Sequence[ToolCall]
    ) -> list[tuple[ToolReply, ToolMessage]]:
        self._limit = asyncio.Semaphore(self._options.parallel_tools)
        # Effects take their place in call order; only then do they start side by side.
        effects = [self._start(step, n, call) for n, call in enumerate(calls)]
        landings = [
            asyncio.ensure_future(self._landing(step, n, call, effect))
            for n, (call, effect) in enumerate(zip(calls, effects, strict=True))
        ]
        try:
            return await asyncio.gather(*landings)
        except BaseException:
            # When one raises, or we are cancelled, none is left running.
            for landing in landings:
                landing.cancel()
            await asyncio.wait(landings)
            raise
        finally:
            self._limit = None

    def _start(self, step: int, n: int, call: ToolCall) -> Any:
        tools = self._tools
        repeatable = not tools.has(call.name) or tools.get(call.name).replay != "never"
        effect = self._port.step if repeatable else self._port.once
        return effect(f"{step}/tool/{n}", ToolReply, partial(self._run, step, n, call))

    async def _landing(self, step: int, n: int, call: ToolCall, effect: Any) -> tuple[ToolReply, ToolMessage]:
        outcome = await effect
        if isinstance(outcome, OutcomeUnknown):
            outcome = refused(call, _UNKNOWN)
        return await self._landed(step, n, outcome)

    async def _landed(self, step: int, n: int, reply: ToolReply) -> tuple[ToolReply, ToolMessage]:
        result = reply.result
        message = ToolMessage(
            result.tool_call_id,
            result.name,
            result.text,
            result.error is not None,
            id=f"{self._port.turn_id}/{step}/{n + 1}",
        )
        if not self._port.quiet:
            await self._emit(f"tool/{n}", ToolResultEvent(result=result), message)
        return reply, message

    async def _run(self, step: int, n: int, call: ToolCall) -> ToolReply:
        port = self._port
        line = ToolLine(port, self._deltas, call.id)
        key = f"{port.turn_id}/{step}/{n}"
        context = ToolContext(self._context, call.id, key, line.progress, line.is_cancelled)
        try:
            if self._limit is None:
                return ToolReply(await self._execute(call, context))
            async with self._limit:
                return ToolReply(await self._execute(call, context))
        except FatalToolError as error:
            return refused(call, str(error) or type(error).__name__, fatal=True)
        except asyncio.CancelledError:
            if not port.stopping():
                raise
            return refused(call, _CANCELLED)
        finally:
            line.over = True

    def _execute(self, call: ToolCall, context: ToolContext) -> Awaitable[ToolResult]:
        return self._tools.execute(call, context, timeout=self._options.tool_timeout)


def refused(call: ToolCall, text: str, *, fatal: bool = False) -> ToolReply:
    """The reply to a call that has no result of its own."""
    return ToolReply(ToolResult(call.id, call.name, error=text, text=text), fatal)
