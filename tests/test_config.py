"""What the environment decides, and what code decides over it. Requirements R39, R41-R45."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from playhead import ConfigError, LLMRequest, UserMessage, connect
from playhead.config import load_settings
from playhead.llm.gemini import DEFAULT_BASE_URL, Gemini
from playhead.llm.mock import MockLLM
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import DEFAULT, Profile
from playhead.llm.servers import PROFILES
from playhead.testing import FakeProvider, openai_text

ALL = {
    "LLM_PROVIDER": "openai-compatible",
    "LLM_MODEL": "some-model",
    "LLM_API_KEY": "sk-canary",
    "LLM_BASE_URL": "http://127.0.0.1:9/v1",
}


def setenv(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_the_environment_selects_the_openai_compatible_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """R39, R41: provider, model, key and base URL."""
    setenv(monkeypatch, **ALL)
    llm = connect()
    assert isinstance(llm, OpenAICompatible)
    assert (llm.model, llm.url) == ("some-model", "http://127.0.0.1:9/v1/chat/completions")


def test_the_environment_selects_gemini_and_its_base_url_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """R39, R42: `LLM_BASE_URL` of the environment does not apply to gemini."""
    setenv(monkeypatch, **{**ALL, "LLM_PROVIDER": "gemini"})
    llm = connect()
    assert isinstance(llm, Gemini)
    assert llm.url.startswith(f"{DEFAULT_BASE_URL}/v1beta/models/some-model")
    assert "127.0.0.1" not in llm.url


@pytest.mark.parametrize("provider", ["gemini", "openai-compatible"])
def test_a_base_url_given_in_code_is_honoured(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R42: by every adapter."""
    setenv(monkeypatch, **{**ALL, "LLM_PROVIDER": provider})
    llm = connect(base_url="http://127.0.0.1:8/x")
    assert isinstance(llm, Gemini | OpenAICompatible)
    assert llm.url.startswith("http://127.0.0.1:8/x/")


@pytest.mark.parametrize("missing", ["LLM_PROVIDER", "LLM_MODEL", "LLM_API_KEY"])
def test_what_is_missing_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R41, R44: that variable, and not the others; blank counts as missing."""
    setenv(monkeypatch, **{**ALL, missing: "  "})
    with pytest.raises(ConfigError) as caught:
        connect()
    assert missing in str(caught.value)
    named = {name for name in ("LLM_PROVIDER", "LLM_MODEL", "LLM_API_KEY") if f"{name}." in str(caught.value)}
    assert named == {missing}


def test_everything_missing_is_named_at_once() -> None:
    """R44."""
    with pytest.raises(ConfigError, match="LLM_PROVIDER, LLM_MODEL, LLM_API_KEY"):
        connect()


def test_an_unknown_provider_is_named_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """R45: the text is fixed; what to do is a note. It comes first, whatever else is missing."""
    setenv(monkeypatch, LLM_PROVIDER="unknown-provider")
    with pytest.raises(ConfigError) as caught:
        connect()
    assert str(caught.value) == "Unknown LLM provider: unknown-provider"
    assert any("gemini" in note for note in caught.value.__notes__)


def test_the_mock_needs_neither_model_nor_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """G, mock."""
    setenv(monkeypatch, LLM_PROVIDER="mock")
    assert isinstance(connect(), MockLLM)


def test_what_is_given_in_code_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 4: only what is not given comes from the environment."""
    setenv(monkeypatch, **ALL)
    llm = connect(model="other")
    assert isinstance(llm, OpenAICompatible)
    assert llm.model == "other"


def test_settings_do_not_print_the_key() -> None:
    """R43, design 7.12: a settings object in a log gives nothing away."""
    assert "sk-canary" not in repr(load_settings(ALL))


def test_a_model_does_not_print_its_key() -> None:
    """R43."""
    llm = connect("openai-compatible", "m", "sk-canary", "http://127.0.0.1:9")
    assert "sk-canary" not in repr(llm)


@pytest.mark.parametrize(
    ("environ", "home"),
    [
        ({"PLAYHEAD_HOME": "/data/ph"}, "/data/ph"),
        ({"XDG_DATA_HOME": "/data/xdg"}, "/data/xdg/playhead"),
    ],
)
def test_the_home_folder_follows_the_environment(environ: dict[str, str], home: str) -> None:
    """Design 6: `PLAYHEAD_HOME`, else the user's data folder."""
    settings = load_settings(environ)
    assert settings.home == Path(home)
    assert settings.media_folder == Path(home) / "media"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1/chat/completions", "/v1/chat/completions/"], ids=lambda p: p.strip("/")
)
async def test_a_base_url_is_joined_once(path: str) -> None:
    """Q122: neither twice nor with a double slash."""
    async with FakeProvider(openai_text("hi")) as server:
        await connect("openai-compatible", "m", "k", server.url + path).generate(
            LLMRequest([UserMessage("x")])
        )
    assert server.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("bad", ["not a url", "ftp://host/v1", "http://", "http://[::1", "  "])
def test_a_base_url_that_is_none_is_refused_at_once(bad: str) -> None:
    """Q122: the text names the value and what to give."""
    with pytest.raises(ConfigError, match="base URL"):
        connect("openai-compatible", "m", "k", bad)


# ---------------------------------------------------------------- profiles

MINE = Profile(name="mine", prefill=True)
MEASURED = Profile(name="measured", evidence="measured", merge_users=True)


def profile_of(**given: Any) -> Profile:
    llm = connect("openai-compatible", "m", "sk-canary", **{"base_url": "https://api.mistral.ai/v1", **given})
    assert isinstance(llm, OpenAICompatible)
    return llm.profile


def write(folder: Path, name: str, profile: Profile) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(msgspec.json.encode(profile))
    return path


def test_a_profile_is_chosen_in_this_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Issue 3 items 3 and 6: code, `LLM_PROFILE`, measured, built in by host, default."""
    assert profile_of(base_url="http://127.0.0.1:9/v1") is DEFAULT
    assert profile_of() is PROFILES["mistral"]
    write(load_settings().profiles_folder, "api.mistral.ai.json", MEASURED)
    assert profile_of() == MEASURED
    assert profile_of(base_url="https://api.mistral.ai:8443/v1") is PROFILES["mistral"]
    monkeypatch.setenv("LLM_PROFILE", "groq")
    assert profile_of() is PROFILES["groq"]
    monkeypatch.setenv("LLM_PROFILE", str(write(tmp_path, "mine.json", MINE)))
    assert profile_of() == MINE
    assert profile_of(profile="xai") is PROFILES["xai"]
    assert profile_of(profile=Profile(name="own")) == Profile(name="own")


def test_without_a_base_url_the_measured_profile_is_that_of_the_api_itself() -> None:
    """Issue 3 item 6."""
    write(load_settings().profiles_folder, "api.openai.com.json", MEASURED)
    assert profile_of(base_url=None) == MEASURED


@pytest.mark.parametrize("provider", ["openai-responses", "gemini", "anthropic", "mock"])
def test_a_profile_is_for_servers_that_differ(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R42's kind: of the environment it is passed over; given in code it would do nothing, and is refused."""
    monkeypatch.setenv("LLM_PROFILE", "groq")
    connect(provider, "m", "k")
    with pytest.raises(ConfigError, match=f"The provider {provider} takes no profile"):
        connect(provider, "m", "k", profile="groq")


def test_a_broken_measured_profile_is_named(tmp_path: Path) -> None:
    """Issue 3 item 6: silently ignored it would be worse than none."""
    folder = load_settings().profiles_folder
    write(folder, "api.mistral.ai.json", MEASURED).write_text("{}")
    with pytest.raises(ConfigError, match=r"'api\.mistral\.ai\.json' is not a profile"):
        profile_of()
