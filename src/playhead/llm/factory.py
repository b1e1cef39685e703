"""From a provider's name to its adapter."""

from collections.abc import Callable

from playhead.errors import ConfigError
from playhead.llm.base import AgentLLM

Maker = Callable[[str, str, str | None], AgentLLM]


def _openai_compatible(model: str, api_key: str, base_url: str | None) -> AgentLLM:
    from playhead.llm.openai_compatible import OpenAICompatible

    return OpenAICompatible(model, api_key, base_url)


def _gemini(model: str, api_key: str, base_url: str | None) -> AgentLLM:
    from playhead.llm.gemini import Gemini

    return Gemini(model, api_key, base_url)


def _anthropic(model: str, api_key: str, base_url: str | None) -> AgentLLM:
    from playhead.llm.anthropic import Anthropic

    return Anthropic(model, api_key, base_url)


def _mock(model: str, api_key: str, base_url: str | None) -> AgentLLM:
    from playhead.llm.mock import MockLLM

    return MockLLM()


_MAKERS: dict[str, Maker] = {
    "openai-compatible": _openai_compatible,
    "gemini": _gemini,
    "anthropic": _anthropic,
    "mock": _mock,
}

PROVIDERS = tuple(_MAKERS)
KEYLESS = frozenset({"mock"})
"""Providers that need neither model nor key."""


def create_llm(provider: str, model: str = "", api_key: str = "", base_url: str | None = None) -> AgentLLM:
    """Return the adapter of a provider.

    Raises `ConfigError` for a provider that is not in `PROVIDERS`.
    """
    maker = _MAKERS.get(provider)
    if maker is None:
        error = ConfigError(f"Unknown LLM provider: {provider}")
        error.add_note(f"Set LLM_PROVIDER to one of: {', '.join(PROVIDERS)}.")
        raise error
    return maker(model, api_key, base_url)
