"""Damaged files of every kind end in a transcript or in a MediaError, never in anything else."""

import random
from pathlib import Path

import pytest

from playhead.errors import MediaError
from playhead.media.probe import probe
from playhead.media.reader import AudioReader
from playhead.media.types import SAMPLE_RATE
from tests.media import build
from tests.media.build import tone

CODES = {"unreadable", "unsupported", "no_audio", "no_decodable_audio", "empty"}
ROUNDS = 60


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Cut, flip, erase or double a part of a file."""
    kind = chance.choice(("cut", "flip", "erase", "double", "head"))
    at = chance.randrange(len(data))
    length = chance.randrange(1, 4000)
    if kind == "cut":
        return data[:at]
    if kind == "erase":
        return data[:at] + bytes(length) + data[at + length :]
    if kind == "double":
        return data[:at] + data[max(0, at - length) : at] + data[at:]
    changed = bytearray(data)
    # "head": where the containers describe themselves, and a byte does the most harm
    for _ in range(chance.randrange(1, 60)):
        changed[chance.randrange(min(len(data), 600) if kind == "head" else len(data))] = chance.randrange(
            256
        )
    return bytes(changed)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mp4", "aac"),
        ("a.mkv", "flac"),
        ("a.webm", "libopus"),
        ("a.wav", "pcm_s16le"),
        ("a.mp3", "libmp3lame"),
        ("a.ts", "aac"),
    ],
)
def test_a_damaged_file_never_crashes_the_reader(tmp_path: Path, name: str, codec: str) -> None:
    """R32: fuzzed files: a result or a clear error, in little memory."""
    video = 1.0 if name == "a.mp4" else 0.0
    data = build.write(tmp_path / name, [(0.0, tone(3.0))], codec=codec, video=video).read_bytes()
    chance = random.Random(name)
    codes = set()
    for number in range(ROUNDS):
        path = tmp_path / f"{number}-{name}"
        path.write_bytes(damaged(data, chance))
        codes.add(outcome(path))
        path.unlink()
    assert codes <= {"read", *CODES}
    assert "read" in codes


def outcome(path: Path) -> str:
    """The code of the error, or "read"."""
    try:
        probe(path)
        total = 0
        for block in AudioReader(path).blocks():
            assert len(block) <= 15 * SAMPLE_RATE
            total += len(block)
            if total > 3600 * SAMPLE_RATE:
                break  # a wild length may promise hours: it is a stream, and may be left
    except MediaError as error:
        return error.code
    return "read"
