"""From a file to a transcript: reader, windows of speech, an engine, times on the file's clock.

It works for any engine, also one that gives text only, and gives all of them progress, cancellation,
resumption, flat memory and right times.
"""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from playhead.errors import MediaError
from playhead.media.filters import settle
from playhead.media.reader import AudioReader
from playhead.media.types import Engine, IsCancelled, OnProgress, Segment, Transcript, TranscriptWarning
from playhead.media.windows import Window, cut_windows

# Until this many seconds of speech the language of each window is heard anew.
_LISTEN = 10.0

_REPORT_EVERY = 0.2

# The end of the window that is done, in seconds, and what was said in it.
OnWindow: TypeAlias = Callable[[float, Sequence[Segment]], None]


def transcribe_media(
    path: Path,
    engine: Engine,
    *,
    language: str | None = None,
    prompt: str | None = None,
    resume_from: float = 0.0,
    on_window: OnWindow | None = None,
    on_progress: OnProgress | None = None,
    is_cancelled: IsCancelled | None = None,
) -> Transcript:
    """Transcribe the sound of a file. It blocks; run it in a process or thread of its own.

    Args:
        path: the file.
        engine: a prepared engine.
        language: a code such as `en`; None lets the engine hear it.
        prompt: words that are likely to occur (names, terms), for engines that take them.
        resume_from: seconds of the file to leave out; the transcript holds what comes after.
        on_window: told of each window as it is done; `resume_from` may take up from there.
        on_progress: told how far it is, a few times a second at most.
        is_cancelled: asked after each second of sound and each window.

    Silence gives an empty transcript with the warning `no_speech`.
    Raises `MediaError`: as the reader and the engine do, `unsupported` for a language that the engine
    does not know, `cancelled`.
    """
    asked = _known_language(language, engine)
    hearing = _Hearing(asked)
    reader = AudioReader(path, resume_from)
    report = _reporter(on_progress)
    segments: list[Segment] = []
    for window in cut_windows(reader.blocks(), start=resume_from, longest=engine.info.max_window):
        if is_cancelled and is_cancelled():
            raise MediaError(f"The transcription of {path.name!r} was cancelled.", code="cancelled")
        if window is not None:
            found = _recognised(engine, window, hearing.language(segments), prompt)
            segments += found
            if on_window:
                on_window(window.end, found)
        report(window.end if window else reader.position, reader.promised)
    warnings: list[TranscriptWarning] = list(reader.warnings)
    if asked is None and _english_only(engine):
        warnings.append("english_only")
    if not segments:
        warnings.append("no_speech")
    return Transcript(
        duration=round(reader.reached, 3),
        language=main_language(segments),
        engine=engine.info.id,
        model=engine.info.model,
        segments=segments,
        warnings=warnings,
    )


def language_code(language: str | None) -> str | None:
    """Return `en` for `en`, `EN`, ` en-US `; None for nothing."""
    return re.split(r"[-_]", (language or "").strip().lower())[0] or None


def main_language(segments: Sequence[Segment]) -> str | None:
    """Return the language of most of the speech; None when nothing was said."""
    seconds: dict[str, float] = {}
    for segment in segments:
        if segment.language:
            # a tenth more: a word of no length counts too
            seconds[segment.language] = seconds.get(segment.language, 0.1) + segment.end - segment.start
    return max(seconds, key=seconds.__getitem__, default=None)


class _Hearing:
    """Settles on one language: a window heard wrongly must not turn into another alphabet."""

    def __init__(self, asked: str | None) -> None:
        self._asked = asked
        self._settled: str | None = None

    def language(self, segments: Sequence[Segment]) -> str | None:
        """The language to ask the engine for, after these segments; None while it should listen."""
        if self._asked or self._settled:
            return self._asked or self._settled
        if sum(segment.end - segment.start for segment in segments) >= _LISTEN:
            self._settled = main_language(segments)
        return self._settled


def _recognised(engine: Engine, window: Window, language: str | None, prompt: str | None) -> list[Segment]:
    raw = engine.transcribe(window.samples, language=language, prompt=prompt)
    found = settle(raw, window.start, window.spans)
    return [s if s.language or not language else replace(s, language=language) for s in found]


def _known_language(language: str | None, engine: Engine) -> str | None:
    code = language_code(language)
    known = engine.info.languages
    if code is not None and known is not None and code not in known:
        if _english_only(engine):
            hint = "knows English only; use a model for many languages, such as base"
        else:
            hint = "does not know it; give a code such as en, es or fr, or none to have it heard"
        raise MediaError(f"Language {language!r}: the model {engine.info.model} {hint}.", code="unsupported")
    return code


def _english_only(engine: Engine) -> bool:
    return engine.info.languages is not None and list(engine.info.languages) == ["en"]


def _reporter(on_progress: OnProgress | None) -> Callable[[float, float | None], None]:
    last = -_REPORT_EVERY

    def report(done: float, total: float | None) -> None:
        nonlocal last
        now = time.monotonic()
        if on_progress is None or now - last < _REPORT_EVERY:
            return
        last = now
        of = f" of {_minutes(total)}" if total else ""
        on_progress(min(1.0, done / total) if total else None, f"transcribed {_minutes(done)}{of}")

    return report


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
