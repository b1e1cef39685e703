"""Tools in a run: failures, order, limits, progress. Requirements E, H."""

import asyncio
from typing import Any

import pytest

from playhead import (
    AgentLoop,
    Event,
    FatalToolError,
    LoopOptions,
    ToolContext,
    ToolMessage,
    tool,
)
from playhead.events import ToolProgress
from playhead.testing import (
    openai_calls,
    openai_text,
)
from tests.loop.support import Scripted, add, assert_pairs, calls, run, text

pytestmark = pytest.mark.anyio


async def test_a_failing_tool_is_a_result_and_the_others_still_run() -> None:
    """R22, S8: the model reads the error and goes on."""
    result = await run(openai_calls([("broken", {}), ("add", {"a": 2, "b": 3})]), openai_text("ok"))
    first, second = result.steps[0].tool_results
    assert (first.is_error, first.content) == (True, "the disk is on fire")
    assert (second.is_error, second.content) == (False, "5")
    assert result.finish_reason == "final"


async def test_bad_arguments_and_unknown_tools_are_answered() -> None:
    """S6, R47, Q166: named, with what is available; nothing runs."""
    result = await run(openai_calls([("add", {"a": "x"}), ("divide", {})]), openai_text("ok"))
    wrong, unknown = result.steps[0].tool_results
    assert "`a`" in wrong.content or '"a"' in wrong.content or "a:" in wrong.content
    assert "b" in wrong.content
    assert "divide" in unknown.content
    assert "add" in unknown.content


async def test_a_fatal_tool_error_fails_the_run() -> None:
    """S8 settled: `FatalToolError` ends the run; every call still has a result."""

    @tool
    async def fatal() -> str:
        """Fail for good."""
        raise FatalToolError("the licence has expired")

    replies = openai_calls([("fatal", {}), ("add", {"a": 1, "b": 1})])
    result = await run(replies, tools=[fatal, add])
    assert (result.finish_reason, result.error_code) == ("error", "tool_fatal")
    assert result.error_message == "the licence has expired"
    assert [m.content for m in result.steps[0].tool_results][1] == "2"
    assert_pairs(result.messages)


async def test_parallel_results_are_in_call_order_and_told_as_they_land() -> None:
    """S4: the slow first call does not hold the second back, and comes first in the history."""
    second_done = asyncio.Event()

    @tool
    async def slow() -> str:
        """Wait for the other."""
        await second_done.wait()
        return "slow"

    @tool
    async def quick() -> str:
        """Be quick."""
        second_done.set()
        return "quick"

    model = Scripted(calls("slow", "quick"), text())
    loop = AgentLoop(model, tools=[slow, quick])
    events = [event async for event in loop.stream("go")]
    landed = [e.result.name for e in events if e.type == "tool_result"]
    assert landed == ["quick", "slow"]
    sent = [m.content for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert sent == ["slow", "quick"]


async def test_no_more_tools_run_at_once_than_allowed() -> None:
    """`parallel_tools` bounds the calls of a step."""
    running = most = 0

    @tool
    async def work() -> str:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "ok"

    loop = AgentLoop(
        Scripted(calls(*["work"] * 9), text()), tools=[work], options=LoopOptions(parallel_tools=3)
    )
    await loop.run("go")
    assert most == 3


async def test_a_hanging_tool_times_out_and_the_run_goes_on() -> None:
    """Bad input: a tool that hangs is a result that the model can read."""

    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    loop = AgentLoop(Scripted(calls("hang"), text()), tools=[hang], options=LoopOptions(tool_timeout=0.05))
    result = await loop.run("go")
    assert result.finish_reason == "final"
    assert "0.05" in result.steps[0].tool_results[0].content


async def test_progress_of_a_tool_is_an_event() -> None:
    """Design 4: also from a thread, and none after the call is over."""
    late: list[Any] = []

    @tool
    def blocking(ctx: ToolContext) -> str:
        """Block, off the event loop."""
        ctx.progress(0.5, "half")
        late.append(ctx.progress)
        return "ok"

    events: list[Event] = []
    async for event in AgentLoop(Scripted(calls("blocking"), text()), tools=[blocking]).stream("go"):
        events.append(event)
        if event.type == "step_end" and late:
            late.pop()(1.0, "too late")
    progress = [e for e in events if isinstance(e, ToolProgress)]
    assert [(p.fraction, p.text, p.call_id) for p in progress] == [(0.5, "half", "c0")]


async def test_the_context_reaches_the_tool_untouched() -> None:
    """S5."""
    given = {"db": object()}
    got: list[Any] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look."""
        got.append(ctx.context)
        return "ok"

    await AgentLoop(Scripted(calls("look"), text()), tools=[look]).run("go", context=given)
    assert got[0] is given
