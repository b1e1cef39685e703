"""Sessions as a state machine: whatever is done to a thread, in whichever order, nothing is lost."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from playhead import AgentLoop, tool
from playhead.errors import StoreError
from playhead.events import EmitDelta, TextDelta
from playhead.session.runs import RunHandle
from playhead.session.sessions import Sessions
from playhead.types import AssistantMessage, ChatMessage, LLMRequest, LLMResult, ToolCall, UserMessage
from tests.session.clients import Client
from tests.session.models import assert_valid
from tests.support.databases import STORES, new_url

T = TypeVar("T")


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def look() -> str:
    """Look."""
    return "seen"


class Parrot:
    """Does what the user says: `pay`, `look`, `hold` until it is stopped, or says it back."""

    provider = model = "parrot"

    def __init__(self) -> None:
        self.numbers = itertools.count()

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        open_calls = [m for m in request.messages if isinstance(m, AssistantMessage) and m.tool_calls]
        assert len({c.id for m in open_calls for c in m.tool_calls}) == sum(
            len(m.tool_calls) for m in open_calls
        )
        last = request.messages[-1]
        said = str(last.content)
        if isinstance(last, UserMessage) and said.startswith(("pay", "look")):
            name = said.split()[0]
            args = {"amount": 1} if name == "pay" else {}
            call = ToolCall(f"c{next(self.numbers)}", name, args)
            return LLMResult(AssistantMessage("", [call]), "tool_calls")
        for piece in ("I ", "heard ", said):
            if emit is not None:
                emit(TextDelta(piece))
            await asyncio.sleep(0)
        if said.startswith("hold"):
            await asyncio.Event().wait()
        return LLMResult(AssistantMessage(f"I heard {said}"), "stop")


class Machine(RuleBasedStateMachine):
    """Two threads, one reader of each that comes and goes, and a model of what must be there."""

    url: Callable[[], str | None]
    threads = ("a", "b")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.place = type(self).url()
        self.loop = AgentLoop(Parrot(), tools=[pay, look])
        self.numbers = itertools.count()
        self.said: dict[str, dict[str, str]] = {thread: {} for thread in self.threads}
        self.runs: dict[str, list[tuple[RunHandle, str]]] = {thread: [] for thread in self.threads}
        self.clients = {thread: Client() for thread in self.threads}
        self.sessions = self.do(self.open())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(20):
                return await work

        return self.runner.run(bounded())

    async def open(self) -> Sessions:
        sessions = Sessions(self.loop, self.place, flush_seconds=0.0, stop_timeout=1.0)
        await sessions.check()
        return sessions

    def teardown(self) -> None:
        self.do(self.sessions.aclose())
        self.runner.close()

    # ------------------------------------------------------------ what may be done

    @rule(
        thread=st.sampled_from(threads),
        text=st.sampled_from(["hi", "pay", "look", "hold"]),
        policy=st.sampled_from(["queue", "steer", "interrupt"]),
        wait=st.booleans(),
    )
    def say(self, thread: str, text: str, policy: Any, wait: bool) -> None:
        text = f"{text} {next(self.numbers)}"
        message_id = f"m-{text}"
        run = self.do(self.sessions.start(thread, text, message_id=message_id, policy=policy))
        self.said[thread][message_id] = text
        self.runs[thread].append((run, message_id))
        if wait and not any("hold" in said for said in self.said[thread].values()):
            self.do(self.until_over(run))

    async def until_over(self, run: RunHandle) -> None:
        async for _ in self.sessions.events(run.run_id):
            pass

    @precondition(lambda self: any(self.runs.values()))
    @rule(data=st.data())
    def say_again(self, data: st.DataObject) -> None:
        thread = data.draw(st.sampled_from([t for t in self.threads if self.runs[t]]))
        run, message_id = data.draw(st.sampled_from(self.runs[thread]))
        again = self.do(self.sessions.start(thread, "something else", message_id=message_id))
        row = self.do(self.sessions.find(run.run_id))
        assert again.run_id in (run.run_id, row.absorbed_by)

    @precondition(lambda self: any(self.runs.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        thread = data.draw(st.sampled_from([t for t in self.threads if self.runs[t]]))
        run, message_id = data.draw(st.sampled_from(self.runs[thread]))
        before = self.do(self.sessions.find(run.run_id)).state
        self.do(self.sessions.cancel(run.run_id))
        row = self.do(self.sessions.find(run.run_id))
        assert row.state in ("ended", "paused", "absorbed")
        if before == "queued" and row.finish_reason == "cancelled" and not row.first_seq:
            self.said[thread].pop(message_id, None)  # taken back before its turn

    @rule(thread=st.sampled_from(threads), approved=st.booleans())
    def answer(self, thread: str, approved: bool) -> None:
        for run_id, call in self.do(self.pending(thread)):
            args = {"args_hash": call.args_hash, "approved": approved}
            self.do(self.sessions.answer(run_id, call.call.id, **args))
            with pytest.raises(StoreError):
                self.do(self.sessions.answer(run_id, call.call.id, **args))

    async def pending(self, thread: str) -> Any:
        return await self.sessions.pending(thread)

    @rule(thread=st.sampled_from(threads), events=st.integers(1, 8))
    def read(self, thread: str, events: int) -> None:
        """Come back, read some, leave."""
        self.do(self.read_some(thread, events))

    async def read_some(self, thread: str, events: int) -> None:
        client = self.clients[thread]
        stream = self.sessions.shown_in(thread, after=client.id)
        try:
            for _ in range(events):
                async with asyncio.timeout(0.02):
                    client.take(await anext(stream))
        except (TimeoutError, StopAsyncIteration):
            pass
        finally:
            await stream.aclose()

    @rule(thread=st.sampled_from(threads))
    def fork(self, thread: str) -> None:
        history = self.do(self.history(thread))
        if history:
            copy = self.do(self.sessions.fork(thread, at=history[-1].id))
            assert [m.id for m in self.do(self.history(copy))][: len(history)] == [m.id for m in history]

    @rule(thread=st.sampled_from(threads))
    def delete(self, thread: str) -> None:
        self.do(self.sessions.delete(thread))
        assert self.do(self.history(thread)) == []
        self.said[thread] = {}
        self.runs[thread] = []
        # A client that was away goes on from where it was, in whatever comes next.
        left = self.clients[thread]
        self.clients[thread] = Client(left.id, left.seq)

    @precondition(lambda self: self.place is not None)
    @rule()
    def restart(self) -> None:
        """An orderly end: what runs is stopped, what waits is told as not answered, all is kept."""
        self.do(self.sessions.aclose())
        self.sessions = self.do(self.open())

    # ------------------------------------------------------------ what must hold

    async def history(self, thread: str) -> list[ChatMessage]:
        return list(await self.sessions.history(thread))

    @invariant()
    def every_message_is_there_once(self) -> None:
        for thread in self.threads:
            self.do(self.check(thread))

    async def check(self, thread: str) -> None:
        # First what waits: what begins meanwhile is then in the history.
        waiting = {r.message.id for r in await self.sessions.open_runs(thread) if r.message is not None}
        history = await self.history(thread)
        ids = [message.id for message in history]
        assert len(set(ids)) == len(ids)
        for message_id in self.said[thread]:
            assert (message_id in ids) or (message_id in waiting), f"{message_id} is lost"
        users = [m for m in history if isinstance(m, UserMessage)]
        assert all(m.id in self.said[thread] for m in users)

    def check_the_end(self) -> None:
        """Stopped, every thread is whole: each event once, in order; the next turn is accepted."""
        for thread in self.threads:
            for run, _ in self.runs[thread]:
                self.do(self.sessions.cancel(run.run_id))
            result = self.do(self.sessions.run(thread, "hi at last"))
            assert result.finish_reason == "final"
            self.do(self.check_events(thread))

    async def check_events(self, thread: str) -> None:
        late, last = Client(), await self.sessions.last_seq(thread)
        for client in (late, self.clients[thread]):
            stream = self.sessions.shown_in(thread, after=client.id)
            while client.seq < last:
                client.take(await anext(stream))
            await stream.aclose()
        assert [event["seq"] for event in late.recorded] == sorted({e["seq"] for e in late.recorded})
        assert self.clients[thread].recorded == late.recorded
        assert self.clients[thread].texts.items() >= {}.items()
        ends = [e for e in late.recorded if e["type"] in ("run_end", "run_paused")]
        assert len({e["runId"] for e in ends}) == len(ends), "a run ended twice"
        started = {e["runId"] for e in late.recorded if e["type"] == "run_start"}
        assert started == {e["runId"] for e in ends}, "a run did not end"
        assert_valid_pairs(await self.history(thread))


def assert_valid_pairs(history: list[ChatMessage]) -> None:
    from playhead.llm.history import normalise

    assert_valid(normalise(history))


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.timeout(240)
def test_whatever_is_done_to_threads_nothing_is_lost_or_doubled(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """I, Q193, Q206, Q212, Q220, Q241, Q242, Q244, Q248: start, send twice, steer, interrupt, disconnect,
    resume, cancel, answer, fork, delete, restart."""

    class Here(Machine):
        @staticmethod
        def url() -> str | None:
            return None if kind == "memory" else new_url(request, kind, tmp_path)

        def teardown(self) -> None:
            try:
                self.check_the_end()
            finally:
                super().teardown()

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples={"memory": 25, "sqlite": 15, "postgres": 8}[kind],
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
