"""Opening a media file, whatever it is, and saying what is wrong with it.

FFmpeg is handed an open file, neither its name nor the right to open another, and reads it only in the
formats listed here: a text that calls itself .mp4 may be a playlist (HLS, ffconcat, SDP) that would
make it read other files or reach for the network.
"""

import errno
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from playhead.errors import MediaError
from playhead.media.extra import require

if TYPE_CHECKING:
    from av.container import InputContainer

# FFmpeg's names of demuxers. None of them opens another file.
_SOUND = "mov matroska webm mp3 wav w64 flac ogg aac ac3 aiff caf au avi flv mpeg mpegts asf amr"
IMAGES = ("png_pipe", "jpeg_pipe", "webp_pipe", "gif", "bmp_pipe")
_FORMATS = ",".join([*_SOUND.split(), *IMAGES])
_USUAL = "mp4, mov, webm, mkv, mp3, m4a, wav or flac"
# Seconds for one read of the file: a network drive may hang.
_IO_TIMEOUT = 30.0


class MediaFile:
    """An open file and its container: `with MediaFile(path) as container`.

    Raises `MediaError`: `not_found`, `empty`, `unreadable`, `unsupported`, `needs_package`.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._file = _open_file(path)
        try:
            self.container = _open_container(self._file, self.name)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "InputContainer":
        return self.container

    def __exit__(self, *exc: object) -> None:
        self.container.close()
        self._file.close()


def decode_errors() -> tuple[type[Exception], ...]:
    """What PyAV raises for a damaged file, measured over thousands of them.

    Its own errors are subclasses of OSError, ValueError, EOFError or PermissionError by turns.
    """
    from av.error import FFmpegError

    return (
        FFmpegError,
        ValueError,
        EOFError,
        OSError,
        LookupError,
        RuntimeError,
        ArithmeticError,
        MemoryError,
    )


def _open_file(path: Path) -> BinaryIO:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise MediaError(f"{path.name!r} is not a file.", code="not_found")
        if status.st_size == 0:
            raise MediaError(f"{path.name!r} is empty: it has 0 bytes.", code="empty")
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        raise MediaError(f"There is no file {path.name!r}.", code="not_found") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name is not one of a file"
        raise MediaError(f"{path.name!r} cannot be opened: {reason}.", code="unreadable") from None


def _open_container(file: BinaryIO, name: str) -> "InputContainer":
    require("av")
    import av

    guards = {"fd": str(file.fileno()), "protocol_whitelist": "fd", "format_whitelist": _FORMATS}
    options: dict[str, Any] = {"options": guards, "timeout": _IO_TIMEOUT}
    if int(av.__version__.partition(".")[0]) < 19:
        # Without it bad bytes in a title raise; 19 replaces them by itself and knows no such argument.
        options["metadata_errors"] = "replace"
    try:
        container: InputContainer = av.open("fd:", "r", **options)
    except decode_errors() as error:
        if error.args[:1] == (errno.EINVAL,):  # a format that is not on the list
            text = f"{name!r} is in a format that is not read here: use {_USUAL}."
            raise MediaError(text, code="unsupported") from None
        raise MediaError(
            f"{name!r} cannot be read as video, audio or image: it is damaged, cut off, or not media.",
            code="unreadable",
        ) from None
    if not container.streams:
        container.close()
        raise MediaError(f"{name!r} holds neither picture nor sound.", code="unreadable")
    return container
