"""A `CallLog` in a database."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Delete, Select, case, delete, func, insert, select

from playhead.encode import scrub
from playhead.storage.calls import (
    ANY_CALL,
    DEFAULT_CALLS,
    CallFilter,
    CallRow,
    ProviderCost,
    clean_record,
    log_failure,
)
from playhead.storage.engine import Database
from playhead.storage.prepared import Prepared
from playhead.storage.tables import ai_call_log, key_of
from playhead.types import CallRecord, CallStatus

_calls = ai_call_log.c
_FIELDS = CallRecord.__struct_fields__
_READ = select(_calls.row_id, *(_calls[name] for name in _FIELDS))


class SQLCallLog:
    """Model calls in a database.

    Args:
        database: what `open_database` returned. It is not closed with the log.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        columns = [column.key for column in _calls if column.key != "row_id"]
        self._insert = Prepared(database, insert(ai_call_log), columns)

    async def record(self, record: CallRecord) -> None:
        """See `CallLog.record`."""
        try:
            values = msgspec.structs.asdict(clean_record(record)) | {
                "tenant_key": key_of(record.tenant_id),
                "thread_key": key_of(record.thread_id),
                "turn_key": key_of(record.turn_id),
            }
            await self._database.write(lambda connection: self._insert.run_all(connection, [values]))
        except Exception as error:
            log_failure(error)

    async def calls(
        self,
        which: CallFilter = ANY_CALL,
        *,
        tenant_id: str | None = None,
        limit: int = DEFAULT_CALLS,
        before: int | None = None,
    ) -> Sequence[CallRow]:
        """See `CallLog.calls`."""
        query = _READ.where(*_where(which, tenant_id)).order_by(_calls.row_id.desc()).limit(max(limit, 0))
        if before is not None:
            query = query.where(_calls.row_id < before)
        return [CallRow(row[0], CallRecord(*row[1:])) for row in await self._rows(query)]

    async def counts(
        self, which: CallFilter = ANY_CALL, *, tenant_id: str | None = None
    ) -> Mapping[CallStatus, int]:
        """See `CallLog.counts`."""
        query = select(_calls.status, func.count()).where(*_where(which, tenant_id)).group_by(_calls.status)
        return dict(await self._rows(query))

    async def costs(
        self, which: CallFilter = ANY_CALL, *, tenant_id: str | None = None
    ) -> Sequence[ProviderCost]:
        """See `CallLog.costs`."""
        unpriced = case(((_calls.status == "success") & _calls.cost_micro_usd.is_(None), 1), else_=0)
        query = (
            select(_calls.provider, func.count(), func.sum(_calls.cost_micro_usd), func.sum(unpriced))
            .where(*_where(which, tenant_id))
            .group_by(_calls.provider)
        )
        # Sorted here: databases do not agree on the order of letters.
        return [
            ProviderCost(provider, calls, int(cost or 0), int(missing))
            for provider, calls, cost, missing in sorted(await self._rows(query))
        ]

    async def delete_thread(self, thread_id: str, *, tenant_id: str | None = None) -> int:
        """See `CallLog.delete_thread`."""
        thread_key = key_of(thread_id)
        return await self._delete(_calls.thread_key == thread_key, _calls.tenant_key == key_of(tenant_id))

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """See `CallLog.delete_tenant`."""
        return await self._delete(_calls.tenant_key == key_of(tenant_id))

    async def delete_before(self, created_at: int) -> int:
        """See `CallLog.delete_before`."""
        return await self._delete(_calls.created_at < created_at)

    async def _rows(self, query: Select[Any]) -> list[Any]:
        return await self._database.read(lambda connection: [tuple(row) for row in connection.execute(query)])

    async def _delete(self, *which: ColumnElement[bool]) -> int:
        statement: Delete = delete(ai_call_log).where(*which)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount)


def _where(which: CallFilter, tenant_id: str | None) -> Sequence[ColumnElement[bool]]:
    names = ("task", "provider", "model", "status")
    wanted = {_calls[name]: scrub(value) for name in names if (value := getattr(which, name)) is not None}
    if not which.all_tenants:
        wanted[_calls.tenant_key] = key_of(tenant_id)
    if which.thread_id is not None:
        wanted[_calls.thread_key] = key_of(which.thread_id)
    if which.turn_id is not None:
        wanted[_calls.turn_key] = key_of(which.turn_id)
    where = [column == value for column, value in wanted.items()]
    if which.since is not None:
        where.append(_calls.created_at >= which.since)
    if which.until is not None:
        where.append(_calls.created_at < which.until)
    return where
