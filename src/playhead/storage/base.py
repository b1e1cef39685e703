"""Where the turns of a thread are kept. One shape of row, one protocol, any number of stores."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from playhead.types import AssistantMessage, ChatMessage, ToolCall, ToolMessage

DEFAULT_TURNS = 20


class TurnRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One message of a thread, as it is kept.

    `seq` grows by one with each row of a thread: it is the order, no clock is. `step_index` is the
    1-based step that made the message, 0 for the user's own. `created_at` is when the row was
    written, in milliseconds since 1970. `message` is whole; the properties are its columns.
    """

    thread_id: str
    turn_id: str
    seq: int
    message: ChatMessage
    step_index: int = 0
    tenant_id: str | None = None
    created_at: int = 0

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def role(self) -> str:
        return self.message.role

    @property
    def content(self) -> Any:
        """Text; or the parts of a user message."""
        return self.message.content

    @property
    def tool_calls(self) -> Sequence[ToolCall]:
        return self.message.tool_calls if isinstance(self.message, AssistantMessage) else ()

    @property
    def tool_call_id(self) -> str | None:
        return self.message.tool_call_id if isinstance(self.message, ToolMessage) else None

    @property
    def tool_name(self) -> str | None:
        return self.message.tool_name if isinstance(self.message, ToolMessage) else None


class TurnStore(Protocol):
    """The truth of what was said in each thread. Tenants never see each other.

    A tenant of None is a tenant like any other. A thread needs no creation; an unknown one is empty.
    Each method raises `StoreError` when the store cannot be read or written.
    """

    async def append(
        self,
        thread_id: str,
        message: ChatMessage,
        *,
        turn_id: str,
        step_index: int = 0,
        tenant_id: str | None = None,
    ) -> TurnRow:
        """Write one message at the end of a thread and return its row.

        A message whose id the thread already holds is not written again, whatever it says and
        whichever turn it is given for: the row that is there is returned. A system message is
        refused with `StoreError`, because instructions are made anew for each run (S3).
        """
        ...

    async def window(
        self,
        thread_id: str,
        *,
        turns: int | None = DEFAULT_TURNS,
        before_seq: int | None = None,
        tenant_id: str | None = None,
    ) -> Sequence[TurnRow]:
        """Return the last `turns` turns of a thread, oldest first; None for all of them.

        Turns are whole and never mixed: they are ordered by their first row, and the rows of one
        stay together. With `before_seq`, only rows with a lower `seq` count.
        """
        ...

    async def turn(self, turn_id: str, *, tenant_id: str | None = None) -> Sequence[TurnRow]:
        """Return the rows of one turn, oldest first; none when it is unknown."""
        ...

    async def replaced(
        self, thread_id: str, *, tenant_id: str | None = None
    ) -> Sequence[tuple[int, TurnRow]]:
        """Return the rows that left the conversation, each with the `seq` from which on rows left with it."""
        ...

    async def delete_thread(self, thread_id: str, *, tenant_id: str | None = None) -> int:
        """Forget a thread, and return how many rows it had. Its order then begins anew."""
        ...

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """Forget all threads of a tenant, and return how many rows they had."""
        ...

    async def delete_before(self, created_at: int) -> int:
        """Forget every turn, of any tenant, whose last row is older than a time; return how many rows.

        The time is in milliseconds since 1970. A turn goes whole or not at all, and a thread with its
        last turn; in a thread that stays, `seq` goes on.
        """
        ...
