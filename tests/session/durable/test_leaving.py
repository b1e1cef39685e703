"""A process that ends in order, as in a rolling restart: whoever goes on knows what was not begun."""

import asyncio
from typing import Any

import pytest

from playhead import AgentLoop, tool
from playhead.events import EmitDelta
from playhead.session.sessions import Sessions
from playhead.types import AssistantMessage, LLMRequest, LLMResult, ToolCall, ToolMessage
from tests.session.durable.support import lines_of
from tests.session.models import assert_valid
from tests.session.readers import all_of
from tests.support.until import until

pytestmark = pytest.mark.anyio


class Work:
    """A model that calls `pay` in its first step once it may, and says what came of it; and the tool."""

    def __init__(self) -> None:
        self.asked, self.may_ask = asyncio.Event(), asyncio.Event()
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.paid = 0

        @tool
        async def pay() -> str:
            """Pay, which must not be done twice."""
            self.paid += 1
            self.begun.set()
            await self.may_end.wait()
            return "paid"

        self.loop = AgentLoop(self, tools=[pay])

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        assert_valid(request.messages)
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return LLMResult(AssistantMessage(str(last.content)), "stop")
        self.asked.set()
        await self.may_ask.wait()
        return LLMResult(AssistantMessage("", (ToolCall("c1", "pay", {}),)), "tool_calls")

    def sessions(self, url: str, stop_timeout: float) -> Sessions:
        return Sessions(self.loop, url, durable=True, stop_timeout=stop_timeout)


async def left(work: Work, url: str) -> str:
    """Ask in a process that ends in order while the model has not answered; return the run."""
    async with work.sessions(url, 10.0) as sessions:
        run = await sessions.start("t", "pay")
        await work.asked.wait()
        closing = asyncio.create_task(sessions.aclose())
        port: Any = lines_of(sessions).runs[run.run_id].port
        await until(lambda: port._leaving)
        work.may_ask.set()
        await closing
    assert not work.paid
    return run.run_id


async def test_what_was_not_begun_by_a_process_that_ended_in_order_is_begun_by_the_next(url: str) -> None:
    """Issue 6: a rolling restart leaves no outcome unknown of what nobody did, and voids nothing."""
    work = Work()
    run_id = await left(work, url)
    work.may_end.set()
    async with work.sessions(url, 0.2) as sessions:
        told = await all_of(sessions, run_id)
    assert told[-1].result.text == "paid"  # type: ignore[union-attr]
    assert work.paid == 1
    assert not [event for event in told if event.type == "attempt" and event.number > 1]


async def test_what_was_not_begun_stays_known_over_several_that_end_in_order(url: str) -> None:
    """Issue 6: a process that takes a run and lets go of it at once takes nothing from what is known."""
    work = Work()
    run_id = await left(work, url)
    # The run may get its turn in it or not: either way it is let go of in order.
    async with work.sessions(url, 10.0) as sessions:
        await until(lambda: run_id in lines_of(sessions).runs or work.paid)
        work.may_end.set()
    async with work.sessions(url, 0.2) as sessions:
        told = await all_of(sessions, run_id)
    assert told[-1].result.text == "paid"  # type: ignore[union-attr]
    assert work.paid == 1


async def test_what_one_left_in_order_is_known_to_the_next_attempt_and_to_none_after(url: str) -> None:
    """Issue 6: a call that the second attempt began, and that was cut, is not begun a second time."""
    work = Work()
    run_id = await left(work, url)
    async with work.sessions(url, 0.2):
        await work.begun.wait()
    work.may_end.set()
    async with work.sessions(url, 0.2) as sessions:
        told = await all_of(sessions, run_id)
    assert "unknown" in told[-1].result.text  # type: ignore[union-attr]
    assert work.paid == 1
