"""Statements that are built and compiled once: on the way of each row, SQLAlchemy's own way through a
statement costs more than the database does."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.sql.base import Executable

from playhead.storage.engine import Database


class Prepared:
    """A statement for one database. Values are text, integers and None, which need no conversion.

    Args:
        statement: any of SQLAlchemy's, without expanding parameters.
        columns: of an INSERT that names no values: those that are given.

    Raises `KeyError` where a value is not given.
    """

    def __init__(
        self, database: Database, statement: Executable, columns: Sequence[str] | None = None
    ) -> None:
        compiled: Any = statement.compile(  # type: ignore[attr-defined]  # every statement has it
            dialect=database.engine_dialect,
            column_keys=columns,
        )
        self._sql = str(compiled)
        order: Sequence[str] | None = compiled.positiontup
        # Of one name it would return the bare value.
        self._in_order = itemgetter(*order) if order and order[1:] else None
        self._only = order[0] if order and not order[1:] else None
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}
        self._direct = database.dialect == "sqlite"

    def first(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[Any] | None:
        """Execute it and return its first row, if there is one."""
        if self._direct:
            row: Sequence[Any] | None = _driver(connection).execute(self._sql, self._of(values)).fetchone()
            return row
        return connection.exec_driver_sql(self._sql, self._of(values)).first()

    def all(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Execute it and return its rows."""
        if self._direct:
            rows: Sequence[Sequence[Any]] = (
                _driver(connection).execute(self._sql, self._of(values)).fetchall()
            )
            return rows
        return connection.exec_driver_sql(self._sql, self._of(values)).all()

    def changed(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Execute it and return how many rows it changed."""
        if self._direct:
            count: int = _driver(connection).execute(self._sql, self._of(values)).rowcount
            return count
        return connection.exec_driver_sql(self._sql, self._of(values)).rowcount

    def run_all(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Execute it once for each row."""
        parameters = [self._of(row) for row in rows]
        if self._direct:
            _driver(connection).executemany(self._sql, parameters)
        else:
            connection.exec_driver_sql(self._sql, parameters)

    def _of(self, values: Mapping[str, Any]) -> Any:
        named = {**self._fixed, **values} if self._fixed else values
        if self._in_order is not None:
            return self._in_order(named)
        return dict(named) if self._only is None else (named[self._only],)


def _driver(connection: Connection) -> Any:
    # SQLite's own errors say all that there is to say; of a server's, the pool must hear.
    return connection.connection.dbapi_connection
