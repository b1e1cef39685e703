"""One promise, every adapter, with and without streaming, over a real socket. Requirements G."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from playhead.config import connect
from playhead.errors import LLMConnectionError, LLMError, LLMTimeoutError
from playhead.events import LLMDelta, TextDelta, ToolCallStart
from playhead.llm.base import AgentLLM
from playhead.testing import (
    FakeProvider,
    Reply,
    Request,
    anthropic_calls,
    anthropic_sse,
    anthropic_text,
    gemini_calls,
    gemini_sse,
    gemini_text,
    hang,
    openai_calls,
    openai_sse,
    openai_text,
    reply_bytes,
    reply_json,
    responses_calls,
    responses_sse,
    responses_text,
    sse,
    stream,
)
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    ContentPart,
    ImagePart,
    LLMRequest,
    LLMResult,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolParameter,
    ToolSchema,
    UserMessage,
)

pytestmark = pytest.mark.anyio

KEY = "sk-canary-0123456789"
TOOL = ToolSchema(
    "transcribe_video",
    "Transcribe.",
    [ToolParameter("assetId", "string", True)],
    {"type": "object", "properties": {"assetId": {"type": "string"}}, "required": ["assetId"]},
)


@dataclass(frozen=True)
class Wire:
    """A dialect, as the tests need it."""

    provider: str
    text: Callable[..., Reply]
    calls: Callable[..., Reply]
    sse: Callable[..., Reply]

    def llm(self, server: FakeProvider) -> AgentLLM:
        base = f"{server.url}/v1" if self.provider.startswith("openai") else server.url
        return connect(self.provider, "fake-model", KEY, base)

    def system(self, request: Request) -> str | None:
        body = request.json
        if self.provider == "gemini":
            parts = body.get("systemInstruction", {}).get("parts", [{}])
            text = parts[0].get("text")
        elif self.provider == "anthropic":
            text = body["system"][0]["text"] if "system" in body else None
        elif self.provider == "openai-responses":
            text = body.get("instructions")
        else:
            first = body["messages"][0]
            text = first["content"] if first["role"] == "system" else None
        return None if text is None else str(text)

    def parameters(self, request: Request) -> Any:
        tool = request.json["tools"][0]
        if self.provider == "gemini":
            return tool["functionDeclarations"][0]["parameters"]
        if self.provider == "anthropic":
            return tool["input_schema"]
        if self.provider == "openai-responses":
            return tool["parameters"]
        return tool["function"]["parameters"]

    def tool_ids(self, request: Request) -> list[str]:
        """The ids or names by which the results of the request name their calls, in order."""
        if self.provider == "gemini":
            parts = [part for content in request.json["contents"] for part in content["parts"]]
            return [p["functionResponse"]["name"] for p in parts if "functionResponse" in p]
        if self.provider == "anthropic":
            blocks = [
                block for m in request.json["messages"] if m["role"] == "user" for block in m["content"]
            ]
            return [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if self.provider == "openai-responses":
            return [i["call_id"] for i in request.json["input"] if i.get("type") == "function_call_output"]
        return [m["tool_call_id"] for m in request.json["messages"] if m["role"] == "tool"]


OPENAI = Wire("openai-compatible", openai_text, openai_calls, openai_sse)
GEMINI = Wire("gemini", gemini_text, gemini_calls, gemini_sse)
ANTHROPIC = Wire("anthropic", anthropic_text, anthropic_calls, anthropic_sse)
RESPONSES = Wire("openai-responses", responses_text, responses_calls, responses_sse)


@pytest.fixture(params=[OPENAI, GEMINI, ANTHROPIC, RESPONSES], ids=lambda wire: wire.provider)
def wire(request: pytest.FixtureRequest) -> Wire:
    assert isinstance(request.param, Wire)
    return request.param


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def streaming(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def ask(text: str = "Hello", **fields: Any) -> LLMRequest:
    return LLMRequest([UserMessage(text)], **{"timeout": 5.0, **fields})


async def generate(
    wire: Wire, streaming: bool, *replies: Reply, request: LLMRequest | None = None
) -> tuple[LLMResult, list[LLMDelta], list[Request]]:
    deltas: list[LLMDelta] = []
    async with FakeProvider(*replies) as server:
        emit = deltas.append if streaming else None
        result = await wire.llm(server).generate(request or ask(), emit)
    return result, deltas, server.requests


def reply_of(wire: Wire, streaming: bool, *texts: str, calls: Sequence[Any] = (), **more: Any) -> Reply:
    if streaming:
        return wire.sse(*texts, calls=calls, **more)
    return wire.calls(calls, "".join(texts) or None) if calls else wire.text("".join(texts))


# ---------------------------------------------------------------- answers


async def test_text_comes_back_as_text(wire: Wire, streaming: bool) -> None:
    """R35, R37, R53: one method; without tools a plain call, and no tool calls."""
    result, deltas, requests = await generate(wire, streaming, reply_of(wire, streaming, "Hel", "lo"))
    assert result.message.content == "Hello"
    assert result.message.tool_calls == ()
    assert result.stop_reason == result.message.stop_reason == "stop"
    assert result.usage.input_tokens == 11
    assert result.usage.output_tokens == 7
    assert (result.provider, result.model) == (wire.provider, "fake-model")
    assert "tools" not in requests[0].json
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == (["Hel", "lo"] if streaming else [])


async def test_calls_come_back_with_unique_ids_in_order(wire: Wire, streaming: bool) -> None:
    """R37, R40, R56: each call has a non-empty id of its own, whatever the API gives."""
    calls = [("transcribe_video", {"assetId": "é1"}), ("transcribe_video", {})]
    reply = reply_of(wire, streaming, calls=calls)
    result, deltas, _ = await generate(wire, streaming, reply, request=ask(tools=[TOOL]))
    got = result.message.tool_calls
    assert [(c.name, c.args) for c in got] == calls
    assert all(c.id for c in got)
    assert len({c.id for c in got}) == 2
    assert result.stop_reason in ("tool_calls", "stop")
    started = [d.call_id for d in deltas if isinstance(d, ToolCallStart)]
    assert started == ([c.id for c in got] if streaming else [])


async def test_text_despite_tools_has_no_calls(wire: Wire, streaming: bool) -> None:
    """R57."""
    reply = reply_of(wire, streaming, "Just text")
    result, _, _ = await generate(wire, streaming, reply, request=ask(tools=[TOOL]))
    assert result.message.content == "Just text"
    assert result.message.tool_calls == ()


async def test_the_system_prompt_goes_where_the_api_wants_it(wire: Wire) -> None:
    """R36, R54: system first, SystemMessages after it, never as a user message."""
    messages: list[ChatMessage] = [SystemMessage("Answer in French."), UserMessage("Hello")]
    request = LLMRequest(messages, system="You are a video editor.")
    _, _, requests = await generate(wire, False, wire.text("ok"), request=request)
    assert wire.system(requests[0]) == "You are a video editor.\n\nAnswer in French."
    assert "video editor" not in json.dumps(requests[0].json.get("contents", []))


async def test_tool_schemas_are_converted_to_the_wire_form(wire: Wire) -> None:
    """R38, R55, R58: parameter types under `parameters.properties`."""
    _, _, requests = await generate(wire, False, wire.text("ok"), request=ask(tools=[TOOL]))
    assert wire.parameters(requests[0])["properties"]["assetId"]["type"] == "string"
    assert wire.parameters(requests[0])["required"] == ["assetId"]


async def test_a_tool_round_trip_keeps_its_ids(wire: Wire, streaming: bool) -> None:
    """S4: results correlate with their calls on the next request, in call order."""
    calls = [("a", {"x": 1}), ("b", {})]
    async with FakeProvider(reply_of(wire, streaming, calls=calls), wire.text("done")) as server:
        llm = wire.llm(server)
        emit = (lambda _: None) if streaming else None
        first = await llm.generate(ask(tools=[TOOL]), emit)
        results = [ToolMessage(c.id, c.name, f"result of {c.name}") for c in first.message.tool_calls]
        history: list[ChatMessage] = [UserMessage("Hello"), first.message, *reversed(results)]
        await llm.generate(LLMRequest(history, [TOOL]))
    ids = wire.tool_ids(server.requests[1])
    expected = ["a", "b"] if wire is GEMINI else [c.id for c in first.message.tool_calls]
    assert ids == expected


async def test_limits_are_sent_together(wire: Wire) -> None:
    """S14: output limit and temperature, one beside the other."""
    request = ask(max_tokens=77, temperature=0.5)
    _, _, requests = await generate(wire, False, wire.text("ok"), request=request)
    body = requests[0].json
    config = body.get("generationConfig", body)
    assert config["temperature"] == 0.5
    limits = [
        config[name] for name in ("maxOutputTokens", "max_tokens", "max_output_tokens") if name in config
    ]
    assert limits == [77]


async def test_the_history_is_never_mutated(wire: Wire, streaming: bool) -> None:
    """S13."""
    call = ToolCall("c", "a", {"x": [1]})
    messages = (UserMessage("Hello"), AssistantMessage("", [call]), ToolMessage("c", "a", "1"))
    before = repr(messages)
    await generate(wire, streaming, reply_of(wire, streaming, "ok"), request=LLMRequest(messages))
    assert repr(messages) == before


async def test_pictures_go_in(wire: Wire) -> None:
    """Parts of a user message: text and an image by data URL."""
    parts: list[ContentPart] = [
        TextPart("What is this?"),
        ImagePart("data:image/png;base64,AAAA", "image/png"),
    ]
    _, _, requests = await generate(wire, False, wire.text("ok"), request=LLMRequest([UserMessage(parts)]))
    sent = requests[0].body.decode()
    assert "What is this?" in sent
    assert "AAAA" in sent


async def test_the_body_is_sent_with_its_length(wire: Wire) -> None:
    """Design 4: requests carry Content-Length, also a large one."""
    for text in ("small", "x" * 2_000_000):
        _, _, requests = await generate(wire, False, wire.text("ok"), request=ask(text))
        assert int(requests[0].headers["content-length"]) == len(requests[0].body)


# ---------------------------------------------------------------- streams


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_a_stream_cut_anywhere_reads_the_same(wire: Wire, size: int) -> None:
    """Q001: pieces of any size, inside characters too."""
    calls = [("put", {"s": "aé🎬"})]
    reply = wire.sse("caf", "é 🎬", calls=calls, size=size)
    result, deltas, _ = await generate(wire, True, reply)
    assert result.message.content == "café 🎬"
    assert [c.args for c in result.message.tool_calls] == [{"s": "aé🎬"}]
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "café 🎬"


@pytest.mark.parametrize("cut", ["fin", "rst"])
async def test_a_stream_cut_after_text_is_interrupted(wire: Wire, cut: Any) -> None:
    """Design 7.1: the partial text is kept and said to be cut, never taken for an answer."""
    more: dict[str, Any] = {"finish_reason": None, "cut": cut}
    if wire is OPENAI:
        more |= {"usage": False, "done": False}
    result, _, _ = await generate(wire, True, wire.sse("The answer is ", **more))
    assert result.message.content == "The answer is "
    assert result.stop_reason == result.message.stop_reason == "interrupted"


async def test_a_stream_that_ends_in_order_without_an_end_marker_is_interrupted(wire: Wire) -> None:
    """Every official SDK takes this for a complete answer."""
    more: dict[str, Any] = {"usage": False, "done": False} if wire is OPENAI else {}
    result, _, _ = await generate(wire, True, wire.sse("The answer is ", finish_reason=None, **more))
    assert result.stop_reason == "interrupted"


@pytest.mark.parametrize("cut", ["fin", "rst"])
async def test_a_stream_cut_before_anything_arrived_is_an_error(wire: Wire, cut: Any) -> None:
    """Nothing was said, so nothing is kept: the call failed."""
    with pytest.raises(LLMConnectionError):
        await generate(wire, True, stream([], cut=cut))


async def test_json_in_place_of_a_stream_is_read(wire: Wire) -> None:
    """Q022: the content type decides; deltas are made up."""
    result, deltas, _ = await generate(wire, True, wire.text("hi"))
    assert result.message.content == "hi"
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["hi"]


async def test_an_error_inside_a_stream_is_an_error(wire: Wire) -> None:
    """Q017: with status 200, and never an empty success."""
    event = {"error": {"message": "worker full", "code": 503, "status": "UNAVAILABLE"}}
    with pytest.raises(LLMError) as caught:
        await generate(wire, True, stream(sse(event)))
    assert caught.value.code == "overloaded"
    assert "worker full" not in str(caught.value)


# ---------------------------------------------------------------- errors


STATUSES = [
    (400, "bad_request"),
    (401, "auth"),
    (402, "quota"),
    (403, "auth"),
    (404, "model_not_found"),
    (422, "bad_request"),
    (429, "rate_limit"),
    (500, "overloaded"),
    (503, "overloaded"),
    (529, "overloaded"),
    (307, "bad_request"),
]


@pytest.mark.parametrize(("status", "code"), STATUSES)
async def test_a_refusal_has_a_stable_code_and_leaks_nothing(
    wire: Wire, streaming: bool, status: int, code: str
) -> None:
    """R16: neither the key nor the provider's body is in any error text."""
    body = {"error": {"message": f"secret-body {KEY}", "code": status}}
    with pytest.raises(LLMError) as caught:
        await generate(wire, streaming, reply_json(body, status, {"Retry-After": "3"}))
    error = caught.value
    assert error.code == code
    assert error.provider == wire.provider
    assert "secret-body" not in str(error)
    assert KEY not in str(error)
    if status < 500 and status != 307:
        assert error.retry_after == 3.0


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"HTTP/1.1 502 Bad\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>", "overloaded"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{", "connection"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "protocol"),
    ],
)
async def test_what_is_not_an_answer_is_an_error(wire: Wire, streaming: bool, raw: bytes, code: str) -> None:
    """Q110: HTML, nothing, half a body, another protocol."""
    with pytest.raises(LLMError) as caught:
        await generate(wire, streaming, reply_bytes(raw))
    assert caught.value.code == code
    assert "<html>" not in str(caught.value)


async def test_a_silent_provider_is_a_timeout(wire: Wire, streaming: bool) -> None:
    """S14: the time-out of the request holds."""
    with pytest.raises(LLMTimeoutError):
        await generate(wire, streaming, hang(), request=ask(timeout=0.2))


async def test_a_provider_that_falls_silent_in_mid_answer_is_interrupted(wire: Wire) -> None:
    """S14: the time-out bounds each silence, and what was said is kept."""
    more: dict[str, Any] = {"usage": False, "done": False} if wire is OPENAI else {}
    reply = wire.sse("Hello", finish_reason=None, cut="hang", **more)
    result, _, _ = await generate(wire, True, reply, request=ask(timeout=0.3))
    assert (result.message.content, result.stop_reason) == ("Hello", "interrupted")


async def test_no_server_is_a_connection_error(wire: Wire, streaming: bool) -> None:
    """R16: network failure."""
    async with FakeProvider() as server:
        llm = wire.llm(server)
    with pytest.raises(LLMConnectionError):
        await llm.generate(ask(), (lambda _: None) if streaming else None)


async def test_the_key_is_in_a_header_and_nowhere_else(wire: Wire, streaming: bool) -> None:
    """R43, Q121: not in the URL, not in the body."""
    _, _, requests = await generate(wire, streaming, reply_of(wire, streaming, "ok"))
    request = requests[0]
    holders = [name for name, value in request.headers.items() if KEY in value]
    expected = {"gemini": "x-goog-api-key", "anthropic": "x-api-key"}
    assert holders == [expected.get(wire.provider, "authorization")]
    assert KEY not in request.path
    assert KEY not in str(request.query)
    assert KEY.encode() not in request.body
    assert KEY not in repr(wire)


async def test_unreadable_arguments_are_an_error_on_the_call(wire: Wire, streaming: bool) -> None:
    """Q053: the call is there, marked, with arguments that can be sent again."""
    if wire is GEMINI and streaming:
        reply = wire.sse(calls=[("f", "{city: Oslo}")])
    else:
        reply = reply_of(wire, streaming, calls=[("f", "{city: Oslo}")])
    result, _, _ = await generate(wire, streaming, reply)
    (call,) = result.message.tool_calls
    assert call.args == {}
    assert "not valid JSON" in (call.error or "")
