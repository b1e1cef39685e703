"""A database on threads of its own: one writer that commits what waits together, a few readers."""

import asyncio
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import URL, Dialect, Engine

from playhead.errors import StoreError
from playhead.storage.connect import BUSY_TIMEOUT, Engines, connect_engines, guest_engine
from playhead.storage.failures import store_error
from playhead.storage.migrations import migrate
from playhead.storage.writer import Job, Work, Writer

T = TypeVar("T")

_READERS = 4


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
        self._writer = Writer(engines)
        self._readers = ThreadPoolExecutor(_READERS, "playhead-reader")
        self._lock = threading.Lock()
        self._closed = False
        # What was handed over is written though the database is let go of without being closed.
        weakref.finalize(self, self._writer.end)

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
        job = Job(work, order, loop, loop.create_future())
        with self._lock:
            self._check_open()
            self._writer.add(job)
        value: T = await job.future
        return value

    def hurry(self) -> None:
        """From now on, wait no longer than a moment for other processes: it is about to be closed."""
        self._writer.hurry()

    async def aclose(self) -> None:
        """Commit what waits and close every connection. May be called more than once.

        What waits for another process that holds the database fails after a moment.
        """
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
        self._writer.end()
        self._readers.shutdown()
        self._engines.dispose()

    def _read(self, work: Work[T]) -> T:
        try:
            self._engines.check()
            with self._engines.read.connect() as connection:
                return work(connection)
        except Exception as error:
            raise store_error(error, self._engines.name) from error
