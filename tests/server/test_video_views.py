"""What the page shows of a file, over HTTP: edited lines, captions of a style, waveform, thumbnails."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import webvtt

from playhead.testing import ScriptedLLM
from playhead.types import ToolCall
from tests.media.build import NO_AUDIO, picture
from tests.server.support import SPOKEN, all_frames, ask, served, settings, speech_endpoint

pytestmark = pytest.mark.anyio

RUNS = "/api/agent/threads/first/runs"
ASKED = {"message": "transcribe", "context": {"projectId": "first"}}
BAD_STYLES = [("words", "0"), ("lines", "3"), ("speed", "fast"), ("speed", "nan"), ("words", "2.5")]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A server whose first project has the sample, transcribed; and the id of it."""
    async with (
        speech_endpoint() as endpoint,
        served(
            settings=settings(tmp_path, llm_provider="mock", speech_base_url=f"{endpoint.url}/v1")
        ) as client,
    ):
        _, item = await ask(client, "POST", "/api/projects/first/sample")
        await all_frames(
            client, "POST", RUNS, json={"message": "transcribe", "context": {"projectId": "first"}}
        )
        yield client, item["id"]


async def edit(client: aiohttp.ClientSession, media_id: str, text: str, **more: Any) -> tuple[int, Any]:
    path = f"/api/media/{media_id}/transcript/lines/{more.pop('number', 0)}"
    return await ask(client, "PUT", path, json={"said": SPOKEN, "text": text, **more})


async def test_an_edited_line_is_kept_and_used_by_captions_and_tools(opened: Any) -> None:
    """Issue 7, 2: what the recogniser said stays beside it, and is back when the edit is taken back."""
    client, media_id = opened
    status, line = await edit(client, media_id, " Ask what <you>\n can do. ")
    assert (status, line["text"], line["said"].strip()) == (200, "Ask what <you> can do.", SPOKEN)
    _, transcript = await ask(client, "GET", f"/api/media/{media_id}/transcript")
    assert transcript["segments"][0] == line
    assert transcript["text"].startswith("Ask what <you> can do.")
    async with client.get(f"/api/media/{media_id}/captions.vtt") as response:
        text = await response.text()
    assert "&lt;you&gt;" in text
    events = await all_frames(client, "POST", RUNS, json=ASKED)
    (result,) = [data["result"]["result"] for kind, data in events if kind == "tool_result"]
    assert result["segments"][0]["text"] == "Ask what <you> can do."
    status, line = await edit(client, media_id, SPOKEN)
    assert (status, line["text"].strip()) == (200, SPOKEN)
    assert "said" not in line


async def test_an_edit_of_another_line_is_refused(opened: Any) -> None:
    """Issue 7, 2: the fault is named, and the line stays as it is."""
    client, media_id = opened
    cases: list[tuple[Any, int, str]] = [
        ({"number": 99}, 404, "no line 99"),
        ({"number": "x"}, 404, "'x'"),
        ({"number": -1}, 404, "'-1'"),
        ({"said": "Something else."}, 409, "read the transcript again"),
        ({"text": 5}, 400, "text"),
        ({"text": "x" * 5_001}, 400, "text"),
        ({"words": []}, 400, "words"),
    ]
    for more, status, said in cases:
        found, answer = await edit(client, media_id, **{"text": "New", **more})
        assert found == status
        assert said in answer["error"]
    _, transcript = await ask(client, "GET", f"/api/media/{media_id}/transcript")
    assert transcript["segments"][0]["text"].strip() == SPOKEN


async def test_captions_come_in_the_style_that_is_asked_for(opened: Any) -> None:
    """Issue 7, 3: the link that make_captions gives."""
    client, media_id = opened
    path = f"/api/media/{media_id}/captions.vtt"
    async with client.get(path, params={"words": "2", "lines": "1", "speed": "20"}) as response:
        cues = webvtt.from_string(await response.text()).captions
    assert [cue.text for cue in cues][:3] == ["Ask not", "what your", "country can"]
    for name, value in (
        ("words", "0"),
        ("lines", "3"),
        ("speed", "fast"),
        ("speed", "nan"),
        ("words", "2.5"),
    ):
        status, answer = await ask(client, "GET", path, params={name: value})
        assert (status, answer["path"]) == (400, name)


async def test_a_waveform_and_thumbnails_are_served(opened: Any, tmp_path: Path) -> None:
    """Issue 7, 2: of a video with sound; made once, kept in the cache folder."""
    client, media_id = opened
    status, wave = await ask(client, "GET", f"/api/media/{media_id}/waveform")
    assert (status, wave["duration"]) == (200, pytest.approx(11, abs=0.5))
    assert max(wave["peaks"]) > 50
    status, sheet = await ask(client, "GET", f"/api/media/{media_id}/thumbnails")
    assert (status, sheet["count"], sheet["width"]) == (200, 11, 160)
    async with client.get(f"/api/media/{media_id}/thumbnails.jpg") as response:
        assert (response.status, response.content_type) == (200, "image/jpeg")
        assert (await response.read())[:2] == b"\xff\xd8"
    kept = tmp_path / "cache" / "previews"
    assert len(list(kept.glob("*/*.json"))) == 2
    async with client.delete(f"/api/media/{media_id}") as response:
        assert response.status == 204
    assert list(kept.glob("*/*.json")) == []


async def test_what_has_no_sound_or_picture_says_so(tmp_path: Path) -> None:
    async with served(settings=settings(tmp_path)) as client:
        for path in (NO_AUDIO, picture(tmp_path / "still.png")):
            params = {"name": path.name}
            _, item = await ask(client, "POST", "/api/media", params=params, data=path.read_bytes())
            status, wave = await ask(client, "GET", f"/api/media/{item['id']}/waveform")
            assert (status, wave["peaks"]) == (200, [])
        for what in ("waveform", "thumbnails", "thumbnails.jpg", "transcript/lines/0"):
            method, body = ("PUT", {"said": "", "text": ""}) if "lines" in what else ("GET", None)
            status, answer = await ask(client, method, f"/api/media/nope/{what}", json=body)
            assert (status, answer["code"]) == (404, "not_found")


async def test_a_model_finds_what_was_said_and_captions_it(tmp_path: Path) -> None:
    """Issue 7, 3: over the project's media, from the question to the answer."""
    calls = [
        ToolCall("c1", "transcribe_video", {}),
        ToolCall("c2", "search_transcript", {"query": "your country can"}),
        ToolCall("c3", "make_captions", {"format": "srt", "wordsPerLine": 3}),
    ]
    llm = ScriptedLLM([calls[0]], calls[1:], "At 0:00.")
    async with (
        speech_endpoint() as endpoint,
        served(llm=llm, settings=settings(tmp_path, speech_base_url=f"{endpoint.url}/v1")) as client,
    ):
        await ask(client, "POST", "/api/projects/first/sample")
        body = {"message": "Where do I say it?", "context": {"projectId": "first"}}
        events = await all_frames(client, "POST", RUNS, json=body)
        results = {
            data["result"]["name"]: data["result"]["result"] for kind, data in events if kind == "tool_result"
        }
        found, made = results["search_transcript"], results["make_captions"]
        assert found["matches"][0]["match"] == "exact"
        assert (made["format"], made["cueCount"]) == ("srt", len(made["cues"]))
        async with client.get(f"/{made['url']}") as response:
            assert response.status == 200
            assert made["cues"][0]["text"] in await response.text()
