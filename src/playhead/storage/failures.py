"""What a database says when it fails, in words that help.

The driver's own text is not passed on: it may hold what was to be written, and paths.
"""

from sqlalchemy.exc import DBAPIError

from playhead.errors import StoreError

_LOCKED = "was locked by others for too long. Nothing was written; try again."
_FULL = "has no room left: its disk is full. Nothing of this was written; free space and try again."
_READ_ONLY = "cannot be written: it is read-only. Give the process the right to write it and its folder."
_GONE = (
    "cannot be reached, or the connection was lost, or the login was refused."
    " Check that it runs, and its address, name, user and password."
)
_DAMAGED = "is damaged, or no database. Put it aside and restore a copy, or name another."
_NOT_OPENED = "cannot be opened. Check that its folder exists, and the right to write in it."

# By the beginning of SQLite's error name and of Postgres's SQLSTATE. The first that fits holds.
# https://www.sqlite.org/rescode.html
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_BY_CODE = {
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_FULL": _FULL,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_CANTOPEN": _NOT_OPENED,
    "SQLITE_PERM": _NOT_OPENED,
    "55P03": _LOCKED,
    "53100": _FULL,
    "25006": _READ_ONLY,
    "25P03": _GONE,
    "28": _GONE,
    "3D": _GONE,
    "08": _GONE,
    "57P": _GONE,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}
_TRY_AGAIN = ("40001", "40P01")  # serialisation failure, deadlock: of two that met, this one gave way


def code_of(error: BaseException) -> str:
    """Return SQLite's name of an error or Postgres's SQLSTATE; "" where there is none."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    return code if isinstance(code, str) else ""


def may_try_again(error: BaseException) -> bool:
    """True when the database undid the work because of another, and the same may now pass."""
    return code_of(error) in _TRY_AGAIN


def is_locked(error: BaseException) -> bool:
    """True when others held what was to be written for too long."""
    return _meaning(error) == _LOCKED


def concerns_all(error: BaseException) -> bool:
    """True when what failed is the database and not this piece of work: others would fail too."""
    return (isinstance(error, DBAPIError) and error.connection_invalidated) or (
        _meaning(error) in (_READ_ONLY, _GONE, _DAMAGED, _NOT_OPENED)
        # SQLite locks the whole file, Postgres a thread.
        or (is_locked(error) and code_of(error).startswith("SQLITE"))
    )


def store_error(error: Exception, database: str) -> StoreError:
    """Return what the user of a store is told. `database` is a name that may be shown."""
    if isinstance(error, StoreError):
        return error
    meaning = _meaning(error)
    if meaning is None:
        code = code_of(error)
        kind = type(error.orig if isinstance(error, DBAPIError) else error).__name__
        meaning = f"failed with {kind}{f' ({code})' if code else ''}. Nothing of this was written."
    told = StoreError(f"The database {database} {meaning}")
    told.passing = meaning in (_LOCKED, _FULL, _GONE)
    return told


def _meaning(error: BaseException) -> str | None:
    code = code_of(error)
    for beginning, meaning in _BY_CODE.items():
        if code and code.startswith(beginning):
            return meaning
    if isinstance(error, DBAPIError) and (error.connection_invalidated or _never_connected(error)):
        return _GONE
    return None


def _never_connected(error: DBAPIError) -> bool:
    # psycopg has no SQLSTATE for what it could not ask the server.
    kind = type(error.orig)
    return kind.__module__.startswith("psycopg") and kind.__name__ in (
        "OperationalError",
        "ConnectionTimeout",
    )
