"""Threads and their runs on the server's side: stored as they happen, one active run for each thread.

A run belongs to nobody who listens to it: readers come and go, and only `cancel` or `aclose` stops
it. It ends with exactly one last event, also when the application's own code fails in it.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from msgspec.structs import replace

from playhead.errors import ConfigError
from playhead.events import Event
from playhead.gates import OPEN, GateStore
from playhead.ids import new_id
from playhead.llm.breaker import CLOSED, BreakerStore
from playhead.loop import AgentLoop
from playhead.session.approvals import check_answer, plain_answer
from playhead.session.compaction import Compaction
from playhead.session.durable.options import Durable
from playhead.session.feed import Cursor, parse_cursor
from playhead.session.opened import Opened, named
from playhead.session.opening import Books, DatabaseLike, Shared, open_books
from playhead.session.reading import Reading
from playhead.session.runs import LiveRun, RunHandle, Said, handle_of, user_message
from playhead.session.settings import Limits
from playhead.session.shown import Shown, decoded
from playhead.storage.base import DEFAULT_TURNS
from playhead.storage.ledger import PendingCall, Policy, RunRow, Thread, coded, thread_of
from playhead.tools.aside import check_aside
from playhead.types import AgentRunResult, UserMessage

_LIMITS = ("window", "keep_runs", "keep_for", "stop_timeout", "flush_seconds", "approval_seconds")


class Sessions(Reading):
    """Runs a loop for any number of threads. An async context manager: leaving it stops all runs.

    Args:
        loop: what answers.
        database: where all of it is kept: a URL such as `sqlite:///playhead.db` or
            `postgresql://USER:PASSWORD@HOST/NAME`, or what `open_database` returned. Without one it
            lives in memory, as long as the sessions.
        window: how many earlier turns of its thread a run is shown.
        window_tokens: how many tokens, as estimated, these may have with the turn that is carried out;
            of the turns only as many are shown, whole, as fit. None for no bound.
        compaction: summarise the oldest turns for the model; all later ones are then shown.
        keep_aside_above: tool results of more characters are kept whole beside the thread; the model is
            shown their beginning and end, and reads on with the tool `read_result`.
        keep_runs: in memory, how many finished runs are remembered, with their events.
        keep_for: in memory, for how many seconds they are.
        stop_timeout: how many seconds a run may take to end once it was stopped.
        flush_seconds: how long a text may be shown and not be written.
        approval_seconds: for how long an answer to a call that waits is taken.
        durable: runs survive the death of this process: another one on the same database, or the next one,
            goes on with them (`docs/durable.md`). Needs a database and the extra `durable`; a process has
            one such `Sessions`. A `Durable` says how.

    A `tenant` is part of a thread's name, and of who may ask for a run: what is another tenant's is
    unknown. A `message_id` makes sending a message again harmless: the run is the same one.

    Raises `ConfigError` for a value out of range; every method raises `StoreError`, whose `code` is
    `not_found`, `invalid`, `conflict`, `stopping` once the sessions are closed, or `store` when the
    database fails.
    """

    def __init__(
        self,
        loop: AgentLoop,
        database: "DatabaseLike | None" = None,
        *,
        window: int = DEFAULT_TURNS,
        window_tokens: int | None = None,
        compaction: Compaction | None = None,
        keep_aside_above: int | None = None,
        keep_runs: int = 200,
        keep_for: float = 900.0,
        stop_timeout: float = 3.0,
        flush_seconds: float = 0.5,
        approval_seconds: float = 86_400.0,
        durable: bool | Durable = False,
    ) -> None:
        if window_tokens is not None and window_tokens < 1:
            raise ConfigError(f"Sessions: window_tokens is {window_tokens!r}; it must be 1 or more, or None.")
        given = (window, keep_runs, keep_for, stop_timeout, flush_seconds, approval_seconds)
        for name, value in zip(_LIMITS, given, strict=True):
            if value < 0:
                raise ConfigError(f"Sessions: {name} is {value!r}; it must be 0 or more.")
        self._loop = loop
        self._database = database
        self._keep = (keep_runs, keep_for)
        care = (window_tokens, compaction, keep_aside_above)
        if keep_aside_above is not None:
            check_aside(loop.tools, keep_aside_above)
        self._limits = Limits(window, stop_timeout, flush_seconds, approval_seconds, *care)
        self._opening: asyncio.Task[Opened] | None = None
        self._durable = durable if isinstance(durable, Durable) else Durable() if durable else None
        self._closed = False

    async def __aenter__(self) -> "Sessions":
        await self._opened()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def check(self) -> None:
        """Open the database and read from it, which says what is wrong with it, if anything is."""
        await (await self._opened()).ledger.runs(limit=1)

    # ------------------------------------------------------------ saying something

    async def run(
        self,
        thread_id: str,
        message: Said,
        *,
        tenant: str | None = None,
        context: Any = None,
        message_id: str | None = None,
        policy: Policy = "queue",
    ) -> AgentRunResult:
        """Say something in a thread and wait for the answer.

        Being cancelled ends the waiting and not the run, which goes on and is recorded; the same
        `message_id` finds it again.
        """
        started = await self._say(thread_id, message, tenant, context, message_id, policy)
        if isinstance(started, LiveRun):
            return await asyncio.shield(started.result)
        return await (await self._opened()).result_of(started)

    async def start(
        self,
        thread_id: str,
        message: Said,
        *,
        tenant: str | None = None,
        context: Any = None,
        message_id: str | None = None,
        policy: Policy = "queue",
    ) -> RunHandle:
        """Say something in a thread and return once it is written.

        While another run of the thread is at work, the `policy` says what becomes of the message:
        `queue` waits for its turn, in order; `steer` is taken in by that run before its next model
        call, or else waits; `interrupt` stops that run, and waits. No message is ever dropped.
        """
        return _handle(await self._say(thread_id, message, tenant, context, message_id, policy))

    async def answer(
        self,
        run_id: str,
        call_id: str,
        *,
        args_hash: str | None = None,
        tenant: str | None = None,
        context: Any = None,
        **given: Any,
    ) -> RunHandle:
        """Answer a call that a paused run left waiting; a new run of the same turn goes on with it.

        Args:
            run_id: any run of the turn.
            call_id: the call, as `pending` of the run's result names it.
            args_hash: what `pending` of `waiting` says, so that the answer is about what was shown.
            context: for the tools; by default that of the paused run, if it was an `AgentContext`.
            given: fields of `CallAnswer`: `approved`, with `args` to run it with others or a `reason`
                for a no; or the `result` or `error` of a tool that the client executes.
        """
        opened = await self._open()
        row = await opened.found(run_id, tenant)
        answer = plain_answer(call_id, given)
        check_answer(await opened.ledger.pending(row.turn_id, tenant_id=tenant), answer, args_hash)
        given_context = row.context if context is None else context
        run = opened.new_row(thread_of(row), None, given_context)
        run = replace(run, turn_id=row.turn_id, answers=(answer,))
        return _handle(await opened.accept(run, given_context))

    async def update_context(self, thread_id: str, context: Any, *, tenant: str | None = None) -> bool:
        """Give another context to the run of a thread that is at work; its next step and call have it.

        False where no run is at work in this process: what is said next brings its own.
        """
        return (await self._opened()).update_context(named(thread_id, tenant), context)

    async def waiting(self, run_id: str, *, tenant: str | None = None) -> Sequence[PendingCall]:
        """Return the calls of a run's turn that wait for an answer, with what an answer must name."""
        opened = await self._opened()
        return await opened.waiting(await opened.found(run_id, tenant))

    async def cancel(self, run_id: str, *, tenant: str | None = None) -> None:
        """Stop a run and return when it has ended, with `finish_reason "cancelled"`.

        A run that still waits for its turn ends at once, as if its message had not been sent. One
        that has ended stays as it is. One of another process must be stopped there (`conflict`), unless
        it is durable.
        """
        opened = await self._opened()
        await opened.cancel(await opened.found(run_id, tenant))

    # ------------------------------------------------------------ reading

    def events(
        self, run_id: str, *, after: int | str | None = None, tenant: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """The run's events past `after`, a `seq` or the id of a frame, then live.

        The last is `run_end` or `run_paused`. Each reader goes at its own pace; one that is slow gets
        neighbouring deltas as one, and closing it changes nothing for the run.
        """
        return decoded(self.shown(run_id, after=after, tenant=tenant))

    def thread_events(
        self, thread_id: str, *, after: int | str | None = None, tenant: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """The same of a thread: all its runs, one after the other, until the sessions are closed."""
        return decoded(self.shown_in(thread_id, after=after, tenant=tenant))

    async def shown(
        self, run_id: str, *, after: int | str | None = None, tenant: str | None = None
    ) -> AsyncGenerator[Shown, None]:
        """As `events`, each with the id that a reader resumes from, and encoded."""
        opened = await self._opened()
        row = await opened.placed(await opened.found(run_id, tenant))
        cursor = parse_cursor(after) or Cursor(max(row.first_seq - 1, 0))
        async for shown in opened.follow(thread_of(row), cursor, row.run_id):
            yield shown

    async def shown_in(
        self, thread_id: str, *, after: int | str | None = None, tenant: str | None = None
    ) -> AsyncGenerator[Shown, None]:
        """As `thread_events`, each with the id that a reader resumes from, and encoded."""
        opened = await self._opened()
        cursor = parse_cursor(after) or Cursor()
        async for shown in opened.follow(Thread(thread_id, tenant), cursor):
            yield shown

    @property
    def breakers(self) -> BreakerStore:
        """For an `AIRouter`: what is known of providers, shared with all who use the same database."""
        return Shared(self.books, lambda books: books.breakers, CLOSED)

    @property
    def gates(self) -> GateStore:
        """For a `Gate`: who holds a place, shared with all who use the same database."""
        return Shared(self.books, lambda books: books.gates, OPEN)

    async def books(self) -> Books:
        """The stores that the sessions write in, and those that are kept beside them."""
        return (await self._opened()).books

    # ------------------------------------------------------------ changing a thread

    async def fork(
        self, thread_id: str, at: str | None = None, *, to: str | None = None, tenant: str | None = None
    ) -> str:
        """Copy a thread, up to and with the message `at`, and return the id of the copy.

        The copy is made under the id `to`, which must be new. The thread itself stays as it is.
        """
        opened = await self._open()
        thread = Thread(thread_id, tenant)
        target = named(to or new_id(), tenant)
        await opened.ledger.copy(thread, target, (await opened.row(thread, at)).seq)
        return target.thread_id

    async def edit(
        self,
        thread_id: str,
        message_id: str,
        message: Said,
        *,
        tenant: str | None = None,
        context: Any = None,
        new_message_id: str | None = None,
    ) -> RunHandle:
        """Say something else in place of a message: it and all after it leave the conversation.

        What leaves is kept in the store. A thread with a run at work is not edited: `conflict`.
        """
        opened = await self._open()
        thread = named(thread_id, tenant)
        row = await opened.row(thread, message_id)
        return _handle(await opened.anew(thread, row, user_message(message, new_message_id), context))

    async def retry(self, thread_id: str, *, tenant: str | None = None, context: Any = None) -> RunHandle:
        """Ask the last message of the user again: its answer leaves the conversation, as with `edit`."""
        opened = await self._open()
        thread = named(thread_id, tenant)
        row = await opened.last_asked(thread)
        return _handle(await opened.anew(thread, row, UserMessage(row.content), context))

    async def delete(self, thread_id: str, *, tenant: str | None = None) -> int:
        """Stop what runs in a thread and forget it whole; return how many messages it had."""
        opened = await self._open()
        return await opened.delete(Thread(thread_id, tenant))

    async def delete_tenant(self, tenant: str | None) -> int:
        """The same for all threads of a tenant."""
        opened = await self._open()
        await opened.stop_where(lambda one: one.tenant_id == tenant)
        return await opened.ledger.delete_tenant(tenant)

    async def delete_before(self, created_at: int) -> int:
        """Forget turns, events and calls older than a time, in milliseconds since 1970."""
        return await (await self._open()).ledger.delete_before(created_at)

    async def aclose(self) -> None:
        """Stop every run and take no more. Each ends with its last event, within a bound.

        The bound is `stop_timeout` and a moment: a run that does not end by then is given up.
        """
        self._closed = True
        if self._opening is None:
            return
        await asyncio.wait((self._opening,))
        if not self._opening.cancelled() and self._opening.exception() is None:
            await self._opening.result().aclose()

    # ------------------------------------------------------------ inside

    async def _opened(self) -> "Opened":
        if self._opening is None:
            self._opening = asyncio.create_task(self._begin(), name="open sessions")
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if opening.done() and self._opening is opening:
                self._opening = None  # it may be tried again
            raise

    async def _open(self) -> "Opened":
        if self._closed:
            raise coded("stopping", "These sessions are closed and take no more messages.")
        return await self._opened()

    async def _begin(self) -> "Opened":
        books = await open_books(self._database, *self._keep)
        try:
            opened = Opened(books, self._loop, self._limits, self._durable)
            await opened.start()
        except BaseException:
            if books.database is not None and books.closes:
                await books.database.aclose()
            raise
        return opened

    async def _say(
        self,
        thread_id: str,
        message: Said,
        tenant: str | None,
        context: Any,
        message_id: str | None,
        policy: Policy,
    ) -> LiveRun | RunRow:
        opened = await self._open()
        said = user_message(message, message_id)
        row = opened.new_row(named(thread_id, tenant), said, context, policy)
        return await opened.accept(row, context)


def _handle(started: LiveRun | RunRow) -> RunHandle:
    return started.handle if isinstance(started, LiveRun) else handle_of(started)
