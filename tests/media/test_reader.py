"""The reader keeps the player's clock, whatever the file does to it."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from playhead.errors import MediaError
from playhead.media.reader import AudioReader
from playhead.media.types import SAMPLE_RATE
from tests.media import build
from tests.media.build import Samples, silence, tone


def read(path: Path, start: float = 0.0) -> tuple[Samples, AudioReader]:
    reader = AudioReader(path, start)
    blocks = list(reader.blocks())
    assert all(block.dtype == np.float32 and block.ndim == 1 for block in blocks)
    return np.concatenate(blocks), reader


def edges(samples: Samples) -> list[float]:
    """The times, in seconds, at which a sound begins or ends."""
    loud = np.abs(samples[: len(samples) // 160 * 160].reshape(-1, 160)).max(axis=1) > 0.05
    changes = [0.0] if loud[0] else []
    return changes + [float(i + 1) / 100 for i in np.flatnonzero(np.diff(loud.astype(int)))]


@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "aac"), ("a.mkv", "aac"), ("a.webm", "libopus")])
def test_a_track_that_starts_late_is_heard_late(tmp_path: Path, name: str, codec: str) -> None:
    """R32: a naive reader puts every word two seconds early."""
    path = build.write(tmp_path / name, [(2.0, tone(1.0))], codec=codec, video=4.0)
    samples, reader = read(path)
    assert edges(samples)[0] == pytest.approx(2.0, abs=0.05)
    assert reader.reached == pytest.approx(4.0, abs=0.15)
    assert reader.warnings == []


@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "aac"), ("a.mkv", "aac"), ("a.webm", "libopus")])
def test_a_hole_becomes_silence_and_is_told(tmp_path: Path, name: str, codec: str) -> None:
    """R32: what comes after a hole keeps its time."""
    path = build.write(tmp_path / name, [(0.0, tone(1.0)), (3.0, tone(1.0))], codec=codec)
    samples, reader = read(path)
    assert edges(samples)[:3] == pytest.approx([0.0, 1.0, 3.0], abs=0.06)
    assert reader.warnings == ["gap"]


def test_overlapping_pieces_do_not_add_up(tmp_path: Path) -> None:
    """R32: an hour joined from pieces is an hour long, not an hour and two seconds."""
    pieces = [(number * 0.018, tone(0.02)) for number in range(1000)]
    samples, _ = read(build.write(tmp_path / "a.mkv", pieces, codec="pcm_s16le"))
    assert len(samples) / SAMPLE_RATE == pytest.approx(18.0, abs=0.25)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.wav", "pcm_s16le"),
        ("a.flac", "flac"),
        ("a.mp3", "libmp3lame"),
        ("a.ogg", "libopus"),
        ("a.ts", "aac"),
    ],
)
def test_plain_files_have_their_length(tmp_path: Path, name: str, codec: str) -> None:
    """R32: the usual containers of sound are read whole."""
    samples, reader = read(build.write(tmp_path / name, [(0.0, tone(2.0))], codec=codec))
    assert len(samples) / SAMPLE_RATE == pytest.approx(2.0, abs=0.1)
    # not the maximum: a lossy codec rings where the sound sets in
    assert float(np.quantile(np.abs(samples), 0.99)) == pytest.approx(0.3, abs=0.02)
    assert reader.warnings == []


def test_the_content_counts_and_not_the_name(tmp_path: Path) -> None:
    """R32: a webm that is called mp4 is read as what it is."""
    path = tmp_path / "talk.mp4"
    shutil.copy(build.LIBRIVOX, path)
    samples, reader = read(path)
    assert len(samples) / SAMPLE_RATE == pytest.approx(28.73, abs=0.1)
    assert reader.warnings == []


def test_reading_may_begin_in_the_middle() -> None:
    """R32: a transcription that broke off goes on from where it was, on the same clock."""
    whole, _ = read(build.JFK)
    rest, reader = read(build.JFK, start=5.25)
    assert np.array_equal(rest, whole[round(5.25 * SAMPLE_RATE) :])
    assert reader.position == pytest.approx(11.0, abs=0.1)


@pytest.mark.parametrize("name", ["a.webm", "a.mp3"])
def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path, name: str) -> None:
    """R32: truncated: what is there is used, and the transcript says that more was promised."""
    codec = "libmp3lame" if name == "a.mp3" else "libopus"
    path = build.write(tmp_path / name, [(0.0, tone(20.0))], codec=codec)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    samples, reader = read(path)
    assert 8.0 < len(samples) / SAMPLE_RATE < 12.0
    assert "truncated" in reader.warnings


def test_damaged_packets_are_left_out_and_the_clock_is_kept(tmp_path: Path) -> None:
    """R32: noise in the middle of a file moves nothing that comes after it."""
    sound = np.concatenate([tone(4.0), silence(2.0), tone(2.0)])
    path = build.write(tmp_path / "a.mp4", [(0.0, sound)])
    data = bytearray(path.read_bytes())
    begin = data.index(b"mdat")
    for place in random.Random(4).sample(range(begin + 4000, begin + 24000), 200):
        data[place] ^= 0xFF
    path.write_bytes(data)
    samples, reader = read(path)
    assert len(samples) / SAMPLE_RATE == pytest.approx(8.0, abs=0.25)
    assert any(edge == pytest.approx(6.0, abs=0.25) for edge in edges(samples))
    assert np.abs(samples[round(4.3 * SAMPLE_RATE) : round(5.7 * SAMPLE_RATE)]).max() < 0.05
    assert "bad_packets" in reader.warnings


def test_wild_time_stamps_bring_neither_hours_of_silence_nor_loss(tmp_path: Path) -> None:
    """R32: a stamp far from anything begins a new count."""
    pieces = [(0.0, tone(2.0)), (90_000.0, tone(2.0)), (90_002.0, tone(1.0))]
    path = build.write(tmp_path / "a.mkv", pieces, codec="pcm_s16le")
    samples, _ = read(build.without_length(path))
    assert len(samples) / SAMPLE_RATE == pytest.approx(5.0, abs=0.3)


def test_samples_that_are_no_numbers_become_silence(tmp_path: Path) -> None:
    """R32: nothing that an engine chokes on leaves the reader."""
    path = build.write(tmp_path / "a.wav", [(0.0, tone(1.0))], codec="pcm_f32le")
    data = bytearray(path.read_bytes())
    data[-4000:-2000] = np.full(500, np.nan, dtype="<f4").tobytes()
    data[-2000:-1000] = np.full(250, 1e30, dtype="<f4").tobytes()
    path.write_bytes(data)
    samples, _ = read(path)
    assert np.isfinite(samples).all()
    assert np.abs(samples).max() <= 1.0


def test_a_file_without_sound_says_so() -> None:
    """R32: no audio track is an error of its own."""
    with pytest.raises(MediaError, match="no sound track") as caught:
        list(AudioReader(build.NO_AUDIO).blocks())
    assert caught.value.code == "no_audio"


def test_a_sound_track_without_sound_says_so(tmp_path: Path) -> None:
    """R32: a track with nothing in it is told apart from a missing one and from silence."""
    path = build.wav(tmp_path / "a.wav", tone(1.0))
    path.write_bytes(path.read_bytes()[:78])
    with pytest.raises(MediaError) as caught:
        list(AudioReader(path).blocks())
    assert caught.value.code == "no_decodable_audio"


def test_an_unknown_codec_says_so(tmp_path: Path) -> None:
    """R32: unknown codec: its own clear error."""
    path = build.wav(tmp_path / "a.wav", tone(1.0))
    data = bytearray(path.read_bytes())
    data[20:22] = b"\x34\x12"  # the format tag of RIFF WAVE
    path.write_bytes(data)
    with pytest.raises(MediaError) as caught:
        list(AudioReader(path).blocks())
    assert caught.value.code == "unsupported"


def test_memory_stays_flat_with_length(tmp_path: Path) -> None:
    """R32: the blocks are small however long the file is, also over a long silence."""
    path = build.write(tmp_path / "a.mkv", [(0.0, tone(1.0)), (500.0, tone(1.0))], codec="pcm_s16le")
    sizes = [len(block) for block in AudioReader(path).blocks()]
    assert sum(sizes) == pytest.approx(501 * SAMPLE_RATE, rel=0.001)
    assert max(sizes) <= 12 * SAMPLE_RATE
