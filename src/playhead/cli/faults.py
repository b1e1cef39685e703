"""What went wrong, in two lines: what it is, and what to do. And the exit code that says so."""

import sys
import traceback
from typing import NamedTuple

from playhead.cli.exits import FAILED, WRONG
from playhead.cli.screen import put
from playhead.encode import error_text, mask
from playhead.errors import ConfigError, PlayheadError

DOCTOR = "Run: playhead doctor"
# The extra that brings a package.
_EXTRAS = {
    "click": "cli",
    "rich": "cli",
    "starlette": "server",
    "uvicorn": "server",
    "multipart": "server",
    "python_multipart": "server",
    "sqlalchemy": "server",
    "av": "speech",
    "numpy": "speech",
    "faster_whisper": "speech",
    "onnxruntime": "speech",
    "filelock": "speech",
    "pydantic": "pydantic",
}
_ANOTHER_FILE = "Use another file, or make it anew from its source."
_TODO = {
    # of a media file or an engine
    "not_found": "Check the path.",
    "empty": _ANOTHER_FILE,
    "unreadable": _ANOTHER_FILE,
    "no_audio": "Use a file with a sound track.",
    "no_decodable_audio": _ANOTHER_FILE,
    "too_large": "Cut it into shorter files.",
    "unsupported": "Use one of those.",
    "weights_missing": "Run: playhead speech prepare",
    "weights_damaged": "Run: playhead speech prepare",
    "needs_package": "Run: pip install 'playhead[speech]'",
    "engine_failed": DOCTOR,
    "disk_full": "Free some space, or set PLAYHEAD_HOME to another disk.",
    "media": "Check the disk and PLAYHEAD_HOME: playhead doctor",
    "store": "Check the disk, PLAYHEAD_HOME and PLAYHEAD_DATABASE: playhead doctor",
    # of a model call
    "config": DOCTOR,
    "auth": "Check LLM_API_KEY, and that it belongs to LLM_PROVIDER and LLM_BASE_URL.",
    "bad_request": "Check LLM_MODEL, and that the model takes tools.",
    "connection": "Check the network and LLM_BASE_URL.",
    "content_filter": "Rephrase the request.",
    "context_too_long": "Begin a new conversation, or use a model with a larger context.",
    "empty_answer": "Try again, or use another model.",
    "model_not_found": "Check LLM_MODEL and LLM_BASE_URL.",
    "overloaded": "Try again in a while.",
    "protocol": "Check that LLM_BASE_URL is the address of an API of that provider.",
    "quota": "Check the account of the key.",
    "rate_limit": "Try again in a while.",
    "timeout": "Try again in a while.",
    "tool_fatal": "See the tool's message above.",
}
SPEECH_TODO = {
    "needs_package": "Run: pip install 'playhead[speech]'",
    "needs_weights": "Run: playhead speech prepare",
    "needs_key": "Set PLAYHEADSPEECH_TODO_API_KEY.",
}
_OTHERWISE = "Add --debug to see where it came from."


class Fault(NamedTuple):
    """One line each."""

    what: str
    todo: str
    exit_code: int = FAILED


class CommandError(PlayheadError):
    """A command cannot do what was asked; the note says what to do."""

    code = "command"

    def __init__(self, what: str, todo: str, exit_code: int = FAILED) -> None:
        super().__init__(what)
        self.add_note(todo)
        self.exit_code = exit_code


def todo_for(code: str | None) -> str:
    """What to do about an error of that code."""
    return _TODO.get(code or "", _OTHERWISE)


def fault_of(error: BaseException) -> Fault:
    """Say any exception in two lines, without a key and without an absolute path."""
    missing = _missing_package(error)
    if missing:
        return Fault(
            f"This needs the package {missing!r}, which is not installed.",
            f"Run: pip install 'playhead[{_EXTRAS[missing]}]'",
            WRONG,
        )
    what = _line(error_text(error))
    notes = [_line(mask(note)) for note in getattr(error, "__notes__", ())]
    match error:
        case CommandError():
            return Fault(what, " ".join(notes), error.exit_code)
        case ConfigError():
            return Fault(what, " ".join(notes) or DOCTOR, WRONG)
        case PlayheadError():
            return Fault(what, " ".join(notes) or todo_for(error.code))
    return Fault(f"{type(error).__name__}: {what}", _OTHERWISE)


def report(error: BaseException, debug: bool) -> int:
    """Tell stderr, with a traceback if that was asked for, and return the exit code."""
    if debug:
        lines = "".join(traceback.format_exception(error))
        put(sys.stderr, mask(lines, 50_000) + "\n")
    fault = fault_of(error)
    say(fault)
    return fault.exit_code


def say(fault: Fault) -> None:
    """Write a fault to stderr."""
    put(sys.stderr, f"Error: {fault.what}\n{fault.todo}\n")


def _missing_package(error: BaseException) -> str | None:
    while isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        if package in _EXTRAS:
            return package
        if error.__cause__ is None:
            return None
        error = error.__cause__
    return None


def _line(text: str) -> str:
    return " ".join(text.split())
