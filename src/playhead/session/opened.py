"""Sessions once their database is open: what the methods of `Sessions` are made of."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, get_args

from msgspec.structs import replace

from playhead.encode import scrub
from playhead.errors import ConfigError
from playhead.events import Event, RunEnd, RunPaused, StepEnd
from playhead.ids import new_id, now_ms
from playhead.loop import AgentLoop
from playhead.session.callnotes import CallNotes
from playhead.session.durable.options import Durable
from playhead.session.feed import Cursor, follow
from playhead.session.jobs import MARK, Say, check_not_a_job
from playhead.session.lines import Lines
from playhead.session.opening import Books
from playhead.session.owner import DURABLE, is_over
from playhead.session.runs import INTERRUPTED, LiveRun, result_of
from playhead.session.settings import Limits
from playhead.session.shown import LAST, Shown
from playhead.session.watch import POLL, POLL_BESIDE_NEWS, Watcher
from playhead.storage.base import TurnRow
from playhead.storage.ledger import (
    AT_WORK,
    OPEN,
    Ledger,
    PendingCall,
    Policy,
    RunRow,
    Thread,
    coded,
    conflict,
    events_of,
    thread_of,
)
from playhead.types import AgentContext, AgentRunResult, UserMessage

# What a run's result is made of.
_RESULTS = ("step_end", *LAST)
# What of writing is left at the end may take this long, in seconds, where the database is not ours to hurry.
_MOMENT = 1.0


class Opened:
    """What there is once the database is open."""

    def __init__(self, books: Books, loop: AgentLoop, limits: Limits, durable: Durable | None = None) -> None:
        self.books = books
        self._limits = limits
        self.ledger: Ledger = books.ledger
        self.lines = (
            Lines(loop, books.ledger, limits, self._say)
            if durable is None
            else _durable_lines(books, loop, limits, durable, self._say)
        )
        self._notes = CallNotes(books.calls)
        self.lines.around(self._notes.watch)
        self._owner = self.lines.part.name if durable is None else DURABLE
        self._accepting: dict[str, tuple[Thread, asyncio.Task[LiveRun | RunRow]]] = {}
        period = POLL if books.listening is None else POLL_BESIDE_NEWS
        self._watcher = Watcher(books.ledger.events, self.lines.feeds, period) if books.shared else None

    async def start(self) -> None:
        """Begin with what is there: runs whose process is gone are ended, or gone on with."""
        for row in await self.ledger.runs() if self.books.shared else ():
            await self.settled(row)
        await self.lines.start()

    async def aclose(self) -> None:
        """Stop every run and let go of the database, though others may hold it."""
        self.lines.close()
        if self.books.database is not None and self.books.closes:
            self.books.database.hurry()
        await _within(_MOMENT, self._accepted(lambda thread: True))
        await self.lines.aclose()
        await _within(_MOMENT, self._notes.settle())
        if self._watcher is not None:
            await self._watcher.aclose()
        if self.books.listening is not None:
            await self.books.listening.aclose()
        if self.books.database is not None and self.books.closes:
            await self.books.database.aclose()
        self.lines.part.end()

    def _watch(self) -> None:
        """See to it that what other processes write is seen."""
        if self._watcher is not None:
            if self.books.listening is not None:
                self.books.listening.start(self._watcher.on_news)
            self._watcher.start()

    def new_row(
        self, thread: Thread, message: UserMessage | None, context: Any, policy: Policy = "queue"
    ) -> RunRow:
        """Return a run that nobody has accepted yet. Raises `StoreError` for a policy that is none."""
        if policy not in get_args(Policy):
            raise coded("invalid", f"The policy is {policy!r}; it must be queue, steer or interrupt.")
        return RunRow(
            new_id(),
            new_id(),
            thread.thread_id,
            thread.tenant_id,
            policy=policy,
            message=message,
            context=context if isinstance(context, AgentContext) else None,
            owner=self._owner,
            created_at=now_ms(),
        )

    def at_work(self, tenant: str | None) -> int:
        """How many runs of a tenant are carried out here, in line, or being accepted."""
        threads = [run.thread for run in self.lines.runs.values() if run.run_id not in self._accepting]
        threads += [thread for thread, _ in self._accepting.values()]
        return sum(thread.tenant_id == tenant for thread in threads)

    async def accept(self, row: RunRow, context: Any, replaces: int | None = None) -> LiveRun | RunRow:
        """Write a run and put it into its line; or return the one that its message began before.

        That is done also when who waits for it is cancelled: what is written must be carried out.
        """
        if self.lines.closed:
            raise coded("stopping", "These sessions are closed and take no more messages.")
        work = asyncio.create_task(self._accept(row, context, replaces))
        self._accepting[row.run_id] = (thread_of(row), work)
        return await asyncio.shield(work)

    async def _say(self, thread: Thread, message: UserMessage, context: Any) -> RunRow:
        begun = await self.accept(self.new_row(thread, message, context), context)
        return begun.row if isinstance(begun, LiveRun) else begun

    async def _accept(self, row: RunRow, context: Any, replaces: int | None) -> LiveRun | RunRow:
        run = LiveRun(row, context)
        opening = self.lines.reserve(run)
        try:
            if opening is None:
                accepted = await self.ledger.accept(row, replaces=replaces)
            else:
                enlist = self.lines.enlist(run)
                accepted, recorded = await self.ledger.begin(opening, replaces=replaces, enlist=enlist)
                if recorded is not None and run.port is not None:
                    run.port.opened(opening, recorded)
            if accepted.run_id == row.run_id:
                return self.lines.add(run)
        finally:
            self._accepting.pop(row.run_id, None)
            if opening is not None:
                self.lines.release(run)
        if accepted.absorbed_by:
            accepted = await self.placed(accepted)
        live = self.lines.runs.get(accepted.run_id)
        if live is None and accepted.state in OPEN:
            # Whoever wrote it may not have heard that it was written.
            accepted = await self.found(accepted.run_id, row.tenant_id)
        return live or accepted

    async def _accepted(self, which: Callable[[Thread], bool]) -> None:
        """Wait for what is being accepted in some threads."""
        while work := [task for thread, task in self._accepting.values() if which(thread)]:
            await asyncio.wait(work)

    async def found(self, run_id: str, tenant: str | None) -> RunRow:
        """Return what is known of a run. Raises `StoreError` with code `not_found`."""
        row = await self.ledger.run(run_id, tenant_id=tenant)
        if row is None:
            raise coded("not_found", f"There is no run {run_id!r}, or it is forgotten by now.")
        if row.state in OPEN and await self.settled(row):
            return await self.ledger.run(run_id, tenant_id=tenant) or row
        return row

    async def placed(self, row: RunRow) -> RunRow:
        """Return the run that answers the message of a run: itself, or the one that took it in."""
        while row.state == "queued" and row.policy == "steer":
            run = self.lines.runs.get(row.run_id)
            if run is not None and await asyncio.shield(run.placed) == row.run_id:
                return row
            if run is None:
                await asyncio.sleep(POLL)
            row = await self.found(row.run_id, row.tenant_id)
        while row.absorbed_by:
            row = await self.found(row.absorbed_by, row.tenant_id)
        return row

    async def settled(self, row: RunRow) -> bool:
        """Has a run ended? One whose process is surely gone is ended here."""
        if row.state not in OPEN:
            return True
        if row.owner == DURABLE or row.run_id in self.lines.runs or row.run_id in self._accepting:
            return False
        if row.run_id in self.lines.late:
            return await self.lines.late.is_written(row.run_id)
        if row.owner != self._owner and not is_over(row.owner):
            return False
        await self.lines.end_for_another(row, INTERRUPTED)
        return True

    async def follow(
        self, thread: Thread, cursor: Cursor, run_id: str | None = None
    ) -> AsyncGenerator[Shown, None]:
        """Everything past a cursor, then live: of a thread, or of one of its runs up to its last event."""
        if self.lines.closed and run_id is None:
            raise coded("stopping", "These sessions are closed, and tell no more.")
        following = follow(self.lines.feed(thread), self.ledger.events, thread, cursor, run_id=run_id)
        self._watch()
        try:
            async with aclosing(following):
                async for shown in following:
                    yield shown
        finally:
            self.lines.drop_feed(thread)

    async def rows(self, thread: Thread) -> Sequence[TurnRow]:
        """Everything that was said in a thread."""
        return await self.ledger.turns.window(thread.thread_id, turns=None, tenant_id=thread.tenant_id)

    async def waiting(self, row: RunRow) -> Sequence[PendingCall]:
        """Return the calls of a run's turn that wait for an answer."""
        pending = await self.ledger.pending(row.turn_id, tenant_id=row.tenant_id)
        return [call for call in pending if call.answered_by is None and call.expires_at >= now_ms()]

    async def pending(self, thread: Thread) -> Sequence[tuple[str, PendingCall]]:
        """Return the calls of a thread that wait for an answer, each with the run to answer."""
        last = await self.ledger.last_run(thread)
        # One that answers some of the calls is at work while the others wait.
        if last is None or not (last.state == "paused" or (last.state in OPEN and last.message is None)):
            return ()
        return [(last.run_id, call) for call in await self.waiting(last)]

    async def row(self, thread: Thread, message_id: str | None) -> TurnRow:
        """Return a message of a thread; None is its last. Raises `StoreError` with code `not_found`."""
        for row in reversed(await self.rows(thread)):
            if message_id in (None, row.id):
                return row
        what = "no messages" if message_id is None else f"no message {message_id!r}"
        raise coded("not_found", f"The thread {thread.thread_id!r} has {what}.")

    async def last_asked(self, thread: Thread) -> TurnRow:
        """Return the last message that the user began a turn with. Raises `StoreError` as `row`."""
        for row in reversed(await self.rows(thread)):
            if _begins(row):
                return row
        raise coded("not_found", f"Nothing was asked in the thread {thread.thread_id!r} yet.")

    def update_context(self, thread: Thread, context: Any) -> bool:
        """Give another context to the run of a thread that is at work here. False: there is none."""
        at_work = [run for run in self.lines.runs.values() if run.thread == thread and run.task is not None]
        for run in at_work:
            run.context.value = context
        return bool(at_work)

    async def anew(self, thread: Thread, row: TurnRow, said: UserMessage, context: Any) -> LiveRun | RunRow:
        """Begin a run in place of a message and of all after it. Raises `StoreError`."""
        if any([not await self.settled(run) for run in await self.ledger.runs(thread)]):
            raise conflict(AT_WORK)
        if not _begins(row):
            raise coded("invalid", f"The message {row.id!r} is not one that the user began a turn with.")
        return await self.accept(self.new_row(thread, said, context), context, replaces=row.seq)

    async def cancel(self, row: RunRow) -> None:
        """Stop a run and return when it has ended, wherever that is. Raises `StoreError`, `conflict`."""
        asked = await self.lines.cancel(row)
        if asked is not None:
            await self._told_to_come(asked)

    async def stop_where(self, which: Callable[[Thread], bool]) -> None:
        """Stop what runs in some threads, end their readers, and keep nothing of them in memory.

        Nothing of them is under way when it returns, up to the next time that the caller waits.
        """
        await self._notes.settle()
        await self._accepted(which)
        for row in await self.lines.elsewhere(which):
            # One that does not hear it finds its thread deleted at its next write.
            await _within(self._limits.stop_timeout + _MOMENT, self.cancel(row))
        while runs := [run for run in reversed(self.lines.runs.values()) if which(run.thread)]:
            for run in runs:
                await self.lines.stop(run)
            await self._notes.settle()
            await self._accepted(which)
        await self.lines.late.drop_where(which)
        self.lines.forget_where(which)

    async def delete(self, thread: Thread) -> int:
        """Stop what runs in a thread, and the jobs that it began; forget it, and return what it had."""
        await self.stop_where(lambda one: one == thread)
        jobs = await self.ledger.threads(thread.thread_id + MARK, tenant_id=thread.tenant_id)
        await self.stop_where(lambda one: one in jobs)
        for job in jobs:
            await self.ledger.delete_thread(job)
        # A job may have said something in it meanwhile.
        await self.stop_where(lambda one: one == thread)
        return await self.ledger.delete_thread(thread)

    async def result_of(self, row: RunRow) -> AgentRunResult:
        """The result of a run that has ended, as far as it was kept; of another process's, once it has.

        Raises `StoreError`, `not_found`, where its thread was deleted meanwhile.
        """
        told = await (self._told_to_come(row) if row.state in OPEN else self._told(row))
        outcome = await self.lines.outcome(row.run_id)
        if outcome is not None:
            return outcome
        end = told[-1] if told else None
        last = end.result if isinstance(end, RunEnd | RunPaused) else None
        # Of a message that the thread held already, it is the result of the turn that the message is of.
        turn_id = row.turn_id if last is None else last.turn_id
        rows = await self.ledger.turns.turn(turn_id, tenant_id=row.tenant_id)
        mine = [found for found in rows if found.thread_id == row.thread_id]
        if last is None:
            return result_of(mine)
        steps = tuple(event.result for event in told if isinstance(event, StepEnd))
        return replace(last, steps=steps, messages=tuple(found.message for found in mine))

    async def _told_to_come(self, row: RunRow) -> Sequence[Event]:
        cursor = Cursor(max(row.first_seq - 1, 0))
        async with aclosing(self.follow(thread_of(row), cursor, row.run_id)) as following:
            return [shown.event async for shown in following if shown.type in _RESULTS]

    async def _told(self, row: RunRow) -> Sequence[Event]:
        # Nothing is waited for: what is not there was deleted, and comes no more.
        found = await events_of(self.ledger.events, row)
        return [Shown.of_row(one).event for one in found if one.type in _RESULTS]


def _durable_lines(books: Books, loop: AgentLoop, limits: Limits, durable: Durable, say: Say) -> Lines:
    if books.database is None:
        raise ConfigError("Durable sessions need a database: give Sessions its URL, such as sqlite:///FILE.")
    try:
        from playhead.session.durable.lines import DurableLines
        from playhead.storage.sql_ledger import SQLLedger
    except ImportError as error:
        raise ConfigError(
            f"Durable sessions need a package that is not there ({error.name}). Install it with:"
            " pip install 'playhead[durable]'"
        ) from None
    assert isinstance(books.ledger, SQLLedger)
    return DurableLines(loop, books.ledger, limits, books.database, durable, say)


async def _within(seconds: float, work: Awaitable[None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work


def _begins(row: TurnRow) -> bool:
    return isinstance(row.message, UserMessage) and not row.step_index


def named(thread_id: str, tenant: str | None) -> Thread:
    """Return a thread that shall be written. Raises `StoreError`, `invalid`, for what cannot name one."""
    if not thread_id:
        raise coded("invalid", "The thread id is empty; give each conversation a name of its own.")
    check_not_a_job(thread_id)
    if scrub(thread_id) != thread_id or (tenant and scrub(tenant) != tenant):
        raise coded("invalid", "A thread's id, or its tenant's, holds NUL or half a surrogate pair.")
    return Thread(thread_id, tenant)
