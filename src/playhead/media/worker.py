"""The client of the speech worker process: it starts it, queues for it, stops it.

A thread of its own talks to the process, so it works with any event loop, and with several.
"""

import asyncio
import collections
import json
import logging
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from playhead.errors import MediaError
from playhead.media.messages import (
    Begun,
    Cancel,
    Done,
    Failed,
    FromWorker,
    Job,
    Progress,
    ToWorker,
    WindowDone,
)
from playhead.media.transcribe import OnWindow
from playhead.media.types import OnProgress, Transcript

_log = logging.getLogger("playhead.media")
# The child takes over our import path, not the current folder; spawned, as a fork would copy threads.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from playhead.media.worker_main import main; main()"
)
_GONE = "The speech worker ended unexpectedly. Try again; if only this file does it, the file is the cause."
_NO_START = "The speech worker could not be started; the log of the server says why."
_CLOSED = "The speech service was closed."


class Transcriber:
    """Transcribes in a child process, one file at a time, in the order asked.

    The process starts with the first job, keeps the model loaded, is stopped after `idle` seconds
    without one, and ends when this process does. A crash of it fails the job it was at; the next job
    starts a new one.

    Args:
        idle: seconds without a job after which the process is stopped.
        grace: seconds that a cancelled job has to stop by itself before its process is killed.
    """

    def __init__(self, *, idle: float = 120.0, grace: float = 0.7) -> None:
        self._idle = idle
        self._grace = grace
        self._change = threading.Condition()
        self._waiting: collections.deque[_Task] = collections.deque()
        self._thread: threading.Thread | None = None
        self._child: _Child | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The id of the worker process, None while there is none."""
        child = self._child
        return child.process.pid if child else None

    async def transcribe(
        self, job: Job, *, on_progress: OnProgress | None = None, on_window: OnWindow | None = None
    ) -> Transcript:
        """Run a job and return its transcript. Cancelling the await stops the work within a second.

        `on_progress` is called in this event loop, `on_window` in the thread of the worker.
        Raises `MediaError`: as `transcribe_media`, and `engine_failed` when the process died.
        """
        task = _Task(job, on_progress, on_window)
        with self._change:
            if self._closed:
                raise MediaError(_CLOSED, code="cancelled")
            self._waiting.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="playhead-speech", daemon=True)
                self._thread.start()
            self._change.notify()
        try:
            return await task.future
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def aclose(self) -> None:
        """Stop the process and fail what still waits for it."""
        with self._change:
            self._closed = True
            thread = self._thread
            while self._waiting:
                self._waiting.popleft().fail("cancelled", _CLOSED)
            if self._child:
                self._child.kill()
            self._change.notify()
        if thread:
            await asyncio.to_thread(thread.join)

    def _serve(self) -> None:
        while task := self._next():
            try:
                self._run(task)
            except Exception as error:  # the thread must live on, or every later job would hang
                _log.exception("the client of the speech worker failed")
                self._drop_child()
                task.fail("engine_failed", f"The speech worker failed ({type(error).__name__}).")

    def _next(self) -> "_Task | None":
        """Wait for a job; after a while without one stop the process, and return None: this thread ends."""
        with self._change:
            end = time.monotonic() + self._idle
            while not self._waiting and not self._closed and (left := end - time.monotonic()) > 0:
                self._change.wait(left)
            if self._waiting:
                return self._waiting.popleft()
            self._thread = None
            child, self._child = self._child, None
        if child:
            child.kill()
        return None

    def _run(self, task: "_Task") -> None:
        """Have a job done; should the process have died before it took the job up, by a new one."""
        while not task.cancelled() and (child := self._ready_child()) is not None:
            task.inbox = child.inbox
            # again: a cancellation before the line above has found no inbox to knock at
            if task.cancelled() or self._attended(task, child):
                return
        task.fail("cancelled", _CLOSED)

    def _attended(self, task: "_Task", child: "_Child") -> bool:
        """Send a job and attend to it until it is over; False if it was never begun."""
        child.send(task.job)
        deadline: float | None = None
        begun = False
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                message = child.inbox.get(timeout=left)
            except queue.Empty:
                self._drop_child()  # it did not stop by itself
                return True
            if message is None:
                self._drop_child()
                if self._closed or (child.proven and not begun):
                    return False
                task.fail("engine_failed", _GONE if begun else _NO_START)
                return True
            if message.id != task.job.id:
                continue  # the last words of a job before
            if isinstance(message, Cancel):
                deadline = time.monotonic() + self._grace
                child.send(message)
                continue
            child.proven = begun = True
            if task.take(message):
                return True

    def _ready_child(self) -> "_Child | None":
        """The process, started if there is none; None when the service was closed."""
        if self._child and self._child.process.poll() is not None:
            self._drop_child()
        with self._change:
            if self._child is None and not self._closed:
                self._child = _Child()
            return self._child

    def _drop_child(self) -> None:
        child, self._child = self._child, None
        if child:
            child.kill()


class _Child:
    """The process and the thread that reads what it says; None in the inbox is its end.

    `proven` once it took up a job: if it died in its sleep after that, another may be started.
    """

    def __init__(self) -> None:
        self.proven = False
        self.inbox: queue.SimpleQueue[FromWorker | Cancel | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(  # noqa: S603  # our own interpreter and our own text
            [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, name="playhead-speech-reader", daemon=True).start()

    def send(self, message: ToWorker) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(msgspec.json.encode(message) + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it is dead, and the inbox says so

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin
        try:
            self.process.stdin.close()
        except OSError:
            pass  # what was not sent will not be

    def _listen(self) -> None:
        decoder = msgspec.json.Decoder(FromWorker)
        assert self.process.stdout
        with self.process.stdout as lines:
            try:
                for line in lines:
                    self.inbox.put(decoder.decode(line))
            except msgspec.MsgspecError:
                _log.warning("the speech worker sent something that is no message")
        self.inbox.put(None)


class _Task:
    """A job, and who waits for it."""

    def __init__(self, job: Job, on_progress: OnProgress | None, on_window: OnWindow | None) -> None:
        self.job = job
        self._cancelled = False
        self.inbox: queue.SimpleQueue[Any] | None = None
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Transcript] = self._loop.create_future()
        self._on_progress = on_progress
        self._on_window = on_window

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True
        if self.inbox is not None:
            self.inbox.put(Cancel(self.job.id))

    def take(self, message: FromWorker) -> bool:
        """Pass on what the worker says; True when the job is over."""
        match message:
            case Begun():
                pass
            case Progress():
                self._in_loop(self._show, message)
            case WindowDone():
                self._keep(message)
            case Done():
                self._in_loop(self._settle, message.transcript, None)
                return True
            case Failed():
                self.fail(message.code, message.text)
                return True
        return False

    def fail(self, code: str, text: str) -> None:
        self._in_loop(self._settle, None, MediaError(text, code=code))

    def _in_loop(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            pass  # that event loop was closed: nobody waits any more

    def _settle(self, transcript: Transcript | None, error: MediaError | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        elif transcript is not None:
            self.future.set_result(transcript)

    def _show(self, message: Progress) -> None:
        if self._on_progress is None or self.future.done():
            return
        try:
            self._on_progress(message.fraction, message.text)
        except Exception:  # a listener's fault must not end the work
            _log.exception("a progress listener failed and is detached")
            self._on_progress = None

    def _keep(self, message: WindowDone) -> None:
        if self._on_window is None:
            return
        try:
            self._on_window(message.until, message.segments)
        except Exception:
            _log.exception("a window could not be kept; it will be recognised anew if the job is repeated")
            self._on_window = None
