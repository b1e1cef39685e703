"""A recording plays back what came, byte for byte and cut for cut, and holds no secret."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from playhead import LLMConnectionError, LLMError, LLMRequest, PlayheadError, UserMessage, connect
from playhead.errors import ConfigError
from playhead.events import LLMDelta, TextDelta
from playhead.testing import (
    FakeProvider,
    Reply,
    gemini_sse,
    gemini_text,
    hang,
    openai_calls,
    openai_sse,
    openai_text,
    record,
    replay,
    reply_bytes,
    reply_html,
    reply_json,
    split,
    stream,
)

pytestmark = pytest.mark.anyio

KEY = "canary-0123456789abcdef"
Outcome = Any


async def outcome(provider: str, base: str, *, timeout: float = 5) -> Outcome:
    """What a client makes of one call: the deltas and the answer, or the error."""
    deltas: list[LLMDelta] = []
    request = LLMRequest([UserMessage(content="Grüße 😀")], timeout=timeout)
    try:
        result = await connect(provider, "fake-model", KEY, base).generate(request, deltas.append)
    except LLMError as error:
        return type(error), error.status, error.retry_after
    calls = [(call.name, call.args) for call in result.message.tool_calls]
    pieces = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    return pieces, result.message.content, calls, result.stop_reason, result.usage


REPLIES: dict[str, tuple[str, Reply]] = {
    "a whole answer": ("openai-compatible", openai_text("Hé 😀")),
    "calls": ("openai-compatible", openai_calls([("add", {"a": 1}, "t1"), ("add", "{broken", "t2")])),
    "a stream": ("openai-compatible", openai_sse("Hé", "llo", calls=[("add", {"a": 1}, "t1")])),
    "a stream in bytes": ("openai-compatible", openai_sse("Hé 😀", "llo", size=3)),
    "a stream that closing ends": (
        "openai-compatible",
        stream(
            [b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'], framing="close"
        ),
    ),
    "gemini whole": ("gemini", gemini_text("Hé")),
    "gemini stream": ("gemini", gemini_sse("Hé", "llo", size=7)),
    "a limit": ("openai-compatible", reply_json({"error": {"message": "x"}}, 429, {"Retry-After": "3"})),
    "a page": ("openai-compatible", reply_html()),
    "a page with 200": ("openai-compatible", reply_html(status=200)),
    "no content": ("openai-compatible", reply_bytes(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")),
    "a stream cut": ("openai-compatible", openai_sse("Hé", finish_reason=None, cut="fin")),
    "a stream reset": ("openai-compatible", openai_sse("Hé", finish_reason=None, cut="rst")),
    "a body cut": ("openai-compatible", reply_json({"choices": []}, cut="fin")),
    "closed before an answer": ("openai-compatible", Reply((), "fin")),
    "reset before an answer": ("openai-compatible", Reply((), "rst")),
}


@pytest.mark.parametrize("case", REPLIES)
async def test_live_recorded_and_played_back_are_the_same(case: str, tmp_path: Path) -> None:
    """Issue 3 item 7: for a client there is no difference."""
    kind, reply = REPLIES[case]
    base_path = "" if kind == "gemini" else "/v1"
    file = tmp_path / "fixture.json"
    async with FakeProvider(reply, reply, base_path=base_path) as server:
        live = await outcome(kind, server.url)
        async with record(server.url, file) as recorder:
            recorded = await outcome(kind, recorder.url)
    async with replay(file) as provider:
        played = await outcome(kind, provider.url)
        assert provider.unused == 0
    assert live == recorded == played
    first, second = server.requests
    assert (first.path, first.query, first.body) == (second.path, second.query, second.body)
    names = {"host", "accept-encoding"}
    assert {k: v for k, v in first.headers.items() if k not in names} == {
        k: v for k, v in second.headers.items() if k not in names
    }


@pytest.mark.parametrize("reply", [hang(), openai_sse("Hé", finish_reason=None, cut="hang")])
async def test_a_silence_is_recorded_when_the_client_gives_up(reply: Reply, tmp_path: Path) -> None:
    """Issue 3 item 7: and it is silent again."""
    file = tmp_path / "fixture.json"
    async with FakeProvider(reply) as server, record(f"{server.url}/v1", file) as recorder:
        recorded = await outcome("openai-compatible", recorder.url, timeout=0.3)
    async with replay(file) as provider:
        assert await outcome("openai-compatible", provider.url, timeout=0.3) == recorded


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_chunks_keep_their_borders(framing: Any, tmp_path: Path) -> None:
    """Issue 3 item 7: also inside a character, and also around a secret that is hidden."""
    chunks = split(f"data: né😀 {KEY} ü\n\n".encode(), 4)
    file = tmp_path / "fixture.json"
    async with FakeProvider(stream(chunks, framing=framing)) as server, record(server.url, file) as recorder:
        assert await _pieces(recorder.url) == chunks
    async with replay(file) as provider:
        played = await _pieces(provider.url)
    assert [len(piece) for piece in played] == [len(chunk) for chunk in chunks]
    assert b"".join(played) == b"".join(chunks).replace(KEY.encode(), b"*" * len(KEY))


async def _pieces(url: str) -> list[bytes]:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as client,
        client.get(url) as response,
    ):
        return [data async for data, _ in response.content.iter_chunks() if data]


SECRETS: dict[str, Callable[[], dict[str, Any]]] = {
    "authorization": lambda: {"headers": {"Authorization": f"Bearer {KEY}"}},
    "x-api-key": lambda: {"headers": {"x-api-key": KEY}},
    "x-goog-api-key": lambda: {"headers": {"x-goog-api-key": KEY}},
    "a cookie": lambda: {"headers": {"Cookie": f"a=b; session={KEY}"}},
    "an unknown header": lambda: {"headers": {"X-Company": KEY}},
    "the query": lambda: {"params": {"key": KEY, "alt": "sse"}},
    "a field of the body": lambda: {"json": {"api_key": KEY, "keep": "me"}},
    "a field with a quote": lambda: {"json": {"password": f'"{KEY}"\\'}},
    "its form": lambda: {"json": {"text": f"my key is sk-proj-{KEY}"}},
    "an account": lambda: {"json": {"text": "org-" + KEY.replace("-", "")}},
}


@pytest.mark.parametrize("place", SECRETS)
async def test_no_secret_reaches_the_file(place: str, tmp_path: Path) -> None:
    """Issue 3 item 7, design 7.12: from wherever it comes, and wherever the provider repeats it."""
    file = tmp_path / "fixture.json"
    named = place in ("authorization", "x-api-key", "x-goog-api-key", "a cookie", "the query")
    said = f"Incorrect API key provided: {KEY}" if named else f"sk-proj-{KEY}"
    echo = {"error": {"message": said, "got": {"api_key": KEY}}}
    answer = reply_json(echo, 401, {"Set-Cookie": f"session={KEY}", "X-Key": KEY})
    async with (
        FakeProvider(answer) as server,
        record(f"{server.url}/v1", file) as recorder,
        aiohttp.ClientSession() as client,
        client.post(f"{recorder.url}/chat", **SECRETS[place]()) as response,
    ):
        assert await response.json() == echo
    text = file.read_text()
    assert KEY not in text
    assert KEY.replace("-", "") not in text
    assert server.url not in text
    fixture = json.loads(text)
    request = fixture["exchanges"][0]["request"]
    assert (request["method"], request["path"]) == ("POST", "/v1/chat")
    if place == "a field of the body":
        assert json.loads(request["body"]) == {"api_key": "*" * len(KEY), "keep": "me"}
    if place == "the query":
        assert request["query"] == {"key": "***", "alt": "sse"}


async def test_what_was_said_is_kept(tmp_path: Path) -> None:
    """A fixture without the words would be none; `none` as a key is no secret."""
    text = "none of the tokens: signature 'abc', key: value, né😀"
    file = tmp_path / "fixture.json"
    async with FakeProvider(openai_text(text)) as server, record(f"{server.url}/v1", file) as recorder:
        llm = connect("openai-compatible", "m", "none", recorder.url)
        await llm.generate(LLMRequest([UserMessage(content=text)]))
    exchange = json.loads(file.read_text())["exchanges"][0]
    assert json.loads(exchange["request"]["body"])["messages"][0]["content"] == text
    assert json.loads("".join(exchange["response"]["chunks"]))["choices"][0]["message"]["content"] == text


async def test_a_big_request_goes_through(tmp_path: Path) -> None:
    """Pictures are more than a megabyte."""
    body = "x" * 3_000_000
    async with (
        FakeProvider(reply_json({})) as server,
        record(server.url, tmp_path / "f.json") as recorder,
        aiohttp.ClientSession() as client,
    ):
        await client.post(recorder.url, data=io.BytesIO(body.encode()))
    assert server.requests[0].body == body.encode()


async def test_several_exchanges_are_played_in_order_and_must_be_asked_for_in_order(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    async with (
        FakeProvider(reply_json(1), reply_json(2)) as server,
        record(f"{server.url}/v1", file) as recorder,
        aiohttp.ClientSession() as client,
    ):
        await client.get(f"{recorder.url}/models")
        await client.post(f"{recorder.url}/chat")
    with pytest.raises(AssertionError, match=r"Recorded was GET /v1/models, and asked is POST /v1/chat\."):
        await _ask_wrongly(file)


async def _ask_wrongly(file: Path) -> None:
    async with replay(file) as provider, aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientError):
            await client.post(f"{provider.url}/chat")


async def test_a_redirect_is_recorded_and_not_followed(tmp_path: Path) -> None:
    """It would carry the key to another host."""
    moved = reply_json({}, 307, {"Location": "http://192.0.2.1/"})
    async with FakeProvider(moved) as server, record(server.url, tmp_path / "f.json") as recorder:
        assert (await outcome("openai-compatible", recorder.url))[1] == 307


async def test_a_provider_that_is_not_there_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    with pytest.raises(LLMConnectionError, match=r"could not connect to 127\.0\.0\.1:9\."):
        await _record_nobody(file)
    assert not file.exists()


async def _record_nobody(file: Path) -> None:
    async with record("http://127.0.0.1:9/v1", file) as recorder:
        assert (await outcome("openai-compatible", recorder.url))[1] == 502


async def test_a_recording_of_nothing_is_told(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    with pytest.raises(PlayheadError, match="Nothing was recorded"):
        async with record("http://127.0.0.1:9/v1", file):
            pass
    assert not file.exists()


async def test_the_block_s_own_error_is_the_one_that_is_seen_and_what_came_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    async with FakeProvider(openai_text("hi")) as server:
        with pytest.raises(ZeroDivisionError):
            await _record_and_fail(server.url, file)
    assert file.exists()


async def _record_and_fail(url: str, file: Path) -> None:
    async with record(url, file) as recorder:
        await outcome("openai-compatible", recorder.url)
        raise ZeroDivisionError


@pytest.mark.parametrize("url", ["", "ftp://x", "api.example.com/v1"])
def test_a_base_url_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        record(url, tmp_path / "f.json")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "is not one"),
        (b"[]", "is not one"),
        (b'{"playhead":1,"basePath":"","exchanges":[{}]}', "request"),
        (b'{"playhead":99,"basePath":"","exchanges":[]}', "version 99"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_fixture_is_told(data: bytes | None, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(PlayheadError, match=fault) as caught:
        replay(file)
    assert str(tmp_path) not in str(caught.value)
