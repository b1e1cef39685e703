"""What a front end shows: the conversation, and what the agent is doing. Used from one thread."""

import os
from typing import Any, get_args

import msgspec

from playhead.encode import message_bytes
from playhead.errors import StoreError
from playhead.session.linefile import LineFile, Verdict
from playhead.session.observable import Observable
from playhead.types import (
    AgentContext,
    AssistantMessage,
    ChatMessage,
    ExecutionState,
    SystemMessage,
    ToolMessage,
    UserMessage,
)

_CLASSES: dict[str, Any] = {
    cls.role: cls for cls in (SystemMessage, UserMessage, AssistantMessage, ToolMessage)
}
_decode_message = msgspec.json.Decoder(ChatMessage).decode


class ChatState(msgspec.Struct, frozen=True):
    """The conversation at one moment."""

    messages: tuple[ChatMessage, ...] = ()
    loading: bool = False
    error: str | None = None


class AgentState(msgspec.Struct, frozen=True):
    """What the agent was doing at one moment."""

    status: ExecutionState = "idle"
    active_tool: str | None = None
    context: AgentContext | None = None


class ChatStore(Observable[ChatState]):
    """The messages of a chat, whether an answer is awaited, and what went wrong last.

    Args:
        persist: a file that keeps the messages. A store made with the same path has the same
            messages, in this process or after it. Two stores on one path, of one or of two
            processes, may both write; each shows what it loaded and what it was given itself.
        fsync: flush each message to the device, so that a loss of power loses none either.

    Raises `StoreError` when the file cannot be opened. A file that is torn or corrupt is set aside
    under another name, which is said in the log; what can be read of it is kept.
    """

    def __init__(self, persist: str | os.PathLike[str] | None = None, *, fsync: bool = True) -> None:
        self._file: LineFile | None = None
        messages: list[ChatMessage] = []
        if persist is not None:
            self._file = LineFile(persist, fsync=fsync)
            self._file.load(lambda line: _read_line(line, messages))
        super().__init__(ChatState(tuple(messages)))

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The conversation, oldest first."""
        return self._state.messages

    @property
    def loading(self) -> bool:
        """True while an answer is awaited."""
        return self._state.loading

    @property
    def error(self) -> str | None:
        """What went wrong, until it is cleared."""
        return self._state.error

    def add_message(
        self, message: ChatMessage | None = None, *, role: str = "", content: Any = "", **fields: Any
    ) -> ChatMessage:
        """Append a message, or one made of `role`, `content` and the other fields of that role.

        An id and a timestamp are filled in when not given. Returns the message that was added. On a
        persisted store it is on disk when this returns. Raises `StoreError` for what is no message,
        and when the file cannot be written; then nothing was added.
        """
        if message is None:
            message = _made(role, content, fields)
        elif type(message) not in _CLASSES.values():
            raise StoreError(
                f"A {type(message).__name__} is no message: give a ChatMessage, or role= and content=."
            )
        line = message_bytes(message)
        if b"\xef\xbf\xbd" in line:
            # What could not be encoded was replaced: show what a restart will show.
            message = _decode_message(line)
        self._write(b'{"action":"add_message","message":' + line + b"}")
        self._change(messages=(*self.messages, message))
        return message

    def set_loading(self, loading: bool) -> None:
        """Say whether an answer is awaited."""
        self._change(loading=bool(loading))

    def set_error(self, error: str | None) -> None:
        """Say what went wrong, which also ends the loading; None clears it."""
        self._change(error=error, **({} if error is None else {"loading": False}))

    def clear_messages(self) -> None:
        """Forget the conversation, in the file as well. Raises `StoreError` as `add_message` does."""
        self._write(b'{"action":"clear_messages"}')
        self._change(messages=())

    def _write(self, line: bytes) -> None:
        if self._file is not None:
            self._file.append(line)


class AgentStore(Observable[AgentState]):
    """What the agent is doing, with which tool, and in which context."""

    def __init__(self) -> None:
        super().__init__(AgentState())

    @property
    def status(self) -> ExecutionState:
        return self._state.status

    @property
    def active_tool(self) -> str | None:
        """The name of the tool that runs; of several, the first in call order."""
        return self._state.active_tool

    @property
    def context(self) -> AgentContext | None:
        return self._state.context

    def set_status(self, status: ExecutionState) -> None:
        """Raises `StoreError` for a word that is no `ExecutionState`."""
        if status not in get_args(ExecutionState):
            words = ", ".join(get_args(ExecutionState))
            raise StoreError(f"The status is {status!r}; it must be one of {words}.")
        self._change(status=status)

    def set_active_tool(self, name: str | None) -> None:
        self._change(active_tool=name)

    def set_context(self, context: AgentContext | None) -> None:
        self._change(context=context)

    def reset(self) -> None:
        """Back to idle, without a tool and without a context."""
        self._change(status="idle", active_tool=None, context=None)


class _Line(msgspec.Struct, frozen=True):
    action: str
    message: msgspec.Raw = msgspec.Raw()


_decode_line = msgspec.json.Decoder(_Line).decode


def _read_line(line: bytes, messages: list[ChatMessage]) -> Verdict:
    try:
        read = _decode_line(line)
        if read.action == "clear_messages":
            messages.clear()
            return "reset"
        if read.action == "add_message":
            messages.append(_decode_message(read.message))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "broken"
    return "keep"  # an action of a later version is kept for it


def _made(role: str, content: Any, fields: dict[str, Any]) -> ChatMessage:
    cls = _CLASSES.get(role)
    if cls is None:
        raise StoreError(f"The role is {role!r}; it must be one of {', '.join(_CLASSES)}.")
    try:
        return _decode_message(message_bytes(cls(content=content, **fields)))
    except (TypeError, msgspec.ValidationError) as error:
        raise StoreError(f"That is no message of role {role!r}: {error}.") from None
