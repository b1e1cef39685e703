"""What the routes take and give, and what of a run may leave the process."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from playhead.events import Event
from playhead.media.types import MediaKind
from playhead.protocols.sse import frame
from playhead.server.workspace import LineChange
from playhead.session.shown import Shown, dump, public_event
from playhead.storage.ledger import PendingKind, Policy
from playhead.types import (
    AgentContext,
    AssistantMessage,
    ChatMessage,
    ContentPart,
    JsonObject,
    ToolCall,
    Usage,
    UserMessage,
)

__all__ = ["dump"]


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
    """One turn. The server owns the history: a client sends what is new, and nothing else.

    While another run of the thread is at work, `policy` says what becomes of the message: `queue` waits
    for its turn, `steer` is taken in by that run, `interrupt` stops it.
    """

    message: str | NewMessage
    context: AgentContext | None = None
    policy: Policy = "queue"


class RunStarted(Struct, frozen=True, rename="camel"):
    """A run that goes on, whoever listens."""

    run_id: str


class ActiveRun(Struct, frozen=True, rename="camel"):
    """The run of a thread that is at work, or else is next. Its events are those past `seq`."""

    run_id: str
    state: Literal["queued", "running"]
    seq: int


class WaitingRun(Struct, frozen=True, rename="camel"):
    """A message that waits for its turn."""

    run_id: str
    message: UserMessage


class WaitingCall(Struct, frozen=True, rename="camel"):
    """A call that waits for an approval, or for the client to execute it, of a run that paused."""

    run_id: str
    call: ToolCall
    kind: PendingKind
    args_hash: str
    expires_at: int


class Version(Struct, frozen=True, rename="camel"):
    """What an edit or a retry took out of a thread. The message `before` is where the thread goes on now;
    without it, nothing was said since."""

    messages: Sequence[ChatMessage]
    before: str | UnsetType = UNSET


class ThreadView(Struct, frozen=True, rename="camel"):
    """A thread: what was said, and the run that goes on, if one does.

    Who follows the thread's events from `seq` on misses nothing: those of the active run, or of a last
    one that was stopped or failed, are told from its first, though what it said is among the messages.
    """

    messages: Sequence[ChatMessage]
    seq: int
    active_run: ActiveRun | UnsetType = UNSET
    waiting: Sequence[WaitingRun] | UnsetType = UNSET
    pending: Sequence[WaitingCall] | UnsetType = UNSET
    versions: Sequence[Version] | UnsetType = UNSET


class EditBody(Struct, frozen=True, rename="camel"):
    """Something else in place of a message of the user. It and all after it leave the conversation."""

    message_id: str
    message: str | NewMessage
    context: AgentContext | None = None


class RetryBody(Struct, frozen=True):
    """The last message of the user, asked again."""

    context: AgentContext | None = None


class ForkBody(Struct, frozen=True):
    """A copy of a thread, up to and with the message `at`, or whole. `to` is the copy's id, if it has one."""

    at: str | None = None
    to: str | None = None


class Forked(Struct, frozen=True, rename="camel"):
    """The copy of a thread."""

    thread_id: str


class StepUsage(Struct, frozen=True, rename="camel"):
    """What one model call took: of the assistant's message of that id. What is absent is unknown."""

    message_id: str
    usage: Usage
    model: str | UnsetType = UNSET
    latency_ms: int | UnsetType = UNSET


class ThreadUsage(Struct, frozen=True):
    """The model calls of a thread, oldest first."""

    steps: Sequence[StepUsage]


class ToolAnswer(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The answer to a call that waits, once: an approval or a denial, or what the client's tool gave.

    The run goes on with `context`, or with that of the run that paused.
    """

    call_id: str
    args_hash: str
    approved: bool | UnsetType = UNSET
    args: JsonObject | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    result: Any = UNSET
    error: str | UnsetType = UNSET
    context: AgentContext | UnsetType = UNSET


class ContextBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What is open on the page now."""

    context: AgentContext


class ContextTaken(Struct, frozen=True):
    """Whether a run was at work that is shown it from its next step on."""

    taken: bool


class Health(Struct, frozen=True):
    """All is well."""

    status: Literal["ok"] = "ok"


class ModelState(Struct, frozen=True):
    """Whether a model answers: it is `ready`, a `mock` stands in for it, or it is `missing`: see `text`."""

    state: Literal["ready", "mock", "missing"]
    text: str | UnsetType = UNSET


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


class ProjectItem(Struct, frozen=True, rename="camel"):
    """A project. `threadId` is its conversation; times are in milliseconds since 1970, 0 for never."""

    id: str
    name: str
    thread_id: str
    created_at: int
    updated_at: int


class ProjectList(Struct, frozen=True):
    """The projects. The first is always there, and holds the media that are in no other."""

    items: Sequence[ProjectItem]


class ProjectView(Struct, frozen=True):
    """A project and its files, in the order in which they came in."""

    project: ProjectItem
    media: Sequence[MediaItem]


ProjectName = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"\S")]


class NewProject(Struct, frozen=True, forbid_unknown_fields=True):
    """A project to be made."""

    name: ProjectName


class ProjectChange(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What of a project is to be another: its name, its conversation."""

    name: ProjectName | UnsetType = UNSET
    thread_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | UnsetType = UNSET


class LineBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a transcript, written anew.

    `said` is what was recognised, so that it is the line that was read: `said` of the line, or `text`
    of one that nobody edited. With the same as `text` the edit is taken back; an empty text leaves the
    line out of captions.
    """

    said: Annotated[str, msgspec.Meta(max_length=20_000)]
    text: Annotated[str, msgspec.Meta(max_length=5_000)]


class ChangeList(Struct, frozen=True):
    """What was changed in the lines of a transcript, the newest first."""

    changes: Sequence[LineChange]


class UndoBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Which change is to be taken back."""

    change: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]


class TakenBack(Struct, frozen=True):
    """How many lines are as they were before a change."""

    lines: int


class ThumbnailSheet(Struct, frozen=True):
    """Small pictures of a file on one sheet, `thumbnails.jpg`, in rows of `columns`.

    Picture `i` is of about the time `i * every`, in seconds; each is `width` by `height` pixels. Of a
    sound there are none, and no sheet.
    """

    count: int
    columns: int
    width: int
    height: int
    every: float


def event_frame(event: Event) -> bytes:
    """One event of a model call as a server-sent event."""
    return frame(dump(public_event(event)), event=event.type)


def shown_frame(shown: Shown) -> bytes:
    """One event of a run as a server-sent event, without what is internal to the server."""
    return frame(shown.data, event=shown.type, id=shown.id)
