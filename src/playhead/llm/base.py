"""The one interface to a language model."""

from typing import Protocol

from playhead.events import EmitDelta
from playhead.types import LLMRequest, LLMResult


class AgentLLM(Protocol):
    """A model behind an interface. A router, a recorder or a time-out is one around another.

    The contract of `generate`:
    - `request.messages` is never mutated.
    - With `emit`, the model streams: `emit` takes one delta, never blocks and never raises. A delta
      needs no more than its own fields; run, step, message id, offset and time are stamped by the
      loop. Without `emit` it need not stream.
    - It returns what the provider said, calls included, whether or not tools were offered: judging
      is the loop's job. A response cut short after content returns with `stop_reason
      "interrupted"`; anything else that fails raises an `LLMError`.
    - It never retries.

    A model may have `async aclose()`.
    """

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult: ...
