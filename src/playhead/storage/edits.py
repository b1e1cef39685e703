"""What people wrote over lines of transcripts, kept beside what the recogniser wrote."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


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
    def line(self) -> tuple[int, int, str]:
        """What names the line."""
        return self.start_ms, self.end_ms, self.said


class EditStore(Protocol):
    """The edits of the transcripts of each file. Tenants never see each other.

    Each method raises `StoreError` when the store cannot be read or written.
    """

    async def edits(self, media_id: str, *, tenant_id: str | None = None) -> Sequence[LineEdit]:
        """Return those of a file, by time."""
        ...

    async def put(self, media_id: str, edit: LineEdit, *, tenant_id: str | None = None) -> None:
        """Keep an edit in place of an earlier one of the same line; one that changes nothing is none."""
        ...

    async def forget(self, media_id: str, *, tenant_id: str | None = None) -> None:
        """Forget those of a file."""
        ...


class MemoryEditStore:
    """Edits in memory."""

    def __init__(self) -> None:
        self._held: dict[tuple[str | None, str], dict[tuple[int, int, str], LineEdit]] = {}

    async def edits(self, media_id: str, *, tenant_id: str | None = None) -> Sequence[LineEdit]:
        """See `EditStore.edits`."""
        held = self._held.get((tenant_id, media_id), {})
        return sorted(held.values(), key=lambda edit: edit.line)

    async def put(self, media_id: str, edit: LineEdit, *, tenant_id: str | None = None) -> None:
        """See `EditStore.put`."""
        held = self._held.setdefault((tenant_id, media_id), {})
        held.pop(edit.line, None)
        if edit.text != edit.said:
            held[edit.line] = edit

    async def forget(self, media_id: str, *, tenant_id: str | None = None) -> None:
        """See `EditStore.forget`."""
        self._held.pop((tenant_id, media_id), None)
