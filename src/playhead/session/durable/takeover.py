"""A living process takes the runs of a dead one: it is seen to be dead when its lock is free.

The lock is let go by the kernel, or by Postgres, and by nothing else: a process that is slow, or stopped
and woken, keeps it, no clock is asked, and what it writes is refused if its runs went on elsewhere.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from playhead.encode import error_text
from playhead.errors import PlayheadError, StoreError
from playhead.session.durable.engine import DurableEngine
from playhead.storage.engine import Database

logger = logging.getLogger("playhead")

# How often the locks of others are tried, in seconds.
LOOK = 0.4


class Locks(Protocol):
    """A lock for each process that carries out runs."""

    async def hold(self, name: str) -> None:
        """Hold one until the end of this process."""
        ...

    async def is_free(self, name: str) -> bool:
        """Does nobody hold it?"""
        ...

    async def aclose(self) -> None:
        """Let go."""
        ...


class FileLocks:
    """Locks of files beside a SQLite database, which the kernel frees with their process."""

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(f"{database.name}-locks")
        self._held: Any = None

    async def hold(self, name: str) -> None:
        """See `Locks.hold`."""
        from filelock import FileLock

        self._folder.mkdir(exist_ok=True)
        self._held = FileLock(self._file(name), is_singleton=False)
        self._held.acquire(timeout=0)

    async def is_free(self, name: str) -> bool:
        """See `Locks.is_free`. What is free is removed: nobody takes a name twice."""
        from filelock import FileLock, Timeout

        file = self._file(name)
        if not file.exists():
            return True
        lock = FileLock(file, is_singleton=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        lock.release()
        file.unlink(missing_ok=True)
        return True

    async def aclose(self) -> None:
        """See `Locks.aclose`."""
        if self._held is not None:
            file, self._held = self._held, None
            file.release()
            self._file_of(file).unlink(missing_ok=True)

    def _file_of(self, lock: Any) -> Path:
        return Path(lock.lock_file)

    def _file(self, name: str) -> Path:
        return self._folder / f"{quote(name, safe='')}.lock"


class PostgresLocks:
    """Advisory locks of a connection of its own, which Postgres frees with it.

    https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS
    """

    # The class of our locks: the first four letters of the name.
    _CLASS = int.from_bytes(b"play", "big")

    def __init__(self, url: Any) -> None:
        self._url = url.set(drivername="postgresql").update_query_dict(
            {"keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3"}
        )
        self._connection: Any = None
        self._name = ""

    async def hold(self, name: str) -> None:
        """See `Locks.hold`."""
        self._name = name
        await self._connected()

    async def is_free(self, name: str) -> bool:
        """See `Locks.is_free`."""
        import psycopg

        try:
            connection = await self._connected()
            values = (self._CLASS, name)
            query = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
            (free,) = await (await connection.execute(query, values)).fetchone()
            if free:
                await connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", values)
            return bool(free)
        except psycopg.Error as error:
            await self._drop()
            raise StoreError(f"The locks cannot be looked at: {error_text(error)}") from error

    async def aclose(self) -> None:
        """See `Locks.aclose`."""
        await self._drop()

    async def _connected(self) -> Any:
        """The connection; a new one takes the lock anew, which another may look at for a moment."""
        import psycopg

        if self._connection is None or self._connection.closed:
            plain = self._url.render_as_string(hide_password=False)
            try:
                connection = await psycopg.AsyncConnection.connect(plain, autocommit=True)
                query = "SELECT pg_advisory_lock(%s, hashtext(%s))"
                await connection.execute(query, (self._CLASS, self._name))
            except psycopg.Error as error:
                raise StoreError(f"The lock of this process cannot be held: {error_text(error)}") from error
            self._connection = connection
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                await connection.close()


class Takeover:
    """Looks for runs of dead processes, and puts them back into the queue.

    Args:
        engine: where they are.
        database: which kind of lock there is.
    """

    def __init__(self, engine: DurableEngine, database: Database) -> None:
        self._engine = engine
        is_file = database.dialect == "sqlite"
        self._locks: Locks = (
            FileLocks(Path(database.url.database or "")) if is_file else PostgresLocks(database.url)
        )
        self._task: asyncio.Task[None] | None = None

    async def hold(self) -> None:
        """Say that this process lives."""
        await self._locks.hold(self._engine.executor)

    async def start(self) -> None:
        """Take what is there, then go on looking."""
        await self._engine.adopt()
        await self._take()
        self._engine.kick()
        self._task = asyncio.create_task(self._watch(), name="playhead takeover")

    async def aclose(self) -> None:
        """Look no more, and let go of this process's own lock."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._locks.aclose()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._take()
            except PlayheadError as error:
                logger.warning("Runs of other processes cannot be looked at for now: %s", error_text(error))

    async def _take(self) -> None:
        taken = 0
        for executor in await self._engine.executors():
            if executor != self._engine.executor and await self._locks.is_free(executor):
                taken += await self._engine.recover(executor)
        if taken:
            logger.warning("%s runs of a process that is gone go on.", taken)
            self._engine.kick()
