"""`playhead probe` measures, says what it found, and writes what connect then reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from playhead import connect
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import read_profile
from playhead.testing import (
    FakeProvider,
    Reply,
    anthropic_text,
    gemini_text,
    hang,
    reply_html,
    reply_json,
    responses_text,
)
from tests.cli.support import CANARY, ESCAPES, playhead
from tests.support.quirky import LM_STUDIO_LIKE, MISTRAL_LIKE, OPENAI_LIKE, QuirkyServer, Rules

pytestmark = pytest.mark.anyio

# No masker knows it by how it begins.
PLAIN_KEY = "Zq7vLp93xKw2Bn5tRd8yHc4m"
SERVERS: dict[str, tuple[Rules, dict[str, Any]]] = {
    "mistral-like": (MISTRAL_LIKE, {"needsAssistantAfterTool": True, "idCodec": "alnum9"}),
    "lm-studio-like": (LM_STUDIO_LIKE, {"mergeUsers": True, "toolChoice": "words", "streamTools": False}),
    "openai-like": (OPENAI_LIKE, {"maxTokensField": "max_completion_tokens", "idCodec": "short40"}),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "playhead-home"


def environ(url: str = "http://127.0.0.1:9", key: str = PLAIN_KEY, **more: str) -> dict[str, str]:
    given = {"LLM_PROVIDER": "openai-compatible", "LLM_MODEL": "some-model", "LLM_API_KEY": key}
    return {**given, "LLM_BASE_URL": f"{url}/v1", **more}


def assert_nothing_written(home: Path) -> None:
    assert not home.exists()


@pytest.mark.parametrize("name", SERVERS)
async def test_it_writes_the_profile_that_connect_reads(name: str, home: Path) -> None:
    """Issue 3, shown by."""
    rules, expected = SERVERS[name]
    async with FakeProvider(default=QuirkyServer(rules)) as provider:
        done = await playhead("probe", env=environ(provider.url))
        assert (done.code, "Traceback" in done.err) == (0, False), done.err
        (file,) = (home / "profiles").iterdir()
        written = json.loads(file.read_text())
        assert {**written, **expected} == written
        assert written["evidence"] == "measured"
        assert f"profiles/{file.name}" in done.err
        llm = connect("openai-compatible", "m", "k", f"{provider.url}/v1")
    assert isinstance(llm, OpenAICompatible)
    assert llm.profile == read_profile(file)
    for field in ("id_codec", "tool_choice", "prefill"):
        assert f"\n{field}\n" in f"\n{done.out}"
    for text in (done.out, done.err, file.read_text()):
        assert PLAIN_KEY not in text
        assert not ESCAPES.search(text)


async def test_for_programs_it_is_one_document(home: Path) -> None:
    async with FakeProvider(default=QuirkyServer(MISTRAL_LIKE)) as provider:
        done = await playhead("probe", "--json", env=environ(provider.url))
        report: dict[str, Any] = json.loads(done.out)
        assert (done.code, done.err) == (0, "")
        assert report["server"] == provider.url.removeprefix("http://")
    assert (home / report["file"]).is_file()
    assert report["profile"]["idCodec"] == "alnum9"
    found = {f["name"]: f for f in report["findings"]}
    assert found["id_codec"]["value"] == "alnum9"
    assert found["id_codec"]["measured"] is True
    assert report["requests"] > 20


async def test_nothing_is_written_when_that_is_asked(home: Path) -> None:
    async with FakeProvider(default=QuirkyServer(Rules())) as provider:
        for args in (("--no-write",), ("--no-write", "--json")):
            done = await playhead("probe", *args, env=environ(provider.url))
            assert done.code == 0
    assert json.loads(done.out)["file"] is None
    assert_nothing_written(home)


async def test_options_come_before_the_environment() -> None:
    """The other endpoint is asked, with the model given."""
    async with FakeProvider(default=QuirkyServer(Rules())) as provider:
        args = ("--provider", "openai-compatible", "--model", "other", "--base-url", f"{provider.url}/v1")
        done = await playhead("probe", *args, env=environ(LLM_PROVIDER="mock"))
        assert done.code == 0, done.err
        assert {request.json["model"] for request in provider.requests} == {"other"}


async def test_a_chosen_profile_comes_before_a_measured_one_and_that_is_said() -> None:
    async with FakeProvider(default=QuirkyServer(Rules())) as provider:
        done = await playhead("probe", env=environ(provider.url, LLM_PROFILE="vllm"))
    assert "LLM_PROFILE=vllm comes before it" in done.err


@pytest.mark.parametrize(
    ("provider", "reply"),
    [
        ("gemini", gemini_text("ok")),
        ("anthropic", anthropic_text("ok")),
        ("openai-responses", responses_text("ok")),
    ],
)
async def test_a_dialect_without_profiles_is_looked_at(provider: str, reply: Reply, home: Path) -> None:
    """Issue 3 item 6: a sensible part, said in words."""
    async with FakeProvider(default=reply) as server:
        done = await playhead("probe", "--base-url", server.url, env=environ(LLM_PROVIDER=provider))
        assert done.code == 0, done.err
        assert len(server.requests) >= 10
    assert "The endpoint answers." in done.out
    assert "A picture returned by a tool: taken" in done.out
    assert "this dialect has no profiles" in done.err
    assert_nothing_written(home)


FAILURES: dict[str, tuple[Reply, str]] = {
    "a refused key": (reply_json({"error": {"message": f"bad key {PLAIN_KEY}"}}, 401), "LLM_API_KEY"),
    "no such model": (reply_json({"error": {"message": "x"}}, 404), "LLM_MODEL"),
    "a page": (reply_html(status=200), "LLM_BASE_URL"),
    "a refusal of everything": (reply_json({"error": {"message": PLAIN_KEY}}, 400), "LLM_MODEL"),
}


@pytest.mark.parametrize("args", [(), ("--json",)])
@pytest.mark.parametrize("case", FAILURES)
async def test_a_failure_is_two_lines_and_exit_code_1(case: str, args: tuple[str, ...], home: Path) -> None:
    """Issue 3 item 6: nothing is written, and no key is shown."""
    reply, todo = FAILURES[case]
    async with FakeProvider(default=reply) as provider:
        done = await playhead("probe", *args, env=environ(provider.url))
    assert done.code == 1
    assert todo in " ".join(done.fault)
    assert PLAIN_KEY not in done.out + done.err
    assert done.out == ""
    assert_nothing_written(home)


async def test_an_endpoint_that_is_not_there_is_told(home: Path) -> None:
    """Issue 3 item 6."""
    done = await playhead("probe", env=environ(key=CANARY))
    assert done.code == 1
    assert "Could not connect to 127.0.0.1:9" in done.fault[0]
    assert_nothing_written(home)


async def test_the_time_limit_holds(home: Path) -> None:
    async with FakeProvider(default=hang()) as provider:
        done = await playhead("probe", "--time-limit", "0.3", env=environ(provider.url))
    assert done.code == 1
    assert "not complete after 0.3 s" in done.fault[0]
    assert_nothing_written(home)


@pytest.mark.parametrize(
    ("more", "fault"), [({"LLM_MODEL": ""}, "LLM_MODEL"), ({"LLM_PROVIDER": "mock"}, "nothing to measure")]
)
async def test_wrong_settings_are_exit_code_2(more: dict[str, str], fault: str) -> None:
    done = await playhead("probe", env=environ(**more))
    assert done.code == 2
    assert fault in done.fault[0]
