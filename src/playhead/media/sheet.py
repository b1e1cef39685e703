"""A sheet of small pictures of a video, evenly spaced, as one JPEG."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from playhead.errors import MediaError
from playhead.media.container import MediaFile, decode_errors
from playhead.media.extra import require
from playhead.media.probe import start_of
from playhead.media.types import IsCancelled

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_WIDTH = 160
_TALLEST = 284  # a phone's video held upright
_COLUMNS = 10
_MOST = 100
# A picture each so many seconds at most; a long video has its pictures further apart.
_EVERY = 1.0
# Up to this many seconds every picture is decoded, and the right one taken.
_SHORT = 60.0
_FRAME = 0.02


class Thumbnails(msgspec.Struct, frozen=True):
    """Pictures in rows of `columns`, each `width` by `height` pixels.

    Picture `i` is of the time `i * every`, in seconds; of a video of more than a minute it may be some
    seconds earlier, where there is one that stands by itself. `jpeg` is the sheet, empty without any.
    """

    count: int = 0
    columns: int = _COLUMNS
    width: int = 0
    height: int = 0
    every: float = _EVERY
    jpeg: bytes = b""


def draw_sheet(path: Path, is_cancelled: IsCancelled) -> Thumbnails:
    """Read pictures from a file and return the sheet. It blocks, seconds for an hour.

    Raises `MediaError`: as `probe`, and `cancelled`.
    """
    with MediaFile(path) as container:
        streams = container.streams.video
        if not streams or streams[0].codec_context is None:
            return Thumbnails()
        require("numpy")
        stream = streams[0]
        seconds = (container.duration or 0) / 1_000_000
        count = max(1, min(_MOST, int(seconds / _EVERY)))
        every = seconds / count or _EVERY
        pictures: list[Any] = []
        size = (0, 0)
        shots = _shots if seconds <= _SHORT else _whole_shots
        for frame in shots(container, stream, [number * every for number in range(count)]):
            if is_cancelled():
                text = f"The thumbnails of {path.name!r} were not made: nobody waits."
                raise MediaError(text, code="cancelled")
            if frame is not None:
                size = size if pictures else _size(frame)
                pictures.append(_small(frame, size))
            elif pictures:
                pictures.append(pictures[-1])  # damaged there: the last one that could be read stands for it
        if not pictures:
            return Thumbnails()
        # What could not be read at the beginning shows the first picture that could.
        pictures = [pictures[0]] * (count - len(pictures)) + pictures
        return Thumbnails(count, _COLUMNS, *size, round(every, 6), _jpeg(pictures, size))


def _shots(
    container: "InputContainer", stream: "VideoStream", times: Sequence[float]
) -> "Iterator[VideoFrame | None]":
    """The picture at each time, in one pass over all of them; None past the last that can be read."""
    frame, done = None, 0
    start = start_of(container)
    try:
        for frame in container.decode(stream):
            while done < len(times) and (frame.time or 0.0) - start >= times[done] - _FRAME:
                yield frame
                done += 1
            if done == len(times):
                return
    except decode_errors():
        pass  # as far as it can be read
    for _ in times[done:]:
        yield frame


def _whole_shots(
    container: "InputContainer", stream: "VideoStream", times: Sequence[float]
) -> "Iterator[VideoFrame | None]":
    """The last whole picture before each time: what lies between is not decoded."""
    for seconds in times:
        try:
            container.seek(round((seconds + start_of(container)) * 1_000_000), backward=True)
            yield next(iter(container.decode(stream)), None)
        except decode_errors():
            yield None


def _size(frame: "VideoFrame") -> tuple[int, int]:
    height = round(_WIDTH * frame.height / max(1, frame.width))
    return _WIDTH, max(2, min(_TALLEST, height))


def _small(frame: "VideoFrame", size: tuple[int, int]) -> Any:
    return frame.reformat(width=size[0], height=size[1], format="rgb24").to_ndarray()


def _jpeg(pictures: list[Any], size: tuple[int, int]) -> bytes:
    import av
    import numpy as np

    width, height = size
    rows = -(-len(pictures) // _COLUMNS)
    columns = min(_COLUMNS, len(pictures))
    sheet = np.zeros((rows * height, columns * width, 3), dtype=np.uint8)
    for number, picture in enumerate(pictures):
        top, left = number // _COLUMNS * height, number % _COLUMNS * width
        sheet[top : top + height, left : left + width] = picture
    frame = av.VideoFrame.from_ndarray(sheet, format="rgb24").reformat(format="yuvj420p")
    encoder: Any = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "yuvj420p"
    encoder.time_base = Fraction(1)
    encoder.options = {"q": "5"}
    return b"".join(bytes(packet) for part in (frame, None) for packet in encoder.encode(part))
