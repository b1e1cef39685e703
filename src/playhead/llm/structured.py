"""An answer in the form of a JSON Schema, by the way that an API takes: the one place for all of them.

An adapter says which way (`OutputWay`) and puts the schema into its own field where there is one. The
other ways are made here: the schema in the instructions, and a tool whose arguments are the answer.
Its call is text from here on, whole or streamed, so nobody above ever sees that tool.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from playhead.events import Attempt, EmitDelta, LLMDelta, TextDelta, ToolCallDelta, ToolCallStart
from playhead.llm.stand_ins import prepared
from playhead.types import LLMRequest, LLMResult, ToolSchema

OutputForm = Literal["json_schema", "json_object", "tool", "prompt"]
"""By the API's field for a schema, by its field for JSON of any kind, by a tool, by instructions alone."""

FINAL_OUTPUT = "final_output"
"""The name of the tool; underscores are added where the application has one of that name."""

_ABOUT = "Gives the final answer. Call it once, when all else is done, instead of answering in text."
_TOLD = (
    "Your final answer has to be one JSON object that fits the JSON Schema below, with no other text around "
    "it and no code fence.\n{schema}"
)
_encode = msgspec.json.Encoder().encode


class OutputWay(NamedTuple):
    """How an API is asked for a form. `told` puts the schema into the instructions besides.

    That is for servers that hold the model to a schema without showing it.
    """

    form: OutputForm
    told: bool = False


class _Made(NamedTuple):
    """What a request needs, made once for a run."""

    way: OutputWay
    told: str
    tools: Sequence[ToolSchema]
    name: str


class Shaped:
    """A request with a schema, as the API is asked, and the way back.

    Attributes:
        request: what the adapter is given.
        emit: takes the deltas of the answer.

    Args:
        request: the request as the loop made it.
        emit: who reads the deltas, if anybody does.
        choose: the adapter's choice of a way.
        whose: the adapter itself; a request may go to one after the other.
    """

    def __init__(
        self,
        request: LLMRequest,
        emit: EmitDelta | None,
        choose: Callable[[LLMRequest], OutputWay],
        whose: object,
    ) -> None:
        self.request, self.emit = request, emit
        self._text: _ToolText | None = None
        choice = request.tool_choice
        if request.tools and choice not in (None, "auto", "none"):
            # A call is demanded: what comes is not the answer yet.
            self.request = replace(request, output_schema=None)
            return
        made = prepared(request, "structured", whose, lambda: _made(request, choose(request)))
        changes: dict[str, Any] = {}
        if made.told:
            changes["system"] = f"{request.system}\n\n{made.told}" if request.system else made.told
        if made.way.form == "tool":
            self._text = _ToolText(made.name, emit)
            self.emit = self._text.take
            changes["tools"] = made.tools
            if choice == "none" or not request.tools:
                changes["tool_choice"] = made.name
        if made.way.form in ("tool", "prompt"):
            changes["output_schema"] = None
        self.request = replace(request, **changes)

    def result(self, result: LLMResult) -> LLMResult:
        """Return the answer with the call of the tool as its text."""
        return self._text.result(result) if self._text is not None else result


def _made(request: LLMRequest, way: OutputWay) -> _Made:
    schema = request.output_schema or {}
    name = FINAL_OUTPUT
    while any(tool.name == name for tool in request.tools):
        name += "_"
    told = way.told or way.form in ("json_object", "prompt")
    return _Made(
        way,
        _TOLD.format(schema=_encode(schema).decode()) if told else "",
        [*request.tools, ToolSchema(name, _ABOUT, (), schema)],
        name,
    )


class _ToolText:
    """Makes text of the calls of one tool, as they come. Text before them stays before them."""

    def __init__(self, name: str, emit: EmitDelta | None) -> None:
        self._name = name
        self._emit = emit
        self._pieces: list[str] = []
        self._open: set[str] = set()
        self._given: set[str] = set()

    def take(self, delta: LLMDelta) -> None:
        if isinstance(delta, ToolCallStart) and delta.name == self._name:
            self._open.add(delta.call_id)
            return
        if isinstance(delta, ToolCallDelta) and delta.call_id in self._open:
            self._show(delta.call_id, delta.text)
            return
        if isinstance(delta, TextDelta):
            self._pieces.append(delta.text)
        elif isinstance(delta, Attempt) and delta.number > 1:
            self._pieces.clear()  # what was said before is void
        if self._emit is not None:
            self._emit(delta)

    def _show(self, call_id: str, text: str) -> None:
        if call_id not in self._given:
            self._given.add(call_id)
            if self._pieces:
                text = f"\n\n{text}"
        self._pieces.append(text)
        if self._emit is not None:
            self._emit(TextDelta(text))

    def result(self, result: LLMResult) -> LLMResult:
        message = result.message
        mine = [call for call in message.tool_calls if call.name == self._name]
        for call in mine:
            if call.id not in self._given:  # there was nothing of it to show: it has no arguments
                self._show(call.id, _encode(call.args).decode())
        if not mine:
            return result
        others = tuple(call for call in message.tool_calls if call.name != self._name)
        stop = "stop" if result.stop_reason == "tool_calls" and not others else result.stop_reason
        content = "".join(self._pieces)
        message = replace(message, content=content, tool_calls=others, stop_reason=stop)
        return replace(result, message=message, stop_reason=stop)
