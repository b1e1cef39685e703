"""Our own statements on the engine's tables, and what a run has recorded there.

https://docs.dbos.dev/explanations/system-tables
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from sqlalchemy import (
    Connection,
    Select,
    Update,
    bindparam,
    column,
    delete,
    func,
    literal_column,
    select,
    table,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import TableClause

from playhead.ids import new_id, now_ms
from playhead.storage.engine import Database
from playhead.storage.prepared import Prepared

NAME = "playhead"
QUEUE = "playhead_runs"
SERIALIZER = "playhead_json"
# The order of a run's steps. When `tests/session/durable/test_step_order.py` fails, raise the number.
VERSION = "loop-1"
# The place of the note of an attempt that let go of its run in order. A step has one from 0 on.
LEFT = -1
_DELETE_TOGETHER = 1_000


class Step(msgspec.Struct, frozen=True, rename="camel"):
    """A step of a run as it was recorded: `by` which attempt at the run, and its value in JSON."""

    name: str
    by: str
    value: msgspec.Raw


class _Output(msgspec.Struct, frozen=True):
    by: str
    value: msgspec.Raw


@dataclass(frozen=True)
class Claim:
    """The right of one execution to go on with a run.

    Attributes:
        token: what the engine gave to this execution and to no other.
        attempts: executions so far, with this one.
        fruitless: those of them that are behind the last step with a record, with this one.
        steps: what was recorded before, each with its place among the run's steps.
        left: the attempts before that have nothing under way of which there is no record: the last one let
            go of the run in order.
    """

    run_id: str
    token: str
    attempts: int = 1
    steps: Mapping[int, Step] = field(default_factory=dict)
    left: Sequence[str] = ()

    @property
    def fruitless(self) -> int:
        return self.attempts - max((_attempt(step.by) for step in self.steps.values()), default=0)


def by_of(attempt: int) -> str:
    """Return what stands in the records of an attempt, and in those of no other."""
    return f"{attempt}.{new_id()}"


def _attempt(by: str) -> int:
    number = by.partition(".")[0]
    return int(number) if number.isdecimal() else 0


class EngineRun(msgspec.Struct, frozen=True, rename="camel"):
    """What the engine knows of a run: `PENDING` is at work, or was when its process died."""

    run_id: str
    status: str
    executor: str | None
    attempts: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Output).decode


def step_columns(run_id: str, place: int, step: Step) -> dict[str, Any]:
    """Return the columns of a step at its place in its run."""
    now = now_ms()
    return {
        "workflow_uuid": run_id,
        "function_id": place,
        "function_name": step.name,
        "output": _encode(_Output(step.by, step.value)).decode(),
        "serialization": SERIALIZER,
        "application_name": NAME,
        "started_at_epoch_ms": now,
        "completed_at_epoch_ms": now,
        "retention_timestamp": now,
    }


async def schema_of(database: Database) -> str | None:
    """Return the name of the engine's schema beside that of our own tables; None for a SQLite file."""
    if database.dialect == "sqlite":
        return None
    query = select(func.current_schema())
    ours = await database.read(lambda connection: connection.execute(query).scalar())
    return "playhead_dbos" if ours in (None, "public") else f"{ours}_dbos"


class Records:
    """Our own statements on the engine's tables.

    Args:
        schema: where they are, of a Postgres.
    """

    def __init__(self, database: Database, schema: str | None) -> None:
        names = "workflow_uuid status executor_id owner_xid queue_name recovery_attempts application_version"
        more = "started_at_epoch_ms created_at updated_at completed_at"
        flows = table("workflow_status", *map(column, f"{names} {more}".split()), schema=schema)
        columns = list(step_columns("", 0, Step("", "", msgspec.Raw(b"null"))))
        outputs = table("operation_outputs", *map(column, columns), schema=schema)
        payloads = [
            table(name, column("workflow_uuid"), schema=schema)
            for name in ("workflow_input", "workflow_output")
        ]
        self.tables = [outputs, *payloads, flows]
        f, o = flows.c, outputs.c
        self.flow = f
        mine = (f.workflow_uuid == bindparam("of_run"), f.owner_xid == bindparam("token"))
        own = update(flows).where(*mine, f.status == "PENDING").values(owner_xid=bindparam("token"))
        upsert = sqlite.insert if database.dialect == "sqlite" else postgresql.insert
        # Whether a commit that failed was made is not always known: then it is there already.
        step = upsert(outputs).on_conflict_do_nothing()
        self.own = Prepared(database, own)
        self.step = Prepared(database, step, columns)
        self.attempts = select(f.recovery_attempts).where(f.workflow_uuid == bindparam("of_run"))
        self.steps = (
            select(o.function_id, o.function_name, o.output)
            .where(o.workflow_uuid == bindparam("of_run"))
            .order_by(o.function_id)
        )
        self._take_note = delete(outputs).where(o.workflow_uuid == bindparam("of_run"), o.function_id == LEFT)
        self._look_at(flows)

    def _look_at(self, flows: TableClause) -> None:
        f = flows.c
        # Written out, as the engine's index of what has not ended is only then known to hold it all: without
        # it, each look goes through every run that ever was. https://www.sqlite.org/partialindex.html
        in_flight: Any = literal_column("status IN ('ENQUEUED', 'PENDING')")
        at_work = (f.queue_name == QUEUE, f.status == "PENDING", in_flight)
        waiting = (f.queue_name == QUEUE, f.status == "ENQUEUED", in_flight)
        self.waits = select(f.workflow_uuid).where(*waiting).limit(1)
        self.executors = select(f.executor_id).where(*at_work).distinct()
        self.at_work_in = select(f.workflow_uuid, f.owner_xid).where(
            *at_work, f.executor_id == bindparam("of_executor")
        )
        self.recover = (
            update(flows)
            .where(*at_work, f.executor_id == bindparam("of_executor"))
            .values(
                status="ENQUEUED",
                owner_xid=None,
                started_at_epoch_ms=None,
                application_version=VERSION,
                recovery_attempts=f.recovery_attempts - bindparam("less"),
            )
        )
        self.adopt = (
            update(flows)
            .where(*waiting, f.application_version != VERSION)
            .values(application_version=VERSION)
        )
        self.open_runs = (
            select(f.workflow_uuid, f.status, f.executor_id, func.coalesce(f.recovery_attempts, 0))
            .where(f.queue_name == QUEUE, in_flight)
            .order_by(f.created_at, f.workflow_uuid)
        )
        self.ended = (
            select(f.workflow_uuid)
            .where(
                f.queue_name == QUEUE,
                f.status.in_(("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")),
                f.completed_at < bindparam("before"),
            )
            .limit(_DELETE_TOGETHER)
        )

    def recovering(self, run_id: str, token: str) -> Update:
        """Return `recover` for one execution of a run."""
        return self.recover.where(self.flow.workflow_uuid == run_id, self.flow.owner_xid == token)

    def forget(self, connection: Connection, run_ids: Select[Any]) -> None:
        """Delete all that the engine keeps of some runs: their steps hold what was said."""
        for one in self.tables:
            connection.execute(delete(one).where(one.c.workflow_uuid.in_(run_ids)))

    def read_claim(self, connection: Connection, run_id: str, token: str) -> Claim:
        """Return the claim of an execution, with what it goes on from."""
        of_run = {"of_run": run_id}
        attempts = connection.execute(self.attempts, of_run).scalar() or 1
        steps = {}
        for place, name, output in connection.execute(self.steps, of_run):
            found = _decode(output)
            steps[place] = Step(name, found.by, found.value)
        note = steps.pop(LEFT, None)
        left = () if note is None else msgspec.json.decode(note.value, type=tuple[str, ...])
        return Claim(run_id, token, attempts, steps, left)

    def take_note(self, connection: Connection, claim: Claim) -> Claim:
        """Return a claim whose attempt may count on what the last one left: none after it may. Of one that
        lost the run meanwhile, nobody does."""
        if not self.own.changed(connection, {"of_run": claim.run_id, "token": claim.token}):
            return replace(claim, left=())
        connection.execute(self._take_note, {"of_run": claim.run_id})
        return claim
