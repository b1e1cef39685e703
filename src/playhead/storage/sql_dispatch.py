"""What processes on one database tell each other of runs: which shall be taken in, and which shall stop."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, or_, select, update

from playhead.storage.engine import Database
from playhead.storage.ledger import OPEN, RunRow
from playhead.storage.sql_events import NOTIFY
from playhead.storage.sql_runs import RUN, read_run
from playhead.storage.tables import agent_runs, key_of

_runs = agent_runs.c
_IS_OPEN = or_(*(_runs.state == state for state in OPEN))
_STEERING = RUN.where(
    _runs.thread_key == bindparam("of_thread"),
    or_(
        and_(_runs.state == "queued", _runs.policy == "steer"),
        and_(_runs.state == "absorbed", _runs.absorbed_by == bindparam("by")),
    ),
).order_by(_runs.row_id)
_ASK_TO_STOP = (
    update(agent_runs)
    .where(_runs.thread_key == bindparam("of_thread"), _runs.run_key == bindparam("of_run"), _IS_OPEN)
    .values(stopping=1)
)
_INTERRUPT = (
    update(agent_runs)
    .where(
        _runs.thread_key == bindparam("of_thread"),
        _runs.run_key != bindparam("of_run"),
        _runs.state == "running",
    )
    .values(stopping=1)
)
_STOPPING = select(_runs.run_id).where(
    _runs.run_key.in_(bindparam("keys", expanding=True)), _runs.stopping == 1
)


class SQLDispatch:
    """How a run is reached wherever it is at work. Every method raises `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def steering(self, by: RunRow) -> Sequence[RunRow]:
        """Return the runs that wait to be taken in by a run of their thread, or were, oldest first."""
        values = {"of_thread": key_of(by.tenant_id, by.thread_id), "by": by.run_id}
        rows = await self._database.read(lambda connection: connection.execute(_STEERING, values).all())
        return [read_run(row) for row in rows]

    async def ask_to_stop(self, run: RunRow) -> None:
        """Have a run stopped by whoever carries it out."""
        await self._tell(_ASK_TO_STOP, run)

    def interrupt(self, by: RunRow) -> Callable[[Connection], None]:
        """Return what has, within a `Database.write`, the run that is at work in the thread of another
        stopped."""
        return self._telling(_INTERRUPT, by)

    async def find(self, run_id: str) -> RunRow | None:
        """Return a run of any tenant: for whoever looks after the machine."""
        query = RUN.where(_runs.run_id == run_id).limit(1)
        row = await self._database.read(lambda connection: connection.execute(query).first())
        return None if row is None else read_run(row)

    async def stopping(self, runs: Sequence[RunRow]) -> Sequence[str]:
        """Return the ids of those of some runs that shall stop."""
        keys = {"keys": [key_of(run.tenant_id, run.run_id) for run in runs]}
        return await self._database.read(
            lambda connection: connection.execute(_STOPPING, keys).scalars().all()
        )

    async def _tell(self, statement: Any, run: RunRow) -> None:
        await self._database.write(self._telling(statement, run))

    def _telling(self, statement: Any, run: RunRow) -> Callable[[Connection], None]:
        thread_key = key_of(run.tenant_id, run.thread_id)
        values = {"of_thread": thread_key, "of_run": key_of(run.tenant_id, run.run_id)}

        def work(connection: Connection) -> None:
            connection.execute(statement, values)
            if self._database.dialect == "postgresql":
                connection.execute(NOTIFY, {"thread_key": thread_key})

        return work
