"""Speech as the tools and the routes use it: cached, resumed, and honest about what is missing."""

import asyncio
import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from playhead import AgentLoop
from playhead.errors import MediaError
from playhead.media import models, service
from playhead.media.library import MediaLibrary
from playhead.media.service import HttpSpeech, SpeechService, SpeechSettings
from playhead.session.sessions import Sessions
from playhead.testing import FakeProvider, Reply, Request, ScriptedLLM, hang, reply_json
from playhead.tools.builtin import transcribe_video
from tests.media import build, weights
from tests.media.build import silence
from tests.session.readers import ends

pytestmark = pytest.mark.anyio

KEY = "sk-canary-1234567890"


def settings(tmp_path: Path, **more: Any) -> SpeechSettings:
    return SpeechSettings(models=tmp_path / "models", cache=tmp_path / "cache", **more)


class Remote:
    """A service whose engine is an endpoint of our own, so that nothing heavy is loaded."""

    def __init__(self, tmp_path: Path, *replies: Reply, default: Reply | None = None) -> None:
        self._folder = tmp_path
        self.provider = FakeProvider(*replies, default=default)

    def open(self) -> SpeechService:
        http = HttpSpeech(f"{self.provider.url}/v1", KEY, "whisper-1")
        return SpeechService(settings(self._folder, http=http))

    async def __aenter__(self) -> "Remote":
        await self.provider.__aenter__()
        self.service = self.open()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.service.aclose()
        await self.provider.__aexit__(*exc)


def said(text: str) -> Reply:
    return reply_json({"text": text, "language": "english"})


async def test_a_file_is_transcribed_once(tmp_path: Path) -> None:
    """R32: cached by content, also under another name and after a restart."""
    async with Remote(tmp_path, said("Ask not.")) as remote:
        assert await remote.service.known(build.JFK) is None
        first = await remote.service.transcribe(build.JFK)
        copy = tmp_path / "copy.mp4"
        shutil.copy(build.JFK, copy)
        again = remote.open()
        told: list[tuple[float | None, str]] = []
        assert await again.transcribe(copy, on_progress=lambda f, t: told.append((f, t))) == first
        assert await again.known(copy) == first
        await again.aclose()
        assert len(remote.provider.requests) == 1
    assert (first.text, first.engine, first.model, len(first.sha256)) == ("Ask not.", "http", "whisper-1", 64)
    assert told == [(1.0, "transcribed")]


async def test_another_language_is_another_transcript(tmp_path: Path) -> None:
    """R32: what was asked for counts, however it is written."""
    async with Remote(tmp_path, said("one"), said("two")) as remote:
        await remote.service.transcribe(build.JFK)
        assert (await remote.service.transcribe(build.JFK, language="en-US")).text == "two"
        assert (await remote.service.transcribe(build.JFK, language="EN")).text == "two"


async def test_a_changed_file_is_transcribed_anew(tmp_path: Path) -> None:
    """R32: the content counts, not the name."""
    path = tmp_path / "talk.mp4"
    shutil.copy(build.JFK, path)
    async with Remote(tmp_path, said("one"), default=said("two")) as remote:
        await remote.service.transcribe(path)
        shutil.copy(build.LIBRIVOX, path)
        assert (await remote.service.transcribe(path)).text.startswith("two")


async def test_two_that_ask_at_once_are_served_by_one(tmp_path: Path) -> None:
    """R32: a double click costs nothing."""
    async with Remote(tmp_path, said("Ask not.")) as remote:
        both = await asyncio.gather(*(remote.service.transcribe(build.JFK) for _ in range(3)))
        assert [transcript.text for transcript in both] == ["Ask not."] * 3
        assert len(remote.provider.requests) == 1


async def test_one_of_two_may_leave(tmp_path: Path) -> None:
    """R32: who asked for the same file is not cancelled with the other."""
    async with Remote(tmp_path, hang(), said("Ask not.")) as remote:
        first = asyncio.create_task(remote.service.transcribe(build.JFK))
        await remote.provider.wait_for_requests(1)
        second = asyncio.create_task(remote.service.transcribe(build.JFK))
        first.cancel()
        assert (await second).text == "Ask not."


@pytest.mark.parametrize("end", ["cancelled", "crashed"])
async def test_a_long_work_goes_on_where_it_stopped(tmp_path: Path, end: str) -> None:
    """Q238: windows that were recognised are not paid for twice; the transcript is whole."""
    import numpy as np

    speech = build.speech()
    path = build.wav(tmp_path / "long.wav", np.concatenate([np.concatenate([speech, silence(5.0)])] * 3))
    async with Remote(tmp_path, said("one"), said("two"), hang(), said("three")) as remote:
        task = asyncio.create_task(remote.service.transcribe(path))
        await remote.provider.wait_for_requests(3)
        if end == "cancelled":
            task.cancel()
        else:
            pid = remote.service.worker_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        with pytest.raises((asyncio.CancelledError, MediaError)):
            await task
        again = remote.open()
        transcript = await again.transcribe(path)
        await again.aclose()
        assert len(remote.provider.requests) == 4
    assert [segment.text for segment in transcript.segments] == ["one", "two", "three"]
    starts = [segment.start for segment in transcript.segments]
    assert starts == pytest.approx([0.3, 16.3, 32.3], abs=0.3)
    assert (transcript.language, transcript.warnings) == ("en", [])


async def test_a_long_work_outlives_the_run_that_asked_for_it(tmp_path: Path) -> None:
    """Q238, issue 6: its transcript is said in the thread once it is there, whole."""
    asked = asyncio.Event()
    (whole,) = said("Ask not.").writes

    async def once_asked(number: int) -> None:
        await asked.wait()

    default = Reply((whole[:20], whole[20:]), "keep", pause=once_asked)
    library = MediaLibrary(tmp_path / "media")
    await library.add_file(build.JFK)
    async with Remote(tmp_path, default=default) as remote:
        definition = replace(transcribe_video(library, remote.service), background=0.2)
        script = ScriptedLLM([("transcribe_video", {})], "It takes a while.", "There it is.")
        async with Sessions(AgentLoop(script, tools=[definition])) as sessions:
            assert (await sessions.run("t", "transcribe this")).text == "It takes a while."
            asked.set()
            assert [end.result.text for end in await ends(sessions, "t", 2)][1] == "There it is."
            told = str((await sessions.history("t"))[-2].content)
            assert json.loads(told.partition("\n\n")[2])["text"] == "Ask not."


async def test_an_endpoint_that_fails_is_an_engine_failure(tmp_path: Path) -> None:
    """R32: engine failure, told without the key; the next call may work."""
    bad = reply_json({"error": f"bad key {KEY}"}, 401)
    async with Remote(tmp_path, bad, said("Ask not.")) as remote:
        with pytest.raises(MediaError) as caught:
            await remote.service.transcribe(build.JFK)
        assert (caught.value.code, KEY in str(caught.value)) == ("engine_failed", False)
        assert (await remote.service.transcribe(build.JFK)).text == "Ask not."
    kept = b"".join(path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert KEY.encode() not in kept


async def test_errors_of_the_file_come_first(tmp_path: Path) -> None:
    """R32: not_found, empty, no_audio, each by its code."""
    (tmp_path / "empty.mp4").write_bytes(b"")
    files = {"not_found": tmp_path / "x.mp4", "empty": tmp_path / "empty.mp4", "no_audio": build.NO_AUDIO}
    async with Remote(tmp_path) as remote:
        for code, path in files.items():
            with pytest.raises(MediaError) as caught:
                await remote.service.transcribe(path)
            assert caught.value.code == code


@pytest.mark.parametrize("model_id", ["gpt-5", "../../etc", "/tmp", "https://127.0.0.1/model"])
async def test_a_model_id_is_a_name_and_never_a_path(tmp_path: Path, model_id: str) -> None:
    """R32: modelId comes from a language model; it is answered with the names there are."""
    speech = SpeechService(settings(tmp_path))
    with pytest.raises(MediaError, match=r"use one of .*base") as caught:
        await speech.transcribe(build.JFK, model_id=model_id)
    assert caught.value.code == "unsupported"
    await speech.aclose()


async def test_missing_weights_are_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: nothing is fetched inside a transcription."""
    monkeypatch.setattr(models, "_package_folder", lambda package, inside: None)
    speech = SpeechService(settings(tmp_path))
    with pytest.raises(MediaError, match="playhead speech prepare") as caught:
        await speech.transcribe(build.JFK)
    assert caught.value.code == "weights_missing"
    status = speech.status()
    assert (status.state, status.model) == ("needs_weights", None)
    assert "playhead speech prepare" in status.message
    await speech.aclose()


def test_status_says_what_is_used_and_what_better_costs(tmp_path: Path) -> None:
    """R32: which model, and what a better one would cost."""
    status = SpeechService(settings(tmp_path, model="tiny.en")).status()
    assert (status.state, status.model, status.english_only) == ("ready", "tiny.en", True)
    assert [offer.name for offer in status.better] == ["large-v3-turbo", "small", "base"]
    assert status.better[1].size == pytest.approx(486_000_000, rel=0.01)
    http = HttpSpeech("http://127.0.0.1/v1", KEY)
    remote = SpeechService(settings(tmp_path, http=http)).status()
    assert (remote.state, remote.engine, remote.model) == ("ready", "http", "whisper-1")
    assert KEY not in str(remote)
    assert not (tmp_path / "models").exists()


def test_status_names_the_extra_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: pip install 'playhead[speech]'."""
    monkeypatch.setattr(service, "find_spec", lambda name: None)
    status = SpeechService(settings(tmp_path)).status()
    assert status.state == "needs_package"
    assert "pip install 'playhead[speech]'" in status.message


async def test_prepare_fetches_a_model_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: one step, with progress; afterwards it is ready and used."""
    weights.known("small", monkeypatch)

    def hub(request: Request) -> Reply:
        from tests.media.test_download import whole

        return whole(weights.SMALL_FILES[request.path.split("/")[-1]])

    told: list[str] = []
    async with FakeProvider(default=hub) as provider:
        speech = SpeechService(settings(tmp_path, hub=provider.url))
        status = await speech.prepare(lambda fraction, text: told.append(text), model="small")
        asked = len(provider.requests)
        assert (status.state, status.model) == ("ready", "small")
        (tmp_path / "models" / "small" / "model.bin").write_bytes(b"half")
        assert speech.status().state == "needs_weights"
        await speech.prepare(lambda fraction, text: None, model="small")
        assert len(provider.requests) == 2 * asked
        await speech.aclose()
    assert told[-1].startswith("downloading small")


async def test_prepare_checks_what_is_there(tmp_path: Path) -> None:
    """R32: the model of the suite needs no network."""
    told: list[str] = []
    speech = SpeechService(settings(tmp_path, model="tiny.en"))
    status = await speech.prepare(lambda fraction, text: told.append(text))
    await asyncio.sleep(0)
    assert (status.model, told) == ("tiny.en", ["checking the model tiny.en"])
    with pytest.raises(MediaError, match="'huge'"):
        await speech.prepare(lambda fraction, text: None, model="huge")
    await speech.aclose()


async def test_a_transcript_on_the_wire_is_camel_case(tmp_path: Path) -> None:
    """R32: media's own shapes, as every other of the house."""
    import msgspec

    async with Remote(tmp_path, said("Ask not.")) as remote:
        transcript = await remote.service.transcribe(build.JFK)
        status = json.loads(msgspec.json.encode(remote.service.status()))
    assert {"state", "message", "engine", "model", "englishOnly", "better"} == set(status)
    plain = json.loads(msgspec.json.encode(transcript))
    assert {"duration", "language", "engine", "model", "segments", "warnings", "sha256"} == set(plain)
