"""What a run may use: tokens and cost, looked at before each request and after each response."""

import re
from typing import Any

import pytest

from playhead import (
    AgentLoop,
    AgentRunResult,
    AssistantMessage,
    ConfigError,
    LLMRequest,
    LLMResult,
    LoopOptions,
    ToolCall,
    Usage,
    UserMessage,
    tool,
)
from playhead.limits import Limits
from playhead.testing import FakeProvider, openai_calls, openai_text
from tests.loop.support import Scripted, assert_pairs, calls, loop_on, text

pytestmark = pytest.mark.anyio

SPENT = {"prompt_tokens": 1800, "completion_tokens": 10}


def used(
    result: LLMResult, prompt: int | None = None, answer: int | None = None, cost: int | None = None
) -> LLMResult:
    usage = Usage(prompt, answer, cost_micro_usd=cost)
    return LLMResult(result.message, result.stop_reason, usage, model="m-1")


class Counted:
    """A tool that counts how often it ran."""

    def __init__(self) -> None:
        self.runs = 0

        @tool
        async def look() -> str:
            """Look."""
            self.runs += 1
            return "seen"

        self.tool = look


async def limited(
    *answers: LLMResult, input: str = "hi", **limits: Any
) -> tuple[AgentRunResult, Scripted, int]:
    """The result of a run, its model, and how often its tool ran."""
    model, counted = Scripted(*answers), Counted()
    result = await AgentLoop(model, tools=[counted.tool], options=LoopOptions(**limits)).run(input)
    assert_pairs(result.messages)
    return result, model, counted.runs


def assert_limit(result: AgentRunResult, *said: str) -> None:
    assert (result.finish_reason, result.error_code) == ("error", "limit")
    for piece in said:
        assert piece in (result.error_message or "")


async def test_a_response_that_reaches_the_limit_ends_the_run_over_a_real_wire() -> None:
    """Issue 4: code `limit`, the numbers and what to do; steps kept; open calls answered, none run."""
    two = [("add", {"a": 1, "b": 2}), ("broken", {})]
    async with FakeProvider(openai_calls(two, "Let me see.", usage=SPENT)) as server:
        result = await loop_on(server, options=LoopOptions(max_run_tokens=1800)).run("hi")
    assert_limit(result, "used 1,810 tokens", "max_run_tokens is 1,800", "Raise the limit")
    assert result.text == "Let me see."
    assert [m.content for m in result.steps[0].tool_results] == [
        "Not run: the run has reached its limit of tokens or cost."
    ] * 2
    assert result.steps[0].usage == Usage(1800, 10)
    assert result.usage == Usage(1800, 10)
    assert_pairs(result.messages)


async def test_an_answer_that_is_there_is_kept() -> None:
    """Nothing more is spent on it, so a turn is not lost for the last tokens of its answer."""
    async with FakeProvider(openai_text("It is 5.", usage=SPENT)) as server:
        result = await loop_on(server, options=LoopOptions(max_run_tokens=1800)).run("hi")
    assert (result.finish_reason, result.text) == ("final", "It is 5.")


async def test_a_request_that_would_lead_over_the_limit_is_not_made() -> None:
    """Issue 4: what is used, and the last prompt with what came since; the tools had run."""
    first = used(calls("look"), 900, 50)
    result, model, runs = await limited(first, max_run_tokens=1800)
    assert_limit(result, "has used 950 tokens", "max_run_tokens is 1,800")
    about = re.search(r"about ([\d,]+) more", result.error_message or "")
    assert about
    assert 900 < int(about[1].replace(",", "")) < 950
    assert (len(model.requests), len(result.steps), runs) == (1, 1, 1)


async def test_a_run_within_its_limit_goes_on() -> None:
    """The same run with a little more room."""
    result, _, _ = await limited(used(calls("look"), 900, 50), used(text(), 960, 5), max_run_tokens=1950)
    assert (result.finish_reason, result.usage.input_tokens) == ("final", 1860)


async def test_a_first_request_that_is_too_large_costs_nothing() -> None:
    """Issue 4: checked before a request where possible."""
    result, model, _ = await limited(input="word " * 2000, max_run_tokens=1000)
    assert_limit(result, "has used 0 tokens", "about 2,5")
    assert model.requests == []


async def test_tokens_that_are_not_reported_are_estimated() -> None:
    """Unknown is not zero: a server without usage is held to the limit, too."""
    long = LLMResult(AssistantMessage("word " * 2000, [ToolCall("c", "look", {})]), "tool_calls")
    result, model, runs = await limited(long, max_run_tokens=2000)
    assert_limit(result, "tokens: max_run_tokens is 2,000")
    assert result.usage == Usage()
    assert (len(model.requests), runs) == (1, 0)


async def test_a_limit_on_cost_ends_the_run() -> None:
    """Issue 4: the same for micro-USD."""
    answers = [used(calls("look"), 10, 10, cost=400), used(calls("look"), 10, 10, cost=700)]
    result, model, runs = await limited(*answers, max_run_cost_micro_usd=1000)
    assert_limit(result, "cost 1,100 micro-USD", "max_run_cost_micro_usd is 1,000")
    assert (len(model.requests), runs, result.usage.cost_micro_usd) == (2, 1, 1100)


async def test_the_cost_of_the_next_request_is_estimated_at_the_rate_so_far() -> None:
    """Issue 4: checked before a request where possible."""
    result, model, _ = await limited(used(calls("look"), 900, 100, cost=1000), max_run_cost_micro_usd=1800)
    assert_limit(result, "cost 1,000 micro-USD", "about 9")
    assert len(model.requests) == 1


async def test_a_cost_that_nobody_knows_ends_the_run_and_says_what_to_do() -> None:
    """Unknown is not zero: without a price, a limit on cost cannot be kept."""
    result, _, runs = await limited(used(calls("look"), 10, 10), max_run_cost_micro_usd=1000)
    assert_limit(result, "what m-1 costs is unknown", "Priced", "max_run_tokens")
    assert runs == 0


async def test_a_gap_in_the_known_costs_is_estimated() -> None:
    """A cut answer, say, has no usage: it counts at the rate of those that have."""
    answers = [
        used(calls("look"), 50, 50, cost=400),
        used(calls("look")),
        used(calls("look"), 900, cost=None),
    ]
    result, model, _ = await limited(*answers, max_run_cost_micro_usd=2000)
    assert_limit(result, "micro-USD")
    assert result.usage.cost_micro_usd is None
    assert len(model.requests) == 3


async def test_the_verdicts_follow_from_what_is_recorded() -> None:
    """Design 5: a replay, which makes no request and so checks none, comes to the same."""
    options = LoopOptions(max_run_tokens=3000)
    live, replayed = Limits(options), Limits(options)
    shown: list[Any] = [UserMessage("word " * 1000)]
    for answer in (used(text("word " * 100)), used(text("a"), 900, 20), used(text("b"))):
        live.before(_request(shown))
        live.took(shown, answer)
        replayed.took(shown, answer)
        assert live.reached == replayed.reached
        shown = [*shown, answer.message, UserMessage("more")]
    assert live.reached
    assert live.before(_request(shown)) == replayed.before(_request(shown))


def _request(messages: list[Any]) -> LLMRequest:
    return LLMRequest(messages)


async def test_a_shortened_history_is_estimated_anew() -> None:
    """`prepare_step` may compact: what was cut is not counted as still sent."""
    long = "word " * 4000
    options = LoopOptions(
        max_run_tokens=8_000,
        prepare_step=lambda i, request, steps: request if i == 1 else _request([UserMessage("short")]),
    )
    model = Scripted(used(calls("look"), 5100, 10), used(text(), 10, 5))
    result = await AgentLoop(model, tools=[Counted().tool], options=options).run(long)
    assert result.finish_reason == "final"


@pytest.mark.parametrize("name", ["max_run_tokens", "max_run_cost_micro_usd"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9"])
def test_a_limit_is_a_whole_number_above_zero(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        LoopOptions(**{name: value})
