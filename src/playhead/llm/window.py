"""A history that fits: windows by turns and by estimated tokens, cut only where a turn begins."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from playhead.errors import ConfigError
from playhead.events import EmitDelta
from playhead.llm.base import AgentLLM
from playhead.llm.wrapper import Wrapper
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    LLMResult,
    SystemMessage,
    TextPart,
    UserMessage,
)

CountTokens = Callable[[ChatMessage], float]

# What a picture or a file costs is the provider's affair; this is the usual order.
_MEDIA_TOKENS = 800
_PER_MESSAGE = 4


def estimate_tokens(message: ChatMessage) -> float:
    """Estimate what a message costs: its UTF-8 bytes / 4, calls included, and a little for its frame."""
    size = 0
    if isinstance(message.content, str):
        size += len(message.content.encode("utf-8", "replace"))
    else:
        texts = [part.text for part in message.content if isinstance(part, TextPart)]
        size += sum(len(text.encode("utf-8", "replace")) for text in texts)
        size += 4 * _MEDIA_TOKENS * (len(message.content) - len(texts))
    if isinstance(message, AssistantMessage):
        size += sum(len(call.name) + len(msgspec.json.encode(call.args)) for call in message.tool_calls)
    return size / 4 + _PER_MESSAGE


def window(
    messages: Sequence[ChatMessage],
    *,
    turns: int | None = None,
    tokens: float | None = None,
    count: CountTokens = estimate_tokens,
    starts: Sequence[int] | None = None,
) -> list[ChatMessage]:
    """Return the last turns of a history that fit in both bounds, whole, with all system messages.

    A turn begins with a user message that does not follow another one; where it is known better,
    `starts` says where each does, in order, the first at 0. The last turn is always there, however
    large: nothing of what is being answered may be missing.
    """
    if starts is None:
        starts = _turn_starts(messages)
    keep = len(starts) if turns is None else min(max(turns, 1), len(starts))
    if tokens is not None:
        keep = min(keep, _fitting(messages, starts, tokens, count))
    if keep >= len(starts):
        return list(messages)
    first = starts[-keep]
    systems = [message for message in messages[:first] if isinstance(message, SystemMessage)]
    return [*systems, *messages[first:]]


def _turn_starts(messages: Sequence[ChatMessage]) -> list[int]:
    starts = [0]
    answered = False
    for n, message in enumerate(messages):
        if isinstance(message, UserMessage) and answered:
            starts.append(n)
            answered = False
        elif not isinstance(message, UserMessage | SystemMessage):
            answered = True
    return starts


def _fitting(
    messages: Sequence[ChatMessage], starts: Sequence[int], tokens: float, count: CountTokens
) -> int:
    """Return how many last turns fit, at least one."""
    left = tokens
    end = len(messages)
    for kept, start in enumerate(reversed(starts)):
        left -= sum(count(message) for message in messages[start:end])
        if left < 0:
            return max(kept, 1)
        end = start
    return len(starts)


class Windowed(Wrapper):
    """A model that is shown only as much of the history as fits; a wrapper around any `AgentLLM`.

    Args:
        llm: the model.
        turns: the most turns that it is shown.
        tokens: the most tokens of messages that it is shown, as estimated. After each answer the
            estimate is scaled by what the provider reported.
        count: a counter of your own, for example a tokenizer; it is not scaled.

    Raises `ConfigError` for a bound below 1.
    """

    def __init__(
        self,
        llm: AgentLLM,
        *,
        turns: int | None = None,
        tokens: int | None = None,
        count: CountTokens | None = None,
    ) -> None:
        for name, value in (("turns", turns), ("tokens", tokens)):
            if value is not None and value < 1:
                raise ConfigError(f"Windowed: {name} is {value!r}; it must be at least 1, or None.")
        super().__init__(llm)
        self._turns = turns
        self._tokens = tokens
        self._count = count
        self._scale = 1.0

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """Call the model with the window. Raises what it raises."""
        count = self._count or estimate_tokens
        bound = None if self._tokens is None else self._tokens / self._scale
        shown = window(request.messages, turns=self._turns, tokens=bound, count=count)
        result = await self._llm.generate(replace(request, messages=shown), emit)
        reported = result.usage.input_tokens
        if self._count is None and self._tokens is not None and reported:
            frame = len(request.system or "") + len(msgspec.json.encode(request.tools))
            estimated = sum(count(message) for message in shown) + frame / 4
            # One odd report must not empty the window, nor undo it.
            self._scale = min(max(reported / estimated, 0.25), 4.0)
        return result
