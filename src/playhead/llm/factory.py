"""From a provider's name to its adapter."""

from collections.abc import Callable

from playhead.errors import ConfigError
from playhead.llm.base import AgentLLM
from playhead.llm.profiles import Profile

Maker = Callable[..., AgentLLM]


def _openai_compatible(
    model: str, api_key: str, base_url: str | None, *, profile: Profile | None = None
) -> AgentLLM:
    from playhead.llm.openai_compatible import OpenAICompatible

    return OpenAICompatible(model, api_key, base_url, profile=profile)


def _openai_responses(model: str, api_key: str, base_url: str | None) -> AgentLLM:
    from playhead.llm.openai_responses import OpenAIResponses

    return OpenAIResponses(model, api_key, base_url)


def _gemini(model: str, api_key: str, base_url: str | None) -> AgentLLM:
    from playhead.llm.gemini import Gemini

    return Gemini(model, api_key, base_url)


def _anthropic(model: str, api_key: str, base_url: str | None) -> AgentLLM:
    from playhead.llm.anthropic import Anthropic

    return Anthropic(model, api_key, base_url)


def _any_llm(model: str, api_key: str, base_url: str | None) -> AgentLLM:
    from playhead.llm.any_llm import AnyLLM

    return AnyLLM(model, api_key, base_url)


def _mock(model: str, api_key: str, base_url: str | None) -> AgentLLM:
    from playhead.llm.mock import MockLLM

    return MockLLM()


_MAKERS: dict[str, Maker] = {
    "openai-compatible": _openai_compatible,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
    "anthropic": _anthropic,
    "any-llm": _any_llm,
    "mock": _mock,
}

PROVIDERS = tuple(_MAKERS)
KEYLESS = frozenset({"mock"})
"""Providers that need neither model nor key."""
PROFILED = frozenset({"openai-compatible"})
"""Providers whose servers differ by profile."""


def create_llm(
    provider: str,
    model: str = "",
    api_key: str = "",
    base_url: str | None = None,
    *,
    profile: Profile | None = None,
) -> AgentLLM:
    """Return the adapter of a provider; without a profile it takes what is known of its host.

    Raises `ConfigError` for a provider that is not in `PROVIDERS`, and for a profile of one that
    has none.
    """
    maker = _MAKERS.get(provider)
    if maker is None:
        error = ConfigError(f"Unknown LLM provider: {provider}")
        error.add_note(f"Set LLM_PROVIDER to one of: {', '.join(PROVIDERS)}.")
        raise error
    if profile is None:
        return maker(model, api_key, base_url)
    if provider not in PROFILED:
        raise ConfigError(
            f"The provider {provider} takes no profile; those that do: {', '.join(sorted(PROFILED))}."
        )
    return maker(model, api_key, base_url, profile=profile)
