"""One response, put together from its pieces, for every streaming dialect.

Servers disagree on how they cut a call: without an index, with a wrong one, with the id late,
missing, blank or repeated, with the name in halves. The rules here read them all.
"""

import re
from collections.abc import Mapping

from playhead.events import Attempt, EmitDelta, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from playhead.ids import new_id
from playhead.llm.arguments import make_call
from playhead.types import AssistantMessage, JsonObject, StopReason, ToolCall

# Half of a surrogate pair: only the lenient decoder lets one through.
HALF = re.compile("[\ud800-\udfff]")


class _OpenCall:
    __slots__ = ("arguments", "extra", "id", "index", "name", "started")

    def __init__(self, id: str | None, index: int | None) -> None:
        self.id = id
        self.index = index
        self.name = ""
        self.arguments: list[str] = []
        self.extra: JsonObject = {}
        self.started = False


class Assembly:
    """Takes the pieces of one response in order; hands deltas on; gives the message at the end.

    Args:
        emit: takes the deltas, if there is anybody to read them.
        lenient: text after a complete object of arguments is cut off.
    """

    def __init__(self, emit: EmitDelta | None = None, *, lenient: bool = False) -> None:
        self._emit = emit
        self._lenient = lenient
        self._text: list[str] = []
        self._half = ""
        self._half_thought = ""
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}

    @property
    def empty(self) -> bool:
        """True while nothing of the response has arrived."""
        return not (self._text or self._reasoning or self._calls or self._half)

    @property
    def said(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def extras(self) -> JsonObject:
        """Fields of calls that only their provider knows, by call id."""
        return {call.id: call.extra for call in self._calls if call.id and call.extra}

    def text(self, text: str) -> None:
        """Take more of the answer. Half a surrogate pair is held until the other half is there."""
        if self._half or not (text.isascii() or HALF.search(text) is None):
            text, self._half = whole_pairs(self._half + text)
            if not text:
                return
        self._text.append(text)
        if self._emit is not None:
            self._emit(TextDelta(text))

    def reasoning(self, text: str) -> None:
        """Take more of the reasoning. Half a surrogate pair is held here, too."""
        if self._half_thought or not (text.isascii() or HALF.search(text) is None):
            text, self._half_thought = whole_pairs(self._half_thought + text)
            if not text:
                return
        self._reasoning.append(text)
        if self._emit is not None:
            self._emit(ReasoningDelta(text))

    def void(self, reason: str) -> None:
        """Take back all text so far: it was not what it seemed to be."""
        self._text.clear()
        if self._emit is not None:
            self._emit(Attempt(number=2, reason=reason))

    def call(
        self,
        index: int | None = None,
        id: str | None = None,
        name: str | None = None,
        arguments: str = "",
        *,
        extra: JsonObject | None = None,
        whole: bool = False,
    ) -> None:
        """Take a piece of a call, or a `whole` one. Blank ids and names are missing ones."""
        # Half a character in an id or a name would be refused by every store and every wire.
        id = _whole(id.strip()) if id else None
        name = _whole(name) if name else None
        call = self._opened(id, None) if whole else self._target(index, id or None, name)
        if name:
            call.name = _joined(call.name, name)
        if arguments:
            call.arguments.append(arguments)
        if extra:
            call.extra |= extra
        self._tell(call, arguments)

    def message(self, stop_reason: StopReason, names: Mapping[str, str] | None = None) -> AssistantMessage:
        """Return the message. Every call has an id that is unique within it.

        `names` gives the real names of tools that go by another on the wire.
        """
        if self._half:
            half, self._half = self._half, ""
            self.text(_whole(half))
        if self._half_thought:
            half, self._half_thought = self._half_thought, ""
            self.reasoning(_whole(half))
        calls = tuple(self._finished(call, names or {}) for call in self._calls)
        return AssistantMessage("".join(self._text), calls, "".join(self._reasoning) or None, stop_reason)

    def _finished(self, call: _OpenCall, names: Mapping[str, str]) -> ToolCall:
        call.id = call.id or new_id()
        name = names.get(call.name, call.name)
        return make_call(call.id, name, "".join(call.arguments), self._lenient)

    def _target(self, index: int | None, id: str | None, name: str | None) -> _OpenCall:
        """Find the call that a piece belongs to, or open one."""
        at_index = self._by_index.get(index) if index is not None else None
        by_id = next((call for call in self._calls if call.id == id), None) if id else None
        if by_id is not None:
            # A known id wins over the index, unless a name at a fresh index says: another call.
            another = name and index is not None and at_index is None and by_id.index is not None
            return self._opened(None, index) if another else by_id
        if at_index is not None:
            if not id:
                return at_index
            if at_index.id is None and not at_index.started:
                at_index.id = id
                return at_index
            # A new id with a name opens a call; without one it goes on, and the first id stays.
            return self._opened(id, index) if name else at_index
        if not id and self._calls and (not name or (index is None and not self._calls[-1].arguments)):
            return self._calls[-1]
        return self._opened(id, index)

    def _opened(self, id: str | None, index: int | None) -> _OpenCall:
        taken = id is not None and any(call.id == id for call in self._calls)
        call = _OpenCall(None if taken else id, index)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _tell(self, call: _OpenCall, arguments: str) -> None:
        # The start is told once the name is known and an id, or an argument, settles the rest:
        # start, deltas and the call itself then carry one id.
        if self._emit is None:
            return
        if not call.started:
            if not call.name or not (call.id or call.arguments):
                return
            call.id = call.id or new_id()
            call.started = True
            self._emit(ToolCallStart(call.id, call.name))
            arguments = "".join(call.arguments)
        if arguments and call.id is not None:
            self._emit(ToolCallDelta(call.id, arguments))


def whole_pairs(text: str) -> tuple[str, str]:
    """Return the text with its surrogate pairs joined, and a first half that is left at its end."""
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    body = text[: len(text) - len(half)]
    return body.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), half


def _whole(text: str) -> str:
    if text.isascii() or HALF.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _joined(name: str, piece: str) -> str:
    """A name may come whole, again, grown, or in pieces."""
    if piece == name:
        return name
    if piece.startswith(name):
        return piece
    return name + piece
