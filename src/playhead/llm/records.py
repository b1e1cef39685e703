"""What is written down of a model call, and how the tokens of several are added up."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from msgspec.structs import astuple, replace

from playhead.encode import mask
from playhead.errors import LLMError
from playhead.ids import now_ms
from playhead.types import CallRecord, CallStatus, LLMResult, Usage

_STATUSES: Mapping[str, CallStatus] = {
    "rate_limit": "rate_limited",
    "timeout": "timeout",
    "protocol": "parse_error",
}
_MAX_MESSAGE = 500

call_watcher: ContextVar[Callable[[CallRecord], Any] | None] = ContextVar("call_watcher", default=None)
"""Takes a record of each attempt that is made in this context, beside the `on_call` of the attempts: so
whoever carries out a run hears of every model call in it, those that its tools make too."""


def call_record(
    task: str,
    provider: str,
    model: str,
    outcome: LLMResult | LLMError | CallStatus,
    latency_ms: int | None = None,
    partial: LLMResult | None = None,
) -> CallRecord:
    """Return the record of an attempt, or of one that was skipped (`outcome` is its status).

    `partial` is what had arrived of an answer that broke off: its tokens were used all the same.
    """
    basis = CallRecord(task, provider, model, "success", now_ms(), latency_ms=latency_ms)
    said = outcome if isinstance(outcome, LLMResult) else partial
    if said is not None:
        basis = replace(
            basis,
            provider=provider or said.provider,
            # What answered, not what was asked: a router, or an alias of the provider's, may differ.
            model=said.model or model,
            tokens_in=said.usage.input_tokens,
            tokens_out=said.usage.output_tokens,
            cost_micro_usd=said.usage.cost_micro_usd,
        )
    if isinstance(outcome, LLMResult):
        return basis
    if isinstance(outcome, str):
        return replace(basis, status=outcome)
    return replace(
        basis,
        status=_STATUSES.get(outcome.code, "error"),
        http_status=outcome.status,
        error_kind=outcome.code,
        error_message=mask(str(outcome), _MAX_MESSAGE),
    )


def total_usage(usages: Sequence[Usage]) -> Usage:
    """Return the sum; a count that one of them did not report is unknown."""
    if len(usages) == 1:
        return usages[0]
    columns = zip(*map(astuple, usages), strict=True)
    return Usage(*[None if None in counts else sum(counts) for counts in columns])
