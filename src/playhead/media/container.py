"""Opening a media file, whatever it is, and saying what is wrong with it.

A file is opened by its content and without its name, and only in the formats listed here: a text that
calls itself .mp4 may be a playlist (HLS, ffconcat, SDP) that makes FFmpeg read other files or reach
for the network.
"""

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
_OPTIONS = {"format_whitelist": _FORMATS, "protocol_whitelist": "file"}
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


class _Nameless:
    # PyAV takes the name of a file object as a hint of its format; only the content counts here.
    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self.seek = file.seek
        self.tell = file.tell


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

    options: dict[str, Any] = {"options": _OPTIONS, "timeout": _IO_TIMEOUT}
    if int(av.__version__.partition(".")[0]) < 19:
        # Without it bad bytes in a title raise; 19 replaces them by itself and knows no such argument.
        options["metadata_errors"] = "replace"
    try:
        container: InputContainer = av.open(_Nameless(file), "r", **options)
    except av.error.ArgumentError:
        raise MediaError(
            f"{name!r} is in a format that is not read here: use mp4, mov, webm, mkv, mp3, m4a, wav or flac.",
            code="unsupported",
        ) from None
    except decode_errors():
        raise MediaError(
            f"{name!r} cannot be read as video, audio or image: it is damaged, cut off, or not media.",
            code="unreadable",
        ) from None
    if not container.streams:
        container.close()
        raise MediaError(f"{name!r} holds neither picture nor sound.", code="unreadable")
    return container
