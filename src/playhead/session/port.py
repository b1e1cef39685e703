"""The port of a run that is written down as it happens, and shown while it is."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from playhead.errors import StoreError
from playhead.events import Event, RunEnd, RunPaused, RunStart, StepEnd, UserMessageEvent
from playhead.ids import now_ms
from playhead.llm.history import normalise
from playhead.llm.window import estimate_tokens
from playhead.port import Effect, PlainPort
from playhead.session.borders import fitting
from playhead.session.compaction import Compactor, Earlier
from playhead.session.feed import Feed
from playhead.session.journal import Journal, new_event
from playhead.session.summarising import shown_summary
from playhead.storage.base import DEFAULT_TURNS, TurnRow
from playhead.storage.ledger import Entry, Ledger, PendingCall, Recorded, RunRow, RunState
from playhead.types import AgentStep, ChatMessage, ToolCall, UserMessage
from playhead.waiting import left_open

T = TypeVar("T")
Pend = Callable[[Sequence[ToolCall]], Sequence[PendingCall]]
Steer = Callable[[int], Awaitable[Sequence[UserMessage]]]


class StoredPort(PlainPort):
    """A `PlainPort` whose history is read from a ledger, and whose messages and events go there.

    The user's message is written before the first model call, an assistant message before its
    tools run, each tool result as it lands: no effect begins before what was said is written. Whatever
    interrupts a run, the next one of the thread is given a history that providers accept: the rows
    stay raw, what is read of them is normalised.

    Args:
        ledger: where all of it is kept.
        run: the run, as it was accepted.
        feed: where it is shown.
        turns: how many earlier turns the model is shown.
        tokens: how many tokens, as estimated, these may have with the turn that is carried out, which
            is always whole; None for no bound.
        held: rows of the thread that are in memory: what is read again of them keeps its encoded bytes.
        compactor: what reads the thread's earlier turns, and summarises the oldest of them.
        flush_seconds: how long a text may be shown and not be written.
        pend: what is to be kept of the calls that the run leaves waiting.
        steer: returns messages that came in for this run before a step, and are written as its own.
        journal: what writes, where it is not to be a plain one.
        cancel: as `PlainPort` takes it.
        on_deleted: as `Journal` takes it.
    """

    def __init__(
        self,
        ledger: Ledger,
        run: RunRow,
        feed: Feed,
        *,
        turns: int = DEFAULT_TURNS,
        tokens: int | None = None,
        held: Sequence[TurnRow] = (),
        compactor: Compactor | None = None,
        flush_seconds: float = 0.5,
        pend: Pend | None = None,
        steer: Steer | None = None,
        cancel: asyncio.Event | None = None,
        journal: Journal | None = None,
        on_deleted: Callable[[], None] | None = None,
    ) -> None:
        plain = {"cancel": cancel, "answers": run.answers, "turn_id": run.turn_id, "run_id": run.run_id}
        super().__init__((), **plain)  # type: ignore[arg-type]  # named as they are
        self.tenant = run.tenant_id
        self.quiet = False
        self.journal = journal or Journal(ledger, run, feed, flush_seconds, on_deleted=on_deleted)
        self.delta = self.journal.live
        self.steps: list[AgentStep] = []
        self._ledger = ledger
        self._run = run
        self._turns = turns
        self._tokens = tokens
        self._held = {(row.turn_id, row.id): row for row in held}
        self._earlier: Sequence[TurnRow] = ()
        self._compactor = compactor
        self._compacted = Earlier((), None, True)
        self._pend = pend
        self._steer = steer
        self._start: TurnRow | None = None
        self._begun = False
        self._closed = False

    @property
    def begun(self) -> bool:
        """Is it written that the run began?"""
        return self._begun

    @property
    def written(self) -> Sequence[ChatMessage]:
        """What the run said so far."""
        return [row.message for row in self.journal.rows]

    @property
    def rows(self) -> Sequence[TurnRow]:
        """What was read of the thread, and what was written since."""
        return [*self._earlier, *self.journal.rows]

    def opening(self) -> Entry:
        """What is written when the run begins, the user's message with it."""
        run = self._run
        said = () if run.message is None else ((run.message, 0),)
        return Entry(run, [new_event(*named) for named in opening_events(run)], said, "running")

    def opened(self, entry: Entry, recorded: Recorded) -> None:
        """The run's opening was written."""
        self._begun = True
        self._start = recorded.rows[0] if recorded.rows else None
        self.journal.adopt(entry, recorded)

    async def open(self) -> str:
        """Write that the run began, unless that was done, and return the turn that its message is of.

        A message that the thread holds already is not written again: it is then of another turn, and
        the run must not go on.
        """
        if not self._begun:
            opening = self.opening()
            self.opened(opening, await self.journal.write_down(opening))
        return self._start.turn_id if self._start is not None else self.turn_id

    def close(self, *, but_end: bool = False) -> None:
        """Write nothing more: the run was given up, though something of it may still be at work.

        With `but_end`, what it said until now can still be written, with its end.
        """
        self._closed = True
        if but_end:
            self.journal.give_up()
        else:
            self.journal.stop()

    async def history(self) -> Sequence[ChatMessage]:
        await self.open()
        before = self._start.seq if self._start is not None else None
        if self._compactor is not None:
            self._compacted = await self._compactor.earlier(self, self._run, before)
            found = self._compacted.rows
        else:
            thread_id, tenant_id = self._run.thread_id, self._run.tenant_id
            found = await self._ledger.turns.window(
                thread_id, turns=self._turns, before_seq=before, tenant_id=tenant_id
            )
        # What the thread holds is asked for each time: another process may have deleted or edited it.
        self._earlier = [self._held.get((row.turn_id, row.id), row) for row in found]
        return await self._readable()

    async def inbox(self, step: int) -> Sequence[UserMessage]:
        return await self._steer(step) if self._steer is not None else ()

    async def emit(self, key: str, event: Event, message: ChatMessage | None = None) -> None:
        if self._closed:
            raise StoreError("The run is over; what comes after its end is not written.")
        if isinstance(event, RunEnd | RunPaused):
            state: RunState = "paused" if isinstance(event, RunPaused) else "ended"
            result = event.result
            pending = self._pend(result.pending) if self._pend is not None and result.pending else ()
            more: dict[str, Any] = {"state": state, "finish_reason": result.finish_reason, "pending": pending}
            await self.journal.write([(key, event)], **more)
        else:
            self.journal.add(key, event, None if message is None else (message, event.step))
        if isinstance(event, StepEnd):
            self.steps.append(event.result)

    def step(self, name: str, type: type[T], fn: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        effect = super().step(name, type, fn)

        async def written_first() -> T:
            # Not within the effect: a stop becomes a value only there, and must not meet this.
            await self.journal.barrier()
            return await effect

        return Effect(written_first)

    async def _readable(self) -> Sequence[ChatMessage]:
        """The history as providers accept it; calls that wait for an answer stay open."""
        rows = [*self._earlier, self._start] if self._start is not None else list(self._earlier)
        tokens, front = self._tokens, self._summary(whole=True)
        if tokens is not None:
            tokens -= round(sum(map(estimate_tokens, front)))
        shown = fitting(rows, tokens)
        front = self._summary(whole=len(shown) == len(rows))
        messages = [row.message for row in shown]
        asked, calls, _ = left_open(messages)
        if calls:
            border = next(n for n, message in enumerate(messages) if message is asked)
            known = await self._ledger.pending(shown[border].turn_id, tenant_id=self._run.tenant_id)
            waiting = {p.call.id for p in known if p.answered_by in (None, self.run_id)}
            if any(call.id in waiting for call in calls):
                return [*front, *normalise(messages[:border]), *messages[border:]]
        return [*front, *normalise(messages)]

    def _summary(self, whole: bool) -> list[ChatMessage]:
        """What stands for the turns before the rows: a message that is made for the model, and no row."""
        earlier = self._compacted
        return [shown_summary(earlier.summary, whole and earlier.whole)] if earlier.summary else []


def opening_events(run: RunRow) -> list[tuple[str, Event]]:
    """Return how a run begins: the events and their keys."""
    stamp: dict[str, Any] = {"run_id": run.run_id, "at": now_ms()}
    events: list[tuple[str, Event]] = [("0/start", RunStart(turn_id=run.turn_id, **stamp))]
    if run.message is not None:
        events.append(("0/message", UserMessageEvent(message=run.message, **stamp)))
    return events


def last_turns(rows: Sequence[TurnRow], turns: int) -> Sequence[TurnRow]:
    """Return the rows of the last turns."""
    seen: set[str] = set()
    for n in range(len(rows) - 1, -1, -1):
        seen.add(rows[n].turn_id)
        if len(seen) > turns:
            return rows[n + 1 :]
    return rows
