"""A `SummaryStore` in a database."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Connection, Delete, Select, bindparam, delete, func, insert, select

from playhead.encode import scrub
from playhead.storage.base import TurnRow
from playhead.storage.engine import Database
from playhead.storage.rows import COLUMNS, read_rows
from playhead.storage.summaries import Summary
from playhead.storage.tables import FORMAT, agent_summaries, agent_threads, agent_turns, key_of

_held = agent_summaries.c
_turns = agent_turns.c
_HUGE = 2**63 - 1
_OF_THREAD = (
    select(_held.through_seq, _held.text, _held.created_at, _held.format)
    .where(_held.thread_key == bindparam("of_thread"))
    .order_by(_held.through_seq.desc())
)
# On Postgres this keeps others from writing in the thread until the transaction ends.
_LOCK = (
    select(agent_threads.c.thread_key)
    .where(agent_threads.c.thread_key == bindparam("of_thread"))
    .with_for_update()
)
_COUNT = select(func.count()).where(
    _turns.thread_key == bindparam("of_thread"),
    _turns.replaced == 0,
    _turns.turn_seq > bindparam("after"),
    _turns.seq <= bindparam("through"),
)
REPLACE_SUMMARIES = delete(agent_summaries).where(
    _held.thread_key == bindparam("of_thread"), _held.through_seq >= bindparam("from_seq")
)


class SQLSummaryStore:
    """Summaries in a database, the same on SQLite and on Postgres.

    Rows of a format that this version does not know stay where they are and are not returned.

    Args:
        database: what `open_database` returned. It is not closed with the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def last(self, thread_id: str, *, tenant_id: str | None = None) -> Summary | None:
        """See `SummaryStore.last`."""
        values = {"of_thread": key_of(tenant_id, thread_id)}
        return await self._database.read(lambda connection: _last(connection, values))

    async def put(
        self, thread_id: str, summary: Summary, *, after: int, rows: int, tenant_id: str | None = None
    ) -> bool:
        """See `SummaryStore.put`."""
        thread_key = key_of(tenant_id, thread_id)
        of_thread = {"of_thread": thread_key}
        row = {
            "thread_key": thread_key,
            "through_seq": summary.through_seq,
            "text": scrub(summary.text),
            "format": FORMAT,
            "created_at": summary.created_at,
        }

        def work(connection: Connection) -> bool:
            if not rows or connection.execute(_LOCK, of_thread).first() is None:
                return False
            former = _last(connection, of_thread)
            bounds = {**of_thread, "after": after, "through": summary.through_seq}
            same = (former.through_seq if former else 0) == after
            if not same or connection.execute(_COUNT, bounds).scalar() != rows:
                return False
            # One of a later format may reach as far: it is not read, and gives way.
            connection.execute(REPLACE_SUMMARIES, {**of_thread, "from_seq": summary.through_seq})
            connection.execute(insert(agent_summaries), row)
            return True

        return await self._database.write(work, order=thread_key)

    async def rows_after(
        self, thread_id: str, seq: int, *, turns: int, tenant_id: str | None = None
    ) -> Sequence[TurnRow]:
        """See `SummaryStore.rows_after`. It reads no more turns than it returns."""
        values = {"of_thread": key_of(tenant_id, thread_id), "after": seq, "turns": turns}
        return await self._database.read(
            lambda connection: read_rows(connection.execute(_rows_after(), values).all())
        )

    def copy(self, connection: Connection, source: str, target: str, places: Mapping[int, int]) -> None:
        """Copy, within a `Database.write`, those of a thread's key that stand for copied rows only.

        `places` says where each row that was copied stands in the target.
        """
        last = max(places, default=0)
        for through, text, created_at, form in connection.execute(_OF_THREAD, {"of_thread": source}).all():
            if through <= last and form <= FORMAT:
                row = {"thread_key": target, "text": text, "format": form, "created_at": created_at}
                there = sum(seq <= through for seq in places)
                connection.execute(insert(agent_summaries), {**row, "through_seq": there})


def forget_summaries(gone: Any) -> Delete:
    """The statement that deletes those that stand for a row of `agent_turns` of which `gone` holds."""
    stood_for = select(_turns.row_id).where(
        _turns.thread_key == _held.thread_key, _turns.seq <= _held.through_seq, _turns.replaced == 0, gone
    )
    return delete(agent_summaries).where(stood_for.correlate(agent_summaries).exists())


def _last(connection: Connection, of_thread: Mapping[str, Any]) -> Summary | None:
    found = connection.execute(_OF_THREAD, dict(of_thread)).all()
    readable = (Summary(seq, text, at) for seq, text, at, form in found if form <= FORMAT)
    return next(readable, None)


@cache
def _rows_after() -> Select[Any]:
    mine = [
        _turns.thread_key == bindparam("of_thread"),
        _turns.replaced == 0,
        _turns.turn_seq > bindparam("after"),
    ]
    starts = select(_turns.turn_seq).where(*mine, _turns.seq == _turns.turn_seq).order_by(_turns.turn_seq)
    skipped = bindparam("turns", type_=BigInteger)
    end = func.coalesce(starts.limit(1).offset(skipped).scalar_subquery(), _HUGE)
    return select(*COLUMNS).where(*mine, _turns.turn_seq < end).order_by(_turns.turn_seq, _turns.seq)
