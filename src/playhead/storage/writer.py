"""The one writer of a process: a thread that commits what waits together."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection

from playhead.storage.connect import Engines
from playhead.storage.failures import concerns_all, is_locked, may_try_again, store_error

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], T]

_MOST_TOGETHER = 256
_TRIES = 5
_SHORT_WAIT = 0.25  # in seconds


@dataclass(slots=True, eq=False)
class Job:
    """A piece of work that waits for the writer, and the future of whoever waits for it."""

    work: Work[Any]
    order: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None


class Writer:
    """Does jobs in a thread of its own, which ends with `end`.

    A thread that waits in a queue wakes up for less than half of what one of an executor takes; a run is
    a commit for each thing that happens in it, and most of what that costs is to wake and be woken.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._waiting: SimpleQueue[Job | None] = SimpleQueue()
        self._kept = engines.write.dialect.name == "sqlite"
        self._short = min(engines.busy_timeout, _SHORT_WAIT)
        self._held: Connection | None = None
        self._driver: Any = None
        self._hurried = False
        # The interpreter waits at its end for other threads before it tells them that it ends.
        self._thread = threading.Thread(target=self._run, name="playhead-writer", daemon=True)
        self._thread.start()

    def add(self, job: Job) -> None:
        """Do a job soon, with what else waits."""
        self._waiting.put(job)

    def hurry(self) -> None:
        """Wait no longer than a moment for others that hold the database."""
        self._hurried = True

    def end(self) -> None:
        """Do what waits, close the connection and end the thread. Nothing may be added any more."""
        self.hurry()
        self._waiting.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while self._round():
            pass
        self._let_go()

    def _round(self) -> bool:
        """Wait for jobs and do them; False once there will be no more."""
        jobs: list[Job] = []
        job = self._waiting.get()
        while job is not None:
            jobs.append(job)
            if self._waiting.empty() or len(jobs) == _MOST_TOGETHER:
                break
            job = self._waiting.get()
        if jobs:
            # Every process takes the locks of threads in the same order: no two wait for each other.
            jobs.sort(key=lambda job: job.order)
            self._commit(jobs)
            # Last of all: who is woken by this wants the interpreter for itself.
            _settle(jobs)
        return job is not None

    def _commit(self, jobs: Sequence[Job]) -> None:
        error, retriable = self._together(jobs)
        if error is None:
            return
        if not retriable:
            for job in jobs:
                job.error = self._told(error)
            return
        fatal: Exception | None = None
        locked: dict[str, Exception] = {}
        for job in jobs:
            job.error = fatal or locked.get(job.order) or self._alone(job)
            if job.error is None:
                continue
            if concerns_all(_cause(job.error)):
                fatal = job.error
            elif job.order and is_locked(_cause(job.error)):
                # What is locked is the thread: the time-out is waited for once, not for each of its rows.
                locked[job.order] = job.error

    def _together(self, jobs: Sequence[Job]) -> tuple[Exception | None, bool]:
        """Run and commit; return what failed, and whether each may be run alone instead."""
        begun = finished = False
        try:
            connection = self._begin()
            begun = True
            for job in jobs:
                job.value = job.work(connection)
            finished = True
            self._complete(connection)
        except Exception as error:
            self._let_go()
            # Whether a commit that failed was made is not known: nothing is then run again.
            return error, begun and not finished and not concerns_all(error)
        return None, False

    def _begin(self) -> Connection:
        """Begin a transaction. What others hold is waited for in short waits, which `hurry` can end."""
        until: float | None = None
        while True:
            try:
                return self._begun()
            except Exception as error:
                if not (self._kept and is_locked(error)):
                    raise
                until = until or monotonic() + self._engines.busy_timeout - self._short
                if self._hurried or monotonic() >= until:
                    raise

    def _begun(self) -> Connection:
        """SQLite's connection is kept, and SQLAlchemy is never told that its first transaction was committed:
        to take it anew, or to keep that account, costs as much as a row."""
        if self._held is not None:
            self._driver.execute("BEGIN IMMEDIATE")
            return self._held
        self._engines.check()  # of a file that is gone, an empty one would be made
        held = self._engines.write.connect()
        try:
            self._driver = held.connection.dbapi_connection
            if self._kept:
                self._driver.execute(f"PRAGMA busy_timeout = {round(self._short * 1000)}")
            held.begin()
        except BaseException:
            held.close()
            raise
        self._held = held
        return held

    def _complete(self, connection: Connection) -> None:
        if self._kept:
            self._driver.commit()
            self._engines.check()
        else:
            # One to a server may break before it is needed again, which the pool sees.
            connection.commit()
            self._let_go()

    def _let_go(self) -> None:
        """Undo what was not committed, and give the connection back."""
        held, self._held = self._held, None
        if held is None:
            return
        # Whatever broke it: the thread must go on. One that broke while it closed is invalid already.
        try:
            held.close()
        except Exception:
            with suppress(Exception):
                held.invalidate()

    def _alone(self, job: Job) -> Exception | None:
        for left in reversed(range(_TRIES)):
            error, retriable = self._together([job])
            if error is None:
                return None
            if not (left and retriable and may_try_again(error)):
                return self._told(error)
        return None

    def _told(self, error: Exception) -> Exception:
        told = store_error(error, self._engines.name)
        if told is not error:
            told.__cause__ = error
        return told


def _cause(error: Exception) -> BaseException:
    return error.__cause__ or error


def _settle(jobs: Sequence[Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = defaultdict(list)
    for job in jobs:
        by_loop[job.loop].append(job)
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver, settled)
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more


def _deliver(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
