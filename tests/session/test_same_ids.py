"""Messages under ids that their thread holds already: of an answer, of a copy, of what was deleted."""

import asyncio
from typing import Any

import pytest

from playhead import AgentLoop
from playhead.errors import StoreError
from playhead.events import EmitDelta, RunEnd, TextDelta
from playhead.session.sessions import Sessions
from playhead.testing import ScriptedLLM
from playhead.types import AssistantMessage, LLMRequest, LLMResult, ToolMessage
from tests.session.models import CALLS, GateLLM, Holding, StrictLLM, YieldingLedger, loop_of
from tests.session.readers import all_of, text_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", [AssistantMessage, ToolMessage])
async def test_a_message_under_the_id_of_an_answer_is_refused(kind: type, store_url: str | None) -> None:
    """S4, Q239: it is another message, not one that was said already; nothing is replaced by it either."""
    async with Sessions(loop_of(StrictLLM(*CALLS)), store_url) as sessions:
        await sessions.run("t", "one", message_id="m1")
        history = await sessions.history("t")
        id = next(message.id for message in history if isinstance(message, kind))
        for saying in (
            sessions.start("t", "two", message_id=id),
            sessions.run("t", "two", message_id=id, policy="steer"),
            sessions.edit("t", "m1", "two", new_message_id=id),
        ):
            with pytest.raises(StoreError, match="use a new one") as caught:
                await saying
            assert caught.value.code == "conflict"
        assert await sessions.history("t") == history
        assert await sessions.open_runs("t") == []
        other = await sessions.run("other", "two", message_id=id)
        assert (other.finish_reason, (await sessions.run("t", "more")).text) == ("final", "done")


@pytest.mark.parametrize("policy", ["queue", "steer", "interrupt"])
async def test_a_message_that_waits_under_the_id_of_an_answer_is_refused(
    policy: Any, store_url: str | None
) -> None:
    """S4, Q244: it is so when it is sent, in whichever way it should reach the thread."""
    llm = GateLLM()
    llm.gate.set()
    async with Sessions(loop_of(llm), store_url) as sessions:
        answer = (await sessions.run("t", "one")).messages[-1]
        llm.gate.clear()
        llm.waiting.clear()
        run = await sessions.start("t", "two")
        await llm.waiting.wait()
        with pytest.raises(StoreError) as caught:
            await sessions.start("t", "three", message_id=answer.id, policy=policy)
        assert caught.value.code == "conflict"
        llm.gate.set()
        end = (await all_of(sessions, run.run_id))[-1]
        assert isinstance(end, RunEnd)
        assert (end.result.finish_reason, end.result.text) == ("final", "done")


@pytest.mark.parametrize("policy", ["queue", "steer"])
async def test_a_message_under_the_id_of_an_answer_to_come_ends_with_an_error(
    policy: Any, store_url: str | None
) -> None:
    """S2, S4: a client knows the id while the text goes on. The run tells why, and that nothing was said."""

    class Twice(GateLLM):
        """Calls a tool after its gate, and then says that it is done."""

        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            result = await super().generate(request, emit)
            calls = CALLS[:1] if len(self.seen) == 1 else ()
            return LLMResult(
                AssistantMessage(result.message.content, calls), "tool_calls" if calls else "stop"
            )

    llm = Twice()
    async with Sessions(loop_of(llm), store_url) as sessions:
        run = await sessions.start("t", "one")
        following, id = sessions.events(run.run_id), ""
        async for event in following:
            if isinstance(event, TextDelta):
                id = event.message_id
                break
        second = await sessions.start("t", "two", message_id=id, policy=policy)
        reading = asyncio.create_task(all_of(sessions, second.run_id))
        llm.gate.set()
        async with asyncio.timeout(10):
            assert [e.type async for e in following][-1] == "run_end"
            events = await reading
        assert [event.type for event in events] == ["run_start", "run_end"]
        assert isinstance(events[-1], RunEnd)
        result = events[-1].result
        assert (result.finish_reason, result.error_code) == ("error", "conflict")
        assert "use a new one" in (result.error_message or "")
        assert [m.content for m in await sessions.history("t") if m.role == "user"] == ["one"]
        assert (await sessions.run("t", "three")).text == "done"


async def test_a_message_that_was_copied_with_its_answer_is_told_whole_when_it_is_sent_again(
    store_url: str | None,
) -> None:
    """Q239: a client that heard no answer, and goes on in a fork, gets the one that is there, once."""
    llm = StrictLLM(*CALLS, reply="so")
    async with Sessions(loop_of(llm), store_url) as sessions:
        await sessions.run("t", "one", message_id="m1")
        first = await sessions.run("t", "two", message_id="m2")
        fork = await sessions.fork("t")
        history, asked = await sessions.history(fork), len(llm.seen)
        run = await sessions.start(fork, "two", message_id="m2")
        events = await all_of(sessions, run.run_id)
        assert [event.type for event in events] == ["run_start", "user_message", "run_end"]
        assert isinstance(events[-1], RunEnd)
        assert (events[-1].result.finish_reason, events[-1].result.text) == ("final", "so")
        again = await sessions.run(fork, "two", message_id="m2")
        assert (again.text, again.finish_reason) == ("so", "final")
        assert {message.id for message in again.messages} == {message.id for message in first.messages}
        assert [e.run_id for e in await all_of(sessions, run.run_id)] == [run.run_id] * 3
        assert await sessions.history(fork) == history
        assert len(llm.seen) == asked
        assert (await sessions.run(fork, "three")).text == "so"


async def test_a_message_that_was_copied_without_its_answer_is_told_as_such(store_url: str | None) -> None:
    """Q239: it was said, and nobody answered; a retry asks it again, and it is there once."""
    llm = StrictLLM()
    async with Sessions(loop_of(llm), store_url) as sessions:
        await sessions.run("t", "one", message_id="m1")
        fork = await sessions.fork("t", at="m1")
        run = await sessions.start(fork, "one", message_id="m1")
        events = await all_of(sessions, run.run_id)
        assert [event.type for event in events] == ["run_start", "user_message", "run_end"]
        assert isinstance(events[-1], RunEnd)
        assert (events[-1].result.error_code, len(llm.seen)) == ("interrupted", 1)
        assert "retry" in (events[-1].result.error_message or "")
        await all_of(sessions, (await sessions.retry(fork)).run_id)
        assert [m.content for m in await sessions.history(fork)] == ["one", "done"]


async def test_a_copied_message_that_comes_to_steer_is_not_said_again(store_url: str | None) -> None:
    """Q239, Q244: the run that is at work does not take it in; it finds its own answer."""
    llm, holding = ScriptedLLM("blue", [("hold", {})], "so"), Holding()
    async with Sessions(AgentLoop(llm, tools=[holding.tool]), store_url) as sessions:
        await sessions.run("t", "what?", message_id="m1")
        fork = await sessions.fork("t")
        run = await sessions.start(fork, "look")
        await holding.begun.wait()
        again = await sessions.start(fork, "what?", message_id="m1", policy="steer")
        holding.go_on.set()
        assert text_of(await all_of(sessions, run.run_id)) == "so"
        end = (await all_of(sessions, again.run_id))[-1]
        assert isinstance(end, RunEnd)
        assert end.result.text == "blue"
        assert [m.content for m in await sessions.history(fork) if m.role == "user"] == ["what?", "look"]


async def test_the_result_of_what_was_deleted_is_a_clear_error(store_url: str | None) -> None:
    """Q206, Q239: nobody waits for what comes no more, and is told what to do."""
    async with Sessions(loop_of(StrictLLM()), store_url) as sessions:
        await sessions.run("t", "go", message_id="m1")
        row = await sessions.last_run("t")
        assert row is not None
        await sessions.delete("t")
        async with asyncio.timeout(10):
            with pytest.raises(StoreError, match="Send it anew") as caught:
                await (await sessions._opened()).result_of(row)
        assert caught.value.code == "not_found"


async def test_a_message_that_is_sent_again_while_its_thread_is_deleted_is_answered_or_refused(
    store_url: str | None,
) -> None:
    """Q206, Q239: at any moment; it never waits for ever."""
    place: Any = store_url or YieldingLedger()
    async with Sessions(loop_of(StrictLLM()), place) as sessions:
        for turns in range(15):
            await sessions.run("t", "go", message_id="m1")
            again = asyncio.create_task(sessions.run("t", "go", message_id="m1"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await sessions.delete("t")
            async with asyncio.timeout(10):
                (outcome,) = await asyncio.gather(again, return_exceptions=True)
            if isinstance(outcome, StoreError):
                assert outcome.code == "not_found"
            else:
                assert not isinstance(outcome, BaseException)
                assert outcome.finish_reason in ("final", "cancelled")
            await sessions.delete("t")
