"""A circuit breaker for each provider: after some failures of a kind it is left alone for a while.

The state is a value and the rules are pure functions of it and the time, so that a store can share
it between processes: `BreakerStore.update` applies one of them at once. Times are seconds since 1970.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

T = TypeVar("T")

FailureKind = Literal["rate_limit", "error", "timeout"]
Verdict = Literal["closed", "probe", "open"]


class Rule(msgspec.Struct, frozen=True):
    """`count` failures within `window` seconds open the breaker for `open` seconds, at most `longest`."""

    count: int
    window: float
    open: float
    longest: float


RULES: Mapping[FailureKind, Rule] = {
    "rate_limit": Rule(3, 30, 30, 300),
    "error": Rule(5, 60, 180, 1_800),
    "timeout": Rule(3, 30, 60, 600),
}
PROBES_TO_CLOSE = 2
# A probe whose process died must not hold the one place for ever.
PROBE_LEASE = 120.0


class BreakerState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known of a provider.

    Attributes:
        failures: when the recent failures of each kind were.
        open_until: nobody calls before this.
        opened_for: how long it was opened last; 0 while it is closed.
        kind: what it was opened for.
        probe_until: the one probe is under way until then at the latest.
        good_probes: probes that went well since it was opened.
    """

    failures: Mapping[FailureKind, Sequence[float]] = {}
    open_until: float = 0.0
    opened_for: float = 0.0
    kind: FailureKind | None = None
    probe_until: float = 0.0
    good_probes: int = 0


CLOSED = BreakerState()


def ask(state: BreakerState, now: float) -> tuple[BreakerState, Verdict]:
    """May a call be made? `probe` is one trial call that decides; its place is taken by asking."""
    if not state.opened_for:
        return state, "closed"
    if now < state.open_until or now < state.probe_until:
        return state, "open"
    return replace(state, probe_until=now + PROBE_LEASE), "probe"


def succeeded(state: BreakerState, now: float) -> BreakerState:
    """A call went well: two good probes close an open breaker."""
    if not state.opened_for:
        return CLOSED if state.failures else state
    good = state.good_probes + 1
    return CLOSED if good >= PROBES_TO_CLOSE else replace(state, good_probes=good, probe_until=0.0)


def failed(state: BreakerState, now: float, kind: FailureKind, retry_after: float = 0.0) -> BreakerState:
    """A call failed. A failed probe doubles the time; the later deadline always wins."""
    rule = RULES[kind]
    if state.opened_for:
        longest = max(rule.longest, RULES[state.kind or kind].longest)
        return _opened(state, now, kind, min(state.opened_for * 2, longest), retry_after)
    recent = [at for at in state.failures.get(kind, ()) if at > now - rule.window]
    failures = {**state.failures, kind: [*recent, now]}
    if len(failures[kind]) < rule.count:
        until = max(state.open_until, now + retry_after) if retry_after else state.open_until
        return replace(state, failures=failures, open_until=until)
    return _opened(replace(state, failures={}), now, kind, rule.open, retry_after)


def released(state: BreakerState, now: float) -> BreakerState:
    """A call ended without telling anything (it was cancelled): its probe's place is free again."""
    return replace(state, probe_until=0.0) if state.probe_until else state


def _opened(
    state: BreakerState, now: float, kind: FailureKind, seconds: float, retry_after: float
) -> BreakerState:
    until = max(state.open_until, now + max(seconds, retry_after))
    return replace(state, open_until=until, opened_for=seconds, kind=kind, probe_until=0.0, good_probes=0)


class BreakerStore(Protocol):
    """Where states are kept, by provider. A change is atomic, also between processes."""

    async def update(self, provider: str, change: Callable[[BreakerState], tuple[BreakerState, T]]) -> T:
        """Apply `change` to the provider's state, keep what it returns first, return the second."""
        ...


class MemoryBreakerStore:
    """The states of one process."""

    def __init__(self) -> None:
        self._states: dict[str, BreakerState] = {}

    async def update(self, provider: str, change: Callable[[BreakerState], tuple[BreakerState, T]]) -> T:
        """See `BreakerStore`."""
        self._states[provider], answer = change(self._states.get(provider, CLOSED))
        return answer
