"""A run while it lives: waiting for its turn, or at work."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from playhead.events import RunEnd
from playhead.ids import now_ms
from playhead.port import LiveContext
from playhead.session.port import StoredPort
from playhead.storage.base import TurnRow
from playhead.storage.ledger import Enlist, RunRow, Thread, coded, deleted, thread_of
from playhead.types import AgentRunResult, AssistantMessage, ContentPart, FinishReason, UserMessage

T = TypeVar("T")

Said: TypeAlias = str | Sequence[ContentPart] | UserMessage
"""What a person says: a text, parts, or a whole message with an id of its own."""

_UNANSWERED = "The run of this message ended without an answer. Ask it again, with a new id or by a retry."

Reason: TypeAlias = tuple[FinishReason, str | None, str | None]
CANCELLED: Reason = ("cancelled", None, None)
BROKE_OFF: Reason = ("error", "The run broke off.", "internal")
INTERRUPTED: Reason = (
    "error",
    "The run was interrupted: its process, or its event loop, ended before it did. Send the message anew.",
    "interrupted",
)


class RunHandle(msgspec.Struct, frozen=True, rename="camel"):
    """A run that was begun."""

    run_id: str
    turn_id: str
    thread_id: str


class LiveRun:
    """One run of this process."""

    def __init__(self, row: RunRow, context: Any) -> None:
        self.row = row
        self.thread: Thread = thread_of(row)
        self.context = LiveContext(context)
        self.handle = handle_of(row)
        self.cancel = asyncio.Event()
        self.port: StoredPort | None = None
        self.task: asyncio.Task[None] | None = None
        self.finishing: asyncio.Task[None] | None = None
        self.result: asyncio.Future[AgentRunResult] = asyncio.get_running_loop().create_future()
        self.steering: list[LiveRun] = []
        # The run that its message is answered by, known once it begins or is taken in by another.
        self.placed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.absorbing: asyncio.Future[Sequence[UserMessage]] | None = None
        self.absorbed_by: LiveRun | None = None
        self.enlist: Enlist | None = None
        # Another process goes on with it.
        self.lost = False
        self.deleted = False  # by another process, with its thread

    @property
    def run_id(self) -> str:
        return self.row.run_id

    def place(self, run_id: str) -> None:
        """Say which run the message is answered by."""
        if not self.placed.done():
            self.placed.set_result(run_id)

    def outcome(self, reason: Reason) -> AgentRunResult:
        """The result of a run that did not come to tell its own."""
        if self.deleted:
            gone = deleted(self.row)
            reason = ("error", str(gone), gone.code)
        finish_reason, error, code = reason
        said = self.port.written if self.port is not None else ()
        written = {message.id for message in said}
        steps = self.port.steps if self.port is not None else ()
        texts = (m.content for m in reversed(said) if isinstance(m, AssistantMessage) and m.content)
        return AgentRunResult(
            self.row.turn_id,
            finish_reason,
            next(texts, ""),
            tuple(step for step in steps if step.assistant_message.id in written),
            error_message=error,
            error_code=code,
            messages=tuple(said),
        )


def handle_of(row: RunRow) -> RunHandle:
    """What the user of a run is given."""
    return RunHandle(row.run_id, row.turn_id, row.thread_id)


def end_event(row: RunRow, result: AgentRunResult) -> RunEnd:
    """The last event of a run, as the run would have told it."""
    return RunEnd(result=result, run_id=row.run_id, at=now_ms())


def user_message(message: Said, message_id: str | None) -> UserMessage:
    """Return the message that a run begins with. Raises `StoreError` for one that is not the user's."""
    if isinstance(message, UserMessage):
        made = message
    else:
        try:
            made = UserMessage(msgspec.convert(message, str | tuple[ContentPart, ...]))
        except msgspec.ValidationError as error:
            text = f"A run begins with what the user says, as text, parts or a UserMessage: {error}."
            raise coded("invalid", text) from None
    return made if message_id is None else replace(made, id=message_id)


def result_of(rows: Sequence[TurnRow]) -> AgentRunResult:
    """What is known of a turn whose run is forgotten. Raises `StoreError`, `not_found`, if nothing is."""
    if not rows:
        text = (
            "What the message began was deleted since, and its result with it. Send it anew, with a new id."
        )
        raise coded("not_found", text)
    messages = tuple(row.message for row in rows)
    said = [m for m in messages if isinstance(m, AssistantMessage)]
    answered = isinstance(messages[-1], AssistantMessage) and not messages[-1].tool_calls
    return AgentRunResult(
        rows[0].turn_id,
        "final" if answered else "error",
        next((m.content for m in reversed(said) if m.content), ""),
        stop_reason=said[-1].stop_reason if said else None,
        error_message=None if answered else _UNANSWERED,
        error_code=None if answered else "interrupted",
        messages=messages,
    )


def pass_on(
    target: "asyncio.Future[AgentRunResult]",
) -> "Callable[[asyncio.Future[AgentRunResult]], None]":
    """Return what gives the result of one run to who waits for another."""

    def done(source: "asyncio.Future[AgentRunResult]") -> None:
        if not target.done():
            target.set_result(source.result())

    return done


async def written_though_stopped(work: Awaitable[T], run: LiveRun) -> T:
    """Wait for what is written as said in a run. That is told in it, though it is being stopped meanwhile."""
    writing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        if not run.cancel.is_set():
            writing.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise
        await asyncio.wait((writing,))
        return writing.result()
