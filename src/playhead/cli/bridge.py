"""From a command, which may block, to async code, which may not."""

import asyncio
import select
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Bridge:
    """An event loop in a thread of its own: `with Bridge() as bridge: bridge.run(work())`.

    The main thread hears the signals and may wait for a line at the terminal; the loop never waits
    for either. Leaving the block ends what still runs on the loop and closes it. SIGTERM counts as
    Ctrl-C.
    """

    def __enter__(self) -> "Bridge":
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._hold(started),), daemon=True)
        self._thread.start()
        self._loop = started.result()
        self._waiting = False
        self._signals = 0
        # A signal that comes just before a wait does not end it, unless it can be seen in what is waited
        # for: https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._before = [(number, signal.signal(number, self._hear)) for number in _SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        for number, handler in self._before:
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._woken.close()
        self._waker.close()

    def run(self, work: Coroutine[Any, Any, T], on_interrupt: Callable[[], None] | None = None) -> T:
        """Wait for the work, as `asyncio.run` does.

        Ctrl-C calls `on_interrupt` on the loop and goes on waiting; the next one, or the first
        without it, cancels the work, waits for its end and raises KeyboardInterrupt.
        """
        self._signals, self._waiting = 0, True
        result: Future[T] = Future()
        task: list[asyncio.Task[T]] = []

        def begin() -> None:
            task.append(self._loop.create_task(work))
            task[0].add_done_callback(lambda done: self._hand_over(done, result))

        self._loop.call_soon_threadsafe(begin)
        asked = cancelled = 0
        while not result.done():
            self._wait()
            while self._signals > asked + cancelled:
                if on_interrupt is not None and not asked:
                    asked = 1
                    self._loop.call_soon_threadsafe(on_interrupt)
                else:
                    cancelled += 1
                    self._loop.call_soon_threadsafe(lambda: task[0].cancel())
        self._waiting = False
        if on_interrupt is None and self._signals > cancelled:
            raise KeyboardInterrupt  # it came as the work ended
        try:
            return result.result()
        except CancelledError:
            raise (KeyboardInterrupt if cancelled else asyncio.CancelledError) from None

    def _wait(self) -> None:
        select.select([self._woken], [], [])
        with suppress(BlockingIOError):
            self._woken.recv(4096)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        # An exception at any place of `run` could leave the work without its end.
        if not self._waiting:
            raise KeyboardInterrupt
        self._signals += 1

    def _hand_over(self, task: "asyncio.Task[T]", result: "Future[T]") -> None:
        if task.cancelled():
            result.cancel()
        elif (error := task.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())
        with suppress(BlockingIOError):  # full: then it wakes already
            self._waker.send(b"\0")

    async def _hold(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._end = asyncio.Event()
        started.set_result(asyncio.get_running_loop())
        await self._end.wait()
