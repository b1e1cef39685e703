"""A `Ledger` in a database."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, exists, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from playhead.ids import now_ms
from playhead.storage.engine import Database
from playhead.storage.ledger import (
    AT_WORK,
    OPEN,
    Enlist,
    Entry,
    NewEvent,
    PendingCall,
    Recorded,
    RunRow,
    RunState,
    Thread,
    conflict,
    deleted,
    misnamed,
    over,
    taken,
)
from playhead.storage.prepared import Prepared
from playhead.storage.rows import prepare, thread_columns
from playhead.storage.sql_events import SQLEventLog
from playhead.storage.sql_results import SQLResultStore
from playhead.storage.sql_runs import (
    PENDING,
    RUN,
    SPEAKS,
    Written,
    pending_columns,
    read_pending,
    read_run,
    run_columns,
    take_answers,
)
from playhead.storage.sql_summaries import REPLACE_SUMMARIES, SQLSummaryStore
from playhead.storage.tables import (
    agent_events,
    agent_pending,
    agent_runs,
    agent_threads,
    agent_turns,
    ai_call_log,
    key_of,
)
from playhead.storage.turns import SQLTurnStore
from playhead.types import ChatMessage

_runs = agent_runs.c
_turns = agent_turns.c
_pending = agent_pending.c

_OF_KEY = RUN.where(_runs.run_key == bindparam("of_run"))
_OF_MESSAGE = RUN.where(
    _runs.thread_key == bindparam("of_thread"), _runs.message_key == bindparam("of_message")
)
_LAST_RUN = (
    RUN.where(_runs.thread_key == bindparam("of_thread"), SPEAKS).order_by(_runs.row_id.desc()).limit(1)
)
_IS_OPEN = or_(*(_runs.state == state for state in OPEN))
_SET_STATE = (
    update(agent_runs)
    .where(_runs.run_key == bindparam("of_run"), _IS_OPEN)
    .values(
        state=bindparam("new_state"), finish_reason=bindparam("reason"), ended_at=bindparam("new_ended_at")
    )
)
_BEGIN = (
    update(agent_runs)
    .where(_runs.run_key == bindparam("of_run"), _IS_OPEN)
    .values(state="running", first_seq=bindparam("first"))
)
_WITHDRAW = _SET_STATE.where(_runs.state == "queued")
_ABSORB = (
    update(agent_runs)
    .where(_runs.run_key == bindparam("of_run"), _runs.state == "queued")
    .values(state="absorbed", absorbed_by=bindparam("by"), ended_at=bindparam("new_ended_at"))
)
_REPLACE = (
    update(agent_turns)
    .where(_turns.thread_key == bindparam("of_thread"), _turns.seq >= bindparam("from_seq"))
    .where(_turns.replaced == 0)
    .values(replaced=bindparam("from_seq"))
)
_ROLE = select(_turns.role).where(
    _turns.thread_key == bindparam("of_thread"), _turns.message_key == bindparam("of_message")
)
_FORGET_CALLS = delete(ai_call_log).where(
    ai_call_log.c.tenant_key == bindparam("of_tenant"), ai_call_log.c.turn_key == bindparam("of_turn")
)
_AT_WORK = (
    select(_runs.row_id)
    .where(_runs.thread_key == bindparam("of_thread"), _runs.run_key != bindparam("of_run"), _IS_OPEN)
    .limit(1)
)


class SQLLedger:
    """Everything that sessions keep, in a database, the same on SQLite and on Postgres.

    Args:
        database: what `open_database` returned. It is not closed with the ledger.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        # Called before runs are deleted, with a query of their ids, for what else is kept of them.
        self.forgetting: Callable[[Connection, Select[Any]], None] = lambda connection, run_ids: None
        self.turns = SQLTurnStore(database)
        self.events = SQLEventLog(database)
        self.summaries = SQLSummaryStore(database)
        self.results = SQLResultStore(database)
        upsert = sqlite.insert if database.dialect == "sqlite" else postgresql.insert
        accept = (
            upsert(agent_runs)
            .on_conflict_do_nothing(index_elements=[_runs.thread_key, _runs.message_key])
            .returning(_runs.row_id)
        )
        self._accept = Prepared(database, accept, [column.key for column in _runs if column.key != "row_id"])
        self._begin, self._set_state = Prepared(database, _BEGIN), Prepared(database, _SET_STATE)
        self._withdraw = Prepared(database, _WITHDRAW)
        self._wait = upsert(agent_pending).on_conflict_do_nothing()

    async def accept(self, run: RunRow, *, replaces: int | None = None) -> RunRow:
        """See `Ledger.accept`."""
        thread = thread_columns(run.thread_id, run.tenant_id, now_ms())
        columns = run_columns(run)

        def work(connection: Connection) -> RunRow:
            self.turns.count(connection, thread)
            accepted = self._take_run(connection, run, columns, replaces)
            if accepted is run and run.message is not None:
                role = connection.execute(_ROLE, _held(columns["thread_key"], run.message)).scalar()
                _check_role(run.message, role)
            return accepted

        return await self._database.write(work, order=thread["thread_key"])

    async def begin(
        self, opening: Entry, *, replaces: int | None = None, enlist: Enlist | None = None
    ) -> tuple[RunRow, Recorded | None]:
        """See `Ledger.begin`."""
        run, written = opening.run, Written(opening)
        columns = run_columns(run)

        def work(connection: Connection) -> tuple[RunRow, Recorded | None]:
            seq, last = self.turns.count(connection, written.thread, **written.counts)
            # It is written as the run that it becomes: to change it afterwards would cost as much again.
            first = last - len(opening.events) + 1
            begun = {**columns, "state": opening.state, "first_seq": first}
            others = {"of_thread": columns["thread_key"], "of_run": columns["run_key"]}
            free = enlist is None or (enlist.at_once and connection.execute(_AT_WORK, others).first() is None)
            accepted = self._take_run(connection, run, begun if free else columns, replaces)
            if enlist is not None and accepted is run:
                enlist.write(connection, free)
            if accepted is not run or not free:
                back = {name: -count for name, count in written.counts.items()}
                self.turns.count(connection, written.thread, **back)
                return accepted, None
            return accepted, self._put(connection, written, opening.events, seq, last)

        return await self._database.write(work, order=written.thread["thread_key"])

    async def record(self, entry: Entry) -> Recorded:
        """See `Ledger.record`."""
        written = Written(entry)

        def work(connection: Connection) -> Recorded | None:
            for also in entry.also:
                also(connection)
            events = entry.events
            there: Mapping[str, int] = {}
            if entry.again and events:
                there = self.events.there(connection, written.run_key, [event.key for event in events])
                events = [event for event in events if event.key not in there]
            counts = {**written.counts, "events": len(events)}
            places = self.turns.count_in(connection, written.thread, written.run_key, **counts)
            if places is None:
                connection.execute(_FORGET_CALLS, written.calls)
                return None
            seq, last = places
            recorded = self._put(connection, written, events, seq, last)
            if events and recorded.seqs[0] is None:
                return Recorded(recorded.rows, [None] * len(entry.events))
            # The state was set with the events, or neither was written.
            if entry.state is not None and not (entry.events and entry.events[-1].key in there):
                self._state(connection, entry, written.run_key, last - len(events) + 1)
            for place, call in enumerate(entry.pending):
                connection.execute(self._wait, pending_columns(entry.run, call, place))
            new = iter(recorded.seqs)
            seqs = [there[event.key] if event.key in there else next(new) for event in entry.events]
            return Recorded(recorded.rows, seqs, set(there.values()))

        found = await self._database.write(work, order=written.thread["thread_key"])
        if found is None:
            raise deleted(entry.run)
        return found

    def _take_run(
        self, connection: Connection, run: RunRow, columns: Mapping[str, Any], replaces: int | None
    ) -> RunRow:
        thread_key = columns["thread_key"]
        if run.answers:
            take_answers(connection, run, thread_key)
        if self._accept.first(connection, columns) is None:
            known = {"of_thread": thread_key, "of_message": columns["message_key"]}
            return read_run(connection.execute(_OF_MESSAGE, known).one())
        if replaces is not None:
            others = {"of_thread": thread_key, "of_run": columns["run_key"]}
            if connection.execute(_AT_WORK, others).first() is not None:
                raise conflict(AT_WORK)
            gone = {"of_thread": thread_key, "from_seq": replaces}
            connection.execute(_REPLACE, gone)
            connection.execute(REPLACE_SUMMARIES, gone)
        return run

    def _put(
        self, connection: Connection, written: Written, events: Sequence[NewEvent], seq: int, last: int
    ) -> Recorded:
        """Write messages and events to the places that were taken for them."""
        new, first = written.rows, last - len(events) + 1
        rows = [self.turns.put_at(connection, new[0], seq)] if new else []
        if rows:
            _check_role(new[0].message, rows[0].role)
        if rows and rows[0].turn_id != new[0].turn["turn_id"]:
            self.turns.count(connection, written.thread, events=-len(events))
            return Recorded(rows, [None] * len(events))
        rows.extend(self.turns.put(connection, row) for row in new[1:])
        self.events.put(connection, written.thread["thread_key"], written.run_key, first, events)
        return Recorded(rows, list(range(first, last + 1)))

    async def absorb(self, runs: Sequence[RunRow], by: RunRow, step: int) -> Sequence[str]:
        """See `Ledger.absorb`."""
        thread_id, tenant_id = by.thread_id, by.tenant_id
        thread, by_key = thread_columns(thread_id, tenant_id, now_ms()), key_of(tenant_id, by.run_id)
        new = [
            (run, prepare(thread_id, run.message, turn_id=by.turn_id, step_index=step, tenant_id=tenant_id))
            for run in runs
            if run.message is not None
        ]

        def work(connection: Connection) -> list[str]:
            if self.turns.count_in(connection, thread, by_key) is None:
                raise deleted(by)
            taken = []
            for run, row in new:
                if connection.execute(_ROLE, _held(row.order, row.message)).first() is not None:
                    continue
                values = {"by": by.run_id, "new_ended_at": now_ms(), "of_run": key_of(tenant_id, run.run_id)}
                if connection.execute(_ABSORB, values).rowcount:
                    self.turns.put(connection, row)
                    taken.append(run.run_id)
            return taken

        return await self._database.write(work, order=thread["thread_key"])

    async def run(self, run_id: str, *, tenant_id: str | None = None) -> RunRow | None:
        """See `Ledger.run`."""
        values = {"of_run": key_of(tenant_id, run_id)}
        row = await self._database.read(lambda connection: connection.execute(_OF_KEY, values).first())
        return None if row is None else read_run(row)

    async def runs(
        self, thread: Thread | None = None, *, states: Sequence[RunState] = OPEN, limit: int = 1_000
    ) -> Sequence[RunRow]:
        """See `Ledger.runs`."""
        query = RUN.where(_runs.state.in_(states)).order_by(_runs.row_id).limit(limit)
        if thread is not None:
            query = query.where(_runs.thread_key == key_of(thread.tenant_id, thread.thread_id))
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [read_run(row) for row in rows]

    async def last_run(self, thread: Thread) -> RunRow | None:
        """See `Ledger.last_run`."""
        values = {"of_thread": key_of(thread.tenant_id, thread.thread_id)}
        row = await self._database.read(lambda connection: connection.execute(_LAST_RUN, values).first())
        return None if row is None else read_run(row)

    async def pending(self, turn_id: str, *, tenant_id: str | None = None) -> Sequence[PendingCall]:
        """See `Ledger.pending`."""
        values = {"of_turn": key_of(tenant_id, turn_id)}
        rows = await self._database.read(lambda connection: connection.execute(PENDING, values).all())
        return [read_pending(row) for row in rows]

    async def copy(self, source: Thread, target: Thread, through: int) -> int:
        """See `Ledger.copy`."""
        columns = thread_columns(target.thread_id, target.tenant_id, now_ms())
        held = select(agent_turns).where(
            _turns.thread_key == key_of(source.tenant_id, source.thread_id),
            _turns.seq <= through,
            _turns.replaced == 0,
        )

        def work(connection: Connection) -> int:
            found = [dict(row) for row in connection.execute(held.order_by(_turns.seq)).mappings()]
            last, _ = self.turns.count(connection, columns, rows=len(found))
            if last != len(found):
                raise conflict(taken(target))
            places = {row["seq"]: n for n, row in enumerate(found, 1)}
            for row in found:
                row.update(seq=places[row["seq"]], turn_seq=places.get(row["turn_seq"], 1))
                row.update({name: columns[name] for name in ("thread_key", "thread_id", "tenant_id")})
                row.update(turn_key=key_of(target.tenant_id, row["turn_id"]))
                del row["row_id"]
            if found:
                connection.execute(insert(agent_turns), found)
                source_key = key_of(source.tenant_id, source.thread_id)
                self.summaries.copy(connection, source_key, columns["thread_key"], places)
                turns = {key_of(source.tenant_id, row["turn_id"]): row["turn_key"] for row in found}
                self.results.copy(connection, source_key, columns["thread_key"], turns)
            return len(found)

        return await self._database.write(work, order=columns["thread_key"])

    async def delete_thread(self, thread: Thread) -> int:
        """See `Ledger.delete_thread`."""
        calls = delete(ai_call_log).where(
            ai_call_log.c.thread_key == key_of(thread.thread_id),
            ai_call_log.c.tenant_key == key_of(thread.tenant_id),
        )
        which = agent_threads.c.thread_key == key_of(thread.tenant_id, thread.thread_id)
        return await self._delete(which, calls)

    async def threads(self, prefix: str, *, tenant_id: str | None = None) -> Sequence[Thread]:
        """See `Ledger.threads`."""
        query = select(agent_threads.c.thread_id).where(
            agent_threads.c.tenant_key == key_of(tenant_id),
            agent_threads.c.thread_id.startswith(prefix, autoescape=True),
        )
        found = await self._database.read(lambda connection: connection.scalars(query).all())
        # SQLite compares without case.
        return [Thread(thread_id, tenant_id) for thread_id in found if thread_id.startswith(prefix)]

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """See `Ledger.delete_tenant`."""
        calls = delete(ai_call_log).where(ai_call_log.c.tenant_key == key_of(tenant_id))
        return await self._delete(agent_threads.c.tenant_key == key_of(tenant_id), calls)

    async def delete_before(self, created_at: int) -> int:
        """See `Ledger.delete_before`."""
        old = [_runs.created_at < created_at, _runs.state.not_in(OPEN)]
        old_keys = select(_runs.run_key).where(*old)
        events = delete(agent_events).where(
            agent_events.c.created_at < created_at, agent_events.c.run_key.in_(old_keys)
        )
        expired = delete(agent_pending).where(_pending.expires_at < created_at)
        calls = delete(ai_call_log).where(ai_call_log.c.created_at < created_at)
        # A run some of whose events are younger stays with them.
        has_events = exists().where(agent_events.c.run_key == _runs.run_key)
        runs = delete(agent_runs).where(*old, ~has_events)

        def work(connection: Connection) -> None:
            for statement in (events, expired, calls):
                connection.execute(statement)
            self.forgetting(connection, select(_runs.run_id).where(*old, ~has_events))
            connection.execute(runs)

        await self._database.write(work)
        return await self.turns.delete_before(created_at)

    def _state(self, connection: Connection, entry: Entry, run_key: str, first: int) -> None:
        if entry.state == "running":
            done = self._begin.changed(connection, {"of_run": run_key, "first": first})
        else:
            values = {"of_run": run_key, "new_state": entry.state, "reason": entry.finish_reason}
            statement = self._withdraw if entry.unbegun else self._set_state
            done = statement.changed(connection, {**values, "new_ended_at": now_ms()})
        if not done:
            raise conflict(over(entry.run))

    async def _delete(self, which: Any, calls: Any) -> int:
        def work(connection: Connection) -> int:
            connection.execute(calls)
            keys = select(agent_threads.c.thread_key).where(which)
            self.forgetting(connection, select(_runs.run_id).where(_runs.thread_key.in_(keys)))
            return self.turns.forget(connection, which)

        return await self._database.write(work)


def _held(thread_key: str, message: ChatMessage) -> dict[str, str]:
    return {"of_thread": thread_key, "of_message": key_of(message.id)}


def _check_role(message: ChatMessage, held: str | None) -> None:
    error = None if held is None else misnamed(message, held)
    if error is not None:
        raise error
