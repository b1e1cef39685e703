"""From what a program names as its database to what sessions work with."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from playhead.encode import error_text
from playhead.errors import ConfigError, PlayheadError
from playhead.gates import OPEN, GateState, GateStore, MemoryGateStore
from playhead.llm.breaker import CLOSED, BreakerState, BreakerStore, MemoryBreakerStore
from playhead.storage.calls import CallLog, MemoryCallLog
from playhead.storage.edits import EditStore, MemoryEditStore
from playhead.storage.ledger import Ledger
from playhead.storage.memory_ledger import MemoryLedger
from playhead.storage.projects import MemoryProjectStore, ProjectStore

if TYPE_CHECKING:
    from playhead.storage.engine import Database
    from playhead.storage.listen import Listening

logger = logging.getLogger("playhead")

S = TypeVar("S")
T = TypeVar("T")
DatabaseLike: TypeAlias = "str | Database | Ledger"


@dataclass(frozen=True)
class Books:
    """What sessions write in, and what an application keeps beside it.

    `closes`: the database is theirs to close.
    """

    ledger: Ledger
    calls: CallLog
    breakers: BreakerStore
    gates: GateStore
    projects: ProjectStore
    edits: EditStore
    database: "Database | None" = None
    listening: "Listening | None" = None
    shared: bool = False
    closes: bool = False


class Shared(Generic[S]):
    """States where the sessions keep theirs, which are opened when first needed.

    Args:
        books: opens them.
        store: which of their stores.
        default: what counts while the database cannot be opened.
    """

    def __init__(
        self, books: Callable[[], Awaitable[Books]], store: Callable[[Books], Any], default: S
    ) -> None:
        self._books = books
        self._store = store
        self._default = default

    async def update(self, name: str, change: Callable[[S], tuple[S, T]]) -> T:
        """See `BreakerStore` and `GateStore`."""
        try:
            store = self._store(await self._books())
        except PlayheadError as error:
            logger.warning("The state of %s is not known: %s", name, error_text(error))
            return change(self._default)[1]
        answer: T = await store.update(name, change)
        return answer


async def open_books(database: "DatabaseLike | None", keep_runs: int, keep_for: float) -> Books:
    """Open what is named: a URL, a database that is open, a ledger of your own, or memory.

    Raises `ConfigError` and `StoreError` as `open_database` does.
    """
    if database is None:
        return _in_memory(MemoryLedger(keep_runs=keep_runs, keep_for=keep_for))
    if hasattr(database, "record"):
        return _in_memory(cast(Ledger, database))
    try:
        from playhead.storage.breakers import SQLBreakerStore
        from playhead.storage.engine import Database, open_database
        from playhead.storage.listen import Listening
        from playhead.storage.sql_calls import SQLCallLog
        from playhead.storage.sql_edits import SQLEditStore
        from playhead.storage.sql_ledger import SQLLedger
        from playhead.storage.sql_projects import SQLProjectStore
    except ImportError:
        raise ConfigError(
            "A database needs the package 'sqlalchemy'. Install it with: pip install 'playhead[store]'"
        ) from None
    opened = await open_database(database) if isinstance(database, str) else database
    assert isinstance(opened, Database)
    listening = Listening(opened.url) if opened.dialect == "postgresql" else None
    own = isinstance(database, str)
    breakers = SQLBreakerStore(opened, BreakerState, CLOSED)
    gates: SQLBreakerStore[GateState] = SQLBreakerStore(opened, GateState, OPEN, fresh=0.1, of="gates")
    return Books(
        SQLLedger(opened),
        SQLCallLog(opened),
        breakers,
        gates,
        SQLProjectStore(opened),
        SQLEditStore(opened),
        opened,
        listening,
        True,
        own,
    )


def _in_memory(ledger: Ledger) -> Books:
    return Books(
        ledger,
        MemoryCallLog(),
        MemoryBreakerStore(),
        MemoryGateStore(),
        MemoryProjectStore(),
        MemoryEditStore(),
    )
