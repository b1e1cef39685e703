"""The speech worker: a process of its own that decodes and recognises, one job after another.

It keeps the engine of the last job loaded, lets every other process of the machine go first, and ends
with its parent, however that one ended.
"""

import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from playhead.encode import masked_traceback
from playhead.errors import MediaError, PlayheadError
from playhead.media.engines.base import create_engine
from playhead.media.messages import Begun, Done, Failed, FromWorker, Job, Progress, ToWorker, WindowDone
from playhead.media.reader import check_sound
from playhead.media.transcribe import transcribe_media
from playhead.media.types import Engine, EngineSpec, Segment

_NICE = 10
# How often an idle worker looks whether its parent is still there, should the pipe be held open.
_LOOK_UP = 5.0


def main() -> None:
    """Serve jobs from standard input until it ends."""
    # What libraries print must not mix with the messages.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # A Ctrl-C in the terminal is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(_NICE)
    Worker(sys.stdin.buffer, out).run()


class Worker:
    """Reads jobs in a thread of its own, so that a cancellation is heard while one runs."""

    def __init__(self, source: BinaryIO, out: BinaryIO) -> None:
        self._source = source
        self._out = out
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._cancelled: set[str] = set()
        self._encoder = msgspec.json.Encoder()
        self._spec: EngineSpec | None = None
        self._engine: Engine | None = None

    def run(self) -> None:
        parent = os.getppid()
        threading.Thread(target=self._listen, daemon=True).start()
        while os.getppid() == parent:
            try:
                job = self._jobs.get(timeout=_LOOK_UP)
            except queue.Empty:
                continue
            self._send(Begun(job.id))
            self._send(self._outcome(job))
            self._cancelled.discard(job.id)

    def _listen(self) -> None:
        decoder = msgspec.json.Decoder(ToWorker)
        for line in self._source:
            message = decoder.decode(line)
            if isinstance(message, Job):
                self._jobs.put(message)
            else:
                self._cancelled.add(message.id)
        # The parent is gone, or has no more to do; nothing of ours is worth finishing.
        os._exit(0)

    def _outcome(self, job: Job) -> FromWorker:
        try:
            return self._transcribed(job)
        except PlayheadError as error:
            return Failed(job.id, error.code, str(error))
        except Exception as error:  # an engine's own fault ends a job, never the worker
            sys.stderr.write(masked_traceback(error))
            return Failed(job.id, "engine_failed", f"The speech engine failed ({type(error).__name__}).")

    def _transcribed(self, job: Job) -> FromWorker:
        def progress(fraction: float | None, text: str) -> None:
            self._send(Progress(job.id, fraction, text))

        def window(until: float, segments: Sequence[Segment]) -> None:
            self._send(WindowDone(job.id, until, segments))

        def is_cancelled() -> bool:
            return job.id in self._cancelled

        if is_cancelled():
            raise MediaError("The transcription was cancelled.", code="cancelled")
        path = Path(os.fsdecode(job.path))
        check_sound(path)  # before a model is loaded for nothing
        engine = self._engine_for(job.engine)
        engine.prepare(progress)
        transcript = transcribe_media(
            path,
            engine,
            language=job.language,
            prompt=job.prompt,
            resume_from=job.resume_from,
            on_window=window,
            on_progress=progress,
            is_cancelled=is_cancelled,
        )
        return Done(job.id, transcript)

    def _engine_for(self, spec: EngineSpec) -> Engine:
        if self._engine is None or spec != self._spec:
            if self._engine is not None:
                self._engine.close()
            self._spec = self._engine = None
            self._engine = create_engine(spec)
            self._spec = spec
        return self._engine

    def _send(self, message: FromWorker) -> None:
        try:
            self._out.write(self._encoder.encode(message) + b"\n")
            self._out.flush()
        except OSError:
            os._exit(0)  # nobody listens any more
