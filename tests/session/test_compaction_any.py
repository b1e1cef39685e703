"""Whatever happens in a thread that is summarised: the history is valid and the log is whole."""

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead import AgentLoop, Compaction, Sessions, tool
from playhead.errors import LLMError
from playhead.events import EmitDelta
from playhead.llm.history import NO_RESULT, normalise
from playhead.storage.memory_ledger import MemoryLedger
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    LLMResult,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.session.models import assert_valid
from tests.support.invariants import assert_paired


@tool
async def look(a: int = 1) -> str:
    """Look."""
    return "seen " * 20


@tool(approval=True)
async def pay(a: int = 1) -> str:
    """Pay."""
    return "paid"


class Player:
    """Does what the text says: `calls` tools side by side, then, perhaps, one that must be approved."""

    def __init__(self, faults: list[AssertionError]) -> None:
        self.faults = faults
        self.seen: list[list[ChatMessage]] = []
        self.number = 0

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        shown = normalise(request.messages)
        try:
            assert_valid(shown)
            assert_paired(shown)
        except AssertionError as fault:  # the loop would make an error of the model of it
            self.faults.append(fault)
        self.seen.append(shown)
        last = shown[-1]
        calls = []
        if isinstance(last, UserMessage) and str(last.content).startswith("do"):
            _, count, asks, _ = str(last.content).split(" ", 3)
            names = ["look"] * int(count) + ["pay"] * int(asks)
            # The ids come again and again, as those of some providers do.
            calls = [ToolCall(f"call{n}", name, {"a": n}) for n, name in enumerate(names)]
        self.number += 1
        text = f"answer {self.number} " + "y" * 60
        return LLMResult(AssistantMessage("" if calls else text, calls), "tool_calls" if calls else "stop")


class Writer:
    """Writes summaries, some of the time."""

    def __init__(self, outcomes: list[bool], faults: list[AssertionError]) -> None:
        self.outcomes = outcomes
        self.faults = faults
        self.calls = 0
        self.owns_attempts = True

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.calls += 1
        try:
            self.read(str(request.messages[0].content))
        except AssertionError as fault:
            self.faults.append(fault)
        await asyncio.sleep(0)
        if self.outcomes and not self.outcomes.pop():
            raise LLMError("no")
        return LLMResult(AssistantMessage(f"summary {self.calls}"))

    def read(self, text: str) -> None:
        """Pairs are whole in what is summarised, and nobody waits for an answer in it."""
        entries = msgspec.json.decode(text)["conversation"]
        assert entries
        assert sum(len(e.get("calls", ())) for e in entries) == sum(e["role"] == "tool" for e in entries)
        assert NO_RESULT not in str(entries)


said = st.tuples(st.just("say"), st.integers(0, 3), st.integers(0, 2), st.integers(0, 300))
plans = st.lists(
    st.one_of(
        said,
        said,
        said,
        st.tuples(st.just("answer"), st.booleans()),
        st.tuples(st.just("edit"), st.integers(0, 30)),
        st.just(("retry",)),
        st.just(("fork",)),
    ),
    min_size=12,
    max_size=30,
)


async def do(sessions: Sessions, thread: str, n: int, action: tuple[Any, ...]) -> str:
    """Carry out an action and wait for its end; return the thread that it goes on in."""
    kind, *given = action
    history = await sessions.history(thread)
    if kind == "say":
        calls, asks, size = given
        run = await sessions.start(thread, f"do {calls} {asks} {n} " + "x" * size)
    elif kind == "fork" and history:
        return await sessions.fork(thread)
    elif kind == "retry" and history:
        run = await sessions.retry(thread)
    elif kind == "edit" and history:
        mine = [message for message in history if isinstance(message, UserMessage)]
        run = await sessions.edit(thread, mine[given[0] % len(mine)].id, f"do 1 0 {n} edited")
    elif kind == "answer" and (waiting := await sessions.pending(thread)):
        for run_id, call in waiting:
            run = await sessions.answer(run_id, call.call.id, approved=given[0])
            async for _ in sessions.events(run.run_id):
                pass
        return thread
    else:
        return thread
    async for _ in sessions.events(run.run_id):
        pass
    return thread


async def check(ledger: MemoryLedger, thread: str, shown: list[ChatMessage]) -> None:
    """A summary ends where a turn does, and what is shown begins where one begins."""
    rows = await ledger.turns.window(thread, turns=None)
    summary = await ledger.summaries.last(thread)
    through = 0 if summary is None else summary.through_seq
    covered = {row.turn_id for row in rows if row.seq <= through}
    assert not covered & {row.turn_id for row in rows if row.seq > through}
    if not shown:
        return
    turns = {row.message.id: row.turn_id for row in rows}
    texts = [m for m in shown if not str(m.id).startswith("summary/")]
    assert isinstance(texts[0], UserMessage)
    first = next((row for row in rows if row.id == texts[0].id), None)
    if first is not None:
        assert next(row for row in rows if row.turn_id == first.turn_id).id == first.id
        assert first.turn_id not in covered
    assert not covered & {turns[m.id] for m in texts if m.id in turns and not isinstance(m, ToolMessage)}


@settings(deadline=None, max_examples=60)
@given(plans, st.lists(st.booleans()), st.integers(1, 100), st.integers(1, 2), st.none() | st.just(150))
def test_any_thread_stays_valid_and_whole(
    plan: list[tuple[Any, ...]], outcomes: list[bool], above: int, keep: int, tokens: int | None
) -> None:
    """S17, Q190, Q191, Q197, Q206, Q209: turns with groups of calls, open approvals, edits and forks."""

    async def play() -> None:
        faults: list[AssertionError] = []
        ledger, player, writer = MemoryLedger(), Player(faults), Writer(outcomes, faults)
        options = Compaction(writer, above_tokens=above, keep_turns=keep, chunk_tokens=1_000, rest=0.0)
        more: dict[str, Any] = {"window": 3, "window_tokens": tokens, "compaction": options}
        log: dict[tuple[str, str], bytes] = {}
        async with Sessions(AgentLoop(player, tools=[look, pay]), ledger, **more) as sessions:
            thread = "t"
            for n, action in enumerate(plan):
                asked, seen = writer.calls, len(player.seen)
                thread = await do(sessions, thread, n, action)
                assert faults == []
                assert writer.calls - asked <= max(1, len(action))
                for turns in ledger.turns._threads.values():
                    for row in turns.by_id.values():
                        data = msgspec.json.encode(row)
                        assert log.setdefault((row.thread_id, row.id), data) == data
                held = {(r.thread_id, r.id) for t in ledger.turns._threads.values() for r in t.by_id.values()}
                assert held == log.keys()
                if len(player.seen) > seen and action[0] != "fork":
                    await check(ledger, thread, player.seen[-1])
            assert not [m for m in await sessions.history("t") if str(m.id).startswith("summary/")]

    asyncio.run(play())
