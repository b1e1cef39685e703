"""A file of lines that only grows, shared by any number of processes.

- An appended line is on disk when `append` returns: written, and flushed to the device unless
  `fsync` is off. Then it survives the death of the process, but not always a loss of power.
- Each access holds the file's lock, so a line is never seen half written and never mixed with
  another's. (Windows has no such lock: there, one process at a time.)
- A line that cannot be read, such as the torn last one of a process that was killed, sets the file
  aside: it stays whole beside the new one, which holds the lines that can be read.
"""

import contextlib
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from playhead.errors import StoreError
from playhead.ids import new_id

logger = logging.getLogger("playhead")

Verdict = Literal["keep", "reset", "broken"]
"""Of one line: it stays; nothing before it is needed any more (nor itself); it cannot be read."""

_LOCK_TIMEOUT = 5.0
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_flush = getattr(os, "fdatasync", os.fsync)


class LineFile:
    """Lines in a file. Every failure of the file system is a `StoreError` that names the file only."""

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = True) -> None:
        self._path = Path(path)
        self._fsync = fsync
        with self._told("opened"):
            self._path.parent.mkdir(parents=True, exist_ok=True)

    def load(self, read: Callable[[bytes], Verdict]) -> None:
        """Read each line in order. What is broken is set aside, what is not needed is dropped."""
        with self._told("read"), self._locked() as fd:
            *lines, last = _read_all(fd).split(b"\n")
            kept: list[bytes] = []
            broken = stale = 0
            for line in filter(bytes.strip, [*lines, last]):
                verdict = read(line)
                if verdict == "keep":
                    kept.append(line)
                elif verdict == "reset":
                    stale += len(kept) + 1
                    kept.clear()
                else:
                    broken += 1
            if broken:
                self._set_aside(kept, broken)
            elif stale:
                with contextlib.suppress(OSError):  # the next start drops them as well
                    self._replace(kept)
            if not (lines or last):
                self._flush_folder()

    def append(self, line: bytes) -> None:
        """Write one line at the end. When it fails, the file is what it was."""
        with self._told("written"), self._locked() as fd:
            size = os.fstat(fd).st_size
            # Behind a torn line, ours must not become a part of it.
            start = b"" if not size or _last_byte(fd, size) == b"\n" else b"\n"
            try:
                _write_all(fd, start + line + b"\n")
                if self._fsync:
                    _flush(fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, size)
                raise

    def _set_aside(self, kept: list[bytes], broken: int) -> None:
        aside = self._path.with_name(f"{self._path.name}.broken-{new_id()}")
        before = self._path.stat()
        try:
            try:
                os.link(self._path, aside)
            except OSError:  # a file system without hard links
                shutil.copyfile(self._path, aside)
            self._replace(kept)
        except OSError as error:
            # Each start would leave another one; but where the new file is in place, it is all there is.
            with contextlib.suppress(OSError):
                if os.path.samestat(before, self._path.stat()):
                    aside.unlink(missing_ok=True)
            logger.warning(
                "%s has %d lines that cannot be read; it could not be set aside (%s) and stays as it is.",
                self._path.name,
                broken,
                error.strerror,
            )
            return
        logger.warning(
            "%s had %d lines that could not be read: it was set aside as %s, and goes on with the other %d.",
            self._path.name,
            broken,
            aside.name,
            len(kept),
        )

    def _replace(self, lines: list[bytes]) -> None:
        new = self._path.with_name(f"{self._path.name}.new-{new_id()}")
        fd = os.open(new, _FLAGS | os.O_EXCL, 0o600)
        try:
            try:
                _write_all(fd, b"".join(line + b"\n" for line in lines))
                os.fsync(fd)
            finally:
                os.close(fd)
            new.replace(self._path)
            self._flush_folder()
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def _flush_folder(self) -> None:
        """A new file is safe only once its name is: https://man7.org/linux/man-pages/man2/fsync.2.html"""
        if not self._fsync or os.name == "nt":
            return
        fd = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file that stands at the path and hold its lock."""
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            fd = os.open(self._path, _FLAGS, 0o600)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise StoreError(f"{self._path.name} is not a file; give the path of one.")
                if _lock(fd) and self._is_current(fd):
                    yield fd
                    return
            finally:
                os.close(fd)  # gives the lock back
            if time.monotonic() > deadline:
                raise StoreError(f"{self._path.name} is held by another process.")
            time.sleep(0.002)

    def _is_current(self, fd: int) -> bool:
        # Between our opening and our locking, another process may have put a new file in its place.
        try:
            return os.path.samestat(os.fstat(fd), self._path.stat())
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StoreError(f"{self._path.name} could not be {what}: {reason}.") from error


def _lock(fd: int) -> bool:
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_all(fd: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        return file.read()


def _last_byte(fd: int, size: int) -> bytes:
    os.lseek(fd, size - 1, os.SEEK_SET)
    return os.read(fd, 1)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
