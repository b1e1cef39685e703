"""`playhead transcribe FILE`: the transcript goes to stdout or a file, everything else to stderr."""

import sys
from io import TextIOWrapper
from pathlib import Path

from playhead.cli.bridge import Bridge
from playhead.cli.exits import DONE
from playhead.cli.faults import CommandError
from playhead.cli.screen import Bars, clean, make_console, put
from playhead.config import Settings, create_speech
from playhead.media.captions import render
from playhead.media.types import Transcript, TranscriptWarning

_NOTES: dict[TranscriptWarning, str] = {
    "truncated": "the file is cut off: this is what could be read",
    "bad_packets": "damaged pieces of the sound were left out",
    "gap": "the sound has a hole",
    "english_only": "the speech model knows English only",
    "no_speech": "nothing is said in it",
}


def transcribe(settings: Settings, file: Path, form: str, language: str | None, output: Path | None) -> int:
    """Write the transcript of a file. Returns the exit code; raises `MediaError` for a bad file."""
    if output is not None and not output.absolute().parent.is_dir():
        raise CommandError(f"There is no folder for {output.name!r}.", "Make it, or name another one.")
    transcript = _made(settings, file, language)
    for warning in transcript.warnings:
        put(sys.stderr, f"Note: {_NOTES.get(warning, warning)}.\n")
    text = render(transcript, form)
    if output is None:
        _to_stdout(text)
    else:
        try:
            output.write_text(text, "utf-8", newline="")
        except OSError as error:
            raise CommandError(
                f"{output.name!r} cannot be written: {error.strerror}.", "Name another file by --output."
            ) from error
    return DONE


def _made(settings: Settings, file: Path, language: str | None) -> Transcript:
    service = create_speech(settings)
    console = make_console(sys.stderr)
    # A log has no use for it; a person at a terminal has.
    bars = Bars(console) if console.is_terminal else None

    def tell(fraction: float | None, text: str) -> None:
        if bars is not None:
            bars.move("", clean(file.name), fraction, clean(text))

    with Bridge() as bridge:
        try:
            return bridge.run(service.transcribe(file, language=language, on_progress=tell))
        finally:
            if bars is not None:
                bars.close()
            bridge.run(service.aclose())


def _to_stdout(text: str) -> None:
    if isinstance(sys.stdout, TextIOWrapper) and not sys.stdout.isatty():
        # Captions are UTF-8 with plain line ends, whatever the system's own are.
        sys.stdout.reconfigure(encoding="utf-8", newline="")
    put(sys.stdout, text)
