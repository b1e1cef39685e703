"""A run that is stopped, or fails: it ends once, and the next one of the thread works."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from playhead import AgentLoop, FatalToolError, tool
from playhead.errors import StoreError
from playhead.events import RunEnd
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from playhead.storage.ledger import Entry, Recorded
from playhead.storage.memory_ledger import MemoryLedger
from playhead.types import (
    AssistantMessage,
    LLMRequest,
    LLMResult,
    ToolCall,
)
from tests.session.models import CALLS, GateLLM, StrictLLM, YieldingLedger, loop_of
from tests.session.readers import all_of, terminals

pytestmark = pytest.mark.anyio


async def test_cancel_stops_the_run_and_keeps_what_was_said() -> None:
    """Q170, Q173: it has ended when cancel returns; partial text and a valid history stay."""
    llm = GateLLM("hello")
    async with Sessions(loop_of(llm)) as sessions:
        run = await sessions.start("t", "go")
        await llm.waiting.wait()
        await sessions.cancel(run.run_id)
        events = await all_of(sessions, run.run_id)
        assert isinstance(events[-1], RunEnd)
        assert (events[-1].result.finish_reason, events[-1].result.text) == ("cancelled", "he")
        assert [m.content for m in await sessions.history("t")] == ["go", "he"]
        await sessions.cancel(run.run_id)
        llm.gate.set()
        assert (await sessions.run("t", "on")).finish_reason == "final"


async def test_cancel_answers_the_open_calls() -> None:
    """Q170: a run stopped in the middle of a tool leaves a result for it."""
    begun = asyncio.Event()

    @tool
    async def forever() -> str:
        """Never return."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with Sessions(AgentLoop(StrictLLM(ToolCall("c", "forever", {})), tools=[forever])) as sessions:
        run = await sessions.start("t", "go")
        await begun.wait()
        await sessions.cancel(run.run_id)
        history = await sessions.history("t")
    assert [m.role for m in history] == ["user", "assistant", "tool"]
    assert "Cancelled" in str(history[-1].content)


async def test_a_run_that_waits_is_cancelled_at_once() -> None:
    """A message that was taken back before its turn came leaves no trace in the thread."""
    llm = GateLLM()
    async with Sessions(loop_of(llm)) as sessions:
        await sessions.start("t", "one")
        second = await sessions.start("t", "two")
        third = await sessions.start("t", "three")
        await llm.waiting.wait()
        await sessions.cancel(second.run_id)
        events = await all_of(sessions, second.run_id)
        assert [e.type for e in events] == ["run_start", "run_end"]
        assert isinstance(events[-1], RunEnd)
        assert events[-1].result.finish_reason == "cancelled"
        llm.gate.set()
        await all_of(sessions, third.run_id)
        assert [m.content for m in await sessions.history("t")] == ["one", "done", "three", "done"]


class Stubborn:
    """A model that will not be stopped: it swallows every cancellation until it is let go."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.begun = asyncio.Event()
        self.over = asyncio.Event()

    async def generate(self, request: LLMRequest, emit: Any = None) -> LLMResult:
        self.begun.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        self.over.set()
        return LLMResult(AssistantMessage("late"), "stop")


async def test_a_run_that_will_not_stop_is_given_up_within_the_bound() -> None:
    """Cancel and close are bounded; the run still ends once, and cannot write into the next turn."""
    llm = Stubborn()
    async with Sessions(loop_of(llm), stop_timeout=0.05) as sessions:
        run = await sessions.start("t", "one")
        await llm.begun.wait()
        async with asyncio.timeout(5):
            await sessions.cancel(run.run_id)
        events = await all_of(sessions, run.run_id)
        assert terminals(events) == ["run_end"]
        llm.release.set()
        assert (await sessions.run("t", "two")).text == "late"
        assert [m.content for m in await sessions.history("t")] == ["one", "two", "late"]
        assert await all_of(sessions, run.run_id) == events


class Slow(MemoryLedger):
    """A ledger whose commits take their time; `writing` is set while a step's is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = asyncio.Event()

    async def record(self, entry: Entry) -> Recorded:
        if any(step for _, step in entry.messages):
            self.writing.set()
            await asyncio.sleep(0.05)
        return await super().record(entry)


async def test_a_stop_while_what_was_said_is_written_is_a_stop() -> None:
    """Q170: it meets the run before its next effect, and is no error of it."""
    ledger = Slow()
    async with Sessions(loop_of(StrictLLM(*CALLS)), ledger) as sessions:
        run = await sessions.start("t", "go", message_id="m")
        await ledger.writing.wait()
        await sessions.cancel(run.run_id)
        end = (await all_of(sessions, run.run_id))[-1]
        assert isinstance(end, RunEnd)
        assert (end.result.finish_reason, end.result.error_code) == ("cancelled", None)
        history = await sessions.history("t")
    assert [m.role for m in history] == ["user", "assistant", "tool", "tool"]


async def test_closing_stops_every_run_with_its_last_event() -> None:
    """Leaving the context manager ends what runs and what waits, and takes no more."""
    llm = GateLLM()
    async with Sessions(loop_of(llm)) as sessions:
        runs = [await sessions.start(thread, "go") for thread in ("a", "a", "b")]
        readers = [asyncio.create_task(all_of(sessions, run.run_id)) for run in runs]
        await llm.waiting.wait()
    for reader in readers:
        events = await reader
        assert isinstance(events[-1], RunEnd)
        assert (terminals(events), events[-1].result.finish_reason) == (["run_end"], "cancelled")
    assert len(llm.seen) == 2, "what waited did not start"
    with pytest.raises(StoreError) as caught:
        await sessions.start("a", "more")
    assert caught.value.code == "stopping"
    await sessions.aclose()


async def test_waiting_for_a_run_may_end_before_the_run_does() -> None:
    """The caller's own time-out is no stop: the same message id finds the answer."""
    llm = GateLLM()
    async with Sessions(loop_of(llm)) as sessions:
        waiting = asyncio.create_task(sessions.run("t", "go", message_id="m"))
        await llm.waiting.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        llm.gate.set()
        assert (await sessions.run("t", "go", message_id="m")).text == "done"
    assert len(llm.seen) == 1


def raise_in_system(context: Any) -> str:
    raise KeyError("no such setting")


def raise_in_stop_when(steps: Any) -> bool:
    raise asyncio.CancelledError


class Full(MemoryLedger):
    """A disk that fills up once the question is written."""

    async def record(self, entry: Entry) -> Recorded:
        if any(step for _, step in entry.messages):
            raise StoreError("The disk is full.")
        return await super().record(entry)


@pytest.mark.parametrize(
    ("make", "text", "code", "steps"),
    [
        (lambda: Sessions(loop_of(StrictLLM(), system=raise_in_system)), "KeyError", "internal", 0),
        (
            lambda: Sessions(loop_of(StrictLLM(*CALLS), stop_when=raise_in_stop_when)),
            "CancelledError",
            "internal",
            1,
        ),
        (lambda: Sessions(loop_of(StrictLLM()), Full()), "The disk is full.", "store", 0),
    ],
    ids=["a callback raises", "a callback raises CancelledError", "the store fails"],
)
async def test_a_failing_run_still_ends_once(
    make: Callable[[], Sessions], text: str, code: str, steps: int
) -> None:
    """S2: whatever breaks in a run, it ends with one error, its finished steps kept, and the next may run."""
    async with make() as sessions:
        run = await sessions.start("t", "go", message_id="m1")
        waiting = await sessions.start("t", "next", message_id="m2")
        results = asyncio.gather(sessions.run("t", "go", message_id="m1"), sessions.run("t", "next"))
        for handle in (run, waiting):
            events = await all_of(sessions, handle.run_id)
            end = events[-1]
            assert isinstance(end, RunEnd)
            assert terminals(events) == ["run_end"]
            assert end.result.finish_reason == "error"
            assert text in (end.result.error_message or "")
            assert end.result.error_code == code
            assert "no such setting" not in str(end)
        for result in await results:
            assert len(result.steps) == steps
            assert result.messages[0].content in ("go", "next")


async def test_a_fatal_tool_ends_the_run_in_order() -> None:
    """S2: an end that the loop itself tells is not told again."""

    @tool
    async def bad() -> str:
        """Fail for good."""
        raise FatalToolError("broken for good")

    async with Sessions(AgentLoop(StrictLLM(ToolCall("c", "bad", {})), tools=[bad])) as sessions:
        run = await sessions.start("t", "go")
        events = await all_of(sessions, run.run_id)
    assert terminals(events) == ["run_end"]
    assert isinstance(events[-1], RunEnd)
    assert (events[-1].result.error_code, events[-1].result.error_message) == (
        "tool_fatal",
        "broken for good",
    )


def test_the_end_of_the_event_loop_ends_what_waits_too(store_url: str | None) -> None:
    """S2, Q242: all tasks are cancelled at once, and that is a shutdown: nothing new begins, and what was
    said is kept and told as not answered."""
    llm = GateLLM()

    async def begin() -> tuple[Any, list[str]]:
        place = MemoryLedger() if store_url is None else await open_database(store_url)
        sessions = Sessions(loop_of(llm), place)
        runs = [
            await sessions.start(thread, text) for thread in ("t", "u") for text in ("one", "two", "three")
        ]
        await llm.waiting.wait()
        return place, [run.run_id for run in runs]

    async def look(place: Any, run_ids: list[str]) -> None:
        async with Sessions(loop_of(StrictLLM()), place) as later:
            for run_id in run_ids:
                events = await all_of(later, run_id)
                assert isinstance(events[-1], RunEnd)
                assert (terminals(events), events[-1].result.finish_reason) == (["run_end"], "cancelled")
            for thread in ("t", "u"):
                said = [m.content for m in await later.history(thread) if m.role == "user"]
                assert said == ["one", "two", "three"]
        if store_url is not None:
            await place.aclose()

    place, run_ids = asyncio.run(begin())
    assert len(llm.seen) <= 2
    asyncio.run(look(place, run_ids))


async def test_a_run_that_something_else_cancels_ends_alone(store_url: str | None) -> None:
    """S2, Q242: of its thread the next begins, and the sessions take messages as before."""
    llm = GateLLM()
    async with Sessions(loop_of(llm), store_url) as sessions:
        first = await sessions.start("t", "one")
        second = await sessions.start("t", "two")
        await llm.waiting.wait()
        for task in asyncio.all_tasks():
            if task.get_name() == f"run {first.run_id}":
                task.cancel()
        llm.gate.set()
        for run, reason in ((first, "cancelled"), (second, "final")):
            events = await all_of(sessions, run.run_id)
            assert isinstance(events[-1], RunEnd)
            assert (terminals(events), events[-1].result.finish_reason) == (["run_end"], reason)
        for thread in ("t", "u"):
            assert (await sessions.run(thread, "three")).text == "done"


@pytest.mark.parametrize("how", ["cancel", "shutdown"])
async def test_a_run_stopped_at_any_moment_ends_once_and_leaves_a_usable_thread(how: str) -> None:
    """S17: after each number of rounds of the event loop; what was said stays, and the next run works."""
    stopped = 0
    for after in range(500):
        store = YieldingLedger()
        sessions = Sessions(loop_of(StrictLLM(*CALLS, reply="so")), store)
        run = await sessions.start("t", "first")
        for _ in range(after):
            await asyncio.sleep(0)
        over = not await sessions.open_runs("t")
        await (sessions.cancel(run.run_id) if how == "cancel" else sessions.aclose())
        events = await all_of(sessions, run.run_id)
        assert terminals(events) == [events[-1].type]
        async with Sessions(loop_of(StrictLLM(*CALLS, reply="well")), store) as later:
            assert (await later.run("t", "second")).text == "well"
        if over:
            break
        stopped += 1
    assert stopped > 20, "a run has many more awaits than that"


@pytest.mark.parametrize("kind", [RuntimeError, StoreError, asyncio.CancelledError])
async def test_a_fault_of_the_application_tells_no_secret(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 2, bad input: neither the log nor the run's end quotes a key or a path of the machine."""

    def system(context: Any) -> str:
        raise kind("api_key=canary-0123456789 of /srv/secret/place")

    async with Sessions(AgentLoop(GateLLM("x"), system=system)) as sessions:
        result = await sessions.run("t", "go")
    assert result.finish_reason == "error"
    for text in (result.error_message or "", caplog.text):
        assert text
        assert "canary" not in text
        assert "/srv/secret" not in text
    assert "in system" in caplog.text, "where it came from is said"
