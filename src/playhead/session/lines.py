"""The lines of threads: one run of a thread at work, the others in order behind it."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from playhead.encode import error_text, masked_traceback
from playhead.errors import PlayheadError, StoreError
from playhead.loop import AgentLoop
from playhead.session.approvals import pending_calls
from playhead.session.aside import Aside
from playhead.session.compaction import Compactor
from playhead.session.feed import Feed
from playhead.session.jobs import Jobs, Say
from playhead.session.journal import Journal, Said
from playhead.session.late import LateEnds
from playhead.session.owner import Part
from playhead.session.port import StoredPort, last_turns, opening_events
from playhead.session.runs import (
    BROKE_OFF,
    CANCELLED,
    LiveRun,
    Reason,
    end_event,
    pass_on,
    result_of,
    written_though_stopped,
)
from playhead.session.settings import Limits
from playhead.storage.base import TurnRow
from playhead.storage.ledger import (
    CONFLICT,
    DELETED,
    OPEN,
    Enlist,
    Entry,
    Ledger,
    RunRow,
    Thread,
    conflict,
    thread_of,
)
from playhead.types import AgentRunResult, UserMessage

logger = logging.getLogger("playhead")

# What a task that was cancelled outright may still take, in seconds, before it is given up.
_LAST_MOMENT = 0.5
# Threads whose last turns are kept in memory, so that the next run need not encode them again.
_RECENT = 64


class Lines:
    """Carries out the runs of this process."""

    def __init__(self, loop: AgentLoop, ledger: Ledger, limits: Limits, say: Say) -> None:
        self.closed = False
        # Its runs hold it, though whoever began them may have let go of everything.
        self.part = Part()
        self.feeds: dict[Thread, Feed] = {}
        self.runs: dict[str, LiveRun] = {}
        self._aside = Aside(loop, ledger, limits.keep_aside_above)
        self._jobs = Jobs(self._aside, ledger, say)
        self._ledger = ledger
        self._limits = limits
        compaction = limits.compaction
        self._compactor = Compactor(compaction, ledger, limits.window) if compaction is not None else None
        self._lines: dict[Thread, deque[LiveRun]] = {}
        self._reserved: set[Thread] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_is_ending = False
        self._ending: set[asyncio.Timeout] = set()
        self.late = LateEnds(self._write_end)
        self._recent: OrderedDict[Thread, Sequence[TurnRow]] = OrderedDict()
        self._around: Callable[[LiveRun], None] = lambda run: None

    async def start(self) -> None:
        """Begin with what is there."""

    def around(self, enter: Callable[[LiveRun], None]) -> None:
        """Call `enter` in the context of each run before it begins."""
        self._around = enter

    def enlist(self, run: LiveRun) -> Enlist | None:
        """What else is written when a run that `reserve` took is accepted."""
        return None

    def add(self, run: LiveRun) -> LiveRun | RunRow:
        """Put a run at the end of its thread's line, and return it, or what others know of it."""
        self.runs[run.run_id] = run
        line = self._lines.setdefault(run.thread, deque())
        line.append(run)
        active = line[0]
        if self.closed:
            self._spawn(self._finish(run, CANCELLED))
        elif active is run:
            self._begin(run)
        elif run.row.policy == "steer":
            active.steering.append(run)
        elif run.row.policy == "interrupt":
            active.cancel.set()
            active.finishing = active.finishing or self._spawn(self._give_up(active))
        return run

    def reserve(self, run: LiveRun) -> Entry | None:
        """Let a run begin as soon as it is accepted, and return what is then written; None where another
        is at work or about to be. `release` must follow."""
        if self.closed or run.thread in self._lines or run.thread in self._reserved:
            return None
        self._reserved.add(run.thread)
        run.port = self._port(run)
        return run.port.opening()

    def release(self, run: LiveRun) -> None:
        """The run was added, or was not accepted."""
        self._reserved.discard(run.thread)
        self.drop_feed(run.thread)

    def feed(self, thread: Thread) -> Feed:
        """Where a thread is shown."""
        feed = self.feeds.get(thread)
        if feed is None:
            feed = self.feeds[thread] = Feed()
        return feed

    def drop_feed(self, thread: Thread) -> None:
        """Forget a feed that nobody reads, and nobody writes or is about to."""
        feed = self.feeds.get(thread)
        used = thread in self._lines or thread in self._reserved
        if feed is not None and not feed.readers and not used:
            del self.feeds[thread]

    def forget_where(self, which: Callable[[Thread], bool]) -> None:
        """Keep nothing of some threads in memory; their readers end."""
        for thread in [thread for thread in self._recent if which(thread)]:
            del self._recent[thread]
        for thread in [thread for thread in self.feeds if which(thread)]:
            self.feeds.pop(thread).close()

    async def end_for_another(self, row: RunRow, reason: Reason) -> None:
        """End a run whose process did not come to it; what its user said is not lost."""
        journal = Journal(self._ledger, row, self.feed(thread_of(row)), 0)
        started = row.state == "running"
        said = [] if started or row.message is None else [(row.message, 0)]
        result = LiveRun(row, None).outcome(reason)
        events = [*([] if started else opening_events(row)), ("end", end_event(row, result))]
        with suppress(StoreError):  # another process saw it, too
            await journal.write(events, said, state="ended", finish_reason=result.finish_reason)
        self.drop_feed(thread_of(row))

    async def stop(self, run: LiveRun) -> None:
        """Stop a run and return when it has ended."""
        if run.absorbing is not None and not run.absorbing.done():
            await asyncio.wait((run.absorbing,))
        by = run.absorbed_by
        if by is not None:
            await self.stop(by)
            return
        run.cancel.set()
        if run.task is None:
            await self._finish(run, CANCELLED)
            return
        run.finishing = run.finishing or self._spawn(self._give_up(run))
        await asyncio.wait((run.finishing,))

    async def cancel(self, row: RunRow) -> RunRow | None:
        """Stop a run that is known by its row; return the one that another process was asked to stop, which
        ends there. Raises `StoreError`, `conflict`, where that cannot be done."""
        run = self.runs.get(row.absorbed_by or row.run_id)
        if run is not None:
            await self.stop(run)
        elif row.state in OPEN:
            raise conflict(f"The run {row.run_id!r} is at work in another process: stop it there.")
        return None

    async def elsewhere(self, which: Callable[[Thread], bool]) -> Sequence[RunRow]:
        """Return the runs of some threads that are open, not here, and can be stopped from here."""
        return ()

    async def outcome(self, run_id: str) -> AgentRunResult | None:
        """The whole result of a run that was carried out here a moment ago, where it is known."""
        return None

    def close(self) -> None:
        """Take no more runs, and from now on wait no longer than a moment for a store that is away."""
        self.closed = True
        for run in (*self.runs.values(), *self.late.runs):
            if run.port is not None:
                run.port.journal.hurry()
        for ending in self._ending:
            ending.reschedule(asyncio.get_running_loop().time() + _LAST_MOMENT)

    async def aclose(self) -> None:
        """Stop every run and take no more."""
        self.close()
        await asyncio.gather(
            *(self.stop(run) for line in tuple(self._lines.values()) for run in list(line)[1:])
        )
        await asyncio.gather(*(self.stop(line[0]) for line in tuple(self._lines.values())))
        await self.late.settle(_LAST_MOMENT)
        self.forget_where(lambda thread: True)

    # ------------------------------------------------------------ the life of a run

    def _begin(self, run: LiveRun) -> None:
        run.place(run.run_id)
        run.task = asyncio.create_task(self._live(run), name=f"run {run.run_id}")

    async def _live(self, run: LiveRun) -> None:
        reason = BROKE_OFF
        try:
            self._around(run)
            result = await self._carry_out(run)
            self._settle(run, result)
            return
        except (asyncio.CancelledError, Exception) as error:
            reason = self._reason(run, error)
        # Whatever becomes of this task, the end is written; where the event loop ends, of all that waits.
        await asyncio.shield(self._spawn(self._finish(run, reason)))
        while self._loop_is_ending and self._tasks:
            await asyncio.wait(self._tasks)

    def _reason(self, run: LiveRun, error: BaseException) -> Reason:
        """How a run ends that was broken off."""
        if isinstance(error, asyncio.CancelledError):
            return self._cancelled(run, error)
        _log_failure(run, error)
        if isinstance(error, PlayheadError):
            return ("error", error_text(error), error.code)
        # The application's own code: its fault must not leave a run open.
        return ("error", f"The run failed: {type(error).__name__}.", "internal")

    async def _carry_out(self, run: LiveRun) -> AgentRunResult:
        port = run.port = run.port or self._port(run)
        turn_id = await port.open()
        if turn_id != run.row.turn_id:
            rows = await self._ledger.turns.turn(turn_id, tenant_id=run.thread.tenant_id)
            result = result_of([row for row in rows if row.thread_id == run.thread.thread_id])
            await self._write_end(run, result)
            return result
        port.answers = await self._aside.begin(run.row)
        made = () if run.row.message is None else port.written[:1]
        result = await self._jobs.loop_for(run.row).run_on(port, context=run.context, made=made)
        self._remember(run, port)
        return result

    def _port(self, run: LiveRun) -> StoredPort:
        return StoredPort(self._ledger, run.row, self.feed(run.thread), **self._port_options(run))

    def _port_options(self, run: LiveRun) -> dict[str, Any]:
        limits = self._limits
        return {
            "turns": limits.window,
            "tokens": limits.window_tokens,
            "held": self._recent.pop(run.thread, ()),
            "compactor": self._compactor,
            "flush_seconds": limits.flush_seconds,
            "pend": lambda calls: pending_calls(calls, self._aside.loop.tools, limits.approval_seconds),
            "steer": lambda step: self._absorb(run, step),
            "cancel": run.cancel,
            "on_deleted": lambda: self._deleted(run),
        }

    async def _absorb(self, active: LiveRun, step: int) -> Sequence[UserMessage]:
        """Give the messages that came to steer a run to it."""
        waiting, active.steering = [run for run in active.steering if run.task is None], []
        if not waiting:
            return ()
        work = asyncio.ensure_future(self._take_in(waiting, active, step))
        for run in waiting:
            run.absorbing = work
        return await written_though_stopped(work, active)

    async def _take_in(self, waiting: Sequence[LiveRun], active: LiveRun, step: int) -> Sequence[UserMessage]:
        taken = set(await self._ledger.absorb([run.row for run in waiting], active.row, step))
        absorbed = [run for run in waiting if run.run_id in taken]
        for run in absorbed:
            run.place(active.run_id)
            run.absorbed_by = active
            if run.context.value is not None:
                active.context.value = run.context.value
            self._leave(run)
            active.result.add_done_callback(pass_on(run.result))
        return [run.row.message for run in absorbed if run.row.message is not None]

    async def _finish(self, run: LiveRun, reason: Reason) -> None:
        """See to it that the end is told and written, once, and let the next run of the thread begin."""
        if run.result.done():
            return
        run.deleted = run.deleted or reason[2] == DELETED
        result = run.outcome(reason)
        if reason[2] == StoreError.code:
            # It was waited for long enough.
            self._settle(run, result, late=not self.closed)
            return
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LAST_MOMENT if self.closed else None) as ending:
                self._ending.add(ending)
                try:
                    await self._write_end(run, result)
                finally:
                    self._ending.discard(ending)
        if not run.result.done():
            self._settle(run, result)

    async def _write_end(self, run: LiveRun, result: AgentRunResult, *, unbegun: bool = False) -> None:
        events, said, port = opening_events(run.row), list[Said](), run.port
        journal = Journal(self._ledger, run.row, self.feed(run.thread), 0) if port is None else port.journal
        taken_back = run.task is None and not self.closed and result.finish_reason == "cancelled"
        if taken_back or result.error_code == CONFLICT:
            events = events[:1]  # as if it had not been said; what has the id of another message cannot be
        elif run.task is None and run.row.message is not None:
            said = [(run.row.message, 0)]
        more: dict[str, Any] = {"state": "ended", "finish_reason": result.finish_reason}
        if unbegun:
            more["unbegun"] = True
        await journal.write([*events, ("end", end_event(run.row, result))], said, **more)

    def _settle(self, run: LiveRun, result: AgentRunResult, *, late: bool = False) -> None:
        feed = self.feeds.get(run.thread)
        if run.port is not None:
            run.port.close(but_end=late)
        if late:
            self.late.add(run, result)
        if feed is not None:
            feed.end_unless_told(run.run_id, end_event(run.row, result))
        run.place(run.run_id)
        run.result.set_result(result)
        self._leave(run)

    def _leave(self, run: LiveRun) -> None:
        self.runs.pop(run.run_id, None)
        line = self._lines.get(run.thread)
        if not line or run not in line:
            return
        active = line[0] is run
        line.remove(run)
        if not line:
            del self._lines[run.thread]
            self.drop_feed(run.thread)
        elif active and self.closed:
            self._spawn(self._finish(line[0], CANCELLED))
        elif active:
            self._begin(line[0])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _give_up(self, run: LiveRun) -> None:
        """Wait for a run that was stopped, within a bound."""
        assert run.task is not None
        done, _ = await asyncio.wait((run.task,), timeout=self._limits.stop_timeout)
        if not done:
            run.task.cancel()
            await asyncio.wait((run.task,), timeout=_LAST_MOMENT)
            await self._finish(run, CANCELLED)

    def _deleted(self, run: LiveRun) -> None:
        """Stop a run that another process deleted, with its thread."""
        run.deleted = True
        run.cancel.set()
        if run.task is not None:
            run.finishing = run.finishing or self._spawn(self._give_up(run))

    def _cancelled(self, run: LiveRun, error: asyncio.CancelledError) -> Reason:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            # Nobody cancelled the run: the application's own code let such an error escape.
            _log_failure(run, error)
            return ("error", "The run failed: CancelledError.", "internal")
        if not run.cancel.is_set() and self._loop_ends(task):
            self.closed = self._loop_is_ending = True
        return CANCELLED

    def _loop_ends(self, task: asyncio.Task[Any]) -> bool:
        """Is the event loop itself ending? Then all tasks are cancelled at once; what we begin by ourselves
        to write the end of a run is not."""
        others = asyncio.all_tasks() - self._tasks - {task}
        return all(other.cancelling() for other in others)

    def _remember(self, run: LiveRun, port: StoredPort) -> None:
        self._recent[run.thread] = last_turns(port.rows, self._limits.window)
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)


def _log_failure(run: LiveRun, error: BaseException) -> None:
    if isinstance(error, StoreError) and error.code == DELETED:
        logger.info("Run %s was stopped: its thread was deleted.", run.run_id)
        return
    # Masked: the application's own errors may quote a key, and name paths of this machine.
    logger.error("Run %s failed.\n%s", run.run_id, masked_traceback(error))
