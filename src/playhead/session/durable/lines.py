"""Runs that belong to no process: the engine says which of them is carried out, and where."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from sqlalchemy import Connection

from playhead.errors import StoreError
from playhead.loop import AgentLoop
from playhead.session.durable.engine import FENCED, DurableEngine
from playhead.session.durable.locks import locks_of
from playhead.session.durable.options import Durable
from playhead.session.durable.port import DurablePort, taken_in
from playhead.session.durable.records import Claim
from playhead.session.durable.takeover import Takeover
from playhead.session.jobs import Say
from playhead.session.lines import Lines
from playhead.session.owner import DURABLE
from playhead.session.port import StoredPort
from playhead.session.runs import CANCELLED, INTERRUPTED, LiveRun, Reason, written_though_stopped
from playhead.session.settings import Limits
from playhead.storage.engine import Database
from playhead.storage.ledger import OPEN, Enlist, Entry, RunRow, Thread, thread_of
from playhead.storage.sql_dispatch import SQLDispatch
from playhead.storage.sql_ledger import SQLLedger
from playhead.types import AgentRunResult, UserMessage

logger = logging.getLogger("playhead")

# Attempts at one run that may end with the death of their process and come no step further, before the run
# is given up: what goes on is no crash loop, however often its process dies.
MOST_ATTEMPTS = 10
# How often runs that are at work here ask whether somebody wants them stopped, in seconds.
_LOOK = 0.25
# How often a store that is away is tried again, in seconds: by what others wait behind, and by the rest.
_SOON, _AGAIN = 0.25, 1.0
# Whole results that are kept for who waits for them; others are made of what was recorded.
_OUTCOMES = 256

POISON: Reason = (
    "error",
    f"The run was given up: its process died in each of {MOST_ATTEMPTS} attempts at one step. What it does"
    " may be what kills it; see the program's log before you send the message anew.",
    "poison",
)


class DurableLines(Lines):
    """Carries out the runs that the engine gives to this process.

    The order of a thread's runs, and that one of them is at work at a time, are the engine's.
    """

    def __init__(
        self,
        loop: AgentLoop,
        ledger: SQLLedger,
        limits: Limits,
        database: Database,
        durable: Durable,
        say: Say,
    ) -> None:
        super().__init__(loop, ledger, limits, say)
        self.engine = DurableEngine(database, self.part.name, self._on_run)
        ledger.forgetting = self.engine.forget
        self._dispatch = SQLDispatch(database)
        self._takeover = Takeover(self.engine, locks_of(database, durable.takeover), self._tidy)
        self._works = durable.works
        self._handed: dict[str, LiveRun] = {}
        self._outcomes: OrderedDict[str, AgentRunResult] = OrderedDict()
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the engine and take over what dead processes left."""
        await self._takeover.hold()
        try:
            await self.engine.start(works=self._works)
            await self._takeover.start()
        except BaseException:
            await self._takeover.aclose()
            raise

    # ------------------------------------------------------------ runs come in

    def reserve(self, run: LiveRun) -> Entry | None:
        """See `Lines.reserve`. Whether it begins at once is seen in the transaction that accepts it."""
        if self.closed:
            return None
        self._reserved.add(run.thread)
        enlistment = self.engine.enlist(run.row)
        run.enlist = enlistment.enlist
        run.port = self._durable_port(run, Claim(run.run_id, enlistment.token), resumed=False)
        return run.port.opening()

    def enlist(self, run: LiveRun) -> Enlist | None:
        """See `Lines.enlist`."""
        enlist = run.enlist
        if enlist is None or run.row.policy != "interrupt":
            return enlist
        stop = self._dispatch.interrupt(run.row)

        def write(connection: Connection, at_once: bool) -> None:
            enlist.write(connection, at_once)
            if not at_once:
                # With the message: nobody would do it for a process that died in between.
                stop(connection)

        return Enlist(write, enlist.at_once)

    def add(self, run: LiveRun) -> LiveRun | RunRow:
        """See `Lines.add`."""
        at_work = self._lines.get(run.thread)
        if run.port is not None and run.port.begun:
            self._handed[run.run_id] = run
            self._lines[run.thread] = deque([run])
            self._spawn(self.engine.execute(run.run_id))
        elif run.row.policy == "interrupt" and at_work:
            self._spawn(self.stop(at_work[0]))
        return run.row

    def release(self, run: LiveRun) -> None:
        """See `Lines.release`."""
        if run.run_id not in self._handed:
            self.engine.drop(run.run_id)
        super().release(run)

    async def cancel(self, row: RunRow) -> RunRow | None:
        """See `Lines.cancel`. A run is stopped wherever it is at work."""
        run = self.runs.get(row.absorbed_by or row.run_id)
        if run is not None:
            await self.stop(run)
            return None
        if row.state == "queued" and await self._withdrawn(row):
            return None
        found = await self._ledger.run(row.run_id, tenant_id=row.tenant_id)
        if found is not None and found.absorbed_by:
            by = await self._ledger.run(found.absorbed_by, tenant_id=row.tenant_id)
            return None if by is None else await self.cancel(by)
        if found is None or found.state not in OPEN:
            return None
        await self._dispatch.ask_to_stop(found)
        return found

    async def elsewhere(self, which: Callable[[Thread], bool]) -> Sequence[RunRow]:
        """See `Lines.elsewhere`."""
        rows = await self._ledger.runs()
        return [row for row in rows if which(thread_of(row)) and row.run_id not in self.runs]

    async def outcome(self, run_id: str) -> AgentRunResult | None:
        """See `Lines.outcome`."""
        run = self.runs.get(run_id)
        if run is not None:
            # Its end is told a moment before it is settled.
            await asyncio.wait((run.result,))
        return self._outcomes.get(run_id)

    async def _withdrawn(self, row: RunRow) -> bool:
        run = LiveRun(row, None)
        try:
            await self._write_end(run, run.outcome(CANCELLED), unbegun=True)
        except StoreError as error:
            if error.code != "conflict":
                raise
            return False
        return True

    # ------------------------------------------------------------ the life of a run

    async def _on_run(self, run_id: str, tenant: str | None) -> None:
        """The engine's workflow: returns when the run has ended, and raises when it goes on elsewhere."""
        if self.closed:
            raise asyncio.CancelledError
        run = self._handed.pop(run_id, None) or await self._taken_in_time(run_id, tenant)
        workflow = asyncio.current_task()
        if workflow is not None:
            # The next run of the thread may begin once the engine has written that this one is over.
            workflow.add_done_callback(lambda _: None if self.closed else self.engine.kick())
        if run is None:
            return
        older = self.runs.get(run_id)
        if older is not None:
            self._abandon(older)
        self.runs[run_id] = run
        self._lines[run.thread] = deque([run])
        self._begin(run)
        self._watch()
        await asyncio.wait((run.result,))
        if run.lost:
            raise self.engine.lost(run_id)
        if run.result.cancelled():
            raise asyncio.CancelledError

    async def _taken_in_time(self, run_id: str, tenant: str | None) -> LiveRun | None:
        # An error would be recorded as the end of the workflow, and nobody would carry the run out any more.
        while True:
            try:
                return await self._taken(run_id, tenant)
            except StoreError as error:
                if not error.passing:
                    raise
            await asyncio.sleep(_SOON)
            if self.closed:
                raise asyncio.CancelledError

    async def _taken(self, run_id: str, tenant: str | None) -> LiveRun | None:
        """Return a run that came out of the queue, if there is anything to do."""
        row = await self._ledger.run(run_id, tenant_id=tenant)
        if row is None or row.state not in OPEN:
            return None
        claim = await self.engine.claim(run_id)
        run = LiveRun(row, row.context)
        resumed = row.state == "running"
        owed = await self._owed(row, claim) if resumed else ()
        run.port = self._durable_port(run, claim, resumed=resumed, owed=owed)
        if run_id in await self._dispatch.stopping([row]):
            run.cancel.set()
        if claim.fruitless > MOST_ATTEMPTS:
            logger.error("Run %s: %s", run_id, POISON[1])
            await self._finish(run, POISON)
            return None
        return run

    async def _owed(self, row: RunRow, claim: Claim) -> Sequence[UserMessage]:
        """Return what an attempt took in before a step that was cut."""
        told = taken_in(claim)
        rows = await self._dispatch.steering(row)
        messages = [one.message for one in rows if one.state == "absorbed" and one.message is not None]
        return [message for message in messages if message.id not in told]

    def _durable_port(
        self, run: LiveRun, claim: Claim, *, resumed: bool, owed: Sequence[UserMessage] = ()
    ) -> DurablePort:
        options = {**self._port_options(run), "owed": owed}
        feed = self.feed(run.thread)
        return DurablePort(self.engine, claim, self._ledger, run.row, feed, resumed=resumed, **options)

    def _port(self, run: LiveRun) -> StoredPort:
        raise AssertionError("a durable run gets its port with its claim")

    def _reason(self, run: LiveRun, error: BaseException) -> Reason:
        lost = isinstance(error, StoreError) and error.code == FENCED
        if lost or (
            isinstance(error, asyncio.CancelledError) and not run.cancel.is_set() and self._leaving(run)
        ):
            self._abandon(run, lost=lost)
            raise asyncio.CancelledError
        if isinstance(error, StoreError) and error.code == StoreError.code:
            # The run is not at fault: it is carried out anew, from what is recorded, once the store is back.
            self._abandon(run)
            # One that fails for another reason than that each time must not go on for ever.
            self._spawn(self._put_back(run, passing=error.passing))
            raise asyncio.CancelledError
        return super()._reason(run, error)

    async def _put_back(self, run: LiveRun, *, passing: bool) -> None:
        assert isinstance(run.port, DurablePort)
        only = (run.run_id, run.port.claim.token)
        while not self.closed:
            with suppress(StoreError):
                await self.engine.recover(self.engine.executor, only=only, handed_over=passing)
                self.engine.kick()
                return
            await asyncio.sleep(_AGAIN)

    def _leaving(self, run: LiveRun) -> bool:
        ends = run.task is not None and self._loop_ends(run.task)
        return self.closed or run.result.done() or ends

    async def _write_end(self, run: LiveRun, result: AgentRunResult, *, unbegun: bool = False) -> None:
        if isinstance(run.port, DurablePort):
            run.port.close_cut()
        try:
            await super()._write_end(run, result, unbegun=unbegun)
        except StoreError as error:
            if error.code == FENCED:
                self._abandon(run, lost=True)
            raise

    def _abandon(self, run: LiveRun, *, lost: bool = False) -> None:
        """Write and tell nothing more of a run: another execution goes on with it."""
        run.lost = run.lost or lost
        if run.port is not None:
            run.port.close()
        run.result.cancel()
        if run.task is not None and run.task is not asyncio.current_task():
            run.task.cancel()
        self._leave(run)

    def _settle(self, run: LiveRun, result: AgentRunResult, *, late: bool = False) -> None:
        self._outcomes[run.run_id] = result
        if len(self._outcomes) > _OUTCOMES:
            self._outcomes.popitem(last=False)
        super()._settle(run, result, late=late)

    def _leave(self, run: LiveRun) -> None:
        if self.runs.get(run.run_id) is run:
            del self.runs[run.run_id]
        line = self._lines.get(run.thread)
        if line is not None and line[0] is run:
            del self._lines[run.thread]
        self.drop_feed(run.thread)

    async def _absorb(self, active: LiveRun, step: int) -> Sequence[UserMessage]:
        return await written_though_stopped(self._take_in_any(active, step), active)

    async def _take_in_any(self, active: LiveRun, step: int) -> Sequence[UserMessage]:
        # A claim that was made by an attempt that is over, before its step had a record, is found again.
        assert isinstance(active.port, DurablePort)
        rows = await self._dispatch.steering(active.row)
        waiting = [row for row in rows if row.state == "queued"]
        taken = set(await self._ledger.absorb(waiting, active.row, step)) if waiting else set()
        told = active.port.taken_in
        return [
            row.message
            for row in rows
            if row.message is not None
            and (row.run_id in taken or (row.state == "absorbed" and row.message.id not in told))
        ]

    async def _tidy(self) -> None:
        """End runs that the engine knows nothing of any more: nobody else would."""
        rows = await self._ledger.runs()
        known = {run.run_id for run in await self.engine.runs()}
        for row in rows:
            if row.owner == DURABLE and row.run_id not in known and row.run_id not in self.runs:
                # It may have ended between the two looks.
                found = await self._ledger.run(row.run_id, tenant_id=row.tenant_id)
                if found is not None and found.state in OPEN:
                    await self.end_for_another(found, INTERRUPTED)

    def _watch(self) -> None:
        if self._watching is None:
            self._watching = asyncio.create_task(self._look(), name="playhead stops")

    async def _look(self) -> None:
        """See to it that what somebody wants stopped is."""
        while self.runs:
            with suppress(StoreError):
                runs = list(self.runs.values())
                for run_id in await self._dispatch.stopping([run.row for run in runs]):
                    run = self.runs.get(run_id)
                    if run is not None and not run.cancel.is_set():
                        self._spawn(self.stop(run))
            await asyncio.sleep(_LOOK)
        self._watching = None

    # ------------------------------------------------------------ the end

    async def aclose(self) -> None:
        """Let go of every run, at its next effect where that comes soon: another process goes on with it."""
        self.closed = True
        results = []
        for run in list(self.runs.values()):
            if isinstance(run.port, DurablePort) and not run.cancel.is_set():
                run.port.leave()
            results.append(run.result)
        if results:
            await asyncio.wait(results, timeout=self._limits.stop_timeout)
        for run in list(self.runs.values()):
            self._abandon(run)
        if self._watching is not None:
            self._watching.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await self.engine.settle(1.0)
        await self.engine.aclose()
        # Not before: it might take out of its queue again what was put back.
        with suppress(StoreError):
            await self.engine.recover(self.engine.executor, handed_over=True)
        await self._takeover.aclose()
        self.forget_where(lambda thread: True)
