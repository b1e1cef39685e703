"""From what a program names as its database to what sessions work with."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from playhead.errors import ConfigError
from playhead.storage.calls import CallLog, MemoryCallLog
from playhead.storage.ledger import Ledger
from playhead.storage.memory_ledger import MemoryLedger

if TYPE_CHECKING:
    from playhead.storage.engine import Database
    from playhead.storage.listen import Listening

DatabaseLike: TypeAlias = "str | Database | Ledger"


@dataclass(frozen=True)
class Books:
    """What sessions write in. `database` is there where it is theirs to close."""

    ledger: Ledger
    calls: CallLog
    database: "Database | None" = None
    listening: "Listening | None" = None
    shared: bool = False
    dialect: str = ""


async def open_books(database: "DatabaseLike | None", keep_runs: int, keep_for: float) -> Books:
    """Open what is named: a URL, a database that is open, a ledger of your own, or memory.

    Raises `ConfigError` and `StoreError` as `open_database` does.
    """
    if database is None:
        return Books(MemoryLedger(keep_runs=keep_runs, keep_for=keep_for), MemoryCallLog())
    if hasattr(database, "record"):
        return Books(cast(Ledger, database), MemoryCallLog())
    try:
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
    own = opened if isinstance(database, str) else None
    return Books(SQLLedger(opened), SQLCallLog(opened), own, listening, True, opened.dialect)
