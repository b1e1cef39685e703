"""What a response costs, from the open data set `genai-prices` (extra `prices`).

The data come with the package: nothing is fetched. Loading them takes some 0.4 s of CPU and 70 MB
once for a process; `Priced` does it in a thread while the first answer is on its way.
Source: https://github.com/pydantic/genai-prices
"""

import asyncio
import importlib.util
import logging
from decimal import ROUND_CEILING
from functools import cache
from types import ModuleType

from msgspec.structs import replace

from playhead.errors import ConfigError
from playhead.events import EmitDelta
from playhead.llm.base import AgentLLM
from playhead.llm.wrapper import Wrapper
from playhead.types import LLMRequest, LLMResult, Usage

logger = logging.getLogger("playhead")

_MICRO = 1_000_000
# Names a dialect, not who is behind it: without an address there is no telling who sends the bill.
_ANYBODY = "openai-compatible"


def cost_micro_usd(usage: Usage, provider: str, model: str, *, url: str | None = None) -> int | None:
    """Return the list price of a response in micro-USD (millionths of a dollar), rounded up.

    Cached, cache-written and reasoning tokens cost what the provider asks for them; where those
    counts are unknown, their tokens are priced as plain ones.

    Args:
        usage: its counts; input and output must be known.
        provider: who sends the bill, by name, such as `openai` or `google`.
        model: the model's id, as the provider writes it.
        url: the address that was called. Where it is given, it tells the provider.

    Returns None, never zero, for an unknown provider or model, and for missing or impossible counts.
    Raises `ConfigError` without the package.
    """
    if usage.input_tokens is None or usage.output_tokens is None or not model:
        return None
    if url is None and provider in ("", _ANYBODY):
        return None
    prices = load_prices()
    counts = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_reasoning_tokens": usage.reasoning_tokens,
    }
    of = {"provider_id": provider} if url is None else {"provider_api_url": url}
    try:
        found = prices.calc_price(prices.Usage(**counts), model, **of)
    except (LookupError, ValueError):
        return None
    if found.model_price.input_mtok is None or found.model_price.output_mtok is None:
        return None  # the data know the model, but not this price
    return int((found.total_price * _MICRO).to_integral_value(ROUND_CEILING))


@cache
def load_prices() -> ModuleType:
    """Load the data set, once. Raises `ConfigError` without the package."""
    try:
        import genai_prices
    except ImportError as error:
        raise _needs_package() from error
    genai_prices.data_snapshot.get_snapshot()
    return genai_prices


def _needs_package() -> ConfigError:
    return ConfigError("Prices need a package: pip install 'playhead[prices]'")


class Priced(Wrapper):
    """A model whose answers say what they cost; a wrapper around any `AgentLLM`.

    It fills `usage.cost_micro_usd` where it is unknown. Around a router or another model that makes
    several attempts, it prices each attempt by the model that answered it.

    Args:
        llm: the model.
        provider: who sends the bill, such as `openai`, `azure`, `google` or `openrouter`, where
            neither the model's address nor its provider's name says so: behind a proxy, for example.

    Raises `ConfigError` without the package `genai-prices`.
    """

    def __init__(self, llm: AgentLLM, provider: str | None = None) -> None:
        if importlib.util.find_spec("genai_prices") is None:
            raise _needs_package()
        each = getattr(llm, "each", None)
        super().__init__(each(lambda inner: Priced(inner, provider)) if each else llm)
        self._inside = each is not None
        self._billed_by = provider

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """Call the model. Raises what it raises; a price that cannot be found is unknown."""
        loading = None
        if not load_prices.cache_info().currsize:
            loading = asyncio.get_running_loop().run_in_executor(None, _loaded)
        result = await self._llm.generate(request, emit)
        if self._inside or result.usage.cost_micro_usd is not None:
            return result
        if loading is not None and not await loading:
            return result
        cost = self._cost(result)
        return result if cost is None else replace(result, usage=replace(result.usage, cost_micro_usd=cost))

    def _cost(self, result: LLMResult) -> int | None:
        model = result.model or self.model
        if self._billed_by is not None:
            return cost_micro_usd(result.usage, self._billed_by, model)
        provider = result.provider or self.provider
        return cost_micro_usd(result.usage, provider, model, url=self.url)


def _loaded() -> bool:
    try:
        load_prices()
    except Exception:  # a broken installation of the data must not cost anybody an answer
        logger.exception("The prices could not be loaded: costs stay unknown.")
        return False
    return True
