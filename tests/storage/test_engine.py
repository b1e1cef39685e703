"""What a database on threads of its own promises: together, in order, nothing lost, clear errors."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, func, select, text

from playhead.errors import ConfigError, StoreError
from playhead.storage.connect import connect_engines
from playhead.storage.engine import Database, open_database
from playhead.storage.turns import SQLTurnStore
from playhead.types import UserMessage

pytestmark = pytest.mark.anyio


def run(statement: str) -> Callable[[Connection], Any]:
    return lambda connection: connection.execute(text(statement)).close()


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


async def numbers(database: Database) -> list[int]:
    query = text("SELECT n FROM numbers ORDER BY n")
    return await database.read(lambda connection: list(connection.execute(query).scalars()))


@pytest.fixture
async def table(database: Database) -> Database:
    await database.write(run("CREATE TABLE numbers (n INTEGER NOT NULL UNIQUE)"))
    return database


def held(database: Database) -> tuple[threading.Event, "asyncio.Task[bool]"]:
    """Keep the writer busy until the event is set, so that what follows waits together."""
    hold = threading.Event()
    return hold, asyncio.create_task(database.write(lambda _: hold.wait(30)))


async def test_what_waits_together_is_committed_together(table: Database) -> None:
    """S18: many writes at once cost few commits."""
    said: list[object] = []
    if table.dialect == "sqlite":
        await table.write(lambda c: c.connection.dbapi_connection.set_trace_callback(said.append))  # type: ignore[union-attr]
    else:
        event.listen(table._engines.write, "commit", lambda connection: said.append("COMMIT"))
    hold, busy = held(table)
    await asyncio.sleep(0)
    writes = [asyncio.create_task(table.write(run(f"INSERT INTO numbers VALUES ({n})"))) for n in range(100)]
    await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(busy, *writes)
    assert await numbers(table) == list(range(100))
    assert 1 <= said.count("COMMIT") <= 3


async def test_one_that_fails_takes_no_other_with_it(table: Database) -> None:
    """S18: of writes that wait together each succeeds or fails for itself."""

    def refuse(connection: Connection) -> None:
        connection.execute(text("INSERT INTO numbers VALUES (99)"))
        raise LookupError("not this one")

    hold, busy = held(table)
    await asyncio.sleep(0)
    works = [run(f"INSERT INTO numbers VALUES ({n})") for n in (1, 2, 1, 3)] + [refuse]
    writes = [asyncio.create_task(table.write(work)) for work in works]
    await asyncio.sleep(0)
    hold.set()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert await busy
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        type(None),
        StoreError,
        type(None),
        StoreError,
    ]
    assert "IntegrityError" in str(outcomes[2]) or "UniqueViolation" in str(outcomes[2])
    assert await numbers(table) == [1, 2, 3]


async def test_closing_commits_what_waits_and_ends_it(url: str) -> None:
    """S18: nothing that was accepted is lost at the end; what comes later is told."""
    database = await open_database(url)
    await database.write(run("CREATE TABLE numbers (n INTEGER)"))
    hold, busy = held(database)
    await asyncio.sleep(0)
    write = asyncio.create_task(database.write(run("INSERT INTO numbers VALUES (1)")))
    await asyncio.sleep(0)
    closing = asyncio.create_task(database.aclose())
    hold.set()
    await asyncio.gather(busy, write, closing)
    await database.aclose()
    for late in (database.write(run("SELECT 1")), database.read(run("SELECT 1"))):
        with pytest.raises(StoreError, match="was closed"):
            await late
    async with await open_database(url) as again:
        assert await numbers(again) == [1]


# Hands over a write, and ends without waiting for it and without closing the database.
LEAVER = """
import asyncio, sys
from sqlalchemy import text
from playhead.storage.engine import open_database

async def main(url):
    database = await open_database(url)
    create = text("CREATE TABLE numbers (n INTEGER)")
    asyncio.create_task(database.write(lambda connection: connection.execute(create).close()))
    await asyncio.sleep(0)
    return database

database = asyncio.run(main(sys.argv[1]))
"""


async def test_a_process_that_does_not_close_ends_and_what_it_handed_over_is_written(url: str) -> None:
    """S18: the writer's thread neither holds the end of a process up nor is cut off by it."""
    leaving = [sys.executable, "-c", LEAVER, url]
    assert (await asyncio.to_thread(subprocess.run, leaving, timeout=30)).returncode == 0
    async with await open_database(url) as database:
        assert await numbers(database) == []


async def test_a_database_serves_several_event_loops(table: Database) -> None:
    """S18: it belongs to the process and not to a loop."""

    def other(first: int) -> None:
        async def write() -> None:
            for n in range(first, first + 10):
                await table.write(run(f"INSERT INTO numbers VALUES ({n})"))

        asyncio.run(write())

    await asyncio.gather(*(asyncio.to_thread(other, first) for first in (0, 10, 20)))
    assert await numbers(table) == list(range(30))


async def test_many_open_one_new_database_at_once(url: str) -> None:
    """Q200: eight that open a new database together all get it, and it is made once."""

    def other(n: int) -> int:
        async def use() -> int:
            async with await open_database(url) as database:
                store = SQLTurnStore(database)
                return (await store.append("t", UserMessage("hi", id=f"m{n}"), turn_id=f"{n}")).seq

        return asyncio.run(use())

    seqs = await asyncio.gather(*(asyncio.to_thread(other, n) for n in range(8)))
    assert sorted(seqs) == list(range(1, 9))


async def test_two_that_write_one_thread_share_its_order(url: str) -> None:
    """S18: `seq` has neither gaps nor doubles though two processes' writers append."""
    async with await open_database(url) as one, await open_database(url) as two:
        stores = [SQLTurnStore(one), SQLTurnStore(two)]
        rows = await asyncio.gather(
            *(
                stores[n % 2].append(f"t{n % 3}", UserMessage("hi", id=f"m{n // 2}"), turn_id=f"{n // 2}")
                for n in range(120)
            )
        )
        for thread in ("t0", "t1", "t2"):
            window = await stores[0].window(thread, turns=None)
            assert [row.seq for row in window] == list(range(1, 41))
            assert {(row.id, row.seq) for row in rows if row.thread_id == thread} == {
                (row.id, row.seq) for row in window
            }


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_full_disk_is_told_and_loses_nothing(table: Database) -> None:
    """Q206: the write fails whole, what was there stays, and it goes on once there is room."""
    await table.write(run("INSERT INTO numbers VALUES (1)"))
    pages = await table.read(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar_one())
    await table.write(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count = {pages}").close())
    store = SQLTurnStore(table)
    with pytest.raises(StoreError, match=r"'store\d+\.db' has no room left.*free space"):
        await store.append("t", UserMessage("x" * 100_000, id="m"), turn_id="a")
    assert await numbers(table) == [1]
    assert list(await store.window("t")) == []
    await table.write(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 100000").close())
    assert (await store.append("t", UserMessage("x" * 100_000, id="m"), turn_id="a")).seq == 1


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_locked_database_is_told_after_the_time_out(url: str, database: Database) -> None:
    """Q200: a write waits for others, then fails with what to do, and works once they are done."""
    other = create_engine(url)
    async with await open_database(url, busy_timeout=0.05) as impatient:
        store = SQLTurnStore(impatient)
        with other.connect() as connection:
            connection.connection.driver_connection.execute("BEGIN IMMEDIATE")  # type: ignore[union-attr]
            with pytest.raises(StoreError, match=r"locked by others.*try again"):
                await store.append("t", UserMessage("one", id="m"), turn_id="a")
            assert list(await store.window("t")) == []  # who only reads does not wait
            patient = asyncio.create_task(
                SQLTurnStore(database).append("t", UserMessage("two", id="n"), turn_id="b")
            )
            await asyncio.sleep(0)
            connection.connection.driver_connection.rollback()  # type: ignore[union-attr]
            assert (await patient).seq == 1
        assert (await store.append("t", UserMessage("one", id="m"), turn_id="a")).seq == 2
    other.dispose()


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_locked_thread_is_told_after_the_time_out(url: str, database: Database) -> None:
    """Q200: on Postgres a thread is locked and not the database."""
    store = SQLTurnStore(database)
    await store.append("t", UserMessage("one"), turn_id="a")
    hold = threading.Event()
    lock = text("SELECT last_seq FROM agent_threads FOR UPDATE")
    holding = asyncio.create_task(database.write(lambda c: c.execute(lock).all() and hold.wait(30)))
    async with await open_database(url, busy_timeout=0.2) as impatient:
        other = SQLTurnStore(impatient)
        outcomes = await asyncio.gather(
            *(other.append("t", UserMessage("two", id=id), turn_id="b") for id in ("m", "n")),
            other.append("u", UserMessage("elsewhere"), turn_id="c"),
            return_exceptions=True,
        )
        hold.set()
        await holding
        assert ["locked by others" in str(outcome) for outcome in outcomes] == [True, True, False]
        assert [row.content for row in await other.window("u")] == ["elsewhere"]
        assert (await other.append("t", UserMessage("two", id="m"), turn_id="b")).seq == 2


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_who_is_stopped_in_mid_transaction_does_not_stop_the_others(
    url: str, database: Database
) -> None:
    """Issue 6: what a process held that stands still is free again before others give up on it."""
    store = SQLTurnStore(database)
    await store.append("t", UserMessage("one"), turn_id="a")
    locked, go_on = threading.Event(), threading.Event()

    def stand_still(connection: Connection) -> None:
        connection.execute(text("SELECT last_seq FROM agent_threads FOR UPDATE")).all()
        locked.set()
        go_on.wait(30)

    async with await open_database(url, busy_timeout=0.4) as still:
        stopped = asyncio.create_task(still.write(stand_still))
        await asyncio.to_thread(locked.wait, 30)
        assert (await store.append("t", UserMessage("two"), turn_id="b")).seq == 2
        go_on.set()
        with pytest.raises(StoreError) as caught:
            await stopped
        assert caught.value.passing
        assert (await SQLTurnStore(still).append("t", UserMessage("three"), turn_id="c")).seq == 3


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("became", ["deleted", "replaced"])
async def test_a_file_that_is_not_the_one_that_was_opened_is_told(
    url: str, database: Database, became: str
) -> None:
    """Q206: nothing is confirmed that is in no file of that name, and no empty file takes its place."""
    store, path = SQLTurnStore(database), file_of(url)
    await store.append("t", UserMessage("one", id="m"), turn_id="a")
    aside = path.rename(path.with_suffix(".old"))
    if became == "replaced":
        path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"'store\d+\.db' was {became} while it was open.*put back"):
            await store.append("t", UserMessage("two", id="n"), turn_id="b")
        with pytest.raises(StoreError, match=became):
            await store.window("t")
    assert path.exists() == (became == "replaced")
    aside.rename(path)
    assert (await store.append("u", UserMessage("three", id="o"), turn_id="c")).seq == 1
    assert [row.id for row in await store.window("u")] == ["o"]


async def test_a_read_only_database_is_told(url: str, database: Database) -> None:
    """Q206: it can be read, and a write says why it cannot be written."""
    await SQLTurnStore(database).append("t", UserMessage("kept"), turn_id="a")
    async with await open_database(url) as opened:
        only = "PRAGMA query_only = ON" if opened.dialect == "sqlite" else "SET SESSION CHARACTERISTICS AS"
        only += "" if opened.dialect == "sqlite" else " TRANSACTION READ ONLY"
        await opened.write(lambda c: c.exec_driver_sql(only).close())
        store = SQLTurnStore(opened)
        with pytest.raises(StoreError, match="cannot be written: it is read-only"):
            await store.append("t", UserMessage("more"), turn_id="b")
        assert [row.content for row in await store.window("t")] == ["kept"]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_lost_connection_is_told_and_made_again(url: str, database: Database) -> None:
    """Q206: what was under way fails and is not half done; the next finds the database."""
    store = SQLTurnStore(database)
    killer = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")

    def kill_all() -> None:
        with killer.connect() as connection:
            others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'playhead'"
            connection.execute(text(f"SELECT pg_terminate_backend(pid) {others}")).all()

    def cut(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE half (n INTEGER)"))
        kill_all()
        connection.execute(text("SELECT 1"))

    with pytest.raises(StoreError, match="cannot be reached, or the connection was lost"):
        await database.write(cut)
    assert (await store.append("t", UserMessage("one"), turn_id="a")).seq == 1
    kill_all()
    assert (await store.append("t", UserMessage("two"), turn_id="b")).seq == 2
    assert len(await store.window("t")) == 2
    half = select(func.to_regclass("half"))
    assert await database.read(lambda c: c.execute(half).scalar()) is None

    def refused(connection: Connection) -> None:
        connection.execute(text("SELECT 1"))
        kill_all()
        raise StoreError("refused")

    # The connection is found to be lost only by undoing what was refused.
    with pytest.raises(StoreError):
        await database.write(refused)
    async with asyncio.timeout(10):
        assert (await store.append("t", UserMessage("three"), turn_id="c")).seq == 3
    killer.dispose()


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_of_two_that_wait_for_each_other_both_are_done(url: str, database: Database) -> None:
    """Q200: Postgres ends a deadlock by undoing one side, which is then done again."""
    await database.write(run("CREATE TABLE locks AS SELECT 1 AS n, 0 AS v UNION SELECT 2, 0"))
    both = threading.Barrier(2, timeout=30)

    def crossing(first: int, second: int) -> Callable[[Connection], None]:
        met = False

        def work(connection: Connection) -> None:
            nonlocal met
            connection.execute(text(f"UPDATE locks SET v = v + 1 WHERE n = {first}"))
            if not met:
                met = True
                both.wait()
            connection.execute(text(f"UPDATE locks SET v = v + 1 WHERE n = {second}"))

        return work

    async with await open_database(url) as other:
        await asyncio.gather(database.write(crossing(1, 2)), other.write(crossing(2, 1)))
    values = text("SELECT v FROM locks ORDER BY n")
    assert await database.read(lambda c: list(c.execute(values).scalars())) == [2, 2]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("store.db", "is no URL"),
        ("", "is no URL"),
        ("mysql://u:secret@h/d", "kind 'mysql' is not supported"),
        ("sqlite://", "is a file"),
        ("sqlite:///:memory:", "is a file"),
        ("sqlite:///file:x?uri=true", "is a file"),
        ("postgresql://u:secret@h:port/d", "is no URL"),
    ],
)
async def test_a_wrong_address_says_what_to_write(bad: str, says: str) -> None:
    """Q206: the text names the forms that there are, and no password."""
    with pytest.raises(ConfigError, match=says) as caught:
        await open_database(bad)
    assert "secret" not in str(caught.value)
    assert "sqlite:///" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"no database " * 500, "is damaged, or no database"), (None, "cannot be opened")],
    ids=["garbage", "folder"],
)
async def test_what_is_no_database_is_told_and_left_alone(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    """Q206: the text has the file's name and not where it is; the file stays as it was."""
    path = tmp_path / "x.db"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"'x\.db' {says}") as caught:
        await open_database(f"sqlite:///{path}")
    assert str(tmp_path) not in str(caught.value)
    assert path.is_dir() if content is None else path.read_bytes() == content


async def test_a_new_file_is_its_owners_and_its_folder_is_made(tmp_path: Path) -> None:
    """S19: what people said is not for every user of the machine to read."""
    path = tmp_path / "new" / "folder" / "x.db"
    async with await open_database(f"sqlite:///{path}") as database:
        await SQLTurnStore(database).append("t", UserMessage("hi"), turn_id="a")
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made"):
        await open_database(f"sqlite:///{tmp_path / 'file' / 'x.db'}")


async def test_a_postgres_that_is_not_there_is_told(tmp_path: Path) -> None:
    """Q206: a database that is gone is told at once, without the password."""
    with pytest.raises(StoreError, match="'db' cannot be reached") as caught:
        await open_database(f"postgresql://user:secret@/db?host={tmp_path}")
    assert "secret" not in str(caught.value)


async def test_a_postgres_without_that_database_is_told(postgres_server: str) -> None:
    """Q206: the server's refusal says what to check."""
    with pytest.raises(StoreError, match=r"'nothing' cannot be reached, .* or the login was refused"):
        await open_database(postgres_server.replace("/postgres?", "/nothing?"))


async def test_no_error_holds_what_was_to_be_written(database: Database) -> None:
    """Q206: what was said does not leave through an error."""
    await database.write(run("CREATE TABLE words (word TEXT UNIQUE)"))
    insert = text("INSERT INTO words VALUES (:word)").bindparams(word="what the patient said")
    await database.write(lambda connection: connection.execute(insert).close())
    with pytest.raises(StoreError, match=r"failed with \w+ \(\w+\)\. Nothing of this was written") as caught:
        await database.write(lambda connection: connection.execute(insert).close())
    assert "patient" not in str(caught.value)


def test_the_engines_name_holds_no_password() -> None:
    engines = connect_engines("postgres://u:secret@127.0.0.1/chats", 1.0)
    assert engines.name == "'chats'"
    assert engines.write.url.drivername == "postgresql+psycopg"
    engines.dispose()
