"""The limits of a run."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from playhead.errors import ConfigError
from playhead.llm.base import AgentLLM
from playhead.types import AgentStep, LLMRequest

Check = Callable[[str], str | Awaitable[str | None] | None]
Prepared = LLMRequest | tuple[AgentLLM, LLMRequest]
PrepareStep = Callable[[int, LLMRequest, Sequence[AgentStep]], Prepared | Awaitable[Prepared]]

_OR_NONE = ("max_tokens", "stop_on_repeat", "max_run_tokens", "max_run_cost_micro_usd")


class LoopOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a run. Times are in seconds.

    Attributes:
        max_steps: model calls in one run, at least 1.
        call_timeout: first byte of a model call, and each silence between bytes.
        first_token_timeout: the first content of a streamed model call; None for no bound of its own.
        total_timeout: one model call as a whole; None for no bound.
        retries: further attempts of a model call whose failure may pass; 0 for none. A model that
            makes its own attempts, such as a router, is left to itself.
        tool_timeout: one tool call, where the tool does not say otherwise; None for no bound.
        parallel_tools: calls of one step that run at once.
        max_tokens: output limit of one model call; None for the provider's own.
        temperature: None for the provider's own.
        tool_choice: `auto`, `none`, `required` or a tool's name. Anything but `none` is released once
            a call was executed.
        wrap_up: at the cap, make one more call without tools, for an answer from what there is.
        stop_on_repeat: end the run with code `repeated_tool_error` when the same call has failed in
            the same way so many times in a row; None to leave it at the hint that the third brings.
        check: called with a text that would end the run: None to take it, or a complaint, which the
            model is asked with again. May be async; runs inside the model step, after the
            `output_type` was read.
        max_asks: how often the model is asked again for an answer that fits, each time as a step; then
            the run ends with code `output_mismatch`.
        max_run_tokens: tokens of all model calls of the run, prompts and answers; None for no bound.
        max_run_cost_micro_usd: the same for their cost, which `playhead.llm.prices.Priced` fills in.
            Both are looked at before each request, by estimate, and after each response. A run that
            would go over ends with code `limit`; an answer that is there by then is kept as it is.
            What a provider did not report is estimated (see `playhead.limits`), never taken for zero.
        prepare_step: `(index, request, steps)` to the request for this step, or to a model and a
            request; may be async. It runs inside the model step, so its choice is recorded.

    Raises `ConfigError` for a value out of range.
    """

    max_steps: int = 10
    call_timeout: float | None = 60.0
    first_token_timeout: float | None = None
    total_timeout: float | None = None
    retries: int = 2
    tool_timeout: float | None = 120.0
    parallel_tools: int = 8
    max_tokens: int | None = None
    temperature: float | None = None
    tool_choice: str | None = None
    wrap_up: bool = False
    stop_on_repeat: int | None = None
    check: Check | None = None
    max_asks: int = 2
    max_run_tokens: int | None = None
    max_run_cost_micro_usd: int | None = None
    prepare_step: PrepareStep | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "parallel_tools", *_OR_NONE):
            value = getattr(self, name)
            if not (name in _OR_NONE and value is None) and (not _is_whole(value) or value < 1):
                raise ConfigError(f"LoopOptions.{name} is {value!r}; it must be an integer of at least 1.")
        for name in ("retries", "max_asks"):
            value = getattr(self, name)
            if not _is_whole(value) or value < 0:
                raise ConfigError(f"LoopOptions.{name} is {value!r}; it must be an integer of at least 0.")
        for name in ("call_timeout", "first_token_timeout", "total_timeout", "tool_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"LoopOptions.{name} is {value!r}; it must be more than 0 s, or None.")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
