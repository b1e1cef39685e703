"""Transcripts are kept by what was transcribed and how; what is torn counts as not there."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from playhead.errors import MediaError
from playhead.media.cache import CacheKey, TranscriptCache, content_hash
from playhead.media.types import Segment, Transcript, Word

KEY = CacheKey("ab" * 32, "whisper", "base-sha", "en")
TRANSCRIPT = Transcript(
    3.0, "en", "whisper", "base", [Segment(0.5, 1.0, " Hi", [Word(0.5, 1.0, " Hi", 0.9)], "en")], ["gap"]
)


@pytest.fixture
def cache(tmp_path: Path) -> TranscriptCache:
    return TranscriptCache(tmp_path / "cache")


def test_a_transcript_comes_back_as_it_was(cache: TranscriptCache, tmp_path: Path) -> None:
    """R32: also after a restart."""
    assert cache.get(KEY) is None
    cache.put(KEY, TRANSCRIPT)
    assert TranscriptCache(tmp_path / "cache").get(KEY) == TRANSCRIPT


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, sha256="cd" * 32),
        replace(KEY, engine="http"),
        replace(KEY, model="small-sha"),
        replace(KEY, language=None),
    ],
)
def test_another_file_engine_model_or_language_is_another_transcript(
    cache: TranscriptCache, other: CacheKey
) -> None:
    """R32: cached by content hash, engine, model and language."""
    cache.put(KEY, TRANSCRIPT)
    assert cache.get(other) is None


@pytest.mark.parametrize("torn", [b"", b'{"duration": 3', b"\xff\x00", b'{"duration": "long"}'])
def test_a_torn_file_is_set_aside_and_made_anew(cache: TranscriptCache, tmp_path: Path, torn: bytes) -> None:
    """R32: never fatal, and never in the way again."""
    cache.put(KEY, TRANSCRIPT)
    [path] = (tmp_path / "cache").rglob("*.json")
    path.write_bytes(torn)
    assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, TRANSCRIPT)
    assert cache.get(KEY) == TRANSCRIPT
    assert cache.newest(KEY.sha256) == TRANSCRIPT


def test_the_newest_transcript_of_a_file_is_found_however_it_was_made(
    cache: TranscriptCache, tmp_path: Path
) -> None:
    """R32: captions are of the transcript that the person saw last."""
    assert cache.newest(KEY.sha256) is None
    cache.put(KEY, TRANSCRIPT)
    other = replace(TRANSCRIPT, model="small")
    cache.put(replace(KEY, model="small-sha"), other)
    paths = sorted((tmp_path / "cache").rglob("*.json"), key=lambda path: b"small" in path.read_bytes())
    for age, path in enumerate(paths):
        os.utime(path, (1000.0 + age, 1000.0 + age))
    assert cache.newest(KEY.sha256) == other
    assert cache.newest("cd" * 32) is None


def test_an_unfinished_one_is_taken_up_again(cache: TranscriptCache, tmp_path: Path) -> None:
    """Q238: what was recognised before a crash is not recognised again."""
    first, second = Segment(0.0, 1.0, "one"), Segment(16.0, 17.0, "two")
    assert cache.begun(KEY) == (0.0, [])
    cache.append(KEY, 15.0, [first])
    cache.append(KEY, 30.0, [second])
    assert cache.begun(KEY) == (30.0, [first, second])
    [journal] = (tmp_path / "cache").rglob("*.journal")
    journal.write_bytes(journal.read_bytes()[:-5])
    assert cache.begun(KEY) == (15.0, [first])
    cache.put(KEY, TRANSCRIPT)
    assert cache.begun(KEY) == (0.0, [])


def test_two_processes_at_one_file_do_not_double_it(cache: TranscriptCache) -> None:
    """Q238: both write the same windows; each counts once."""
    one, two = Segment(0.0, 1.0, "one"), Segment(16.0, 17.0, "two")
    for until, segment in ((15.0, one), (15.0, one), (30.0, two), (30.0, two)):
        cache.append(KEY, until, [segment])
    assert cache.begun(KEY) == (30.0, [one, two])


def test_a_disk_that_cannot_take_it_is_no_failure(tmp_path: Path) -> None:
    """R32: the transcript is there, only not for the next time."""
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    cache = TranscriptCache(tmp_path / "cache")
    cache.put(KEY, TRANSCRIPT)
    assert cache.get(KEY) is None


def test_the_hash_is_of_the_content(tmp_path: Path) -> None:
    """R32: a renamed file is found again."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"same")
    assert content_hash(tmp_path / "a") == content_hash(tmp_path / "b")
    folder = tmp_path / "folder"
    folder.mkdir()
    for path, text in ((folder, "'folder' is not a file."), (tmp_path / "no", "There is no file 'no'.")):
        with pytest.raises(MediaError) as caught:
            content_hash(path)
        assert (caught.value.code, str(caught.value)) == ("not_found", text)
