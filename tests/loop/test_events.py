"""A run as events: one path, offsets, attempts, slow readers. Requirements H."""

import pytest

from playhead import (
    AgentLoop,
    Event,
    LLMRequest,
    LLMResult,
)
from playhead.events import Attempt, EmitDelta, RunEnd, TextDelta
from playhead.testing import (
    FakeProvider,
    openai_calls,
    openai_sse,
    openai_text,
)
from tests.loop.support import Scripted, loop_on, run, text

pytestmark = pytest.mark.anyio


async def test_a_run_and_its_stream_are_one_path() -> None:
    """Style 9.1: the same outcome, and the events in order, ended by exactly one `run_end`."""
    script = (openai_sse(calls=[("add", {"a": 2, "b": 3})]), openai_sse("It is", " 5."))
    async with FakeProvider(*script) as server:
        events = [event async for event in loop_on(server).stream("what is 2 + 3?")]
    kinds = [event.type for event in events]
    assert kinds == [
        "run_start",
        *("step_start", "attempt", "tool_call_start", "tool_call_delta", "tool_call_delta"),
        *("tool_call", "tool_result", "step_end"),
        *("step_start", "attempt", "text_delta", "text_delta", "step_end"),
        "run_end",
    ]
    end = events[-1]
    assert isinstance(end, RunEnd)
    plain = await run(openai_calls([("add", {"a": 2, "b": 3})]), openai_text("It is 5."))
    assert (end.result.text, end.result.finish_reason) == (plain.text, plain.finish_reason)
    assert [m.content for m in end.result.messages] == [m.content for m in plain.messages]
    assert len({event.run_id for event in events}) == 1
    assert [e.step for e in events if e.type == "step_start"] == [1, 2]
    assert all(event.at > 0 for event in events)


async def test_deltas_carry_the_id_and_offset_of_their_message() -> None:
    """Design 4: a reader can apply text by offset, and match it to the stored message."""
    async with FakeProvider(openai_sse("Hé", "llo", " you")) as server:
        events = [event async for event in loop_on(server).stream("hi")]
    deltas = [e for e in events if isinstance(e, TextDelta)]
    assert [(d.offset, d.text) for d in deltas] == [(0, "Hé"), (2, "llo"), (5, " you")]
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert {d.message_id for d in deltas} == {end.result.messages[-1].id}


async def test_a_model_that_does_not_stream_still_shows_its_text() -> None:
    """The `AgentLLM` contract lets a model ignore `emit`."""
    events = [e async for e in AgentLoop(Scripted(text("all at once"))).stream("hi")]
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["all at once"]


async def test_what_a_repeated_attempt_shows_replaces_what_was_shown() -> None:
    """Design 4: `attempt` voids the text before it; offsets start again under a new message id."""

    class Twice:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            assert emit is not None
            emit(TextDelta("half an ans"))
            emit(Attempt(number=2, reason="connection"))
            emit(TextDelta("whole answer"))
            return text("whole answer")

    events = [e async for e in AgentLoop(Twice()).stream("hi")]
    first, second = [e for e in events if isinstance(e, TextDelta)]
    assert (second.offset, second.message_id != first.message_id) == (0, True)
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert end.result.messages[-1].id == second.message_id


async def test_a_slow_reader_gets_merged_deltas_and_loses_nothing() -> None:
    """Design 4: no backpressure on the model, bounded memory, exact text."""

    class Flood:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            assert emit is not None
            for n in range(50_000):
                emit(TextDelta(f"{n} "))
            return text("x")

    texts = [e async for e in AgentLoop(Flood()).stream("hi") if isinstance(e, TextDelta)]
    assert len(texts) < 2_000
    assert "".join(e.text for e in texts) == "".join(f"{n} " for n in range(50_000))


async def test_merged_deltas_stay_small_however_long_nobody_reads() -> None:
    """Issue 2, bad input: text grows by copying; one ever longer piece would stop the event loop."""
    piece = "lorem ipsum " * 40

    class Flood:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            assert emit is not None
            for _ in range(20_000):
                emit(TextDelta(piece))
            return text("x")

    texts = [e async for e in AgentLoop(Flood()).stream("hi") if isinstance(e, TextDelta)]
    assert max(len(e.text) for e in texts) < 10_000
    assert sum(len(e.text) for e in texts) == 20_000 * len(piece)
    assert len(texts) < 3_000


async def test_a_callback_takes_the_same_events_as_the_stream() -> None:
    """Issue 4: `run(emit=)`: one path, whoever listens."""
    script = [openai_sse(calls=[("add", {"a": 2, "b": 3})]), openai_sse("It is", " 5.")]
    taken: list[Event] = []
    async with FakeProvider(*script, *script) as server:
        loop = loop_on(server)
        result = await loop.run("what is 2 + 3?", emit=taken.append)
        streamed = [event async for event in loop.stream("what is 2 + 3?")]
    assert result.text == "It is 5."
    assert [event.type for event in taken] == [event.type for event in streamed]


@pytest.mark.parametrize("kind", ["step_start", "text_delta", "run_end"])
async def test_a_callback_that_fails_does_not_break_the_run(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Design 4: an error in it is logged, and detaches it."""
    taken: list[str] = []

    def emit(event: Event) -> None:
        taken.append(event.type)
        if event.type == kind:
            raise ZeroDivisionError

    async with FakeProvider(openai_sse("fine")) as server:
        result = await loop_on(server).run("hi", emit=emit)
    assert result.text == "fine"
    assert taken[-1] == kind
    assert "ZeroDivisionError" in caplog.text
