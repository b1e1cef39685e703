"""What the stores show, and when, while a client-side run goes on (requirements B and D)."""

import asyncio
import dataclasses
from typing import Any

import pytest

from playhead import tool
from playhead.events import TextDelta
from playhead.testing import FakeProvider
from playhead.types import UserMessage
from tests.session.shown import Call, Shown, landed, says, streams

pytestmark = pytest.mark.anyio

TRANSCRIBE: Call = ("transcribe_video", {})


async def test_the_statuses_of_a_run() -> None:
    """R8, R19: sending before each call, processing while tools run, responding while a reply comes."""
    async with FakeProvider(says("Let me see.", TRANSCRIBE), streams("It ", "says...")) as server:
        shown = Shown(server)
        await shown.ask("go")
    assert shown.statuses == [
        "idle",
        "sending",
        "responding",
        "processing",
        "sending",
        "responding",
        "idle",
    ]
    tools = [(status, name) for status, name, _, _ in shown.states if name]
    assert set(tools[1:]) == {("processing", "transcribe_video")}


async def test_a_reply_is_shown_as_responding_until_it_is_stored() -> None:
    """B, settled: `responding` begins with the first text and lasts until the message is there."""
    seen: list[tuple[str, int]] = []
    async with FakeProvider(streams("a", "b")) as server:
        shown = Shown(server)
        shown.chat.add_message(role="user", content="go")
        await shown.orchestrator.run(
            shown.chat.messages,
            on_event=lambda e: seen.append((shown.agent.status, len(shown.chat.messages))),
        )
        assert next(s for s in seen if s[0] == "responding") == ("responding", 1)
    assert ("idle", 1) not in seen
    assert seen[-1] == ("idle", 2)


async def test_with_parallel_tools_the_first_that_runs_is_active() -> None:
    """R8: `active_tool` is the first running call in call order, whichever began or ended first."""
    gates = {name: asyncio.Event() for name in "abc"}
    begun = {name: asyncio.Event() for name in "abc"}

    def make(name: str) -> Any:
        @tool
        async def work() -> str:
            """Work."""
            begun[name].set()
            await gates[name].wait()
            return name

        return dataclasses.replace(work, name=name)

    async with FakeProvider(says("", ("a", {}), ("b", {}), ("c", {})), says("ok")) as server:
        shown = Shown(server, [make(name) for name in "abc"])
        run = asyncio.create_task(shown.ask("go"))
        for name in "abc":
            await begun[name].wait()
        assert (shown.agent.status, shown.agent.active_tool) == ("processing", "a")
        for done, active in (("b", "a"), ("a", "c")):
            gates[done].set()
            await shown.until(landed(done))
            assert shown.agent.active_tool == active
        gates["c"].set()
        await run
    assert shown.agent.active_tool is None
    assert [content for role, content in shown.said if role == "tool"] == ["a", "b", "c"]


async def test_results_are_stored_in_call_order() -> None:
    """R27: whichever tool ends first; and none is stored before those called earlier."""
    gate = asyncio.Event()

    @tool
    async def first() -> str:
        """Wait for the second."""
        await gate.wait()
        return "first"

    @tool
    async def second() -> str:
        """End at once."""
        return "second"

    async with FakeProvider(says("", ("first", {}), ("second", {})), says("ok")) as server:
        shown = Shown(server, [first, second])
        run = asyncio.create_task(shown.ask("go"))
        await shown.until(landed("second"))
        assert [role for role, _ in shown.said] == ["user", "assistant"]
        gate.set()
        await run
    assert [content for role, content in shown.said if role == "tool"] == ["first", "second"]


async def test_events_are_told_after_the_stores_show_them() -> None:
    """A listener of the run sees the stores as they are then; deltas are told as well."""
    async with FakeProvider(streams("a", "b")) as server:
        shown = Shown(server)
        await shown.ask("go")
    assert "".join(e.text for e in shown.events if isinstance(e, TextDelta)) == "ab"
    assert [e.type for e in shown.events if e.type != "text_delta"] == [
        "run_start",
        "step_start",
        "attempt",
        "step_end",
        "run_end",
    ]


async def test_a_failing_listener_of_events_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged and left out from then on."""
    calls: list[str] = []

    def fail(event: Any) -> None:
        calls.append(event.type)
        raise ValueError("broken")

    async with FakeProvider(streams("a", "b")) as server:
        shown = Shown(server)
        result = await shown.orchestrator.run([UserMessage("Hi")], on_event=fail)
    assert (result.text, calls) == ("ab", ["run_start"])
    assert "listener of the run failed" in caplog.text
    assert shown.said == [("assistant", "ab")]
