"""What a thread tells now, in memory, and how readers follow it: replay from the store, then live.

A run writes into a feed and never waits. Each reader goes at its own pace: one that falls behind what
the feed still holds reads the store again, so nothing recorded is ever missed, and a feed is bounded.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from playhead.events import Event, LiveEvent, ReasoningDelta, TextDelta, ToolProgress
from playhead.session.shown import LAST, Shown, event_bytes
from playhead.storage.ledger import DEFAULT_PAGE, EventLog, EventRow, Thread, coded

Growing: TypeAlias = TextDelta | ReasoningDelta
GROWING = (TextDelta, ReasoningDelta)
_GROWING_TYPES = ("text_delta", "reasoning_delta")

MOST_ITEMS = 1_000
MOST_BYTES = 2**20
# A message that is taken back before its turn tells these while the text of another run goes on. No text
# begins after them: the start of a step comes first.
_OF_ANOTHER = ("run_start", "user_message", "run_end")
# After these, what was only live before is told by what is recorded.
_CLOSING = ("attempt", "step_end", *LAST)


class Cursor(NamedTuple):
    """Where a reader is: past the event `seq`, and within a text past so many characters."""

    seq: int = 0
    offset: int = 0


def parse_cursor(after: "int | str | Cursor | None") -> Cursor | None:
    """Read what a client resumes from, such as `17` or `17.105`. Raises `StoreError`, `invalid`."""
    if after is None or isinstance(after, Cursor):
        return after
    seq, _, offset = str(after).partition(".")
    digits = [part for part in (seq, offset or "0") if part.isascii() and part.isdigit() and len(part) < 18]
    if len(digits) < 2:
        raise coded(
            "invalid", f"after: {str(after)[:50]!r} is no place in a stream; give the id of an event."
        )
    return Cursor(int(seq), int(offset or 0))


class _OfRun(msgspec.Struct, rename="camel"):
    run_id: str = ""


_run_of = msgspec.json.Decoder(_OfRun).decode


class _Item:
    """One thing in a feed. `seq` is its own if it is recorded, else that of the last recorded one."""

    __slots__ = ("gone", "recorded", "run_id", "seq", "shown", "stretch")

    def __init__(self, run_id: str, seq: int, shown: Shown | None, stretch: "_Stretch | None" = None) -> None:
        self.run_id = run_id
        self.seq = seq
        self.shown = shown
        self.stretch = stretch
        self.recorded = shown is not None and shown.seq is not None
        self.gone = False


class _Stretch:
    """Neighbouring live deltas of one text. Who comes late, or is slow, gets them as one."""

    __slots__ = ("end", "pieces", "seq")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.pieces: list[Shown] = []
        self.end = 0

    def add(self, delta: Growing) -> None:
        self.end = delta.offset + len(delta.text)
        # Only a text has an offset that can be resumed from: an id has room for one.
        id = f"{self.seq}.{self.end}" if isinstance(delta, TextDelta) else None
        self.pieces.append(Shown(delta.type, event=delta, id=id))

    def rest(self, offsets: "Offsets", seq: int) -> Shown | None:
        """What of it is new to a reader who has all that is recorded up to `seq`."""
        last = self.pieces[-1]
        newest = _growing(last)
        offset = offsets.known(newest.type, newest.message_id)
        if offset >= self.end:
            return None
        offsets.take(newest)
        if newest.offset == offset and seq == self.seq:
            return last
        texts: list[str] = []
        for piece in reversed(self.pieces):
            delta = _growing(piece)
            if delta.offset + len(delta.text) <= offset:
                break
            texts.append(delta.text[max(offset - delta.offset, 0) :])
            start = max(delta.offset, offset)
        whole = replace(newest, text="".join(reversed(texts)), offset=start)
        return Shown(last.type, event=whole, id=last.id and f"{seq}.{self.end}")


class Feed:
    """The newest of a thread."""

    def __init__(self) -> None:
        self.seq = 0
        self.base = 0
        self.readers = 0
        self.closed = False
        self._items: deque[_Item] = deque()
        self._live: list[_Item] = []  # texts that are not recorded, or not wholly
        self._progress: dict[str, _Item] = {}
        self._bytes = 0
        self._news = asyncio.Event()

    def record(self, run_id: str, shown: Shown) -> None:
        """Tell an event that was recorded."""
        assert shown.seq is not None
        self.seq = max(self.seq, shown.seq)
        rest = self._supersede(run_id, shown)
        self._add(_Item(run_id, shown.seq, shown), len(shown.data))
        for delta in rest:
            self.live(delta.run_id, delta)

    def live(self, run_id: str, event: LiveEvent) -> None:
        """Tell an event that is not recorded, or not yet."""
        if not isinstance(event, GROWING):
            item = _Item(run_id, self.seq, Shown(event.type, event=event))
            if isinstance(event, ToolProgress):
                # Of a call's progress, only the newest is worth telling to who comes late.
                old = self._progress.get(event.call_id)
                if old is not None:
                    old.gone = True
                self._progress[event.call_id] = item
            self._add(item, 0)
            return
        last = self._items[-1] if self._items else None
        if last is not None and last.stretch is not None and not last.gone:
            newest = _growing(last.stretch.pieces[-1])
            if newest.message_id == event.message_id and type(newest) is type(event):
                last.stretch.add(event)
                self._tell()
                return
        stretch = _Stretch(self.seq)
        stretch.add(event)
        item = _Item(run_id, self.seq, None, stretch)
        self._live.append(item)
        self._add(item, 0)

    def end_unless_told(self, run_id: str, event: Event) -> None:
        """Tell the end of a run where it could not be written down."""
        for item in reversed(self._items):
            if item.run_id == run_id and item.shown is not None and item.shown.type in LAST:
                return
        shown = Shown(event.type, data=event_bytes(event))
        # Nothing that is recorded stands for its text: who is behind is told it still, at its place.
        self._live = [item for item in self._live if item.run_id != run_id]
        self._progress = {id: item for id, item in self._progress.items() if item.run_id != run_id}
        self._add(_Item(run_id, self.seq, shown), 0)

    def look(self, seq: int) -> None:
        """Somebody else wrote in the thread, up to `seq`: readers shall look."""
        if seq > self.seq:
            self.seq = seq
            self._tell()

    def close(self) -> None:
        """End every reader, with what there is in memory for it."""
        self.closed = True
        self._tell()

    def at(self, index: int) -> _Item | None:
        """The item of an index, which counts from the first that there ever was."""
        place = index - self.base
        return self._items[place] if place < len(self._items) else None

    async def news(self) -> None:
        """Wait for anything that is new."""
        await self._news.wait()

    def _add(self, item: _Item, size: int) -> None:
        self._items.append(item)
        self._bytes += size
        while len(self._items) > MOST_ITEMS or (self._bytes > MOST_BYTES and len(self._items) > 1):
            oldest = self._items.popleft()
            self.base += 1
            if oldest.recorded and oldest.shown is not None:
                self._bytes -= len(oldest.shown.data)
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news.clear()

    def _supersede(self, run_id: str, shown: Shown) -> list[Growing]:
        """What was live and is now recorded is not told to those who come later.

        Returns what of a text was shown and is not recorded yet: its place is behind whatever is.
        """
        rest: list[Growing] = []
        told = _growing(shown) if shown.type in _GROWING_TYPES else None
        closing = shown.type in _CLOSING
        if closing:
            # What is not among the items any more is told to nobody.
            for item in self._items:
                item.gone |= item.run_id == run_id and item.stretch is None and not item.recorded
            self._progress = {id: item for id, item in self._progress.items() if item.run_id != run_id}
        for item in self._live:
            item.gone = True
            if item.stretch is not None and not (closing and item.run_id == run_id):
                rest += [delta for delta in map(_growing, item.stretch.pieces) if not _holds(told, delta)]
        self._live = []
        return rest


class Offsets:
    """How much of each text a reader has, so that none of it is told twice."""

    def __init__(self, resumed: int) -> None:
        # Characters of the text that goes on, whichever message it is of; 0 between texts.
        self._text = resumed
        self._known: dict[str, tuple[str, int]] = {}

    def known(self, type: str, message_id: str) -> int:
        """The characters that the reader has of a message."""
        held, offset = self._known.get(type, ("", 0))
        if held == message_id and held:
            return offset
        return self._text if type == "text_delta" and not held else 0

    def take(self, delta: Growing) -> None:
        """The reader has the text up to the end of this delta."""
        end = delta.offset + len(delta.text)
        self._known[delta.type] = (delta.message_id, end)
        if isinstance(delta, TextDelta):
            self._text = end

    def rest(self, shown: Shown) -> Shown | None:
        """What of an event is new to the reader, with the id that it is resumed from."""
        if shown.type not in _GROWING_TYPES:
            if self._text and shown.seq is None:
                # Of attempts, it is the one whose text the reader has a part of.
                return None if shown.type == "attempt" else shown
            if self._text and shown.type in _OF_ANOTHER:
                return Shown(shown.type, event=shown.event, seq=shown.seq, id=f"{shown.seq}.{self._text}")
            self._text = 0
            return shown
        delta = _growing(shown)
        known = self.known(shown.type, delta.message_id)
        if delta.offset + len(delta.text) <= known:
            return None
        self.take(delta)
        if delta.offset < known:
            delta = replace(delta, text=delta.text[known - delta.offset :], offset=known)
        id = f"{shown.seq}.{self._text}" if self._text else None
        return Shown(shown.type, event=delta, seq=shown.seq, id=id)


async def follow(
    feed: Feed, log: EventLog, thread: Thread, after: Cursor, *, run_id: str | None = None
) -> AsyncGenerator[Shown, None]:
    """Everything past a cursor, then live: of a thread without end, of a run up to its last event.

    Raises `StoreError` when the store cannot be read.
    """
    seq, offsets, at, looked = after.seq, Offsets(after.offset), feed.base, False
    over: set[str] = set()  # runs whose end was told before it could be written
    feed.readers += 1
    try:
        while True:
            at = max(at, feed.base)
            item = feed.at(at)
            needed = feed.seq if item is None else item.seq - item.recorded
            behind = seq < needed or not looked
            if feed.closed and (item is None or behind):
                return
            if behind:
                page = await log.after(
                    thread.thread_id, seq, run_id=run_id, limit=DEFAULT_PAGE, tenant_id=thread.tenant_id
                )
                # Of a full page nothing says that it was the last, least of all a feed that is new.
                looked = len(page.rows) < DEFAULT_PAGE
                for row in page.rows:
                    shown = None if _was_over(over, row) else offsets.rest(Shown.of_row(row))
                    if shown is not None:
                        yield shown
                    if run_id is not None and row.type in LAST:
                        return
                # What the store does not have, because it was deleted, is not waited for.
                seq = page.through if page.rows or page.through > seq else max(seq, needed)
                continue
            if item is None:
                await feed.news()
                continue
            mine = not item.gone and run_id in (None, item.run_id) and item.run_id not in over
            if item.stretch is not None and mine and item.seq >= seq:
                shown = item.stretch.rest(offsets, seq)
                if shown is not None:
                    yield shown
                    continue
                if feed.at(at + 1) is None and not feed.closed:
                    await feed.news()
                    continue
            at += 1
            stale = item.seq <= seq if item.recorded else item.seq < seq
            seq = max(seq, item.seq)
            if item.shown is None or stale or not mine:
                continue
            shown = offsets.rest(item.shown)
            if shown is not None:
                yield shown
            if item.shown.type in LAST:
                if run_id is not None:
                    return
                if not item.recorded:
                    over.add(item.run_id)
    finally:
        feed.readers -= 1


def _was_over(over: set[str], row: EventRow) -> bool:
    """Is an event of a run whose end the reader has?"""
    return bool(over) and _run_of(row.data).run_id in over


def _holds(told: Growing | None, delta: Growing) -> bool:
    if told is None or told.message_id != delta.message_id or told.type != delta.type:
        return False
    return delta.offset < told.offset + len(told.text)


def _growing(shown: Shown) -> Growing:
    event = shown.event
    assert isinstance(event, GROWING)
    return event
