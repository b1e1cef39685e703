"""A `MessageLog` in memory: it lives as long as the process."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from playhead.encode import scrub
from playhead.ids import now_ms
from playhead.storage.messages import (
    ANY_MESSAGE,
    DEFAULT_MESSAGES,
    Added,
    ChannelMessage,
    MessageFilter,
    MessageId,
    MessageRow,
    MessageState,
    after,
    check_id,
    clean_message,
    first_state,
    id_is_taken,
)

_Key: TypeAlias = tuple[str | None, ...]


class _Held(NamedTuple):
    """A row, what it is found by, and its tenant and thread as they were given."""

    row: MessageRow
    keys: Sequence[_Key]
    tenant_id: str | None
    thread_id: str | None


class MemoryMessageLog:
    """The last messages in memory, at most `limit` of them."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._held: dict[int, _Held] = {}
        self._by_key: dict[_Key, int] = {}
        self._last = 0

    async def add(self, message: ChannelMessage) -> Added:
        """See `MessageLog.add`."""
        kept = clean_message(message)
        keys = _keys(message.id, message.tenant_id)
        held = self._find(keys)
        if held is not None:
            return Added(held.row, False)
        now = now_ms()
        self._last += 1
        row = MessageRow(self._last, kept, first_state(kept), created_at=now, updated_at=now)
        self._keep(_Held(row, keys, message.tenant_id, message.thread_id))
        self._forget(list(self._held)[: max(0, len(self._held) - self._limit)])
        return Added(row, True)

    async def set_state(
        self,
        which: MessageId,
        state: MessageState,
        *,
        error: str | None = None,
        turn_id: str | None = None,
        tenant_id: str | None = None,
    ) -> MessageRow | None:
        """See `MessageLog.set_state`."""
        check_id(which, state)
        held = self._find(_keys(which, tenant_id))
        if held is None:
            return None
        row = after(held.row, which, state, error, turn_id, now_ms())
        keys = held.keys
        if row.message.channel_id != held.row.message.channel_id:
            learnt = _key(which, tenant_id, "channel", which.channel_id)
            if learnt in self._by_key:
                raise id_is_taken(which)
            keys = [*(key for key in held.keys if key[0] == "own"), learnt]
            for key in held.keys:
                del self._by_key[key]
        self._keep(held._replace(row=row, keys=keys))
        return row

    async def find(self, which: MessageId, *, tenant_id: str | None = None) -> MessageRow | None:
        """See `MessageLog.find`."""
        check_id(which)
        held = self._find(_keys(which, tenant_id))
        return held and held.row

    async def messages(
        self,
        which: MessageFilter = ANY_MESSAGE,
        *,
        tenant_id: str | None = None,
        limit: int = DEFAULT_MESSAGES,
        before: int | None = None,
    ) -> Sequence[MessageRow]:
        """See `MessageLog.messages`."""
        found = (row for row in self._matching(which, tenant_id) if before is None or row.row_id < before)
        return [row for row, _ in zip(found, range(limit), strict=False)]

    async def delete_thread(self, thread_id: str, *, tenant_id: str | None = None) -> int:
        """See `MessageLog.delete_thread`."""
        wanted = (tenant_id, thread_id)
        return self._forget([n for n, held in self._held.items() if held[2:] == wanted])

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """See `MessageLog.delete_tenant`."""
        return self._forget([n for n, held in self._held.items() if held.tenant_id == tenant_id])

    async def delete_before(self, created_at: int) -> int:
        """See `MessageLog.delete_before`."""
        return self._forget([n for n, held in self._held.items() if held.row.created_at < created_at])

    def _find(self, keys: Iterable[_Key]) -> _Held | None:
        numbers = (self._by_key[key] for key in keys if key in self._by_key)
        return next((self._held[number] for number in numbers), None)

    def _keep(self, held: _Held) -> None:
        self._held[held.row.row_id] = held
        self._by_key |= dict.fromkeys(held.keys, held.row.row_id)

    def _forget(self, numbers: Sequence[int]) -> int:
        for number in numbers:
            for key in self._held.pop(number).keys:
                del self._by_key[key]
        return len(numbers)

    def _matching(self, which: MessageFilter, tenant_id: str | None) -> Iterator[MessageRow]:
        names = ("channel", "direction", "peer", "kind", "thread_id", "turn_id")
        wanted = {name: scrub(value) for name in names if (value := getattr(which, name)) is not None}
        for held in reversed(self._held.values()):
            row = held.row
            if (
                (which.all_tenants or held.tenant_id == tenant_id)
                and which.state in (None, row.state)
                and (which.since is None or row.created_at >= which.since)
                and (which.until is None or row.created_at < which.until)
                and all(getattr(row.message, name) == value for name, value in wanted.items())
            ):
                yield row


def _keys(which: MessageId, tenant_id: str | None) -> Sequence[_Key]:
    """What a message is found by, our own id first."""
    ids = {"own": which.own_id, "channel": which.channel_id}
    return [_key(which, tenant_id, name, id) for name, id in ids.items() if id is not None]


def _key(which: MessageId, tenant_id: str | None, name: str, id: str | None) -> _Key:
    return (name, tenant_id, which.channel, which.direction, id)
