"""The port of a run that is written down as it happens."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from playhead.errors import StoreError
from playhead.events import Event
from playhead.llm.history import normalise
from playhead.port import PlainPort
from playhead.storage.base import DEFAULT_TURNS, TurnRow, TurnStore
from playhead.types import ChatMessage, UserMessage


class ThreadKey(NamedTuple):
    """A thread of a tenant."""

    thread_id: str
    tenant_id: str | None = None


class StoredPort(PlainPort):
    """A `PlainPort` whose history is read from a store and whose messages are written to it.

    The user's message is written before the first model call, an assistant message before its
    tools run, each tool result as it lands. Whatever interrupts a run, the next one of the thread
    is given a history that providers accept: the rows stay raw, what is read of them is normalised.

    Args:
        store: where the turns are kept.
        thread: the thread that the run is of.
        message: what the user says now.
        turns: how many earlier turns the model is shown.
        plain: the rest as `PlainPort` takes it.
    """

    def __init__(
        self,
        store: TurnStore,
        thread: ThreadKey,
        message: UserMessage,
        *,
        turns: int = DEFAULT_TURNS,
        **plain: Any,
    ) -> None:
        super().__init__((), **plain)
        self.quiet = False  # messages are written though nobody may listen
        self.written: list[ChatMessage] = []
        self._store = store
        self._thread = thread
        self._message = message
        self._turns = turns
        self._start: TurnRow | None = None
        self._emitted: set[str] = set()
        self._closed = False

    async def open(self) -> TurnRow:
        """Write the user's message; its row is where the run starts.

        A message that the thread holds already is not written again: the row is then of an earlier
        turn, as its `turn_id` says.
        """
        if self._start is None:
            self._start = await self._append(self._message, 0)
        return self._start

    def close(self) -> None:
        """Write nothing more: the run was given up, though something of it may still be at work."""
        self._closed = True

    async def history(self) -> Sequence[ChatMessage]:
        start = await self.open()
        thread_id, tenant_id = self._thread
        earlier = await self._store.window(
            thread_id, turns=self._turns, before_seq=start.seq, tenant_id=tenant_id
        )
        return normalise([*(row.message for row in earlier), start.message])

    async def emit(self, key: str, event: Event, message: ChatMessage | None = None) -> None:
        if key in self._emitted:
            return
        if message is not None:
            await self._append(message, event.step)
        self._emitted.add(key)
        await super().emit(key, event, message)

    async def _append(self, message: ChatMessage, step: int) -> TurnRow:
        if self._closed:
            raise StoreError("The run is over; what comes after its end is not written.")
        thread_id, tenant_id = self._thread
        row = await self._store.append(
            thread_id, message, turn_id=self.turn_id, step_index=step, tenant_id=tenant_id
        )
        self.written.append(row.message)
        return row
