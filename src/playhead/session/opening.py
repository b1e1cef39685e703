"""From what a program names as its database to what sessions work with."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from playhead.encode import error_text
from playhead.errors import ConfigError, PlayheadError
from playhead.llm.breaker import CLOSED, BreakerState, BreakerStore, MemoryBreakerStore
from playhead.storage.calls import CallLog, MemoryCallLog
from playhead.storage.ledger import Ledger
from playhead.storage.memory_ledger import MemoryLedger

if TYPE_CHECKING:
    from playhead.storage.engine import Database
    from playhead.storage.listen import Listening

logger = logging.getLogger("playhead")

T = TypeVar("T")
DatabaseLike: TypeAlias = "str | Database | Ledger"


@dataclass(frozen=True)
class Books:
    """What sessions write in. `closes`: the database is theirs to close."""

    ledger: Ledger
    calls: CallLog
    breakers: BreakerStore
    database: "Database | None" = None
    listening: "Listening | None" = None
    shared: bool = False
    closes: bool = False


class SharedBreakers:
    """The states of providers where the sessions keep theirs, which are opened when first needed."""

    def __init__(self, books: Callable[[], Awaitable[Books]]) -> None:
        self._books = books

    async def update(self, provider: str, change: Callable[[BreakerState], tuple[BreakerState, T]]) -> T:
        """See `BreakerStore`. Where the database cannot be opened, the provider counts as healthy."""
        try:
            store = (await self._books()).breakers
        except PlayheadError as error:
            logger.warning("The state of %s is not known: %s", provider, error_text(error))
            return change(CLOSED)[1]
        return await store.update(provider, change)


async def open_books(database: "DatabaseLike | None", keep_runs: int, keep_for: float) -> Books:
    """Open what is named: a URL, a database that is open, a ledger of your own, or memory.

    Raises `ConfigError` and `StoreError` as `open_database` does.
    """
    if database is None:
        ledger = MemoryLedger(keep_runs=keep_runs, keep_for=keep_for)
        return Books(ledger, MemoryCallLog(), MemoryBreakerStore())
    if hasattr(database, "record"):
        return Books(cast(Ledger, database), MemoryCallLog(), MemoryBreakerStore())
    try:
        from playhead.storage.breakers import SQLBreakerStore
        from playhead.storage.engine import Database, open_database
        from playhead.storage.listen import Listening
        from playhead.storage.sql_calls import SQLCallLog
        from playhead.storage.sql_ledger import SQLLedger
    except ImportError:
        raise ConfigError(
            "A database needs the package 'sqlalchemy'. Install it with: pip install 'playhead[store]'"
        ) from None
    opened = await open_database(database) if isinstance(database, str) else database
    assert isinstance(opened, Database)
    listening = Listening(opened.url) if opened.dialect == "postgresql" else None
    own = isinstance(database, str)
    breakers = SQLBreakerStore(opened, BreakerState, CLOSED)
    return Books(SQLLedger(opened), SQLCallLog(opened), breakers, opened, listening, True, own)
