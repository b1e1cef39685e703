"""Stores under several processes, and under the death of one."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from playhead.storage.engine import open_database
from playhead.storage.turns import SQLTurnStore
from playhead.types import UserMessage
from tests.support.postgres import NoPostgresError, postgres

ROOT = Path(__file__).parent.parent.parent

# Says that it is ready, waits for its turn, then writes messages and tells the id of each once it is
# written: `count` of them, or without end.
WRITER = """
import asyncio, itertools, sys
from playhead.storage.engine import open_database
from playhead.storage.turns import SQLTurnStore
from playhead.types import UserMessage

async def main(url, name, count):
    print("ready", flush=True)
    sys.stdin.readline()
    async with await open_database(url) as database:
        store = SQLTurnStore(database)
        async def one(number):
            message = UserMessage("x" * 2000, id=f"{name}-{number}")
            await store.append(f"t{number % 2}", message, turn_id=f"{name}-{number}")
            print(message.id, flush=True)
        for first in itertools.count(0, 5) if count == 0 else [0]:
            await asyncio.gather(*(one(number) for number in range(first, first + (count or 5))))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@contextmanager
def writers(url: str, processes: int, count: int) -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that all begin to write at the same time. What is left of them is killed at the end."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, f"p{n}", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for n in range(processes)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate(timeout=30)


@pytest.mark.anyio
async def test_eight_processes_open_one_new_file_at_once(tmp_path: Path) -> None:
    """Q200: none of them is told that it is locked, and every message is there once."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with writers(url, processes=8, count=10) as started:
        for process in started:
            assert process.wait(60) == 0
    async with await open_database(url) as database:
        store = SQLTurnStore(database)
        ids = []
        for thread in ("t0", "t1"):
            rows = await store.window(thread, turns=None)
            assert [row.seq for row in rows] == list(range(1, 41))
            ids += [row.id for row in rows]
        assert sorted(ids) == sorted(f"p{n}-{number}" for n in range(8) for number in range(10))


@pytest.mark.anyio
async def test_a_killed_writer_leaves_all_that_it_said_was_written(url: str) -> None:
    """S18: after kill -9 the store is whole, what was confirmed is in it, and it is written as before."""
    told: set[str] = set()
    for _ in range(2):
        with writers(url, processes=1, count=0) as (process,):
            assert process.stdout is not None
            told |= {process.stdout.readline().strip() for _ in range(57)}
            os.kill(process.pid, signal.SIGKILL)
            told |= {line.strip() for line in process.stdout.readlines() if line.endswith("\n")}
        async with await open_database(url) as database:
            store = SQLTurnStore(database)
            rows = [*await store.window("t0", turns=None), *await store.window("t1", turns=None)]
            assert told <= {row.id for row in rows}
            assert len({row.id for row in rows}) == len(rows)
            assert all(row.content == "x" * 2000 for row in rows)
            for thread in ("t0", "t1"):
                seqs = [row.seq for row in await store.window(thread, turns=None)]
                assert seqs == list(range(1, len(seqs) + 1))
            again = await store.append("t0", UserMessage("other", id="p0-0"), turn_id="late")
            assert (again.seq, again.content) == (rows[0].seq, "x" * 2000)
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


def test_the_postgres_of_killed_tests_is_stopped() -> None:
    """After kill -9 of whoever started it neither Postgres nor its folder stays."""
    script = (
        "from tests.support.postgres import postgres\nwith postgres() as url: print(url, flush=True); input()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().partition("host=")[2].strip())
    server = (folder / "postmaster.pid").read_text().split()[0]
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate(timeout=30)
    # The folder goes last.
    deadline = time.monotonic() + 60
    while folder.parent.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not folder.parent.exists()
    state = subprocess.run(["ps", "-o", "stat=", "-p", server], capture_output=True, text=True, check=False)
    assert state.stdout.strip()[:1] in ("", "Z")


def test_a_postgres_that_cannot_start_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests fail then, and are not skipped."""
    monkeypatch.setenv("PGSERVER_POSTGRES_VERSION", "1")
    with (
        pytest.raises(NoPostgresError, match=r"(?s)Install what the tests need.*It said:.*Unsupported"),
        postgres(),
    ):
        pass
