"""A `TurnStore` in memory: it lives as long as the process."""

from collections.abc import Sequence

from playhead.errors import StoreError
from playhead.ids import now_ms
from playhead.storage.base import DEFAULT_TURNS, TurnRow
from playhead.types import ChatMessage, SystemMessage


class _Thread:
    """Rows by turn, in the order of the turns' first rows; and by message id."""

    __slots__ = ("by_id", "last_seq", "replaced", "turns")

    def __init__(self) -> None:
        self.by_id: dict[str, TurnRow] = {}
        self.last_seq = 0
        self.turns: dict[str, list[TurnRow]] = {}
        self.replaced: dict[str, int] = {}


class MemoryTurnStore:
    """Turns in memory. Appending costs the same however long a thread is."""

    def __init__(self) -> None:
        self._threads: dict[tuple[str | None, str], _Thread] = {}
        self._turns: dict[tuple[str | None, str], list[TurnRow]] = {}

    async def append(
        self,
        thread_id: str,
        message: ChatMessage,
        *,
        turn_id: str,
        step_index: int = 0,
        tenant_id: str | None = None,
    ) -> TurnRow:
        """See `TurnStore.append`."""
        if isinstance(message, SystemMessage):
            raise StoreError("A system message cannot be stored: give it to the loop as `system`.")
        thread = self._threads.setdefault((tenant_id, thread_id), _Thread())
        held = thread.by_id.get(message.id)
        if held is not None:
            return held
        thread.last_seq += 1
        row = TurnRow(thread_id, turn_id, thread.last_seq, message, step_index, tenant_id, now_ms())
        thread.by_id[message.id] = row
        thread.turns.setdefault(turn_id, []).append(row)
        self._turns.setdefault((tenant_id, turn_id), []).append(row)
        return row

    async def window(
        self,
        thread_id: str,
        *,
        turns: int | None = DEFAULT_TURNS,
        before_seq: int | None = None,
        tenant_id: str | None = None,
    ) -> Sequence[TurnRow]:
        """See `TurnStore.window`. It reads no more turns than it returns, or skips."""
        thread = self._threads.get((tenant_id, thread_id))
        found: list[list[TurnRow]] = []
        if thread is None:
            return []
        for rows in reversed(thread.turns.values()):
            if turns is not None and len(found) >= turns:
                break
            said = [row for row in rows if row.id not in thread.replaced] if thread.replaced else rows
            if said and (before_seq is None or said[0].seq < before_seq):
                found.append(said)
        return [row for rows in reversed(found) for row in rows if before_seq is None or row.seq < before_seq]

    async def turn(self, turn_id: str, *, tenant_id: str | None = None) -> Sequence[TurnRow]:
        """See `TurnStore.turn`."""
        return tuple(self._turns.get((tenant_id, turn_id), ()))

    async def replaced(
        self, thread_id: str, *, tenant_id: str | None = None
    ) -> Sequence[tuple[int, TurnRow]]:
        """See `TurnStore.replaced`."""
        thread = self._threads.get((tenant_id, thread_id))
        if thread is None or not thread.replaced:
            return ()
        rows = [row for turn in thread.turns.values() for row in turn]
        return [(thread.replaced[row.id], row) for row in rows if row.id in thread.replaced]

    async def delete_thread(self, thread_id: str, *, tenant_id: str | None = None) -> int:
        """See `TurnStore.delete_thread`."""
        thread = self._threads.get((tenant_id, thread_id))
        return self._forget((tenant_id, thread_id), list(thread.turns)) if thread else 0

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """See `TurnStore.delete_tenant`."""
        return sum(
            self._forget(key, list(thread.turns))
            for key, thread in list(self._threads.items())
            if key[0] == tenant_id
        )

    async def delete_before(self, created_at: int) -> int:
        """See `TurnStore.delete_before`."""
        count = 0
        for key, thread in list(self._threads.items()):
            old = [
                turn for turn, rows in thread.turns.items() if all(r.created_at < created_at for r in rows)
            ]
            count += self._forget(key, old)
        return count

    def held(self, thread_id: str, message_id: str, *, tenant_id: str | None = None) -> TurnRow | None:
        """Return the row of the message of this id in the thread, be it replaced or not."""
        thread = self._threads.get((tenant_id, thread_id))
        return None if thread is None else thread.by_id.get(message_id)

    def replace_from(self, thread_id: str, seq: int, *, tenant_id: str | None = None) -> int:
        """Take the rows from a `seq` on out of the conversation; return how many. Their ids stay known."""
        thread = self._threads.get((tenant_id, thread_id))
        if thread is None:
            return 0
        gone = [row.id for row in thread.by_id.values() if row.seq >= seq and row.id not in thread.replaced]
        thread.replaced.update(dict.fromkeys(gone, seq))
        return len(gone)

    def _forget(self, key: tuple[str | None, str], turns: Sequence[str]) -> int:
        """Forget turns of a thread, and the thread with its last one. Return how many rows."""
        thread = self._threads[key]
        count = 0
        for turn in turns:
            rows = thread.turns.pop(turn)
            count += len(rows)
            for row in rows:
                del thread.by_id[row.id]
            # A turn's id may be used in another thread too.
            kept = [row for row in self._turns.pop((key[0], turn)) if row.thread_id != key[1]]
            if kept:
                self._turns[key[0], turn] = kept
        if not thread.turns:
            del self._threads[key]
        return count
