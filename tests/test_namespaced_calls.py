"""A model may put a namespace before a tool's name: what the tool asks for holds all the same."""

import pytest

from playhead import AgentLoop, tool
from playhead.events import ToolCallEvent
from playhead.session.sessions import Sessions
from playhead.testing import ScriptedLLM
from playhead.types import AssistantMessage, ToolCall

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("called", ["send", "functions.send", "default_api:send"])
async def test_a_person_is_asked_whatever_a_model_calls_the_tool(called: str) -> None:
    """I21: no name is a way around an approval."""
    sent: list[str] = []

    @tool(approval=True)
    async def send() -> str:
        sent.append("once")
        return "sent"

    loop = AgentLoop(ScriptedLLM([ToolCall("c", called, {})], "Done."), tools=[send])
    async with Sessions(loop) as sessions:
        paused = await sessions.run("t", "go")
        assert (paused.finish_reason, sent) == ("paused", [])
        ((run_id, _),) = await sessions.pending("t")
        answer = await sessions.answer(run_id, "c", approved=True)
        _ = [event async for event in sessions.events(answer.run_id)]
        assert sent == ["once"]


@pytest.mark.parametrize("called", ["look", "functions.look"])
async def test_a_client_executes_its_tool_whatever_a_model_calls_it(called: str) -> None:
    """I21: its result comes from there."""

    @tool(client=True)
    async def look() -> str:
        """Look."""
        return "never"

    loop = AgentLoop(ScriptedLLM([ToolCall("c", called, {})], "Done."), tools=[look])
    async with Sessions(loop) as sessions:
        assert (await sessions.run("t", "go")).finish_reason == "paused"
        ((run_id, _),) = await sessions.pending("t")
        answer = await sessions.answer(run_id, "c", result="seen")
        _ = [event async for event in sessions.events(answer.run_id)]
        assert (await sessions.history("t"))[-2].content == "seen"


@pytest.mark.parametrize("called", ["look", "functions.look", "default_api:look"])
async def test_whoever_executes_a_call_is_given_the_name_of_the_tool(called: str) -> None:
    """I21: a front end looks its tools up by name, and knows nothing of what models put before it."""

    @tool(client=True)
    async def look() -> str:
        """Look."""
        return "never"

    other = ToolCall("d", "functions.nobody", {})
    loop = AgentLoop(ScriptedLLM([ToolCall("c", called, {}), other], "Done."), tools=[look])
    async with Sessions(loop) as sessions:
        run = await sessions.start("t", "go")
        events = [event async for event in sessions.events(run.run_id)]
        told = [event.call.name for event in events if isinstance(event, ToolCallEvent)]
        assert told == ["look", "functions.nobody"]
        ((_, pending),) = await sessions.pending("t")
        assert pending.call.name == "look"
        spoken = (await sessions.history("t"))[1]
        assert isinstance(spoken, AssistantMessage)
        assert [call.name for call in spoken.tool_calls] == ["look", "functions.nobody"]
