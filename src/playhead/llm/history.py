"""The one normaliser: whatever a log holds, the request that is made from it is valid.

Providers refuse a call without its result, a result without its call, results out of order, and
anything between a call and its results. The normaliser works on a projection: the log stays raw.
It is idempotent.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from playhead.types import AssistantMessage, ChatMessage, SystemMessage, ToolCall, ToolMessage, UserMessage

NO_RESULT = "No result: the run was interrupted before this call finished."

Group = list[ChatMessage]
"""What stands or falls together: a message with calls and all its results, the user messages that
follow one another, or one assistant message."""


def normalise(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages in the order and pairing that every provider accepts, system text first."""
    systems = [m for m in messages if isinstance(m, SystemMessage)]
    flat = (message for group in groups(messages) for message in group)
    return [*systems, *flat]


def groups(messages: Iterable[ChatMessage], used: set[str] | None = None) -> list[Group]:
    """Return the conversation in groups, without its system messages.

    `used` holds the call ids that came earlier, and takes the ones seen here. A call id that comes
    again gets a new one, and so do its results, first in first out. A result goes behind its call,
    in call order; a missing one is made up, an orphan or a second one is left out; a message with
    neither text nor calls is left out.
    """
    used = set() if used is None else used
    found: list[Group] = []
    open_calls: dict[str, list[_OpenCall]] = {}
    unfinished: list[tuple[Group, list[_OpenCall]]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            waiting = open_calls.get(message.tool_call_id)
            if waiting:
                waiting.pop(0).take(message)
        elif isinstance(message, AssistantMessage):
            if _says_nothing(message):
                continue
            if message.tool_calls:
                message, calls = _with_unique_ids(message, used)
                # A result belongs to the last call of its id; an older one stays unanswered.
                open_calls.update((original, []) for original, _ in calls)
                for original, opened in calls:
                    open_calls[original].append(opened)
                found.append([message])
                unfinished.append((found[-1], [opened for _, opened in calls]))
            else:
                found.append([message])
        elif isinstance(message, UserMessage):
            if found and isinstance(found[-1][0], UserMessage):
                found[-1].append(message)
            else:
                found.append([message])
    for group, waiting in unfinished:
        group.extend(call.answer() for call in waiting)
    return found


class _OpenCall:
    __slots__ = ("call", "result")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.result: ToolMessage | None = None

    def take(self, message: ToolMessage) -> None:
        same = message.tool_call_id == self.call.id
        self.result = message if same else replace(message, tool_call_id=self.call.id)

    def answer(self) -> ToolMessage:
        if self.result is not None:
            return self.result
        return ToolMessage(
            self.call.id, self.call.name, NO_RESULT, True, id=f"{self.call.id}/none", timestamp=0
        )


def _with_unique_ids(
    message: AssistantMessage, used: set[str]
) -> tuple[AssistantMessage, list[tuple[str, _OpenCall]]]:
    calls = message.tool_calls
    taken = any(not call.id or call.id in used for call in calls)
    if taken or len({call.id for call in calls}) < len(calls):
        calls = [replace(call, id=_unused(call.id, used)) for call in calls]
        renamed = replace(message, tool_calls=calls)
    else:
        used.update(call.id for call in calls)
        renamed = message
    originals = (call.id for call in message.tool_calls)
    return renamed, [(was, _OpenCall(call)) for was, call in zip(originals, calls, strict=True)]


def _says_nothing(message: AssistantMessage) -> bool:
    return not (message.tool_calls or message.content or message.provider_metadata)


def _unused(id: str, used: set[str]) -> str:
    candidate, n = id or "call", 1
    while candidate in used:
        n += 1
        candidate = f"{id or 'call'}-{n}"
    used.add(candidate)
    return candidate


class EncodedHistory:
    """The wire bytes of a history that grows, so that each message is encoded once.

    It keeps what it encoded as long as the next history begins with the same messages. The last
    group is always made again, because what follows may still belong to it.
    """

    def __init__(self, encode: Callable[[Group], bytes]) -> None:
        self._encode = encode
        self._reset()

    def _reset(self) -> None:
        self._done: list[ChatMessage] = []
        self._bytes = bytearray()
        self._used: set[str] = set()
        self._systems: list[str] = []

    def update(self, messages: Sequence[ChatMessage]) -> tuple[list[bytes | bytearray], list[str]]:
        """Return the pieces of the comma-joined conversation, and the texts of its system messages."""
        count = len(self._done)
        if count and list(messages[:count]) != self._done:
            self._reset()
            count = 0
        rest = messages[count:]
        border = _settled(rest)
        self._commit(rest[:border])
        rest = rest[border:]
        pieces: list[bytes | bytearray] = [self._bytes] if self._bytes else []
        for group in groups(rest, set(self._used)):
            if pieces:
                pieces.append(b",")
            pieces.append(self._encode(group))
        return pieces, [*self._systems, *_system_texts(rest)]

    def _commit(self, messages: Sequence[ChatMessage]) -> None:
        encoded = [self._encode(group) for group in groups(messages, self._used)]
        if encoded:
            if self._bytes:
                self._bytes += b","
            self._bytes += b",".join(encoded)
        self._systems += _system_texts(messages)
        self._done.extend(messages)


def _system_texts(messages: Sequence[ChatMessage]) -> list[str]:
    return [m.content for m in messages if isinstance(m, SystemMessage) and m.content]


def _settled(messages: Sequence[ChatMessage]) -> int:
    """Return how many messages no later one can change: those before the last group and before the
    first message with an open call."""
    last = 0
    among_users = False
    open_calls: dict[str, list[int]] = {}
    late: list[tuple[int, int]] = []
    for n, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            if _says_nothing(message):
                continue
            last, among_users = n, False
            if message.tool_calls:
                open_calls.update((call.id, []) for call in message.tool_calls)
                for call in message.tool_calls:
                    open_calls[call.id].append(n)
        elif isinstance(message, UserMessage):
            if not among_users:
                last, among_users = n, True
        elif isinstance(message, ToolMessage):
            waiting = open_calls.get(message.tool_call_id)
            if waiting and (asked := waiting.pop(0)) != last:
                late.append((asked, n))
    border = min([last, *(asked for waiting in open_calls.values() for asked in waiting)])
    for asked, answered in reversed(late):
        # A border between a call and its late result would part them.
        if asked < border <= answered:
            border = asked
    return border
