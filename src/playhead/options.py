"""The limits of a run."""

import msgspec

from playhead.errors import ConfigError


class LoopOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a run. Times are in seconds.

    Attributes:
        max_steps: model calls in one run, at least 1.
        call_timeout: first byte of a model call, and each silence between bytes.
        total_timeout: one model call as a whole; None for no bound.
        tool_timeout: one tool call, where the tool does not say otherwise; None for no bound.
        parallel_tools: calls of one step that run at once.
        max_tokens: output limit of one model call; None for the provider's own.
        temperature: None for the provider's own.

    Raises `ConfigError` for a value out of range.
    """

    max_steps: int = 10
    call_timeout: float | None = 60.0
    total_timeout: float | None = None
    tool_timeout: float | None = 120.0
    parallel_tools: int = 8
    max_tokens: int | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "parallel_tools", "max_tokens"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (name == "max_tokens" and value is None) and (not whole or value < 1):
                raise ConfigError(f"LoopOptions.{name} is {value!r}; it must be an integer of at least 1.")
        for name in ("call_timeout", "total_timeout", "tool_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"LoopOptions.{name} is {value!r}; it must be more than 0 s, or None.")
