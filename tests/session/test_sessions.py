"""Threads and runs as a server or a program uses them."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from playhead import AgentLoop, FatalToolError, connect, tool
from playhead.errors import ConfigError, StoreError
from playhead.events import Event, RunEnd, RunStart, TextDelta
from playhead.session.sessions import Sessions
from playhead.storage.memory import MemoryTurnStore
from playhead.types import (
    AgentContext,
    AssistantMessage,
    LLMRequest,
    LLMResult,
    TextPart,
    ToolCall,
    ToolContext,
    UserMessage,
)
from tests.session.models import CALLS, GateLLM, StrictLLM, loop_of
from tests.support.fake_provider import FakeProvider, openai_sse

pytestmark = pytest.mark.anyio


async def all_of(sessions: Sessions, run_id: str, **named: Any) -> list[Event]:
    async with asyncio.timeout(10):
        return [event async for event in sessions.events(run_id, **named)]


def terminals(events: list[Event]) -> list[str]:
    return [event.type for event in events if event.type in ("run_end", "run_paused")]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_a_message_is_answered_and_remembered() -> None:
    """S1: the history is loaded, the turn recorded, over a provider in raw bytes."""
    async with FakeProvider(
        openai_sse(calls=[("quick", {"a": 2}, "c1")]),
        openai_sse("It is ", "two."),
        openai_sse("As I said: two."),
    ) as server:
        loop = loop_of(connect("openai-compatible", "m", "k", f"{server.url}/v1"))
        async with Sessions(loop) as sessions:
            result = await sessions.run("user-42", "how many?")
            again = await sessions.run("user-42", [TextPart("really?")])
            history = await sessions.history("user-42")
        roles = [m["role"] for m in server.requests[2].json["messages"]]
    assert (result.finish_reason, result.text) == ("final", "It is two.")
    assert again.text == "As I said: two."
    assert result.turn_id != again.turn_id
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert [m.role for m in history] == [*roles, "assistant"]
    assert list(result.messages) == list(history[:4])


async def test_the_context_reaches_the_tools() -> None:
    """S6: what is given to `run` is what a tool gets."""
    seen: list[Any] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context.context)
        return "ok"

    context = AgentContext(project_id="p")
    async with Sessions(AgentLoop(StrictLLM(ToolCall("c", "look", {})), tools=[look])) as sessions:
        await sessions.run("t", "go", context=context)
    assert seen == [context]


async def test_a_run_is_followed_live_and_replayed_the_same() -> None:
    """A reader at the start and one after the end get the same run, each up to its only end."""
    async with Sessions(loop_of(StrictLLM(*CALLS, reply="hello"))) as sessions:
        run = await sessions.start("t", "go")
        live = await all_of(sessions, run.run_id)
        late = await all_of(sessions, run.run_id)
    for events in (live, late):
        assert isinstance(events[0], RunStart)
        assert (events[0].turn_id, events[0].run_id) == (run.turn_id, run.run_id)
        assert (terminals(events), events[-1].type) == (["run_end"], "run_end")
        assert text_of(events) == "hello"
    assert len([e for e in live if isinstance(e, TextDelta)]) == 5
    assert len([e for e in late if isinstance(e, TextDelta)]) == 1
    assert [e for e in live if not isinstance(e, TextDelta)] == [
        e for e in late if not isinstance(e, TextDelta)
    ]


async def test_who_joins_in_mid_step_gets_the_text_so_far_as_one_delta() -> None:
    """A late reader misses nothing and gets nothing twice; offsets count the characters before."""
    llm = GateLLM("hello")
    async with Sessions(loop_of(llm)) as sessions:
        run = await sessions.start("t", "go")
        await llm.waiting.wait()
        reader = asyncio.create_task(all_of(sessions, run.run_id))
        await asyncio.sleep(0)
        llm.gate.set()
        deltas = [e for e in await reader if isinstance(e, TextDelta)]
    assert [(d.offset, d.text) for d in deltas] == [(0, "he"), (2, "llo")]
    assert len({d.message_id for d in deltas}) == 1


async def test_a_reader_that_stops_reading_or_leaves_changes_nothing() -> None:
    """A disconnect is not a stop, and a slow reader holds nobody up (Q208)."""
    async with Sessions(loop_of(StrictLLM(*CALLS, reply="x" * 3_000))) as sessions:
        run = await sessions.start("t", "go")
        stalled = sessions.events(run.run_id)
        assert isinstance(await anext(stalled), RunStart)
        async with aclosing(sessions.events(run.run_id)) as leaving:
            async for _ in leaving:
                break
        waiting = asyncio.create_task(all_of(sessions, run.run_id))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        result = await sessions.run("t", "and now?")
        assert result.finish_reason == "final"
        rest = [event async for event in stalled]
    assert terminals(rest) == ["run_end"]
    assert text_of(rest) == "x" * 3_000
    assert len([e for e in rest if isinstance(e, TextDelta)]) == 1


async def test_messages_of_a_thread_are_answered_in_order_and_none_is_dropped() -> None:
    """One active run per thread; what comes meanwhile waits; other threads do not (Q244)."""
    llm = GateLLM()
    async with Sessions(loop_of(llm)) as sessions:
        first = await sessions.start("t", "m0")
        rest = [await sessions.start("t", f"m{n}") for n in range(1, 6)]
        other = await sessions.start("other", "hi")
        assert sessions.active_run("t") == first
        await llm.waiting.wait()
        await asyncio.sleep(0)
        assert len(llm.seen) == 2
        llm.gate.set()
        for run in [first, *rest, other]:
            assert terminals(await all_of(sessions, run.run_id)) == ["run_end"]
        history = await sessions.history("t")
        assert sessions.active_run("t") is None
    assert [m.content for m in history] == [x for n in range(6) for x in (f"m{n}", "done")]


async def test_the_same_message_again_is_the_same_run() -> None:
    """Sent twice, said once: while it runs, when it is over, and by one id in two threads."""
    llm = GateLLM()
    async with Sessions(loop_of(llm)) as sessions:
        run = await sessions.start("t", "pay", message_id="m1")
        assert await sessions.start("t", "pay", message_id="m1") == run
        assert await sessions.start("t", UserMessage("pay", id="m1")) == run
        elsewhere = await sessions.start("u", "pay", message_id="m1")
        assert elsewhere.run_id != run.run_id
        llm.gate.set()
        results = [await sessions.run("t", "pay", message_id="m1") for _ in range(2)]
        assert results[0] is results[1]
        assert len(await sessions.history("t")) == 2
        await all_of(sessions, elsewhere.run_id)
    assert len(llm.seen) == 2


async def test_the_same_message_is_harmless_when_its_run_is_forgotten() -> None:
    """The thread still knows the message: it is neither said nor answered again."""
    llm = StrictLLM(*CALLS)
    async with Sessions(loop_of(llm), keep_runs=0) as sessions:
        first = await sessions.run("t", "pay", message_id="m1")
        calls = len(llm.seen)
        again = await sessions.run("t", "pay", message_id="m1")
        assert len(await sessions.history("t")) == 5
    assert len(llm.seen) == calls
    assert (again.turn_id, again.text, again.finish_reason) == (first.turn_id, "done", "final")
    assert {m.id for m in again.messages} == {m.id for m in first.messages}


async def test_a_forgotten_message_without_an_answer_is_not_run_again() -> None:
    """What became of its tools is unknown: saying so is harmless, running them again is not."""
    store = MemoryTurnStore()
    await store.append("t", UserMessage("pay", id="m1"), turn_id="a")
    await store.append("t", AssistantMessage("", CALLS), turn_id="a", step_index=1)
    llm = StrictLLM()
    async with Sessions(loop_of(llm), store) as sessions:
        again = await sessions.run("t", "pay", message_id="m1")
        assert (await sessions.run("t", "and now?")).text == "done"
    assert (again.finish_reason, again.error_code) == ("error", "interrupted")
    assert len(llm.seen) == 1


async def test_finished_runs_are_forgotten() -> None:
    """Memory is bounded, by count and by age; what was said stays in the thread."""
    async with Sessions(loop_of(StrictLLM()), keep_runs=3) as sessions:
        runs = [await sessions.start(f"t{n % 2}", "hi") for n in range(8)]
        await asyncio.gather(*(all_of(sessions, run.run_id) for run in runs))
        known = [run for run in runs if _known(sessions, run.run_id)]
        assert len(known) == 3
        assert len(await sessions.history("t0")) == 8
    async with Sessions(loop_of(StrictLLM()), keep_for=0) as sessions:
        run = await sessions.start("t", "hi")
        await all_of(sessions, run.run_id)
        await sessions.run("u", "hi")
        assert not _known(sessions, run.run_id)


def _known(sessions: Sessions, run_id: str) -> bool:
    try:
        sessions.events(run_id)
    except StoreError:
        return False
    return True


async def test_a_reader_outlives_the_memory_of_its_run() -> None:
    """Being forgotten takes nothing from who is reading."""
    async with Sessions(loop_of(StrictLLM()), keep_runs=0) as sessions:
        run = await sessions.start("t", "hi")
        events = await all_of(sessions, run.run_id)
        assert not _known(sessions, run.run_id)
    assert terminals(events) == ["run_end"]


@pytest.mark.parametrize("tenants", [(None, "acme"), ("acme", None), ("acme", "other")])
async def test_tenants_never_see_each_other(tenants: tuple[str | None, str | None]) -> None:
    """S19: neither threads, nor runs, nor who is active."""
    mine, theirs = tenants
    llm = GateLLM()
    async with Sessions(loop_of(llm)) as sessions:
        run = await sessions.start("t", "secret", tenant=mine)
        assert sessions.active_run("t", tenant=theirs) is None
        with pytest.raises(StoreError) as caught:
            sessions.events(run.run_id, tenant=theirs)
        assert caught.value.code == "not_found"
        with pytest.raises(StoreError):
            await sessions.cancel(run.run_id, tenant=theirs)
        llm.gate.set()
        await sessions.run("t", "hi", tenant=theirs)
        assert len(await all_of(sessions, run.run_id, tenant=mine)) > 2
        assert [m.content for m in await sessions.history("t", tenant=theirs)] == ["hi", "done"]


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


class Full(MemoryTurnStore):
    """A disk that fills up once the question is written."""

    async def append(self, thread_id: str, message: Any, **named: Any) -> Any:
        if named.get("step_index"):
            raise StoreError("The disk is full.")
        return await super().append(thread_id, message, **named)


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
        run = await sessions.start("t", "go")
        waiting = await sessions.start("t", "next")
        for handle in (run, waiting):
            events = await all_of(sessions, handle.run_id)
            end = events[-1]
            assert isinstance(end, RunEnd)
            assert terminals(events) == ["run_end"]
            assert end.result.finish_reason == "error"
            assert text in (end.result.error_message or "")
            assert (end.result.error_code, len(end.result.steps)) == (code, steps)
            assert end.result.messages[0].content in ("go", "next")
            assert "no such setting" not in str(end)


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


async def test_the_end_of_the_event_loop_ends_what_waits_too() -> None:
    """A task cancelled from outside is a shutdown: nothing new begins."""
    llm = GateLLM()
    sessions = Sessions(loop_of(llm))
    first = await sessions.start("t", "one")
    second = await sessions.start("t", "two")
    await llm.waiting.wait()
    for task in asyncio.all_tasks():
        if task.get_name() == f"run {first.run_id}":
            task.cancel()
    for run in (first, second):
        events = await all_of(sessions, run.run_id)
        assert isinstance(events[-1], RunEnd)
        assert events[-1].result.finish_reason == "cancelled"
    assert len(llm.seen) == 1


async def test_of_progress_a_late_reader_gets_the_newest() -> None:
    """A tool that reports for hours does not fill the memory."""

    @tool
    async def long(context: ToolContext) -> str:
        """Take long."""
        for n in range(100):
            context.progress(n / 100, f"{n} %")
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "ok"

    async with Sessions(AgentLoop(StrictLLM(ToolCall("c", "long", {})), tools=[long])) as sessions:
        run = await sessions.start("t", "go")
        live = await all_of(sessions, run.run_id)
        late = await all_of(sessions, run.run_id)
    assert len([e for e in live if e.type == "tool_progress"]) > 50
    assert [e.text for e in late if e.type == "tool_progress"] == ["99 %"]


@pytest.mark.parametrize(
    ("thread", "message"), [("", "hi"), ("t", AssistantMessage("I said")), ("t", ToolCall)], ids=str
)
async def test_what_cannot_begin_a_run_is_refused(thread: str, message: Any) -> None:
    """A clear error, and the thread stays empty."""
    async with Sessions(loop_of(StrictLLM())) as sessions:
        with pytest.raises(StoreError) as caught:
            await sessions.start(thread, message)
        assert caught.value.code == "invalid"
        assert await sessions.history("t") == ()


@pytest.mark.parametrize("limit", ["window", "keep_runs", "keep_for", "stop_timeout"])
async def test_limits_out_of_range_are_refused(limit: str) -> None:
    """A setting that makes no sense is named."""
    limits: dict[str, Any] = {limit: -1}
    with pytest.raises(ConfigError, match=f"{limit} is -1"):
        Sessions(loop_of(StrictLLM()), **limits)


async def test_an_unknown_run_is_said_to_be_unknown() -> None:
    """`not_found`, for events and for cancel alike."""
    async with Sessions(loop_of(StrictLLM())) as sessions:
        with pytest.raises(StoreError, match="'nope'") as caught:
            sessions.events("nope")
        assert caught.value.code == "not_found"
        with pytest.raises(StoreError):
            await sessions.cancel("nope")
        assert sessions.active_run("nope") is None
        assert await sessions.history("nope") == ()
