"""`POST /api/agent/chat` as an event stream."""

import asyncio
from pathlib import Path

import pytest

from playhead import LoopOptions
from playhead.server import ServerOptions
from playhead.testing import FakeProvider, Reply, hang, openai_sse, stream
from tests.server.faults import FAULT_IDS, FAULTS
from tests.server.support import HELLO, STREAM, HeldModel, all_frames, chat, frames, served, settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("fault", "code"), FAULTS, ids=FAULT_IDS)
async def test_a_failing_provider_ends_a_stream_with_one_error(
    fault: Reply, code: str, tmp_path: Path
) -> None:
    """R16: the stream has begun, so the error is its last frame (Q218)."""
    options = ServerOptions(loop=LoopOptions(call_timeout=0.3, retries=0))
    async with (
        FakeProvider(fault) as provider,
        served(settings=settings(tmp_path, provider.url), options=options) as client,
    ):
        events = await all_frames(client, "POST", "/api/agent/chat", json=HELLO)
    assert events == [("error", {"error": "LLM provider error", "code": code})]


async def test_a_stream_is_deltas_and_then_the_message(tmp_path: Path) -> None:
    """R10: as an event stream; the last frame is the JSON that the plain form answers with."""
    reply = openai_sse("Hel", "lo ", "wörld", calls=[("transcribe_video", {"assetId": "a1"})], size=3)
    async with (
        FakeProvider(reply) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        events = await all_frames(client, "POST", "/api/agent/chat", json=HELLO)
    *deltas, (last, body) = events
    assert last == "message"
    assert body["content"] == "Hello wörld"
    assert body["toolCalls"][0]["args"] == {"assetId": "a1"}
    assert body["usage"] == {"inputTokens": 11, "outputTokens": 7}
    assert "".join(data["text"] for kind, data in deltas if kind == "text_delta") == "Hello wörld"
    starts = [data for kind, data in deltas if kind == "tool_call_start"]
    assert [(s["callId"], s["name"]) for s in starts] == [(body["toolCalls"][0]["id"], "transcribe_video")]
    assert {kind for kind, _ in deltas} == {"text_delta", "tool_call_start", "tool_call_delta"}
    assert all(kind == data["type"] for kind, data in deltas)


async def test_deltas_come_as_they_are_said(tmp_path: Path) -> None:
    """R10: the first words are there while the provider still speaks; proxies are told to let them by."""
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        client.post("/api/agent/chat", json=HELLO, headers=STREAM) as response,
    ):
        assert response.headers["Cache-Control"] == "no-cache, no-transform"
        assert response.headers["X-Accel-Buffering"] == "no"
        assert "Content-Length" not in response.headers
        events = frames(response)
        assert (await anext(events))[1]["text"] == "Wait"
        model.go.set()
        assert [kind async for kind, _ in events] == ["text_delta", "message"]


async def test_a_provider_that_breaks_off_in_mid_answer_is_told_as_such(tmp_path: Path) -> None:
    """R16: text was said, so it is kept, with the stop reason that says it is not whole."""
    half = openai_sse("Half an ", "ans", cut="rst", finish_reason=None, done=False)
    async with (
        FakeProvider(default=half) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        events = await all_frames(client, "POST", "/api/agent/chat", json=HELLO)
    kind, body = events[-1]
    assert kind == "message"
    assert (body["content"], body["message"]["stopReason"]) == ("Half an ans", "interrupted")


async def test_what_may_pass_is_tried_again_by_the_route(tmp_path: Path) -> None:
    """Issue 4: the one attempt loop is behind the route; what was shown of the first attempt is void."""
    half = openai_sse("Half an ", "ans", cut="rst", finish_reason=None, usage=False, done=False)
    async with (
        FakeProvider(half, openai_sse("Whole.")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        events = await all_frames(client, "POST", "/api/agent/chat", json=HELLO)
    assert [kind for kind, _ in events] == ["text_delta", "text_delta", "attempt", "text_delta", "message"]
    assert events[-1][1]["content"] == "Whole."


async def test_an_error_in_the_stream_itself_is_its_last_frame(tmp_path: Path) -> None:
    """R16, Q218"""
    broken = stream([b'data: {"error": {"message": "SECRET-BODY", "code": 500}}\n\n'])
    async with (
        FakeProvider(default=broken) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        events = await all_frames(client, "POST", "/api/agent/chat", json=HELLO)
    assert [kind for kind, _ in events] == ["attempt", "attempt", "error"]
    assert events[-1][1]["error"] == "LLM provider error"
    assert "SECRET" not in str(events)


async def test_silence_is_filled_with_comments(tmp_path: Path) -> None:
    """Q215: whatever stands between does not close the stream."""
    model = HeldModel()
    options = ServerOptions(heartbeat=0.02)
    async with (
        served(llm=model, settings=settings(tmp_path), options=options) as client,
        client.post("/api/agent/chat", json=HELLO, headers=STREAM) as response,
    ):
        events = frames(response)
        kinds = [(await anext(events))[0] for _ in range(4)]
        model.go.set()
        kinds += [kind async for kind, _ in events]
    assert kinds[:4] == ["text_delta", "comment", "comment", "comment"]
    assert [kind for kind in kinds[4:] if kind != "comment"] == ["text_delta", "message"]


@pytest.mark.parametrize("headers", [{}, STREAM])
async def test_a_client_that_leaves_ends_the_call(headers: dict[str, str], tmp_path: Path) -> None:
    """Q211: this route has nothing to come back to, so the provider is not kept busy."""
    async with (
        FakeProvider(hang()) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        request = asyncio.create_task(chat(client, headers=headers))
        await provider.wait_for_requests(1)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        async with asyncio.timeout(1):
            await provider.requests[0].closed.wait()
