"""Tool results that are too long for a model, each kept whole once, and read in pages."""

from typing import Protocol

import msgspec

from playhead.errors import StoreError
from playhead.ids import now_ms
from playhead.storage.memory import MemoryTurnStore


class ResultPage(msgspec.Struct, frozen=True):
    """Some characters of a result, and how many it has."""

    text: str
    total: int


class ResultStore(Protocol):
    """The results that were kept aside in each thread. Tenants never see each other.

    A result goes with its thread, and with its turn when that is forgotten for its age. Each method
    raises `StoreError` when the store cannot be read or written.
    """

    async def put(
        self, thread_id: str, result_id: str, text: str, *, turn_id: str, tenant_id: str | None = None
    ) -> None:
        """Keep a result, once for its id. The turn must be there: raises `StoreError` otherwise."""
        ...

    async def page(
        self, thread_id: str, result_id: str, offset: int, limit: int, *, tenant_id: str | None = None
    ) -> ResultPage | None:
        """Return at most `limit` characters from `offset` on; None where the thread has no such result."""
        ...


def no_turn(turn_id: str) -> StoreError:
    """Return the error of a result that nothing belongs to."""
    return StoreError(f"The turn {turn_id!r} is not there, or was deleted; nothing is kept beside it.")


class _Kept(msgspec.Struct, frozen=True):
    text: str
    turn_id: str
    created_at: int


class MemoryResultStore:
    """Results in memory.

    Args:
        turns: where the messages are.
    """

    def __init__(self, turns: MemoryTurnStore) -> None:
        self._turns = turns
        self._held: dict[tuple[str | None, str], dict[str, _Kept]] = {}

    async def put(
        self, thread_id: str, result_id: str, text: str, *, turn_id: str, tenant_id: str | None = None
    ) -> None:
        """See `ResultStore.put`."""
        rows = await self._turns.turn(turn_id, tenant_id=tenant_id)
        if all(row.thread_id != thread_id for row in rows):
            raise no_turn(turn_id)
        held = self._held.setdefault((tenant_id, thread_id), {})
        held.setdefault(result_id, _Kept(text, turn_id, now_ms()))

    async def page(
        self, thread_id: str, result_id: str, offset: int, limit: int, *, tenant_id: str | None = None
    ) -> ResultPage | None:
        """See `ResultStore.page`."""
        kept = self._held.get((tenant_id, thread_id), {}).get(result_id)
        return None if kept is None else ResultPage(kept.text[offset : offset + limit], len(kept.text))

    def copy(
        self, source: tuple[str | None, str], target: tuple[str | None, str], turn_ids: set[str]
    ) -> None:
        """Copy those of some turns."""
        mine = {id: kept for id, kept in self._held.get(source, {}).items() if kept.turn_id in turn_ids}
        if mine:
            self._held[target] = mine

    def forget(self, thread_id: str, *, tenant_id: str | None = None) -> None:
        """Forget those of a thread."""
        self._held.pop((tenant_id, thread_id), None)

    def forget_tenant(self, tenant_id: str | None) -> None:
        """Forget those of a tenant."""
        for key in [key for key in self._held if key[0] == tenant_id]:
            del self._held[key]

    async def forget_before(self, created_at: int) -> None:
        """Forget those older than a time whose turn is gone."""
        for (tenant_id, thread_id), held in list(self._held.items()):
            for id, kept in list(held.items()):
                rows = await self._turns.turn(kept.turn_id, tenant_id=tenant_id)
                if kept.created_at < created_at and all(row.thread_id != thread_id for row in rows):
                    del held[id]
            if not held:
                del self._held[tenant_id, thread_id]
