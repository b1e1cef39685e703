"""Google's generateContent API.

Source: https://ai.google.dev/api/generate-content. Reading the answers stands in `gemini_reply.py`.

The API wants turns that alternate, each as one content; the results of all calls in one content, in
call order, with nothing else in it; no empty part; and its signatures back byte for byte, in place.
"""

import copy
import hashlib
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from playhead import http
from playhead.errors import LLMError
from playhead.events import EmitDelta
from playhead.llm.assembly import Assembly
from playhead.llm.attachments import inline_data, media_type
from playhead.llm.call import call
from playhead.llm.codecs import wire_name
from playhead.llm.gemini_reply import KEY, RANGE, GeminiReader, decode_chunks, error_of
from playhead.llm.gemini_schema import convert_schema
from playhead.llm.history import EncodedHistory, Group
from playhead.llm.kept import own_data, still_says
from playhead.llm.object_schema import object_schema
from playhead.llm.stand_ins import EMPTY_MESSAGE, GO_ON, NO_OUTPUT, NO_TEXT, prepared
from playhead.llm.strict_schema import has_open_objects, is_recursive
from playhead.llm.structured import OutputWay
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    ContentPart,
    JsonObject,
    LLMRequest,
    LLMResult,
    TextPart,
    ToolMessage,
    ToolSchema,
    UserMessage,
)

DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com"
FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""Stands on calls that another model made: the API takes them without a signature of its own.

Source: https://ai.google.dev/gemini-api/docs/thought-signatures#faqs
"""

# kaitranntt/ccs#25
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
# https://ai.google.dev/gemini-api/docs/tool-combination, TanStack/ai#605: since Gemini 3, an answer can
# have a schema while functions are offered. Models before it refuse that (googleapis/python-genai#867).
_OUTPUT_BESIDE_TOOLS = re.compile(r"gemini-([3-9]|[1-9]\d)")
_VERSIONED = re.compile(r"/v\d+[a-z0-9]*(/|$)")
_encode = msgspec.json.Encoder().encode
_GO_ON = _encode({"role": "user", "parts": [{"text": GO_ON}]})


class Gemini:
    """An `AgentLLM` over `models/{model}:generateContent`.

    Args:
        model: the model's id, with or without `models/`.
        api_key: goes into the x-goog-api-key header and nowhere else.
        base_url: up to and including the version; `/v1beta` is added where there is none.

    Raises `ConfigError` for a base URL that is none.
    """

    provider = "gemini"

    def __init__(self, model: str, api_key: str, base_url: str | None = None) -> None:
        base = http.checked_base(base_url or DEFAULT_BASE_URL)
        if not _VERSIONED.search(base):
            base += "/v1beta"
        self.model = model.removeprefix("models/")
        self.url = f"{base}/models/{quote(self.model, safe='')}"
        self.output_beside_tools = _OUTPUT_BESIDE_TOOLS.match(self.model) is not None
        # The key goes in a header: a query string ends up in logs and errors.
        self._headers = {"Content-Type": "application/json", "x-goog-api-key": api_key}
        self._server = http.where(base)
        # Wire bytes are kept in the messages; signatures in them are for this model and server alone.
        self._key = f"{KEY}/{hashlib.sha256(_encode([self._server, self.model])).hexdigest()[:16]}"

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """One call of the model. Raises `LLMError`; never retries."""
        return await call(self, request, emit)

    def repaired(self, change: JsonObject) -> "Gemini":
        """Return the same model, without what it refused: the `repair` of an error."""
        other = copy.copy(self)
        vars(other).update(change)
        return other

    def can_stream(self, request: LLMRequest) -> bool:
        return True

    def output_way(self, request: LLMRequest) -> OutputWay:
        open_ended = _open_ended(request.output_schema or {})
        if request.tools and (open_ended or not self.output_beside_tools):
            return OutputWay("prompt" if open_ended else "tool")
        return OutputWay("json_object" if open_ended else "json_schema")

    # ------------------------------------------------------------ request

    def build_request(self, request: LLMRequest, stream: bool) -> http.HttpRequest:
        history: EncodedHistory | None = request.memo.get(self._key)
        if history is None:
            history = request.memo[self._key] = EncodedHistory(self.convert_group)
        conversation, systems = history.update(request.messages)
        system = "\n\n".join([request.system, *systems] if request.system else systems)
        limits = (request.tool_choice, request.max_tokens, request.temperature)
        options = prepared(
            request, f"{self._key}/options", limits, lambda: _encode(convert_options(request))[1:-1]
        )
        body: list[bytes | bytearray] = [b'{"contents":[', *(conversation or [_GO_ON]), b"]"]
        if system.strip():
            body += (b',"systemInstruction":', _encode({"parts": [{"text": system}]}))
        body += (b"," if options else b"", options, b"}")
        url = f"{self.url}:streamGenerateContent?alt=sse" if stream else f"{self.url}:generateContent"
        return http.HttpRequest(url, self._headers, b"".join(body), request.timeout, request.total_timeout)

    def convert_group(self, group: Group, before: Group | None, after: Group | None) -> Sequence[bytes]:
        """Return the contents of a group.

        Messages of the model that follow one another are one content: where another follows, the
        content is left open, and the last one closes it.
        """
        first = group[0]
        if isinstance(first, UserMessage):
            return [_content("user", b",".join(filter(None, map(self._parts, group))) or _EMPTY)]
        goes_on = before is not None and _is_reply(before)
        pieces = [_GO_ON] if before is None else []
        opening = b"" if goes_on else b'{"role":"model","parts":['
        closing = b"" if _is_reply(group) and after is not None and not _is_user(after) else b"]}"
        pieces.append(opening + self._parts(first) + closing)
        if isinstance(first, AssistantMessage) and len(group) > 1:
            pieces.append(_content("user", self._results(first, group[1:])))
        elif after is None:
            pieces.append(_GO_ON)
        return pieces

    def _parts(self, message: ChatMessage) -> bytes:
        """The parts of a message, joined. Kept in the message."""
        held: bytes | None = message.__dict__.get(self._key)
        if held is None:
            held = message.__dict__[self._key] = b",".join(map(_encode, self.convert_message(message)))
        return held

    def convert_message(self, message: ChatMessage) -> list[JsonObject]:
        """Return the parts of a message of a user, which may be none, or of a model."""
        if isinstance(message, AssistantMessage):
            return _own_parts(message, self._kept_parts(message)) or _plain_parts(message)
        if isinstance(message.content, str):
            return _text_parts(message.content)
        return [wire for part in message.content for wire in convert_part(part)]

    def _kept_parts(self, message: AssistantMessage) -> list[JsonObject]:
        """Return the parts of a message of this model on this server, if it still says what they say."""
        own = own_data(message, KEY, server=self._server, model=self.model)
        parts: list[JsonObject] = own.get("parts") or []
        called = _called(parts)
        same = still_says(message, [part for part in parts if "end" in part], len(called))
        # A name that the API does not take back has to change, and a signed call must not.
        return parts if same and all(_is_name(call.get("name")) for call in called) else []

    def _results(self, asked: AssistantMessage, results: Sequence[ChatMessage]) -> bytes:
        called = _called(self._kept_parts(asked)) or [{} for _ in results]
        answers = [m for m in results if isinstance(m, ToolMessage)]
        triples = zip(answers, called, asked.tool_calls, strict=True)
        wire = (_response(message, theirs, call.name) for message, theirs, call in triples)
        return b",".join(_encode({"functionResponse": response}) for response in wire)

    # ------------------------------------------------------------ response

    def reader(self, request: LLMRequest, emit: EmitDelta | None) -> GeminiReader:
        names = prepared(
            request,
            f"{self._key}/names",
            None,
            lambda: {
                wire: tool.name for tool in request.tools if (wire := function_name(tool.name)) != tool.name
            },
        )
        return GeminiReader(Assembly(emit), self.model, self._server, names)

    def parse_response(self, request: LLMRequest, body: bytes, emit: EmitDelta | None = None) -> LLMResult:
        """Read a whole response. Raises `LLMError`."""
        reader = self.reader(request, emit)
        reader.take_body(body)
        return reader.result(complete=True)

    def map_error(self, status: int, body: bytes, retry_after: float | None) -> LLMError:
        """Return the error of a refusal. Its text holds nothing of the body."""
        try:
            # A refused stream is answered with a list of one.
            first = decode_chunks(body)[0] if body.lstrip()[:1] == b"[" else body
            raw = msgspec.json.decode(first)
        except (msgspec.DecodeError, UnicodeError, LLMError, IndexError):
            raw = None
        error = raw.get("error") if isinstance(raw, dict) else None
        return error_of(status, error if isinstance(error, dict | str) else {}, retry_after)


def convert_options(request: LLMRequest) -> JsonObject:
    """Return the request's fields besides contents and instructions."""
    fields: JsonObject = {}
    if request.tools:
        choice = request.tool_choice
        forced = choice not in (None, "auto", "none")
        fields["tools"] = [{"functionDeclarations": convert_tools(request.tools, forced)}]
        if choice is not None:
            fields["toolConfig"] = {"functionCallingConfig": convert_tool_choice(choice)}
    generation: JsonObject = {}
    if request.max_tokens is not None:
        generation["maxOutputTokens"] = request.max_tokens
    if request.temperature is not None:
        generation["temperature"] = request.temperature
    if request.output_schema is not None:
        generation["responseMimeType"] = "application/json"
        if not _open_ended(request.output_schema):
            generation["responseSchema"] = convert_schema(request.output_schema)
    if generation:
        fields["generationConfig"] = generation
    return fields


def _open_ended(schema: JsonObject) -> bool:
    """Is there something in it that the subset has no words for, so that it would stay empty?"""
    return is_recursive(schema) or has_open_objects(schema)


def convert_tools(tools: Sequence[ToolSchema], forced: bool = False) -> list[JsonObject]:
    """Return the function declarations.

    A tool without parameters has no `parameters`: an object without properties is refused, except
    where a call is `forced`, when it must be there (googleapis/python-genai#981).
    """
    declarations = []
    for tool in tools:
        declaration: JsonObject = {"name": function_name(tool.name), "description": tool.description}
        schema = convert_schema(object_schema(tool.input_schema))
        if "properties" in schema:
            declaration["parameters"] = schema
        elif forced:
            declaration["parameters"] = {"type": "object", "properties": {}}
        declarations.append(declaration)
    return declarations


def function_name(name: str) -> str:
    """Return a tool's name as the API takes it: it begins with a letter or `_`."""
    wire = wire_name(name)
    if _NAME.fullmatch(wire):
        return wire
    return f"_{wire_name(f'{name}.', 63)}"  # the dot makes it end in a digest of itself


def convert_tool_choice(choice: str) -> JsonObject:
    """`auto`, `none` and `required` as modes; any other text is a tool's name."""
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
    if choice in modes:
        return {"mode": modes[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [function_name(choice)]}


def convert_part(part: ContentPart) -> list[JsonObject]:
    """Return a part of a user's message, or nothing for blank text."""
    if isinstance(part, TextPart):
        return _text_parts(part.text)
    kind, data = media_type(part), inline_data(part)
    if data is not None:
        return [{"inlineData": {"mimeType": kind or "application/octet-stream", "data": data}}]
    return [{"fileData": {**({"mimeType": kind} if kind else {}), "fileUri": part.url}}]


def _own_parts(message: AssistantMessage, kept: Sequence[JsonObject]) -> list[JsonObject]:
    """The parts as they came, each with its text or its arguments again."""
    parts: list[JsonObject] = []
    calls = iter(message.tool_calls)
    for part in kept:
        if "functionCall" in part:
            asked = next(calls)
            theirs = part["functionCall"]
            parts.append({**part, "functionCall": {**theirs, "args": asked.args}})
        elif "start" in part:
            more = {k: v for k, v in part.items() if k not in RANGE}
            parts.append({"text": message.content[part["start"] : part["end"]], **more})
        else:
            # A part must hold something: a signature alone goes on an empty text.
            parts.append(part if part.keys() - {"thoughtSignature"} else {"text": "", **part})
    return parts


def _plain_parts(message: AssistantMessage) -> list[JsonObject]:
    """The parts of a message that another model made."""
    parts = _text_parts(message.content)
    for n, asked in enumerate(message.tool_calls):
        part: JsonObject = {"functionCall": {"name": function_name(asked.name), "args": asked.args}}
        parts.append(part if n else {**part, "thoughtSignature": FOREIGN_SIGNATURE})
    return parts or _text_parts(NO_TEXT)


def _called(parts: Sequence[JsonObject]) -> list[JsonObject]:
    return [part["functionCall"] for part in parts if "functionCall" in part]


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _response(message: ToolMessage, theirs: JsonObject, name: str) -> JsonObject:
    # `response` must be an object; the text stands under a name of its own.
    text = message.content if message.content.strip() else NO_OUTPUT
    answer: JsonObject = {
        "name": theirs.get("name") or function_name(name),
        "response": {"error" if message.is_error else "result": text},
    }
    return {"id": theirs["id"], **answer} if theirs.get("id") else answer


def _text_parts(text: str) -> list[JsonObject]:
    return [{"text": text}] if text and not text.isspace() else []


_EMPTY = _encode({"text": EMPTY_MESSAGE})


def _content(role: str, parts: bytes) -> bytes:
    return b'{"role":"%b","parts":[%b]}' % (role.encode(), parts)


def _is_user(group: Group) -> bool:
    return isinstance(group[0], UserMessage)


def _is_reply(group: Group) -> bool:
    """Is it a message of a model without calls?"""
    return isinstance(group[0], AssistantMessage) and len(group) == 1
