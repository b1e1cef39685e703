"""A `TurnStore` in a database."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from playhead.errors import StoreError
from playhead.storage.base import DEFAULT_TURNS, TurnRow
from playhead.storage.engine import Database
from playhead.storage.prepared import Prepared
from playhead.storage.rows import COLUMNS, NewTurn, prepare, read_rows
from playhead.storage.sql_results import forget_results
from playhead.storage.sql_summaries import forget_summaries
from playhead.storage.tables import agent_runs, agent_threads, agent_turns, key_of
from playhead.types import ChatMessage

_turns = agent_turns.c
_threads = agent_threads.c
_READ = select(*COLUMNS)
_TURN = _READ.where(_turns.turn_key == bindparam("turn_key")).order_by(_turns.row_id)
_LEFT = (
    select(*COLUMNS, _turns.replaced)
    .where(_turns.thread_key == bindparam("thread_key"), _turns.replaced != 0)
    .order_by(_turns.turn_seq, _turns.seq)
)
_HELD = _READ.where(
    _turns.thread_key == bindparam("thread_key"), _turns.message_key == bindparam("message_key")
)
_gone = _threads.tenant_key == ""
_COUNTS = ("last_seq", "last_event_seq")
_OF_ITSELF = ("row_id", "turn_seq", "replaced")
_UNCOUNT = (
    update(agent_threads)
    .where(_threads.thread_key == bindparam("of_thread"))
    .values(last_seq=_threads.last_seq - 1)
)


class SQLTurnStore:
    """Turns in a database, the same on SQLite and on Postgres. Appending costs the same however long
    a thread is.

    Half surrogate pairs and NUL, which databases do not take, are kept as U+FFFD. Rows of a kind or a
    format that this version does not know stay where they are and are not returned.

    Args:
        database: what `open_database` returned. It is not closed with the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        upsert = sqlite.insert if database.dialect == "sqlite" else postgresql.insert
        rows, events = bindparam("rows", type_=BigInteger), bindparam("events", type_=BigInteger)
        counted = upsert(agent_threads).values(last_seq=rows, last_event_seq=events)
        new = counted.excluded
        # On Postgres this is also what locks the thread until the transaction ends.
        count = counted.on_conflict_do_update(
            index_elements=[_threads.thread_key],
            set_={
                "last_seq": _threads.last_seq + rows,
                "last_event_seq": _threads.last_event_seq + events,
                "updated_at": new.updated_at,
                # Of a thread that was deleted these are empty.
                **{name: new[name] for name in ("tenant_key", "thread_id", "tenant_id")},
                "created_at": case((_gone, new.created_at), else_=_threads.created_at),
            },
        ).returning(_threads.last_seq, _threads.last_event_seq)
        self._count = Prepared(database, count, [c.key for c in _threads if c.key not in _COUNTS])
        there = exists().where(agent_runs.c.run_key == bindparam("of_run"))
        count_in = (
            update(agent_threads)
            .where(_threads.thread_key == bindparam("of_thread"), there)
            .values(
                last_seq=_threads.last_seq + rows,
                last_event_seq=_threads.last_event_seq + events,
                updated_at=bindparam("now", type_=BigInteger),
            )
            .returning(_threads.last_seq, _threads.last_event_seq)
        )
        self._count_in = Prepared(database, count_in)
        first = (
            select(_turns.turn_seq)
            .where(_turns.turn_key == bindparam("of_turn"), _turns.thread_key == bindparam("of_thread"))
            .limit(1)
            .scalar_subquery()
        )
        put = (
            upsert(agent_turns)
            .values(turn_seq=func.coalesce(first, bindparam("own_seq")))
            .on_conflict_do_nothing(index_elements=[_turns.thread_key, _turns.message_key])
            .returning(_turns.seq)
        )
        self._insert = Prepared(database, put, [c.key for c in _turns if c.key not in _OF_ITSELF])
        self._windows = {
            kind: Prepared(database, _window(*kind)) for kind in product((False, True), repeat=2)
        }

    async def append(
        self,
        thread_id: str,
        message: ChatMessage,
        *,
        turn_id: str,
        step_index: int = 0,
        tenant_id: str | None = None,
    ) -> TurnRow:
        """See `TurnStore.append`."""
        new = prepare(thread_id, message, turn_id=turn_id, step_index=step_index, tenant_id=tenant_id)
        return await self._database.write(lambda connection: self.put(connection, new), order=new.order)

    def put(self, connection: Connection, new: NewTurn) -> TurnRow:
        """Append a row within a `Database.write`, together with whatever else that writes."""
        seq, _ = self.count(connection, new.thread, rows=1)
        return self.put_at(connection, new, seq)

    def count(
        self, connection: Connection, thread: Mapping[str, Any], *, rows: int = 0, events: int = 0
    ) -> tuple[int, int]:
        """Take places at the end of a thread, made when it does not exist; return the last of each."""
        counted = self._count.first(connection, {**thread, "rows": rows, "events": events})
        assert counted is not None
        return counted[0], counted[1]

    def count_in(
        self,
        connection: Connection,
        thread: Mapping[str, Any],
        run_key: str,
        *,
        rows: int = 0,
        events: int = 0,
    ) -> tuple[int, int] | None:
        """The same for a run that was accepted; None, and nothing is taken, where it was deleted since."""
        of = {"of_thread": thread["thread_key"], "of_run": run_key, "now": thread["updated_at"]}
        counted = self._count_in.first(connection, {**of, "rows": rows, "events": events})
        return None if counted is None else (counted[0], counted[1])

    def put_at(self, connection: Connection, new: NewTurn, seq: int) -> TurnRow:
        """Write a row to its place, which is the thread's last; give it back if the id is there."""
        keys = {"own_seq": seq, "of_turn": new.turn["turn_key"], "of_thread": new.order}
        values = {**new.turn, **keys, "seq": seq}
        if self._insert.first(connection, values) is not None:
            return new.row(seq)
        connection.execute(_UNCOUNT, {"of_thread": new.order})
        held = {"thread_key": new.order, "message_key": new.turn["message_key"]}
        rows = read_rows(connection.execute(_HELD, held).all())
        if not rows:
            raise StoreError(
                f"The thread holds a message of the id {new.message.id!r} that this version of Playhead"
                " cannot read: update Playhead."
            )
        return rows[0]

    async def window(
        self,
        thread_id: str,
        *,
        turns: int | None = DEFAULT_TURNS,
        before_seq: int | None = None,
        tenant_id: str | None = None,
    ) -> Sequence[TurnRow]:
        """See `TurnStore.window`. It reads no more turns than it returns."""
        if (turns is not None and turns <= 0) or (before_seq is not None and before_seq <= 1):
            return ()
        query = self._windows[turns is not None, before_seq is not None]
        values: dict[str, Any] = {"thread_key": key_of(tenant_id, thread_id), "before_seq": before_seq}
        values["skipped"] = None if turns is None else turns - 1
        return await self._database.read(lambda connection: read_rows(query.all(connection, values)))

    async def turn(self, turn_id: str, *, tenant_id: str | None = None) -> Sequence[TurnRow]:
        """See `TurnStore.turn`."""
        values = {"turn_key": key_of(tenant_id, turn_id)}
        return await self._database.read(lambda c: read_rows(c.execute(_TURN, values).all()))

    async def replaced(
        self, thread_id: str, *, tenant_id: str | None = None
    ) -> Sequence[tuple[int, TurnRow]]:
        """See `TurnStore.replaced`."""
        values = {"thread_key": key_of(tenant_id, thread_id)}

        def work(connection: Connection) -> list[tuple[int, TurnRow]]:
            found = connection.execute(_LEFT, values).all()
            return [(one[-1], row) for one in found for row in read_rows([one[:-1]])]

        return await self._database.read(work)

    async def delete_thread(self, thread_id: str, *, tenant_id: str | None = None) -> int:
        """See `TurnStore.delete_thread`."""
        return await self._delete(_threads.thread_key == key_of(tenant_id, thread_id))

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """See `TurnStore.delete_tenant`."""
        return await self._delete(_threads.tenant_key == key_of(tenant_id))

    async def delete_before(self, created_at: int) -> int:
        """See `TurnStore.delete_before`."""
        newer = agent_turns.alias("newer")
        still_young = exists().where(
            newer.c.thread_key == _turns.thread_key,
            newer.c.turn_seq == _turns.turn_seq,
            newer.c.created_at >= created_at,
        )
        old = (_turns.created_at < created_at) & ~still_young
        summaries = forget_summaries(old)
        rows = delete(agent_turns).where(old)
        empty = [
            _threads.updated_at < created_at,
            ~_gone,
            ~exists().where(_turns.thread_key == _threads.thread_key),
            ~exists().where(agent_runs.c.thread_key == _threads.thread_key),
        ]

        def forget(connection: Connection) -> int:
            connection.execute(summaries)
            count = connection.execute(rows).rowcount
            connection.execute(forget_results(created_at))
            _forget_threads(connection, and_(*empty))
            return count

        return await self._database.write(forget)

    async def _delete(self, which: ColumnElement[bool]) -> int:
        return await self._database.write(lambda connection: self.forget(connection, which))

    def forget(self, connection: Connection, which: ColumnElement[bool]) -> int:
        """Delete threads, and with them all that belongs to them; return how many rows they had."""
        keys = select(_threads.thread_key).where(which)
        count = connection.execute(delete(agent_turns).where(_turns.thread_key.in_(keys))).rowcount
        _forget_threads(connection, which)
        return count


def _forget_threads(connection: Connection, which: ColumnElement[bool]) -> None:
    """Delete threads, and leave of each only where its events ended: one of the same id goes on from there,
    so that whoever read the one before is told what comes in the new one."""
    # The row is another, not the same emptied: who waits for its lock must find that the thread is gone.
    gone = delete(agent_threads).where(which).returning(_threads.thread_key, _threads.last_event_seq)
    ends = [{"thread_key": key, "last_event_seq": seq} for key, seq in connection.execute(gone) if seq]
    if ends:
        nothing = {"tenant_key": "", "thread_id": "", "last_seq": 0, "created_at": 0, "updated_at": 0}
        connection.execute(insert(agent_threads), [{**end, **nothing} for end in ends])


def _window(limited: bool, bounded: bool) -> Select[Any]:
    """The query of a window: `limited` to some turns, `bounded` by a later row."""
    mine = [_turns.thread_key == bindparam("thread_key"), _turns.replaced == 0]
    if bounded:
        mine += [_turns.seq < bindparam("before_seq"), _turns.turn_seq < bindparam("before_seq")]
    query = _READ.where(*mine).order_by(_turns.turn_seq, _turns.seq)
    if not limited:
        return query
    starts = select(_turns.turn_seq).where(*mine, _turns.seq == _turns.turn_seq)
    skipped = bindparam("skipped", type_=Integer)
    oldest = starts.order_by(_turns.turn_seq.desc()).limit(1).offset(skipped).scalar_subquery()
    return query.where(_turns.turn_seq >= func.coalesce(oldest, 0))
