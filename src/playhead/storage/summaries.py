"""Summaries: records of their own beside the raw log, that stand for the beginning of a thread."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from playhead.storage.base import TurnRow
from playhead.storage.memory import MemoryTurnStore


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """What stands for all turns of a thread up to and with the row `through_seq`, its last.

    `created_at` is in milliseconds since 1970.
    """

    through_seq: int
    text: str
    created_at: int = 0


class SummaryStore(Protocol):
    """The summaries of threads, several of a thread, each reaching further. Tenants never see each other.

    One goes with any turn that it stands for: with a thread that is deleted, a turn that is
    forgotten for its age, a row that leaves the conversation. Each method raises `StoreError` when
    the store cannot be read or written.
    """

    async def last(self, thread_id: str, *, tenant_id: str | None = None) -> Summary | None:
        """Return the summary that reaches furthest, if there is one."""
        ...

    async def put(
        self, thread_id: str, summary: Summary, *, after: int, rows: int, tenant_id: str | None = None
    ) -> bool:
        """Write a summary of the one that reaches to `after`, 0 for none, and of `rows` rows past it.

        False, and nothing is written, where that is no longer what the thread holds.
        """
        ...

    async def rows_after(
        self, thread_id: str, seq: int, *, turns: int, tenant_id: str | None = None
    ) -> Sequence[TurnRow]:
        """Return the first `turns` turns that begin past `seq`, whole, oldest first."""
        ...


class MemorySummaryStore:
    """Summaries in memory.

    Args:
        turns: where the messages are.
    """

    def __init__(self, turns: MemoryTurnStore) -> None:
        self._turns = turns
        # Each with the number of rows that it stands for.
        self._held: dict[tuple[str | None, str], list[tuple[Summary, int]]] = {}

    async def last(self, thread_id: str, *, tenant_id: str | None = None) -> Summary | None:
        """See `SummaryStore.last`."""
        held = self._held.get((tenant_id, thread_id))
        return held[-1][0] if held else None

    async def put(
        self, thread_id: str, summary: Summary, *, after: int, rows: int, tenant_id: str | None = None
    ) -> bool:
        """See `SummaryStore.put`."""
        held = self._held.get((tenant_id, thread_id), [])
        found = [row for turn in await self._after(thread_id, after, tenant_id) for row in turn]
        count = sum(row.seq <= summary.through_seq for row in found)
        if (held[-1][0].through_seq if held else 0) != after or count != rows or not rows:
            return False
        total = (held[-1][1] if held else 0) + rows
        self._held.setdefault((tenant_id, thread_id), held).append((summary, total))
        return True

    async def rows_after(
        self, thread_id: str, seq: int, *, turns: int, tenant_id: str | None = None
    ) -> Sequence[TurnRow]:
        """See `SummaryStore.rows_after`."""
        found = await self._after(thread_id, seq, tenant_id)
        return [row for turn in found[:turns] for row in turn]

    def replace_from(self, thread_id: str, seq: int, *, tenant_id: str | None = None) -> None:
        """Forget those that stand for a row from `seq` on."""
        self._keep(
            (tenant_id, thread_id), [h for h in self._of(tenant_id, thread_id) if h[0].through_seq < seq]
        )

    def copy(
        self, source: tuple[str | None, str], target: tuple[str | None, str], seqs: Sequence[int]
    ) -> None:
        """Copy those that stand for copied rows only; `seqs` are those that the rows had, in order."""
        copied = []
        for summary, total in self._held.get(source, ()):
            through = sum(seq <= summary.through_seq for seq in seqs)
            if through and through == total:
                copied.append((replace(summary, through_seq=through), through))
        self._keep(target, copied)

    def forget(self, thread_id: str, *, tenant_id: str | None = None) -> None:
        """Forget those of a thread."""
        self._held.pop((tenant_id, thread_id), None)

    def forget_tenant(self, tenant_id: str | None) -> None:
        """Forget those of a tenant."""
        for key in [key for key in self._held if key[0] == tenant_id]:
            del self._held[key]

    async def forget_broken(self) -> None:
        """Forget those that stand for a row that is gone."""
        for tenant_id, thread_id in list(self._held):
            rows = await self._turns.window(thread_id, turns=None, tenant_id=tenant_id)
            there = [
                (summary, total)
                for summary, total in self._of(tenant_id, thread_id)
                if sum(row.seq <= summary.through_seq for row in rows) == total
            ]
            self._keep((tenant_id, thread_id), there)

    def _of(self, tenant_id: str | None, thread_id: str) -> Sequence[tuple[Summary, int]]:
        return self._held.get((tenant_id, thread_id), ())

    def _keep(self, key: tuple[str | None, str], held: list[tuple[Summary, int]]) -> None:
        if held:
            self._held[key] = held
        else:
            self._held.pop(key, None)

    async def _after(self, thread_id: str, seq: int, tenant_id: str | None) -> list[list[TurnRow]]:
        turns: dict[str, list[TurnRow]] = {}
        for row in await self._turns.window(thread_id, turns=None, tenant_id=tenant_id):
            turns.setdefault(row.turn_id, []).append(row)
        return [rows for rows in turns.values() if rows[0].seq > seq]
