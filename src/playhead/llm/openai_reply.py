"""Reading what the chat completions API answers, whole or as chunks."""

import logging
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from playhead.encode import encode_result, scrub, total_json
from playhead.errors import ProtocolError
from playhead.llm.assembly import Assembly
from playhead.llm.lenient import decode_lenient
from playhead.llm.openai_chunks import (
    DONE,
    Choice,
    Counts,
    Message,
    Response,
    decode_chunk,
    documents,
    is_text,
    map_usage,
    merged_counts,
)
from playhead.llm.openai_errors import KEY, error_in, other_error
from playhead.llm.think import ThinkSplitter
from playhead.types import JsonObject, LLMResult, StopReason, Usage

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "sensitive": "content_filter",  # Zhipu
    "abort": "interrupted",  # vLLM, SGLang
    "insufficient_system_resource": "interrupted",  # DeepSeek
    "network_error": "interrupted",  # Zhipu
}
# The first of these that is said stays: what comes after a cut answer does not mend it.
_CUT = ("length", "content_filter", "interrupted")
_NO_REASON = ("null", "none", "None")


logger = logging.getLogger("playhead")

_NO_CHOICE = Choice()
_CALL_FIELDS = frozenset(("index", "id", "type", "function"))


class OpenAIReader:
    """Puts one response together.

    Args:
        assembly: takes the pieces.
        model: the model that was asked, for servers that do not name theirs.
        server: whom the response comes from; opaque data goes back to the same one only.
        names: the real names of tools that go by another on the wire.
        think_prefilled: the text begins inside `<think>`.
        cap: the output limit that was asked for, in tokens.
    """

    def __init__(
        self,
        assembly: Assembly,
        model: str,
        server: str,
        names: Mapping[str, str],
        think_prefilled: bool = False,
        cap: int | None = None,
    ) -> None:
        self._assembly = assembly
        self._model = model
        self.server = server
        self._names = names
        self._think = ThinkSplitter(think_prefilled)
        self._cap = cap
        self._index: int | None = None
        self._finish: str | None = None
        self._done = False
        self._over = False
        self._usage: Counts | None = None
        self._called = False
        self._reasoning_field = ""
        self._details: list[JsonObject] = []
        self._unknown_parts: list[JsonObject] = []

    @property
    def empty(self) -> bool:
        return self._assembly.empty

    @property
    def ended(self) -> bool:
        """Has the end been said, so that nothing but counts is to come?"""
        return self._finish is not None or self._over

    def take(self, name: str, data: bytes) -> None:
        if self._over:
            return  # whatever comes after `[DONE]` is not of this answer
        try:
            response = decode_chunk(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            for line in documents(data):
                self._take_odd(line)
            return
        if name == "error" and not response.error:
            raise error_in(other_error(data, True) or data.decode("utf-8", "replace"))
        if self._think.plain and response.choices and not response.error and response.usage is None:
            # Nearly every chunk of a stream is a bit of text and nothing else.
            choice = response.choices[0]
            delta = choice.delta
            if delta is not None and choice.index == self._index and is_text(choice, delta):
                self._model = response.model or self._model
                self._assembly.text(delta.content)
                return
        self._take_response(response, data)

    def _take_odd(self, data: bytes) -> None:
        """Take what the fast decoder refused."""
        if data.strip() in DONE:
            self._done = True
            # Before anything was said it ends nothing.
            self._over = self._finish is not None or not self.empty
        elif not self._over:
            self._take_response(decode_lenient(data, Response, "The provider"), data)

    def take_body(self, body: bytes) -> None:
        """Take a whole response. Raises `ProtocolError` when there is no completion in it."""
        self.take("message", body)
        if self._finish is None and self.empty and not self._done:
            self._done = True
            raise ProtocolError("The provider answered without a choice: there is no completion.")

    def _take_response(self, response: Response, data: bytes) -> None:
        if response.error:
            raise error_in(response.error)
        if response.usage is not None:
            self._usage = merged_counts(self._usage, response.usage)
        if response.model:
            self._model = response.model
        if not response.choices:
            if response.choices is None and response.usage is None and b"error" in data:
                error = other_error(data)
                if error is not None:
                    raise error_in(error)
            return
        choice = response.choices[0]
        if choice.index != self._index:
            if self._index is not None and choice.index is not None:
                choice = next((c for c in response.choices if c.index == self._index), _NO_CHOICE)
            else:
                self._index = choice.index if self._index is None else self._index
        if choice.message is not None and (choice.delta is None or _blank(choice.delta)):
            self._take_whole(choice.message)
        elif choice.delta is not None:
            self._take_message(choice.delta)
        if choice.finish_reason:
            self._take_finish(choice.finish_reason)

    def _take_finish(self, reason: str) -> None:
        if reason == "error":  # OpenRouter's word; the error itself may be missing
            raise error_in("The answer ended with an error.")
        if reason in _NO_REASON or (self._finish and map_finish_reason(self._finish) in _CUT):
            return
        self._finish = reason

    def _take_whole(self, message: Message) -> None:
        """Take a message as a whole. After deltas it says again what they said, or more."""
        self._done = True
        said = self._assembly.said
        if said and isinstance(message.content, str) and message.content.startswith(said):
            message.content = message.content[len(said) :]
        if not self.empty:
            message.reasoning_content = message.reasoning = message.reasoning_details = None
        if self._assembly.has_calls:
            message.tool_calls = message.function_call = None
        self._take_message(message, True)

    def _take_message(self, message: Message, whole: bool = False) -> None:
        reasoning = message.reasoning_content or message.reasoning
        if reasoning:
            self._reasoning_field = "reasoning_content" if message.reasoning_content else "reasoning"
            self._assembly.reasoning(reasoning)
        if message.reasoning_details:
            self._details += message.reasoning_details
            if not reasoning:
                self._assembly.reasoning(_thought(message.reasoning_details))
        content = message.content
        if content:
            if isinstance(content, str):
                self._take_text(content)
            else:
                self._take_parts(content if isinstance(content, list) else [content])
        if message.refusal:
            self._take_text(message.refusal)
        if message.tool_calls:
            for piece in message.tool_calls:
                self._take_call(piece, whole)
            self._called = True
        elif message.function_call and not self._called:
            # The older form; some servers send both.
            self._take_call({"index": 0, "function": message.function_call}, whole)

    def _take_text(self, text: str) -> None:
        think = self._think
        if think.plain and "<" not in text:
            self._assembly.text(text)
            return
        reasoning, text, orphan = think.feed(text)
        if orphan:
            before = self._assembly.said + reasoning
            if "`" in before or "<think>" in before:  # a text about tags
                self._assembly.text(f"{reasoning}</think>{text}")
                return
            self._assembly.void("a closing think tag")
            reasoning = before
        if reasoning:
            self._assembly.reasoning(reasoning)
        if text:
            self._assembly.text(text)

    def _take_parts(self, parts: list[Any]) -> None:
        for part in parts:
            if isinstance(part, str):
                part = {"text": part}
            if not isinstance(part, dict):
                continue
            kind, text, thinking = part.get("type"), part.get("text"), part.get("thinking")
            if kind in ("text", "output_text", None) and isinstance(text, str):
                if text:
                    self._take_text(text)
            elif kind in ("thinking", "reasoning"):
                self._assembly.reasoning(_thought(thinking if thinking is not None else text))
            else:
                self._unknown_parts.append(part)

    def _take_call(self, piece: JsonObject, whole: bool) -> None:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        id, name, raw = piece.get("id"), function.get("name"), function.get("arguments")
        if not isinstance(id, str):
            id = str(id) if isinstance(id, int) else None
        if not isinstance(name, str):
            name = None
        arguments = raw if isinstance(raw, str) else _encoded(raw) if raw else ""
        if not (id or name or arguments) and (whole or not self._assembly.has_calls):
            return  # nothing to open a call for
        known = piece.keys() <= _CALL_FIELDS
        index = piece.get("index")
        self._assembly.call(
            None if whole else index if type(index) is int else _index(index),
            id,
            name,
            arguments,
            extra=None if known else {k: v for k, v in piece.items() if k not in _CALL_FIELDS},
            whole=whole,
        )

    def result(self) -> LLMResult:
        reasoning, text = self._think.finish()
        if reasoning:
            self._assembly.reasoning(reasoning)
        if text:
            self._assembly.text(text)
        usage = map_usage(self._usage)
        warn_of_full_context(usage, self._model, self.server)
        message = self._assembly.message(self._stop_reason(usage), self._names)
        stop = message.stop_reason or "other"
        kept = self._kept()
        if kept:
            message = msgspec.structs.replace(message, provider_metadata={KEY: _storable(kept)})
        return LLMResult(message, stop, usage, "", scrub(self._model))

    def _stop_reason(self, usage: Usage) -> StopReason:
        if self._finish is None:
            return "stop" if self._done else "interrupted"
        stop = map_finish_reason(self._finish)
        # At the limit to the token, a call may be half of what was meant, whatever the label.
        at_cap = self._cap is not None and (usage.output_tokens or 0) >= self._cap
        return "length" if at_cap and self._assembly.has_calls and stop not in _CUT else stop

    def _kept(self) -> JsonObject:
        """What this server may want back."""
        extras = self._assembly.extras
        other = self._finish and map_finish_reason(self._finish) == "other"
        if not (extras or self._reasoning_field or self._details or self._unknown_parts or other):
            return {}
        kept: JsonObject = {"server": self.server}
        if self._reasoning_field:
            kept["reasoningField"] = self._reasoning_field
        if self._details:
            kept["reasoningDetails"] = self._details
        if extras:
            kept["calls"] = extras
        if self._unknown_parts:
            kept["parts"] = self._unknown_parts
        if other:
            kept["finishReason"] = self._finish
        return kept


def warn_of_full_context(usage: Usage, model: str, server: str) -> None:
    """Some servers cut a long history in silence (ralphgrewe/TradingAgents#168: Ollama's num_ctx)."""
    total = (usage.input_tokens or 0) + (usage.output_tokens or 0)
    if usage.input_tokens and total >= 2048 and total.bit_count() == 1:
        text = "%s of %s used exactly %s tokens: its context is full, and it may have cut the history."
        logger.warning(text, model, server, f"{total:,}")


def map_finish_reason(reason: str) -> StopReason:
    """Return our word for the API's. An unknown one is `other`."""
    return _STOP_REASONS.get(reason) or _STOP_REASONS.get(reason.lower(), "other")


def _thought(value: Any) -> str:
    if isinstance(value, list):
        return "".join(_thought(part.get("text") if isinstance(part, dict) else part) for part in value)
    return value if isinstance(value, str) else ""


def _blank(message: Message) -> bool:
    return not any(getattr(message, name) for name in Message.__struct_fields__)


def _index(value: Any) -> int | None:
    """The index of a call, also as text."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else None


def _encoded(arguments: Any) -> str:
    """Arguments that came as an object, as the text that they should have been."""
    return total_json(arguments).decode()


def _storable(kept: JsonObject) -> JsonObject:
    """What is kept, without the half characters that no store takes."""
    try:
        msgspec.json.encode(kept)
    except UnicodeError:
        kept = encode_result(kept, sys.maxsize).value
    return kept
