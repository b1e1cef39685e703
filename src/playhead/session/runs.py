"""A run as long as it is remembered: its events, and what is needed to stop it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from playhead.errors import StoreError
from playhead.events import (
    Event,
    ReasoningDelta,
    RunEnd,
    RunPaused,
    RunStart,
    StepEnd,
    TextDelta,
    ToolCallDelta,
    ToolProgress,
)
from playhead.ids import new_id, now_ms
from playhead.session.port import StoredPort, ThreadKey
from playhead.storage.base import TurnRow
from playhead.types import (
    AgentRunResult,
    AgentStep,
    AssistantMessage,
    ContentPart,
    FinishReason,
    UserMessage,
)

Said: TypeAlias = str | Sequence[ContentPart] | UserMessage
"""What a person says: a text, parts, or a whole message with an id of its own."""

_Growing: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
_GROWING = (TextDelta, ReasoningDelta, ToolCallDelta)


class RunHandle(msgspec.Struct, frozen=True, rename="camel"):
    """A run that was begun."""

    run_id: str
    turn_id: str
    thread_id: str


class _Stretch:
    """Neighbouring deltas of one text. Who comes late, or is slow, gets them as one."""

    __slots__ = ("_first", "_packed", "_pieces", "key")

    def __init__(self, first: _Growing) -> None:
        self.key = _key(first)
        self._first = first
        self._pieces = [first.text]
        self._packed = False

    def add(self, text: str) -> None:
        self._pieces.append(text)

    def pack(self) -> None:
        self._pieces = ["".join(self._pieces)]
        self._packed = True

    def after(self, pieces: int, characters: int) -> tuple[int, _Growing | None]:
        """What comes behind the pieces, or else the characters, that were read already."""
        text = self._pieces[0][characters:] if self._packed else "".join(self._pieces[pieces:])
        if not text:
            return len(self._pieces), None
        delta = replace(self._first, text=text)
        if not isinstance(delta, ToolCallDelta):
            delta.offset += characters
        return len(self._pieces), delta


class RunLog:
    """What a run told, from its first event on. Writing never waits; each reader has its own pace."""

    def __init__(self) -> None:
        self.result: AgentRunResult | None = None
        self._entries: list[Event | _Stretch | None] = []
        self._progress: dict[str, int] = {}
        self._news = asyncio.Event()

    @property
    def begun(self) -> bool:
        return bool(self._entries)

    @property
    def steps(self) -> list[AgentStep]:
        """The steps that are complete."""
        return [entry.result for entry in self._entries if isinstance(entry, StepEnd)]

    def put(self, event: Event) -> None:
        """Take one event. After the last one there is none."""
        if self.result is not None:
            return
        entries = self._entries
        if isinstance(event, _GROWING):
            last = entries[-1] if entries else None
            if isinstance(last, _Stretch) and last.key == _key(event):
                last.add(event.text)
            else:
                entries.append(_Stretch(event))
        else:
            if isinstance(event, ToolProgress):
                # Of a call's progress, only the newest is worth telling to who comes late.
                old = self._progress.get(event.call_id)
                self._progress[event.call_id] = len(entries)
                if old is not None:
                    entries[old] = None
            entries.append(event)
        if isinstance(event, RunEnd | RunPaused):
            self.result = event.result
            for entry in entries:
                if isinstance(entry, _Stretch):
                    entry.pack()
        self._news.set()
        self._news.clear()

    async def read(self) -> AsyncGenerator[Event, None]:
        """Every event from the first, then live, up to the last. Closing it harms nobody."""
        entries = self._entries
        at = pieces = characters = 0
        while True:
            while at < len(entries):
                entry = entries[at]
                if isinstance(entry, _Stretch):
                    pieces, delta = entry.after(pieces, characters)
                    if delta is not None:
                        characters += len(delta.text)
                        yield delta
                        continue
                    if at == len(entries) - 1:
                        break
                at += 1
                pieces = characters = 0
                if entry is not None and not isinstance(entry, _Stretch):
                    yield entry
            if self.result is not None and at == len(entries):
                return
            await self._news.wait()

    async def ended(self) -> AgentRunResult:
        """Wait for the last event and return its result."""
        while self.result is None:
            await self._news.wait()
        return self.result


class LiveRun:
    """One run: waiting for its turn, at work, or over and not yet forgotten."""

    def __init__(self, thread: ThreadKey, message: UserMessage, context: Any) -> None:
        self.handle = RunHandle(new_id(), new_id(), thread.thread_id)
        self.thread = thread
        self.message = message
        self.context = context
        self.log = RunLog()
        self.cancel = asyncio.Event()
        self.port: StoredPort | None = None
        self.task: asyncio.Task[None] | None = None
        self.ended_at = 0.0

    def end(self, reason: FinishReason, error: str | None = None, code: str | None = None) -> None:
        """Tell the end of a run that did not come to tell it. Does nothing when it was told."""
        if self.log.result is not None:
            return
        steps = self.log.steps
        result = AgentRunResult(
            self.handle.turn_id,
            reason,
            next((s.assistant_message.content for s in reversed(steps) if s.assistant_message.content), ""),
            tuple(steps),
            error_message=error,
            error_code=code,
            messages=tuple(self.port.written) if self.port is not None else (),
        )
        self.tell_end(result, len(steps))

    def tell_end(self, result: AgentRunResult, step: int = 0) -> None:
        """Tell a result as the run would have."""
        if self.port is not None:
            self.port.close()
        run_id, at = self.handle.run_id, now_ms()
        if not self.log.begun:
            self.log.put(RunStart(turn_id=self.handle.turn_id, run_id=run_id, at=at))
        self.log.put(RunEnd(result=result, run_id=run_id, step=step, at=at))


def user_message(message: Said, message_id: str | None) -> UserMessage:
    """Return the message that a run begins with. Raises `StoreError` for one that is not the user's."""
    if isinstance(message, UserMessage):
        made = message
    else:
        try:
            made = UserMessage(msgspec.convert(message, str | tuple[ContentPart, ...]))
        except msgspec.ValidationError as error:
            text = f"A run begins with what the user says, as text, parts or a UserMessage: {error}."
            raise store_error("invalid", text) from None
    return made if message_id is None else replace(made, id=message_id)


def result_of(rows: Sequence[TurnRow]) -> AgentRunResult:
    """What is known of a turn whose run is forgotten."""
    messages = tuple(row.message for row in rows)
    said = [m for m in messages if isinstance(m, AssistantMessage)]
    answered = isinstance(messages[-1], AssistantMessage) and not messages[-1].tool_calls
    return AgentRunResult(
        rows[0].turn_id,
        "final" if answered else "error",
        next((m.content for m in reversed(said) if m.content), ""),
        stop_reason=said[-1].stop_reason if said else None,
        error_message=None if answered else "The run of this message ended without an answer. Send it anew.",
        error_code=None if answered else "interrupted",
        messages=messages,
    )


def store_error(code: str, text: str) -> StoreError:
    """Return a `StoreError` with a code of its own."""
    error = StoreError(text)
    error.code = code
    return error


def _key(delta: _Growing) -> tuple[str, str]:
    return delta.type, delta.call_id if isinstance(delta, ToolCallDelta) else delta.message_id
