"""What a session writes down: runs, what they showed, what was said. One protocol for all of it,
because a message, the event that shows it and the state of its run are written in one transaction.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from playhead.errors import StoreError
from playhead.storage.base import TurnRow, TurnStore
from playhead.storage.results import ResultStore
from playhead.storage.summaries import SummaryStore
from playhead.types import AgentContext, CallAnswer, ChatMessage, FinishReason, ToolCall, UserMessage

RunState: TypeAlias = Literal["queued", "running", "paused", "ended", "absorbed"]
Policy: TypeAlias = Literal["queue", "steer", "interrupt"]
PendingKind: TypeAlias = Literal["approval", "client"]

OPEN: tuple[RunState, ...] = ("queued", "running")
Also: TypeAlias = Callable[[Any], None]
"""What else is written in a transaction, by whoever carries out the run: a function of its connection."""
DEFAULT_PAGE = 500
CONFLICT, DELETED = "conflict", "deleted"  # the codes of `conflict` and `deleted`


class Enlist(NamedTuple):
    """What else is written when a run is accepted: `write` is called with the connection, and with whether
    the run begins at once, which it does with `at_once` where no other run of its thread is open."""

    write: Callable[[Any, bool], None]
    at_once: bool = True


class Thread(msgspec.Struct, frozen=True, order=True):
    """A thread of a tenant."""

    thread_id: str
    tenant_id: str | None = None


class RunRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One run of a thread.

    Attributes:
        message: what it begins with; None for a run that answers calls.
        answers: to calls that an earlier run of the turn left waiting.
        context: what the host application showed, where it is of the type that can be kept.
        owner: the process that carries it out.
        absorbed_by: the run that took the message in, of one that was to steer.
        first_seq: the `seq` of its first event, 0 while it has none.
        finish_reason: once it has ended.
        created_at: when it was accepted, in milliseconds since 1970.
    """

    run_id: str
    turn_id: str
    thread_id: str
    tenant_id: str | None = None
    state: RunState = "queued"
    policy: Policy = "queue"
    message: UserMessage | None = None
    answers: Sequence[CallAnswer] = ()
    context: AgentContext | None = None
    owner: str = ""
    absorbed_by: str | None = None
    first_seq: int = 0
    finish_reason: FinishReason | None = None
    created_at: int = 0


def thread_of(run: RunRow) -> Thread:
    """Return the thread of a run."""
    return Thread(run.thread_id, run.tenant_id)


class NewEvent(msgspec.Struct, frozen=True):
    """An event to be recorded: once for its `key` in its run. `data` is its JSON, without `seq`."""

    key: str
    type: str
    data: bytes
    at: int


class EventRow(msgspec.Struct, frozen=True):
    """An event as it was recorded. `seq` grows by one with each event of a thread."""

    seq: int
    type: str
    data: bytes


class EventPage(msgspec.Struct, frozen=True):
    """Some of a thread's events. With them the reader knows all of them up to `through`."""

    rows: Sequence[EventRow]
    through: int


class PendingCall(msgspec.Struct, frozen=True, rename="camel"):
    """A call that waits for a person's approval, or for a client to execute it.

    `args_hash` is what an answer must name: it is about these arguments and no others. Times are in
    milliseconds since 1970.
    """

    call: ToolCall
    kind: PendingKind
    args_hash: str
    expires_at: int
    answered_by: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """What is written at once, of one run.

    Attributes:
        events: in their order.
        messages: each with the step that made it.
        state: what the run is from now on; None to leave it as it is.
        pending: calls that it leaves waiting.
        again: some of it may have been written before; what is there stays as it is.
        unbegun: nothing is written, with `conflict`, unless the run still waits for its turn.
        also: written before it, and nothing of it is where that raises; of a ledger in a database.
    """

    run: RunRow
    events: Sequence[NewEvent] = ()
    messages: Sequence[tuple[ChatMessage, int]] = ()
    state: RunState | None = None
    finish_reason: FinishReason | None = None
    pending: Sequence[PendingCall] = ()
    again: bool = False
    unbegun: bool = False
    also: Sequence[Also] = ()


class Recorded(msgspec.Struct, frozen=True):
    """What an entry became. The `seq` of an event is None where its key was there before, unless the entry
    is one that may have been written: then it is the one that it has, and among those of `known`."""

    rows: Sequence[TurnRow]
    seqs: Sequence[int | None]
    known: Collection[int] = ()


class EventLog(Protocol):
    """What was shown in each thread, in order. Tenants never see each other.

    Events of a kind or a format that this version does not know are kept, and not returned.
    """

    async def after(
        self,
        thread_id: str,
        seq: int,
        *,
        run_id: str | None = None,
        limit: int = DEFAULT_PAGE,
        tenant_id: str | None = None,
    ) -> EventPage:
        """Return the first events past `seq`: of the thread, or of one of its runs."""
        ...

    async def last(self, threads: Sequence[Thread]) -> Mapping[Thread, int]:
        """Return the `seq` of the last event of each thread; 0 where there is none."""
        ...


async def events_of(log: EventLog, run: RunRow) -> Sequence[EventRow]:
    """Return all that a run showed so far. Raises `StoreError`."""
    found: list[EventRow] = []
    seq = max(run.first_seq - 1, 0)
    while True:
        page = await log.after(run.thread_id, seq, run_id=run.run_id, tenant_id=run.tenant_id)
        found += page.rows
        if page.through <= seq:
            return found
        seq = page.through


class Ledger(Protocol):
    """Everything that sessions keep. Each method is one transaction, and raises `StoreError`."""

    @property
    def turns(self) -> TurnStore: ...
    @property
    def events(self) -> EventLog: ...
    @property
    def summaries(self) -> SummaryStore: ...
    @property
    def results(self) -> ResultStore: ...

    async def accept(self, run: RunRow, *, replaces: int | None = None) -> RunRow:
        """Write a new run; with `replaces`, the thread's rows from that `seq` on leave the conversation,
        and are kept: raises `StoreError` with code `conflict` while another of its runs is open. A message
        whose id the thread holds already is not accepted again: the
        run that it began is returned. Where it is the id of an answer or of a result, the message could
        never be said: raises `StoreError` with code `conflict`.

        A run that answers calls is accepted only where each of them still waits, and nobody spoke
        since: raises `StoreError` with code `conflict` otherwise.
        """
        ...

    async def begin(
        self, opening: Entry, *, replaces: int | None = None, enlist: Enlist | None = None
    ) -> tuple[RunRow, Recorded | None]:
        """Accept a run and write how it begins, at once; None where it was not accepted again.

        With `enlist`, of a ledger in a database, how it begins is written only where no other run of the
        thread is open: None, and the run waits, where one is.
        """
        ...

    async def record(self, entry: Entry) -> Recorded:
        """Write what happened in a run.

        A message whose id the thread holds is not written again. Where the first is of another turn,
        nothing is written at all; where that is no message of the user, and this one is: raises
        `StoreError` with code `conflict`. A run's last state is written once: raises `StoreError` with code
        `conflict` for a run that has ended already, and nothing of the entry is written. Of a run that
        was deleted with its thread nothing is written either, and what others noted of its turn since is
        forgotten: raises `StoreError` with code `deleted`.
        """
        ...

    async def absorb(self, runs: Sequence[RunRow], by: RunRow, step: int) -> Sequence[str]:
        """Give queued runs of a thread to the one that takes their messages in before a step: they are
        written as its own. Returns the ids of those that still were queued, and whose messages can be
        said. Raises as `record` does
        where the run itself was deleted."""
        ...

    async def run(self, run_id: str, *, tenant_id: str | None = None) -> RunRow | None:
        """Return a run, if there is one of that id."""
        ...

    async def runs(
        self, thread: Thread | None = None, *, states: Sequence[RunState] = OPEN, limit: int = 1_000
    ) -> Sequence[RunRow]:
        """Return the runs of a thread, or of all, that are in one of these states, oldest first."""
        ...

    async def last_run(self, thread: Thread) -> RunRow | None:
        """Return the newest run of a thread whose message was not taken in by another, or taken back."""
        ...

    async def pending(self, turn_id: str, *, tenant_id: str | None = None) -> Sequence[PendingCall]:
        """Return the calls of a turn that wait or waited."""
        ...

    async def copy(self, source: Thread, target: Thread, through: int) -> int:
        """Copy what was said up to a `seq` into a thread that must be empty; return how many rows."""
        ...

    async def threads(self, prefix: str, *, tenant_id: str | None = None) -> Sequence[Thread]:
        """Return the threads of a tenant whose ids begin in a way."""
        ...

    async def delete_thread(self, thread: Thread) -> int:
        """Forget a thread with all that belongs to it; return how many messages it had."""
        ...

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """Forget all threads of a tenant; return how many messages they had."""
        ...

    async def delete_before(self, created_at: int) -> int:
        """Forget turns, and runs with their events, older than a time; return how many messages.

        The time is in milliseconds since 1970. What is open stays.
        """
        ...


AT_WORK = "A run of the thread is at work: stop it, or wait for its end, then try again."
SPOKEN_SINCE = "A new message came in the thread; what waited for an answer was denied by it."


def answered(call_id: str) -> str:
    """What is said of an answer that nobody waits for."""
    return f"The call {call_id!r} does not wait for an answer, or has one already."


def over(run: RunRow) -> str:
    """What is said of a run that shall go on after its end."""
    return f"The run {run.run_id!r} has ended, and cannot go on."


def misnamed(message: ChatMessage, role: str) -> StoreError | None:
    """Return the error of a message whose id is that of one of another role in the thread, if it is."""
    if message.role == role:
        return None
    return conflict(f"The id {message.id!r} is that of a message of the {role} in the thread: use a new one.")


def deleted(run: RunRow) -> StoreError:
    """Return the error of a run that shall go on after its thread was deleted."""
    text = f"The thread {run.thread_id!r} was deleted while the run was at work: nothing of it is kept."
    return coded(DELETED, text)


def taken(thread: Thread) -> str:
    """What is said of a copy that would add to another thread."""
    return f"The thread {thread.thread_id!r} is there already: give the copy another id."


def conflict(text: str) -> StoreError:
    """Return the error of something that came too late, or twice."""
    return coded(CONFLICT, text)


def coded(code: str, text: str) -> StoreError:
    """Return a `StoreError` with a code of its own."""
    error = StoreError(text)
    error.code = code
    return error
