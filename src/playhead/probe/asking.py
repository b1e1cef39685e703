"""One small request to an endpoint, and what it made of it."""

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple

from playhead.errors import LLMError
from playhead.events import LLMDelta
from playhead.llm.base import AgentLLM
from playhead.llm.profiles import Profile
from playhead.types import LLMRequest, LLMResult

Make = Callable[[Profile | None], AgentLLM]
"""Makes the adapter that speaks as a profile says; None is a dialect without profiles."""

_WAIT, _LONGEST_WAIT = 1.0, 10.0
# What may pass by itself: it is asked once more.
_PASSING = frozenset({"rate_limit", "timeout", "connection", "overloaded"})
# Of these no form of a request is the cause, and a further request would not fare better.
_FATAL = frozenset({"auth", "quota", "connection"})


class Outcome(NamedTuple):
    """What came of one request: it was `taken`, `refused`, or there was `no answer` to judge by."""

    kind: Literal["taken", "refused", "no answer"]
    words: str
    result: LLMResult | None = None
    error: LLMError | None = None


class Asker:
    """Asks one endpoint, each question at most twice."""

    def __init__(self, make: Make) -> None:
        self.requests = 0
        self._make = make

    async def ask(self, request: LLMRequest, profile: Profile | None, *, stream: bool = False) -> Outcome:
        """Send a request as the profile says. Raises an `LLMError` that no other form would avoid."""
        try:
            result = await self._generate(request, profile, stream)
        except LLMError as error:
            return _judge(error)
        return Outcome("taken", "taken", result)

    async def _generate(self, request: LLMRequest, profile: Profile | None, stream: bool) -> LLMResult:
        llm = self._make(profile)
        self.requests += 1
        try:
            return await llm.generate(request, _unheard if stream else None)
        except LLMError as error:
            if error.code not in _PASSING:
                raise
            wait = _WAIT if error.retry_after is None else error.retry_after
        await asyncio.sleep(min(wait, _LONGEST_WAIT))
        self.requests += 1
        return await llm.generate(request, _unheard if stream else None)


def _unheard(delta: LLMDelta) -> None:
    pass


def _judge(error: LLMError) -> Outcome:
    # 403 and 404 are also answers to a form: a gateway has no server that takes it.
    if error.code in _FATAL and error.status != 403:
        raise error
    if error.code in ("rate_limit", "timeout"):
        return Outcome("no answer", f"no answer ({error.code.replace('_', ' ')})", error=error)
    if error.code == "overloaded":
        return Outcome("refused", f"failed twice ({error.status})", error=error)
    if error.code == "protocol":
        return Outcome("refused", "answered with what cannot be read", error=error)
    return Outcome("refused", f"refused ({error.status or error.code})", error=error)
