"""One response, put together from its pieces, for every streaming dialect.

Servers disagree on how they cut a call: without an index, with a wrong one, with the id late,
missing, blank or repeated, with the name in halves. The rules here read them all.
"""

from collections.abc import Sequence

from playhead.events import EmitDelta, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from playhead.ids import new_id
from playhead.llm.arguments import make_call
from playhead.types import AssistantMessage, JsonObject, StopReason, ToolCall


class _OpenCall:
    __slots__ = ("arguments", "id", "name", "started")

    def __init__(self, id: str | None) -> None:
        self.id = id
        self.name = ""
        self.arguments: list[str] = []
        self.started = False


class Assembly:
    """Takes the pieces of one response in order; hands deltas on; gives the message at the end."""

    def __init__(self, emit: EmitDelta | None = None) -> None:
        self._emit = emit
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}

    @property
    def empty(self) -> bool:
        """True while nothing of the response has arrived."""
        return not (self._text or self._reasoning or self._calls)

    def text(self, text: str) -> None:
        """Take more of the answer."""
        self._text.append(text)
        if self._emit is not None:
            self._emit(TextDelta(text))

    def reasoning(self, text: str) -> None:
        """Take more of the reasoning."""
        self._reasoning.append(text)
        if self._emit is not None:
            self._emit(ReasoningDelta(text))

    def call(
        self, index: int | None = None, id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Take a piece of a call. Blank ids and names are missing ones."""
        call = self._target(index, id.strip() if id else None, name)
        if name:
            call.name = _joined(call.name, name)
        if arguments:
            call.arguments.append(arguments)
        self._tell(call, arguments)

    def whole_call(self, id: str | None, name: str, arguments: str) -> None:
        """Take a call that arrives in one piece."""
        known = {call.id for call in self._calls}
        call = _OpenCall(id if id and id not in known else new_id())
        call.name = name
        call.arguments.append(arguments)
        self._calls.append(call)
        self._tell(call, arguments)

    def message(
        self, stop_reason: StopReason, provider_metadata: JsonObject | None = None
    ) -> AssistantMessage:
        """Return the message. Every call has an id that is unique within it."""
        return AssistantMessage(
            "".join(self._text),
            self._finished_calls(),
            "".join(self._reasoning) or None,
            stop_reason,
            provider_metadata,
        )

    def _finished_calls(self) -> Sequence[ToolCall]:
        return tuple(
            make_call(call.id or new_id(), call.name, "".join(call.arguments)) for call in self._calls
        )

    def _target(self, index: int | None, id: str | None, name: str | None) -> _OpenCall:
        """Find the call that a piece belongs to, or open one.

        A known id wins over the index. A new id opens a call if a name comes with it or nothing is
        open at its index; else it belongs to the call that is open there (the first id stays).
        """
        if id is not None:
            for call in self._calls:
                if call.id == id:
                    return call
        at_index = self._by_index.get(index) if index is not None else None
        if at_index is None and index is None and self._calls and (id is None and not name):
            return self._calls[-1]
        if at_index is not None:
            if id is None or not name:
                if id is not None and at_index.id is None and not at_index.started:
                    at_index.id = id
                return at_index
            if at_index.id is None and not at_index.started:
                at_index.id = id
                return at_index
        elif index is not None and id is None and not name and self._calls:
            return self._calls[-1]
        call = _OpenCall(id)
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


def _joined(name: str, piece: str) -> str:
    """A name may come whole, again, grown, or in pieces."""
    if piece == name:
        return name
    if piece.startswith(name):
        return piece
    return name + piece
