"""The calls of one step, answered: run side by side, or told why they were not run."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from playhead.deltas import Deltas, Teller, ToolLine
from playhead.errors import FatalToolError
from playhead.events import ToolCallEvent, ToolResultEvent
from playhead.options import LoopOptions
from playhead.port import OutcomeUnknown, Port, ToolReply, context_now, id_base
from playhead.tools.registry import ToolRegistry
from playhead.types import AssistantMessage, ChatMessage, ToolCall, ToolContext, ToolMessage, ToolResult
from playhead.waiting import denied, executed_by_client, left_open, waits

# A response that was cut may hold half of what the model meant: none of its calls run.
NOT_RUN = {
    "length": "Not run: the answer hit the output limit before it was complete. Send less in one call.",
    "content_filter": "Not run: the provider's content filter stopped the answer.",
    "interrupted": "Not run: the connection broke before the answer was complete. Call again if needed.",
}
# From the third identical failure on, the model is told that it repeats itself.
HINT_FROM = 3
_CANCELLED = "Cancelled: the run was stopped before this call finished."
_UNKNOWN = "Interrupted: it is unknown whether this call took effect. It was not run again."


class Answered(msgspec.Struct, frozen=True):
    """What came of the calls of a step: the replies, their messages, and the calls that wait."""

    replies: Sequence[ToolReply] = ()
    messages: Sequence[ToolMessage] = ()
    pending: Sequence[ToolCall] = ()


class Answers:
    """Answers the calls of a run, step by step."""

    def __init__(
        self,
        port: Port,
        tools: ToolRegistry,
        options: LoopOptions,
        deltas: Deltas,
        context: Any,
        tell: Teller,
    ) -> None:
        self._port = port
        self._ids = id_base(port)
        self._tools = tools
        self._options = options
        self._deltas = deltas
        self._given = context
        self._tell = tell
        self._limit: asyncio.Semaphore | None = None
        self.repeats = Repeats()

    @property
    def _context(self) -> Any:
        return context_now(self._given)

    async def to(self, message: AssistantMessage, step: int, refusal: str | None = None) -> Answered:
        """Answer each call of a message, in call order; with `refusal`, say only why it is not run.

        Each result is told as it lands. Calls that wait for somebody are left open.
        """
        calls = message.tool_calls
        if not self._port.quiet:
            for n, call in enumerate(calls):
                # The row of the message is written with its first call, before any tool starts.
                await self._tell(f"call/{n}", ToolCallEvent(call=call), message if n == 0 else None)
        if refusal is not None:
            told = [self.repeats.hinted(call, refused(call, refusal)) for call in calls]
            return self._answered(
                [await self._landed(step, n, call, told[n]) for n, call in enumerate(calls)]
            )
        if len(calls) == 1 and not waits(self._tools, calls[0], self._context):
            landed = await self._landing(step, 0, calls[0], self._start(step, 0, calls[0]))
            return self._answered((landed,))
        pending = [call for call in calls if waits(self._tools, call, self._context)]
        numbered = [(n, call) for n, call in enumerate(calls) if call not in pending]
        effects = [(n, call, self._start(step, n, call)) for n, call in numbered]
        return self._answered(await self._side_by_side(step, effects), pending)

    async def to_open(self, messages: Sequence[ChatMessage]) -> Answered | None:
        """Answer the calls that an earlier run of the turn left waiting, as step 0. None: there are none."""
        message, calls, spoke = left_open(messages)
        waiting = [call for call in calls if waits(self._tools, call, self._context)]
        if message is None or not waiting:
            return None
        given = {answer.call_id: answer for answer in self._port.answers}
        numbers = {call.id: n for n, call in enumerate(message.tool_calls)}
        pending: list[ToolCall] = []
        landed: list[Landed] = []
        effects: list[tuple[int, ToolCall, Any]] = []
        for call in waiting:
            n, answer = numbers[call.id], given.get(call.id)
            if answer is None and not spoke:
                pending.append(call)
            elif answer is not None and (tool := self._tools.named(call.name)) and tool.client:
                landed.append(await self._landed(0, n, call, executed_by_client(call, answer)))
            elif answer is not None and answer.approved is True:
                approved = call if answer.args is None else replace(call, args=answer.args)
                effects.append((n, approved, self._start(0, n, approved)))
            else:
                landed.append(await self._landed(0, n, call, denied(call, answer)))
        return self._answered([*landed, *await self._side_by_side(0, effects)], pending)

    def _answered(self, landed: Sequence["Landed"], pending: Sequence[ToolCall] = ()) -> Answered:
        if len(landed) == 1 and not self.repeats.watching and not landed[0][2].is_error:
            return Answered((landed[0][1],), (landed[0][2],), pending)
        if self.repeats.watching or any(told.is_error for _, _, told in landed):
            self.repeats.count([(call, reply) for call, reply, _ in landed])
        return Answered([reply for _, reply, _ in landed], [told for _, _, told in landed], pending)

    async def _side_by_side(self, step: int, effects: Sequence[tuple[int, ToolCall, Any]]) -> list["Landed"]:
        # The effects took their place in call order; only now do they start, side by side.
        self._limit = asyncio.Semaphore(self._options.parallel_tools)
        landings = [
            asyncio.ensure_future(self._landing(step, n, call, effect)) for n, call, effect in effects
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
        tool = self._tools.named(call.name)
        repeatable = tool is None or tool.replay != "never"
        effect = self._port.step if repeatable else self._port.once
        return effect(f"{step}/tool/{n}", ToolReply, partial(self._run, step, n, call))

    async def _landing(self, step: int, n: int, call: ToolCall, effect: Any) -> "Landed":
        outcome = await effect
        if isinstance(outcome, OutcomeUnknown):
            outcome = refused(call, _UNKNOWN)
        return await self._landed(step, n, call, self.repeats.hinted(call, outcome))

    async def _landed(self, step: int, n: int, call: ToolCall, reply: ToolReply) -> "Landed":
        result = reply.result
        message = ToolMessage(
            result.tool_call_id,
            result.name,
            result.text,
            result.error is not None,
            id=f"{self._ids}/{step}/{n + 1}",
        )
        if not self._port.quiet:
            await self._tell(f"tool/{n}", ToolResultEvent(result=result), message)
        return call, reply, message

    async def _run(self, step: int, n: int, call: ToolCall) -> ToolReply:
        port = self._port
        seconds = self._options.tool_timeout
        line = ToolLine(port, self._deltas, call.id)
        key = f"{self._ids}/{step}/{n}"
        whose = (port.tenant, port.turn_id)
        context = ToolContext(self._context, call.id, key, line.progress, line.is_cancelled, *whose)
        try:
            if self._limit is None:
                return ToolReply(await self._tools.execute(call, context, timeout=seconds))
            async with self._limit:
                return ToolReply(await self._tools.execute(call, context, timeout=seconds))
        except FatalToolError as error:
            return refused(call, str(error) or type(error).__name__, fatal=True)
        except asyncio.CancelledError:
            if not port.stopping():
                raise
            return refused(call, _CANCELLED)
        finally:
            line.over = True


Landed = tuple[ToolCall, ToolReply, ToolMessage]


class Repeats:
    """Notices a call that fails again and again in the same way, and tells the model so."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, bytes], tuple[str, int]] = {}
        self.most = 0

    @property
    def watching(self) -> bool:
        """Has anything failed that may fail again?"""
        return bool(self._last)

    def hinted(self, call: ToolCall, reply: ToolReply) -> ToolReply:
        """Return the reply, with a hint from the third identical failure on."""
        text = reply.result.error
        if text is None:
            return reply
        before, times = self._last.get(_key(call), ("", 0))
        if before != text or times + 1 < HINT_FROM:
            return reply
        hint = f"{text} This same call has now failed {times + 1} times in the same way: do something else."
        return ToolReply(replace(reply.result, error=hint, text=hint), reply.fatal)

    def count(self, landed: Sequence[tuple[ToolCall, ToolReply]]) -> None:
        """Take the outcomes of a step. Counted between steps, so that a replay counts the same."""
        for call, reply in landed:
            text = reply.result.error
            if text is None:
                self._last.pop(_key(call), None)
                continue
            before, times = self._last.get(_key(call), ("", 0))
            same = bool(before) and text.startswith(before)
            self._last[_key(call)] = (before if same else text, times + 1 if same else 1)
        self.most = max((times for _, times in self._last.values()), default=0)


def _key(call: ToolCall) -> tuple[str, bytes]:
    return call.name, msgspec.json.encode(call.args, order="sorted")


def refused(call: ToolCall, text: str, *, fatal: bool = False) -> ToolReply:
    """The reply to a call that has no result of its own."""
    return ToolReply(ToolResult(call.id, call.name, error=text, text=text), fatal)
