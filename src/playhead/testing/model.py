"""A model as a list of answers, for what needs no wire."""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from playhead.errors import BadRequestError
from playhead.events import EmitDelta, LLMDelta, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from playhead.types import AssistantMessage, LLMRequest, LLMResult, ToolCall

_Call: TypeAlias = ToolCall | tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], str]
_Said: TypeAlias = str | _Call | Sequence[_Call] | LLMResult | BaseException
Answer: TypeAlias = _Said | Callable[[LLMRequest], _Said | Awaitable[_Said]]
"""One answer of a `ScriptedLLM`."""


class ScriptedLLM:
    """An `AgentLLM` that answers from a script, in order.

        llm = ScriptedLLM([("add", {"a": 2, "b": 3})], "The sum is 5.")

    An answer is

    - text;
    - a call or several: a `ToolCall`, or a tuple of a tool's name, its arguments and an id if that
      matters; ids are made otherwise (`call_1`, `call_2`, ...);
    - an exception, which is raised;
    - an `LLMResult`, for all that these do not say (reasoning, a stop reason, usage);
    - a function of the request that returns one of these, or a coroutine function.

    It streams when `emit` is given: text word by word, giving way to other tasks in between.

    Args:
        script: the answers.
        default: answers once the script is used up. Without it, a call beyond the script raises a
            `BadRequestError` that says so; no loop repeats such a call, and the run ends with it.

    Attributes:
        requests: every `LLMRequest` so far.
    """

    provider = "scripted"
    model = "scripted"

    def __init__(self, *script: Answer, default: Answer | None = None) -> None:
        self.requests: list[LLMRequest] = []
        self._script = list(script)
        self._default = default
        self._given = len(script)
        self._calls = 0

    @property
    def unused(self) -> int:
        """How many answers nobody asked for."""
        return len(self._script)

    def add(self, *script: Answer) -> None:
        """Append answers to the script."""
        self._script += script
        self._given += len(script)

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """Give the next answer."""
        self.requests.append(request)
        said = self._next()
        if callable(said):
            said = said(request)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, BaseException):
            raise said
        result = self._result(said)
        if emit is not None:
            for delta in _deltas(result.message):
                emit(delta)
                await asyncio.sleep(0)
        return result

    def _next(self) -> Any:
        if self._script:
            return self._script.pop(0)
        if self._default is not None:
            return self._default
        raise BadRequestError(
            f"The script has {self._given} answers, and this is call {len(self.requests)} of the model.",
            provider=self.provider,
        )

    def _result(self, said: Any) -> LLMResult:
        if isinstance(said, LLMResult):
            return said
        if isinstance(said, str):
            message = AssistantMessage(content=said, stop_reason="stop")
            return LLMResult(message, "stop", provider=self.provider, model=self.model)
        one = isinstance(said, ToolCall) or (isinstance(said, tuple) and said and isinstance(said[0], str))
        calls = [self._call(call) for call in ([said] if one else said)]
        message = AssistantMessage(content="", tool_calls=calls, stop_reason="tool_calls")
        return LLMResult(message, "tool_calls", provider=self.provider, model=self.model)

    def _call(self, call: Any) -> ToolCall:
        self._calls += 1
        if isinstance(call, ToolCall):
            return call
        name, args, *given = call
        return ToolCall(given[0] if given else f"call_{self._calls}", name, args)


def _deltas(message: AssistantMessage) -> Sequence[LLMDelta]:
    deltas: list[LLMDelta] = []
    if message.reasoning:
        deltas.append(ReasoningDelta(text=message.reasoning))
    deltas += [TextDelta(text=word) for word in re.findall(r"\s*\S+|\s+", message.content)]
    for call in message.tool_calls:
        deltas.append(ToolCallStart(call_id=call.id, name=call.name))
        deltas.append(ToolCallDelta(call_id=call.id, text=msgspec.json.encode(call.args).decode()))
    return deltas
