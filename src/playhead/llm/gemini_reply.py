"""Reading what Google's generateContent API answers, whole or as chunks.

Source: https://ai.google.dev/api/generate-content. The API wants its signatures and ids back, each in
its place: the parts of a turn are kept for that, text as a range of the message's text and calls
without their arguments, which the message has.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from playhead.errors import ContentFilterError, LLMError, ProtocolError
from playhead.ids import new_id
from playhead.llm.assembly import Assembly
from playhead.llm.call import error_for
from playhead.llm.kept import is_storable
from playhead.llm.lenient import decode_lenient
from playhead.types import JsonObject, LLMResult, StopReason, Usage

KEY = "gemini"
"""The dialect, under which opaque data and wire bytes are kept."""
RANGE = ("start", "end")
"""What a kept part has in place of its text."""

# https://ai.google.dev/api/generate-content#FinishReason
_STOP_REASONS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
}
# A response that the model wrote badly: nothing of it may run. The text is a hint for one more attempt.
_MALFORMED = {
    "MALFORMED_FUNCTION_CALL": "Your last tool call could not be read. Call again with plain JSON arguments.",
    "MALFORMED_RESPONSE": "Your last answer could not be read. Answer again.",
    "UNEXPECTED_TOOL_CALL": "Your last tool call named no tool that is offered. Call only tools that are.",
    "TOO_MANY_TOOL_CALLS": "You made too many tool calls at once. Make fewer.",
}
_encode = msgspec.json.Encoder().encode


class _Content(msgspec.Struct):
    parts: list[JsonObject] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _UsageMetadata(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    cached_content_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Response(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: JsonObject | None = None
    usage_metadata: _UsageMetadata | None = None
    model_version: str | None = None
    error: JsonObject | str | None = None


_decode = msgspec.json.Decoder(_Response).decode
_decode_many = msgspec.json.Decoder(list[msgspec.Raw]).decode


class GeminiReader:
    """Puts one response together.

    Args:
        assembly: takes the pieces.
        model: the model that was asked; its signatures go back to it only.
        server: whom the response comes from; opaque data goes back to the same one only.
        names: the real names of tools that go by another on the wire.
    """

    def __init__(self, assembly: Assembly, model: str, server: str, names: Mapping[str, str]) -> None:
        self._assembly = assembly
        self._asked = self._model = model
        self._server = server
        self._names = names
        self._parts: list[JsonObject] = []
        self._length = 0
        self._ids: list[str] = []
        self._finish: str | None = None
        self._said = ""
        self._usage: _UsageMetadata | None = None

    @property
    def empty(self) -> bool:
        return self._assembly.empty and not self._parts

    def take(self, name: str, data: bytes) -> None:
        if data == b"[DONE]":
            return
        try:
            response = _decode(data)
        except (msgspec.DecodeError, UnicodeError):
            response = decode_lenient(data, _Response, "Gemini")
        if response.error is not None:
            raise error_in(response.error)
        blocked = (response.prompt_feedback or {}).get("blockReason")
        if blocked:
            raise ContentFilterError(
                f"Gemini blocked the prompt ({str(blocked)[:40]}). Rephrase the request."
            )
        self._usage = response.usage_metadata or self._usage
        self._model = response.model_version or self._model
        for candidate in (response.candidates or ())[:1]:
            for part in (candidate.content.parts if candidate.content else None) or ():
                self._take_part(part)
            self._finish = candidate.finish_reason or self._finish
            self._said = candidate.finish_message or self._said

    def take_body(self, body: bytes) -> None:
        """Take a whole response, or the list of chunks that the API sends without `alt=sse`."""
        if body.lstrip()[:1] == b"[":
            for chunk in decode_chunks(body):
                self.take("message", chunk)
        else:
            self.take("message", body)

    def _take_part(self, part: JsonObject) -> None:
        if "start" in part or "end" in part:  # a field of theirs would be read as a range
            part = {k: v for k, v in part.items() if k not in RANGE}
        text = part.get("text")
        called = part.get("functionCall")
        thought = part.get("thought") is True
        if isinstance(called, dict):
            self._take_call(called)
            kept = {k: v for k, v in called.items() if k != "args"}
            self._parts.append({**part, "functionCall": kept})
        elif thought and isinstance(text, str):
            if text:
                self._assembly.reasoning(text)
            if "thoughtSignature" in part:  # without one, a thought says nothing to the model
                self._parts.append(part)
        elif isinstance(text, str):
            if text:
                self._assembly.text(text)
            self._keep_text(text, {k: v for k, v in part.items() if k != "text"})
        elif part:
            self._parts.append(part)

    def _take_call(self, called: JsonObject) -> None:
        # The id is ours from here on; the provider's own is kept as it came, beside it.
        id = called.get("id") if isinstance(called.get("id"), str) else None
        raw = called.get("args")
        arguments = raw if isinstance(raw, str) else _json(raw) if raw else ""
        known = id if id and id not in self._ids else new_id()
        self._ids.append(known)
        self._assembly.call(None, known, str(called.get("name") or ""), arguments, whole=True)

    def _keep_text(self, text: str, more: JsonObject) -> None:
        start = self._length
        self._length += len(text)
        last = self._parts[-1] if self._parts else None
        if not more and last is not None and last.keys() == set(RANGE):
            last["end"] = self._length  # plain text grows the part before it
        elif text or "thoughtSignature" in more:
            self._parts.append({"start": start, "end": self._length, **more})

    def result(self, complete: bool = False) -> LLMResult:
        """Return what arrived. `complete` says that it was a whole response."""
        if self._finish in _MALFORMED:
            raise self._malformed(self._finish)
        if complete and self._finish is None and self.empty:
            raise ProtocolError("Gemini answered without a candidate: there is no completion.")
        stop = map_finish_reason(self._finish) if self._finish else "stop" if complete else "interrupted"
        message = self._assembly.message(stop, self._names)
        kept = self._kept(len(message.content))
        if kept:
            metadata = {KEY: {"server": self._server, "model": self._asked, **kept}}
            message = replace(message, provider_metadata=metadata)
        return LLMResult(message, stop, map_usage(self._usage), "", self._model)

    def _kept(self, length: int) -> JsonObject:
        kept: JsonObject = {}
        parts = [part for part in self._parts if is_storable(part)]
        # Where halves of characters were joined, the ranges no longer fit: then nothing is kept.
        if self._length == length and any(part.keys() - set(RANGE) for part in parts):
            kept["parts"] = parts
        if self._finish and map_finish_reason(self._finish) == "other":
            kept["finishReason"] = self._finish
        return kept

    def _malformed(self, reason: str) -> LLMError:
        error = ProtocolError(
            f"Gemini wrote an answer that it could not finish ({reason}). Try again, or use another model.",
            repair=_MALFORMED[reason],
        )
        if self._said:
            error.add_note(f"Gemini said: {self._said[:200]}")
        return error


def _json(value: Any) -> str:
    try:
        return _encode(value).decode()
    except ValueError:  # half a character, as only the lenient decoder lets through
        return json.dumps(value)


def decode_chunks(body: bytes) -> Sequence[bytes]:
    """Return the members of a JSON list, each as its bytes. Raises `ProtocolError`."""
    try:
        return [bytes(raw) for raw in _decode_many(body)]
    except (msgspec.DecodeError, UnicodeError):
        raise ProtocolError(f"Gemini sent what is not JSON: {len(body)} bytes that do not parse.") from None


def map_finish_reason(reason: str) -> StopReason:
    """Return our word for the API's. An unknown one is `other`."""
    return _STOP_REASONS.get(reason, "other")


def map_usage(usage: _UsageMetadata | None) -> Usage:
    """Return the counts: the API counts thoughts apart from the candidates, and tool prompts too."""
    if usage is None:
        return Usage()
    output = _plus(usage.candidates_token_count, usage.thoughts_token_count)
    prompt = _plus(usage.prompt_token_count, usage.tool_use_prompt_token_count)
    return Usage(prompt, output, usage.cached_content_token_count, usage.thoughts_token_count)


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else max(a or 0, 0) + max(b or 0, 0)


# ---------------------------------------------------------------- errors

# https://ai.google.dev/gemini-api/docs/troubleshooting, for errors that come without a number.
_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def error_in(error: JsonObject | str) -> LLMError:
    """Return the error that came inside a response of status 200."""
    fields = error if isinstance(error, dict) else {}
    code = fields.get("code")
    known = _STATUS.get(str(fields.get("status")), 500)
    return error_of(code if isinstance(code, int) else known, error, None)


def error_of(status: int, error: JsonObject | str, retry_after: float | None) -> LLMError:
    """Return the error of a refusal; its text holds nothing of the provider's."""
    fields = error if isinstance(error, dict) else {}
    said = error if isinstance(error, str) else str(fields.get("message") or "")
    given: Any = fields.get("details")
    details = [d for d in given if isinstance(d, dict)] if isinstance(given, list) else []
    text = f"{fields.get('status')} {said}".lower()
    kind = ""
    if "api key not valid" in text or "api_key_invalid" in str(details).lower():
        status = 401
    elif "perday" in str(details).lower():
        kind = "quota"
    elif "token count" in text and "exceed" in text:
        kind = "context"
    for detail in details:
        delay = str(detail.get("retryDelay", "")).removesuffix("s")
        if delay.replace(".", "", 1).isdigit():
            retry_after = float(delay)
    mapped = error_for(KEY, status, kind, retry_after, said)
    if mapped.code == "bad_request" and "response mime type" in text:
        mapped.repair = {"output_beside_tools": False}
    return mapped
