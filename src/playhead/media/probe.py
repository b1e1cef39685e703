"""What a file is, by its content."""

from pathlib import Path
from typing import TYPE_CHECKING

from playhead.errors import MediaError
from playhead.media.container import IMAGES, MediaFile, decode_errors
from playhead.media.types import MediaKind, Probe

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.stream import Stream
    from av.video.stream import VideoStream

_WEB_CODECS = {"vp8", "vp9", "av1", "libdav1d", "opus", "vorbis"}
# container (the first of FFmpeg's names) -> suffix and content type of a video, of a sound or image
_TYPES = {
    "mov": ((".mp4", "video/mp4"), (".m4a", "audio/mp4")),
    "webm": ((".webm", "video/webm"), (".weba", "audio/webm")),
    "matroska": ((".mkv", "video/x-matroska"), (".mka", "audio/x-matroska")),
    "ogg": ((".ogv", "video/ogg"), (".ogg", "audio/ogg")),
    "avi": ((".avi", "video/x-msvideo"), (".avi", "video/x-msvideo")),
    "flv": ((".flv", "video/x-flv"), (".flv", "video/x-flv")),
    "mpegts": ((".ts", "video/mp2t"), (".ts", "video/mp2t")),
    "mpeg": ((".mpg", "video/mpeg"), (".mpg", "video/mpeg")),
    "asf": ((".wmv", "video/x-ms-wmv"), (".wma", "audio/x-ms-wma")),
    "mp3": (None, (".mp3", "audio/mpeg")),
    "wav": (None, (".wav", "audio/wav")),
    "flac": (None, (".flac", "audio/flac")),
    "aac": (None, (".aac", "audio/aac")),
    "aiff": (None, (".aiff", "audio/aiff")),
    "amr": (None, (".amr", "audio/amr")),
    "png_pipe": (None, (".png", "image/png")),
    "jpeg_pipe": (None, (".jpg", "image/jpeg")),
    "webp_pipe": (None, (".webp", "image/webp")),
    "gif": (None, (".gif", "image/gif")),
    "bmp_pipe": (None, (".bmp", "image/bmp")),
}
_OTHER = (".bin", "application/octet-stream")


def probe(path: Path) -> Probe:
    """Return what a file is. It blocks: milliseconds, or a second where the length must be counted.

    Raises `MediaError`: `not_found`, `empty`, `unreadable`, `unsupported`, `needs_package`.
    """
    with MediaFile(path) as container:
        name = container.format.name.partition(",")[0]
        pictures = [stream for stream in container.streams.video if not _is_cover(stream)]
        has_audio = bool(container.streams.audio)
        kind = _kind(name, bool(pictures), has_audio)
        if kind is None:
            raise MediaError(f"{path.name!r} holds neither picture nor sound.", code="unreadable")
        if name == "matroska" and all(
            _codec(s) in _WEB_CODECS for s in [*pictures, *container.streams.audio]
        ):
            name = "webm"
        video, other = _TYPES.get(name, (_OTHER, _OTHER))
        suffix, content_type = (video if kind == "video" else other) or _OTHER
        return Probe(
            kind=kind,
            container=name,
            suffix=suffix,
            content_type=content_type,
            duration=None if kind == "image" else _duration(container),
            has_audio=has_audio,
            width=_size(pictures, "width"),
            height=_size(pictures, "height"),
        )


def start_of(container: "InputContainer") -> float:
    """Return the time stamp, in seconds, at which a player shows 0:00."""
    return (container.start_time or 0) / 1_000_000


def _kind(name: str, has_picture: bool, has_audio: bool) -> MediaKind | None:
    if name in IMAGES:
        return "image"
    if has_picture:
        return "video"
    return "audio" if has_audio else None


def _codec(stream: "Stream") -> str:
    return getattr(getattr(stream, "codec_context", None), "name", None) or ""


def _size(pictures: "list[VideoStream]", side: str) -> int | None:
    context = pictures[0].codec_context if pictures else None  # None for a codec that nobody knows
    return getattr(context, side, None) or None


def _is_cover(stream: "VideoStream") -> bool:
    from av.stream import Disposition

    return bool(stream.disposition & Disposition.attached_pic)


def _duration(container: "InputContainer") -> float | None:
    """The length: as written, or counted where it is not (a browser's recording has none)."""
    if container.duration and container.duration > 0:
        return container.duration / 1_000_000
    end = 0.0
    try:
        for packet in container.demux():
            if packet.pts is not None and packet.time_base is not None:
                end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
    except decode_errors():
        pass  # as far as it can be read
    return end - start_of(container) if end else None
