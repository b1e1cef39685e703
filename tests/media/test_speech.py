"""Real speech, really recognised: Whisper tiny.en through the whole of media, in its own process."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import jiwer
import numpy as np
import pytest

from playhead.media.captions import render
from playhead.media.cues import make_cues
from playhead.media.service import SpeechService, SpeechSettings
from playhead.media.types import Transcript
from tests.media import build
from tests.media.build import silence, tone

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpeechService]:
    folder = tmp_path_factory.mktemp("speech")
    service = SpeechService(SpeechSettings(models=folder / "models", cache=folder / "cache", model="tiny.en"))
    yield service
    asyncio.run(service.aclose())


def word_error_rate(spoken: str, heard: str) -> float:
    return float(jiwer.wer(_plain(spoken), _plain(heard)))


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s'-]", "", text.lower()).split())


def words(transcript: Transcript) -> list[tuple[str, float, float]]:
    return [(w.text, w.start, w.end) for segment in transcript.segments for w in segment.words or ()]


async def test_a_recording_is_transcribed(speech: SpeechService) -> None:
    """R32: a real video, in a worker process, by a model that was checked: words, times, captions."""
    told: list[tuple[float | None, str]] = []
    transcript = await speech.transcribe(build.JFK, on_progress=lambda f, t: told.append((f, t)))

    assert word_error_rate(build.JFK_WORDS, transcript.text) < 0.15
    assert (transcript.language, transcript.engine, transcript.model) == ("en", "whisper", "tiny.en")
    assert transcript.warnings == ["english_only"]
    assert transcript.duration == pytest.approx(11.1, abs=0.1)

    heard = {text.strip(" .,!").lower(): start for text, start, _ in words(transcript)}
    assert heard["fellow"] == pytest.approx(1.45, abs=0.3)
    assert heard["not"] == pytest.approx(3.75, abs=0.4)
    times = [time for _, start, end in words(transcript) for time in (start, end)]
    assert times == sorted(times)

    assert [text for _, text in told][:2] == ["checking the model tiny.en", "loading the model tiny.en"]
    assert told[-1] == (1.0, "transcribed")
    assert " ".join(line for cue in make_cues(transcript.segments) for line in cue.lines) == " ".join(
        "".join(text for text, _, _ in words(transcript)).split()
    )
    assert render(transcript, "vtt").startswith("WEBVTT\n\n00:00:00.")


async def test_pauses_and_lateness_do_not_move_words(speech: SpeechService, tmp_path: Path) -> None:
    """R32: in a file with a late track and a long hole, each sentence is where it is heard."""
    jfk = build.speech()
    path = build.write(tmp_path / "late.mp4", [(4.0, jfk), (40.0, jfk)], video=52.0)
    transcript = await speech.transcribe(path)
    assert word_error_rate(f"{build.JFK_WORDS} {build.JFK_WORDS}", transcript.text) < 0.15
    starts = [start for text, start, _ in words(transcript) if text.strip(" .,").lower() == "fellow"]
    assert starts == pytest.approx([5.45, 41.45], abs=0.3)
    assert "gap" in transcript.warnings


@pytest.mark.parametrize("kind", ["silence", "noise", "tone"])
async def test_what_is_no_speech_gives_no_words(speech: SpeechService, tmp_path: Path, kind: str) -> None:
    """R32: Whisper alone says "You" to silence; here it says nothing (Q236)."""
    noise = np.random.default_rng(2).normal(0, 0.03, 30 * build.RATE).astype(np.float32)
    sound = {"silence": silence(30.0), "noise": noise, "tone": tone(30.0)}[kind]
    transcript = await speech.transcribe(build.wav(tmp_path / "a.wav", sound), language="en")
    assert (transcript.text, transcript.warnings) == ("", ["no_speech"])


async def test_a_long_sound_is_recognised_the_same_each_time(tmp_path: Path, speech: SpeechService) -> None:
    """R32: results can be cached because they are the same."""
    first = await speech.transcribe(build.LIBRIVOX)
    assert word_error_rate(build.LIBRIVOX_WORDS, first.text) < 0.15
    again = SpeechService(
        SpeechSettings(models=tmp_path / "models", cache=tmp_path / "cache", model="tiny.en", threads=1)
    )
    assert await again.transcribe(build.LIBRIVOX) == first
    await again.aclose()
