"""Windows by turns and by tokens. Requirements S17, issue 3; wire cases Q190, Q191."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead import (
    AssistantMessage,
    ChatMessage,
    ConfigError,
    LLMRequest,
    LLMResult,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from playhead.events import EmitDelta
from playhead.llm.history import NO_RESULT, normalise
from playhead.llm.window import Windowed, estimate_tokens, window


def turn(n: int, calls: int = 0) -> list[ChatMessage]:
    made: list[ChatMessage] = [UserMessage(f"question {n}")]
    for c in range(calls):
        made += [AssistantMessage("", [ToolCall(f"c{n}.{c}", "f", {})]), ToolMessage(f"c{n}.{c}", "f", "1")]
    return [*made, AssistantMessage(f"answer {n}")]


def contents(messages: Sequence[ChatMessage]) -> list[str]:
    return [str(m.content) for m in messages]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 10), st.integers(1, 400))
def test_a_window_is_whole_turns_within_its_bounds(calls: list[int], turns: int, tokens: int) -> None:
    """S17, Q190, Q191: never cut inside a turn, whatever the bound; valid for every provider."""
    history = [message for n, c in enumerate(calls) for message in turn(n, c)]
    shown = window(history, turns=turns, tokens=tokens)
    assert shown == history[len(history) - len(shown) :]
    assert isinstance(shown[0], UserMessage)
    kept = sum(isinstance(m, UserMessage) for m in shown)
    assert 1 <= kept <= turns
    assert kept == 1 or sum(map(estimate_tokens, shown)) <= tokens
    assert NO_RESULT not in contents(normalise(shown))


def test_the_window_is_as_large_as_its_bounds_allow() -> None:
    """S17: counted in turns; the turn before would not fit."""
    history = [message for n in range(5) for message in turn(n)]
    assert window(history, turns=2) == history[6:]
    assert window(history) == history
    cost = sum(map(estimate_tokens, history[6:]))
    assert window(history, tokens=cost) == history[6:]
    assert window(history, tokens=cost - 0.1) == history[8:]


def test_the_last_turn_is_never_cut() -> None:
    """What is being answered is always there, however large."""
    history = [*turn(0), UserMessage("x" * 10_000)]
    assert window(history, tokens=10) == history[2:]


def test_user_messages_that_follow_one_another_are_one_turn() -> None:
    """A burst of messages is not cut in the middle."""
    history: list[ChatMessage] = [*turn(0), UserMessage("a"), UserMessage("b")]
    assert window(history, turns=1) == history[2:]


def test_system_messages_stay() -> None:
    """S3: instructions are no part of a turn."""
    history: list[ChatMessage] = [SystemMessage("be terse"), *turn(0), *turn(1)]
    assert contents(window(history, turns=1)) == ["be terse", "question 1", "answer 1"]


def test_an_earlier_identical_message_is_not_lost() -> None:
    """S17."""
    history: list[ChatMessage] = [*turn(0), *turn(0)]
    assert len(window(history, turns=2)) == 4


class Counting:
    """A model that reports a fixed number of input tokens for each character it was shown."""

    def __init__(self, per_message: int) -> None:
        self.per_message = per_message
        self.shown: list[int] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.shown.append(len(request.messages))
        usage = Usage(input_tokens=self.per_message * len(request.messages))
        return LLMResult(AssistantMessage("ok"), usage=usage)


@pytest.mark.anyio
@pytest.mark.parametrize(("per_message", "grows"), [(30, False), (2, True)])
async def test_the_estimate_follows_what_the_provider_reports(per_message: int, grows: bool) -> None:
    """Issue 3: bytes / 4, scaled by the last reported usage."""
    history = [message for n in range(40) for message in turn(n)]
    model = Counting(per_message)
    windowed = Windowed(model, tokens=200)
    for _ in range(3):
        await windowed.generate(LLMRequest([*history, UserMessage("now")]))
    first, *later = model.shown
    assert all((n > first) is grows and n != first for n in later)


@pytest.mark.anyio
async def test_a_counter_of_ones_own_is_taken_as_it_is() -> None:
    """Issue 3: a counter can be passed in."""
    history = [message for n in range(10) for message in turn(n)]
    model = Counting(1000)
    windowed = Windowed(model, tokens=5, count=lambda message: 1)
    for _ in range(2):
        await windowed.generate(LLMRequest([*history, UserMessage("now")]))
    assert model.shown == [5, 5]


@pytest.mark.parametrize("wrong", [{"turns": 0}, {"tokens": -1}])
def test_a_bound_below_one_is_refused(wrong: dict[str, int]) -> None:
    """The text names the value."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Windowed(Counting(1), **wrong)  # type: ignore[arg-type]
