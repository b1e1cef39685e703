"""Transcripts as files: SRT, WebVTT, plain text, JSON.

The known libraries lose text (braces, entities) or cut milliseconds, so the two caption formats are
written here; both are read back by their real parsers in the tests.
"""

import html
from collections.abc import Callable, Iterable

import msgspec

from playhead.errors import MediaError
from playhead.media.cues import Cue, CueStyle, clean, make_cues
from playhead.media.types import Transcript

# Format -> content type, for whoever serves the file.
CONTENT_TYPES = {
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "json": "application/json",
}


def render(transcript: Transcript, format: str, style: CueStyle | None = None) -> str:
    """Return a transcript as the text of a file, `format` being `srt`, `vtt`, `txt` or `json`.

    `style` is that of the cues, in the formats that have some.
    Raises `MediaError` `unsupported` for another format.
    """
    writer = _WRITERS.get(format.lower().lstrip("."))
    if writer is None:
        raise MediaError(f"Unknown format {format!r}: use one of {', '.join(_WRITERS)}.", code="unsupported")
    return writer(transcript, style or CueStyle())


def write_srt(cues: Iterable[Cue]) -> str:
    """Return cues as SubRip. It has no way to escape, so an arrow of its own is drawn shorter."""
    blocks = []
    for number, cue in enumerate(cues, 1):
        text = "\n".join(cue.lines).replace("-->", "->")
        blocks.append(f"{number}\n{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}\n{text}\n")
    return "\n".join(blocks)


def write_vtt(cues: Iterable[Cue]) -> str:
    """Return cues as WebVTT (https://www.w3.org/TR/webvtt1/), with `&`, `<` and `>` escaped."""
    blocks = ["WEBVTT\n"]
    for cue in cues:
        text = html.escape("\n".join(cue.lines), quote=False)
        blocks.append(f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}\n{text}\n")
    return "\n".join(blocks)


def _srt(transcript: Transcript, style: CueStyle) -> str:
    return write_srt(make_cues(transcript.segments, style))


def _vtt(transcript: Transcript, style: CueStyle) -> str:
    return write_vtt(make_cues(transcript.segments, style))


def _txt(transcript: Transcript, style: CueStyle) -> str:
    lines = (" ".join(clean(segment.text).split()) for segment in transcript.segments)
    return "".join(f"{line}\n" for line in lines if line)


def _json(transcript: Transcript, style: CueStyle) -> str:
    whole = {"text": transcript.text, **msgspec.to_builtins(transcript)}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def _clock(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


_WRITERS: dict[str, Callable[[Transcript, CueStyle], str]] = {
    "srt": _srt,
    "vtt": _vtt,
    "txt": _txt,
    "json": _json,
}
