"""What the server process and the speech worker say to each other: one JSON object a line."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from playhead.media.types import EngineSpec, Segment, Transcript


class Job(msgspec.Struct, frozen=True, tag="job"):
    """Transcribe a file. `path` is as the file system spells it, `resume_from` is in seconds."""

    id: str
    path: bytes
    engine: EngineSpec
    language: str | None = None
    prompt: str | None = None
    resume_from: float = 0.0


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop a job."""

    id: str


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The worker took a job up: should it die now, the job may be the cause."""

    id: str


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far a job is."""

    id: str
    fraction: float | None
    text: str


class WindowDone(msgspec.Struct, frozen=True, tag="window"):
    """What was said up to `until` seconds of the file, since the window before."""

    id: str
    until: float
    segments: Sequence[Segment]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A job's transcript."""

    id: str
    transcript: Transcript


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Why a job gave none: the code and text of a `MediaError`."""

    id: str
    code: str
    text: str


ToWorker: TypeAlias = Job | Cancel
FromWorker: TypeAlias = Begun | Progress | WindowDone | Done | Failed
