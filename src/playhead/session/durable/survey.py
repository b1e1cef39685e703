"""What runs where, for whoever looks after it: read from the database alone, whichever process it is of."""

from collections.abc import Mapping, Sequence, Set
from typing import Literal, TypeAlias

import msgspec
from sqlalchemy import inspect

from playhead.ids import now_ms
from playhead.session.durable.locks import locks_of
from playhead.session.durable.records import EngineRun, Records, schema_of
from playhead.session.owner import DURABLE, is_over
from playhead.storage.engine import Database
from playhead.storage.ledger import RunRow, thread_of
from playhead.storage.sql_ledger import SQLLedger

Place: TypeAlias = Literal["at work", "waiting", "stuck", "orphaned"]
# How long a run may wait for a process that carries it out before somebody should look, in milliseconds.
_LONG = 10_000

TODO: Mapping[Place, str] = {
    "at work": "",
    "waiting": "",
    "stuck": "no process carries it out: start `playhead serve` or `playhead worker` on this database",
    "orphaned": "its process is gone and nobody goes on with it: the next start of `playhead serve` ends it",
}


class RunAt(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A run that has not ended. `process` is the one that it is at work in, `attempts` the executions so far,
    `since` when it was accepted, in milliseconds since 1970."""

    run_id: str
    thread_id: str
    place: Place
    since: int
    tenant_id: str | None = None
    process: str | None = None
    attempts: int = 0
    todo: str = ""


async def survey(database: Database) -> Sequence[RunAt]:
    """Return every run that has not ended, oldest first. Raises `StoreError`."""
    rows = await SQLLedger(database).runs()
    known = {run.run_id: run for run in await _engine_runs(database)}
    dead = await _dead(
        database, {run.executor for run in known.values() if run.status == "PENDING" and run.executor}
    )
    begun: set[object] = set()
    found = []
    for row in rows:
        place = _place(row, known.get(row.run_id), dead, behind=thread_of(row) in begun)
        begun.add(thread_of(row))
        found.append(_run_at(row, known.get(row.run_id), place))
    return found


async def _dead(database: Database, executors: Set[str]) -> Set[str]:
    """Which of these processes hold nothing by which others could see that they live."""
    locks = (locks_of(database), locks_of(database, "heartbeat"))
    try:
        return {executor for executor in executors if all([await lock.is_free(executor) for lock in locks])}
    finally:
        for lock in locks:
            await lock.aclose()


def _run_at(row: RunRow, run: EngineRun | None, place: Place) -> RunAt:
    process, attempts = row.owner, 1
    if row.owner == DURABLE:
        process = (run.executor or "") if run is not None and run.status == "PENDING" else ""
        attempts = run.attempts if run is not None else 0
    todo = TODO[place]
    return RunAt(
        row.run_id, row.thread_id, place, row.created_at, row.tenant_id, process or None, attempts, todo
    )


def _place(row: RunRow, run: EngineRun | None, dead: Set[str], *, behind: bool) -> Place:
    if row.owner != DURABLE:
        if is_over(row.owner):
            return "orphaned"
        return "waiting" if row.state == "queued" else "at work"
    if run is None:
        return "orphaned"
    if run.status == "PENDING":
        return "stuck" if run.executor in dead else "at work"
    late = now_ms() - row.created_at > _LONG
    return "stuck" if late and not behind else "waiting"


async def _engine_runs(database: Database) -> Sequence[EngineRun]:
    schema = await schema_of(database)
    there = await database.read(
        lambda connection: inspect(connection).has_table("workflow_status", schema=schema)
    )
    if not there:
        return ()
    query = Records(database, schema).open_runs
    return await database.read(lambda connection: [EngineRun(*row) for row in connection.execute(query)])
