"""Messages under ids that their thread holds already: of an answer, of a copy, of what was deleted."""

import asyncio
from typing import Any

import pytest

from playhead.errors import StoreError
from playhead.events import EmitDelta, RunEnd, TextDelta
from playhead.session.sessions import Sessions
from playhead.types import AssistantMessage, LLMRequest, LLMResult, ToolMessage
from tests.session.models import CALLS, GateLLM, StrictLLM, loop_of
from tests.session.readers import all_of

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
