"""The one normaliser: whatever a log holds, the request that is made from it is valid.

Providers refuse a call without its result, a result without its call, results out of order, and
anything between a call and its results. The normaliser works on a projection: the log stays raw.
It is idempotent.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import is_
from typing import NamedTuple
from weakref import ref

from msgspec.structs import replace

from playhead.types import AssistantMessage, ChatMessage, SystemMessage, ToolCall, ToolMessage, UserMessage

NO_RESULT = "No result: the run was interrupted before this call finished."

Group = list[ChatMessage]
"""What stands or falls together: a message with calls and all its results, the user messages that
follow one another, or one assistant message."""

EncodeGroup = Callable[[Group, Group | None, Group | None], Sequence[bytes]]


def normalise(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages in the order and pairing that every provider accepts, system text first."""
    systems = [m for m in messages if isinstance(m, SystemMessage)]
    flat = (message for group in groups(messages) for message in group)
    return [*systems, *flat]


def groups(messages: Sequence[ChatMessage]) -> list[Group]:
    """Return the conversation in groups, without its system messages.

    A call id that comes again gets a new one, and so do its results, first in first out. A result
    goes behind its call, in call order; a missing one is made up, an orphan or a second one is left
    out; a message with neither text nor calls is left out.
    """
    return _Walk(messages, set()).groups


class _Walk:
    """One pass over messages: their groups, and up to where no later message can change them."""

    def __init__(self, messages: Sequence[ChatMessage], earlier: set[str]) -> None:
        self.groups: list[Group] = []
        self.systems: list[tuple[int, str]] = []
        self._starts: list[int] = []
        self._earlier = earlier
        self._used: set[str] = set()
        self._open: dict[str, list[_OpenCall]] = {}
        self._waiting: list[tuple[int, Group, list[_OpenCall]]] = []
        self._late: list[tuple[int, int]] = []
        n, end = 0, len(messages)
        while n < end:
            n = self._plain(messages, n)
            if n < end:
                n += self._take(messages, n)
        for _, group, calls in self._waiting:
            group.extend(call.answer() for call in calls)

    def _plain(self, messages: Sequence[ChatMessage], n: int) -> int:
        """Take what needs no thought, from `n` up to the first message that does: questions, answers,
        and single calls with their results. Nearly all of a long history goes this way."""
        add, begin, used, earlier = self.groups.append, self._starts.append, self._used, self._earlier
        end, asked = len(messages), bool(self.groups) and isinstance(self.groups[-1][0], UserMessage)
        while n < end:
            message = messages[n]
            if isinstance(message, UserMessage):
                if asked:
                    return n
                add([message])
                begin(n)
                asked = True
                n += 1
                continue
            if not isinstance(message, AssistantMessage):
                return n
            calls = message.tool_calls
            if not calls and message.content:
                add([message])
                begin(n)
                n += 1
            elif len(calls) == 1 and n + 1 < end:
                answer, id = messages[n + 1], calls[0].id
                fresh = id and id not in used and id not in earlier
                if not fresh or not isinstance(answer, ToolMessage) or answer.tool_call_id != id:
                    return n
                used.add(id)
                add([message, answer])
                begin(n)
                n += 2
            else:
                return n
            asked = False
        return n

    @property
    def settled(self) -> tuple[int, int]:
        """How many groups, and how many messages, no later message can change.

        Those before the last group, before the first open call, and not between a call and a
        result that came late.
        """
        if not self._starts:
            return 0, 0
        border = min([self._starts[-1], *(start for start, _, calls in self._waiting if _any_open(calls))])
        for asked, answered in reversed(self._late):
            if asked < border <= answered:
                border = asked
        return bisect_left(self._starts, border), border

    def ids_before(self, count: int) -> set[str]:
        """The call ids of the first `count` groups."""
        firsts = (group[0] for group in self.groups[count:])
        later = {call.id for m in firsts if isinstance(m, AssistantMessage) for call in m.tool_calls}
        return self._used - later if later else self._used

    def _take(self, messages: Sequence[ChatMessage], n: int) -> int:
        """Take the message at `n`; return how many were taken."""
        message = messages[n]
        if isinstance(message, UserMessage):
            if self.groups and isinstance(self.groups[-1][0], UserMessage):
                self.groups[-1].append(message)
            else:
                self._add(n, [message])
        elif isinstance(message, AssistantMessage):
            calls = message.tool_calls
            if calls:
                block = messages[n + 1 : n + 1 + len(calls)]
                if self._in_order(calls, block):
                    self._add(n, [message, *block])
                    return 1 + len(block)
                self._add_open(n, message)
            elif message.content or message.provider_metadata:
                self._add(n, [message])
        elif isinstance(message, ToolMessage):
            waiting = self._open.get(message.tool_call_id)
            if waiting:
                call = waiting.pop(0)
                call.take(message)
                if call.start != self._starts[-1]:
                    self._late.append((call.start, n))
        elif message.content:
            self.systems.append((n, message.content))
        return 1

    def _add(self, n: int, group: Group) -> None:
        self.groups.append(group)
        self._starts.append(n)

    def _in_order(self, calls: Sequence[ToolCall], block: Sequence[ChatMessage]) -> bool:
        """Are these the results of the calls, with ids not seen before?"""
        ids = [call.id for call in calls]
        if [getattr(message, "tool_call_id", None) for message in block] != ids:
            return False
        new = self._used.isdisjoint(ids) and self._earlier.isdisjoint(ids)
        if not new or not all(ids) or len(set(ids)) < len(ids):
            return False
        self._used.update(ids)
        return True

    def _add_open(self, n: int, message: AssistantMessage) -> None:
        calls = message.tool_calls
        ids = [self._unused(call.id) for call in calls]
        renamed = [replace(call, id=id) for call, id in zip(calls, ids, strict=True)]
        if ids != [call.id for call in calls]:
            message = replace(message, tool_calls=renamed)
        opened = [_OpenCall(call, n) for call in renamed]
        # A result belongs to the last call of its id; an older one stays unanswered.
        self._open.update((call.id, []) for call in calls)
        for call, waiting in zip(calls, opened, strict=True):
            self._open[call.id].append(waiting)
        group: Group = [message]
        self._waiting.append((n, group, opened))
        self._add(n, group)

    def _unused(self, id: str) -> str:
        candidate, n = id or "call", 1
        while candidate in self._used or candidate in self._earlier:
            n += 1
            candidate = f"{id or 'call'}-{n}"
        self._used.add(candidate)
        return candidate


class _OpenCall:
    __slots__ = ("call", "result", "start")

    def __init__(self, call: ToolCall, start: int) -> None:
        self.call = call
        self.start = start
        self.result: ToolMessage | None = None

    def take(self, message: ToolMessage) -> None:
        same = message.tool_call_id == self.call.id
        self.result = message if same else replace(message, tool_call_id=self.call.id)

    def answer(self) -> ToolMessage:
        if self.result is not None:
            return self.result
        call = self.call
        return ToolMessage(call.id, call.name, NO_RESULT, True, id=f"{call.id}/none", timestamp=0)


def _any_open(calls: Sequence[_OpenCall]) -> bool:
    return any(call.result is None for call in calls)


# A history of fewer messages is encoded anew in no time.
_LONG = 50
_LOOK_BACK = 64


class _Kept(NamedTuple):
    """What is known of a history up to a message. References are weak: it keeps no message alive."""

    refs: list[ref[ChatMessage]]
    bytes: bytes
    used: frozenset[str]
    systems: tuple[str, ...]
    last: int


class EncodedHistory:
    """The wire bytes of a history that grows, so that each message is encoded once.

    It keeps what it encoded as long as the next history begins with the same messages. The last
    group is always made again, because what follows may still belong to it.

    Args:
        encode: takes a group, the one before it and the one after it, and returns the wire bytes
            of the group, in pieces that are to be joined with commas. Of the neighbours it may use
            no more than what kind they are.
        key: under which a long history's bytes are kept in its last settled message, so that the
            next run of the same messages begins there. They go with that message.
    """

    def __init__(self, encode: EncodeGroup, key: str | None = None) -> None:
        self._encode = encode
        self._key = key
        self._reset()

    @property
    def has_calls(self) -> bool:
        """Does the history, as last seen, hold calls of tools?"""
        return self._has_calls

    def _reset(self) -> None:
        self._done: list[ChatMessage] = []
        self._bytes = bytearray()
        self._used: set[str] = set()
        self._systems: list[str] = []
        self._last: Group | None = None
        self._tail: Group | None = None
        self._has_calls = False
        self._recalled: _Kept | None = None

    def update(self, messages: Sequence[ChatMessage]) -> tuple[list[bytes | bytearray], list[str]]:
        """Return the pieces of the comma-joined conversation, and the texts of its system messages."""
        count = len(self._done)
        known = messages[:count]
        if count and (known if isinstance(known, list) else list(known)) != self._done:
            self._reset()
            count = 0
        if self._tail is not None:
            pieces = self._grown(messages, count, self._tail)
            if pieces is not None:
                return pieces, self._systems
        key = self._key if not count and len(messages) > _LONG else None
        if key is not None:
            self._recall(messages, key)
            count = len(self._done)
        rest = messages[count:]
        walk = _Walk(rest, self._used)
        group_count, message_count = walk.settled
        encoded = self._encode_all(walk.groups)
        called = (isinstance(group[-1], ToolMessage) for group in walk.groups)
        self._has_calls = bool(self._used) or any(called)
        self._commit(walk, encoded, group_count, rest[:message_count])
        tail, left = walk.groups[group_count:], rest[message_count:]
        alone = len(tail) == 1 and len(left) == len(tail[0]) and all(map(is_, left, tail[0]))
        self._tail = tail[0] if alone else None
        self._systems += [text for n, text in walk.systems if n < message_count]
        systems = [*self._systems, *(text for n, text in walk.systems if n >= message_count)]
        if key is not None:
            self._remember(key)
        return self._pieces([piece for pieces in encoded[group_count:] for piece in pieces]), systems

    def _pieces(self, tail: Sequence[bytes]) -> list[bytes | bytearray]:
        if not self._bytes:
            return [b",".join(tail)] if tail else []
        pieces: list[bytes | bytearray] = [self._bytes]
        for piece in tail:
            pieces += (b",", piece)
        return pieces

    def _grown(
        self, messages: Sequence[ChatMessage], count: int, tail: Group
    ) -> list[bytes | bytearray] | None:
        """The pieces after a usual step of a run: the group that was last, one call and its result."""
        end = count + len(tail)
        if len(messages) != end + 2 or not all(map(is_, messages[count:end], tail)):
            return None
        message, answer = messages[end:]
        if not isinstance(message, AssistantMessage) or not isinstance(answer, ToolMessage):
            return None
        ids = [call.id for call in tail[0].tool_calls] if isinstance(tail[0], AssistantMessage) else []
        calls = message.tool_calls
        if len(calls) != 1 or not calls[0].id or calls[0].id != answer.tool_call_id:
            return None
        if answer.tool_call_id in self._used or answer.tool_call_id in ids:
            return None
        group: Group = [message, answer]
        joined = b",".join(self._encode(tail, self._last, group))
        self._bytes += b"," + joined if self._bytes and joined else joined
        self._used.update(ids)
        self._done += tail
        self._last, self._tail, self._has_calls = tail, group, True
        return self._pieces(self._encode(group, tail, None))

    def _encode_all(self, groups: Sequence[Group]) -> list[Sequence[bytes]]:
        before = [self._last, *groups[:-1]]
        after = [*groups[1:], None]
        return list(map(self._encode, groups, before, after))

    def _commit(
        self, walk: _Walk, encoded: Sequence[Sequence[bytes]], count: int, messages: Sequence[ChatMessage]
    ) -> None:
        self._done.extend(messages)
        if count:
            joined = b",".join([piece for pieces in encoded[:count] for piece in pieces])
            self._bytes += b"," + joined if self._bytes and joined else joined
            self._last = walk.groups[count - 1]
            self._used |= walk.ids_before(count)

    def _recall(self, messages: Sequence[ChatMessage], key: str) -> None:
        """Begin where an earlier run of these messages was, if one of the last ones knows."""
        for message in reversed(messages[-_LOOK_BACK:]):
            kept: _Kept | None = message.__dict__.get(key)
            if kept is None:
                continue
            done = list(messages[: len(kept.refs)])
            if [ref() for ref in kept.refs] == done:
                self._done, self._bytes = done, bytearray(kept.bytes)
                self._used, self._systems = set(kept.used), list(kept.systems)
                self._last = done[-kept.last :]
                self._recalled = kept
                del message.__dict__[key]
            return

    def _remember(self, key: str) -> None:
        done, last = self._done, self._last or []
        size = len(last)
        if not last or len(done) < max(size, _LONG):
            return
        if any(a is not b for a, b in zip(done[-size:], last, strict=True)):
            return  # its last group is not as it stands in the list
        refs = self._recalled.refs if self._recalled else []
        refs = [*refs, *map(ref, done[len(refs) :])]
        kept = _Kept(refs, bytes(self._bytes), frozenset(self._used), tuple(self._systems), size)
        done[-1].__dict__[key] = kept
