"""What a run may use: tokens and money, looked at before each request and after each response."""

from collections.abc import Sequence

import msgspec

from playhead.llm.window import estimate_tokens
from playhead.options import LoopOptions
from playhead.types import ChatMessage, LLMRequest, LLMResult, ToolSchema

_ADVICE = "Raise the limit, begin a new thread, or use a cheaper model."
_UNPRICED = (
    "max_run_cost_micro_usd is set, but what {model} costs is unknown. Wrap the model in Priced and "
    "name the provider that bills it, or limit max_run_tokens instead."
)


class Limits:
    """Keeps count for one run.

    A response whose tokens are not reported counts as estimated from its bytes; one whose cost is
    not known counts at the rate of the last one whose cost is. With no rate to go by, a limit on
    cost is reached at once: unknown is not zero. All of it follows from what was recorded of the
    run, so a replay comes to the same verdicts.

    Args:
        options: the limits.
        tools, system: what goes with every request.
    """

    def __init__(self, options: LoopOptions, tools: Sequence[ToolSchema] = (), system: str = "") -> None:
        self._tokens, self._cost = options.max_run_tokens, options.max_run_cost_micro_usd
        self._off = self._tokens is None and self._cost is None
        self._frame = 0.0 if self._off else (len(system) + len(msgspec.json.encode(tools))) / 4
        self._spent = 0.0
        self._paid: float = 0.0
        self._rate: float | None = None  # micro-USD for each token, prompt and answer alike
        self._told = (0, 0.0)  # so many messages were seen, and they make so long a prompt
        self.reached: str | None = None
        """Says which limit is reached, once one is."""

    def before(self, request: LLMRequest) -> str | None:
        """Why the request must not be made, if it would lead over a limit. Its answer is not foreseen."""
        if self._off:
            return None
        seen, prompt = self._told
        if not seen or len(request.messages) < seen:
            seen, prompt = 0, self._frame
        prompt += sum(map(estimate_tokens, request.messages[seen:]))
        if self._tokens is not None and self._spent + prompt > self._tokens:
            return self._text("used", self._spent, prompt, "tokens", "max_run_tokens", self._tokens)
        price = prompt * (self._rate or 0.0)
        if self._cost is not None and self._paid + price > self._cost:
            name = "max_run_cost_micro_usd"
            return self._text("cost", self._paid, price, "micro-USD", name, self._cost)
        return None

    def took(self, messages: Sequence[ChatMessage], result: LLMResult) -> None:
        """Count a response to `messages`."""
        if self._off:
            return
        usage = result.usage
        said = estimate_tokens(result.message)
        prompt: float | None = usage.input_tokens
        if prompt is None:
            prompt = self._frame + sum(map(estimate_tokens, messages))
        tokens = prompt + (said if usage.output_tokens is None else usage.output_tokens)
        self._told = (len(messages) + 1, prompt + said)
        self._spent += tokens
        if usage.cost_micro_usd is not None:
            self._rate = usage.cost_micro_usd / max(tokens, 1)
            self._paid += usage.cost_micro_usd
        elif self._rate is not None:
            self._paid += tokens * self._rate
        elif self._cost is not None:
            self.reached = _UNPRICED.format(model=result.model or result.provider or "the model")
        if self._tokens is not None and self._spent >= self._tokens:
            self.reached = self._text("used", self._spent, 0, "tokens", "max_run_tokens", self._tokens)
        elif self._cost is not None and self._paid >= self._cost:
            name = "max_run_cost_micro_usd"
            self.reached = self._text("cost", self._paid, 0, "micro-USD", name, self._cost)

    def _text(self, verb: str, so_far: float, more: float, unit: str, name: str, limit: int) -> str:
        text = f"The run has {verb} {so_far:,.0f} {unit}"
        if more:
            text += f", and its next request would take about {more:,.0f} more"
        return f"{text}: {name} is {limit:,}. {_ADVICE}"


NOT_RUN_FOR_LIMIT = "Not run: the run has reached its limit of tokens or cost."
