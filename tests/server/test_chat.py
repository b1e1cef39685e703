"""`POST /api/agent/chat` over real HTTP, against a provider that speaks raw bytes."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from playhead import AuthError, LLMRequest, LLMResult, LoopOptions
from playhead.config import Settings
from playhead.events import EmitDelta
from playhead.server import ServerOptions
from playhead.testing import (
    FakeProvider,
    Reply,
    gemini_text,
    openai_calls,
    openai_text,
)
from playhead.types import AssistantMessage, ToolCall
from tests.server.faults import FAULT_IDS, FAULTS
from tests.server.support import CANARY, HELLO, STREAM, HeldModel, all_frames, chat, served, settings

pytestmark = pytest.mark.anyio

CONTEXT = {
    "projectId": "demo",
    "activeSceneId": "scene-1",
    "mediaAssets": [{"id": "a1", "name": "talk.mp4", "type": "video", "duration": 63.5}],
    "playbackTimeMs": 5_250.5,
}


async def test_a_valid_request_gets_the_reply_of_the_configured_provider(tmp_path: Path) -> None:
    """R10, R11, R17: messages and context in, content out; no `toolCalls` when there are none."""
    async with (
        FakeProvider(openai_text("Hi there")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        status, body = await chat(client, {**HELLO, "context": CONTEXT})
    assert status == 200
    assert body["content"] == "Hi there"
    assert "toolCalls" not in body
    assert body["message"]["role"] == "assistant"
    assert body["message"]["stopReason"] == "stop"
    assert body["message"]["id"]
    assert body["usage"] == {"inputTokens": 11, "outputTokens": 7}
    (request,) = provider.requests
    assert request.json["model"] == "some-model"
    assert request.headers["authorization"] == f"Bearer {CANARY}"


async def test_the_provider_reads_our_prompt_and_the_registrys_tools_in_its_own_form(tmp_path: Path) -> None:
    """R12, R13, R14: the prompt tells the context, the tools arrive as the wire form has them."""
    async with (
        FakeProvider(openai_text("ok"), openai_text("ok")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        await chat(client, {**HELLO, "context": CONTEXT})
        await chat(client, HELLO)
    told, untold = (request.json["messages"][0] for request in provider.requests)
    assert told["role"] == untold["role"] == "system"
    for part in ("demo", "scene-1", "0:05", "talk.mp4", "a1"):
        assert part in told["content"]
    assert "no media loaded" in untold["content"]
    (tool,) = provider.requests[0].json["tools"]
    assert tool["type"] == "function"
    assert tool["function"]["name"] == "transcribe_video"
    assert tool["function"]["parameters"]["properties"]["assetId"]["type"] == "string"


async def test_tool_calls_are_returned_with_ids_and_without_being_run(tmp_path: Path) -> None:
    """R10: every call has a non-empty id, also where the provider gave none."""
    calls = openai_calls([("transcribe_video", {"assetId": "a1"}, ""), ("echo_context", {})], "One moment.")
    async with (
        FakeProvider(calls) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        status, body = await chat(client)
    assert status == 200
    assert body["content"] == "One moment."
    first, second = body["toolCalls"]
    assert (first["name"], first["args"]) == ("transcribe_video", {"assetId": "a1"})
    assert (second["name"], second["args"]) == ("echo_context", {})
    assert first["id"]
    assert second["id"]
    assert first["id"] != second["id"]
    assert body["message"]["toolCalls"] == body["toolCalls"]


async def test_a_model_of_the_application_that_gives_no_id_gets_one(tmp_path: Path) -> None:
    """R10"""

    class Careless:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            return LLMResult(AssistantMessage("", [ToolCall("", "x", {})]), "tool_calls")

    async with served(llm=Careless(), settings=settings(tmp_path)) as client:
        _, body = await chat(client)
    assert body["toolCalls"][0]["id"]


async def test_a_whole_tool_exchange_goes_back_to_the_provider(tmp_path: Path) -> None:
    """R14: what the client sends back is our form; only the adapter makes the wire form of it."""
    messages = [
        *HELLO["messages"],
        {"role": "assistant", "content": "", "toolCalls": [{"id": "c1", "name": "t", "args": {"a": 1}}]},
        {"role": "tool", "toolCallId": "c1", "toolName": "t", "content": "five"},
    ]
    async with (
        FakeProvider(openai_text("done")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        assert (await chat(client, {"messages": messages}))[0] == 200
    _, _, called, answered = provider.requests[0].json["messages"]
    assert called["tool_calls"][0]["function"] == {"name": "t", "arguments": '{"a":1}'}
    assert answered == {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "five"}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "Hello"},
        {"role": "user", "content": "Hello", "id": "m1", "timestamp": 1_700_000_000_000},
        {"role": "user", "content": "Hello", "id": None, "timestamp": None},
        {"role": "user", "content": "Hello", "id": "", "timestamp": 1_700_000_000_000.75},
        {"role": "user", "content": "Hello", "unknown": {"field": 1}},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "user", "content": "half a pair \ud83d, and none \ude00 other"},
        {"role": "assistant", "content": None, "toolCalls": None},
        {"role": "assistant", "content": None, "toolCalls": []},
    ],
)
async def test_what_is_harmless_is_accepted(message: Any, tmp_path: Path) -> None:
    """R10, settled: role and content suffice; null content is empty; milliseconds may have a fraction."""
    async with (
        FakeProvider(openai_text("ok")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        status, body = await chat(client, {"messages": [message, HELLO["messages"][0]], "more": True})
    assert (status, body["content"]) == (200, "ok")


BAD_BODIES = [
    ({}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "Hello"}, "messages"),
    ({"messages": {"role": "user", "content": "x"}}, "messages"),
    ({"messages": ["Hello"]}, "messages[0]"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": 7, "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": "x", "id": 5}]}, "messages[0].id"),
    ({"messages": [{"role": "user", "content": "x", "timestamp": "now"}]}, "messages[0].timestamp"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].toolCallId"),
    (
        {
            "messages": [
                {"role": "assistant", "content": "", "toolCalls": [{"id": "1", "name": "x", "args": "{}"}]}
            ]
        },
        "messages[0].toolCalls[0].args",
    ),
    ({"messages": [*HELLO["messages"], {"role": "user"}]}, "messages[1].content"),
    ({**HELLO, "context": "demo"}, "context"),
    ({**HELLO, "context": {"playbackTimeMs": "soon"}}, "context.playbackTimeMs"),
    ({**HELLO, "context": {"mediaAssets": [{"id": "a"}]}}, "context.mediaAssets[0].name"),
    ([], "$"),
    ("Hello", "$"),
    (None, "$"),
]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(("body", "path"), BAD_BODIES)
async def test_a_wrong_body_is_400_and_its_place_is_named(
    body: Any, path: str, accept: str, client: aiohttp.ClientSession
) -> None:
    """R15: before the configuration is looked at (there is none here), also when a stream is asked for."""
    status, answer = await chat(client, body, headers={"Accept": accept})
    assert (status, answer["code"], answer["path"]) == (400, "invalid", path)
    assert (path if path != "$" else "body") in answer["error"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"   ",
        b"{",
        b"{'messages': []}",
        b'{"messages": [] } trailing',
        b'{"messages": NaN}',
        b'{"n": 1e999}',
        b"\xff\xfe{\x00}\x00",
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b"messages=hello",
        b"[" * 100_000,
        b'{"messages":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
    ids=range(12),
)
async def test_what_is_not_json_is_400(raw: bytes, client: aiohttp.ClientSession) -> None:
    """R15: unparseable JSON."""
    async with client.post("/api/agent/chat", data=raw) as response:
        answer = await response.json()
    assert (response.status, answer["code"]) == (400, "invalid")
    assert answer["path"] in ("$", "messages[0]")


async def test_a_long_wrong_value_is_not_said_again(client: aiohttp.ClientSession) -> None:
    """R15"""
    status, answer = await chat(client, {"messages": [{"role": "x" * 900_000, "content": ""}]})
    assert (status, answer["path"]) == (400, "messages[0].role")
    assert len(answer["error"]) < 300


async def test_a_body_beyond_the_limit_is_413(tmp_path: Path) -> None:
    """R15: with a length that says so, and without one."""

    async def pieces() -> Any:
        for _ in range(40):
            yield b" " * 1_000

    options = ServerOptions(max_body=20_000)
    async with served(settings=settings(tmp_path), options=options) as client:
        for data in (b" " * 40_000, pieces()):
            async with client.post("/api/agent/chat", data=data) as response:
                answer = await response.json()
            assert (response.status, answer["code"]) == (413, "too_large")
            assert "20,000" in answer["error"]


@pytest.mark.parametrize(("fault", "code"), FAULTS, ids=FAULT_IDS)
async def test_a_failing_provider_is_502_with_a_stable_code(
    fault: Reply, code: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R16: network, auth, protocol: one text, one code, and neither a key nor the provider's words."""
    options = ServerOptions(loop=LoopOptions(call_timeout=0.3, retries=0))
    async with (
        FakeProvider(fault) as provider,
        served(settings=settings(tmp_path, provider.url), options=options) as client,
    ):
        response = await client.post("/api/agent/chat", json=HELLO)
        text = await response.text()
        answer = json.loads(text)
    assert response.status == 502
    assert answer == {"error": "LLM provider error", "code": code}
    assert response.headers.get("Retry-After") == ("7" if code == "rate_limit" else None)
    for secret in (CANARY, "SECRET"):
        assert secret not in text + str(response.headers) + caplog.text


async def test_a_provider_that_is_down_is_502(tmp_path: Path) -> None:
    """R16"""
    async with served(settings=settings(tmp_path, "http://127.0.0.1:9")) as client:
        assert await chat(client) == (502, {"error": "LLM provider error", "code": "connection"})


@pytest.mark.parametrize("headers", [{}, STREAM])
@pytest.mark.parametrize("missing", ["LLM_PROVIDER", "LLM_MODEL", "LLM_API_KEY", "LLM_MODEL LLM_API_KEY"])
async def test_missing_configuration_is_502_and_named(
    missing: str, headers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R41, R44: the server starts without it; a stream is refused before it begins."""
    given = {"LLM_PROVIDER": "openai-compatible", "LLM_MODEL": "m", "LLM_API_KEY": CANARY}
    for name in set(given) - set(missing.split()):
        monkeypatch.setenv(name, given[name])
    async with served() as client:
        status, answer = await chat(client, headers=headers)
    assert (status, answer["code"]) == (502, "config")
    for name in given:
        assert (name in answer["error"].split("Set them")[0]) == (name in missing.split())


async def test_configuration_that_comes_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """R11, R44: the adapter is looked up when it is needed, from the environment on the server."""
    async with FakeProvider(openai_text("hi")) as provider, served() as client:
        assert (await chat(client))[0] == 502
        for name, value in {
            "LLM_PROVIDER": "openai-compatible",
            "LLM_MODEL": "m",
            "LLM_API_KEY": CANARY,
            "LLM_BASE_URL": provider.url,
        }.items():
            monkeypatch.setenv(name, value)
        assert (await chat(client))[0] == 200


async def test_an_unknown_provider_is_502_with_the_factorys_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """R45"""
    for name in ("LLM_MODEL", "LLM_API_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LLM_PROVIDER", "unknown-provider")
    async with served() as client:
        answer = await chat(client)
    assert answer == (502, {"error": "Unknown LLM provider: unknown-provider", "code": "config"})


async def test_gemini_pays_no_heed_to_the_base_url_of_the_environment(tmp_path: Path) -> None:
    """R42: the call goes to the adapter's own address, not to LLM_BASE_URL.

    That address is not loopback, and tests may not leave it: so the adapter is looked at, not called.
    """
    from playhead.config import connect_with
    from playhead.llm.gemini import Gemini

    held = settings(tmp_path, "http://127.0.0.1:9", llm_provider="gemini")
    from_environment = connect_with(held)
    in_code = connect_with(held, base_url="http://127.0.0.1:10")
    assert isinstance(from_environment, Gemini)
    assert isinstance(in_code, Gemini)
    async with FakeProvider(gemini_text("hi")) as provider:
        llm = connect_with(held, base_url=provider.url)
        async with served(llm=llm, settings=held) as client:
            assert (await chat(client))[1]["content"] == "hi"
    assert provider.requests[0].json["systemInstruction"]


@pytest.mark.parametrize(
    "path", ["/", "/static/app.js", "/openapi.json", "/healthz", "/readyz", "/api/media"]
)
async def test_the_configuration_never_reaches_a_client(path: str, tmp_path: Path) -> None:
    """R43"""
    held = settings(tmp_path, "http://127.0.0.1:9/secret-base")
    async with served(settings=held) as client, client.get(path) as response:
        text = await response.text() + str(response.headers)
    assert response.status == 200
    for secret in (CANARY, "secret-base", "some-model", str(tmp_path)):
        assert secret not in text


async def test_the_mock_needs_neither_model_nor_key(tmp_path: Path) -> None:
    """R62, R63, R64, R66: through the route."""
    held = Settings(home=tmp_path, llm_provider="mock")
    async with served(settings=held) as client:
        _, transcribe = await chat(
            client, {"messages": [{"role": "user", "content": "Please TRANSCRIBE it"}]}
        )
        _, echo = await chat(client)
        status, _ = await chat(client, {})
    assert [call["name"] for call in transcribe["toolCalls"]] == ["transcribe_video"]
    assert [call["name"] for call in echo["toolCalls"]] == ["echo_context"]
    assert status == 400, "R65"


async def test_the_request_goes_out_with_every_limit_at_once(tmp_path: Path) -> None:
    """R36: messages, prompt and tools, and the limits of the options."""
    model = HeldModel()
    model.go.set()
    limits = LoopOptions(max_tokens=50, temperature=0.5, call_timeout=9, total_timeout=30)
    async with served(llm=model, settings=settings(tmp_path), options=ServerOptions(loop=limits)) as client:
        await chat(client, {**HELLO, "context": CONTEXT})
    (request,) = model.requests
    assert [m.content for m in request.messages] == ["Hello"]
    assert [tool.name for tool in request.tools] == ["transcribe_video"]
    assert request.context is not None
    assert request.context.project_id == "demo"
    assert (request.max_tokens, request.temperature, request.timeout, request.total_timeout) == (
        50,
        0.5,
        9,
        30,
    )


async def test_a_model_that_breaks_its_contract_is_an_answer_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R16: what is not an `LLMError` is a failed attempt, logged with its place and without its secret."""

    class Broken:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            raise RuntimeError(f"Authorization: Bearer {CANARY}")

    async with served(llm=Broken(), settings=settings(tmp_path)) as client:
        status, answer = await chat(client)
        events = await all_frames(client, "POST", "/api/agent/chat", json=HELLO)
    assert (status, answer["code"]) == (502, "llm")
    assert events[-1] == ("error", answer)
    assert "RuntimeError" in caplog.text
    assert CANARY not in str(answer) + caplog.text


async def test_errors_of_a_given_model_are_502_too(tmp_path: Path) -> None:
    """R16"""

    class Refusing:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            raise AuthError(f"the key {CANARY} was refused", provider="x", status=401)

    async with served(llm=Refusing(), settings=settings(tmp_path)) as client:
        assert await chat(client) == (502, {"error": "LLM provider error", "code": "auth"})
