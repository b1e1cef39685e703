"""Writes a run down as it happens, and shows each event once it is written.

What is said at the same time is written at once. Text is shown as it comes and written in larger
pieces, by time and by size, and always before whatever comes after it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from msgspec.structs import replace

from playhead.encode import masked_traceback
from playhead.errors import StoreError
from playhead.events import Attempt, Event, LiveEvent, StepStart, ToolProgress
from playhead.ids import new_id
from playhead.session.feed import GROWING, Feed, Growing
from playhead.session.shown import LAST, Shown, event_bytes
from playhead.storage.base import TurnRow
from playhead.storage.ledger import DELETED, Also, Entry, Ledger, NewEvent, Recorded, RunRow
from playhead.types import ChatMessage

logger = logging.getLogger("playhead")

FLUSH_CHARACTERS = 4_096
# A database that is away or locked is waited for this long, in seconds, before the run gives up.
PATIENCE = 20.0
# How often the progress of one call is recorded, in seconds.
PROGRESS = 5.0
LONGEST_DELAY = 1.0  # between two tries
_FIRST_DELAY = 0.05
_COMPANY = 0.025

Said = tuple[ChatMessage, int]


@dataclass(slots=True)
class _Batch:
    """What waits to be written, and who waits for it. What is not to be recorded keeps its place among
    the events: a text must not overtake the step that it is of."""

    events: list[tuple[NewEvent | None, Event]] = field(default_factory=list)
    messages: list[Said] = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    waiters: list[asyncio.Future[Recorded]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.events or self.messages or self.notes or self.more or self.waiters)


class Journal:
    """The way of one run's events and messages into its ledger and its feed.

    Args:
        ledger: where they are written.
        run: the run, as it was accepted.
        feed: where they are shown.
        flush_seconds: how long a text may be shown and not be written.
        patience: how long a database that is away is waited for, in seconds; `PATIENCE` by default.
        resumed: some of the run may be written already, by who carried it out before.
        guard: of what was noted, returns what each entry is written with, and raises where it must not be.
        on_deleted: called when the run is found to be deleted; nothing more is then written or shown.
    """

    def __init__(
        self,
        ledger: Ledger,
        run: RunRow,
        feed: Feed,
        flush_seconds: float,
        *,
        patience: float | None = None,
        resumed: bool = False,
        guard: Callable[[Sequence[Any]], Also] | None = None,
        on_deleted: Callable[[], None] | None = None,
    ) -> None:
        self.rows: list[TurnRow] = []
        self._ledger = ledger
        self._run = run
        self._feed = feed
        self._flush_seconds = flush_seconds
        self._loop = asyncio.get_running_loop()
        self._keys: set[str] = set()
        self._waiting = _Batch()
        self._task: asyncio.Task[None] | None = None
        self._texts: list[list[Growing]] = []
        self._characters = 0
        self._flushed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._shown_in_step = False
        self._ahead = 0  # what must be shown before a live event may be
        self._unwritten = 0
        self._unsure = self._replays = resumed
        self._patience = patience
        self._guard = guard
        # Texts of this attempt at the run are not those of one before.
        self._attempt = f"{new_id()}." if resumed else ""
        self._stopped = False
        self._progress_at: dict[str, float] = {}
        self._progressed = 0
        self._on_deleted = on_deleted
        self._deleted: StoreError | None = None
        self._given_up = False
        self._hurried = False

    def add(self, key: str, event: Event, message: Said | None = None) -> None:
        """Record an event soon, once for its key, with the message that it stands for."""
        if isinstance(event, StepStart):
            self._shown_in_step = False
        self.flush()
        if key not in self._keys:
            self._put(key, event)
            if message is not None:
                self._waiting.messages.append(message)
                self._unwritten += 1
        if message is not None:
            self._start()
        elif self._task is None and self._soon is None:
            # Alone it is not worth a commit: what it announces mostly follows at once.
            self._soon = self._loop.call_later(_COMPANY, self._start)

    def note(self, note: Any) -> None:
        """Have the guard write something with what comes next. The barrier waits for it."""
        self._waiting.notes.append(note)
        self._unwritten += 1
        self._start()

    def void(self, event: Attempt) -> None:
        """Record that what was shown of a step is void, for those too who come back later."""
        self._texts.clear()
        self._shown_in_step = False
        self._put(f"{event.step}/attempt/{self._attempt}{event.number}", event)
        self._start()

    def adopt(self, entry: Entry, recorded: Recorded) -> None:
        """Show what was written of the run before it began."""
        self.rows.extend(recorded.rows)
        for new, seq in zip(entry.events, recorded.seqs, strict=True):
            if seq is not None:
                self._keys.add(new.key)
                self._tell(new, seq, recorded)

    async def barrier(self) -> None:
        """Return once every message so far is written. Raises `StoreError`."""
        if self._unwritten:
            await self._written()

    async def write(
        self, events: Sequence[tuple[str, Event]], messages: Sequence[Said] = (), **more: Any
    ) -> Recorded | None:
        """Record events with the messages that they stand for, and return when it is done.

        None where there was nothing new. `more` are fields of `Entry`. Raises `StoreError`; what was
        not written is then tried again with whatever comes next.
        """
        new = [(key, event) for key, event in events if key not in self._keys]
        if events and not new and not self._waiting:
            return None
        self.flush()
        for key, event in new:
            self._put(key, event)
        if new or not events:
            self._waiting.messages.extend(messages)
            self._unwritten += len(messages)
            self._waiting.more.update(more)
        return await self._written()

    async def _written(self) -> Recorded:
        waiter: asyncio.Future[Recorded] = self._loop.create_future()
        self._waiting.waiters.append(waiter)
        self._start()
        return await waiter

    def live(self, event: LiveEvent) -> None:
        """Show what is not recorded, or not yet."""
        if self._stopped or self._given_up:
            return
        if isinstance(event, GROWING):
            self._grow(event)
        elif isinstance(event, Attempt) and event.number > 1 and self._shown_in_step:
            self.void(event)
            return
        elif isinstance(event, ToolProgress) and self._worth_recording(event):
            self._put(f"{event.step}/progress/{event.call_id}/{self._attempt}{self._progressed}", event)
            self._start()
            return
        if self._ahead:
            self._ahead += 1
            self._waiting.events.append((None, event))
            if isinstance(event, GROWING):
                self._start()
        else:
            self._feed.live(self._run.run_id, event)

    def _worth_recording(self, event: ToolProgress) -> bool:
        """A long job's progress is for those too who come later, or read elsewhere; a short one's is not."""
        now = monotonic()
        last = self._progress_at.setdefault(event.call_id, now)
        if now - last < PROGRESS:
            return False
        self._progress_at[event.call_id] = now
        self._progressed += 1
        return True

    def flush(self) -> None:
        """Record the text so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._characters = 0
        for deltas in self._texts:
            self._flushed += 1
            first = deltas[0]
            whole = replace(first, text="".join(delta.text for delta in deltas)) if deltas[1:] else first
            key = f"{first.step}/{first.type}/{self._attempt}{self._flushed}"
            self._waiting.events.append((new_event(key, whole), whole))
        if self._texts:
            self._texts = []
            self._start()

    def hurry(self) -> None:
        """Wait no more for a database that is away: what cannot be written at once is given up."""
        self._hurried = True

    def give_up(self) -> None:
        """Show nothing more than the text so far, and do not write the run's own end, which was not written
        yet: another is told. What was said can be written with that."""
        self._given_up = True
        for new, event in self._waiting.events:
            if new is None and isinstance(event, GROWING):
                self._feed.live(self._run.run_id, event)
        kept: list[tuple[NewEvent | None, Event]] = [
            (new, event) for new, event in self._waiting.events if new is not None and event.type not in LAST
        ]
        self._waiting.events, self._waiting.more = kept, {}
        self._cancel_timers()

    def stop(self) -> None:
        """Write and show nothing more."""
        self._stopped = True
        self._cancel_timers()

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._soon):
            if timer is not None:
                timer.cancel()

    def _put(self, key: str, event: Event) -> None:
        self._keys.add(key)
        self._waiting.events.append((new_event(key, event), event))
        self._ahead += 1

    def _grow(self, event: Growing) -> None:
        self._shown_in_step = True
        last = self._texts[-1][-1] if self._texts else None
        if last is not None and type(last) is type(event) and last.message_id == event.message_id:
            self._texts[-1].append(event)
        else:
            self._texts.append([event])
        self._characters += len(event.text)
        if self._characters >= FLUSH_CHARACTERS:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._flush_seconds, self.flush)

    def _start(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._task is None:
            self._task = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, _Batch()
                try:
                    recorded = await self._record(batch)
                except Exception as error:
                    self._failed(batch, error)
                    return
                self._show(batch, recorded)
        finally:
            self._task = None

    async def _record(self, batch: _Batch) -> Recorded:
        new = [event for event, _ in batch.events if event is not None]
        if not (new or batch.messages or batch.notes or batch.more):
            return Recorded((), ())
        also = () if self._guard is None else (self._guard(tuple(batch.notes)),)
        return await self.write_down(Entry(self._run, new, batch.messages, also=also, **batch.more))

    async def write_down(self, entry: Entry) -> Recorded:
        """Write an entry; a database that is away for a moment is waited for. Raises `StoreError`."""
        deadline, delay = monotonic() + (PATIENCE if self._patience is None else self._patience), _FIRST_DELAY
        while True:
            if self._stopped:
                raise self._deleted or StoreError("The run is over; what comes after its end is not written.")
            try:
                return await self._ledger.record(replace(entry, again=True) if self._unsure else entry)
            except StoreError as error:
                if error.code == DELETED:
                    self._end_deleted(error)
                    raise
                # What became of it is not known, and some of it is in whatever is tried next.
                self._unsure, self._replays = True, False
                if not error.passing or self._hurried or monotonic() > deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_DELAY)

    def _end_deleted(self, error: StoreError) -> None:
        self._deleted = error
        self.stop()
        if self._on_deleted is not None:
            self._on_deleted()

    def _show(self, batch: _Batch, recorded: Recorded) -> None:
        self.rows.extend(recorded.rows)
        self._unwritten -= len(batch.messages) + len(batch.notes)
        run_id, places = self._run.run_id, iter(recorded.seqs)
        for new, event in batch.events:
            self._ahead -= new is None or not isinstance(event, GROWING)
            if new is None:
                self._feed.live(run_id, event)  # type: ignore[arg-type]  # it is a live one
            elif (seq := next(places)) is not None:
                self._tell(new, seq, recorded)
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(recorded)

    def _tell(self, new: NewEvent, seq: int, recorded: Recorded) -> None:
        if self._replays and seq in recorded.known:
            # An attempt before wrote it. What is made again says the same at another time: it is the one
            # that is written which readers have, or get.
            self._feed.look(seq)
        else:
            self._feed.record(self._run.run_id, Shown(new.type, data=new.data, seq=seq))

    def _failed(self, batch: _Batch, error: Exception) -> None:
        waiters = [*batch.waiters, *self._waiting.waiters]
        self._waiting.events[:0] = batch.events
        self._waiting.messages[:0] = batch.messages
        self._waiting.notes[:0] = batch.notes
        self._waiting.more = {**batch.more, **self._waiting.more}
        self._waiting.waiters = []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
        if not waiters and self._deleted is None:
            logger.warning("Events of a run wait to be written:\n%s", masked_traceback(error))


def new_event(key: str, event: Event) -> NewEvent:
    """Return an event as it is recorded."""
    return NewEvent(key, event.type, event_bytes(event), event.at)
