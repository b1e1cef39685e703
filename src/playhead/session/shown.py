"""What of a run is shown: events as they may leave the process, each encoded once."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from playhead.encode import encode_result
from playhead.events import Attempt, Event, RunEnd, RunPaused, StepEnd
from playhead.storage.ledger import EventRow
from playhead.types import AssistantMessage

LAST: Final = ("run_end", "run_paused")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


class Shown:
    """An event on its way to readers. `id` is what a reader resumes from, where it can.

    Struct and bytes are each made from the other when first asked for: what comes from a store goes
    to a browser unread, and what a run tells is encoded once for all its readers.
    """

    __slots__ = ("_data", "_event", "id", "seq", "type")

    def __init__(
        self,
        type: str,
        *,
        event: Event | None = None,
        data: bytes | None = None,
        seq: int | None = None,
        id: str | None = None,
    ) -> None:
        self.type = type
        self.seq = seq
        self.id = id if id is not None or seq is None else str(seq)
        self._event = event
        self._data = data

    @classmethod
    def of_row(cls, row: EventRow) -> "Shown":
        return cls(row.type, data=row.data, seq=row.seq)

    @property
    def event(self) -> Event:
        """The event. Raises `msgspec.ValidationError` for a recorded one that this version cannot read."""
        if self._event is None:
            assert self._data is not None
            self._event = _decode(self._data)
            self._event.seq = self.seq
        return self._event

    @property
    def data(self) -> bytes:
        """The event as one line of JSON."""
        if self._data is None:
            assert self._event is not None
            self._data = event_bytes(self._event)
        if self.seq is None:
            return self._data
        return b'%b,"seq":%d}' % (self._data[:-1], self.seq)


def event_bytes(event: Event) -> bytes:
    """Encode an event as it is kept and shown, without `seq`. Never raises."""
    return dump(replace(public_event(event), seq=None), total=True)


def dump(value: Any, *, total: bool = False) -> bytes:
    """Encode a wire type. Half a surrogate pair, which JSON can carry and UTF-8 cannot, is escaped;
    with `total`, it becomes U+FFFD as a NUL does, because a database takes neither."""
    try:
        data = _encode(value)
    except UnicodeEncodeError:
        if not total:
            return json.dumps(msgspec.to_builtins(value)).encode()
    except (msgspec.MsgspecError, TypeError):
        if not total:
            raise
    else:
        if not (total and b"\\u0000" in data):
            return data
    return encode_result(value, sys.maxsize).text.encode()


def public_event(event: Event) -> Event:
    """An event as it may leave the process.

    A run's result goes out without steps and messages: they were sent as they happened. A model's name
    goes without what stands before it, which may name an account (Q230).
    """
    if isinstance(event, RunEnd | RunPaused):
        # The output is an instance of whatever type the application asked for.
        output = event.result.output
        plain = None if output is None else encode_result(output, sys.maxsize).value
        return replace(event, result=replace(event.result, steps=(), messages=(), output=plain))
    if isinstance(event, StepEnd):
        said = public_message(event.result.assistant_message)
        model = event.result.model and _name(event.result.model)
        return replace(event, result=replace(event.result, assistant_message=said, model=model))
    if isinstance(event, Attempt) and "/" in event.model:
        return replace(event, model=_name(event.model))
    return event


def _name(model: str) -> str:
    return model.rpartition("/")[2]


def public_message(message: Any) -> Any:
    """A message without the provider's opaque data; reasoning is told as events only."""
    if isinstance(message, AssistantMessage):
        return AssistantMessage(
            message.content,
            message.tool_calls,
            stop_reason=message.stop_reason,
            id=message.id,
            timestamp=message.timestamp,
        )
    return message


async def decoded(all_shown: AsyncGenerator[Shown, None]) -> AsyncGenerator[Event, None]:
    """Return events as structs, but for those that this version cannot read."""
    async with aclosing(all_shown):
        async for shown in all_shown:
            try:
                event = shown.event
            except msgspec.ValidationError:
                continue  # of a later version of Playhead
            yield event
