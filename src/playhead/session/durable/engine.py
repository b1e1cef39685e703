"""The one place that speaks to DBOS: its queue, its rows, and what of its insides is used here.

A run is a workflow of that id. Its steps are rows of `operation_outputs`, which are written here rather
than by `DBOS.run_step_async`, in the transaction of our own events: one commit makes both, and both are
refused to an execution that lost the run. https://docs.dbos.dev/explanations/system-tables
"""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from dbos import DBOS, Serializer
from dbos._context import current_owner_xid
from dbos._core import execute_dequeued_workflow, prepare_enqueued_workflow
from dbos._error import DBOSWorkflowConflictIDError
from dbos._utils import generate_uuid
from sqlalchemy import Connection, Engine

from playhead.errors import ConfigError, StoreError
from playhead.session.durable.records import (
    NAME,
    QUEUE,
    SERIALIZER,
    VERSION,
    Claim,
    EngineRun,
    Records,
    Step,
    schema_of,
    step_columns,
)
from playhead.storage.engine import Database
from playhead.storage.ledger import Enlist, RunRow, coded
from playhead.storage.tables import key_of

FENCED = "fenced"
# The queue is looked at when something happened to it, and this often besides, in seconds.
_POLL = 0.25
_AT_ONCE = 200

OnRun = Callable[[str, str | None], Awaitable[None]]
logger = logging.getLogger("playhead")


class Enlistment(NamedTuple):
    """A run on its way in: the token that it is the claim of where it begins at once, and what writes it."""

    token: str
    enlist: Enlist


class _Json(Serializer):
    def serialize(self, data: Any) -> str:
        return json.dumps(data, default=str)

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data)

    def name(self) -> str:
        return SERIALIZER


_JSON = _Json()
_current: "DurableEngine | None" = None
_registering = threading.Lock()
_workflow: Any = None


async def _body(run_id: str, tenant: str | None) -> None:
    assert _current is not None
    await _current.on_run(run_id, tenant)


def _registered() -> Any:
    global _workflow
    with _registering:
        if _workflow is None:
            # Poison is counted by us, and ends with an error that the user sees.
            _workflow = DBOS.workflow(name="playhead_run", max_recovery_attempts=None)(_body)
        return _workflow


class DurableEngine:
    """DBOS on the database of the sessions. A process has one.

    Args:
        database: where the runs are.
        executor: a name that no other process has, now or later.
        on_run: carries out a run. It is called on the event loop that called `start`.
    """

    def __init__(self, database: Database, executor: str, on_run: OnRun) -> None:
        self.executor = executor
        self.on_run = on_run
        self._database = database
        self._engine: Engine | None = None
        self._dbos: Any = None
        self._workflow = _registered()
        self._kicking: asyncio.Task[None] | None = None
        self._again = False
        self._works = True
        self._statuses: dict[str, Any] = {}
        self._sql: Records  # of `start`

    async def start(self, *, works: bool = True) -> None:
        """Open the engine; with `works` it takes runs from the queue.

        Raises `ConfigError` when this process has one already, and `StoreError`.
        """
        global _current
        from dbos import _dbos

        self._works = works
        if _current is not None or _dbos._dbos_global_instance is not None:
            raise ConfigError(
                "This process has durable sessions already, or uses DBOS itself: one Sessions(durable=True)"
                " is enough for any number of threads; give every part of the program that one."
            )
        _current = self
        _quiet()
        try:
            schema = await schema_of(self._database)
            self._sql = Records(self._database, schema)
            self._engine = self._database.another_engine(10)
            self._dbos = DBOS(
                config={
                    "name": NAME,
                    "system_database_url": self._database.url.render_as_string(hide_password=False),
                    "system_database_engine": self._engine,
                    "dbos_system_schema": schema or NAME,
                    "executor_id": self.executor,
                    "application_version": VERSION,
                    "serializer": _JSON,
                    "use_listen_notify": False,
                    "log_level": "ERROR",
                }
            )
            # It reads which event loop is running: workflows that it takes from the queue run on that.
            DBOS.listen_queues([QUEUE] if works else [])
            DBOS.launch()
            # The async forms of these take over the threads of the event loop, and end them with the engine.
            await asyncio.to_thread(_register_queue)
        except BaseException as error:
            await self.aclose()
            if isinstance(error, Exception) and not isinstance(error, StoreError | ConfigError):
                raise StoreError(
                    f"The durable engine does not start: {type(error).__name__}: {error}"
                ) from error
            raise

    async def settle(self, seconds: float) -> None:
        """Wait until what ended here is written, and let go of what did not."""
        tasks = list(self._dbos._workflow_tasks) if self._dbos is not None else []
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()

    async def aclose(self) -> None:
        """Let go of the database. What is at work here must have been stopped."""
        global _current
        if _current is not self:
            return
        if self._kicking is not None:
            await asyncio.wait((self._kicking,))
        await asyncio.to_thread(DBOS.destroy)
        if self._engine is not None:
            self._engine.dispose()
        _current = None

    # ------------------------------------------------------------ runs come in

    def enlist(self, run: RunRow) -> Enlistment:
        """Return what writes the engine's rows of a run that is accepted. `execute` must follow if it
        begins at once, and `drop` if not."""
        args = (run.run_id, run.tenant_id)
        partition = key_of(run.tenant_id, run.thread_id)
        status: Any = prepare_enqueued_workflow(
            self._dbos,
            self._workflow,
            args,
            {},
            queue_name=QUEUE,
            workflow_id=run.run_id,
            queue_partition_key=partition,
        )
        token = generate_uuid()

        def work(connection: Connection, at_once: bool) -> None:
            status["status"] = "PENDING" if at_once else "ENQUEUED"
            status["executor_id"] = self.executor
            self._dbos._sys_db.init_workflow_with_connection(status, connection, creator_xid=token)
            self._statuses[run.run_id] = (status, token)

        return Enlistment(token, Enlist(work, at_once=self._works))

    async def execute(self, run_id: str) -> None:
        """Carry out a run that was accepted to begin at once."""
        status, token = self._statuses.pop(run_id)
        status["recovery_attempts"] = 1
        await asyncio.to_thread(execute_dequeued_workflow, self._dbos, status, token)

    def drop(self, run_id: str) -> None:
        """A run was accepted here, and waits, or was not accepted."""
        self._statuses.pop(run_id, None)

    def kick(self) -> None:
        """Have the queue looked at now."""
        self._again = self._works
        if self._works and self._kicking is None:
            self._kicking = asyncio.create_task(self._kick(), name="playhead kick")

    async def _kick(self) -> None:
        try:
            while self._again:
                self._again = False
                try:
                    # The engine's own look is dear, and mostly there is nothing.
                    if await self._database.read(
                        lambda connection: connection.execute(self._sql.waits).first()
                    ):
                        await asyncio.to_thread(self._dequeue)
                except Exception as error:  # the engine's own poll follows
                    logger.debug("The queue could not be looked at: %s", error)
        finally:
            self._kicking = None

    def _dequeue(self) -> None:
        system = self._dbos._sys_db
        queue = system.get_queue(QUEUE)
        if queue is None:
            return
        room = _AT_ONCE - self._dbos._active_workflows_set.count_for_queue(QUEUE)
        if room <= 0:
            return
        token = generate_uuid()
        taken = system.start_queued_partitioned_workflows(
            queue, self.executor, VERSION, room, owner_xid=token
        )
        for status in system.get_workflow_statuses(taken):
            execute_dequeued_workflow(self._dbos, status, token)

    # ------------------------------------------------------------ a run at work

    async def claim(self, run_id: str) -> Claim:
        """Return the right of this execution, with what the run has recorded. Called inside of a workflow."""
        token = current_owner_xid(run_id) or ""
        claim = await self._database.read(lambda connection: self._sql.read_claim(connection, run_id, token))
        if not claim.left:
            return claim
        return await self._database.write(lambda connection: self._sql.take_note(connection, claim))

    def write(self, claim: Claim, steps: Sequence[tuple[int, Step]]) -> Callable[[Connection], None]:
        """Return what writes steps at their places, and raises `StoreError` with code `fenced` for an
        execution that lost the run."""

        def work(connection: Connection) -> None:
            if not self._sql.own.changed(connection, {"of_run": claim.run_id, "token": claim.token}):
                raise coded(FENCED, f"The run {claim.run_id!r} goes on in another process.")
            if steps:
                self._sql.step.run_all(connection, [step_columns(claim.run_id, *one) for one in steps])

        return work

    def lost(self, run_id: str) -> DBOSWorkflowConflictIDError:
        """What tells the engine that an execution lost its run: it then waits for the other's outcome."""
        return DBOSWorkflowConflictIDError(run_id)

    # ------------------------------------------------------------ dead processes

    async def executors(self) -> Sequence[str]:
        """Return the processes that runs are at work in, or were when they died."""
        return await self._database.read(
            lambda connection: connection.execute(self._sql.executors).scalars().all()
        )

    async def adopt(self) -> None:
        """Have runs that wait, and were accepted by another version, carried out by this one."""
        await self._database.write(lambda connection: connection.execute(self._sql.adopt))

    async def strays(self) -> Sequence[tuple[str, str]]:
        """Return runs that are this process's and that nothing here carries out, with the tokens of their
        executions: what took them was committed, and its answer was lost. Some may be about to begin."""
        mine = {"of_executor": self.executor}
        rows = await self._database.read(lambda c: c.execute(self._sql.at_work_in, mine).all())
        here = {*self._dbos._active_workflows_set.activeList(), *self._statuses}
        return [(run_id, token) for run_id, token in rows if run_id not in here]

    async def recover(
        self, executor: str, *, only: tuple[str, str] | None = None, handed_over: bool = False
    ) -> int:
        """Put the runs of a process back into the queue, or only one of them, by the token of its execution;
        return how many.

        `handed_over` by the process itself, in order, is no attempt that failed.
        """
        values = {"of_executor": executor, "less": 1 if handed_over else 0}
        query = self._sql.recover if only is None else self._sql.recovering(*only)
        count: int = await self._database.write(lambda connection: connection.execute(query, values).rowcount)
        return count

    # ------------------------------------------------------------ housekeeping

    async def runs(self) -> Sequence[EngineRun]:
        """Return what waits and what is at work."""
        return await self._database.read(
            lambda connection: [EngineRun(*row) for row in connection.execute(self._sql.open_runs)]
        )

    def forget(self, connection: Connection, run_ids: Any) -> None:
        """Delete all rows of runs that are being deleted; see `SQLLedger.forgetting`."""
        self._sql.forget(connection, run_ids)

    async def sweep(self, before: int) -> int:
        """Delete the engine's rows of runs that ended before a time, in milliseconds since 1970; return
        how many. What the runs said and showed stays."""
        swept = 0
        while ids := await self._database.read(
            lambda connection: connection.execute(self._sql.ended, {"before": before}).scalars().all()
        ):
            await asyncio.to_thread(DBOS.delete_workflows, list(ids))
            swept += len(ids)
        return swept


def _register_queue() -> None:
    DBOS.register_queue(
        QUEUE,
        partition_concurrency=1,
        worker_concurrency=_AT_ONCE,
        polling_interval_sec=_POLL,
        on_conflict="always_update",
    )


def _quiet() -> None:
    # It would print to the console by itself; a program decides that for all of its loggers.
    its = logging.getLogger("dbos")
    if not its.handlers:
        its.addHandler(logging.NullHandler())
        its.setLevel(logging.WARNING)
        its.propagate = True
