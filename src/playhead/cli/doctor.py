"""`playhead doctor`: what is configured, what is missing, what to do. It reaches for no network."""

import shutil
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from playhead.cli.exits import DONE, FAILED
from playhead.cli.faults import DOCTOR, SPEECH_TODO, fault_of
from playhead.cli.screen import clean, make_console, put
from playhead.config import Settings, connect_with, create_speech
from playhead.errors import ConfigError, MediaError, PlayheadError
from playhead.http import where

Status = Literal["ok", "note", "problem"]

_EXTRAS = {
    "server": ("starlette", "uvicorn", "python_multipart"),
    "speech": ("av", "numpy", "onnxruntime", "faster_whisper", "filelock"),
    "pydantic": ("pydantic",),
}
# Without these the demo cannot run.
_NEEDED = ("server", "speech")
# A model that has to be joined takes 150 MB, a film more.
_TOO_LITTLE, _LITTLE = 200 * 10**6, 2 * 10**9


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding. A `problem` keeps the demo from working; `todo` says what to do about it."""

    name: str
    status: Status
    text: str
    todo: str = ""


class Report(msgspec.Struct, frozen=True):
    """Every finding; `ok` is whether `playhead demo` would work."""

    ok: bool
    checks: Sequence[Check]


def doctor(settings: Settings, *, deep: bool, as_json: bool, port: int) -> int:
    """Look at everything and print it. Returns the exit code."""
    checks = list(_checks(settings, deep, port))
    report = Report(all(check.status != "problem" for check in checks), checks)
    if as_json:
        put(sys.stdout, msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
    else:
        _print(report)
    return DONE if report.ok else FAILED


def _checks(settings: Settings, deep: bool, port: int) -> Iterator[Check]:
    yield _python()
    for extra in _EXTRAS:
        yield _extra(extra)
    yield _home(settings.home)
    yield _disk(settings.home)
    yield _llm(settings)
    yield _speech(settings, deep)
    yield _runs(settings)
    yield _port(port)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", f"{version} on {sys.platform}")


def _extra(extra: str) -> Check:
    missing = [package for package in _EXTRAS[extra] if not find_spec(package)]
    if not missing:
        return Check(extra, "ok", "installed")
    status: Status = "problem" if extra in _NEEDED else "note"
    return Check(extra, status, f"missing: {', '.join(missing)}", f"pip install 'playhead[{extra}]'")


def _home(home: Path) -> Check:
    """Try it: permissions alone do not tell of a read-only disk."""
    name = "PLAYHEAD_HOME"
    try:
        with tempfile.TemporaryFile(dir=_nearest(home)):
            pass
    except OSError as error:
        return Check(
            name,
            "problem",
            f"{_shown(home)} cannot be written: {error.strerror}",
            "Set PLAYHEAD_HOME to a folder that can.",
        )
    there = "" if home.is_dir() else ", made when it is first needed"
    return Check(name, "ok", f"{_shown(home)}{there}")


def _disk(home: Path) -> Check:
    free = shutil.disk_usage(_nearest(home)).free
    text = f"{free / 10**9:.1f} GB free"
    if free >= _LITTLE:
        return Check("disk", "ok", text)
    status: Status = "problem" if free < _TOO_LITTLE else "note"
    return Check("disk", status, text, "Free some space, or set PLAYHEAD_HOME to another disk.")


def _llm(settings: Settings) -> Check:
    if not settings.names_llm:
        return Check(
            "model",
            "note",
            "no LLM_* is set; the demo uses the mock model",
            "Set LLM_PROVIDER, LLM_MODEL and LLM_API_KEY, and LLM_BASE_URL where it is needed.",
        )
    try:
        connect_with(settings)
    except ConfigError as error:
        what, todo, _ = fault_of(error)
        todo = "" if todo == DOCTOR else f"{todo} "
        return Check(
            "model", "problem", what, f"{todo}Or unset every LLM_*: the demo then uses the mock model."
        )
    text = f"{settings.llm_provider}"
    if settings.llm_provider != "mock":
        text += f", {settings.llm_model}, LLM_API_KEY is set"
    if settings.llm_base_url:
        ignored = " (ignored for gemini)" if settings.llm_provider == "gemini" else ""
        text += f", at {where(settings.llm_base_url)}{ignored}"
    return Check("model", "ok", text)


def _speech(settings: Settings, deep: bool) -> Check:
    name = "speech model"
    try:
        status = create_speech(settings).status()
        deeply = f", {_compared(settings)}" if deep and status.state == "ready" else ""
    except (ConfigError, MediaError) as error:
        fault = fault_of(error)
        return Check(name, "problem", fault.what, fault.todo)
    if status.state != "ready":
        return Check(name, "problem", status.message, SPEECH_TODO[status.state])
    if settings.speech_base_url:
        return Check(name, "ok", f"{status.model} at {where(settings.speech_base_url)}{deeply}")
    return Check(name, "ok", status.message + deeply)


def _runs(settings: Settings) -> Check:
    """Count what has not ended. A database that is not there yet is not made."""
    name = "runs"
    if not find_spec("sqlalchemy"):
        return Check(name, "note", "not counted without the extra store")
    if settings.database is None and not (settings.home / "playhead.db").exists():
        return Check(name, "ok", "none yet")
    from playhead.cli.runs import surveyed

    try:
        found = surveyed(settings)
    except PlayheadError as error:
        return Check(name, "problem", str(error), "Look at PLAYHEAD_DATABASE, and whether the database runs.")
    counts = Counter(run.place for run in found)
    text = ", ".join(f"{count} {place}" for place, count in counts.items()) or "nothing runs, nothing waits"
    todo = next((run.todo for run in found if run.todo), "")
    return Check(name, "note" if todo else "ok", text, f"See `playhead runs`; {todo}." if todo else "")


def _compared(settings: Settings) -> str:
    """Compare every file of the model in use with what was published. Raises `MediaError`."""
    from playhead.media.catalogue import KNOWN
    from playhead.media.models import find_model, verify_model

    if settings.speech_base_url:
        return "which is not asked"
    found = find_model(settings.speech_model, settings.models_folder)
    if found.source == "joined":
        return "compared when it is unpacked"
    if found.source == "path":
        return "not one of which it is known what was published"
    verify_model(KNOWN[found.name], found.folder)
    return "every file as published"


def _port(port: int) -> Check:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return Check("port", "ok", f"{port} is free")
    except OSError:
        return Check("port", "note", f"{port} is in use", "The demo takes another; serve needs --port.")


def _nearest(folder: Path) -> Path:
    """The folder itself, or the nearest place above it that is there."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())


def _shown(folder: Path) -> str:
    try:
        return f"~/{folder.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(folder)


def _print(report: Report) -> None:
    console = make_console(sys.stdout)
    words = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("PROBLEM", "bold red")}
    for check in report.checks:
        word, style = words[check.status]
        console.print(f"{word:8}", style=style, end="")
        console.print(clean(f"{check.name:14} {check.text}"))
        if check.todo:
            console.print(clean(f"{'':23}{check.todo}"))
    console.print()
    console.print("The demo will work: playhead demo" if report.ok else "The demo will not work yet.")
