"""From settings to parts: design 2 (the composition root), requirements R31, R59."""

from pathlib import Path
from typing import Any

import pytest

from playhead import ConfigError, connect
from playhead.config import Settings, create_library, create_registry, create_speech, load_settings


def settings(home: Path, **more: Any) -> Settings:
    return Settings(home=home, **more)


def tools(settings: Settings, **more: Any) -> list[str]:
    registry = create_registry(settings, create_library(settings), create_speech(settings), **more)
    return [tool.name for tool in registry.get_all()]


@pytest.mark.parametrize(
    ("provider", "names"),
    [
        (None, ["transcribe_video"]),
        ("gemini", ["transcribe_video"]),
        ("mock", ["transcribe_video", "echo_context"]),
    ],
)
def test_the_registry_follows_the_provider(provider: str | None, names: list[str], tmp_path: Path) -> None:
    """R31, R59: exactly one tool, and a second one beside the mock."""
    assert tools(settings(tmp_path, llm_provider=provider)) == names


def test_a_model_given_in_code_decides_over_the_settings(tmp_path: Path) -> None:
    assert "echo_context" in tools(settings(tmp_path), llm=connect("mock"))
    other = connect("openai-compatible", "m", "k")
    assert tools(settings(tmp_path, llm_provider="mock"), llm=other) == ["transcribe_video"]


def test_making_the_parts_writes_nothing(tmp_path: Path) -> None:
    tools(settings(tmp_path / "home"))
    assert list(tmp_path.iterdir()) == []


def test_speech_uses_the_model_of_the_settings(tmp_path: Path) -> None:
    assert create_speech(settings(tmp_path, speech_model="tiny.en")).status().model == "tiny.en"
    other = settings(tmp_path, speech_model="tiny.en").with_speech_model("small")
    assert create_speech(other).status().state == "needs_weights"


def test_a_speech_endpoint_takes_the_place_of_a_model_and_keeps_its_key(tmp_path: Path) -> None:
    """R43: the name of the model is then one of that endpoint."""
    given = {"speech_base_url": "http://127.0.0.1:9/v1/", "speech_api_key": "sk-canary"}
    status = create_speech(settings(tmp_path, **given)).status()
    assert (status.engine, status.model) == ("http", "whisper-1")
    service = create_speech(settings(tmp_path, **given, speech_model="other"))
    assert service.status().model == "other"
    assert "sk-canary" not in repr(settings(tmp_path, **given))


def test_a_speech_endpoint_that_is_no_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        create_speech(settings(tmp_path, speech_base_url="nonsense"))


@pytest.mark.parametrize("name", ["LLM_PROVIDER", "LLM_MODEL", "LLM_API_KEY", "LLM_BASE_URL"])
def test_a_configuration_in_part_counts_as_one(name: str) -> None:
    """So that nobody gets the mock who asked for a model."""
    assert load_settings({name: "x"}).names_llm
    assert not load_settings({name: " "}).names_llm
