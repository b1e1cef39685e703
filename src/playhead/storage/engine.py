"""A database on threads of its own: one writer that commits what waits together, a few readers."""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from sqlalchemy import URL, Connection, Dialect, Engine

from playhead.errors import StoreError
from playhead.storage.connect import BUSY_TIMEOUT, Engines, connect_engines, guest_engine
from playhead.storage.failures import concerns_all, is_locked, may_try_again, store_error
from playhead.storage.migrations import migrate

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], T]

_READERS = 4
_MOST_TOGETHER = 256
_TRIES = 5


@dataclass(slots=True, eq=False)
class _Job:
    """A piece of work that waits for the writer, and the future of whoever waits for it."""

    work: Work[Any]
    order: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None


async def open_database(url: str, *, busy_timeout: float = BUSY_TIMEOUT) -> "Database":
    """Open a database and bring it to the newest schema. Close it with `aclose()`.

    Args:
        url: `sqlite:///FILE`, made when it does not exist, or `postgresql://USER:PASSWORD@HOST/NAME`.
        busy_timeout: seconds that a write waits for other processes.

    Raises `ConfigError` for a URL of another kind or a missing package, and `StoreError` when the
    database cannot be opened, or is of a later version of Playhead.
    """
    database = Database(await asyncio.to_thread(connect_engines, url, busy_timeout))
    try:
        await database.write(migrate)
    except BaseException:
        await database.aclose()
        raise
    return database


class Database:
    """Runs functions of a SQLAlchemy `Connection`, each in a transaction. Made by `open_database`.

    It may be used from several event loops. What is written is committed when `write` returns.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._writer = ThreadPoolExecutor(1, "playhead-writer")
        self._readers = ThreadPoolExecutor(_READERS, "playhead-reader")
        self._lock = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._writing = False
        self._closed = False
        self._held: Connection | None = None

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engines.write.dialect.name

    @property
    def engine_dialect(self) -> Dialect:
        """What statements are compiled for."""
        return self._engines.write.dialect

    @property
    def url(self) -> URL:
        """Where it is."""
        return self._engines.write.url

    def another_engine(self, size: int) -> Engine:
        """An engine for a library that has its tables in the same database; the caller disposes of it."""
        return guest_engine(self.url, size)

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a reader's thread and return its value. Raises `StoreError`.

        All that it reads is of one moment on SQLite; on Postgres that holds for each statement.
        """
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def write(self, work: Work[T], *, order: str = "") -> T:
        """Run `work` on the writer's thread, commit, and return its value. Raises `StoreError`.

        What waits at the same time is committed together. When one of them fails they are run
        again, each alone: `work` must do nothing but speak to the database. Work of one `order`, a
        thread's key, is done in the order in which it came. It is done also when who waits for it
        is cancelled.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, order, loop, loop.create_future())
        with self._lock:
            self._check_open()
            self._waiting.append(job)
            if not self._writing:
                self._writing = True
                self._writer.submit(self._drain)
        value: T = await job.future
        return value

    async def aclose(self) -> None:
        """Commit what waits and close every connection. May be called more than once."""
        with self._lock:
            self._closed = True
        await asyncio.to_thread(self._shut_down)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"The database {self._engines.name} was closed: open it again.")

    def _shut_down(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        if self._held is not None:
            self._held.close()
        self._engines.dispose()

    def _read(self, work: Work[T]) -> T:
        try:
            with self._engines.read.connect() as connection:
                return work(connection)
        except Exception as error:
            raise store_error(error, self._engines.name) from error

    def _drain(self) -> None:
        while True:
            with self._lock:
                jobs = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_TOGETHER))]
                self._writing = bool(jobs)
            if not jobs:
                return
            # Every process takes the locks of threads in the same order: no two wait for each other.
            jobs.sort(key=lambda job: job.order)
            self._commit(jobs)
            _settle(jobs)

    def _commit(self, jobs: Sequence[_Job]) -> None:
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

    def _together(self, jobs: Sequence[_Job]) -> tuple[Exception | None, bool]:
        """Run and commit; return what failed, and whether each may be run alone instead."""
        begun = finished = False
        try:
            with self._transaction() as connection:
                begun = True
                for job in jobs:
                    job.value = job.work(connection)
                finished = True
        except Exception as error:
            # Whether a commit that failed was made is not known: nothing is then run again.
            return error, begun and not finished and not concerns_all(error)
        return None, False

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """A transaction of the writer. SQLite's connection is kept: taking it anew costs as much as a row,
        while one to a server may have broken since, which the pool sees."""
        if self.dialect != "sqlite":
            with self._engines.write.begin() as connection:
                yield connection
            return
        if self._held is None:
            self._held = self._engines.write.connect()
        try:
            with self._held.begin():
                yield self._held
        except BaseException:
            held, self._held = self._held, None
            held.close()
            raise

    def _alone(self, job: _Job) -> Exception | None:
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


def _settle(jobs: Sequence[_Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = defaultdict(list)
    for job in jobs:
        by_loop[job.loop].append(job)
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver, settled)
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more


def _deliver(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
