"""What of the engine's insides is used, each by what it must do for us."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from playhead.errors import StoreError
from playhead.ids import new_id
from playhead.session.durable.engine import FENCED, DurableEngine
from playhead.session.durable.records import Claim, Step
from playhead.storage.engine import Database, open_database
from playhead.storage.ledger import RunRow
from tests.session.durable.support import table

pytestmark = pytest.mark.anyio


class Started:
    """An engine on a database, and the runs that it gave to us."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.given: list[str] = []
        self.claims: list[Claim] = []
        self.came = asyncio.Event()
        self.go_on = asyncio.Event()
        self.engine = DurableEngine(database, "host/1", self._on_run)

    async def _on_run(self, run_id: str, tenant: str | None) -> None:
        self.given.append(run_id)
        self.claims.append(await self.engine.claim(run_id))
        self.came.set()
        await self.go_on.wait()

    async def accept(self, run: RunRow, *, at_once: bool) -> str:
        enlistment = self.engine.enlist(run)
        await self.database.write(lambda connection: enlistment.enlist.write(connection, at_once))
        return enlistment.token

    async def row(self, run_id: str) -> Sequence[Any]:
        query = "SELECT status, owner_xid, executor_id, recovery_attempts FROM {} WHERE workflow_uuid = :run"
        flows = await table(self.database, "workflow_status")
        sql = text(query.format(flows))
        return await self.database.read(lambda c: c.execute(sql, {"run": run_id}).one())

    async def next(self) -> str:
        async with asyncio.timeout(10):
            await self.came.wait()
        self.came.clear()
        return self.given[-1]


@asynccontextmanager
async def started(url: str) -> AsyncIterator[Started]:
    async with await open_database(url) as database:
        one = Started(database)
        await one.engine.start()
        try:
            yield one
        finally:
            one.go_on.set()
            await one.engine.settle(5.0)
            await one.engine.aclose()


def run_of(thread: str = "t") -> RunRow:
    return RunRow(new_id(), new_id(), thread)


async def test_a_run_that_begins_at_once_is_ours_in_the_transaction_that_accepts_it(url: str) -> None:
    """`init_workflow_with_connection`, `execute_dequeued_workflow`, `current_owner_xid`."""
    async with started(url) as one:
        run = run_of()
        token = await one.accept(run, at_once=True)
        assert list(await one.row(run.run_id)) == ["PENDING", token, "host/1", 1]
        await one.engine.execute(run.run_id)
        assert await one.next() == run.run_id
        assert (one.claims[0].token, one.claims[0].attempts, one.claims[0].steps) == (token, 1, {})
        one.go_on.set()
        await one.engine.settle(5.0)
        assert (await one.row(run.run_id))[0] == "SUCCESS"


async def test_what_is_not_committed_is_not_enlisted(url: str) -> None:
    """A run and the engine's row of it are written together, or neither is."""
    async with started(url) as one:
        run = run_of()
        enlistment = one.engine.enlist(run)

        def work(connection: Any) -> None:
            enlistment.enlist.write(connection, True)
            raise ValueError("no")

        with pytest.raises(StoreError, match="Nothing of this was written"):
            await one.database.write(work)
        assert await one.engine.runs() == []


async def test_the_queue_gives_one_run_of_a_thread_at_a_time_in_order(url: str) -> None:
    """`start_queued_partitioned_workflows`, `get_workflow_statuses`."""
    async with started(url) as one:
        runs = [run_of() for _ in range(3)]
        for run in runs:
            await one.accept(run, at_once=False)
        one.engine.kick()
        assert await one.next() == runs[0].run_id
        one.engine.kick()
        assert (await one.row(runs[1].run_id))[0] == "ENQUEUED"
        assert [run.status for run in await one.engine.runs()] == ["PENDING", "ENQUEUED", "ENQUEUED"]
        one.go_on.set()
        for run in runs[1:]:
            await one.next() if run.run_id not in one.given else None
        assert one.given == [run.run_id for run in runs]


async def test_who_does_not_have_the_token_writes_nothing(url: str) -> None:
    """Of the engine's tables: `owner_xid`, checked in our own transaction."""
    async with started(url) as one:
        run = run_of()
        claim = Claim(run.run_id, await one.accept(run, at_once=True))
        steps = [(0, Step("1/model", "a", msgspec.Raw(b'{"x":1}')))]
        await one.database.write(one.engine.write(claim, steps))
        foreign = Claim(run.run_id, "another")
        with pytest.raises(StoreError) as refused:
            await one.database.write(one.engine.write(foreign, [(1, steps[0][1])]))
        assert refused.value.code == FENCED
        assert await one.engine.recover("host/1") == 1
        with pytest.raises(StoreError):
            await one.database.write(one.engine.write(claim, ()))
        one.engine.kick()
        assert await one.next() == run.run_id
        (known,) = one.claims[-1].steps.values()
        assert (known.name, known.by, bytes(known.value)) == ("1/model", "a", b'{"x":1}')
        assert one.claims[-1].attempts == 2


async def test_the_engine_is_the_one_whose_insides_these_are() -> None:
    """What is used of its insides was read in this series, and is pinned to it."""
    assert version("dbos").startswith("3.4.")


async def test_runs_that_ended_are_not_gone_through_at_each_look(url: str) -> None:
    """Issue 6: 100,000 finished runs slow nothing: every look at the queue uses the engine's index of it."""
    async with started(url) as one:
        sql, is_file = one.engine._sql, one.database.dialect == "sqlite"

        def plan(connection: Any, query: Any) -> str:
            compiled = query.compile(dialect=one.database.engine_dialect)
            values = compiled.construct_params({"of_executor": "host/1", "less": 0})
            if not is_file:
                connection.execute(text("SET LOCAL enable_seqscan = off"))
                return str(connection.exec_driver_sql(f"EXPLAIN {compiled}", values).all())
            ordered = tuple(values[name] for name in compiled.positiontup)
            return str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", ordered).all())

        for query in (sql.waits, sql.executors, sql.open_runs, sql.adopt, sql.recover):
            found = await one.database.write(partial(plan, query=query))
            assert "idx_workflow_status" in found, found
            assert "SCAN workflow_status'" not in found, found
