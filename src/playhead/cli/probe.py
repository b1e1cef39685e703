"""`playhead probe`: measure an endpoint, say what was found, write its profile."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from playhead.cli.bridge import Bridge
from playhead.cli.exits import DONE
from playhead.cli.faults import CommandError, todo_for
from playhead.cli.screen import clean, put
from playhead.config import Settings
from playhead.encode import error_text
from playhead.errors import LLMError
from playhead.probe import Finding, Probe, ProbeReport, write_profile


def probe(settings: Settings, measurement: Probe, *, as_json: bool, write: bool, time_limit: float) -> int:
    """Measure and tell."""
    if not as_json:
        _note(f"Asking {measurement.model} at {measurement.server}, some thirty small requests ...\n")
    try:
        with Bridge() as bridge:
            tell = None if as_json else _tell
            report = bridge.run(measurement.run(tell, time_limit=time_limit))
    except LLMError as error:
        # Its notes are the provider's own words, which may repeat the key.
        raise CommandError(error_text(error), todo_for(error.code)) from None
    file = measurement.file if write else None
    if file is not None and report.profile is not None:
        write_profile(file, report.profile)
    if as_json:
        _print_json(report, file)
    else:
        _note(_ending(report, file, settings))
    return DONE


def _tell(finding: Finding) -> None:
    put(sys.stdout, clean(f"{finding.name}\n    {finding.text}\n"))


def _note(text: str) -> None:
    sys.stderr.write(clean(text) + "\n")


def _print_json(report: ProbeReport, file: Path | None) -> None:
    shown: dict[str, Any] = msgspec.to_builtins(report)
    shown["file"] = file and _place(file)
    put(sys.stdout, msgspec.json.format(msgspec.json.encode(shown)).decode() + "\n")


def _ending(report: ProbeReport, file: Path | None, settings: Settings) -> str:
    count = f"\n{report.requests} requests."
    if report.profile is None:
        return f"{count} Nothing is written: this dialect has no profiles."
    unknown = [f.name for f in report.findings if f.value is not None and not f.measured]
    missing = f" Not measured: {', '.join(unknown)}." if unknown else ""
    if file is None:
        return f"{count}{missing} Nothing is written, as was asked."
    text = f"{count}{missing} Written to {_place(file)} in PLAYHEAD_HOME, where connect() finds it."
    if settings.llm_profile:
        text += f" LLM_PROFILE={settings.llm_profile} comes before it: unset that to use it."
    return text


def _place(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"
