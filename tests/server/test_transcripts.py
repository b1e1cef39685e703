"""From a recording to its transcript and captions, through the server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import srt  # type: ignore[import-untyped]
import webvtt

from playhead.config import Settings
from playhead.testing import FakeProvider, Reply, hang, reply_json
from tests.server.support import (
    CANARY,
    SAMPLE,
    SPOKEN,
    STREAM,
    all_frames,
    ask,
    frames,
    served,
    settings,
    speech_endpoint,
)

pytestmark = pytest.mark.anyio

RUNS = "/api/agent/threads/t1/runs"
TRANSCRIBE = {"message": "Please transcribe this."}


def held(home: Path, endpoint: FakeProvider) -> Settings:
    """The mock model, and speech by an endpoint."""
    speech = {"speech_base_url": f"{endpoint.url}/v1", "speech_api_key": CANARY}
    return settings(home, llm_provider="mock", **speech)


async def upload(client: aiohttp.ClientSession, path: Path = SAMPLE) -> Any:
    with path.open("rb") as file:
        status, item = await ask(client, "POST", "/api/media", params={"name": "jfk.mp4"}, data=file)
    assert status == 201, item
    return item


def context(*items: Any) -> dict[str, Any]:
    return {
        "context": {"mediaAssets": [{k: i[k] for k in ("id", "name", "type", "duration")} for i in items]}
    }


@pytest.fixture(scope="module")
async def transcribed(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[aiohttp.ClientSession, Any, Any]]:
    """A server, an uploaded recording, and the events of the run that transcribed it."""
    home = tmp_path_factory.mktemp("home")
    async with speech_endpoint() as endpoint, served(settings=held(home, endpoint)) as client:
        item = await upload(client)
        events = await all_frames(client, "POST", RUNS, json={**TRANSCRIBE, **context(item)})
        yield client, item, events


async def test_a_recording_is_transcribed_by_a_run(transcribed: Any) -> None:
    """R32, R63: mock model, real tool, real decoding and voice activity, progress on the way."""
    _, item, events = transcribed
    (result,) = [data["result"] for kind, data in events if kind == "tool_result"]
    assert "error" not in result
    found = result["result"]
    assert (found["assetId"], found["assetName"], found["language"]) == (item["id"], "jfk.mp4", "en")
    assert SPOKEN in found["text"]
    assert found["segmentCount"] == len(found["segments"]) >= 1
    for segment in found["segments"]:
        assert 0 <= segment["start"] < segment["end"] <= found["duration"] + 0.1
    assert any(kind == "tool_progress" for kind, _ in events)
    assert SPOKEN in events[-1][1]["result"]["text"]
    assert CANARY not in str(events)


async def test_the_transcript_is_there_afterwards(transcribed: Any) -> None:
    client, item, _ = transcribed
    status, transcript = await ask(client, "GET", f"/api/media/{item['id']}/transcript")
    assert status == 200
    assert SPOKEN in transcript["text"]
    assert transcript["segments"][0]["text"].strip()
    assert transcript["language"] == "en"


@pytest.mark.parametrize(
    ("form", "content_type", "read"),
    [
        ("vtt", "text/vtt", lambda text: [c.text for c in webvtt.from_string(text).captions]),
        ("srt", "application/x-subrip", lambda text: [c.content for c in srt.parse(text)]),
        ("txt", "text/plain", lambda text: text.splitlines()),
        ("json", "application/json", lambda text: [text]),
    ],
)
async def test_captions_are_files_that_their_parsers_read(
    form: str, content_type: str, read: Any, transcribed: Any
) -> None:
    client, item, _ = transcribed
    async with client.get(f"/api/media/{item['id']}/captions.{form}") as response:
        assert response.status == 200
        assert response.content_type == content_type
        assert response.headers["Content-Disposition"] == f"inline; filename*=utf-8''jfk.{form}"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        text = await response.text()
    assert "Ask not" in " ".join(read(text))


async def test_other_formats_are_404(transcribed: Any) -> None:
    client, item, _ = transcribed
    for form in ("exe", "VTT", "html"):
        status, answer = await ask(client, "GET", f"/api/media/{item['id']}/captions.{form}")
        assert (status, answer["code"]) == (404, "not_found")
        assert "vtt" in answer["error"]


async def test_a_file_that_was_not_transcribed_has_no_transcript(tmp_path: Path) -> None:
    async with speech_endpoint() as endpoint, served(settings=held(tmp_path, endpoint)) as client:
        item = await upload(client)
        for media_id in (item["id"], "nothing"):
            for what in ("transcript", "captions.vtt"):
                status, answer = await ask(client, "GET", f"/api/media/{media_id}/{what}")
                assert (status, answer["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "fault",
    [
        reply_json({"error": {"message": f"SECRET-BODY {CANARY}"}}, 401),
        reply_json(["SECRET-BODY"]),
    ],
    ids=["refused", "nonsense"],
)
async def test_a_speech_engine_that_fails_is_a_result_that_the_model_reads(
    fault: Reply, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R22, R32: the run goes on to its answer, and neither key nor body is told."""
    async with FakeProvider(default=fault) as endpoint, served(settings=held(tmp_path, endpoint)) as client:
        item = await upload(client)
        events = await all_frames(client, "POST", RUNS, json={**TRANSCRIBE, **context(item)})
    (result,) = [data["result"] for kind, data in events if kind == "tool_result"]
    assert "jfk.mp4" in result["error"]
    assert events[-1][1]["result"]["finishReason"] == "final"
    for secret in (CANARY, "SECRET", str(tmp_path)):
        assert secret not in str(events) + caplog.text


async def test_a_stop_ends_the_transcription(tmp_path: Path) -> None:
    """R32: cancellable while the engine works; the server answers meanwhile."""
    async with FakeProvider(default=hang()) as endpoint, served(settings=held(tmp_path, endpoint)) as client:
        item = await upload(client)
        body = {**TRANSCRIBE, **context(item)}
        async with client.post(RUNS, json=body, headers=STREAM) as response:
            run_id = response.headers["Run-Id"]
            stream = frames(response)
            await endpoint.wait_for_requests(1, timeout=30)
            assert (await ask(client, "GET", "/healthz"))[0] == 200
            async with asyncio.timeout(10):
                await ask(client, "POST", f"/api/agent/runs/{run_id}/cancel")
                events = [event async for event in stream]
        _, view = await ask(client, "GET", "/api/agent/threads/t1")
    assert events[-1][1]["result"]["finishReason"] == "cancelled"
    assert [m["role"] for m in view["messages"]] == ["user", "assistant", "tool"]
