"""Reading what the Responses API answers, whole or as a stream of events.

Source: https://platform.openai.com/docs/api-reference/responses-streaming. An item (a message, a
call, a thought) is announced, arrives in deltas and is told once more when it is done, and the last
event tells everything again. Servers leave any of these out, so each telling adds what the earlier
ones lack. A stream without its last event was cut, whatever else it sent (openclaw/openclaw#109133).
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from playhead.errors import ProtocolError
from playhead.ids import new_id
from playhead.llm.assembly import Assembly
from playhead.llm.lenient import decode_lenient, text_of
from playhead.llm.openai_responses_errors import KEY, error_in
from playhead.llm.openai_responses_items import Item, kept_items, parts_of
from playhead.types import JsonObject, LLMResult, StopReason, Usage

# https://platform.openai.com/docs/api-reference/responses/object (incomplete_details.reason)
_INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}

_encode = msgspec.json.Encoder().encode


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    model: str | None = None
    output: list[JsonObject] | None = None
    usage: _Usage | None = None
    error: JsonObject | str | None = None
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct):
    type: str = ""
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    item: JsonObject | None = None
    response: _Response | None = None
    error: JsonObject | str | None = None
    code: str | int | None = None
    message: str | None = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_response = msgspec.json.Decoder(_Response).decode


class ResponsesReader:
    """Puts one response together.

    Args:
        assembly: takes the pieces.
        model: the model that was asked; its reasoning goes back to it only.
        server: whom the response comes from; opaque data goes back to the same one only.
        names: the real names of tools that go by another on the wire.
    """

    def __init__(self, assembly: Assembly, model: str, server: str, names: Mapping[str, str]) -> None:
        self._assembly = assembly
        self._asked = self._model = model
        self._server = server
        self._names = names
        self._items: list[Item] = []
        self._by_id: dict[str | None, Item] = {}
        self._by_index: dict[int | None, Item] = {}
        self._call_ids: set[str] = set()
        self._thought: tuple[int, int | None, int | None] | None = None
        self._status: str | None = None
        self._reason: str | None = None
        self._refused = False
        self._usage: _Usage | None = None

    @property
    def empty(self) -> bool:
        return self._assembly.empty

    def take(self, name: str, data: bytes) -> None:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeError):
            if data == b"[DONE]":  # some servers' habit; it says nothing of the response
                return
            event = decode_lenient(data, _Event, "The provider")
        handler = _HANDLERS.get(event.type or name)
        if handler is not None:
            handler(self, event)
        elif event.error is not None:
            raise error_in(event.error)

    def take_body(self, body: bytes) -> None:
        """Take a whole response. Raises `ProtocolError` when there is no output in it."""
        try:
            response = _decode_response(body)
        except (msgspec.DecodeError, UnicodeError):
            response = decode_lenient(body, _Response, "The provider")
        if response.output is None and response.error is None:
            raise ProtocolError("The provider answered without an output: there is no response.")
        self._end(response, response.status or "completed")

    # ------------------------------------------------------------ events

    def take_text(self, event: _Event) -> None:
        if event.delta:
            self._say(self._item(event, "message"), event.delta)

    def take_refusal(self, event: _Event) -> None:
        self._refused = True
        self.take_text(event)

    def take_whole_refusal(self, event: _Event) -> None:
        self._refused = True
        self.take_whole_text(event)

    def take_whole_text(self, event: _Event) -> None:
        text = event.text or event.refusal
        if text:
            item = self._item(event, "message")
            if not item.pieces:
                self._say(item, text)

    def take_arguments(self, event: _Event) -> None:
        if event.delta:
            item = self._item(event, "function_call")
            item.pieces.append(event.delta)
            self._assembly.call(item.place, arguments=event.delta)

    def take_whole_arguments(self, event: _Event) -> None:
        self._complete(self._item(event, "function_call"), event.arguments or "")

    def take_thought(self, event: _Event) -> None:
        if event.delta:
            item = self._item(event, "reasoning")
            self._think(item, event.delta, (item.place, event.summary_index, event.content_index))

    def take_item(self, event: _Event) -> None:
        self._open(event.item or {}, event.output_index)

    def take_whole_item(self, event: _Event) -> None:
        raw = event.item or {}
        event.item_id = event.item_id or text_of(raw.get("id")) or None
        self._finish(self._item(event, str(raw.get("type") or ""), raw), raw)

    def take_model(self, event: _Event) -> None:
        if event.response is not None and event.response.model:
            self._model = event.response.model

    def take_end(self, event: _Event) -> None:
        response = event.response or _Response()
        # apfel#412: the status is right where the event's name is not.
        self._end(response, response.status or event.type.rpartition(".")[2])

    def take_error(self, event: _Event) -> None:
        raise error_in(event.error, event.code, event.message)

    # ------------------------------------------------------------ items

    def _item(self, event: _Event, kind: str, raw: JsonObject | None = None) -> Item:
        """Find the item that an event belongs to, or open one.

        Ids are made anew for each event by some proxies, others give all items one index
        (BerriAI/litellm#36375), so an item must be of the event's kind, too.
        """
        item = self._by_id.get(event.item_id)
        if item is not None and item.kind == kind:
            return item
        item = self._by_index.get(event.output_index)
        if item is not None and item.kind == kind:
            return item
        last = self._items[-1] if self._items else None
        unplaced = item is not None or event.output_index is None
        if unplaced and last is not None and last.kind == kind:
            return last
        return self._open(raw or {"type": kind, "id": event.item_id}, event.output_index)

    def _open(self, raw: JsonObject, index: int | None) -> Item:
        item = Item(len(self._items), raw)
        self._items.append(item)
        if id := text_of(raw.get("id")):
            self._by_id[id] = item
        if index is not None:
            self._by_index[index] = item
        if item.kind == "function_call":
            call_id = text_of(raw.get("call_id")).strip()
            if not call_id or call_id in self._call_ids:
                call_id = new_id()  # one that is told late is not missed: both sides of a call are ours
            self._call_ids.add(call_id)
            self._assembly.call(item.place, call_id, text_of(raw.get("name")) or None)
        return item

    def _say(self, item: Item, text: str) -> None:
        if item.start is None:
            self._begin(item)
        item.pieces.append(text)
        self._assembly.text(text)

    def _begin(self, item: Item) -> None:
        """Begin a message: two of them are two paragraphs."""
        if self._assembly.said:
            self._assembly.text("\n\n")
        item.start = len(self._assembly.said)
        for before in self._items:
            if before is not item and before.start is not None and before.end is None:
                before.end = max(item.start - 2, 0)

    def _think(self, item: Item, text: str, part: tuple[int, int | None, int | None]) -> None:
        if self._thought not in (None, part):
            self._assembly.reasoning("\n\n")
        self._thought = part
        item.pieces.append(text)
        self._assembly.reasoning(text)

    def _complete(self, item: Item, arguments: str) -> None:
        if rest := item.rest(arguments):
            item.pieces.append(rest)
            self._assembly.call(item.place, arguments=rest)

    def _finish(self, item: Item, raw: JsonObject) -> None:
        """Take an item as it is told once more, when it is done or at the end."""
        before, item.raw, item.done = item.raw, raw, True
        if item.kind == "function_call":
            if not before.get("name"):
                self._assembly.call(item.place, name=text_of(raw.get("name")) or None)
            given = raw.get("arguments") or ""
            self._complete(item, given if isinstance(given, str) else _encode(given).decode())
        elif item.kind == "message":
            parts = parts_of(raw.get("content"))
            self._refused = self._refused or any(part.get("type") == "refusal" for part in parts)
            whole = "".join(text_of(part.get("text")) or text_of(part.get("refusal")) for part in parts)
            if rest := item.rest(whole):
                self._say(item, rest)
        elif item.kind == "reasoning" and not item.pieces:
            thoughts = [*parts_of(raw.get("summary")), *parts_of(raw.get("content"))]
            for n, part in enumerate(thoughts):
                if thought := text_of(part.get("text")):
                    self._think(item, thought, (item.place, n, None))

    def _end(self, response: _Response, status: str) -> None:
        self._model = response.model or self._model
        self._usage = response.usage or self._usage
        if status == "failed" or response.error is not None:
            raise error_in(response.error)
        self._status = status
        self._reason = response.incomplete_details.reason if response.incomplete_details else None
        # The nth of a kind is the nth of that kind: ids and indexes are less true than their order.
        queues: dict[str, Iterator[Item]] = {}
        for raw in response.output or ():
            kind = str(raw.get("type") or "")
            queue = queues.setdefault(kind, iter([item for item in self._items if item.kind == kind]))
            self._finish(next(queue, None) or self._open(raw, None), raw)
        for item in self._items:
            self._finish(item, item.raw)

    # ------------------------------------------------------------ the result

    def result(self) -> LLMResult:
        stop = self._stop_reason()
        message = self._assembly.message(stop, self._names)
        kept = self._kept(len(message.content))
        if kept:
            message = msgspec.structs.replace(message, provider_metadata={KEY: kept})
        return LLMResult(message, stop, map_usage(self._usage), "", self._model)

    def _stop_reason(self) -> StopReason:
        if self._status == "incomplete":
            return map_incomplete(self._reason)
        if self._status != "completed":
            return "interrupted"
        if any(item.kind == "function_call" for item in self._items):
            return "tool_calls"
        return "content_filter" if self._refused else "stop"

    def _kept(self, length: int) -> JsonObject:
        """What goes back to this model on this server, in its place among texts and calls."""
        items = kept_items(self._items, length)
        kept: JsonObject = {"items": items} if items else {}
        if self._reason and map_incomplete(self._reason) == "other":
            kept["incompleteReason"] = self._reason
        return {"server": self._server, "model": self._asked, **kept} if kept else {}


_HANDLERS: dict[str, Callable[[ResponsesReader, _Event], None]] = {
    "response.output_text.delta": ResponsesReader.take_text,
    "response.output_text.done": ResponsesReader.take_whole_text,
    "response.refusal.delta": ResponsesReader.take_refusal,
    "response.refusal.done": ResponsesReader.take_whole_refusal,
    "response.function_call_arguments.delta": ResponsesReader.take_arguments,
    "response.function_call_arguments.done": ResponsesReader.take_whole_arguments,
    "response.reasoning_summary_text.delta": ResponsesReader.take_thought,
    "response.reasoning_text.delta": ResponsesReader.take_thought,
    "response.output_item.added": ResponsesReader.take_item,
    "response.output_item.done": ResponsesReader.take_whole_item,
    "response.created": ResponsesReader.take_model,
    "response.completed": ResponsesReader.take_end,
    "response.incomplete": ResponsesReader.take_end,
    "response.failed": ResponsesReader.take_end,
    "error": ResponsesReader.take_error,
}


def map_incomplete(reason: str | None) -> StopReason:
    """Return our word for why a response is incomplete. An unknown one is `other`."""
    return _INCOMPLETE.get(reason or "", "other")


def map_usage(usage: _Usage | None) -> Usage:
    """Return the counts as reported; what was not reported is unknown, and none is below zero."""
    if usage is None:
        return Usage()
    read, made = usage.input_tokens_details or _Details(), usage.output_tokens_details or _Details()
    return Usage(
        _count(usage.input_tokens),
        _count(usage.output_tokens),
        _count(read.cached_tokens),
        _count(made.reasoning_tokens),
        cache_write_tokens=_count(read.cache_write_tokens),
    )


def _count(number: int | None) -> int | None:
    return None if number is None else max(number, 0)
