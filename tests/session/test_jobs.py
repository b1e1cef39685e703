"""Q238: calls that outlast the run that made them."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from playhead import AgentLoop, tool
from playhead.errors import ConfigError, FatalToolError, StoreError, ToolError
from playhead.session.sessions import Sessions
from playhead.storage.memory_ledger import MemoryLedger
from playhead.testing import ScriptedLLM
from playhead.types import ToolCall, ToolDefinition, ToolMessage, UserMessage
from tests.session.models import Holding
from tests.session.readers import ends
from tests.session.test_deleted import assert_nothing_in
from tests.support.databases import DATABASES, STORES, new_url

pytestmark = pytest.mark.anyio

PLACES = [*((store, False) for store in STORES), *((store, True) for store in DATABASES)]
Open = Callable[..., Sessions]


@pytest.fixture(params=PLACES, ids=[f"{name}{'-durable' * durable}" for name, durable in PLACES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, bool]:
    """Where sessions are kept, and whether their runs are durable."""
    name, durable = request.param
    return (MemoryLedger() if name == "memory" else new_url(request, name, tmp_path)), durable


def sessions_of(
    place: tuple[Any, bool], definition: ToolDefinition[..., Any], *said: Any, **more: Any
) -> Sessions:
    calls = ToolCall("c", definition.name, {})
    loop = AgentLoop(ScriptedLLM(*(said or ([calls], "Later.", "There it is."))), tools=[definition])
    return Sessions(loop, place[0], durable=place[1], stop_timeout=0.2, **more)


async def job_of(sessions: Sessions) -> dict[str, str]:
    """What the model was told of the call that went on."""
    told = next(m for m in await sessions.history("t") if isinstance(m, ToolMessage))
    found: dict[str, str] = json.loads(told.content)
    return found


def patient(holding: Holding, seconds: float = 0.02) -> ToolDefinition[..., Any]:
    """The tool that holds a run up, which is not waited for for long."""
    return replace(holding.tool, background=seconds)


async def test_a_call_that_takes_long_goes_on_and_what_comes_of_it_is_said_in_its_thread(
    place: tuple[Any, bool],
) -> None:
    """Q238, issue 6: the run ends; the result is a follow-up message, which the model answers."""
    holding = Holding("safe")
    async with sessions_of(place, patient(holding)) as sessions:
        result = await sessions.run("t", "go")
        assert (result.finish_reason, result.text) == ("final", "Later.")
        job = await job_of(sessions)
        assert job["status"] == "running"
        assert "will be said" in job["note"]
        assert (await sessions.find(job["runId"])).state in ("queued", "running")
        holding.go_on.set()
        await ends(sessions, "t", 2)
        *_, said, answer = await sessions.history("t")
        assert isinstance(said, UserMessage)
        assert said.source == "background"
        assert "held" in said.content
        assert answer.content == "There it is."
        assert len(holding.keys) == 2


async def test_a_call_that_fails_in_the_background_is_said_to_have_failed(place: tuple[Any, bool]) -> None:
    """Q238: an error is an outcome that the model hears of."""
    go_on = asyncio.Event()

    @tool(replay="safe", background=0.02)
    async def listen() -> str:
        await go_on.wait()
        raise ToolError("There is nothing to hear.")

    async with sessions_of(place, listen) as sessions:
        await sessions.run("t", "go")
        go_on.set()
        await ends(sessions, "t", 2)
        said = (await sessions.history("t"))[-2]
        assert "listen that went on in the background failed" in said.content
        assert "nothing to hear" in said.content


async def test_a_call_that_is_there_in_time_is_the_result_as_ever(place: tuple[Any, bool]) -> None:
    """Q238: what is quick has no job."""
    holding = Holding("safe")
    holding.go_on.set()
    async with sessions_of(place, patient(holding, 20.0)) as sessions:
        result = await sessions.run("t", "go")
        assert [m.content for m in result.messages if isinstance(m, ToolMessage)] == ["held"]
        assert len(holding.keys) == 1


async def test_a_job_is_stopped_as_every_run_is_and_then_says_nothing(place: tuple[Any, bool]) -> None:
    """Q238: whoever stops it knows."""
    holding = Holding("safe")
    async with sessions_of(place, patient(holding)) as sessions:
        await sessions.run("t", "go")
        job = await job_of(sessions)
        await sessions.cancel(job["runId"])
        (end,) = await ends(sessions, job["threadId"], 1)
        assert end.result.finish_reason == "cancelled"
        assert len(await sessions.history("t")) == 4
        assert await sessions.open_runs("t") == []


async def test_a_thread_is_deleted_with_the_jobs_that_it_began(place: tuple[Any, bool]) -> None:
    """Q206, Q238: nothing of what was heard is left, and what goes on is stopped."""
    holding = Holding("safe")
    async with sessions_of(place, patient(holding)) as sessions:
        await sessions.run("t", "go")
        job = await job_of(sessions)
        assert await sessions.delete("t") == 4
        assert await sessions.history(job["threadId"]) == ()
        with pytest.raises(StoreError, match="no run"):
            await sessions.find(job["runId"])
        holding.go_on.set()
        assert await sessions.last_run("t") is None
    await assert_nothing_in(place[0])


async def test_nobody_else_writes_in_the_thread_of_a_job(place: tuple[Any, bool]) -> None:
    """I21: a job carries out what its message says; one that a client wrote would be anything."""
    holding = Holding("safe")
    async with sessions_of(place, patient(holding)) as sessions:
        await sessions.run("t", "go")
        job = (await job_of(sessions))["threadId"]
        (message, *_) = await sessions.history(job)
        for forged in (
            sessions.start(job, message.content or ""),
            sessions.start("other~job-1", "{}"),
            sessions.edit(job, message.id, "{}"),
            sessions.retry(job),
            sessions.fork("t", to="other~job-1"),
        ):
            with pytest.raises(StoreError, match="kept for those") as caught:
                await forged
            assert caught.value.code == "invalid"


async def test_a_long_result_of_a_job_is_read_on_in_the_thread_of_its_call(place: tuple[Any, bool]) -> None:
    """I30, Q238: it is kept where who reads on is."""
    go_on = asyncio.Event()

    @tool(replay="safe", background=0.02)
    async def listen() -> str:
        await go_on.wait()
        return "word " * 2_000 + "end"

    said = ([ToolCall("c", "listen", {})], "Later.", reads_on, "It ends with end.")
    async with sessions_of(place, listen, *said, keep_aside_above=1_000) as sessions:
        await sessions.run("t", "go")
        go_on.set()
        await ends(sessions, "t", 2)
        read = [m.content for m in await sessions.history("t") if isinstance(m, ToolMessage)][-1]
        assert read.endswith("word end")


def reads_on(request: Any) -> list[ToolCall]:
    """Ask for the end of what was kept."""
    content = request.messages[-1].content
    id = content.partition('id="')[2].partition('"')[0]
    return [ToolCall("r", "read_result", {"id": id, "offset": 9_900})]


async def test_what_was_approved_is_not_asked_again_in_the_background(place: tuple[Any, bool]) -> None:
    """I21: a person answered for this call already."""
    holding = Holding("safe")
    async with sessions_of(place, replace(patient(holding), approval=True)) as sessions:
        paused = await sessions.run("t", "go")
        assert paused.finish_reason == "paused"
        run = await sessions.last_run("t")
        assert run is not None
        await sessions.answer(run.run_id, paused.pending[0].id, approved=True)
        await ends(sessions, "t", 1)
        holding.go_on.set()
        await ends(sessions, "t", 2)
        assert "held" in (await sessions.history("t"))[-2].content


@pytest.mark.parametrize("name", DATABASES)
async def test_a_durable_job_goes_on_in_the_next_process_and_is_said_once(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Q238, issue 6: it outlives the request, the run and the process."""
    place, holding = (new_url(request, name, tmp_path), True), Holding("safe")
    async with sessions_of(place, patient(holding), [ToolCall("c", "hold", {})], "Later.") as sessions:
        await sessions.run("t", "go")
        job = await job_of(sessions)
        async with asyncio.timeout(20), aclosing(sessions.thread_events(job["threadId"])) as events:
            await anext(event async for event in events if event.type == "tool_call")
    holding.go_on.set()
    async with sessions_of(place, patient(holding), "There it is.") as sessions:
        (end,) = await ends(sessions, job["threadId"], 1)
        assert end.result.finish_reason == "final"
        await ends(sessions, "t", 2)
        history = await sessions.history("t")
        assert [m.content for m in history if isinstance(m, UserMessage) and m.source] == [
            history[-2].content
        ]
        assert history[-1].content == "There it is."


@pytest.mark.parametrize(
    "more", [{"replay": "never"}, {"replay": "safe", "client": True}, {"replay": "safe", "background": 0}]
)
def test_only_what_may_run_again_can_go_on_in_the_background(more: dict[str, Any]) -> None:
    """I3, Q238: a job begins the call anew."""

    async def f() -> None:
        """Nothing."""

    with pytest.raises(ConfigError, match="background"):
        tool(f, **{"background": 1.0, **more})


async def test_what_comes_of_a_job_is_said_though_the_run_of_its_call_is_forgotten_by_then() -> None:
    """Q238: what is remembered of a run in memory ends before a long call may."""
    holding = Holding("safe")
    said = ([ToolCall("c", "hold", {})], "Later.", "Hello.", "There it is.")
    async with sessions_of((None, False), patient(holding), *said, keep_runs=0) as sessions:
        await sessions.run("t", "go")
        await sessions.run("other", "hello")
        holding.go_on.set()
        await ends(sessions, "t", 1)
        assert "held" in (await sessions.history("t"))[-2].content


async def test_a_call_that_ends_its_job_is_said_to_have_failed(place: tuple[Any, bool]) -> None:
    """Q238: what would end a run is an outcome of a job like every other."""
    go_on = asyncio.Event()

    @tool(replay="safe", background=0.02)
    async def listen() -> str:
        await go_on.wait()
        raise FatalToolError("The machine is on fire.")

    async with sessions_of(place, listen) as sessions:
        await sessions.run("t", "go")
        go_on.set()
        await ends(sessions, "t", 2)
        said = (await sessions.history("t"))[-2]
        assert "listen that went on in the background failed" in said.content
        assert "on fire" in said.content


async def test_a_call_that_fails_because_it_is_stopped_goes_on_in_the_background() -> None:
    """Q238: a tool may turn being cancelled into an error of its own."""
    go_on = asyncio.Event()

    @tool(replay="safe", background=0.02)
    async def listen() -> str:
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            raise RuntimeError("The connection was closed.") from None
        return "heard"

    async with sessions_of((None, False), listen) as sessions:
        await sessions.run("t", "go")
        assert (await job_of(sessions))["status"] == "running"
        go_on.set()
        await ends(sessions, "t", 2)
        assert "heard" in (await sessions.history("t"))[-2].content


@pytest.mark.parametrize("called", ["deliver_outcome", "functions.deliver_outcome"])
async def test_a_call_by_any_name_goes_on_in_the_background(called: str) -> None:
    """Q238: the script of a job has a tool, too; and models put namespaces before names."""
    holding = Holding("safe")
    definition = replace(patient(holding), name="deliver_outcome")
    calls = [ToolCall("c", called, {})]
    async with sessions_of((None, False), definition, calls, "Later.", "There it is.") as sessions:
        async with asyncio.timeout(5):
            await sessions.run("t", "go")
        holding.go_on.set()
        await ends(sessions, "t", 2)
        assert "held" in (await sessions.history("t"))[-2].content


async def test_an_outcome_does_not_pass_over_what_waits_for_a_person(place: tuple[Any, bool]) -> None:
    """I21, Q238: it is said once the person has answered."""
    holding = Holding("safe")

    @tool(approval=True)
    async def send() -> str:
        return "sent"

    calls = [ToolCall("c", "hold", {})]
    asks = [ToolCall("s", "send", {})]
    llm = ScriptedLLM(calls, asks, "Sent it.", "There it is.")
    loop = AgentLoop(llm, tools=[patient(holding), send])
    async with Sessions(loop, place[0], durable=place[1], stop_timeout=0.2) as sessions:
        paused = await sessions.run("t", "go")
        assert paused.finish_reason == "paused"
        holding.go_on.set()
        await asyncio.sleep(0.5)
        ((run_id, _),) = await sessions.pending("t")
        await sessions.answer(run_id, "s", approved=True)
        await ends(sessions, "t", 2)
        history = await sessions.history("t")
        assert "sent" in [m.content for m in history if isinstance(m, ToolMessage)]
        assert "held" in history[-2].content
