"""What a file looks like at a glance: the peaks of its sound, and a sheet of small pictures.

Both are made once, in a thread, and kept by the hash of the file.
"""

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from playhead.errors import MediaError
from playhead.media.container import MediaFile
from playhead.media.extra import require
from playhead.media.files import set_aside, write_atomically
from playhead.media.reader import AudioReader
from playhead.media.sheet import Thumbnails, draw_sheet
from playhead.media.types import SAMPLE_RATE, IsCancelled

T = TypeVar("T", bound=msgspec.Struct)

# Raised whenever the same file would now look otherwise.
_VERSION = 1
_STEP = SAMPLE_RATE // 50
_MOST_PEAKS = 4_000
_LOUDEST = 255


class Waveform(msgspec.Struct, frozen=True):
    """The loudest moment of each of `len(peaks)` equal parts of a file, from 0 to 255.

    `duration` is in seconds. A file without sound has no peaks.
    """

    duration: float
    peaks: list[int]


class Previews:
    """Waveforms and thumbnails, in a folder of what can be made again.

    One at a time is made, whatever is asked for at once: decoding takes a core.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._working = threading.Lock()

    async def waveform(self, path: Path, sha256: str) -> Waveform:
        """Return the waveform of a file, whose hash is given.

        Raises `MediaError`: `not_found`, `empty`, `unreadable`, `unsupported`, `needs_package`,
        `no_decodable_audio`.
        """
        return await self._made(
            self._folder / sha256 / f"waveform-{_VERSION}.json", Waveform, path, draw_waveform
        )

    async def thumbnails(self, path: Path, sha256: str) -> Thumbnails:
        """Return the thumbnails of a file, whose hash is given. A sound has none.

        Raises `MediaError` as `waveform`.
        """
        return await self._made(
            self._folder / sha256 / f"thumbnails-{_VERSION}.json", Thumbnails, path, draw_sheet
        )

    async def forget(self, sha256: str) -> None:
        """Forget what was made of a file."""
        await asyncio.to_thread(shutil.rmtree, self._folder / sha256, ignore_errors=True)

    async def _made(
        self, place: Path, kind: type[T], path: Path, make: Callable[[Path, IsCancelled], T]
    ) -> T:
        """Read it or make it. A caller who goes away ends the work, within a moment."""
        left = threading.Event()
        try:
            return await asyncio.to_thread(self._make, place, kind, path, make, left)
        finally:
            left.set()

    def _make(
        self,
        place: Path,
        kind: type[T],
        path: Path,
        make: Callable[[Path, IsCancelled], T],
        left: threading.Event,
    ) -> T:
        known = _read(place, kind)
        if known is not None:
            return known
        with self._working:
            known = _read(place, kind)  # another caller waited for the same
            if known is not None:
                return known
            made = make(path, left.is_set)
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(place, msgspec.json.encode(made))
            except OSError:
                pass  # a full disk: it is made again when it is asked for again
            return made


def draw_waveform(path: Path, is_cancelled: IsCancelled) -> Waveform:
    """Read the sound of a file and return its peaks. It blocks, seconds for an hour.

    Raises `MediaError` as `Previews.waveform`, and `cancelled`.
    """
    with MediaFile(path) as container:
        if not container.streams.audio:
            return Waveform(max(0.0, (container.duration or 0) / 1_000_000), [])
    require("numpy")
    import numpy as np

    reader = AudioReader(path)
    loud: list[float] = []
    rest = np.zeros(0, dtype=np.float32)
    for block in reader.blocks():
        if is_cancelled():
            raise MediaError(f"The waveform of {path.name!r} was not made: nobody waits.", code="cancelled")
        samples = np.abs(np.concatenate((rest, block)))
        whole = len(samples) // _STEP * _STEP
        loud += samples[:whole].reshape(-1, _STEP).max(axis=1).tolist()
        rest = samples[whole:]
    if len(rest):
        loud.append(float(rest.max()))
    parts = np.array_split(np.asarray(loud), min(len(loud), _MOST_PEAKS))
    return Waveform(round(reader.reached, 3), [round(float(part.max()) * _LOUDEST) for part in parts])


def _read(place: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(place.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        set_aside(place)
        return None
