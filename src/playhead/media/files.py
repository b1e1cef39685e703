"""Files that are there whole or not at all."""

import contextlib
import os
from pathlib import Path

from playhead.ids import new_id


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, also after a crash, sees the old one or the new one."""
    part = path.with_name(f".{path.name}.{new_id()}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames within a folder last through a power cut, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def set_aside(path: Path) -> None:
    """Move a damaged file out of the way, kept for whoever wants to look at it."""
    with contextlib.suppress(OSError):
        path.replace(aside(path))


def aside(path: Path) -> Path:
    """Return where `set_aside` puts a file."""
    return path.with_name(f".{path.name}.damaged")
