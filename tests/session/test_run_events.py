"""The events of a run, for readers that come early, late, slowly, or leave."""

import asyncio
from contextlib import aclosing
from time import perf_counter

import pytest

from playhead import AgentLoop, tool
from playhead.errors import StoreError
from playhead.events import Attempt, RunStart, TextDelta, ToolCallDelta, ToolProgress
from playhead.session.feed import Feed
from playhead.session.sessions import Sessions
from playhead.session.shown import Shown
from playhead.storage.ledger import DEFAULT_PAGE
from playhead.types import (
    ToolCall,
    ToolContext,
)
from tests.session.models import CALLS, GateLLM, StrictLLM, loop_of
from tests.session.readers import all_of, terminals, text_of

pytestmark = pytest.mark.anyio


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
    assert len([e for e in live if isinstance(e, TextDelta)]) > 1
    assert len([e for e in late if isinstance(e, TextDelta)]) == 1
    # An attempt is not recorded: what it voids is not shown to who comes later.
    assert [e for e in live if not isinstance(e, TextDelta | Attempt)] == [
        e for e in late if not isinstance(e, TextDelta)
    ]


async def test_a_run_of_more_events_than_a_page_is_replayed_to_its_end(store_url: str | None) -> None:
    """The log is read in pages. Nothing but the log says that more follows: nobody writes any more."""
    calls = [ToolCall(f"c{n}", "quick", {"a": n}) for n in range(DEFAULT_PAGE // 2)]
    async with Sessions(loop_of(StrictLLM(*calls)), store_url) as sessions:
        await sessions.run("t", "go", message_id="m")
        run = await sessions.start("t", "go", message_id="m")
        late = await all_of(sessions, run.run_id)
        assert len(late) > DEFAULT_PAGE
        assert terminals(late) == ["run_end"]


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


async def test_a_reader_outlives_the_memory_of_its_run() -> None:
    """Being forgotten takes nothing from who is reading."""
    async with Sessions(loop_of(StrictLLM()), keep_runs=0) as sessions:
        run = await sessions.start("t", "hi")
        events = await all_of(sessions, run.run_id)
        await sessions.run("t", "again")
        with pytest.raises(StoreError):
            await all_of(sessions, run.run_id)
    assert terminals(events) == ["run_end"]


async def test_long_arguments_do_not_make_all_that_follows_dear() -> None:
    """Q206: what a feed has forgotten is not looked through again for each thing that is told."""
    feed = Feed()
    for _ in range(20_000):
        feed.live("r", ToolCallDelta(call_id="c", text="{"))
    started = perf_counter()
    for n in range(1_000):
        feed.live("r", ToolProgress(call_id="c", fraction=n / 1_000))
        feed.record("r", Shown("tool_result", data=b"{}", seq=n + 1))
    assert perf_counter() - started < 0.5


async def test_of_progress_a_late_reader_gets_the_newest() -> None:
    """A tool that reports for hours does not fill the memory."""
    reported, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def long(context: ToolContext) -> str:
        """Take long."""
        for n in range(100):
            context.progress(n / 100, f"{n} %")
            await asyncio.sleep(0)
        reported.set()
        await go_on.wait()
        return "ok"

    async with Sessions(AgentLoop(StrictLLM(ToolCall("c", "long", {})), tools=[long])) as sessions:
        run = await sessions.start("t", "go")
        live = asyncio.create_task(all_of(sessions, run.run_id))
        await reported.wait()
        late = asyncio.create_task(all_of(sessions, run.run_id))
        await asyncio.sleep(0.01)
        go_on.set()
        assert len([e for e in await live if e.type == "tool_progress"]) > 50
        assert [e.text for e in await late if e.type == "tool_progress"] == ["99 %"]
