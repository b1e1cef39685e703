"""What was written over lines of transcripts, beside what the recogniser wrote, and how to take it back."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from playhead.ids import now_ms

By: TypeAlias = Literal["person", "agent"]
Line: TypeAlias = tuple[int, int, str]
# So many changes of a file can be taken back; the older ones stand.
KEPT = 100


class LineEdit(msgspec.Struct, frozen=True, rename="camel"):
    """A line that was written anew.

    The line is named by its times, in milliseconds, and by `said`, what the recogniser wrote: a
    transcript that is made in another way has other lines, which this one says nothing about.
    """

    start_ms: int
    end_ms: int
    said: str
    text: str

    @property
    def line(self) -> Line:
        """What names the line."""
        return self.start_ms, self.end_ms, self.said


class ChangedLine(LineEdit, frozen=True, rename="camel"):
    """A line as a change left it, and what it was `before`."""

    before: str


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """What was written in one go, and is taken back in one: by a person, or by an agent in one turn.

    `at` is when the last of it was written, in milliseconds since 1970.
    """

    id: str
    by: By
    at: int
    lines: Sequence[ChangedLine]


class EditStore(Protocol):
    """The edits of the transcripts of each file. Tenants never see each other.

    Each method raises `StoreError` when the store cannot be read or written.
    """

    async def edits(self, media_id: str, *, tenant_id: str | None = None) -> Sequence[LineEdit]:
        """Return those of a file, by time."""
        ...

    async def write(
        self,
        media_id: str,
        edits: Sequence[LineEdit],
        *,
        change: str,
        by: By = "person",
        tenant_id: str | None = None,
    ) -> None:
        """Keep edits in place of earlier ones of the same lines, all or none.

        An edit that says what was said is none. What is written with the id of an earlier change is a
        part of that one.
        """
        ...

    async def changes(self, media_id: str, *, tenant_id: str | None = None) -> Sequence[Change]:
        """Return the last changes of a file, the newest first."""
        ...

    async def undo(
        self, media_id: str, change: str, *, tenant_id: str | None = None
    ) -> Sequence[LineEdit] | None:
        """Take a change back; return the lines that are as they were before it.

        A line that somebody has written anew since stays as it is now. None where there is no such
        change, or no longer.
        """
        ...

    async def forget(self, media_id: str, *, tenant_id: str | None = None) -> None:
        """Forget those of a file."""
        ...


def changed_lines(
    held: Mapping[Line, LineEdit], edits: Iterable[LineEdit], earlier: Sequence[ChangedLine] = ()
) -> Sequence[ChangedLine]:
    """Return what edits change about the lines that are `held`, after what the change did `earlier`."""
    lines = {line.line: line for line in earlier}
    for edit in edits:
        now = held[edit.line].text if edit.line in held else edit.said
        mine = lines.pop(edit.line, None)
        before = mine.before if mine is not None and mine.text == now else now
        if edit.text != before:
            lines[edit.line] = ChangedLine(*edit.line, edit.text, before)
    return sorted(lines.values(), key=lambda line: line.line)


def taken_back(held: Mapping[Line, LineEdit], change: Sequence[ChangedLine]) -> Sequence[LineEdit]:
    """Return the edits that take a change back, of the lines that still are as it left them."""
    return [
        LineEdit(*line.line, line.before)
        for line in change
        if (held[line.line].text if line.line in held else line.said) == line.text
    ]


class MemoryEditStore:
    """Edits in memory."""

    def __init__(self) -> None:
        self._held: dict[tuple[str | None, str], dict[Line, LineEdit]] = {}
        self._changes: dict[tuple[str | None, str], dict[str, Change]] = {}

    async def edits(self, media_id: str, *, tenant_id: str | None = None) -> Sequence[LineEdit]:
        """See `EditStore.edits`."""
        held = self._held.get((tenant_id, media_id), {})
        return sorted(held.values(), key=lambda edit: edit.line)

    async def write(
        self,
        media_id: str,
        edits: Sequence[LineEdit],
        *,
        change: str,
        by: By = "person",
        tenant_id: str | None = None,
    ) -> None:
        """See `EditStore.write`."""
        held = self._held.setdefault((tenant_id, media_id), {})
        changes = self._changes.setdefault((tenant_id, media_id), {})
        old = changes.pop(change, None)
        lines = changed_lines(held, edits, old.lines if old is not None else ())
        if lines:
            last = next(reversed(changes.values())).at if changes else 0
            changes[change] = Change(change, by, max(now_ms(), last + 1), lines)
        while len(changes) > KEPT:
            del changes[next(iter(changes))]
        self._put(held, edits)

    async def changes(self, media_id: str, *, tenant_id: str | None = None) -> Sequence[Change]:
        """See `EditStore.changes`."""
        return list(reversed(self._changes.get((tenant_id, media_id), {}).values()))

    async def undo(
        self, media_id: str, change: str, *, tenant_id: str | None = None
    ) -> Sequence[LineEdit] | None:
        """See `EditStore.undo`."""
        found = self._changes.get((tenant_id, media_id), {}).pop(change, None)
        if found is None:
            return None
        held = self._held.setdefault((tenant_id, media_id), {})
        back = taken_back(held, found.lines)
        self._put(held, back)
        return back

    async def forget(self, media_id: str, *, tenant_id: str | None = None) -> None:
        """See `EditStore.forget`."""
        self._held.pop((tenant_id, media_id), None)
        self._changes.pop((tenant_id, media_id), None)

    def _put(self, held: dict[Line, LineEdit], edits: Sequence[LineEdit]) -> None:
        for edit in edits:
            held.pop(edit.line, None)
            if edit.text != edit.said:
                held[edit.line] = edit
