"""Steering, preparing a step, forced choices, repeats and the cap. Issue 4, wire cases I."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from playhead import (
    AgentContext,
    AgentLoop,
    AgentStep,
    AssistantMessage,
    Inbox,
    LiveContext,
    LLMRequest,
    LLMResult,
    LoopOptions,
    ToolCall,
    ToolContext,
    UserMessage,
    tool,
)
from playhead.llm.base import AgentLLM
from tests.loop.support import Scripted, add, assert_pairs, broken, text

pytestmark = pytest.mark.anyio


def asks(name: str, args: dict[str, Any] | None = None, id: str = "c") -> LLMResult:
    return LLMResult(AssistantMessage("", [ToolCall(id, name, args or {})]), "tool_calls")


ADD = asks("add", {"a": 1, "b": 1})


# ---------------------------------------------------------------- steering


async def test_a_message_while_tools_run_comes_after_their_results() -> None:
    """Q185: never between a call and its result; it is in the events and in the new messages."""
    inbox = Inbox()

    @tool
    async def work() -> str:
        """Work."""
        inbox.steer("and hurry")
        return "worked"

    model = Scripted(asks("work"), text("done"))
    events = [e async for e in AgentLoop(model, tools=[work]).stream("go", inbox=inbox)]
    assert [m.role for m in model.requests[1].messages] == ["user", "assistant", "tool", "user"]
    assert model.requests[1].messages[-1].content == "and hurry"
    assert [e.message.content for e in events if e.type == "user_message"] == ["and hurry"]
    end = events[-1]
    assert end.type == "run_end"
    assert [m.role for m in end.result.messages] == ["user", "assistant", "tool", "user", "assistant"]


async def test_a_context_that_becomes_another_is_seen_by_the_next_step() -> None:
    """Issue 7, 2: by the system prompt, the request and the tools, also of the same step."""
    context = LiveContext(AgentContext("before"))
    seen: list[str | None] = []

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        seen.append(ctx.context.project_id)
        context.value = AgentContext("after")
        return "worked"

    def system(context: AgentContext) -> str:
        return f"It is {context.project_id}."

    model = Scripted(asks("work"), asks("work", id="d"), text("done"))
    await AgentLoop(model, tools=[work], system=system).run("go", context=context)
    assert seen == ["before", "after"]
    assert [r.system for r in model.requests] == ["It is before.", *["It is after."] * 2]
    assert [r.context.project_id for r in model.requests if r.context] == ["before", "after", "after"]


async def test_what_came_too_late_still_waits() -> None:
    """Q244: no message is dropped."""
    inbox = Inbox()

    class Last:
        async def generate(self, request: LLMRequest, emit: Any = None) -> LLMResult:
            inbox.steer("one more thing")
            return text("bye")

    result = await AgentLoop(Last()).run("go", inbox=inbox)
    assert result.text == "bye"
    assert [m.content for m in inbox.waiting] == ["one more thing"]


# ---------------------------------------------------------------- prepare_step


async def test_a_step_may_be_given_another_model_tools_or_messages() -> None:
    """Issue 4: for one step only."""
    other = Scripted(text("from the other"))

    def prepare(
        index: int, request: LLMRequest, steps: Sequence[AgentStep]
    ) -> LLMRequest | tuple[AgentLLM, LLMRequest]:
        from msgspec.structs import replace

        assert len(steps) == index - 1
        return (other, replace(request, tools=())) if index == 2 else request

    model = Scripted(ADD)
    loop = AgentLoop(model, tools=[add], options=LoopOptions(prepare_step=prepare))
    result = await loop.run("go")
    assert result.text == "from the other"
    assert [len(model.requests[0].tools), len(other.requests[0].tools)] == [1, 0]


async def test_a_step_may_be_prepared_by_an_async_function() -> None:
    """Issue 4."""

    async def prepare(index: int, request: LLMRequest, steps: Sequence[AgentStep]) -> LLMRequest:
        from msgspec.structs import replace

        await asyncio.sleep(0)
        return replace(request, messages=[*request.messages, UserMessage("remember the milk")])

    model = Scripted(text())
    result = await AgentLoop(model, options=LoopOptions(prepare_step=prepare)).run("go")
    assert [m.content for m in model.requests[0].messages] == ["go", "remember the milk"]
    assert [m.content for m in result.messages] == ["go", "done"]


# ---------------------------------------------------------------- forced choices


@pytest.mark.parametrize("choice", ["required", "add"])
async def test_a_forced_choice_is_released_after_the_first_executed_call(choice: str) -> None:
    """Q176: or the model calls for ever. A call that failed does not count."""
    model = Scripted(asks("broken"), ADD, text("2"))
    loop = AgentLoop(model, tools=[add, broken], options=LoopOptions(tool_choice=choice))
    await loop.run("go")
    assert [r.tool_choice for r in model.requests] == [choice, choice, None]


async def test_a_call_against_the_choice_none_is_refused() -> None:
    """Q178: it is answered, not run."""
    model = Scripted(ADD, text("ok"))
    loop = AgentLoop(model, tools=[add], options=LoopOptions(tool_choice="none"))
    result = await loop.run("go")
    assert result.steps[0].tool_results[0].is_error
    assert [r.tool_choice for r in model.requests] == ["none", "none"]


# ---------------------------------------------------------------- repeats


async def test_the_third_identical_failure_brings_a_hint_and_does_not_end_the_run() -> None:
    """Q245: a hint; the run goes on."""
    model = Scripted(*[asks("broken")] * 4, text("I give up"))
    result = await AgentLoop(model, tools=[broken]).run("go")
    told = [step.tool_results[0].content for step in result.steps[:4]]
    assert ["failed" in t for t in told] == [False, False, True, True]
    assert "4 times" in told[3]
    assert result.finish_reason == "final"


async def test_other_arguments_or_a_success_in_between_are_no_repeat() -> None:
    """Q245: identical means the same call and the same failure."""

    @tool
    async def flaky(n: int) -> str:
        """Fail on odd numbers."""
        if n % 2:
            raise ValueError("odd")
        return "even"

    numbers = [1, 3, 1, 2, 3, 5, 1]
    model = Scripted(*(asks("flaky", {"n": n}) for n in numbers), text())
    result = await AgentLoop(model, tools=[flaky]).run("go")
    told = [m.content for s in result.steps for m in s.tool_results]
    assert ["do something else" in t for t in told] == [False] * 6 + [True]


async def test_a_run_ends_on_repeats_only_where_it_is_asked_to() -> None:
    """Q245: `stop_on_repeat`; unknown tools count as well, and every call has its result."""
    model = Scripted(*[asks("no_such_tool")] * 9)
    loop = AgentLoop(model, tools=[add], options=LoopOptions(stop_on_repeat=3))
    result = await loop.run("go")
    assert (result.finish_reason, result.error_code) == ("error", "repeated_tool_error")
    assert len(result.steps) == 3
    assert_pairs(result.messages)


async def test_the_same_oversized_call_is_noticed_as_well() -> None:
    """Q055: calls of an answer that hit the output limit count, too."""
    cut = LLMResult(AssistantMessage("", [ToolCall("c", "add", {"a": 1, "b": 2})]), "length")
    result = await AgentLoop(Scripted(*[cut] * 3, text("less")), tools=[add]).run("go")
    told = [step.tool_results[0].content for step in result.steps[:3]]
    assert ["do something else" in t for t in told] == [False, False, True]


# ---------------------------------------------------------------- the cap


async def test_wrap_up_makes_one_more_call_without_tools() -> None:
    """Q175: outside the budget; the run still says that it met its cap."""
    model = Scripted(ADD, ADD, text("As far as I got: 2."))
    loop = AgentLoop(model, tools=[add], options=LoopOptions(max_steps=2, wrap_up=True))
    result = await loop.run("go")
    assert (result.finish_reason, result.text) == ("max_steps", "As far as I got: 2.")
    assert [len(r.tools) for r in model.requests] == [1, 1, 0]
    assert "no more tools" in str(model.requests[2].messages[-1].content)
    assert not any("no more tools" in str(m.content) for m in result.messages)


async def test_a_stray_call_in_the_wrap_up_is_refused() -> None:
    """Q175: answered with a refusal; nothing runs beyond the cap."""
    model = Scripted(ADD, ADD)
    loop = AgentLoop(model, tools=[add], options=LoopOptions(max_steps=1, wrap_up=True))
    result = await loop.run("go")
    assert result.finish_reason == "max_steps"
    assert [s.tool_results[0].is_error for s in result.steps] == [False, True]
    assert_pairs(result.messages)


async def test_a_wrap_up_that_fails_says_so() -> None:
    """The steps before it are kept."""
    from playhead import LLMError

    model = Scripted(ADD, LLMError("no"), LLMError("no"), LLMError("no"))
    options = LoopOptions(max_steps=1, wrap_up=True, retries=0)
    result = await AgentLoop(model, tools=[add], options=options).run("go")
    assert (result.finish_reason, len(result.steps)) == ("error", 1)


async def test_without_wrap_up_the_cap_is_the_end() -> None:
    """Off by default: the orchestrator's cap text is fixed by its requirement."""
    model = Scripted(ADD)
    result = await AgentLoop(model, tools=[add], options=LoopOptions(max_steps=1)).run("go")
    assert (result.finish_reason, len(model.requests)) == ("max_steps", 1)


# ---------------------------------------------------------------- cancellation at every await


async def test_cancellation_at_every_await_leaves_a_history_that_the_next_turn_can_use() -> None:
    """Issue 4: three parallel tools, stopped at each await: each call has exactly one result."""

    @tool
    async def think(turns: int) -> str:
        """Think."""
        for _ in range(turns):
            await asyncio.sleep(0)
        return "thought"

    ends = set()
    for moment in range(60):
        calls = [ToolCall(f"c{n}", "think", {"turns": n * 3}) for n in range(3)]
        model = Scripted(LLMResult(AssistantMessage("", calls), "tool_calls"), text("done"))
        cancel = asyncio.Event()
        run = asyncio.ensure_future(AgentLoop(model, tools=[think]).run("go", cancel=cancel))
        for _ in range(moment):
            await asyncio.sleep(0)
        cancel.set()
        result = await run
        ends.add(result.finish_reason)
        assert_pairs(result.messages)
        again = Scripted(text("still here"))
        await AgentLoop(again, tools=[think]).run([*result.messages, UserMessage("hi")])
        assert_pairs(again.requests[0].messages)
    assert ends == {"cancelled", "final"}
