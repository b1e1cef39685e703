"""Transcripts kept on disk by what was transcribed and how; and the windows of those not yet done.

A key is made of the hash of the file, the engine, the model and the language, so a renamed file is
found again and a changed one is not.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from playhead.errors import MediaError
from playhead.media.files import set_aside, write_atomically
from playhead.media.types import Segment, Transcript

# Raised whenever the same sound would now give another transcript.
_VERSION = 1


class _Part(msgspec.Struct, frozen=True):
    until: float
    segments: Sequence[Segment]


class CacheKey(msgspec.Struct, frozen=True):
    """What a transcript is of, and how it was made: `model` tells a model from every other."""

    sha256: str
    engine: str
    model: str
    language: str | None

    @property
    def place(self) -> Path:
        how = [_VERSION, self.engine, self.model, self.language]
        return Path(self.sha256) / hashlib.sha256(msgspec.json.encode(how)).hexdigest()[:24]


class TranscriptCache:
    """A folder of transcripts, one folder for each file of media.

    It blocks; what is torn is set aside and counts as not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: CacheKey) -> Transcript | None:
        """Return the transcript of a key, or None."""
        return self._read(self._path(key))

    def newest(self, sha256: str) -> Transcript | None:
        """Return the transcript of a file that was made last, in whatever way, or None."""
        try:
            found = {path: path.stat().st_mtime_ns for path in (self._folder / sha256).glob("[!.]*.json")}
        except OSError:
            return None
        newest_first = sorted(found, key=found.__getitem__, reverse=True)
        return next((known for path in newest_first if (known := self._read(path))), None)

    def _read(self, path: Path) -> Transcript | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Transcript)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            set_aside(path)
            return None

    def put(self, key: CacheKey, transcript: Transcript) -> None:
        """Keep a transcript; its journal is over. A disk that cannot take it is no fault of the caller's."""
        try:
            self._path(key).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(key), msgspec.json.encode(transcript))
            self._journal(key).unlink(missing_ok=True)
        except OSError:
            pass

    def append(self, key: CacheKey, until: float, segments: Sequence[Segment]) -> None:
        """Note what was said up to `until` seconds, for a transcription that may not reach its end."""
        self._journal(key).parent.mkdir(parents=True, exist_ok=True)
        with self._journal(key).open("ab") as journal:
            journal.write(msgspec.json.encode(_Part(until, segments)) + b"\n")

    def begun(self, key: CacheKey) -> tuple[float, list[Segment]]:
        """Return how far an unfinished transcription came, and what was said until there."""
        until = 0.0
        segments: list[Segment] = []
        try:
            lines = self._journal(key).read_bytes().splitlines()
        except OSError:
            return until, segments
        for line in lines:
            try:
                part = msgspec.json.decode(line, type=_Part)
            except ValueError:
                break  # torn by a crash: what follows may not join up
            if part.until > until:
                until = part.until
                segments += part.segments
        return until, segments

    def _path(self, key: CacheKey) -> Path:
        return self._folder / key.place.with_suffix(".json")

    def _journal(self, key: CacheKey) -> Path:
        return self._folder / key.place.with_suffix(".journal")


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file. It blocks, about a second per gigabyte.

    Raises `MediaError`: `not_found`, `unreadable`.
    """
    try:
        if not path.is_file():
            what = f"{path.name!r} is not a file" if path.exists() else f"There is no file {path.name!r}"
            raise MediaError(f"{what}.", code="not_found")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        raise MediaError(f"{path.name!r} cannot be opened.", code="unreadable") from None
