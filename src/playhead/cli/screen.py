"""What a run looks like in a terminal, and on a pipe: the same words, without colour and movement."""

import json
import os
import time
from typing import TYPE_CHECKING, Any, TextIO

from playhead.events import (
    Attempt,
    Event,
    StepEnd,
    TextDelta,
    ToolCallEvent,
    ToolProgress,
    ToolResultEvent,
)
from playhead.types import ToolCall, ToolResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_MAX_ARGS = 400
# On a pipe a line for each tenth is enough, and for each so many seconds.
_PLAIN_STEP = 0.1
_PLAIN_SECONDS = 5.0
# A model's text or a file's name must not move the cursor or set the title of a terminal.
_CONTROL = dict.fromkeys([c for c in range(32) if c not in (9, 10)] + list(range(127, 160)))


def clean(text: str) -> str:
    """Return the text without control characters, line ends and tabs excepted."""
    return text.translate(_CONTROL)


def make_console(stream: TextIO) -> "Console":
    """A console that takes every text as it is: no markup, no emoji codes, no lines cut by width."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            to_nowhere(stream)

    return PipeConsole(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)


def put(stream: TextIO, text: str) -> None:
    """Write at once. When the reader of a pipe has gone (`| head`), what is written goes nowhere."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        to_nowhere(stream)


def to_nowhere(stream: TextIO) -> None:
    """Let the work end as it would have: https://docs.python.org/3/library/signal.html#note-on-sigpipe"""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def plain_clock(seconds: float) -> str:
    """Return a time as m:ss.t: 5.24 is 0:05.2."""
    tenths = round(seconds * 10)
    return f"{tenths // 600}:{tenths % 600 // 10:02}.{tenths % 10}"


class RunView:
    """Shows the events of a run as they come. Close it before anything else is written.

    On a terminal the answer streams. On a pipe its text is held until the step is over: an attempt
    that broke off and was made anew cannot be taken back from there.

    Args:
        console: where calls, progress and results go.
        answer: where the text of the answer goes.
        transcript: whether the timed lines of a transcript are shown, or only how many there are.
    """

    def __init__(self, console: "Console", answer: TextIO, *, transcript: bool = False) -> None:
        self._console = console
        self._answer = answer
        self._transcript = transcript
        self._progress = progress_on(console)
        self._calls: dict[str, ToolCall] = {}
        self._live = answer.isatty()
        self._text = ""

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Attempt() if event.number > 1:
                self._start_over(event)
            case TextDelta():
                self._add(clean(event.text))
            case ToolCallEvent():
                self._end_text()
                self._call(event.call)
            case ToolProgress():
                call = self._calls.get(event.call_id)
                self._progress.move(
                    event.call_id, call.name if call else "", event.fraction, clean(event.text)
                )
            case ToolResultEvent():
                self._progress.end(event.result.tool_call_id)
                self._result(event.result)
            case StepEnd():
                self._end_text()

    def close(self) -> None:
        """End what is open: a line, a moving bar."""
        self._progress.close()
        self._end_text()

    def _add(self, text: str) -> None:
        if not text:
            return
        if self._live:
            put(self._answer, text if self._text else f"{self._before()}{text}")
        self._text += text

    def _end_text(self) -> None:
        text, self._text = self._text, ""
        if not text:
            return
        end = "" if text.endswith("\n") else "\n"
        put(self._answer, end if self._live else f"{self._before()}{text}{end}")

    def _start_over(self, attempt: Attempt) -> None:
        if self._live:
            self._end_text()
        self._text = ""
        self._console.print(clean(f"  starting over: {attempt.reason}"), style="dim")

    def _before(self) -> str:
        """An empty line between calls and answer, where both go to the same place."""
        return "\n" if self._answer is self._console.file and self._calls else ""

    def _call(self, call: ToolCall) -> None:
        self._calls[call.id] = call
        args = clean(json.dumps(call.args, ensure_ascii=False))
        shown = args if len(args) <= _MAX_ARGS else f"{args[:_MAX_ARGS]} ..."
        self._console.print(f"{clean(call.name)} {shown}", style="bold cyan")

    def _result(self, result: ToolResult) -> None:
        if result.error is not None:
            self._console.print(clean(f"  {result.name} failed: {result.error}"), style="red")
            return
        segments = result.result.get("segments") if isinstance(result.result, dict) else None
        if not isinstance(segments, list):
            self._console.print(clean(f"  {result.name}: {_short(result.text)}"), style="dim")
            return
        if self._transcript:
            for segment in segments:
                self._console.print(_timed(segment))
        self._console.print(clean(f"  {result.name}: {_summary(result.result)}"), style="dim")


def progress_on(console: "Console") -> "Bars | Lines":
    """A moving bar on a terminal, a line now and then elsewhere."""
    return Bars(console) if console.is_terminal else Lines(console)


class Bars:
    """Progress on a terminal: a bar for each call that tells some."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._live: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def move(self, call_id: str, name: str, fraction: float | None, text: str) -> None:
        if self._live is None:
            self._live = _progress(self._console)
            self._live.start()
        if call_id not in self._tasks:
            self._tasks[call_id] = self._live.add_task(name, total=None, note="")
        task = self._tasks[call_id]
        if fraction is None:
            self._live.update(task, note=text)
        else:
            self._live.update(task, completed=fraction, total=1.0, note=text)

    def end(self, call_id: str) -> None:
        task = self._tasks.pop(call_id, None)
        if task is not None and self._live is not None:
            self._live.update(task, completed=1.0, total=1.0)
        if not self._tasks:
            self.close()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._tasks.clear()


class Lines:
    """Progress on a pipe: a line now and then."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._started: dict[str, float] = {}
        self._told: dict[str, tuple[float, str, float]] = {}

    def move(self, call_id: str, name: str, fraction: float | None, text: str) -> None:
        now = time.monotonic()
        started = self._started.setdefault(call_id, now)
        told, said, at = self._told.get(call_id, (0.0, "", -_PLAIN_SECONDS))
        known = told if fraction is None else fraction
        if (
            known - told < _PLAIN_STEP
            and now - at < _PLAIN_SECONDS
            and (fraction is not None or said == text)
        ):
            return
        self._told[call_id] = (known, text, now)
        percent = "    " if fraction is None else f"{fraction:4.0%}"
        self._console.print(f"  {percent} {now - started:5.1f} s  {text}".rstrip())

    def end(self, call_id: str) -> None:
        self._started.pop(call_id, None)
        self._told.pop(call_id, None)

    def close(self) -> None:
        self._started.clear()
        self._told.clear()


def _progress(console: "Console") -> "Progress":
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("  {task.description}", markup=False),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
        console=console,
    )


def _timed(segment: Any) -> str:
    start, end = plain_clock(float(segment["start"])), plain_clock(float(segment["end"]))
    return f"  {start} - {end}  {clean(str(segment['text']).strip())}"


def _summary(value: dict[str, Any]) -> str:
    count = len(value["segments"])
    parts = [f"{count} segment{'' if count == 1 else 's'}"]
    if isinstance(value.get("duration"), int | float):
        parts.append(f"{value['duration']:.1f} s")
    if value.get("language"):
        parts.append(f"language {value['language']}")
    if value.get("warnings"):
        parts.append("warnings: " + ", ".join(map(str, value["warnings"])))
    return ", ".join(parts)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]} ..."
