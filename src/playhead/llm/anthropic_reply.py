"""Reading what the Messages API answers, whole or as a stream of events.

Source: https://docs.anthropic.com/en/api/messages-streaming. A whole answer is read as the events
that it could have been, so there is one way to read.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from playhead.errors import LLMError, ProtocolError
from playhead.llm.anthropic_blocks import Block, worth_keeping
from playhead.llm.assembly import Assembly
from playhead.llm.call import error_for
from playhead.llm.lenient import decode_lenient, text_of
from playhead.types import AssistantMessage, JsonObject, LLMResult, StopReason, Usage

KEY = "anthropic"
"""The dialect, under which opaque data and wire bytes are kept."""

# https://docs.anthropic.com/en/api/handling-stop-reasons. `pause_turn` is `other`: the answer is to
# be gone on with, and it is sent back as it came.
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_encode = msgspec.json.Encoder().encode


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    type: str = ""
    content: list[JsonObject] | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    error: JsonObject | str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int | None = None
    content_block: JsonObject | None = None
    delta: _Delta | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: JsonObject | str | None = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_message = msgspec.json.Decoder(_Message).decode


class AnthropicReader:
    """Puts one response together.

    Args:
        assembly: takes the pieces.
        model: the model that was asked; its thinking goes back to it only.
        server: whom the response comes from; opaque data goes back to the same one only.
        names: the real names of tools that go by another on the wire.
    """

    def __init__(self, assembly: Assembly, model: str, server: str, names: Mapping[str, str]) -> None:
        self._assembly = assembly
        self._asked = self._model = model
        self._server = server
        self._names = names
        self._blocks: list[Block] = []
        self._by_index: dict[int, Block] = {}
        self._separate = ""
        self._stop: str | None = None
        self._ended = False
        self._usage = _Usage()

    @property
    def empty(self) -> bool:
        return self._assembly.empty and not self._blocks

    @property
    def ended(self) -> bool:
        """Has the end been said?"""
        return self._ended

    def take(self, name: str, data: bytes) -> None:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeError):
            if data == b"[DONE]":
                self._ended = True
                return
            event = decode_lenient(data, _Event, "Anthropic")
        kind = event.type or name
        if kind == "content_block_delta":
            if event.delta is not None:
                self._take_delta(event.index, event.delta)
        elif kind == "content_block_start":
            self._start(event.index, event.content_block or {})
        elif kind == "content_block_stop":
            block = self._block(event.index)
            if block is not None:
                self._finish(block)
        elif kind == "message_delta":
            self._stop = (event.delta.stop_reason if event.delta else None) or self._stop
            self._count(event.usage)
        elif kind == "message_start":
            if event.message is not None:
                self._model = event.message.model or self._model
                self._count(event.message.usage)
        elif kind == "message_stop":
            self._ended = True
        elif kind == "error" or event.error is not None:
            raise error_in(event.error)
        # `ping` and whatever will be invented: nothing to do.

    def take_body(self, body: bytes) -> None:
        """Take a whole response. Raises `ProtocolError` when there is no message in it."""
        try:
            message = _decode_message(body)
        except (msgspec.DecodeError, UnicodeError):
            message = decode_lenient(body, _Message, "Anthropic")
        if message.type == "error" or message.error is not None:
            raise error_in(message.error)
        if message.content is None:
            raise ProtocolError("Anthropic answered without content: there is no completion.")
        for raw in message.content:
            self._finish(self._start(None, raw))
        self._model = message.model or self._model
        self._count(message.usage)
        self._stop = message.stop_reason
        self._ended = True

    # ------------------------------------------------------------ blocks

    def _start(self, index: int | None, raw: JsonObject) -> Block:
        block = Block(len(self._blocks), raw)
        before = self._blocks[-1] if self._blocks else None
        if before is not None and before.end is None:
            before.end = len(self._assembly.said)
        if block.kind != "text" and self._assembly.said:
            self._separate = "\n\n"  # texts with something between them are two
        self._blocks.append(block)
        if index is not None:
            self._by_index[index] = block
        if block.kind == "tool_use":
            id, name = raw.get("id"), raw.get("name")
            known = id if isinstance(id, str) else None
            self._assembly.call(block.place, known, name if isinstance(name, str) else None)
        elif block.kind == "text":
            self._take_text(block, text_of(raw.get("text")))
        elif block.kind == "thinking":
            self._take_thinking(block, text_of(raw.get("thinking")))
        return block

    def _block(self, index: int | None) -> Block | None:
        """The block of an index; without one, the last."""
        known = self._by_index.get(index) if index is not None else None
        if known is None and self._blocks and (index is None or not self._by_index):
            return self._blocks[-1]
        return known

    def _take_delta(self, index: int | None, delta: _Delta) -> None:
        block = self._by_index.get(index) if index is not None else None
        if block is None:
            block = self._block(index) or self._start(index, {"type": _KIND_OF.get(delta.type, "")})
        if delta.text:
            self._take_text(block, delta.text)
        elif delta.partial_json:
            block.json.append(delta.partial_json)
            if block.kind == "tool_use":
                self._assembly.call(block.place, arguments=delta.partial_json)
        elif delta.thinking:
            self._take_thinking(block, delta.thinking)
        elif delta.signature:
            block.sign(delta.signature)

    def _take_text(self, block: Block, text: str) -> None:
        if block.start is None:
            # The API sends blank blocks, and refuses to get them back.
            block.held += text
            text = block.held
            if not text or text.isspace():
                return
            if self._separate:
                self._assembly.text(self._separate)
                self._separate = ""
            block.start = len(self._assembly.said)
        self._assembly.text(text)

    def _take_thinking(self, block: Block, text: str) -> None:
        if not text:
            return
        if not block.thinking and any(other.thinking for other in self._blocks):
            self._assembly.reasoning("\n\n")
        block.thinking.append(text)
        self._assembly.reasoning(text)

    def _finish(self, block: Block) -> None:
        if block.complete:
            return
        block.complete = True
        if block.end is None:
            block.end = len(self._assembly.said)
        if block.kind == "tool_use" and not block.json and block.raw.get("input"):
            given = block.raw["input"]
            self._assembly.call(
                block.place, arguments=given if isinstance(given, str) else _encode(given).decode()
            )

    def _count(self, usage: _Usage | None) -> None:
        # Counts are cumulative: the last one wins. A zero is also how servers leave a count out.
        if usage is None:
            return
        for name in _Usage.__struct_fields__:
            value = getattr(usage, name)
            if value or (value is not None and getattr(self._usage, name) is None):
                setattr(self._usage, name, value)

    # ------------------------------------------------------------ the result

    def result(self) -> LLMResult:
        if self._stop is not None:
            stop = map_stop_reason(self._stop)
        else:
            stop = "stop" if self._ended else "interrupted"
        if stop != "interrupted":
            for block in self._blocks:  # some servers leave the ends of blocks out
                self._finish(block)
        message = self._assembly.message(stop, self._names)
        stop = message.stop_reason or stop
        if stop == "tool_calls" and not message.tool_calls:
            stop = "stop"
            message = replace(message, stop_reason=stop)
        kept = self._kept(message)
        if kept:
            message = replace(message, provider_metadata={KEY: kept})
        return LLMResult(message, stop, map_usage(self._usage), "", self._model)

    def _kept(self, message: AssistantMessage) -> JsonObject:
        """What goes back to this model on this server, in its place among texts and calls."""
        length = len(message.content)
        blocks = [wire for block in self._blocks if (wire := block.kept(length)) is not None]
        kept: JsonObject = {}
        if worth_keeping(blocks):
            kept["blocks"] = blocks
        if self._stop and map_stop_reason(self._stop) == "other":
            kept["stopReason"] = self._stop
        return {"server": self._server, "model": self._asked, **kept} if kept else {}


_KIND_OF = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}


def map_stop_reason(reason: str) -> StopReason:
    """Return our word for the API's. An unknown one is `other`."""
    return _STOP_REASONS.get(reason, "other")


def map_usage(usage: _Usage) -> Usage:
    """Return the counts: the API counts what was read from and written to the cache apart."""
    read, written = _count(usage.cache_read_input_tokens), _count(usage.cache_creation_input_tokens)
    known = [part for part in (_count(usage.input_tokens), read, written) if part is not None]
    details = usage.output_tokens_details
    thought = _count(details.thinking_tokens if details else None)
    prompt = sum(known) if known else None
    return Usage(prompt, _count(usage.output_tokens), read, thought, cache_write_tokens=written)


def _count(number: int | None) -> int | None:
    return None if number is None else max(number, 0)


# ---------------------------------------------------------------- errors

# https://docs.anthropic.com/en/api/errors
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def error_in(error: JsonObject | str | None) -> LLMError:
    """Return the error that came inside a response of status 200."""
    fields = error if isinstance(error, dict) else {}
    code = str(fields.get("code"))
    status = _STATUS.get(str(fields.get("type")), int(code) if code.isdigit() else 500)
    return error_of(status, error, None)


def error_of(status: int, error: JsonObject | str | None, retry_after: float | None) -> LLMError:
    """Return the error of a refusal; its text holds nothing of the provider's."""
    fields = error if isinstance(error, dict) else {}
    said = error if isinstance(error, str) else str(fields.get("message") or "")
    text = said.lower()
    kind = next((kind for kind, words in _KINDS if any(word in text for word in words)), "")
    mapped = error_for(KEY, status, kind, retry_after, said)
    if mapped.code == "bad_request":
        mapped.repair = next((change for word, change in _REPAIRS if word in text), None)
    return mapped


_KINDS = (
    ("context", ("prompt is too long", "exceed context limit", "context window")),
    ("quota", ("credit balance",)),
    ("filter", ("content filtering policy",)),
)
# What the adapter may leave out from then on. Newer models take no temperature; thinking that was
# made elsewhere, or that a proxy touched, is refused for ever, and a history is better without it. Older
# models, and some servers, have no `output_config`.
# https://platform.claude.com/docs/en/about-claude/models/migration-guide,
# anthropics/anthropic-sdk-python#1598
_REPAIRS: tuple[tuple[str, JsonObject], ...] = (
    ("output_config", {"native_output": False}),
    ("output format", {"native_output": False}),
    ("structured output", {"native_output": False}),
    ("temperature", {"send_temperature": False}),
    ("`signature`", {"send_thinking": False}),
    ("cannot be modified", {"send_thinking": False}),
    ("expected `thinking`", {"send_thinking": False, "thinking": None}),
)
