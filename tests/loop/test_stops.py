"""A stop, and the caller's own cancellation. Requirements H."""

import asyncio

import pytest

from playhead import (
    AgentLoop,
    AssistantMessage,
    Event,
    LLMRequest,
    LLMResult,
    tool,
)
from playhead.events import EmitDelta, RunEnd, TextDelta
from tests.loop.support import Scripted, add, assert_pairs, calls, text

pytestmark = pytest.mark.anyio


class Waiting:
    """A model that says something and then waits for ever."""

    def __init__(self) -> None:
        self.speaking = asyncio.Event()

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        if emit is not None:
            emit(TextDelta("So far"))
        self.speaking.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def test_a_stop_while_the_model_speaks_keeps_what_was_said() -> None:
    """Q173: `cancelled`, with the partial text marked as cut."""
    cancel = asyncio.Event()
    events: list[Event] = []
    async for event in AgentLoop(Waiting()).stream("hi", cancel=cancel):
        events.append(event)
        if isinstance(event, TextDelta):
            cancel.set()
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert (end.result.finish_reason, end.result.text) == ("cancelled", "So far")
    last = end.result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert last.stop_reason == "interrupted"


async def test_a_stop_in_mid_tool_answers_the_open_calls() -> None:
    """Q170: every call has a result; the next request on this history is valid."""
    cancel = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        cancel.set()
        await asyncio.Event().wait()
        return ""

    loop = AgentLoop(Scripted(calls("add", "wait", "wait")), tools=[add, wait])
    result = await loop.run("go", cancel=cancel)
    assert result.finish_reason == "cancelled"
    assert [m.is_error for m in result.steps[0].tool_results] == [True, True, True]
    assert "Cancelled" in result.steps[0].tool_results[2].content
    assert_pairs(result.messages)


async def test_a_stop_before_the_first_step_makes_no_call() -> None:
    """A run that was stopped while it waited does nothing."""
    cancel = asyncio.Event()
    cancel.set()
    model = Scripted()
    result = await AgentLoop(model).run("hi", cancel=cancel)
    assert result.finish_reason == "cancelled"
    assert model.requests == []


async def test_the_callers_own_cancellation_is_raised_again() -> None:
    """Design 4: a CancelledError without a stop is not a value; nothing is left running."""
    model = Waiting()
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(AgentLoop(model).run("hi"))
    await model.speaking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_closing_the_stream_ends_the_run_and_its_tools() -> None:
    """Design 4: no tool goes on after its run has ended."""
    ended: list[str] = []

    @tool
    async def wait() -> str:
        """Wait."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")
        return ""

    before = asyncio.all_tasks()
    stream = AgentLoop(Scripted(calls("wait", "wait")), tools=[wait]).stream("go")
    async for event in stream:
        if event.type == "tool_call":
            await asyncio.sleep(0)
            break
    await stream.aclose()  # type: ignore[attr-defined]
    assert asyncio.all_tasks() == before


async def test_cancellation_at_any_await_leaves_no_task_behind() -> None:
    """H: whatever the moment, the run ends and nothing runs on."""

    @tool
    async def think() -> str:
        """Think."""
        for _ in range(3):
            await asyncio.sleep(0)
        return "ok"

    before = asyncio.all_tasks()
    for turns in range(40):
        loop = AgentLoop(Scripted(calls("think", "think"), calls("think"), text()), tools=[think])
        task = asyncio.ensure_future(loop.run("go"))
        for _ in range(turns):
            await asyncio.sleep(0)
        finished = task.done()
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled() != finished
        assert asyncio.all_tasks() == before
