"""What the routes take and give, and what of a run may leave the process."""

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from playhead.encode import encode_result
from playhead.events import Event, RunEnd, RunPaused, StepEnd
from playhead.media.types import MediaKind
from playhead.protocols.sse import frame
from playhead.types import AgentContext, AssistantMessage, ChatMessage, ContentPart, ToolCall, Usage


class ErrorBody(Struct):
    """Every answer that is not 2xx. `path` names the fault's place in the body: `messages[0].role`."""

    error: str
    code: str
    path: str | UnsetType = UNSET


class ChatBody(Struct, frozen=True):
    """One model call. Ids and timestamps may be left out; null content counts as empty."""

    messages: Annotated[Sequence[ChatMessage], msgspec.Meta(min_length=1)]
    context: AgentContext | None = None


class ChatReply(Struct, frozen=True, rename="camel", kw_only=True):
    """What the model said. `toolCalls` is absent when there are none."""

    content: str
    tool_calls: Sequence[ToolCall] | UnsetType = UNSET
    message: AssistantMessage
    usage: Usage | UnsetType = UNSET


class NewMessage(Struct, frozen=True):
    """The user's message. With an id, sending it again does not say it twice."""

    content: str | Sequence[ContentPart]
    id: str | None = None


class RunBody(Struct, frozen=True):
    """One turn. The server owns the history: a client sends what is new, and nothing else."""

    message: str | NewMessage
    context: AgentContext | None = None


class RunStarted(Struct, frozen=True, rename="camel"):
    """A run that goes on, whoever listens."""

    run_id: str


class ActiveRun(Struct, frozen=True, rename="camel"):
    """The run of a thread that is at work; others may wait behind it."""

    run_id: str
    state: Literal["running"] = "running"


class ThreadView(Struct, frozen=True, rename="camel"):
    """A thread: what was said, and the run that goes on, if one does."""

    messages: Sequence[ChatMessage]
    active_run: ActiveRun | UnsetType = UNSET


class Health(Struct, frozen=True):
    """All is well."""

    status: Literal["ok"] = "ok"


class MediaItem(Struct, frozen=True, rename="camel"):
    """A media file. `duration` is in seconds, `size` in bytes, `createdAt` in milliseconds since 1970."""

    id: str
    name: str
    type: MediaKind
    content_type: str
    size: int
    duration: float | None
    has_audio: bool
    width: int | None
    height: int | None
    created_at: int


class MediaList(Struct, frozen=True):
    """The files of the library, oldest first."""

    items: Sequence[MediaItem]


_encoder = msgspec.json.Encoder()


def dump(value: Any) -> bytes:
    """Encode a wire type. Half a surrogate pair, which JSON can carry and UTF-8 cannot, is escaped."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def event_frame(event: Event) -> bytes:
    """One event of a run as a server-sent event, without what is internal to the server."""
    return frame(dump(public_event(event)), event=event.type)


def public_event(event: Event) -> Event:
    """A run's result goes out without steps and messages: they were sent as they happened."""
    if isinstance(event, RunEnd | RunPaused):
        # The output is an instance of whatever type the application asked for.
        output = event.result.output
        plain = None if output is None else encode_result(output, sys.maxsize).value
        return replace(event, result=replace(event.result, steps=(), messages=(), output=plain))
    if isinstance(event, StepEnd):
        said = public_message(event.result.assistant_message)
        return replace(event, result=replace(event.result, assistant_message=said))
    return event


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
