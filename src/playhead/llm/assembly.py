"""One response, put together from its pieces, for every streaming dialect.

Servers disagree on how they cut a call: without an index, with a wrong one, with the id late,
missing, blank or repeated, with the name in halves. The rules here read them all.
"""

import re
from collections.abc import Mapping

from playhead.events import Attempt, EmitDelta, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from playhead.ids import new_id
from playhead.llm.arguments import breaks_off, is_complete, make_call
from playhead.types import AssistantMessage, JsonObject, StopReason, ToolCall

# Half of a surrogate pair: only the lenient decoder lets one through.
HALF = re.compile("[\ud800-\udfff]")


class _OpenCall:
    """A call in the making. `given` is the server's id, which another call of the message may have, too."""

    __slots__ = ("arguments", "extra", "given", "half", "id", "index", "name", "started")

    def __init__(self, id: str | None, index: int | None) -> None:
        self.id: str | None = None
        self.given = id
        self.index = index
        self.name = ""
        self.arguments: list[str] = []
        self.extra: JsonObject = {}
        self.half = ""
        self.started = False

    @property
    def raw(self) -> str:
        return "".join(self.arguments)

    def ended_before(self, name: str | None, arguments: str) -> bool:
        """Does a piece with a name begin a further call, though it goes by the id or index of this one?

        It does once the arguments are whole, if it brings an object of its own or another name. That
        is asked of the text only where it may be so: servers repeat the name in every piece.
        """
        if not (name and self.name and self.arguments) or self.repeats(name, arguments):
            return False
        opens = arguments.lstrip()[:1] == "{" if arguments else not name.startswith(self.name)
        return opens and self.arguments[-1].rstrip()[-1:] == "}" and is_complete(self.raw)

    def repeats(self, name: str | None, arguments: str) -> bool:
        """Is this the whole call once more? Some servers send it again at its end."""
        same = name == self.name and arguments[:1] == "{" and arguments[-1:] == "}"
        return same and arguments == self.raw and is_complete(arguments)


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
        self._by_id: dict[str, _OpenCall] = {}
        self._ids: set[str] = set()

    @property
    def empty(self) -> bool:
        """True while nothing of the response has arrived."""
        return not (self._text or self._reasoning or self._calls or self._half)

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def said(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def extras(self) -> list[JsonObject]:
        """Fields of calls that only their provider knows: of each call, or nothing where none has any."""
        return [call.extra for call in self._calls] if any(call.extra for call in self._calls) else []

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
        """Take back all text so far: it was not what it seemed to be. What else was told is told again."""
        self._text.clear()
        if self._emit is None:
            return
        self._emit(Attempt(number=2, reason=reason))
        if self._reasoning:
            self._emit(ReasoningDelta("".join(self._reasoning)))
        for call in self._calls:
            if call.started:
                call.started, call.half = False, ""
                self._tell(call, "")

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
        id = (_whole(id.strip()) or None) if id else None
        name = (_whole(name.strip()) or None) if name else None
        # Most pieces hold an index and more of the arguments, and nothing else.
        call = None if id or name or index is None else self._by_index.get(index)
        if call is None:
            call = self._opened(id, None) if whole else self._target(index, id, name, arguments)
        if name:
            if call.repeats(name, arguments):
                arguments = ""
            call.name = _joined(call.name, name)
        if arguments:
            call.arguments.append(arguments)
        if extra:
            call.extra |= extra
        self._tell(call, arguments)

    def message(self, stop_reason: StopReason, names: Mapping[str, str] | None = None) -> AssistantMessage:
        """Return the message. Every call has an id that is unique within it.

        `names` gives the real names of tools that go by another on the wire. Arguments that break
        off are the output limit's work, whatever the server calls it: `stop_reason` is then `length`.
        """
        if self._half:
            half, self._half = self._half, ""
            self.text(_whole(half))
        if self._half_thought:
            half, self._half_thought = self._half_thought, ""
            self.reasoning(_whole(half))
        calls = tuple(self._finished(call, names or {}) for call in self._calls)
        if stop_reason in ("stop", "tool_calls", "other"):
            broken = (made for call, made in zip(calls, self._calls, strict=True) if call.error)
            if any(breaks_off(call.raw) for call in broken):
                stop_reason = "length"
        return AssistantMessage("".join(self._text), calls, "".join(self._reasoning) or None, stop_reason)

    def _finished(self, call: _OpenCall, names: Mapping[str, str]) -> ToolCall:
        if call.id is None:
            self._name(call)
        if not call.started:
            self._tell(call, "")
        if call.half:
            half, call.half = call.half, ""
            self._tell(call, _whole(half))
        assert call.id is not None
        return make_call(call.id, names.get(call.name, call.name), call.raw, self._lenient)

    def _target(self, index: int | None, id: str | None, name: str | None, arguments: str) -> _OpenCall:
        """Find the call that a piece belongs to, or open one."""
        at_index = self._by_index.get(index) if index is not None else None
        if id is None:
            return self._target_without_id(at_index, index, name, arguments)
        same = at_index is not None and at_index.given == id
        by_id = at_index if same else self._by_id.get(id)
        if by_id is not None:
            # A known id wins over the index, unless a name at a fresh index says: another call.
            another = name and index is not None and at_index is None and by_id.index is not None
            return self._opened(id, index) if another or by_id.ended_before(name, arguments) else by_id
        if at_index is None:
            return self._opened(id, index)
        if at_index.given is None and not at_index.ended_before(name, arguments):
            at_index.given = id
            self._by_id[id] = at_index
            if not at_index.started:
                self._name(at_index)
            return at_index
        # A new id with a name opens a call; without one it goes on, and the first id stays.
        return self._opened(id, index) if name else at_index

    def _target_without_id(
        self, at_index: _OpenCall | None, index: int | None, name: str | None, arguments: str
    ) -> _OpenCall:
        if at_index is not None:
            # Some servers give every call the index 0.
            return self._opened(None, index) if at_index.ended_before(name, arguments) else at_index
        last = self._calls[-1] if self._calls else None
        if last is None or (name and index is not None):
            return self._opened(None, index)
        same = not (name and last.name and last.arguments) or name == last.name
        another = last.ended_before(name, arguments) or last.repeats(name, arguments)
        return last if same and not another else self._opened(None, index)

    def _opened(self, id: str | None, index: int | None) -> _OpenCall:
        call = _OpenCall(id, index)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if id is not None:
            self._by_id[id] = call
            if id not in self._ids:
                self._name(call)
        return call

    def _name(self, call: _OpenCall) -> None:
        """Give the call its id: the server's, unless that is missing or taken."""
        given = call.given
        call.id = new_id() if given is None or given in self._ids else given
        self._ids.add(call.id)

    def _tell(self, call: _OpenCall, arguments: str) -> None:
        # The start is told once the name is known and an id, or an argument, settles the rest:
        # start, deltas and the call itself then carry one id.
        if self._emit is None:
            return
        if not call.started:
            if not call.name or not (call.id or call.arguments):
                return
            if call.id is None:
                self._name(call)
            assert call.id is not None
            call.started = True
            self._emit(ToolCallStart(call.id, call.name))
            arguments = call.raw
        if call.half or not (arguments.isascii() or HALF.search(arguments) is None):
            arguments, call.half = whole_pairs(call.half + arguments)
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
