"""Chains as text, and how their endpoints are reached. Requirement S23."""

import pytest

from playhead import ConfigError
from playhead.llm.chains import Access, ChainEntry, find_access, parse_chain

OPENAI, GEMINI = "openai-compatible", "gemini"


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        (f"{OPENAI}:gpt-x", [(OPENAI, OPENAI, "gpt-x")]),
        (f" {OPENAI} : gpt-x ,\n fast = gemini:y ,", [(OPENAI, OPENAI, "gpt-x"), ("fast", GEMINI, "y")]),
        (f"local={OPENAI}:qwen3:8b", [("local", OPENAI, "qwen3:8b")]),
        (f"{OPENAI}:org/m=1", [(OPENAI, OPENAI, "org/m=1")]),
        ("any-llm:mistral:large", [("any-llm", "any-llm", "mistral:large")]),
        ("mock", [("mock", "mock", "")]),
        (" , ", []),
    ],
)
def test_a_chain_is_read(text: str, entries: list[tuple[str, str, str]]) -> None:
    """S23: `provider:model` or `alias=provider:model`; a model's id may hold colons and equal signs."""
    assert [(e.alias, e.provider, e.model) for e in parse_chain(text, "AI_CHAIN_CHAT")] == entries


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpt-x", "unknown provider 'gpt-x'"),
        ("openai:gpt-x", "unknown provider 'openai' .*openai-compatible"),
        ("gemini", "'gemini' is no entry"),
        ("gemini:", "'gemini:' is no entry"),
        ("=gemini:y", "is no entry"),
        ("mock, :x", "unknown provider ''"),
    ],
)
def test_what_is_no_entry_is_named_with_its_setting(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^AI_CHAIN_CHAT: .*{said}"):
        parse_chain(text, "AI_CHAIN_CHAT")


@pytest.mark.parametrize(
    ("alias", "variable"),
    [
        ("fast", "LLM_FAST_API_KEY"),
        (OPENAI, "LLM_OPENAI_COMPATIBLE_API_KEY"),
        ("eu.1-a", "LLM_EU_1_A_API_KEY"),
    ],
)
def test_an_alias_names_settings(alias: str, variable: str) -> None:
    """S23: upper case, `_` for what is no letter or digit."""
    assert ChainEntry(alias, GEMINI, "m").variable("API_KEY") == variable


MAIN = Access("main-key", "http://main/v1", "lm-studio")


@pytest.mark.parametrize(
    ("entry", "settings", "access"),
    [
        (ChainEntry("a", OPENAI, "m"), {}, MAIN),
        (ChainEntry("a", OPENAI, "m"), {"LLM_A_API_KEY": "k"}, Access("k", "http://main/v1", "lm-studio")),
        (
            ChainEntry("a", OPENAI, "m"),
            {"LLM_A_API_KEY": "k", "LLM_A_BASE_URL": "http://a/v1", "LLM_A_PROFILE": "groq"},
            Access("k", "http://a/v1", "groq"),
        ),
        (ChainEntry("a", GEMINI, "m"), {"LLM_A_API_KEY": "k"}, Access("k")),
        (ChainEntry("mock", "mock", ""), {}, Access()),
    ],
    ids=["as the main one", "own key", "all its own", "another provider", "keyless"],
)
def test_what_an_entry_leaves_out_is_as_for_the_main_provider(
    entry: ChainEntry, settings: dict[str, str], access: Access
) -> None:
    """S23: only for an entry of the same provider."""
    assert find_access([entry], settings, OPENAI, MAIN) == {entry: access}


def test_the_address_of_the_environment_is_none_of_geminis() -> None:
    """R42."""
    entry = ChainEntry("g", GEMINI, "m")
    assert find_access([entry], {}, GEMINI, MAIN)[entry].base_url is None


def test_a_key_goes_to_the_server_that_it_belongs_to() -> None:
    """An entry with an address of its own is not sent the key of another server."""
    with pytest.raises(ConfigError, match="LLM_LOCAL_API_KEY"):
        find_access([ChainEntry("local", OPENAI, "m")], {"LLM_LOCAL_BASE_URL": "http://l/v1"}, OPENAI, MAIN)


def test_all_missing_keys_are_named_at_once() -> None:
    """S23, R44."""
    entries = [ChainEntry("a", OPENAI, "m"), ChainEntry("b", GEMINI, "m"), ChainEntry("b", GEMINI, "n")]
    with pytest.raises(ConfigError, match=r"LLM_A_API_KEY, LLM_B_API_KEY\."):
        find_access(entries, {}, None, Access())


def test_an_alias_means_one_provider() -> None:
    """Its key would go to both."""
    entries = [ChainEntry("a", OPENAI, "m"), ChainEntry("a", GEMINI, "m")]
    with pytest.raises(ConfigError, match="LLM_A_API_KEY is for openai-compatible and for gemini"):
        find_access(entries, {"LLM_A_API_KEY": "k"}, OPENAI, MAIN)
