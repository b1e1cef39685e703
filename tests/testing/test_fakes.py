"""What tests stand on: if these fail, the others prove nothing."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest

from playhead.testing import (
    FakeProvider,
    NetworkForbiddenError,
    gemini_calls,
    gemini_sse,
    hang,
    no_network,
    openai_calls,
    openai_sse,
    openai_text,
    reply_bytes,
    reply_html,
    split,
    stream,
)

ABROAD = ("192.0.2.1", 80)


@pytest.fixture
def forbidden(network_attempts: list[str]) -> Iterator[list[str]]:
    yield network_attempts
    network_attempts.clear()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("connect", (ABROAD,)),
        ("connect_ex", (ABROAD,)),
        ("sendto", (b"x", ABROAD)),
        ("sendto", (b"x", 0, ABROAD)),
        ("sendmsg", ([b"x"], [], 0, ABROAD)),
    ],
)
def test_no_socket_leaves_this_machine(
    forbidden: list[str], kind: socket.SocketKind, name: str, args: tuple[Any, ...]
) -> None:
    with (
        socket.socket(socket.AF_INET, kind) as sock,
        pytest.raises(NetworkForbiddenError, match=r"192\.0\.2\.1"),
    ):
        getattr(sock, name)(*args)
    assert forbidden == ["192.0.2.1:80"]


def test_ipv6_is_forbidden_too(forbidden: list[str]) -> None:
    with (
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock,
        pytest.raises(NetworkForbiddenError),
    ):
        sock.connect(("2001:db8::1", 80, 0, 0))
    assert forbidden == ["2001:db8::1:80"]


@pytest.mark.parametrize("look_up", ["getaddrinfo", "gethostbyname", "gethostbyname_ex"])
def test_no_name_is_looked_up(forbidden: list[str], look_up: str) -> None:
    args: tuple[Any, ...] = ("model.example", 443) if look_up == "getaddrinfo" else ("model.example",)
    with pytest.raises(NetworkForbiddenError, match=r"model\.example"):
        getattr(socket, look_up)(*args)
    assert len(forbidden) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("url", ["http://model.example/v1", "http://192.0.2.1/v1"])
async def test_an_http_client_is_stopped_and_the_attempt_is_written_down(
    forbidden: list[str], url: str
) -> None:
    async with aiohttp.ClientSession() as client:
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the client makes of it
            await client.get(url)
    assert forbidden


def test_the_switch_works_anywhere_and_tells_what_was_swallowed() -> None:
    """Issue 3 item 7: for tests of others, without pytest."""
    outside = socket.socket.connect, socket.getaddrinfo
    with pytest.raises(NetworkForbiddenError, match=r"'model\.example', 192\.0\.2\.1:80"):
        _swallow(_look_up, _connect_abroad)
    assert (socket.socket.connect, socket.getaddrinfo) == outside


def test_loopback_stays_open_and_what_is_forgiven_is_not_told() -> None:
    with no_network() as attempts, socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1])).close()
        with pytest.raises(NetworkForbiddenError):
            _connect_abroad()
        assert attempts == ["192.0.2.1:80"]
        attempts.clear()


def test_an_error_of_the_block_is_not_replaced() -> None:
    with pytest.raises(ZeroDivisionError):
        _swallow(_connect_abroad, error=ZeroDivisionError())


def _swallow(*reaches: Callable[[], object], error: Exception | None = None) -> None:
    with no_network():
        for reach in reaches:
            with contextlib.suppress(Exception):
                reach()
        if error is not None:
            raise error


def _look_up() -> None:
    socket.getaddrinfo("model.example", 443)


def _connect_abroad() -> None:
    with socket.socket() as sock:
        sock.connect(ABROAD)


def test_the_environment_holds_nothing_of_ours_but_a_home_of_the_test(tmp_path: Any) -> None:
    ours = {k: v for k, v in os.environ.items() if k.startswith(("LLM_", "AI_CHAIN_", "PLAYHEAD_"))}
    assert list(ours) == ["PLAYHEAD_HOME"]
    assert ours["PLAYHEAD_HOME"].startswith(str(tmp_path))


@pytest.mark.anyio
async def test_a_provider_answers_in_order_over_one_connection_and_keeps_the_requests() -> None:
    async with (
        FakeProvider(openai_text("Grüße"), openai_calls([("add", {"a": 1})])) as provider,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as client,
    ):
        url = f"{provider.url}/v1/chat/completions"
        async with client.post(url, json={"model": "m"}, headers={"X-Key": "k"}) as first:
            text = (await first.json())["choices"][0]["message"]["content"]

        async def body() -> Any:
            yield b'{"a":'
            yield b"1}"

        async with client.post(url, data=body(), params={"alt": "sse"}) as second:
            calls = (await second.json())["choices"][0]["message"]["tool_calls"]
        one, two = provider.requests
        assert one.closed is two.closed
        assert not one.closed.is_set()
    assert text == "Grüße"
    assert calls[0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert (one.method, one.path, one.json, one.headers["x-key"]) == (
        "POST",
        "/v1/chat/completions",
        {"model": "m"},
        "k",
    )
    assert two.headers["transfer-encoding"] == "chunked"
    assert (two.query, two.json) == ({"alt": "sse"}, {"a": 1})
    assert provider.unused == 0


@pytest.mark.anyio
@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_each_chunk_arrives_by_itself_even_when_it_ends_inside_a_character(framing: Any) -> None:
    chunks = split("data: né😀\n\n".encode(), 1)
    async with (
        FakeProvider(stream(chunks, framing=framing)) as provider,
        aiohttp.ClientSession() as client,
        client.get(provider.url) as response,
    ):
        seen = [chunk async for chunk in response.content.iter_any()]
    assert seen == chunks


@pytest.mark.anyio
@pytest.mark.parametrize("cut", ["fin", "rst"])
async def test_a_stream_can_be_cut(cut: Any) -> None:
    async with FakeProvider(stream([b"data: 1\n\n"], cut=cut)) as provider, aiohttp.ClientSession() as client:
        response = await client.get(provider.url)
        seen = await response.content.readany()
        with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientOSError)) as caught:
            await response.content.readany()
        response.close()
        await asyncio.wait_for(provider.requests[0].closed.wait(), 5)
    assert seen == b"data: 1\n\n"
    assert ("reset" in repr(caught.value).lower()) == (cut == "rst")


@pytest.mark.anyio
async def test_a_silent_provider_sees_its_client_leave() -> None:
    async with (
        FakeProvider(hang(), stream([b"x"], cut="hang")) as provider,
        aiohttp.ClientSession() as client,
    ):
        waiting = asyncio.create_task(client.get(provider.url))
        await provider.wait_for_requests(1)
        assert not provider.requests[0].closed.is_set()
        waiting.cancel()
        await asyncio.wait_for(provider.requests[0].closed.wait(), 5)
        response = await client.get(provider.url)
        assert await response.content.readany() == b"x"
        response.close()
        await asyncio.wait_for(provider.requests[1].closed.wait(), 5)


@pytest.mark.anyio
async def test_a_provider_that_still_talks_shuts_down_without_a_trace() -> None:
    before = asyncio.all_tasks()
    async with FakeProvider(hang(), default=openai_text("x")) as provider, aiohttp.ClientSession() as client:
        waiting = asyncio.create_task(client.get(provider.url))
        await provider.wait_for_requests(1)
    with pytest.raises(aiohttp.ClientError):
        await waiting
    assert asyncio.all_tasks() == before


@pytest.mark.anyio
async def test_a_request_beyond_the_script_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="no reply is scripted for request 1: GET /"):
        async with FakeProvider() as provider, aiohttp.ClientSession() as client:
            assert (await client.get(provider.url)).status == 500


@pytest.mark.anyio
async def test_a_gateway_answers_with_a_page() -> None:
    async with (
        FakeProvider(reply_html()) as provider,
        aiohttp.ClientSession() as client,
        client.get(provider.url) as response,
    ):
        assert (response.status, response.content_type) == (502, "text/html")
        assert "<h1>" in await response.text()


@pytest.mark.anyio
async def test_pauses_can_be_steered_and_raw_bytes_sent() -> None:
    gate = asyncio.Event()

    async def pause(_: int) -> None:
        await gate.wait()

    raw = reply_bytes(b"HTTP/1.1 204 No Con", b"tent\r\n\r\n")
    async with (
        FakeProvider(stream([b"1", b"2"], pause=pause), raw) as provider,
        aiohttp.ClientSession() as client,
    ):
        async with client.get(provider.url) as response:
            assert await response.content.readany() == b"1"
            gate.set()
            assert await response.content.read() == b"2"
        async with client.get(provider.url) as response:
            assert response.status == 204


@pytest.mark.anyio
async def test_streams_of_both_dialects_read_as_their_makers_wrote_them() -> None:
    script = [
        openai_sse("Hé", "llo", calls=[("add", {"a": 1})], size=5),
        gemini_sse("Hé", "llo", calls=[("add", {"a": 1}, "own")]),
        gemini_calls([("add", {"a": 1})]),
    ]
    async with FakeProvider(*script) as provider, aiohttp.ClientSession() as client:
        openai, gemini, plain = [await (await client.get(provider.url)).text() for _ in script]
    assert openai.endswith("data: [DONE]\n\n")
    assert '"content": "Hé"' in openai
    assert '"finish_reason": "tool_calls"' in openai
    assert '"id": "own"' in gemini
    assert gemini.count("finishReason") == 1
    assert '"id"' not in plain
