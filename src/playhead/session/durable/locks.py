"""A lock for each process: who holds it lives.

It is let go by the kernel, or by Postgres, and by nothing else: a process that is slow, or stopped and
woken, keeps it, and no clock is asked. Behind PgBouncer, whose connections belong to nobody for longer
than a transaction, such a lock cannot be held; there a beat in a table stands for it.
https://www.pgbouncer.org/features.html
"""

import asyncio
import math
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Protocol
from urllib.parse import quote

from sqlalchemy import Connection, and_, delete, func, literal_column, select, update
from sqlalchemy.dialects import postgresql, sqlite

from playhead.encode import error_text
from playhead.errors import StoreError
from playhead.session.durable.options import Lock
from playhead.storage.engine import Database
from playhead.storage.tables import agent_processes

BEAT, SILENT = 1.0, 4.0
# How long others have to take their locks again, in seconds, once all may have lost them.
GRACE = 3.0


class Locks(Protocol):
    """A lock for each process that carries out runs."""

    async def hold(self, name: str) -> None:
        """Hold one until the end of this process."""
        ...

    async def keep(self) -> None:
        """See that this process's own is held still, and take it again if it was lost."""
        ...

    async def is_free(self, name: str) -> bool:
        """Does nobody hold it, as far as can be said now?"""
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

    async def keep(self) -> None:
        """See `Locks.keep`."""

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

    When the server ends, all locks go with it, and who is back first must not take the others for dead:
    after the loss of its connection, and while the server is young, it takes no lock of another to be free.
    https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS
    """

    # The class of our locks: the first four letters of the name.
    _CLASS = int.from_bytes(b"play", "big")
    # Each end sees within some seconds that the other is gone, and nothing waits here for longer than that.
    # https://www.postgresql.org/docs/current/runtime-config-connection.html#GUC-TCP-KEEPALIVES-IDLE
    _SETTINGS = (
        "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;"
        " SET lock_timeout = '2s'"
    )
    _YOUNG = "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float"

    def __init__(self, url: Any) -> None:
        self._url = url.set(drivername="postgresql").update_query_dict(
            {"keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3"}
        )
        self._connection: Any = None
        self._name = ""
        self._was_lost = False
        self._judges_from = -math.inf

    async def hold(self, name: str) -> None:
        """See `Locks.hold`."""
        self._name = name
        await self._connected()

    async def keep(self) -> None:
        """See `Locks.keep`."""
        await self._asked("SELECT %s::int, %s", "")

    async def is_free(self, name: str) -> bool:
        """See `Locks.is_free`."""
        await self._connected()
        free = monotonic() >= self._judges_from and await self.take(name)
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
        if self._connection is not None and not self._connection.closed:
            with suppress(Exception):  # the server frees them a moment after the end of the connection, too
                await self._connection.execute("SELECT pg_advisory_unlock_all()")
        await self._drop()

    async def _connected(self) -> Any:
        """The connection; a new one takes the lock anew, which another may look at for a moment."""
        import psycopg

        if self._connection is None or self._connection.closed:
            self._was_lost = self._was_lost or self._connection is not None
            plain = self._url.render_as_string(hide_password=False)
            try:
                connection = await psycopg.AsyncConnection.connect(plain, autocommit=True)
                try:
                    await self._prepare(connection)
                except BaseException:
                    await connection.close()
                    raise
            except psycopg.Error as error:
                raise StoreError(f"The lock of this process cannot be held: {error_text(error)}") from error
            self._connection = connection
        return self._connection

    async def _prepare(self, connection: Any) -> None:
        await connection.execute(self._SETTINGS)
        if self._name:
            query = "SELECT pg_advisory_lock(%s, hashtext(%s))"
            await connection.execute(query, (self._CLASS, self._name))
        age = (await (await connection.execute(self._YOUNG)).fetchone())[0]
        self._judges_from = monotonic() + GRACE - (0.0 if self._was_lost else age)
        self._was_lost = False

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._was_lost = True
            with suppress(Exception):
                await connection.close()


class Heartbeats:
    """Rows that are renewed once a second by the clock of the database: silent for 4 s is dead."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        is_file = database.dialect == "sqlite"
        self._upsert: Any = sqlite.insert if is_file else postgresql.insert
        clock = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
        self._now: Any = literal_column(
            clock if is_file else "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        )

    async def hold(self, name: str) -> None:
        """See `Locks.hold`."""
        if not await self.take(name):
            raise StoreError(f"The name {name!r} of this process is another's.")
        self._task = asyncio.create_task(self._beat(), name="playhead heartbeat")

    async def keep(self) -> None:
        """See `Locks.keep`."""

    async def is_free(self, name: str) -> bool:
        """See `Locks.is_free`."""
        rows = agent_processes.c
        alive = select(func.count()).where(rows.name == name, rows.seen_at >= self._now - SILENT * 1_000)
        return not await self._database.read(lambda connection: connection.execute(alive).scalar())

    async def take(self, name: str) -> bool:
        """See `Locks.take`."""
        insert = self._upsert(agent_processes).values(name=name, seen_at=self._now)
        taken = insert.on_conflict_do_update(
            index_elements=[agent_processes.c.name],
            set_={"seen_at": self._now},
            where=and_(agent_processes.c.seen_at < self._now - SILENT * 1_000),
        ).returning(agent_processes.c.name)

        def work(connection: Connection) -> bool:
            return connection.execute(taken).first() is not None

        mine = await self._database.write(work)
        if mine:
            self._held.add(name)
        return mine

    async def give_back(self, name: str) -> None:
        """See `Locks.give_back`."""
        self._held.discard(name)
        gone = delete(agent_processes).where(agent_processes.c.name == name)
        await self._database.write(lambda connection: connection.execute(gone))

    async def aclose(self) -> None:
        """See `Locks.aclose`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        with suppress(StoreError):
            for name in list(self._held):
                await self.give_back(name)

    async def _beat(self) -> None:
        rows = agent_processes.c
        while True:
            await asyncio.sleep(BEAT)
            seen = update(agent_processes).where(rows.name.in_(self._held)).values(seen_at=self._now)

            def work(connection: Connection, seen: Any = seen) -> None:
                connection.execute(seen)

            with suppress(StoreError):  # the next one comes soon
                await self._database.write(work)


def locks_of(database: Database, kind: Lock = "lock") -> Locks:
    """Return the locks of a database."""
    if kind == "heartbeat":
        return Heartbeats(database)
    if database.dialect == "sqlite":
        return FileLocks(Path(database.url.database or ""))
    return PostgresLocks(database.url)
