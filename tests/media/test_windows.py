"""Windows hold the speech and nothing else, whatever the blocks it comes in."""

from itertools import pairwise

import numpy as np
import pytest

from playhead.media.reader import AudioReader
from playhead.media.types import SAMPLE_RATE
from playhead.media.windows import Window, cut_windows
from tests.media import build
from tests.media.build import Samples

LIBRIVOX_SPEECH = [(0.3, 6.8), (8.2, 10.7), (12.0, 16.8), (18.1, 23.7), (24.9, 27.7)]


@pytest.fixture(scope="module")
def librivox() -> Samples:
    return np.concatenate(list(AudioReader(build.LIBRIVOX).blocks()))


@pytest.fixture(scope="module")
def jfk() -> Samples:
    return np.concatenate(list(AudioReader(build.JFK).blocks()))


def windows(samples: Samples, *, block: int = SAMPLE_RATE, longest: float = 28.0) -> list[Window]:
    blocks = (samples[at : at + block] for at in range(0, len(samples), block))
    return [window for window in cut_windows(blocks, longest=longest) if window]


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * SAMPLE_RATE), dtype=np.float32)


def test_spans_are_where_somebody_speaks(librivox: Samples) -> None:
    """R32: the times of speech in a recording with known pauses."""
    spans = [span for window in windows(librivox) for span in window.spans]
    assert [begin for begin, _ in spans] == pytest.approx([a for a, _ in LIBRIVOX_SPEECH], abs=0.15)
    assert [end for _, end in spans] == pytest.approx([b for _, b in LIBRIVOX_SPEECH], abs=0.25)


def test_windows_hold_the_sound_of_their_time(librivox: Samples) -> None:
    """R32: window samples are the file's own, at the place the window says."""
    for window in windows(librivox):
        start = round(window.start * SAMPLE_RATE)
        assert np.array_equal(window.samples, librivox[start : start + len(window.samples)])
        assert window.start <= window.spans[0][0] < window.spans[-1][1] <= window.end


@pytest.mark.parametrize("block", [160, 512, 7_777, 10_000_000])
def test_the_blocks_that_a_stream_comes_in_do_not_matter(librivox: Samples, block: int) -> None:
    """R32: streaming gives what the whole file gives."""
    expected = [(w.start, w.end, list(w.spans)) for w in windows(librivox)]
    assert [(w.start, w.end, list(w.spans)) for w in windows(librivox, block=block)] == expected


@pytest.mark.parametrize("longest", [3.0, 6.0, 28.0])
def test_no_window_is_too_long_and_none_overlap(jfk: Samples, longest: float) -> None:
    """R32: an engine gets what it can take, also of somebody who never pauses."""
    restless = np.concatenate([jfk[round(5.4 * SAMPLE_RATE) : round(10.4 * SAMPLE_RATE)]] * 8)
    found = windows(restless, longest=longest)
    assert all(window.end - window.start <= longest for window in found)
    assert all(a.end <= b.start + 1e-6 for a, b in pairwise(found))
    covered = sum(window.end - window.start for window in found)
    assert covered > 0.85 * len(restless) / SAMPLE_RATE


@pytest.mark.parametrize("kind", ["silence", "noise", "tones", "click"])
def test_what_is_no_speech_brings_no_window(kind: str) -> None:
    """R32: silence brings no window, and so no invented words (Q236)."""
    at = np.arange(20 * SAMPLE_RATE) / SAMPLE_RATE
    sounds = {
        "silence": np.zeros(len(at)),
        "noise": np.random.default_rng(1).normal(0, 0.05, len(at)),
        "tones": 0.2 * np.sin(2 * np.pi * 440 * at) * (np.floor(at) % 2),
        "click": np.where(np.arange(len(at)) % 80_000 < 20, 0.9, 0.0),
    }
    assert windows(sounds[kind].astype(np.float32)) == []


def test_a_long_pause_ends_a_window(jfk: Samples) -> None:
    """R32: minutes of silence between two sentences belong to no window."""
    found = windows(np.concatenate([silence(5), jfk, silence(30), jfk, silence(5)]))
    assert [round(window.start) for window in found] == [5, 46]
    assert [round(window.end) for window in found] == [16, 57]


def test_a_soft_beginning_is_part_of_the_speech(jfk: Samples) -> None:
    """R32: after a long silence the detector is late for a soft "And"."""
    found = windows(np.concatenate([silence(8), jfk, silence(8), jfk]))
    assert [w.spans[0][0] for w in found] == pytest.approx([8.3, 8.3 + 8 + len(jfk) / SAMPLE_RATE], abs=0.12)


def test_a_caller_can_look_up_from_a_long_silence() -> None:
    """R32: cancellation and progress do not wait for the next word."""
    assert list(cut_windows([silence(1.0)] * 5)) == [None] * 5


def test_the_clock_of_a_later_start_is_kept(jfk: Samples) -> None:
    """R32: resumed in the middle, times are still those of the file."""
    whole = windows(jfk)[0]
    later = next(window for window in cut_windows([jfk], start=100.0) if window)
    assert later.start == pytest.approx(100.0 + whole.start)
    assert later.spans[0][0] == pytest.approx(100.0 + whole.spans[0][0])
