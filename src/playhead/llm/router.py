"""Several providers behind one model: a chain for each task, failover within it, a breaker for each.

`AIRouter` is an `AgentLLM`, so an agent loop fails over in mid-conversation; `route` is one stateless
call with short time-outs, for classifiers and the like.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from playhead.errors import ConfigError
from playhead.events import EmitDelta
from playhead.llm.attempts import AttemptPolicy, Attempts, OnCall, Target
from playhead.llm.base import AgentLLM
from playhead.llm.breaker import BreakerStore, MemoryBreakerStore
from playhead.types import ChatMessage, LLMRequest, LLMResult, UserMessage

Chain = Sequence[Target | AgentLLM]

DEFAULT_TASK = "chat"
ROUTE_CALL_TIMEOUT = 3.0
ROUTE_BUDGET = 9.0


class AIRouter:
    """A model that is the first of a chain that answers.

    Args:
        chains: the chain of each task, or one chain for all. The task `chat` is what a loop uses.
        breakers: where the states of the providers are kept; by default in this process.
        on_call: takes a `CallRecord` of each attempt and skip.
        policy: how long `generate` goes on at each target.

    Raises `ConfigError` for an empty chain.
    """

    owns_attempts = True
    provider = "router"
    model = ""

    def __init__(
        self,
        chains: Chain | Mapping[str, Chain],
        *,
        breakers: BreakerStore | None = None,
        on_call: OnCall | None = None,
        policy: AttemptPolicy | None = None,
    ) -> None:
        by_task = chains if isinstance(chains, Mapping) else {DEFAULT_TASK: chains}
        if not by_task or not all(by_task.values()):
            raise ConfigError("AIRouter needs at least one model in each chain.")
        breakers = breakers or MemoryBreakerStore()
        policy = policy or AttemptPolicy(retries=1)
        quick = AttemptPolicy(retries=0, call_timeout=ROUTE_CALL_TIMEOUT, budget=ROUTE_BUDGET)
        more: dict[str, Any] = {"breakers": breakers, "on_call": on_call}
        self._chains = {task: Attempts(chain, policy, task=task, **more) for task, chain in by_task.items()}
        self._quick = {task: Attempts(chain, quick, task=task, **more) for task, chain in by_task.items()}

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """Return the answer of the first provider that gives one. Raises the first cause otherwise."""
        return await self._of(self._chains, DEFAULT_TASK).generate(request, emit)

    async def route(
        self,
        task: str,
        input: str | Sequence[ChatMessage],
        *,
        call_timeout: float = ROUTE_CALL_TIMEOUT,
        budget: float = ROUTE_BUDGET,
        **fields: Any,
    ) -> LLMResult:
        """Make one stateless call through the chain of a task.

        Args:
            task: whose chain; one that has none uses that of `chat`.
            input: the user's text, or messages.
            call_timeout: seconds for each provider.
            budget: seconds for all of them.
            fields: of `LLMRequest`, such as `system` or `max_tokens`.

        Raises the first cause, an `LLMError` whose `attempts` lists all that was tried.
        """
        attempts = self._of(self._quick, task)
        if (call_timeout, budget) != (ROUTE_CALL_TIMEOUT, ROUTE_BUDGET):
            attempts = attempts.within(call_timeout, budget)
        messages = [UserMessage(input)] if isinstance(input, str) else input
        return await attempts.generate(LLMRequest(messages, **{"timeout": call_timeout, **fields}))

    def each(self, wrap: Callable[[AgentLLM], AgentLLM]) -> "AIRouter":
        """Return the same router, with each of its models wrapped: `router.each(Priced)`."""
        other = copy.copy(self)
        other._chains = {task: chain.each(wrap) for task, chain in self._chains.items()}
        other._quick = {task: chain.each(wrap) for task, chain in self._quick.items()}
        return other

    def _of(self, chains: Mapping[str, Attempts], task: str) -> Attempts:
        chain = chains.get(task) or chains.get(DEFAULT_TASK)
        if chain is None:
            raise ConfigError(f"There is no chain for the task {task!r}. There are: {', '.join(chains)}.")
        return chain


class AIClient:
    """The conversational convenience: one model, text in, text out.

    Args:
        llm: the model.
        system: instructions.
        fields: of `LLMRequest`, such as `max_tokens`.

    With a `thread_id`, the conversation is kept in memory, for as long as the client is.
    """

    def __init__(self, llm: AgentLLM, *, system: str | None = None, **fields: Any) -> None:
        self._llm = llm if getattr(llm, "owns_attempts", False) else Attempts([llm])
        self._request = LLMRequest([], system=system, **fields)
        self._threads: dict[str, list[ChatMessage]] = {}

    async def chat(self, text: str, thread_id: str | None = None) -> str:
        """Return the answer to `text`. Raises `LLMError`; a failed question is not remembered."""
        history = self._threads.get(thread_id, []) if thread_id else []
        asked: list[ChatMessage] = [*history, UserMessage(text)]
        result = await self._llm.generate(replace(self._request, messages=asked, memo={}))
        if thread_id:
            self._threads[thread_id] = [*asked, result.message]
        return result.message.content
