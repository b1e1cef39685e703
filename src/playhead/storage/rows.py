"""A message as columns, and back."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from playhead.encode import encode_result, message_bytes, scrub
from playhead.errors import StoreError
from playhead.ids import now_ms
from playhead.storage.base import TurnRow
from playhead.storage.tables import FORMAT, agent_turns, key_of
from playhead.types import AssistantMessage, ChatMessage, SystemMessage, ToolMessage, UserMessage

logger = logging.getLogger("playhead.storage")

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_message = msgspec.json.Decoder(UserMessage | AssistantMessage | ToolMessage).decode
# Fields of a message that have a column of their own: as text, or as JSON.
_TEXTS = {
    "role": "role",
    "id": "id",
    "content": "content",
    "tool_call_id": "toolCallId",
    "tool_name": "toolName",
}
_JSONS = {"content_parts": "content", "tool_calls": "toolCalls"}
_WIRE_TEXTS, _WIRE_JSONS = tuple(_TEXTS.values()), tuple(_JSONS.values())
_HUGE = 2**63
_NAMES = ("thread_id", "turn_id", "seq", "step_index", "tenant_id", "created_at", "format", "extra")
COLUMNS = tuple(agent_turns.c[name] for name in (*_NAMES, *_TEXTS, *_JSONS))


class NewTurn(msgspec.Struct, frozen=True):
    """A row that is ready to be written, but for its `seq`.

    `thread` and `turn` are columns of `agent_threads` and `agent_turns`; `message` is what will be
    read back.
    """

    thread: Mapping[str, Any]
    turn: Mapping[str, Any]
    message: ChatMessage

    @property
    def order(self) -> str:
        """What `Database.write` takes as its `order`."""
        key: str = self.thread["thread_key"]
        return key

    def row(self, seq: int) -> TurnRow:
        """Return the row as it stands in the thread once it has its place."""
        turn = self.turn
        return TurnRow(
            turn["thread_id"],
            turn["turn_id"],
            seq,
            self.message,
            turn["step_index"],
            turn["tenant_id"],
            turn["created_at"],
        )


def prepare(
    thread_id: str, message: ChatMessage, *, turn_id: str, step_index: int = 0, tenant_id: str | None = None
) -> NewTurn:
    """Return what `SQLTurnStore.put` writes.

    Raises `StoreError` for a system message, and for one that could not be read back.
    """
    if isinstance(message, SystemMessage):
        raise StoreError("A system message cannot be stored: give it to the loop as `system`.")
    if not 0 <= step_index < _HUGE:
        raise StoreError(f"A step's index is 0 or more, and less than 2**63; it was {step_index}.")
    kept, data = _kept(message)
    now = now_ms()
    thread = thread_columns(thread_id, tenant_id, now)
    turn = {
        "thread_key": thread["thread_key"],
        "turn_key": key_of(tenant_id, turn_id),
        "message_key": key_of(message.id),
        "turn_id": scrub(turn_id),
        "thread_id": thread["thread_id"],
        "tenant_id": thread["tenant_id"],
        "step_index": step_index,
        "format": FORMAT,
        "created_at": now,
        **_columns(data),
    }
    return NewTurn(thread, turn, kept)


def thread_columns(thread_id: str, tenant_id: str | None, now: int) -> dict[str, Any]:
    """Return the columns of `agent_threads` but for its counts."""
    return {
        "thread_key": key_of(tenant_id, thread_id),
        "tenant_key": key_of(tenant_id),
        "thread_id": scrub(thread_id),
        "tenant_id": None if tenant_id is None else scrub(tenant_id),
        "created_at": now,
        "updated_at": now,
    }


def read_rows(found: Sequence[Sequence[Any]]) -> Sequence[TurnRow]:
    """Return the rows that can be read; of the others only how many there are is logged."""
    rows = [row for row in map(_read_row, found) if row is not None]
    if len(rows) < len(found):
        logger.warning(
            "%d of %d messages were left out: this version of Playhead cannot read them. They are kept.",
            len(found) - len(rows),
            len(found),
        )
    return rows


def _kept(message: ChatMessage) -> tuple[ChatMessage, bytes]:
    """The message as it will be read back, and its bytes."""
    data = message_bytes(message)
    if b"\\u0000" in data:
        data = encode_result(message, _HUGE).text.encode()
    try:
        read = _message(data)
    except msgspec.MsgspecError as error:
        raise StoreError(f"The message {message.id!r} does not have the form of one: {error}.") from None
    # Unless something was replaced, the message itself: it has bytes in it that the next request wants.
    return (read if "\ufffd".encode() in data else message), data


def _columns(data: bytes) -> dict[str, str | None]:
    fields = _fields(data)
    columns: dict[str, str | None] = {}
    for column, name in _TEXTS.items():
        is_text = name in fields and bytes(fields[name]).startswith(b'"')
        columns[column] = _text(fields.pop(name)) if is_text else None
    for column, name in _JSONS.items():
        columns[column] = bytes(fields.pop(name)).decode() if name in fields else None
    columns["extra"] = _encode(fields).decode()
    return columns


def _read_row(found: Sequence[Any]) -> TurnRow | None:
    thread_id, turn_id, seq, step_index, tenant_id, created_at, form, extra, *columns = found
    if form > FORMAT:
        return None
    try:
        fields: dict[str, Any] = dict(_fields(extra))
        texts, jsons = columns[: len(_WIRE_TEXTS)], columns[len(_WIRE_TEXTS) :]
        fields |= {name: text for name, text in zip(_WIRE_TEXTS, texts, strict=True) if text is not None}
        fields |= {
            name: msgspec.Raw(data) for name, data in zip(_WIRE_JSONS, jsons, strict=True) if data is not None
        }
        message = _message(_encode(fields))
    except msgspec.MsgspecError:
        return None
    return TurnRow(thread_id, turn_id, seq, message, step_index, tenant_id, created_at)
