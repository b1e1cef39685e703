"""Reading what the chat completions API answers, whole or as chunks."""

from collections.abc import Mapping
from typing import Any

import msgspec

from playhead.errors import LLMError, ProtocolError
from playhead.llm.assembly import Assembly
from playhead.llm.call import error_for
from playhead.llm.lenient import decode_lenient
from playhead.llm.think import ThinkSplitter
from playhead.types import JsonObject, LLMResult, StopReason, Usage

KEY = "openai-compatible"
"""The dialect, under which opaque data and wire bytes are kept."""

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class _Message(msgspec.Struct):
    content: str | list[JsonObject] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[JsonObject] | None = None
    # As they come: servers add fields to a call that they want back.
    tool_calls: list[JsonObject] | None = None
    function_call: JsonObject | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Response(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: JsonObject | str | None = None
    model: str | None = None


_decode = msgspec.json.Decoder(_Response).decode


class OpenAIReader:
    """Puts one response together.

    Args:
        assembly: takes the pieces.
        model: the model that was asked, for servers that do not name theirs.
        server: whom the response comes from; opaque data goes back to the same one only.
        names: the real names of tools that go by another on the wire.
        think_prefilled: the text begins inside `<think>`.
    """

    def __init__(
        self,
        assembly: Assembly,
        model: str,
        server: str,
        names: Mapping[str, str],
        think_prefilled: bool = False,
    ) -> None:
        self._assembly = assembly
        self._model = model
        self.server = server
        self._names = names
        self._think = ThinkSplitter(think_prefilled)
        self._finish: str | None = None
        self._done = False
        self._usage: _Usage | None = None
        self._reasoning_field = ""
        self._details: list[JsonObject] = []
        self._unknown_parts: list[JsonObject] = []

    @property
    def empty(self) -> bool:
        return self._assembly.empty

    def take(self, name: str, data: bytes) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        try:
            response = _decode(data)
        except (msgspec.DecodeError, UnicodeError):
            response = decode_lenient(data, _Response, "The provider")
        self.take_response(response)

    def take_body(self, body: bytes) -> None:
        """Take a whole response. Raises `ProtocolError` when there is no completion in it."""
        self.take("message", body)
        if self._finish is None and self.empty and not self._done:
            self._done = True
            raise ProtocolError("The provider answered without a choice: there is no completion.")

    def take_response(self, response: _Response) -> None:
        if response.error is not None:
            raise error_in(response.error)
        if response.usage is not None:
            self._usage = response.usage
        if response.model:
            self._model = response.model
        if not response.choices:
            return
        choice = response.choices[0]
        if choice.delta is not None:
            self._take_message(choice.delta, whole=False)
        elif choice.message is not None:
            self._take_message(choice.message, whole=True)
            self._done = True
        if choice.finish_reason:
            self._finish = choice.finish_reason

    def _take_message(self, message: _Message, whole: bool) -> None:
        reasoning = message.reasoning_content or message.reasoning
        if reasoning:
            self._reasoning_field = "reasoning_content" if message.reasoning_content else "reasoning"
            self._assembly.reasoning(reasoning)
        if message.reasoning_details:
            self._details += message.reasoning_details
        content = message.content
        if isinstance(content, str):
            if content:
                self._take_text(content)
        elif content:
            self._take_parts(content)
        for piece in message.tool_calls or ():
            self._take_call(piece, whole)
        if message.function_call is not None:
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

    def _take_parts(self, parts: list[JsonObject]) -> None:
        for part in parts:
            text, thinking = part.get("text"), part.get("thinking")
            if part.get("type") == "text" and isinstance(text, str):
                self._take_text(text)
            elif part.get("type") in ("thinking", "reasoning"):
                self._assembly.reasoning(_thought(thinking if thinking is not None else text))
            else:
                self._unknown_parts.append(part)

    def _take_call(self, piece: JsonObject, whole: bool) -> None:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        id = piece.get("id")
        name = function.get("name")
        raw = function.get("arguments")
        arguments = raw if isinstance(raw, str) else msgspec.json.encode(raw).decode() if raw else ""
        extra = {k: v for k, v in piece.items() if k not in ("index", "id", "type", "function")}
        index = piece.get("index")
        self._assembly.call(
            None if whole or not isinstance(index, int) else index,
            id if isinstance(id, str) else str(id) if isinstance(id, int) else None,
            name if isinstance(name, str) else None,
            arguments,
            extra=extra,
            whole=whole,
        )

    def result(self) -> LLMResult:
        reasoning, text = self._think.finish()
        if reasoning:
            self._assembly.reasoning(reasoning)
        if text:
            self._assembly.text(text)
        if self._finish is not None:
            stop = map_finish_reason(self._finish)
        else:
            stop = "stop" if self._done else "interrupted"
        message = self._assembly.message(stop, self._names)
        kept = self._kept()
        if kept:
            message = msgspec.structs.replace(message, provider_metadata={KEY: kept})
        return LLMResult(message, stop, map_usage(self._usage), "", self._model)

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


def map_finish_reason(reason: str) -> StopReason:
    """Return our word for the API's. An unknown one is `other`."""
    return _STOP_REASONS.get(reason, "other")


def map_usage(usage: _Usage | None) -> Usage:
    """Return the counts as reported; what was not reported is unknown, and none is below zero."""
    if usage is None:
        return Usage()
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        _count(usage.prompt_tokens),
        _count(usage.completion_tokens),
        _count(prompt.cached_tokens if prompt else None),
        _count(completion.reasoning_tokens if completion else None),
        cache_write_tokens=_count(prompt.cache_write_tokens if prompt else None),
    )


def _count(number: int | None) -> int | None:
    return None if number is None else max(number, 0)


def _thought(value: Any) -> str:
    if isinstance(value, list):
        return "".join(_thought(part.get("text") if isinstance(part, dict) else part) for part in value)
    return value if isinstance(value, str) else ""


# ---------------------------------------------------------------- errors


def error_in(error: JsonObject | str) -> LLMError:
    """Return the error that came inside a response of status 200."""
    code = error.get("code") if isinstance(error, dict) else None
    return error_of(int(str(code)) if str(code).isdigit() else 500, error, None)


def error_of(
    status: int, error: JsonObject | str | None, retry_after: float | None, provider: str = KEY
) -> LLMError:
    """Return the error of a refusal."""
    said = error if isinstance(error, str) else str((error or {}).get("message") or "")
    code = "" if not isinstance(error, dict) else f"{error.get('code')} {error.get('type')}"
    text = f"{code} {said}".lower()
    return error_for(provider, status, _kind(text), retry_after, said)


def _kind(text: str) -> str:
    if "insufficient_quota" in text or "billing" in text:
        return "quota"
    if any(word in text for word in ("context_length", "context length", "maximum context", "context size")):
        return "context"
    if any(word in text for word in ("content_filter", "content_policy", "invalid_prompt")):
        return "filter"
    return ""
