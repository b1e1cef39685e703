"""The circuit breaker against a plain model of requirement S22, with a clock of the test's."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from playhead.llm.breaker import (
    CLOSED,
    RULES,
    BreakerState,
    FailureKind,
    MemoryBreakerStore,
    ask,
    failed,
    released,
    succeeded,
)

T = TypeVar("T")
KINDS: list[FailureKind] = ["rate_limit", "error", "timeout"]
S22 = {
    # kind: failures, within seconds, open for, at most
    "rate_limit": (3, 30, 30, 300),
    "error": (5, 60, 180, 1_800),
    "timeout": (3, 30, 60, 600),
}


class Breaker(RuleBasedStateMachine):
    """Any sequence of calls, failures, pauses: the model below is S22 in its own words.

    The tests of the stores run it over theirs: `change` is how the state is changed.
    """

    @initialize()
    def begin(self) -> None:
        self.now = 1_000_000.0
        self.state = CLOSED
        self.times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.open_for = 0.0
        self.until = 0.0
        self.longest = 0.0
        self.good = 0
        self.probing = False

    def change(self, change: Callable[[BreakerState], tuple[BreakerState, T]]) -> T:
        self.state, answer = change(self.state)
        return answer

    @rule(seconds=st.sampled_from([0.5, 5, 29, 31, 61, 181, 2_000]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.probing = False if seconds > 120 else self.probing

    def may_call(self) -> str:
        before = self.state
        verdict = self.change(lambda state: ask(state, self.now))
        if not self.open_for:
            assert verdict == "closed"
        elif self.now < self.until:
            assert verdict == "open"
        elif verdict == "open":
            assert before.probe_until > self.now  # one probe at a time
        else:
            assert verdict == "probe"
            _, again = ask(self.state, self.now)
            assert again == "open"
        return verdict

    @rule(good=st.booleans(), kind=st.sampled_from(KINDS), retry_after=st.sampled_from([0.0, 10, 500, 5_000]))
    def call(self, good: bool, kind: FailureKind, retry_after: float) -> None:
        verdict = self.may_call()
        if verdict == "open":
            return
        if good:
            self.change(lambda state: (succeeded(state, self.now), None))
            self.good += 1
            if not self.open_for or self.good == 2:
                self.open_for, self.good, self.until = 0.0, 0, 0.0
                self.times = {k: [] for k in KINDS}
            return
        self.change(lambda state: (failed(state, self.now, kind, retry_after), None))
        count, within, seconds, longest = S22[kind]
        if verdict == "probe":
            self.longest = max(self.longest, longest)
            self.trip(min(self.open_for * 2, self.longest), retry_after)
            return
        self.times[kind] = [at for at in self.times[kind] if at > self.now - within] + [self.now]
        if retry_after:
            self.until = max(self.until, self.now + retry_after)
        if len(self.times[kind]) >= count:
            self.longest = longest
            self.times = {k: [] for k in KINDS}
            self.trip(seconds, retry_after)

    def trip(self, seconds: float, retry_after: float) -> None:
        self.open_for, self.good = seconds, 0
        self.until = max(self.until, self.now + max(seconds, retry_after))

    @precondition(lambda self: self.open_for)
    @rule()
    def a_cancelled_probe_frees_its_place(self) -> None:
        if self.may_call() == "probe":
            self.change(lambda state: (released(state, self.now), None))
            assert ask(self.state, self.now)[1] == "probe"

    @invariant()
    def the_state_can_be_stored(self) -> None:
        if hasattr(self, "state"):
            encoded = msgspec.json.encode(self.state)
            assert msgspec.json.decode(encoded, type=BreakerState).open_until == self.state.open_until


TestBreaker = Breaker.TestCase
TestBreaker.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rules_are_those_of_the_requirement(kind: FailureKind) -> None:
    """S22."""
    rule_ = RULES[kind]
    assert (rule_.count, rule_.window, rule_.open, rule_.longest) == S22[kind]


def trip(kind: FailureKind, now: float, retry_after: float = 0.0) -> BreakerState:
    state = CLOSED
    for _ in range(S22[kind][0]):
        state = failed(state, now, kind, retry_after)
    return state


@pytest.mark.parametrize("kind", KINDS)
def test_open_time_doubles_after_each_failed_probe_up_to_its_end(kind: FailureKind) -> None:
    """S22: and two good probes close it."""
    now, state = 1_000.0, trip(kind, 1_000.0)
    _, _, seconds, longest = S22[kind]
    for _ in range(6):
        assert state.open_until == now + seconds
        assert ask(state, state.open_until - 0.1)[1] == "open"
        now = state.open_until
        state, verdict = ask(state, now)
        assert verdict == "probe"
        state = failed(state, now, kind)
        seconds = min(seconds * 2, longest)
    now = state.open_until
    for verdicts in ("probe", "probe", "closed"):
        state, verdict = ask(state, now)
        assert verdict == verdicts
        state = succeeded(state, now)


def test_a_later_retry_after_wins_and_an_earlier_one_does_not_shorten() -> None:
    """S22, Q115: deadline = max(old, new)."""
    assert trip("rate_limit", 0.0, 500.0).open_until == 500.0
    assert trip("rate_limit", 0.0, 5.0).open_until == 30.0


def test_failures_of_different_kinds_do_not_add_up() -> None:
    """S22: each kind has its own count."""
    state = CLOSED
    for kind in ("rate_limit", "rate_limit", "timeout", "timeout", "error", "error", "error", "error"):
        state = failed(state, 0.0, kind)
    assert ask(state, 0.0)[1] == "closed"


def test_a_success_forgets_earlier_failures() -> None:
    """Q118's mirror: only failures in a row count as an outage."""
    state = failed(failed(CLOSED, 0.0, "timeout"), 1.0, "timeout")
    state = failed(succeeded(state, 2.0), 3.0, "timeout")
    assert ask(state, 3.0)[1] == "closed"


@pytest.mark.anyio
async def test_one_store_holds_providers_apart() -> None:
    """S22: a breaker for each provider."""
    store = MemoryBreakerStore()
    for _ in range(3):
        await store.update("a", lambda state: (failed(state, 0.0, "timeout"), None))
    assert await store.update("a", lambda state: ask(state, 1.0)) == "open"
    assert await store.update("b", lambda state: ask(state, 1.0)) == "closed"
