"""Blocking tools, off the event loop."""

import asyncio
import contextvars
import inspect
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Any

from playhead.encode import encode_result
from playhead.errors import ToolError
from playhead.types import ToolContext


async def run_blocking(call: Callable[[ToolContext], Any], context: ToolContext) -> Any:
    """Call a blocking function in a thread of its own and return what it returns.

    The function sees the caller's context variables. When the caller is cancelled, by a stop or a time-out,
    the context's `cancelled` turns true; a thread cannot be ended, so a function that looks
    at it ends soon, and the progress and the result of one that does not are dropped.

    An iterator that it returns, such as a generator or the lines of a file, is read here as well, as
    far as it is worth reading: that it is slow, or has no end, must not hold up the event loop.

    The thread is not one of the event loop's pool: a tool that hangs must hold up neither the name
    look-ups, which run in that pool, nor the end of the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    variables = contextvars.copy_context()
    stopped = threading.Event()
    inner = ToolContext(
        context.context,
        context.call_id,
        context.idempotency_key,
        lambda *args, **kwargs: None if stopped.is_set() else context.progress(*args, **kwargs),
        lambda: stopped.is_set() or context.is_cancelled(),
        context.tenant,
        context.turn_id,
    )

    def deliver(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def body() -> None:
        value, error = None, None
        try:
            value = variables.run(call, inner)
            if isinstance(value, Iterator):
                value = variables.run(_read, value, stopped)
        except BaseException as raised:
            error = _awaitable_error(raised)
        with suppress(RuntimeError):  # the event loop is closed: nobody waits
            loop.call_soon_threadsafe(deliver, value, error)

    _start(body)
    try:
        value = await future
    except asyncio.CancelledError:
        stopped.set()
        raise
    return await value if inspect.isawaitable(value) else value


def _read(items: Iterator[Any], stopped: threading.Event) -> Any:
    """What an iterator yields, as JSON types. The encoder knows where to stop an endless one."""
    return encode_result(takewhile(lambda _: not stopped.is_set(), items)).value


_Job = Callable[[], None]
# One queue for each thread that waits for work; starting a thread costs ten times as much.
_idle: list[queue.SimpleQueue[_Job]] = []
_IDLE_SECONDS = 10.0
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


def _start(job: _Job) -> None:
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = queue.SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), name="playhead-tool", daemon=True).start()
    jobs.put(job)


def _work(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        try:
            job = jobs.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            try:
                _idle.remove(jobs)
            except ValueError:
                continue  # just taken: its job is on the way
            return
        job()
        del job  # nothing of the last call is kept alive while waiting
        _idle.append(jobs)


def _awaitable_error(error: BaseException) -> BaseException:
    """Errors that a future cannot carry, or that would end the process, become ordinary ones."""
    if isinstance(error, StopIteration | SystemExit | KeyboardInterrupt | GeneratorExit):
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        ordinary = ToolError(f"The tool ended with {text}.")
        ordinary.__cause__ = error
        return ordinary
    return error
