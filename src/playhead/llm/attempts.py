"""The one attempt loop: retry, fail over, wait, give up. Nothing under it retries.

A call goes through targets in order. What happens after a failure depends on its class only: a
rejected request never fails over, a refused key skips its provider, what may pass is tried again
within the budget, and the rest goes to the next target. Each attempt opens with an `attempt` delta,
which voids what was shown before it, so there is one answer whatever was seen.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from playhead.encode import masked_traceback
from playhead.errors import LLMConnectionError, LLMError, LLMTimeoutError, OverloadedError
from playhead.events import Attempt, EmitDelta, TextDelta
from playhead.llm.base import AgentLLM
from playhead.llm.breaker import BreakerState, BreakerStore, FailureKind, ask, failed, released, succeeded
from playhead.llm.records import call_record, call_watcher, total_usage
from playhead.types import CallRecord, CallStatus, LLMRequest, LLMResult, Usage, UserMessage

logger = logging.getLogger("playhead")

OnCall = Callable[[CallRecord], Any]
Action = Literal["retry", "next", "larger", "stop"]

# By an error's code. What is not listed is tried again.
_ACTIONS: Mapping[str, Action] = {
    "bad_request": "stop",
    "content_filter": "stop",
    "config": "stop",
    "context_too_long": "larger",
    "auth": "next",
    "quota": "next",
    "model_not_found": "next",
}
_KINDS: Mapping[str, FailureKind] = {
    "rate_limit": "rate_limit",
    "timeout": "timeout",
    "overloaded": "error",
    "connection": "error",
    "protocol": "error",
    "llm": "error",
}


class Target(msgspec.Struct, frozen=True):
    """A model in a chain.

    `provider` names it for the breaker and the log; `context_tokens` is the size of its context,
    where it is known: a history that was too long for one model may fit a larger one.
    """

    llm: AgentLLM
    provider: str = ""
    model: str = ""
    context_tokens: int | None = None


class AttemptPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long to go on. Times are in seconds.

    Attributes:
        retries: further attempts at one target.
        call_timeout: one attempt as a whole; None for the request's own bounds.
        budget: all attempts and waits together; None for no bound.
        backoff: the first wait, doubled each time and shortened by chance by up to a half.
        longest_wait: no wait is longer; a provider that asks for more is left for the next one.
    """

    retries: int = 2
    call_timeout: float | None = None
    budget: float | None = None
    backoff: float = 0.5
    longest_wait: float = 30.0


class Attempts:
    """An `AgentLLM` over one or more others that tries until there is an answer.

    Args:
        targets: models, or `Target`s, in order.
        policy: how long to go on.
        breakers: states of the providers; a lone target is always tried.
        on_call: takes a record of each attempt and skip; what it raises is logged.
        task: names the purpose in the records.
    """

    owns_attempts = True

    def __init__(
        self,
        targets: Sequence[Target | AgentLLM],
        policy: AttemptPolicy | None = None,
        *,
        breakers: BreakerStore | None = None,
        on_call: OnCall | None = None,
        task: str = "chat",
    ) -> None:
        self.targets = [t if isinstance(t, Target) else _target(t) for t in targets]
        self.policy = policy or AttemptPolicy()
        self.breakers = breakers if len(self.targets) > 1 else None
        self.on_call = on_call
        self.task = task
        self.repaired: dict[int, AgentLLM] = {}
        timed = self.policy.call_timeout is not None or self.policy.budget is not None
        self._plain = self.breakers is None and on_call is None and not timed

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """Return the first answer. Raises the first cause, whose `attempts` lists them all."""
        if not self._plain or call_watcher.get() is not None:
            return await _Call(self, request, emit).run()
        # The usual case: one attempt that goes well, with nothing to keep time or records of.
        target = self.targets[0]
        if emit is not None:
            emit(Attempt(1, "", target.provider, target.model))
        llm = self.repaired.get(0, target.llm) if self.repaired else target.llm
        first: LLMResult | Exception
        try:
            first = await llm.generate(request, emit)
            if _good(first):
                return first
        except Exception as error:
            first = error
        try:
            return await _Call(self, request, emit, first).run()
        finally:
            del first  # an error holds this frame, which must not hold the error

    def each(self, wrap: Callable[[AgentLLM], AgentLLM]) -> "Attempts":
        """Return the same chain, with each of its models wrapped."""
        targets = [replace(target, llm=wrap(target.llm)) for target in self.targets]
        return Attempts(targets, self.policy, breakers=self.breakers, on_call=self.on_call, task=self.task)

    def within(self, call_timeout: float, budget: float) -> "Attempts":
        """Return the same chain, with other bounds on its time."""
        policy = replace(self.policy, call_timeout=call_timeout, budget=budget)
        return Attempts(self.targets, policy, breakers=self.breakers, on_call=self.on_call, task=self.task)


class _Call:
    """One call through the targets."""

    def __init__(
        self,
        attempts: Attempts,
        request: LLMRequest,
        emit: EmitDelta | None,
        first: LLMResult | Exception | None = None,
    ) -> None:
        self.first = first
        self.of = attempts
        self.policy = attempts.policy
        self.request = request
        self.emit = emit
        self.number = 0
        self.errors: list[LLMError] = []
        self.records: list[CallRecord] = []
        self.usages: list[Usage] = []
        self.partial: LLMResult | None = None
        self.repairs = 0
        self.rest = _FOREVER
        self.deadline = None if self.policy.budget is None else time.monotonic() + self.policy.budget

    async def run(self) -> LLMResult:
        smallest = 0
        for index, target in enumerate(self.of.targets):
            if smallest and (target.context_tokens or 0) <= smallest:
                continue
            if self.left() <= 0:
                self.note(target, "skipped_budget")
                continue
            if not await self.admitted(target):
                self.note(target, "skipped_open")
                continue
            result, action = await self.try_target(index, target)
            if result is not None:
                return self.whole(result)
            if action == "stop":
                break
            smallest = (target.context_tokens or 1) if action == "larger" else 0
        return self.given_up()

    async def try_target(self, index: int, target: Target) -> tuple[LLMResult | None, Action]:
        retried = 0
        while True:
            outcome = await self.attempt(self.of.repaired.get(index, target.llm), target)
            if isinstance(outcome, LLMResult):
                # An empty answer is asked for once more; then it is what it is.
                if not _empty(outcome) or retried or not self.policy.retries:
                    return outcome, "stop"
                self.usages.append(outcome.usage)
                retried += 1
                continue
            if self.repair(index, target, outcome):
                continue
            action = _ACTIONS.get(outcome.code, "retry" if outcome.passing else "next")
            if action != "retry" or retried >= self.policy.retries:
                return None, action if action != "retry" else "next"
            wait = self.wait(outcome, retried)
            if wait is None:
                return None, "next"
            retried += 1
            if wait:
                await asyncio.sleep(wait)

    async def attempt(self, llm: AgentLLM, target: Target) -> LLMResult | LLMError:
        """Make one attempt, and tell everybody how it went."""
        self.number += 1
        first, self.first = self.first, None
        if self.emit is not None and first is None:
            reason = self.errors[-1].code if self.errors else ""
            self.emit(Attempt(self.number, reason, target.provider, target.model))
        started = time.perf_counter()
        try:
            outcome: LLMResult | LLMError = _outcome(first) if first else await self.bounded(llm)
        except LLMError as error:
            outcome = error
        except asyncio.CancelledError:
            await self.tell_breaker(target, released)
            raise
        except Exception as error:
            logger.error("A model raised instead of an LLMError:\n%s", masked_traceback(error))
            outcome = LLMError(f"The model failed: {type(error).__name__}.", provider=target.provider)
        cut = None
        if isinstance(outcome, LLMResult) and outcome.stop_reason == "interrupted":
            cut = self.partial = outcome
            self.usages.append(outcome.usage)
            outcome = LLMConnectionError("The provider's answer broke off.", provider=target.provider)
        await self.learn(target, outcome)
        self.note(target, outcome, round((time.perf_counter() - started) * 1000), cut)
        if isinstance(outcome, LLMError):
            self.errors.append(outcome)
        return outcome

    async def bounded(self, llm: AgentLLM) -> LLMResult:
        bounds = [b for b in (self.policy.call_timeout, self.left()) if b is not None and b != _FOREVER]
        if not bounds:
            return await llm.generate(self.request, self.emit)
        bound = min(bounds)
        total = self.request.total_timeout
        request = replace(self.request, total_timeout=bound if total is None else min(bound, total))
        try:
            # An adapter keeps its own time, and what was said; this is for one that does not.
            async with asyncio.timeout(bound + 0.25):
                return await llm.generate(request, self.emit)
        except TimeoutError:
            raise LLMTimeoutError(f"No answer within {bound:.3g} s.") from None

    def repair(self, index: int, target: Target, error: LLMError) -> bool:
        """Apply what the error says would help. Twice in a call at most, and remembered if it is a change."""
        if error.repair is None or self.repairs >= 2:
            return False
        self.repairs += 1
        if isinstance(error.repair, str):
            hint = UserMessage(error.repair)
            self.request = replace(self.request, messages=[*self.request.messages, hint])
            return True
        repaired = getattr(self.of.repaired.get(index, target.llm), "repaired", None)
        if repaired is None:
            return False
        self.of.repaired[index] = repaired(error.repair)
        logger.warning("%s does not take what was sent; from now on: %s", target.provider, error.repair)
        return True

    def wait(self, error: LLMError, retried: int) -> float | None:
        """Return the seconds to wait before the next attempt, or None when that is too long."""
        if error.retry_after is not None:
            seconds = error.retry_after
        else:
            seconds = self.policy.backoff * 2**retried * (1 - random.random() / 2)  # noqa: S311 not a secret
        return None if seconds > self.policy.longest_wait or seconds >= self.left() else seconds

    def left(self) -> float:
        """Return the seconds that are left of the budget."""
        return _FOREVER if self.deadline is None else self.deadline - time.monotonic()

    # ------------------------------------------------------------ breaker and records

    async def admitted(self, target: Target) -> bool:
        def asked(state: BreakerState, now: float) -> tuple[BreakerState, float]:
            state, verdict = ask(state, now)
            return state, max(state.open_until, state.probe_until) - now if verdict == "open" else 0.0

        rest = await self.tell_breaker(target, asked) or 0.0
        self.rest = min(self.rest, rest or self.rest)
        return not rest

    async def learn(self, target: Target, outcome: LLMResult | LLMError) -> None:
        if isinstance(outcome, LLMResult):
            await self.tell_breaker(target, succeeded)
            return
        kind = _KINDS.get(outcome.code)
        after = outcome.retry_after or 0.0
        change = released if kind is None else partial(failed, kind=kind, retry_after=after)
        await self.tell_breaker(target, change)

    async def tell_breaker(self, target: Target, change: Callable[..., Any]) -> Any:
        if self.of.breakers is None:
            return None

        def apply(state: Any) -> tuple[Any, Any]:
            changed = change(state, time.time())
            return changed if isinstance(changed, tuple) else (changed, None)

        return await self.of.breakers.update(target.provider, apply)

    def note(
        self,
        target: Target,
        outcome: LLMResult | LLMError | CallStatus,
        latency: int | None = None,
        cut: LLMResult | None = None,
    ) -> None:
        watcher = call_watcher.get()
        if self.of.on_call is None and watcher is None and isinstance(outcome, LLMResult):
            return  # nobody reads it, and there is no failure to explain
        record = call_record(self.of.task, target.provider, target.model, outcome, latency, cut)
        self.records.append(record)
        for take in (self.of.on_call, watcher):
            try:
                if take is not None:
                    take(record)
            except Exception:  # a log that fails must not break a call
                logger.exception("on_call failed for a call of %s", target.provider)

    # ------------------------------------------------------------ the end

    def whole(self, result: LLMResult) -> LLMResult:
        """The answer, with the tokens of the attempts before it."""
        if not self.usages:
            return result
        return replace(result, usage=total_usage([*self.usages, result.usage]))

    def given_up(self) -> LLMResult:
        partial_answer = self.partial
        if partial_answer is not None:
            # Something was said: it is shown again, as what it is, and kept.
            if self.emit is not None and len(self.errors) > 1:
                self.emit(Attempt(self.number + 1, "interrupted"))
                self.emit(TextDelta(partial_answer.message.content))
            return replace(partial_answer, usage=total_usage(self.usages))
        error = self.errors[0] if self.errors else self.nobody_asked()
        error.attempts = tuple(self.records)
        if len(self.records) > 1:
            listed = (f"{r.provider} {r.model}: {r.error_kind or r.status}" for r in self.records)
            error.add_note(f"Attempts: {'; '.join(listed)}")
        raise error

    def nobody_asked(self) -> LLMError:
        if self.rest == _FOREVER:
            return LLMTimeoutError("There was no time left to ask a provider. Raise the budget.")
        seconds = round(self.rest)
        return OverloadedError(
            f"Every provider is resting after failures. Try again in {seconds} s.", retry_after=self.rest
        )


_FOREVER = float("inf")


def _outcome(first: LLMResult | Exception) -> LLMResult:
    if isinstance(first, Exception):
        raise first
    return first


def _target(llm: AgentLLM) -> Target:
    return Target(llm, str(getattr(llm, "provider", "")), str(getattr(llm, "model", "")))


def _good(result: LLMResult) -> bool:
    stop = result.stop_reason
    return stop == "tool_calls" or (stop != "interrupted" and not _empty(result))


def _empty(result: LLMResult) -> bool:
    message = result.message
    return result.stop_reason in ("stop", "other") and not (message.content.strip() or message.tool_calls)
