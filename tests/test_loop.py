"""The loop, over real HTTP against a provider in raw bytes. Requirements H."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from playhead import (
    AgentLoop,
    AgentRunResult,
    AgentStep,
    AssistantMessage,
    ChatMessage,
    ConfigError,
    Event,
    FatalToolError,
    LLMRequest,
    LLMResult,
    LoopOptions,
    SystemMessage,
    ToolCall,
    ToolContext,
    ToolMessage,
    UserMessage,
    connect,
    tool,
)
from playhead.events import Attempt, EmitDelta, RunEnd, TextDelta, ToolProgress
from tests.support.fake_provider import (
    FakeProvider,
    Reply,
    gemini_calls,
    gemini_text,
    openai_calls,
    openai_sse,
    openai_text,
    reply_json,
)

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def broken() -> str:
    """Fail."""
    raise ValueError("the disk is on fire")


def loop_on(server: FakeProvider, provider: str = "openai-compatible", **more: Any) -> AgentLoop:
    base = server.url if provider == "gemini" else f"{server.url}/v1"
    return AgentLoop(connect(provider, "fake-model", "sk-x", base), **{"tools": [add, broken], **more})


async def run(*replies: Reply, input: Any = "what is 2 + 3?", **more: Any) -> AgentRunResult:
    async with FakeProvider(*replies) as server:
        return await loop_on(server, **more).run(input)


def assert_pairs(messages: Sequence[ChatMessage]) -> None:
    """Every call in a history has exactly one result, after it and before the next other message."""
    open_ids: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            open_ids.remove(message.tool_call_id)
        else:
            assert not open_ids
            if isinstance(message, AssistantMessage):
                open_ids = [call.id for call in message.tool_calls]
    assert not open_ids


class Scripted:
    """A model as a list of answers, for what no wire can time."""

    def __init__(self, *answers: LLMResult | BaseException) -> None:
        self.answers = list(answers)
        self.requests: list[LLMRequest] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def calls(*names: str) -> LLMResult:
    made = [ToolCall(f"c{n}", name, {}) for n, name in enumerate(names)]
    return LLMResult(AssistantMessage("", made), "tool_calls")


def text(content: str = "done") -> LLMResult:
    return LLMResult(AssistantMessage(content), "stop")


# ---------------------------------------------------------------- how a run ends


@pytest.mark.parametrize("provider", ["openai-compatible", "gemini"])
async def test_a_tool_call_and_then_an_answer(provider: str) -> None:
    """S1, S2: model, tool, model, answer; `final` when there are no calls left."""
    script = {
        "openai-compatible": (openai_calls([("add", {"a": 2, "b": 3})]), openai_text("It is 5.")),
        "gemini": (gemini_calls([("add", {"a": 2, "b": 3})]), gemini_text("It is 5.")),
    }[provider]
    async with FakeProvider(*script) as server:
        result = await loop_on(server, provider).run("what is 2 + 3?")
    assert (result.finish_reason, result.text, result.stop_reason) == ("final", "It is 5.", "stop")
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.messages[2].content == "5"
    assert "5" in json.dumps(server.requests[1].json)
    assert_pairs(result.messages)


async def test_steps_tell_what_happened() -> None:
    """S9, S11, S12: 1-based index, message, results, provider, model, tokens; text is the last."""
    result = await run(openai_calls([("add", {"a": 2, "b": 3})], "Let me see."), openai_text("5"))
    first, second = result.steps
    assert (first.step_index, second.step_index) == (1, 2)
    assert first.assistant_message.content == "Let me see."
    assert [m.content for m in first.tool_results] == ["5"]
    assert (first.provider, first.model) == ("openai-compatible", "fake-model")
    assert (first.tokens_in, first.tokens_out) == (11, 7)
    assert first.latency_ms is not None
    assert second.tool_results == ()
    assert result.text == "5"
    assert result.usage.input_tokens == 22


async def test_unknown_usage_stays_unknown() -> None:
    """Design 4: unknown is unknown, never zero."""
    result = await run(openai_calls([("add", {"a": 1, "b": 1})], usage=None), openai_text("2"))
    assert result.usage.input_tokens is None


async def test_stop_when_ends_the_run_after_a_step() -> None:
    """S2: checked after each step, with the finished steps."""
    seen: list[int] = []

    def after_two(steps: Sequence[AgentStep]) -> bool:
        seen.append(len(steps))
        return len(steps) == 2

    replies = [openai_calls([("add", {"a": n, "b": 1})]) for n in range(2)]
    result = await run(*replies, stop_when=after_two)
    assert result.finish_reason == "stop"
    assert seen == [1, 2]
    assert_pairs(result.messages)


async def test_the_cap_ends_the_run_with_the_last_tools_run() -> None:
    """S2, Q175: `max_steps`; the calls of the last step have their results."""
    replies = [openai_calls([("add", {"a": n, "b": 1})]) for n in range(3)]
    result = await run(*replies, options=LoopOptions(max_steps=3))
    assert result.finish_reason == "max_steps"
    assert [m.content for s in result.steps for m in s.tool_results] == ["1", "2", "3"]


async def test_a_provider_failure_keeps_the_finished_steps() -> None:
    """S2: `error` with a message and a code; what was done stays."""
    result = await run(openai_calls([("add", {"a": 2, "b": 3})]), reply_json({"error": {}}, 401))
    assert (result.finish_reason, result.error_code) == ("error", "auth")
    assert "LLM_API_KEY" in (result.error_message or "")
    assert len(result.steps) == 1
    assert_pairs(result.messages)


async def test_a_cut_answer_is_final_and_says_so() -> None:
    """Design 4: `final` with `length`, in the result and in the message; never plain."""
    result = await run(openai_text("The three rea", finish_reason="length"))
    assert (result.finish_reason, result.stop_reason) == ("final", "length")
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert last.stop_reason == "length"


@pytest.mark.parametrize(("reason", "word"), [("stop", "neither text"), ("length", "max_tokens")])
async def test_no_text_at_all_is_an_error(reason: str, word: str) -> None:
    """Design 4, Q184: code `empty_answer`, with what to do."""
    result = await run(openai_text("", finish_reason=reason))
    assert (result.finish_reason, result.error_code) == ("error", "empty_answer")
    assert word in (result.error_message or "")


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_calls_of_a_cut_answer_do_not_run(reason: str) -> None:
    """Design 7.1, Q055: not even those that parse; each is answered."""
    ran: list[int] = []

    @tool
    async def note() -> str:
        """Note."""
        ran.append(1)
        return "noted"

    replies = [openai_calls([("note", {}), ("note", {})], "x", finish_reason=reason), openai_text("ok")]
    async with FakeProvider(*replies) as server:
        result = await loop_on(server, tools=[note]).run("go")
    assert ran == []
    assert [m.is_error for m in result.steps[0].tool_results] == [True, True]
    assert_pairs(result.messages)


async def test_a_label_of_tool_calls_without_calls_is_an_answer() -> None:
    """Q061: calls decide."""
    result = await run(openai_text("done", finish_reason="tool_calls"))
    assert (result.finish_reason, result.text) == ("final", "done")


async def test_calls_labelled_stop_run() -> None:
    """Design 7.1: complete calls run whatever the label."""
    result = await run(openai_calls([("add", {"a": 1, "b": 1})], finish_reason="stop"), openai_text("2"))
    assert result.steps[0].tool_results[0].content == "2"


# ---------------------------------------------------------------- tools


async def test_a_failing_tool_is_a_result_and_the_others_still_run() -> None:
    """R22, S8: the model reads the error and goes on."""
    result = await run(openai_calls([("broken", {}), ("add", {"a": 2, "b": 3})]), openai_text("ok"))
    first, second = result.steps[0].tool_results
    assert (first.is_error, first.content) == (True, "the disk is on fire")
    assert (second.is_error, second.content) == (False, "5")
    assert result.finish_reason == "final"


async def test_bad_arguments_and_unknown_tools_are_answered() -> None:
    """S6, R47, Q166: named, with what is available; nothing runs."""
    result = await run(openai_calls([("add", {"a": "x"}), ("divide", {})]), openai_text("ok"))
    wrong, unknown = result.steps[0].tool_results
    assert "`a`" in wrong.content or '"a"' in wrong.content or "a:" in wrong.content
    assert "b" in wrong.content
    assert "divide" in unknown.content
    assert "add" in unknown.content


async def test_a_fatal_tool_error_fails_the_run() -> None:
    """S8 settled: `FatalToolError` ends the run; every call still has a result."""

    @tool
    async def fatal() -> str:
        """Fail for good."""
        raise FatalToolError("the licence has expired")

    replies = openai_calls([("fatal", {}), ("add", {"a": 1, "b": 1})])
    result = await run(replies, tools=[fatal, add])
    assert (result.finish_reason, result.error_code) == ("error", "tool_fatal")
    assert result.error_message == "the licence has expired"
    assert [m.content for m in result.steps[0].tool_results][1] == "2"
    assert_pairs(result.messages)


async def test_parallel_results_are_in_call_order_and_told_as_they_land() -> None:
    """S4: the slow first call does not hold the second back, and comes first in the history."""
    second_done = asyncio.Event()

    @tool
    async def slow() -> str:
        """Wait for the other."""
        await second_done.wait()
        return "slow"

    @tool
    async def quick() -> str:
        """Be quick."""
        second_done.set()
        return "quick"

    model = Scripted(calls("slow", "quick"), text())
    loop = AgentLoop(model, tools=[slow, quick])
    events = [event async for event in loop.stream("go")]
    landed = [e.result.name for e in events if e.type == "tool_result"]
    assert landed == ["quick", "slow"]
    sent = [m.content for m in model.requests[1].messages if isinstance(m, ToolMessage)]
    assert sent == ["slow", "quick"]


async def test_no_more_tools_run_at_once_than_allowed() -> None:
    """`parallel_tools` bounds the calls of a step."""
    running = most = 0

    @tool
    async def work() -> str:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "ok"

    loop = AgentLoop(
        Scripted(calls(*["work"] * 9), text()), tools=[work], options=LoopOptions(parallel_tools=3)
    )
    await loop.run("go")
    assert most == 3


async def test_a_hanging_tool_times_out_and_the_run_goes_on() -> None:
    """Bad input: a tool that hangs is a result that the model can read."""

    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    loop = AgentLoop(Scripted(calls("hang"), text()), tools=[hang], options=LoopOptions(tool_timeout=0.05))
    result = await loop.run("go")
    assert result.finish_reason == "final"
    assert "0.05" in result.steps[0].tool_results[0].content


async def test_progress_of_a_tool_is_an_event() -> None:
    """Design 4: also from a thread, and none after the call is over."""
    late: list[Any] = []

    @tool
    def blocking(ctx: ToolContext) -> str:
        """Block, off the event loop."""
        ctx.progress(0.5, "half")
        late.append(ctx.progress)
        return "ok"

    events: list[Event] = []
    async for event in AgentLoop(Scripted(calls("blocking"), text()), tools=[blocking]).stream("go"):
        events.append(event)
        if event.type == "step_end" and late:
            late.pop()(1.0, "too late")
    progress = [e for e in events if isinstance(e, ToolProgress)]
    assert [(p.fraction, p.text, p.call_id) for p in progress] == [(0.5, "half", "c0")]


async def test_the_context_reaches_the_tool_untouched() -> None:
    """S5."""
    given = {"db": object()}
    got: list[Any] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look."""
        got.append(ctx.context)
        return "ok"

    await AgentLoop(Scripted(calls("look"), text()), tools=[look]).run("go", context=given)
    assert got[0] is given


# ---------------------------------------------------------------- events


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


# ---------------------------------------------------------------- ids, history, options


async def test_ids_of_the_run_correlate() -> None:
    """S10: the turn's id in the result, the events and the ids of what the loop makes."""
    result = await run(openai_calls([("add", {"a": 1, "b": 1})]), openai_text("2"))
    assert result.messages[2].id == f"{result.turn_id}/1/1"


async def test_an_earlier_identical_user_message_is_kept() -> None:
    """S17: sameness of content is not sameness."""
    model = Scripted(text())
    history: list[ChatMessage] = [UserMessage("again"), AssistantMessage("ok"), UserMessage("again")]
    await AgentLoop(model).run(history)
    assert [m.content for m in model.requests[0].messages] == ["again", "ok", "again"]


async def test_the_model_gets_its_own_list() -> None:
    """S13: what it does to the list is its own affair."""

    class Rude:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            assert isinstance(request.messages, list)
            request.messages.clear()
            return text()

    history: list[ChatMessage] = [UserMessage("hi")]
    result = await AgentLoop(Rude()).run(history)
    assert len(history) == 1
    assert [m.content for m in result.messages] == ["done"]


async def test_the_system_prompt_may_depend_on_the_context() -> None:
    """S3: assembled for each step, first in the request, never part of the messages."""
    model = Scripted(calls("add"), text())
    loop = AgentLoop(model, tools=[add], system=lambda context: f"Scene {context['scene']}.")
    result = await loop.run("hi", context={"scene": 7})
    assert [r.system for r in model.requests] == ["Scene 7.", "Scene 7."]
    assert not any(isinstance(m, SystemMessage) for m in result.messages)


async def test_time_outs_and_limits_reach_the_model_together() -> None:
    """S14: one beside the other."""
    model = Scripted(text())
    options = LoopOptions(call_timeout=3, total_timeout=9, max_tokens=50, temperature=0.1)
    await AgentLoop(model, options=options).run("hi")
    request = model.requests[0]
    assert (request.timeout, request.total_timeout) == (3, 9)
    assert (request.max_tokens, request.temperature) == (50, 0.1)


@pytest.mark.parametrize(
    "wrong", [{"max_steps": 0}, {"max_steps": True}, {"max_steps": 2.0}, {"tool_timeout": 0}]
)
def test_a_limit_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    """Design 4: `max_steps` is an integer of at least 1; the text names the value."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LoopOptions(**wrong)


async def test_a_model_that_raises_something_else_ends_the_run_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A model of the application's own must not take the run down, nor leak its text."""
    result = await AgentLoop(Scripted(ZeroDivisionError("sk-secret"))).run("hi")
    assert (result.finish_reason, result.error_code) == ("error", "llm")
    assert "sk-secret" not in (result.error_message or "")
    assert "ZeroDivisionError" in caplog.text


# ---------------------------------------------------------------- stopping


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
