"""A chat route that refuses, lies, hangs or is not there."""

import asyncio
from typing import Any

import pytest

from playhead.errors import (
    AuthError,
    BadRequestError,
    ConfigError,
    LLMConnectionError,
    LLMError,
    LLMTimeoutError,
    ModelNotFoundError,
    OverloadedError,
    ProtocolError,
    QuotaError,
    RateLimitError,
)
from playhead.llm.route import RouteLLM
from playhead.testing import FakeProvider, Reply, hang, reply_bytes, reply_json, stream
from playhead.types import LLMRequest
from tests.llm.routes import HELLO, call, frames, text_delta

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(stream([]), LLMConnectionError, id="empty stream"),
        pytest.param(stream([], cut="rst"), LLMConnectionError, id="reset"),
        pytest.param(stream(frames(("message", "{}"))), ProtocolError, id="nothing in the message"),
        pytest.param(stream(frames(("message", "{broken"))), ProtocolError, id="broken message"),
        pytest.param(
            stream(frames(("text_delta", '{"type":"text_delta"}'))), ProtocolError, id="broken delta"
        ),
        pytest.param(stream([b"<html>"], content_type="text/html"), ProtocolError, id="a page"),
        pytest.param(reply_json({}), ProtocolError, id="empty object"),
        pytest.param(reply_json([1]), ProtocolError, id="a list"),
        pytest.param(reply_json({"content": 5}), ProtocolError, id="a number"),
        pytest.param(reply_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<htm"), LLMError, id="text"),
        pytest.param(reply_bytes(b"not HTTP at all\r\n\r\n"), LLMError, id="no HTTP"),
        pytest.param(reply_bytes(), LLMConnectionError, id="closed"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])
async def test_a_route_that_lies_is_an_error(reply: Reply, error: type[LLMError], streamed: bool) -> None:
    """R25: what is no reply is an error in our words, whichever form was asked for."""
    if not streamed and reply.writes and b"event-stream" in reply.writes[0]:
        error = LLMError
    with pytest.raises(error) as caught:
        await call(reply, deltas=[] if streamed else None)
    assert "<htm" not in str(caught.value)


FAILED = "LLM provider error"


@pytest.mark.parametrize(
    ("status", "body", "error", "code", "text"),
    [
        (502, {"error": FAILED, "code": "rate_limit"}, RateLimitError, "rate_limit", FAILED),
        (502, {"error": FAILED, "code": "auth"}, AuthError, "auth", FAILED),
        (502, {"error": FAILED, "code": "quota"}, QuotaError, "quota", FAILED),
        (502, {"error": FAILED}, OverloadedError, "overloaded", FAILED),
        (502, {"error": "no LLM_MODEL", "code": "config"}, OverloadedError, "config", "no LLM_MODEL"),
        (400, {"error": "bad", "code": "invalid", "path": "a"}, BadRequestError, "invalid", "bad"),
        (404, {"error": "nothing", "code": "not_found"}, ModelNotFoundError, "not_found", "nothing"),
        (403, {"error": "no", "code": "bad_host"}, AuthError, "bad_host", "no"),
        (503, {"error": "later", "code": "stopping"}, OverloadedError, "stopping", "later"),
        (504, {"detail": "gateway"}, LLMTimeoutError, "timeout", "The chat route answered 504"),
        (500, {"error": {"is": "a secret"}}, OverloadedError, "overloaded", "The chat route answered"),
        (418, {"error": "x", "code": "Not A Code"}, BadRequestError, "bad_request", "x"),
        (502, {"error": "y" * 5_000, "code": "llm"}, OverloadedError, "llm", "y" * 500),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])
async def test_a_refusal_is_the_error_that_the_route_names(
    status: int, body: Any, error: type[LLMError], code: str, text: str, streamed: bool
) -> None:
    """R16, R25: the class by the code, else by the status; the text is the route's own."""
    with pytest.raises(error) as caught:
        await call(reply_json(body, status, {"Retry-After": "7"}), deltas=[] if streamed else None)
    assert type(caught.value) is error
    assert (caught.value.code, caught.value.status, caught.value.retry_after) == (code, status, 7.0)
    assert str(caught.value).startswith(text)
    assert len(str(caught.value)) <= 500
    assert "secret" not in str(caught.value)


async def test_an_error_in_the_stream_is_raised() -> None:
    """R25: an `error` event ends the call, whatever was said before."""
    events = frames(text_delta("Hel"), ("error", '{"error":"LLM provider error","code":"overloaded"}'))
    with pytest.raises(OverloadedError, match="LLM provider error"):
        await call(stream(events), deltas=[])


@pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])
async def test_a_route_that_hangs_runs_into_the_time_allowed(streamed: bool) -> None:
    """S14: the request's own time-out holds."""
    with pytest.raises(LLMTimeoutError):
        await call(hang(), deltas=[] if streamed else None, timeout=0.1)


async def test_a_call_is_made_once() -> None:
    """S21: nothing is tried again here."""
    async with FakeProvider(default=reply_json({"error": "LLM provider error"}, 503)) as server:
        with pytest.raises(OverloadedError):
            await RouteLLM(server.url).generate(LLMRequest(HELLO))
        assert len(server.requests) == 1


async def test_a_cancelled_call_closes_its_connection() -> None:
    """S14: a stop reaches the route, which may then stop as well."""
    async with FakeProvider(hang()) as server:
        task = asyncio.create_task(RouteLLM(server.url).generate(LLMRequest(HELLO), lambda delta: None))
        await server.wait_for_requests(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await server.requests[0].closed.wait()


async def test_nobody_there_is_a_connection_error() -> None:
    """R25: the text says which host, and no more."""
    async with FakeProvider() as server:
        url = server.url
    with pytest.raises(LLMConnectionError, match=r"127\.0\.0\.1"):
        await RouteLLM(f"{url}/api/agent/chat?token=SECRET").generate(LLMRequest(HELLO))


@pytest.mark.parametrize("url", ["", "localhost:8765/api", "ftp://host/x", "http://", "/api/agent/chat"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    """A wrong address is said before the first message is lost in it."""
    with pytest.raises(ConfigError, match="not the address"):
        RouteLLM(url)


async def test_headers_of_the_application_are_sent() -> None:
    """A route behind a gate of its own can be reached."""
    async with FakeProvider(reply_json({"content": "ok"})) as server:
        await RouteLLM(server.url, headers={"Authorization": "Bearer t"}).generate(LLMRequest(HELLO))
        assert server.requests[0].headers["authorization"] == "Bearer t"
