"""Chains from the environment, over real sockets. Requirement S23."""

import json
from pathlib import Path

import msgspec
import pytest

from playhead import AgentLoop, ConfigError, LLMRequest, UserMessage
from playhead.config import load_settings, router_from_environment
from playhead.llm.attempts import AttemptPolicy
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import DEFAULT, profile_file
from playhead.testing import FakeProvider, openai_text, reply_json
from playhead.types import CallRecord

pytestmark = pytest.mark.anyio

NO = reply_json({"error": {}}, 500)
ONCE = AttemptPolicy(retries=0)


async def test_a_chain_of_the_environment_fails_over() -> None:
    """S21, S23: in the order written; each server gets its own key and model, and no other's."""
    records: list[CallRecord] = []
    async with FakeProvider(NO) as first, FakeProvider(openai_text("ok")) as second:
        environ = {
            "AI_CHAIN_CHAT": "openai-compatible:dear, spare=openai-compatible:cheap:1",
            "LLM_PROVIDER": "openai-compatible",
            "LLM_API_KEY": "sk-main",
            "LLM_BASE_URL": f"{first.url}/v1",
            "LLM_SPARE_API_KEY": "sk-spare",
            "LLM_SPARE_BASE_URL": f"{second.url}/v1",
        }
        router = router_from_environment(environ, policy=ONCE, on_call=records.append)
        result = await AgentLoop(router).run("hi")
    assert result.text == "ok"
    asked = [(s.requests[0].headers["authorization"], s.requests[0].json["model"]) for s in (first, second)]
    assert asked == [("Bearer sk-main", "dear"), ("Bearer sk-spare", "cheap:1")]
    assert [(r.provider, r.status) for r in records] == [("openai-compatible", "error"), ("spare", "success")]


async def test_each_task_has_its_chain_and_the_main_model_is_that_of_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S23: `AI_CHAIN_<TASK>`; read from the environment itself when no mapping is given."""
    async with FakeProvider(openai_text("chat")) as main, FakeProvider(openai_text("label")) as other:
        for name, value in {
            "AI_CHAIN_SPAM_CHECK": "small=openai-compatible:tiny",
            "LLM_SMALL_API_KEY": "k",
            "LLM_SMALL_BASE_URL": f"{other.url}/v1",
            "LLM_PROVIDER": "openai-compatible",
            "LLM_MODEL": "big",
            "LLM_API_KEY": "k",
            "LLM_BASE_URL": f"{main.url}/v1",
        }.items():
            monkeypatch.setenv(name, value)
        router = router_from_environment()
        label = await router.route("spam_check", "buy!")
        chat = await router.generate(LLMRequest([UserMessage("hi")]))
    assert (label.message.content, chat.message.content) == ("label", "chat")
    assert (other.requests[0].json["model"], main.requests[0].json["model"]) == ("tiny", "big")


def test_without_any_chain_it_says_how_one_looks() -> None:
    with pytest.raises(ConfigError, match="AI_CHAIN_CHAT"):
        router_from_environment({})


@pytest.mark.parametrize(
    "environ",
    [
        {"LLM_PROVIDER": "mock"},
        *({"AI_CHAIN_CHAT": text} for text in ("mock", " mock ,", "mock, small=mock")),
    ],
)
async def test_the_mock_needs_no_key_and_a_main_model_no_chain(environ: dict[str, str]) -> None:
    result = await router_from_environment(environ).generate(LLMRequest([UserMessage("hi")]))
    assert result.provider == "mock"


def test_a_bad_address_names_its_entry() -> None:
    environ = {
        "AI_CHAIN_CHAT": "a=openai-compatible:m",
        "LLM_A_API_KEY": "sk-canary",
        "LLM_A_BASE_URL": "localhost:1",
    }
    with pytest.raises(ConfigError, match="base URL") as caught:
        router_from_environment(environ)
    assert any("a=openai-compatible:m" in note for note in caught.value.__notes__)
    assert "sk-canary" not in "".join([str(caught.value), *caught.value.__notes__])


def test_a_server_is_spoken_to_as_its_profile_says(tmp_path: Path) -> None:
    """As for `connect`: the one named, else the one that was measured of its host."""
    environ = {
        "PLAYHEAD_HOME": str(tmp_path),
        "AI_CHAIN_CHAT": "a=openai-compatible:m, b=openai-compatible:m, c=openai-compatible:m",
        **{f"LLM_{alias}_API_KEY": "k" for alias in "ABC"},
        **{f"LLM_{alias}_BASE_URL": f"http://127.0.0.1:{n}/v1" for n, alias in enumerate("ABC", 1)},
        "LLM_A_PROFILE": "lm-studio",
    }
    measured = msgspec.structs.replace(DEFAULT, name="mine", evidence="measured")
    path = profile_file(load_settings(environ).profiles_folder, "http://127.0.0.1:2/v1")
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(measured))
    targets = router_from_environment(environ)._chains["chat"].targets
    assert [t.llm.profile.name for t in targets if isinstance(t.llm, OpenAICompatible)] == [
        "lm-studio",
        "mine",
        "default",
    ]


def test_settings_of_chains_are_read_but_not_shown() -> None:
    """R41: for whoever lists them, such as `doctor`; keys are not in the repr."""
    environ = {
        "AI_CHAIN_CHAT": " mock ",
        "AI_CHAIN_X": " ",
        "LLM_FAST_API_KEY": "sk-canary",
        "LLM_OTHER": "x",
    }
    settings = load_settings(environ)
    assert settings.chains == {"chat": "mock"}
    assert settings.endpoints == {"LLM_FAST_API_KEY": "sk-canary"}
    assert "sk-canary" not in repr(settings) + json.dumps(settings.chains)
