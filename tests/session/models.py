"""Models for what no wire can time: they answer by script and refuse a history that is not valid."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from playhead import AgentLoop, tool
from playhead.events import EmitDelta, TextDelta
from playhead.ids import new_id, now_ms
from playhead.session.feed import Feed
from playhead.session.port import StoredPort
from playhead.storage.ledger import Entry, Ledger, Recorded, RunRow
from playhead.storage.memory_ledger import MemoryLedger
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    LLMResult,
    Replay,
    SystemMessage,
    ToolCall,
    ToolContext,
    ToolMessage,
    UserMessage,
)

Answer = Callable[[LLMRequest, EmitDelta | None], Any]


def assert_valid(messages: Sequence[ChatMessage]) -> None:
    """What every provider asks for: each call answered, in order, before anything else is said."""
    open_ids: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert open_ids, f"result without a call: {message}"
            assert message.tool_call_id == open_ids.pop(0)
        else:
            assert not open_ids, f"calls without results before {message}"
            assert not isinstance(message, SystemMessage)
            if isinstance(message, AssistantMessage):
                assert message.content or message.tool_calls
                open_ids = [call.id for call in message.tool_calls]
    assert not open_ids
    assert isinstance(messages[0], UserMessage)


class StrictLLM:
    """Answers `reply` or, with `calls`, first asks for them. Awaits between all that it does."""

    def __init__(self, *calls: ToolCall, reply: str = "done") -> None:
        self.calls = calls
        self.reply = reply
        self.seen: list[list[ChatMessage]] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        assert_valid(request.messages)
        self.seen.append(list(request.messages))
        await asyncio.sleep(0)
        if self.calls and isinstance(request.messages[-1], UserMessage):
            return LLMResult(AssistantMessage("", self.calls), "tool_calls")
        for piece in self.reply:
            if emit is not None:
                emit(TextDelta(piece))
            await asyncio.sleep(0)
        return LLMResult(AssistantMessage(self.reply), "stop")


class GateLLM:
    """Says `reply` once `gate` is set; `waiting` is set while it waits."""

    def __init__(self, reply: str = "done") -> None:
        self.reply = reply
        self.gate = asyncio.Event()
        self.waiting = asyncio.Event()
        self.seen: list[list[ChatMessage]] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        assert_valid(request.messages)
        self.seen.append(list(request.messages))
        if emit is not None:
            emit(TextDelta(self.reply[:2]))
        self.waiting.set()
        await self.gate.wait()
        if emit is not None:
            emit(TextDelta(self.reply[2:]))
        return LLMResult(AssistantMessage(self.reply), "stop")


class YieldingLedger(MemoryLedger):
    """A ledger that takes its time, as one on a disk does: whoever waits for it can be interrupted."""

    async def accept(self, *args: Any, **named: Any) -> RunRow:
        await asyncio.sleep(0)
        row = await super().accept(*args, **named)
        await asyncio.sleep(0)
        return row

    async def record(self, entry: Entry) -> Recorded:
        await asyncio.sleep(0)
        recorded = await super().record(entry)
        await asyncio.sleep(0)
        return recorded

    async def run(self, *args: Any, **named: Any) -> RunRow | None:
        await asyncio.sleep(0)
        return await super().run(*args, **named)


def new_run(message: UserMessage, thread_id: str = "t") -> RunRow:
    """A run that nobody has accepted yet."""
    return RunRow(new_id(), new_id(), thread_id, message=message, created_at=now_ms())


async def new_port(ledger: Ledger, message: UserMessage, **named: Any) -> StoredPort:
    """The port of a run that was accepted."""
    return StoredPort(ledger, await ledger.accept(new_run(message)), Feed(), **named)


async def shown(ledger: Ledger, run_id: str | None = None) -> list[str]:
    """The types of the events that were recorded in the thread `t`."""
    return [row.type for row in (await ledger.events.after("t", 0, run_id=run_id)).rows]


@tool
async def quick(a: int) -> int:
    """Return the number."""
    await asyncio.sleep(0)
    return a


@tool
async def slow(a: int) -> int:
    """Return the number, later."""
    for _ in range(5):
        await asyncio.sleep(0)
    return a


class Holding:
    """A tool, `hold`, that says when it has begun, and waits to be let go. `keys` are those it was given."""

    def __init__(self, replay: Replay = "never") -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.keys: list[str] = []

        async def hold(context: ToolContext) -> str:
            """Wait."""
            self.keys.append(context.idempotency_key)
            self.begun.set()
            await self.go_on.wait()
            return "held"

        self.tool = tool(hold, replay=replay)


CALLS = (ToolCall("c1", "slow", {"a": 1}), ToolCall("c2", "quick", {"a": 2}))


def loop_of(llm: Any, **more: Any) -> AgentLoop:
    return AgentLoop(llm, tools=[quick, slow], **more)
