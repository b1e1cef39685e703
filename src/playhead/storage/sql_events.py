"""An `EventLog` in a database."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, insert, select

from playhead.storage.engine import Database
from playhead.storage.ledger import DEFAULT_PAGE, EventPage, EventRow, NewEvent, Thread
from playhead.storage.prepared import Prepared
from playhead.storage.tables import FORMAT, agent_events, agent_threads, key_of

CHANNEL = "playhead_events"

_events = agent_events.c
_threads = agent_threads.c
NOTIFY = select(func.pg_notify(CHANNEL, bindparam("thread_key")))
_KEYS = select(_events.event_key, _events.seq).where(
    _events.run_key == bindparam("of_run"), _events.event_key.in_(bindparam("keys", expanding=True))
)
_LAST = select(_threads.last_event_seq).where(_threads.thread_key == bindparam("of_thread"))
_AFTER = (
    select(_events.seq, _events.type, _events.data, _events.format)
    .where(
        _events.thread_key == bindparam("of_thread"),
        _events.seq > bindparam("past"),
        _events.seq <= bindparam("through"),
    )
    .order_by(_events.seq)
    .limit(bindparam("most"))
)
_AFTER_OF_RUN = _AFTER.where(_events.run_key == bindparam("of_run"))
_LASTS = select(_threads.thread_key, _threads.last_event_seq).where(
    _threads.thread_key.in_(bindparam("keys", expanding=True))
)


class SQLEventLog:
    """Events in a database. Whoever writes one tells other processes, where the database can."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._insert = Prepared(database, insert(agent_events), _events.keys())

    async def after(
        self,
        thread_id: str,
        seq: int,
        *,
        run_id: str | None = None,
        limit: int = DEFAULT_PAGE,
        tenant_id: str | None = None,
    ) -> EventPage:
        """See `EventLog.after`."""
        thread_key = key_of(tenant_id, thread_id)
        values = {"of_thread": thread_key, "past": seq, "most": limit}
        if run_id is not None:
            values["of_run"] = key_of(tenant_id, run_id)

        def work(connection: Connection) -> EventPage:
            # First what there is, then what it is: what is written in between is for the next page.
            through = connection.execute(_LAST, {"of_thread": thread_key}).scalar() or 0
            query = _AFTER if run_id is None else _AFTER_OF_RUN
            found = connection.execute(query, {**values, "through": through}).all()
            rows = [EventRow(n, kind, data.encode()) for n, kind, data, form in found if form <= FORMAT]
            return EventPage(rows, found[-1][0] if len(found) == limit else max(through, seq))

        return await self._database.read(work)

    async def last(self, threads: Sequence[Thread]) -> Mapping[Thread, int]:
        """See `EventLog.last`."""
        by_key = {key_of(thread.tenant_id, thread.thread_id): thread for thread in threads}
        found = await self._database.read(
            lambda connection: _pairs(connection, _LASTS, {"keys": list(by_key)})
        )
        return {thread: found.get(key, 0) for key, thread in by_key.items()}

    def put(
        self, connection: Connection, thread_key: str, run_key: str, first: int, events: Sequence[NewEvent]
    ) -> None:
        """Write events to their places within a `Database.write`."""
        if not events:
            return
        same: dict[str, Any] = {"thread_key": thread_key, "run_key": run_key, "format": FORMAT}
        rows = [
            {
                **same,
                "seq": seq,
                "event_key": event.key,
                "type": event.type,
                "data": event.data.decode(),
                "created_at": event.at,
            }
            for seq, event in enumerate(events, first)
        ]
        self._insert.run_all(connection, rows)
        if self._database.dialect == "postgresql":
            connection.execute(NOTIFY, {"thread_key": thread_key})

    def there(self, connection: Connection, run_key: str, keys: Sequence[str]) -> Mapping[str, int]:
        """Which of these keys the run has events of, and their `seq`."""
        return _pairs(connection, _KEYS, {"of_run": run_key, "keys": list(keys)})


def _pairs(connection: Connection, query: Select[Any], values: Mapping[str, Any]) -> Mapping[str, int]:
    return {row[0]: row[1] for row in connection.execute(query, dict(values))}
