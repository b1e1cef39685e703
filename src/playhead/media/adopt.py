"""Files of the library whose record is torn or lost: their facts are found out anew.

Probing and hashing a large file takes seconds, so it is done in a thread, one file after the other.
"""

import hashlib
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from playhead.errors import MediaError
from playhead.media.files import aside, write_atomically
from playhead.media.probe import probe
from playhead.media.types import Probe

Record = TypeVar("Record")
Make = Callable[[str, str, int, str, Probe], Record]
"""Makes a record of an id, a name, a size in bytes, a SHA-256 and the facts."""
# A record begins with its id and its name, which is why a torn one often has both.
_NAME = re.compile(rb'"name"\s*:\s*("(?:[^"\\]|\\.)+")')
_RECORD_BYTES = 64 * 1024


class Adoption(Generic[Record]):
    """Adopts files, each once; one that cannot be read is tried again when it has changed."""

    def __init__(self, make: Make[Record]) -> None:
        self._make = make
        self._waiting: dict[str, Path] = {}
        self._done: dict[str, tuple[tuple[int, int], Record | None]] = {}
        self._working = threading.Lock()
        self._news = False

    @property
    def busy(self) -> bool:
        """Whether files are in line."""
        return bool(self._waiting)

    def take_news(self) -> bool:
        """Whether a file was adopted, or is still in line, since this was asked last."""
        news, self._news = self._news, False
        return news or self.busy

    def record(self, path: Path) -> Record | None:
        """Return the record that was made for a file, or None; a file not yet seen is put in line."""
        try:
            stamp = _stamp(path)
        except OSError:
            return None
        known = self._done.get(path.stem)
        if known is not None and known[0] == stamp:
            return known[1]
        self._waiting[path.stem] = path
        return None

    def start(self) -> None:
        """Begin with what is in line, unless that is being done. Returns at once."""
        if self._waiting and not self._working.locked():
            # A daemon: the end of the process does not wait for it, and nothing is half written.
            threading.Thread(target=self.finish, name="playhead-adopt", daemon=True).start()

    def finish(self) -> None:
        """Do all that is in line, or wait for the thread that does. It blocks."""
        with self._working:
            while self._waiting:
                media_id, path = next(iter(self._waiting.items()))
                try:
                    with suppress(OSError):
                        stamp = _stamp(path)
                        # First, for a file on which the reader itself breaks: it is not tried for ever.
                        self._done[media_id] = stamp, None
                        self._done[media_id] = stamp, self._adopt(media_id, path)
                finally:
                    self._news = True
                    self._waiting.pop(media_id, None)

    def _adopt(self, media_id: str, path: Path) -> Record | None:
        place = path.with_name(f"{media_id}.json")
        try:
            facts = probe(path)
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            name = _name_in(aside(place)) or path.name
            record = self._make(media_id, name, path.stat().st_size, sha256, facts)
        except (MediaError, OSError):
            return None
        with suppress(OSError):  # a full disk: it is known until this process ends
            write_atomically(place, msgspec.json.encode(record))
        return record


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _name_in(torn: Path) -> str | None:
    """The name in what is left of a record."""
    try:
        with torn.open("rb") as file:
            found = _NAME.search(file.read(_RECORD_BYTES))
        return msgspec.json.decode(found[1], type=str) if found else None
    except (OSError, ValueError):
        return None
