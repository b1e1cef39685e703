"""How to reach a database: SQLite in a file, or Postgres by URL."""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError

from playhead.errors import ConfigError, StoreError
from playhead.storage.failures import code_of, store_error

BUSY_TIMEOUT = 10.0
_READERS = 4
_FORMS = "write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"


class Engines(NamedTuple):
    """One engine to write with and one to read with. `name` holds no password and no folder.

    `check` raises `StoreError` once the file of a SQLite database is not the one that was opened: who has
    it open would go on to write what nobody can find.
    """

    name: str
    write: Engine
    read: Engine
    busy_timeout: float
    check: Callable[[], None] = lambda: None

    def dispose(self) -> None:
        self.write.dispose()
        self.read.dispose()


def connect_engines(url: str, busy_timeout: float) -> Engines:
    """Return the engines of a URL. Nothing is opened yet, but a new SQLite file is made ready.

    Raises `ConfigError` and `StoreError` as `open_database` does.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigError(f"The database's address is no URL: {_FORMS}.") from None
    if parsed.drivername == "sqlite":
        return _sqlite(parsed, busy_timeout)
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return _postgres(parsed, busy_timeout)
    raise ConfigError(f"A database of the kind {parsed.drivername!r} is not supported: {_FORMS}.")


def _postgres(url: URL, busy_timeout: float) -> Engines:
    name = repr(url.database or url.username or "postgres")
    # A peer that is silent for 30 s is gone; without this a write could hang for a quarter of an hour, and
    # who waits for an answer that does not come, or for news, for two hours.
    settings = {
        "connect_timeout": "10",
        "tcp_user_timeout": "30000",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "4",
        "application_name": "playhead",
    }
    url = url.set(drivername="postgresql+psycopg").update_query_dict(
        {key: value for key, value in settings.items() if key not in url.query}
    )
    options: dict[str, Any] = {"hide_parameters": True, "pool_pre_ping": True, "max_overflow": 0}
    try:
        write = create_engine(url, pool_size=1, **options)
        read = create_engine(url, pool_size=_READERS, **options)
    except ImportError:
        raise ConfigError(
            "Postgres needs the package 'psycopg'. Install it with: pip install 'playhead[postgres]'"
        ) from None

    for engine in (write, read):
        _bounded(engine, busy_timeout)
    return Engines(name, write, read, busy_timeout)


def _bounded(engine: Engine, busy_timeout: float) -> None:
    """Wait for the locks of others for so many seconds, and hold none for as long while doing nothing: a
    process that is stopped in mid-transaction must not stop the others."""
    wait = int(busy_timeout * 1000)

    @event.listens_for(engine, "connect")
    def _set(connection: Any, _: object) -> None:
        connection.execute(f"SET lock_timeout = {wait}")
        connection.execute(f"SET idle_in_transaction_session_timeout = {max(wait // 2, 1)}")
        connection.commit()


def _sqlite(url: URL, busy_timeout: float) -> Engines:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:") or url.query:
        raise ConfigError(
            "A SQLite database is a file, as in sqlite:///playhead.db."
            " To keep nothing after the process ends, use the stores in memory."
        )
    path = Path(url.database)
    name = repr(path.name)
    _make_ready(path, name, busy_timeout)
    options: dict[str, Any] = {
        "hide_parameters": True,
        "max_overflow": 0,
        "connect_args": {"timeout": busy_timeout},
    }
    write = create_engine(url, pool_size=1, **options)
    read = create_engine(url, pool_size=_READERS, **options)
    _prepare(write, "BEGIN IMMEDIATE")
    _prepare(read, "BEGIN")
    return Engines(name, write, read, busy_timeout, _check_of(str(path), name))


def _check_of(path: str, name: str) -> Callable[[], None]:
    opened = os.stat(path)

    def check() -> None:
        try:
            became = "" if os.path.samestat(os.stat(path), opened) else "replaced"
        except OSError:
            became = "deleted"
        if became:
            raise StoreError(
                f"The database {name} was {became} while it was open. Nothing is kept until its file is put"
                " back, or the database is opened anew."
            )

    return check


def guest_engine(url: URL, size: int) -> Engine:
    """Return an engine for a library that keeps its own tables in the same database, and begins its
    transactions by itself. https://docs.sqlalchemy.org/en/20/dialects/sqlite.html#pysqlite-sqlite"""
    options: dict[str, Any] = {"hide_parameters": True, "pool_size": size, "max_overflow": 0}
    if url.drivername != "sqlite":
        engine = create_engine(url, pool_pre_ping=True, **options)
        _bounded(engine, BUSY_TIMEOUT)
        return engine
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT}, **options)

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        connection.execute("PRAGMA foreign_keys = ON")
        # What is lost with the power is only that something was done, and it is then done again.
        connection.execute("PRAGMA synchronous = NORMAL")

    return engine


def _prepare(engine: Engine, begin: str) -> None:
    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _: object) -> None:
        # The driver would begin transactions on its own, late and not immediate.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted is not left in free pages

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # The driver's own connection: a transaction is short enough for the way there to be felt.
        driver: Any = connection.connection.dbapi_connection
        driver.execute(begin)


def _make_ready(path: Path, name: str, busy_timeout: float) -> None:
    """Make the file, readable by its owner alone, and set it to WAL, which it then stays in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
    except FileExistsError:
        raise StoreError(f"The folder of the database {name} cannot be made: a file has its name.") from None
    except OSError as error:
        raise StoreError(f"The database {name} cannot be made: {error.strerror}.") from None
    deadline = time.monotonic() + busy_timeout
    while True:
        try:
            connection = sqlite3.connect(path, timeout=busy_timeout)
            try:
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
            finally:
                connection.close()
            return
        except sqlite3.Error as error:
            # SQLite does not wait by itself for others that set the mode at the same time.
            if not code_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or time.monotonic() > deadline:
                raise store_error(error, name) from error
            time.sleep(0.01)
