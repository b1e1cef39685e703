"""Google's generateContent API.

Source: https://ai.google.dev/api/generate-content. Calls have no id of the provider's in most
models, so one is made; where the provider sends one, it is echoed in the response part. The parts
of a model's turn are kept as they came, because the API wants its thought signatures back in place.
"""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from playhead import http
from playhead.errors import ContentFilterError, LLMError, ProtocolError
from playhead.events import EmitDelta
from playhead.ids import new_id
from playhead.llm.assembly import Assembly
from playhead.llm.call import call, error_for
from playhead.llm.gemini_schema import convert_schema
from playhead.llm.history import EncodedHistory, Group
from playhead.llm.lenient import decode_lenient
from playhead.types import (
    AssistantMessage,
    ContentPart,
    JsonObject,
    LLMRequest,
    LLMResult,
    StopReason,
    TextPart,
    ToolMessage,
    ToolSchema,
    Usage,
    UserMessage,
)

DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com"

_KEY = "gemini"
_STOP_REASONS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
}
# A call that the model wrote badly: nothing of such a response may run.
_MALFORMED = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")
_encode = msgspec.json.Encoder().encode


# ---------------------------------------------------------------- what arrives


class _Content(msgspec.Struct):
    parts: list[JsonObject] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


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
    error: JsonObject | None = None


_decode = msgspec.json.Decoder(_Response).decode


class Gemini:
    """An `AgentLLM` over `models/{model}:generateContent`."""

    provider = "gemini"

    def __init__(self, model: str, api_key: str, base_url: str | None = None) -> None:
        base = http.checked_base(base_url or DEFAULT_BASE_URL)
        if not base.endswith(("/v1beta", "/v1")):
            base += "/v1beta"
        self.model = model.removeprefix("models/")
        self.url = f"{base}/models/{quote(self.model, safe='')}"
        # The key goes in a header: a query string ends up in logs and errors.
        self._headers = {"Content-Type": "application/json", "x-goog-api-key": api_key}

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """One call of the model. Raises `LLMError`; never retries."""
        return await call(self, request, emit)

    def can_stream(self, request: LLMRequest) -> bool:
        return True

    def build_request(self, request: LLMRequest, stream: bool) -> http.HttpRequest:
        conversation, systems = _history(request).update(request.messages)
        system = "\n\n".join([request.system, *systems] if request.system else systems)
        fields = self._options(request)
        if system.strip():
            fields["systemInstruction"] = {"parts": [{"text": system}]}
        options = b"," + _encode(fields)[1:-1] if fields else b""
        # The API refuses an empty list of contents.
        contents = conversation or [_content("user", [_encode({"text": "Go on."})])]
        body = b"".join([b'{"contents":[', *contents, b"]", options, b"}"])
        url = f"{self.url}:streamGenerateContent?alt=sse" if stream else f"{self.url}:generateContent"
        return http.HttpRequest(url, self._headers, body, request.timeout, request.total_timeout)

    def _options(self, request: LLMRequest) -> JsonObject:
        fields: JsonObject = {}
        if request.tools:
            fields["tools"] = [{"functionDeclarations": convert_tools(request.tools)}]
            if request.tool_choice is not None:
                fields["toolConfig"] = {"functionCallingConfig": convert_tool_choice(request.tool_choice)}
        generation: JsonObject = {}
        if request.max_tokens is not None:
            generation["maxOutputTokens"] = request.max_tokens
        if request.temperature is not None:
            generation["temperature"] = request.temperature
        if request.output_schema is not None:
            generation["responseMimeType"] = "application/json"
            generation["responseSchema"] = convert_schema(request.output_schema)
        if generation:
            fields["generationConfig"] = generation
        return fields

    def parse_response(self, request: LLMRequest, body: bytes, emit: EmitDelta | None = None) -> LLMResult:
        """Read a whole response. Raises `LLMError`."""
        reader = self.reader(request, emit)
        reader.take("message", body)
        return reader.result(complete=True)

    def reader(self, request: LLMRequest, emit: EmitDelta | None) -> "_Reader":
        return _Reader(self.model, Assembly(emit))

    def map_error(self, status: int, body: bytes, retry_after: float | None) -> LLMError:
        """Return the error of a refusal. Its text holds nothing of the body."""
        try:
            error = msgspec.json.decode(body, type=_Response).error or {}
        except (msgspec.DecodeError, UnicodeError):
            error = {}
        return _error_of(status, error, retry_after)


class _Reader:
    """Reads one response, whole or as chunks."""

    def __init__(self, model: str, assembly: Assembly) -> None:
        self._model = model
        self._assembly = assembly
        self._parts: list[JsonObject] = []
        self._ids: list[str] = []
        self._finish: str | None = None
        self._usage: _UsageMetadata | None = None

    @property
    def empty(self) -> bool:
        return self._assembly.empty and not self._parts

    def take(self, name: str, data: bytes) -> None:
        try:
            response = _decode(data)
        except (msgspec.DecodeError, UnicodeError):
            response = decode_lenient(data, _Response, "Gemini")
        if response.error is not None:
            code = response.error.get("code")
            raise _error_of(code if isinstance(code, int) else 500, response.error, None)
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

    def _take_part(self, part: JsonObject) -> None:
        text = part.get("text")
        called = part.get("functionCall")
        if isinstance(called, dict):
            # The id is ours from here on; a part of the provider's is kept as it came, beside it.
            id = called.get("id") if isinstance(called.get("id"), str) else None
            raw = called.get("args")
            arguments = raw if isinstance(raw, str) else _encode(raw).decode() if raw else ""
            known = id if id and id not in self._ids else new_id()
            self._ids.append(known)
            self._assembly.call(None, known, str(called.get("name") or ""), arguments, whole=True)
        elif isinstance(text, str) and text:
            if part.get("thought") is True:
                self._assembly.reasoning(text)
            else:
                self._assembly.text(text)
        self._keep(part)

    def _keep(self, part: JsonObject) -> None:
        """Keep a part for replay; plain text grows the part before it, as one text in one place."""
        last = self._parts[-1] if self._parts else None
        plain = last is not None and part.keys() == last.keys() <= {"text", "thought"}
        if last is not None and plain and part.get("thought") == last.get("thought"):
            last["text"] = f"{last['text']}{part['text']}"
        else:
            self._parts.append(dict(part))

    def result(self, complete: bool = False) -> LLMResult:
        if self._finish in _MALFORMED:
            raise ProtocolError(f"Gemini wrote a tool call that it could not finish ({self._finish}).")
        if complete and self._finish is None and self.empty:
            raise ProtocolError("Gemini answered without a candidate: there is no completion.")
        stop = map_finish_reason(self._finish) if self._finish else "stop" if complete else "interrupted"
        metadata = {_KEY: {"parts": self._parts, "ids": self._ids}} if _worth_keeping(self._parts) else None
        message = replace(self._assembly.message(stop), provider_metadata=metadata)
        return LLMResult(message, stop, map_usage(self._usage), "", self._model)


# ---------------------------------------------------------------- what is sent


def convert_tools(tools: Sequence[ToolSchema]) -> list[JsonObject]:
    """Return the function declarations. A tool without parameters has no `parameters` field."""
    declarations = []
    for tool in tools:
        declaration: JsonObject = {"name": tool.name, "description": tool.description}
        schema = convert_schema(tool.input_schema)
        if schema.get("properties"):
            declaration["parameters"] = schema
        declarations.append(declaration)
    return declarations


def convert_tool_choice(choice: str) -> JsonObject:
    """`auto`, `none` and `required` as modes; any other text is a tool's name."""
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
    if choice in modes:
        return {"mode": modes[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def convert_group(group: Group, before: Group | None, after: Group | None) -> list[bytes]:
    """Return the contents of messages that stand together: one content, or a call and its answers."""
    first = group[0]
    if isinstance(first, UserMessage):
        users = (m for m in group if isinstance(m, UserMessage))
        return [_content("user", [part for user in users for part in _user_parts(user)])]
    if not isinstance(first, AssistantMessage):
        return []
    contents = [_assistant_content(first)]
    results = [m for m in group if isinstance(m, ToolMessage)]
    if results:
        theirs = _provider_ids(first)
        contents.append(_content("user", [_result_part(m, theirs.get(m.tool_call_id)) for m in results]))
    return contents


def _content(role: str, parts: Sequence[bytes]) -> bytes:
    return b'{"role":"%b","parts":[%b]}' % (role.encode(), b",".join(parts))


def _user_parts(message: UserMessage) -> list[bytes]:
    if isinstance(message.content, str):
        return [_encode({"text": message.content or " "})]
    return [_encode(_convert_part(part)) for part in message.content]


def _convert_part(part: ContentPart) -> JsonObject:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if part.url.startswith("data:"):
        kind, _, data = part.url[5:].partition(",")
        return {"inlineData": {"mimeType": part.media_type or kind.removesuffix(";base64"), "data": data}}
    return {"fileData": {"mimeType": part.media_type, "fileUri": part.url}}


def _assistant_content(message: AssistantMessage) -> bytes:
    held = message.__dict__.get(_KEY)
    if held is None:
        kept = (message.provider_metadata or {}).get(_KEY) or {}
        parts = kept.get("parts") or _plain_parts(message)
        held = message.__dict__[_KEY] = _content("model", [_encode(part) for part in parts])
    return bytes(held)


def _plain_parts(message: AssistantMessage) -> list[JsonObject]:
    parts: list[JsonObject] = [{"text": message.content}] if message.content else []
    return [*parts, *({"functionCall": {"name": c.name, "args": c.args}} for c in message.tool_calls)]


def _provider_ids(message: AssistantMessage) -> dict[str, str]:
    """The provider's own id of each call that came with one, by our id."""
    kept = (message.provider_metadata or {}).get(_KEY) or {}
    called = [part["functionCall"] for part in kept.get("parts", ()) if "functionCall" in part]
    pairs = zip(message.tool_calls, called, strict=False)
    return {call.id: theirs["id"] for call, theirs in pairs if theirs.get("id")}


def _result_part(message: ToolMessage, their_id: str | None) -> bytes:
    # `response` must be an object; the text stands under a name of its own.
    response = {"error" if message.is_error else "result": message.content}
    answer: JsonObject = {"name": message.tool_name or "unnamed", "response": response}
    if their_id:
        answer["id"] = their_id
    return _encode({"functionResponse": answer})


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
    return None if a is None and b is None else (a or 0) + (b or 0)


def _worth_keeping(parts: list[JsonObject]) -> bool:
    """Plain text can be made again from the message; calls and signatures cannot."""
    return any(part.keys() - {"text"} for part in parts)


def _history(request: LLMRequest) -> EncodedHistory:
    held: EncodedHistory | None = request.memo.get(_KEY)
    if held is None:
        held = request.memo[_KEY] = EncodedHistory(convert_group)
    return held


def _error_of(status: int, error: JsonObject, retry_after: float | None) -> LLMError:
    said = str(error.get("message") or "")
    details = [d for d in error.get("details") or () if isinstance(d, dict)]
    text = f"{error.get('status')} {said}".lower()
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
    return error_for("gemini", status, kind, retry_after, said)
