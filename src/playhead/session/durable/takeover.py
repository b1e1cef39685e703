"""A living process takes the runs of a dead one: it is seen to be dead when its lock is free.

The lock is let go by the kernel, or by Postgres, and by nothing else: a process that is slow, or stopped
and woken, keeps it, no clock is asked, and what it writes is refused if its runs went on elsewhere.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Protocol
from urllib.parse import quote

from playhead.encode import error_text
from playhead.errors import PlayheadError, StoreError
from playhead.ids import now_ms
from playhead.session.durable.engine import DurableEngine
from playhead.storage.engine import Database

logger = logging.getLogger("playhead")

# How often the locks of others are tried, in seconds.
LOOK = 0.4
# How often rows are swept and lost runs ended, and how long the engine's rows of an ended run are kept.
HOUSEKEEPING = 600.0
KEEP = 7 * 86_400.0
_SWEEPER = "sweeper"


class Locks(Protocol):
    """A lock for each process that carries out runs."""

    async def hold(self, name: str) -> None:
        """Hold one until the end of this process."""
        ...

    async def is_free(self, name: str) -> bool:
        """Does nobody hold it?"""
        ...

    async def take(self, name: str) -> bool:
        """Take one that nobody else holds, until `give_back`. False: somebody does."""
        ...

    async def give_back(self, name: str) -> None:
        """Let go of what was taken."""
        ...

    async def aclose(self) -> None:
        """Let go of all."""
        ...


class FileLocks:
    """Locks of files beside a SQLite database, which the kernel frees with their process."""

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(f"{database.name}-locks")
        self._held: dict[str, Any] = {}

    async def hold(self, name: str) -> None:
        """See `Locks.hold`."""
        self._folder.mkdir(exist_ok=True)
        if not await self.take(name):
            raise StoreError(f"The lock {name!r} of this process is held by another.")

    async def is_free(self, name: str) -> bool:
        """See `Locks.is_free`. What is free is removed: nobody takes a name twice."""
        file = self._file(name)
        if not file.exists():
            return True
        if not await self.take(name):
            return False
        await self.give_back(name)
        return True

    async def take(self, name: str) -> bool:
        """See `Locks.take`."""
        from filelock import FileLock, Timeout

        lock = FileLock(self._file(name), is_singleton=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        self._held[name] = lock
        return True

    async def give_back(self, name: str) -> None:
        """See `Locks.give_back`."""
        self._held.pop(name).release()
        self._file(name).unlink(missing_ok=True)

    async def aclose(self) -> None:
        """See `Locks.aclose`."""
        for name in list(self._held):
            await self.give_back(name)

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
        free = await self.take(name)
        if free:
            await self.give_back(name)
        return free

    async def take(self, name: str) -> bool:
        """See `Locks.take`."""
        return bool(await self._asked("SELECT pg_try_advisory_lock(%s, hashtext(%s))", name))

    async def give_back(self, name: str) -> None:
        """See `Locks.give_back`."""
        await self._asked("SELECT pg_advisory_unlock(%s, hashtext(%s))", name)

    async def _asked(self, query: str, name: str) -> Any:
        import psycopg

        try:
            connection = await self._connected()
            return (await (await connection.execute(query, (self._CLASS, name))).fetchone())[0]
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
        tidy: ends what nobody else would.
    """

    def __init__(
        self, engine: DurableEngine, database: Database, tidy: Callable[[], Awaitable[None]]
    ) -> None:
        self._engine = engine
        self._tidy = tidy
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
        tidied = -math.inf
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._take()
                if monotonic() - tidied > HOUSEKEEPING:
                    tidied = monotonic()
                    await self._keep_house()
            except PlayheadError as error:
                logger.warning("Runs of other processes cannot be looked at for now: %s", error_text(error))

    async def _keep_house(self) -> None:
        """Sweep and tidy, unless another process is at it."""
        if not await self._locks.take(_SWEEPER):
            return
        try:
            await self._tidy()
            swept = await self._engine.sweep(now_ms() - round(KEEP * 1_000))
            if swept:
                logger.info("The engine's rows of %s ended runs were swept.", swept)
        finally:
            await self._locks.give_back(_SWEEPER)

    async def _take(self) -> None:
        taken = 0
        for executor in await self._engine.executors():
            if executor != self._engine.executor and await self._locks.is_free(executor):
                taken += await self._engine.recover(executor)
        if taken:
            logger.warning("%s runs of a process that is gone go on.", taken)
            self._engine.kick()
