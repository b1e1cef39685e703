"""Another execution goes on with a run: what is recorded is not done again; who lost it writes nothing."""

import asyncio
import logging

import pytest

from playhead import AgentLoop
from playhead.events import EmitDelta, TextDelta
from playhead.session.durable import lines as durable_lines
from playhead.session.durable.records import QUEUE
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from playhead.types import AssistantMessage, LLMRequest, LLMResult, Replay, ToolCall, ToolMessage
from tests.session.durable.support import change, durable, lines_of, recorded, steal
from tests.session.models import GateLLM, Holding, StrictLLM, assert_valid, loop_of
from tests.session.readers import all_of, terminals, text_of

pytestmark = pytest.mark.anyio


class Counting:
    """Says "one" with a call first, and then a text; counts how often each was asked."""

    def __init__(self, call: str = "hold") -> None:
        self.call = call
        self.asked: list[int] = []
        self.held = asyncio.Event()
        self.hold = False

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        assert_valid(request.messages)
        step = sum(isinstance(message, AssistantMessage) for message in request.messages)
        self.asked.append(step)
        if step == 0:
            return LLMResult(AssistantMessage("", (ToolCall("c1", self.call, {}),)), "tool_calls")
        if emit is not None:
            emit(TextDelta("the an"))
        self.held.set()
        if self.hold:
            await asyncio.Event().wait()
        result = [m.content for m in request.messages if isinstance(m, ToolMessage)][-1]
        answer = f"the answer: {result}"
        if emit is not None:
            emit(TextDelta(answer[6:]))
        return LLMResult(AssistantMessage(answer), "stop")


@pytest.mark.parametrize("replay", ["safe", "idempotency_key"])
async def test_a_tool_that_may_be_repeated_is_run_again_with_the_same_key(url: str, replay: Replay) -> None:
    """Issue 6: `safe` and `idempotency_key` run again, and the model step before it is not asked again."""
    holding, model = Holding(replay), Counting()
    async with durable(AgentLoop(model, tools=[holding.tool]), url) as sessions:
        run = await sessions.start("t", "hello")
        await holding.begun.wait()
    holding.go_on.set()
    async with durable(AgentLoop(model, tools=[holding.tool]), url) as sessions:
        told = await all_of(sessions, run.run_id)
        assert model.asked == [0, 1]
        assert len(holding.keys) == 2
        assert len(set(holding.keys)) == 1
        assert told[-1].result.text == "the answer: held"  # type: ignore[union-attr]
        assert terminals(told) == ["run_end"]
        assert_valid(await sessions.history("t"))


async def test_a_tool_that_may_not_be_repeated_has_an_unknown_outcome(url: str) -> None:
    """Issue 6: `never` is not begun a second time; model and person are told that nobody knows."""
    holding, model = Holding("never"), Counting()
    async with durable(AgentLoop(model, tools=[holding.tool]), url) as sessions:
        run = await sessions.start("t", "hello")
        await holding.begun.wait()
    async with durable(AgentLoop(model, tools=[holding.tool]), url) as sessions:
        told = await all_of(sessions, run.run_id)
        assert len(holding.keys) == 1
        (result,) = [event.result for event in told if event.type == "tool_result"]
        assert "unknown" in (result.error or "")
        assert "unknown" in told[-1].result.text  # type: ignore[union-attr]


async def test_a_tool_that_has_ended_is_not_run_again(url: str) -> None:
    """Issue 6: its result is recorded with what was said of it, before the model is asked."""
    holding, model = Holding("never"), Counting()
    holding.go_on.set()
    model.hold = True
    async with durable(AgentLoop(model, tools=[holding.tool]), url) as sessions:
        run = await sessions.start("t", "hello")
        await model.held.wait()
    model.hold = False
    async with durable(AgentLoop(model, tools=[holding.tool]), url) as sessions:
        told = await all_of(sessions, run.run_id)
        assert len(holding.keys) == 1
        assert model.asked == [0, 1, 1]
        assert told[-1].result.text == "the answer: held"  # type: ignore[union-attr]


async def test_a_model_call_that_was_cut_is_made_again_behind_a_boundary(url: str) -> None:
    """Issue 6: what was shown of the step is void, and who reads the log gets the one answer."""
    model = GateLLM("the whole answer")
    async with Sessions(loop_of(model), url, durable=True, stop_timeout=0.2, flush_seconds=0.01) as sessions:
        run = await sessions.start("t", "hello")
        while await sessions.last_seq("t") < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    model.gate.set()
    async with durable(loop_of(model), url) as sessions:
        told = await all_of(sessions, run.run_id)
        boundary = next(n for n, event in enumerate(told) if event.type == "attempt")
        assert text_of(told[:boundary]) == "th"
        assert text_of(told[boundary:]) == "the whole answer"
        assert "ended before the answer did" in told[boundary].reason  # type: ignore[union-attr]
        assert [event.type for event in told].count("run_start") == 1


async def test_who_lost_a_run_writes_and_repeats_nothing(url: str) -> None:
    """Issue 6: a process that was stopped and woken is fenced; its run has one answer and one end."""
    holding, model = Holding("never"), Counting()
    async with durable(AgentLoop(model, tools=[holding.tool]), url) as sessions:
        run = await sessions.start("t", "hello")
        await holding.begun.wait()
        await steal(sessions)
        told = await all_of(sessions, run.run_id)
        holding.go_on.set()
        assert (await sessions.run("t", "and now?")).finish_reason == "final"
        assert terminals(told) == ["run_end"]
        assert recorded(await all_of(sessions, run.run_id)) == recorded(told)
        assert len(holding.keys) == 1
        assert_valid(await sessions.history("t"))


async def test_a_stop_reaches_a_run_in_another_process(url: str) -> None:
    """Issue 6: a run that is asked to stop ends as cancelled, whoever goes on with it."""
    model = GateLLM()
    async with durable(loop_of(model), url) as sessions:
        run = await sessions.start("t", "hello")
        await model.waiting.wait()
        row = await sessions.find(run.run_id)
    async with Sessions(loop_of(model), url) as elsewhere:
        assert not await elsewhere._opening.result().settled(row)  # type: ignore[union-attr]
    async with await open_database(url) as database:
        from playhead.storage.sql_dispatch import SQLDispatch

        await SQLDispatch(database).ask_to_stop(row)
    async with durable(loop_of(model), url) as sessions:
        told = await all_of(sessions, run.run_id)
        assert told[-1].result.finish_reason == "cancelled"  # type: ignore[union-attr]


async def test_a_message_that_kills_its_process_each_time_ends_as_an_error(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 6: a poison message is an error that the user sees, not a crash loop."""
    monkeypatch.setattr(durable_lines, "MOST_ATTEMPTS", 2)
    model = GateLLM()
    async with durable(loop_of(model), url) as sessions:
        run = await sessions.start("t", "hello")
        for _ in range(2):
            await model.waiting.wait()
            model.waiting.clear()
            with caplog.at_level(logging.CRITICAL, "playhead"):
                await steal(sessions)
        told = await all_of(sessions, run.run_id)
        assert told[-1].result.error_code == "poison"  # type: ignore[union-attr]
        model.gate.set()
        assert (await sessions.run("t", "another")).text == "done"


async def test_a_run_that_comes_further_in_each_attempt_is_not_given_up(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: processes that die for other reasons, however often, end no run that goes on."""
    monkeypatch.setattr(durable_lines, "MOST_ATTEMPTS", 2)
    holding, model = Holding("safe"), Counting()
    model.hold = True
    loop = AgentLoop(model, tools=[holding.tool])
    async with durable(loop, url) as sessions:
        run = await sessions.start("t", "hello")
        for _ in range(2):
            await holding.begun.wait()
            holding.begun.clear()
            await steal(sessions)
        await holding.begun.wait()
        holding.go_on.set()
        for more in (True, False):
            await model.held.wait()
            model.held.clear()
            model.hold = more
            await steal(sessions)
        told = await all_of(sessions, run.run_id)
    assert told[-1].result.text == "the answer: held"  # type: ignore[union-attr]


async def test_an_orderly_end_is_no_attempt_that_failed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: a rolling restart, however often, does not use a run's attempts up."""
    monkeypatch.setattr(durable_lines, "MOST_ATTEMPTS", 1)
    model = GateLLM()
    for n in range(3):
        async with durable(loop_of(model), url) as sessions:
            if n == 0:
                run = await sessions.start("t", "hello")
            await model.waiting.wait()
            model.waiting.clear()
    model.gate.set()
    async with durable(loop_of(model), url) as sessions:
        assert (await all_of(sessions, run.run_id))[-1].result.text == "done"  # type: ignore[union-attr]


async def test_a_run_whose_steps_are_of_another_program_ends_with_what_to_do(url: str) -> None:
    """Issue 6: a record that does not fit is not guessed at; the person is told to send the message anew."""
    model = Counting()
    model.hold = True
    holding = Holding("safe")
    holding.go_on.set()
    async with durable(AgentLoop(model, tools=[holding.tool]), url) as sessions:
        run = await sessions.start("t", "hello")
        await model.held.wait()
    await change(url, "operation_outputs", "UPDATE {table} SET function_name = '1/other'")
    async with durable(AgentLoop(model, tools=[holding.tool]), url) as sessions:
        told = await all_of(sessions, run.run_id)
        assert told[-1].result.error_code == "version"  # type: ignore[union-attr]
        assert "another version" in (told[-1].result.error_message or "")  # type: ignore[union-attr]


async def test_a_run_that_another_version_accepted_is_carried_out(url: str) -> None:
    """Issue 6: a version bump with runs in flight strands none of them."""
    model = GateLLM()
    async with durable(loop_of(model), url) as sessions:
        run = await sessions.start("t", "one")
        second = await sessions.start("t", "two")
        await model.waiting.wait()
    older = f"SET application_version = 'loop-0' WHERE queue_name = '{QUEUE}'"
    await change(url, "workflow_status", f"UPDATE {{table}} {older}")
    model.gate.set()
    async with durable(loop_of(model), url) as sessions:
        for handle in (run, second):
            assert (await all_of(sessions, handle.run_id))[-1].result.text == "done"  # type: ignore[union-attr]


async def test_rows_of_ended_runs_are_swept_and_what_they_said_stays(url: str) -> None:
    """Issue 6: the engine's rows go by age; the thread, its events and its results stay."""
    async with Sessions(loop_of(StrictLLM()), url, durable=True, stop_timeout=0.2) as sessions:
        handle = await sessions.start("t", "hello")
        told = await all_of(sessions, handle.run_id)
        engine = lines_of(sessions).engine
        await engine.settle(5.0)
        assert await engine.sweep(0) == 0
        assert await engine.sweep(2**53) == 1
        assert recorded(await all_of(sessions, handle.run_id)) == recorded(told)
        assert (await sessions.run("t", "hello", message_id=None)).text == "done"
