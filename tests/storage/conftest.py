"""The matrix: each test of a store runs in memory, on SQLite and on a real Postgres."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from playhead.storage.base import TurnStore
from playhead.storage.calls import CallLog, MemoryCallLog
from playhead.storage.engine import Database, open_database
from playhead.storage.memory import MemoryTurnStore
from playhead.storage.memory_messages import MemoryMessageLog
from playhead.storage.messages import MessageLog
from playhead.storage.sql_calls import SQLCallLog
from playhead.storage.sql_messages import SQLMessageLog
from playhead.storage.turns import SQLTurnStore
from tests.support.databases import DATABASES, STORES, new_url


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request, request.param, tmp_path)


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    async with await open_database(url) as opened:
        yield opened


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """None is for the form in memory."""
    return None if request.param == "memory" else new_url(request, request.param, tmp_path)


@pytest.fixture
async def store(store_url: str | None) -> AsyncIterator[TurnStore]:
    if store_url is None:
        yield MemoryTurnStore()
        return
    async with await open_database(store_url) as opened:
        yield SQLTurnStore(opened)


@pytest.fixture
async def log(store_url: str | None) -> AsyncIterator[CallLog]:
    if store_url is None:
        yield MemoryCallLog()
        return
    async with await open_database(store_url) as opened:
        yield SQLCallLog(opened)


@pytest.fixture
async def messages(store_url: str | None) -> AsyncIterator[MessageLog]:
    if store_url is None:
        yield MemoryMessageLog()
        return
    async with await open_database(store_url) as opened:
        yield SQLMessageLog(opened)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the time, in milliseconds, at which rows are written from then on."""

    def set_to(milliseconds: int) -> None:
        for module in ("rows", "memory", "memory_messages", "sql_messages"):
            monkeypatch.setattr(f"playhead.storage.{module}.now_ms", lambda: milliseconds)

    return set_to
