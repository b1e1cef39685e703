"""What a model around a model passes through, so that nobody notices that it is one."""

import copy
from collections.abc import Callable
from typing import Any

from playhead.llm.base import AgentLLM


class Wrapper:
    """The part of a wrapper that is not `generate`: the names of the inner model, and what it offers.

    `owns_attempts` is among them: a router stays the only one that tries again, whatever is around it.
    """

    def __init__(self, llm: AgentLLM) -> None:
        self._llm = llm
        self.owns_attempts = bool(getattr(llm, "owns_attempts", False))
        self.provider = str(getattr(llm, "provider", ""))
        self.model = str(getattr(llm, "model", ""))
        self.url: str | None = getattr(llm, "url", None) or None

    @property
    def repaired(self) -> Callable[[Any], AgentLLM]:
        """The inner model's `repaired`, if it has one: what it returns is wrapped in the same way."""
        repaired = self._llm.repaired  # type: ignore[attr-defined]  # an AttributeError says that it has none

        def again(change: Any) -> Any:
            other = copy.copy(self)
            other._llm = repaired(change)
            return other

        return again

    async def aclose(self) -> None:
        """Close the inner model, if it can be closed."""
        close = getattr(self._llm, "aclose", None)
        if close is not None:
            await close()
