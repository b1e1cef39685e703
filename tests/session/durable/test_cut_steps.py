"""A step that was cut and is not made again: what it took in was said, and what it showed is void."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from playhead import AgentLoop, tool
from playhead.events import EmitDelta, Event, TextDelta
from playhead.session.durable import lines as durable_lines
from playhead.session.durable.lines import DurableLines
from playhead.session.sessions import Sessions
from playhead.storage.sql_ledger import SQLLedger
from playhead.types import AssistantMessage, LLMRequest, LLMResult, ToolCall, ToolMessage
from tests.session.durable.support import lines_of, steal
from tests.session.models import GateLLM, loop_of
from tests.session.readers import all_of
from tests.support.until import until

pytestmark = pytest.mark.anyio


class Held:
    """Calls a tool that waits, then begins an answer that it never ends."""

    def __init__(self) -> None:
        self.called, self.go_on, self.answering = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @tool(replay="safe")
        async def hold() -> str:
            """Wait."""
            self.called.set()
            await self.go_on.wait()
            return "held"

        self.loop = AgentLoop(self, tools=[hold])

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        if not any(isinstance(message, ToolMessage) for message in request.messages):
            return LLMResult(AssistantMessage("", (ToolCall("c1", "hold", {}),)), "tool_calls")
        assert emit is not None
        emit(TextDelta("half an answ"))
        self.answering.set()
        await asyncio.Event().wait()
        raise AssertionError

    def sessions(self, url: str) -> Sessions:
        return Sessions(self.loop, url, durable=True, stop_timeout=0.2, flush_seconds=0.0)


async def steered(held: Held, sessions: Sessions) -> str:
    """Begin a run, and have it take a message in before the model call that is at work then."""
    run = await sessions.start("t", "one")
    await held.called.wait()
    await sessions.start("t", "two", policy="steer")
    held.go_on.set()
    await held.answering.wait()
    return run.run_id


def said(told: Sequence[Event]) -> list[Any]:
    return [event.message.content for event in told if event.type == "user_message"]


def text_left(told: Sequence[Event]) -> str:
    """The text that a page has in the end of what was not said as a whole."""
    text = ""
    for event in told:
        if isinstance(event, TextDelta):
            text += event.text
        elif event.type == "attempt" or event.type == "step_end":
            text = ""
    return text


async def test_a_run_that_is_given_up_tells_what_it_took_in(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 6: a poison message ends as an error; what steered it is not lost with the step that was cut."""
    monkeypatch.setattr(durable_lines, "MOST_ATTEMPTS", 1)
    held = Held()
    async with held.sessions(url) as sessions:
        run_id = await steered(held, sessions)
        with caplog.at_level(logging.CRITICAL, "playhead"):
            held.answering.clear()
            await steal(sessions)
            await held.answering.wait()
            await steal(sessions)
            told = await all_of(sessions, run_id)
    assert told[-1].result.error_code == "poison"  # type: ignore[union-attr]
    assert said(told) == ["one", "two"]
    assert text_left(told) == ""


async def test_a_run_that_is_stopped_before_a_step_is_made_again_tells_what_that_took_in(url: str) -> None:
    """Issue 6: a stop that finds the run between two processes takes no message away."""
    held = Held()
    async with held.sessions(url) as sessions:
        run_id = await steered(held, sessions)
        row = await sessions.find(run_id)
        lines = lines_of(sessions)
        # Nobody of this process looks whether it is to stop, as if it had died by now.
        monkey: Any = lines
        monkey._watching.cancel()
        await lines._dispatch.ask_to_stop(row)
        await steal(sessions)
        told = await all_of(sessions, run_id)
    assert told[-1].result.finish_reason == "cancelled"  # type: ignore[union-attr]
    assert said(told) == ["one", "two"]
    assert text_left(told) == ""


async def test_a_stop_while_a_message_is_taken_in_takes_it_not_away(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: what is written as said in a run is told in it, though it is being stopped."""
    held = Held()
    taking, take = asyncio.Event(), asyncio.Event()
    absorb = SQLLedger.absorb

    async def slow(self: SQLLedger, *args: Any) -> Sequence[str]:
        taken = await absorb(self, *args)
        taking.set()
        await take.wait()
        return taken

    monkeypatch.setattr(SQLLedger, "absorb", slow)
    async with held.sessions(url) as sessions:
        run = await sessions.start("t", "one")
        await held.called.wait()
        await sessions.start("t", "two", policy="steer")
        held.go_on.set()
        await taking.wait()
        stopping = asyncio.create_task(sessions.cancel(run.run_id))
        await until(lambda: lines_of(sessions).runs[run.run_id].cancel.is_set())
        take.set()
        await stopping
        told = await all_of(sessions, run.run_id)
    assert told[-1].result.finish_reason == "cancelled"  # type: ignore[union-attr]
    assert said(told) == ["one", "two"]


async def test_a_message_that_interrupts_does_so_though_its_process_dies_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: that the run at work is to stop is written with the message, or neither is."""
    held = Held()
    async with held.sessions(url) as sessions:
        run = await sessions.start("t", "one")
        await held.called.wait()
        held.go_on.set()
        await held.answering.wait()
        # As far as a process comes that dies once it has written the message.
        monkeypatch.setattr(DurableLines, "add", lambda self, run: run.row)
        await sessions.start("t", "two", policy="interrupt")
        told = await all_of(sessions, run.run_id)
    assert told[-1].result.finish_reason == "cancelled"  # type: ignore[union-attr]


async def test_a_message_that_never_came_to_its_turn_is_said_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 6: a run that is given up before it wrote anything shows what its user said."""
    model = GateLLM()
    async with Sessions(loop_of(model), url, durable=True, stop_timeout=0.2) as sessions:
        await sessions.start("t", "one")
        await model.waiting.wait()
        second = await sessions.start("t", "two")
        monkeypatch.setattr(durable_lines, "MOST_ATTEMPTS", 0)
        with caplog.at_level(logging.CRITICAL, "playhead"):
            model.gate.set()
            told = await all_of(sessions, second.run_id)
    assert told[-1].result.error_code == "poison"  # type: ignore[union-attr]
    assert said(told) == ["two"]
