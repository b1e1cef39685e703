"""From a file to a transcript, with an engine that says what it is told to."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from playhead.errors import ConfigError, MediaError
from playhead.media.engines.base import create_engine
from playhead.media.engines.fake import FakeEngine
from playhead.media.transcribe import transcribe_media
from playhead.media.types import EngineSpec, Samples, Segment
from tests.media import build
from tests.media.build import silence


def ready(*texts: str, **options: object) -> FakeEngine:
    engine = FakeEngine(texts, **options)  # type: ignore[arg-type]  # the options of the fake, by name
    engine.prepare(lambda fraction, text: None)
    return engine


@pytest.fixture(scope="module")
def three_times(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence, a pause, and so on: three windows, at 2.3, 21.3 and 40.3 s."""
    speech = build.speech()
    pieces = [np.concatenate([silence(2.0), speech, silence(6.0)])] * 3
    return build.wav(tmp_path_factory.mktemp("media") / "three.wav", np.concatenate(pieces))


def test_each_window_is_told_at_its_time(three_times: Path) -> None:
    """R32: segments with start and end in seconds of the file, the full text, the duration."""
    transcript = transcribe_media(three_times, ready("First words.", "Second words.", "Third words."))
    assert transcript.text == "First words. Second words. Third words."
    assert [segment.start for segment in transcript.segments] == pytest.approx([2.3, 21.3, 40.3], abs=0.2)
    assert transcript.duration == pytest.approx(57.0, abs=0.1)
    assert (transcript.language, transcript.engine, transcript.model) == ("en", "fake", "fake")
    assert transcript.warnings == []


def test_progress_is_told_and_reaches_the_end(three_times: Path) -> None:
    """R32: progress while it works."""
    told: list[tuple[float | None, str]] = []
    windows: list[tuple[float, Sequence[Segment]]] = []
    transcribe_media(
        three_times,
        ready("one", "two", "three", seconds=0.25),
        on_progress=lambda fraction, text: told.append((fraction, text)),
        on_window=lambda until, segments: windows.append((until, segments)),
    )
    fractions = [fraction for fraction, _ in told if fraction is not None]
    assert fractions == sorted(fractions)
    assert fractions[-1] > 0.8
    assert "of 0:57" in told[-1][1]
    assert [segments[0].text for _, segments in windows] == ["one", "two", "three"]
    assert [until for until, _ in windows] == pytest.approx([13.0, 32.0, 51.0], abs=0.5)


def test_it_goes_on_from_where_it_broke_off(three_times: Path) -> None:
    """Q238: the windows that are done are not done again, and the rest keeps its times."""
    whole = transcribe_media(three_times, ready("one", "two", "three", word_times=False))
    rest = transcribe_media(three_times, ready("two", "three", word_times=False), resume_from=14.0)
    assert [segment.text for segment in rest.segments] == ["two", "three"]
    # a frame of the detector apart: it remembers a little of what it heard before
    expected = [segment.start for segment in whole.segments[1:]]
    assert [segment.start for segment in rest.segments] == pytest.approx(expected, abs=0.1)


def test_a_cancelled_one_stops_at_the_next_look(three_times: Path) -> None:
    """R32: cancellable, also between two windows."""
    done: list[float] = []
    with pytest.raises(MediaError) as caught:
        transcribe_media(
            three_times,
            ready("one", "two", "three"),
            on_window=lambda until, segments: done.append(until),
            is_cancelled=lambda: len(done) == 1,
        )
    assert caught.value.code == "cancelled"
    assert len(done) == 1


def test_silence_is_an_empty_transcript_and_no_error(tmp_path: Path) -> None:
    """R32: a silent file gives an honest empty transcript, whatever the engine would make up."""
    transcript = transcribe_media(build.wav(tmp_path / "a.wav", silence(30.0)), ready("You", "Thank you."))
    assert (transcript.text, list(transcript.segments), transcript.language) == ("", [], None)
    assert transcript.warnings == ["no_speech"]
    assert transcript.duration == pytest.approx(30.0, abs=0.05)


def test_what_is_wrong_with_the_file_is_told_with_the_transcript(tmp_path: Path) -> None:
    """R32: what could be read is transcribed, and the faults are named."""
    speech = build.speech()
    path = build.write(tmp_path / "a.webm", [(0.0, speech), (13.0, speech)], codec="libopus")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 8 // 10])
    transcript = transcribe_media(path, ready("one", "two"))
    assert sorted(transcript.warnings) == ["gap", "truncated"]
    assert transcript.text == "one two"


@pytest.mark.parametrize("language", ["en", "EN", "en-US", " en_GB "])
def test_a_language_is_known_however_it_is_written(language: str) -> None:
    """R32: a model asked for "en-US" as often as for "en"."""
    transcript = transcribe_media(build.JFK, ready("one", languages=("en",)), language=language)
    assert (transcript.language, transcript.warnings) == ("en", [])


def test_an_english_only_model_says_so() -> None:
    """R32: tiny.en writes nonsense for Spanish without a word: the transcript is labelled."""
    assert transcribe_media(build.JFK, ready("one", languages=("en",))).warnings == ["english_only"]
    with pytest.raises(MediaError, match="knows English only") as caught:
        transcribe_media(build.JFK, ready("one", languages=("en",)), language="es")
    assert caught.value.code == "unsupported"


def test_an_unknown_language_is_refused_with_what_to_do() -> None:
    """R32: a language model that asks for "klingon" can correct itself."""
    with pytest.raises(MediaError, match=r"'klingon'.*a code such as en"):
        transcribe_media(build.JFK, ready("one", languages=("en", "es")), language="klingon")


def test_one_language_is_settled_on(three_times: Path) -> None:
    """R32: a window heard wrongly does not turn into another alphabet."""
    asked: list[str | None] = []

    class Engine(FakeEngine):
        def transcribe(
            self, samples: Samples, *, language: str | None = None, prompt: str | None = None
        ) -> list[Segment]:
            asked.append(language)
            return super().transcribe(samples, language=language, prompt=prompt)

    engine = Engine(["uno", "dos", "tres"], language="es", word_times=False)
    transcript = transcribe_media(three_times, engine)
    assert asked[0] is None
    assert asked[-1] == "es"
    assert transcript.language == "es"


def test_an_engine_without_word_times_has_those_of_its_windows() -> None:
    """R32: right times for every engine, also for one that returns text only."""
    [segment] = transcribe_media(build.JFK, ready("And so", word_times=False)).segments
    assert segment.words is None
    assert (segment.start, segment.end) == pytest.approx((0.3, 10.5), abs=0.25)


def test_an_engine_of_ones_own_is_named_by_its_place() -> None:
    """R32: engines behind one interface."""
    spec = EngineSpec("playhead.media.engines.fake:FakeEngine", {"texts": ["hello"]})
    assert create_engine(spec).info.id == "fake"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (EngineSpec("siri"), "Unknown speech engine 'siri'.*whisper"),
        (EngineSpec("no.such.module:Engine"), "cannot be imported"),
        (EngineSpec("fake", {"volume": 11}), "options of the speech engine 'fake' are wrong.*volume"),
    ],
)
def test_a_wrong_engine_is_named(spec: EngineSpec, text: str) -> None:
    """R32: a setting that cannot be used says which and why."""
    with pytest.raises(ConfigError, match=text):
        create_engine(spec)
