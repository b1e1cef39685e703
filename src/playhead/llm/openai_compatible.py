"""The chat completions API, as OpenAI and the servers compatible with it speak it.

Source: https://platform.openai.com/docs/api-reference/chat. What servers differ in stands in
`profiles.py`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from playhead import http
from playhead.errors import LLMError, ProtocolError
from playhead.events import EmitDelta
from playhead.llm.assembly import Assembly
from playhead.llm.call import call, error_for
from playhead.llm.history import EncodedHistory, Group
from playhead.llm.lenient import decode_lenient
from playhead.llm.profiles import Profile, profile_for
from playhead.types import (
    AssistantMessage,
    AudioPart,
    ChatMessage,
    ContentPart,
    ImagePart,
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

DEFAULT_BASE_URL = "https://api.openai.com/v1"

_KEY = "openai-compatible"
_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_encode = msgspec.json.Encoder().encode


# ---------------------------------------------------------------- what arrives


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | JsonObject | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | list[JsonObject] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
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


class OpenAICompatible:
    """An `AgentLLM` over `POST {base_url}/chat/completions`."""

    provider = "openai-compatible"

    def __init__(
        self, model: str, api_key: str, base_url: str | None = None, *, profile: Profile | None = None
    ) -> None:
        base = http.checked_base(base_url or DEFAULT_BASE_URL).removesuffix("/chat/completions")
        self.model = model
        self.profile = profile or profile_for(base)
        self.url = f"{base}/chat/completions"
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """One call of the model. Raises `LLMError`; never retries."""
        return await call(self, request, emit)

    def can_stream(self, request: LLMRequest) -> bool:
        return self.profile.stream_tools or not request.tools

    def build_request(self, request: LLMRequest, stream: bool) -> http.HttpRequest:
        conversation, systems = _history(request).update(request.messages)
        system = "\n\n".join([request.system, *systems] if request.system else systems)
        body: list[bytes | bytearray] = [b'{"model":', _encode(self.model), b',"messages":[']
        if system:
            body += (_encode({"role": "system", "content": system}), b"," if conversation else b"")
        body += conversation
        body += (b"]", self._options(request, stream), b"}")
        headers = self._headers if not stream else {**self._headers, "Accept": "text/event-stream"}
        return http.HttpRequest(self.url, headers, b"".join(body), request.timeout, request.total_timeout)

    def _options(self, request: LLMRequest, stream: bool) -> bytes:
        """The body's fields after the messages, each with its comma. Encoded once for a run."""
        key = (id(request.tools), request.tool_choice, request.max_tokens, request.temperature, stream)
        held = request.memo.get("openai-options")
        if held is not None and held[0] == key:
            return bytes(held[1])
        fields: JsonObject = {}
        if request.tools:
            fields["tools"] = convert_tools(request.tools)
            if request.tool_choice is not None:
                fields["tool_choice"] = convert_tool_choice(request.tool_choice)
        if request.max_tokens is not None:
            fields[self.profile.max_tokens_field] = request.max_tokens
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if request.output_schema is not None:
            fields["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": request.output_schema},
            }
        if stream:
            fields["stream"] = True
            if self.profile.usage_in_stream:
                fields["stream_options"] = {"include_usage": True}
        encoded = b"," + _encode(fields)[1:-1] if fields else b""
        # The tools are kept beside their id, which no other object can then have.
        request.memo["openai-options"] = (key, encoded, request.tools)
        return encoded

    def parse_response(self, body: bytes, emit: EmitDelta | None = None) -> LLMResult:
        """Read a whole response. Raises `LLMError`."""
        response = _response(body)
        if response.error is not None:
            raise self._error_in(response.error)
        if not response.choices:
            raise ProtocolError("The provider answered without a choice: there is no completion.")
        reader = _Reader(self, Assembly(emit))
        reader.take_response(response)
        return reader.result(complete=True)

    def reader(self, emit: EmitDelta) -> "_Reader":
        return _Reader(self, Assembly(emit))

    def map_error(self, status: int, body: bytes, retry_after: float | None) -> LLMError:
        """Return the error of a refusal. Its text holds nothing of the body."""
        try:
            error = msgspec.json.decode(body, type=_Response).error
        except (msgspec.DecodeError, UnicodeError):
            error = None
        return _error_of(self.provider, status, error, retry_after)

    def _error_in(self, error: JsonObject | str) -> LLMError:
        code = error.get("code") if isinstance(error, dict) else None
        status = int(str(code)) if str(code).isdigit() else 500
        return _error_of(self.provider, status, error, None)


class _Reader:
    """Reads one response, whole or as chunks."""

    def __init__(self, llm: OpenAICompatible, assembly: Assembly) -> None:
        self._llm = llm
        self._assembly = assembly
        self._finish: str | None = None
        self._done = False
        self._usage: _Usage | None = None
        self._model = ""

    @property
    def empty(self) -> bool:
        return self._assembly.empty

    def take(self, name: str, data: bytes) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        response = _response(data)
        if response.error is not None:
            raise self._llm._error_in(response.error)
        self.take_response(response)

    def take_response(self, response: _Response) -> None:
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
        if choice.finish_reason:
            self._finish = choice.finish_reason

    def _take_message(self, message: _Message, whole: bool) -> None:
        assembly = self._assembly
        reasoning = message.reasoning_content or message.reasoning
        if reasoning:
            assembly.reasoning(reasoning)
        content = message.content
        if isinstance(content, str):
            if content:
                assembly.text(content)
        elif content:
            _take_parts(content, assembly)
        if message.tool_calls:
            for piece in message.tool_calls:
                function = piece.function or _Function()
                if whole:
                    assembly.whole_call(piece.id, function.name or "", _arguments(function))
                else:
                    assembly.call(piece.index, piece.id, function.name, _arguments(function))
        if message.function_call is not None:
            function = message.function_call
            assembly.call(0, None, function.name, _arguments(function))

    def result(self, complete: bool = False) -> LLMResult:
        stop = self._stop_reason(complete)
        message = self._assembly.message(stop)
        return LLMResult(
            message, message.stop_reason or stop, map_usage(self._usage), "", self._model or self._llm.model
        )

    def _stop_reason(self, complete: bool) -> StopReason:
        if self._finish is not None:
            return map_finish_reason(self._finish)
        return "stop" if complete or self._done else "interrupted"


# ---------------------------------------------------------------- what is sent


def convert_tools(tools: Sequence[ToolSchema]) -> list[JsonObject]:
    """Return the tools in this API's form."""
    return [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": t.input_schema},
        }
        for t in tools
    ]


def convert_tool_choice(choice: str) -> Any:
    """`auto`, `none` and `required` as they are; any other text is a tool's name."""
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def convert_group(group: Group) -> list[bytes]:
    """Return the wire bytes of messages that stand together, one piece each."""
    return [message.__dict__.get(_KEY) or _message_bytes(message) for message in group]


def _message_bytes(message: ChatMessage) -> bytes:
    encoded = message.__dict__[_KEY] = _encode(convert_message(message))
    return encoded


def convert_message(message: ChatMessage) -> JsonObject:
    """Return a message in this API's form."""
    if isinstance(message, AssistantMessage):
        wire: JsonObject = {"role": "assistant", "content": message.content}
        if message.tool_calls:
            wire["tool_calls"] = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.name or "unnamed", "arguments": _encode(c.args).decode()},
                }
                for c in message.tool_calls
            ]
        return wire
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if isinstance(message, UserMessage) and not isinstance(message.content, str):
        return {"role": "user", "content": _convert_parts(message.content)}
    return {"role": message.role, "content": message.content}


def _convert_parts(parts: Sequence[ContentPart]) -> str | list[JsonObject]:
    # Several servers refuse text as a list of parts: lists are kept for what is not text.
    if all(isinstance(part, TextPart) for part in parts):
        return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
    return [_convert_part(part) for part in parts]


def _convert_part(part: ContentPart) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": part.url}}
    if isinstance(part, AudioPart):
        kind = part.media_type.rpartition("/")[2] or "wav"
        return {"type": "input_audio", "input_audio": {"data": part.url.partition(",")[2], "format": kind}}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": part.url}}


def map_finish_reason(reason: str) -> StopReason:
    """Return our word for the API's. An unknown one is `other`."""
    return _STOP_REASONS.get(reason, "other")


def map_usage(usage: _Usage | None) -> Usage:
    """Return the counts as reported; what was not reported is unknown."""
    if usage is None:
        return Usage()
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        prompt.cached_tokens if prompt else None,
        completion.reasoning_tokens if completion else None,
    )


def _history(request: LLMRequest) -> EncodedHistory:
    held: EncodedHistory | None = request.memo.get(_KEY)
    if held is None:
        held = request.memo[_KEY] = EncodedHistory(convert_group)
    return held


def _response(data: bytes) -> _Response:
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError):
        response: _Response = decode_lenient(data, _Response, "The provider")
        return response


def _arguments(function: _Function) -> str:
    arguments = function.arguments
    return arguments if isinstance(arguments, str) else _encode(arguments).decode() if arguments else ""


def _take_parts(parts: list[JsonObject], assembly: Assembly) -> None:
    for part in parts:
        if isinstance(part.get("text"), str):
            assembly.text(part["text"])
        elif isinstance(part.get("thinking"), list):
            for thought in part["thinking"]:
                assembly.reasoning(
                    str(thought.get("text", "")) if isinstance(thought, dict) else str(thought)
                )


def _error_of(
    provider: str, status: int, error: JsonObject | str | None, retry_after: float | None
) -> LLMError:
    said = error if isinstance(error, str) else str((error or {}).get("message") or "")
    code = "" if not isinstance(error, dict) else f"{error.get('code')} {error.get('type')}"
    text = f"{code} {said}".lower()
    kind = ""
    if "insufficient_quota" in text or "billing" in text:
        kind = "quota"
    elif "context_length" in text or "context length" in text or "maximum context" in text:
        kind = "context"
    elif "content_filter" in text or "content_policy" in text:
        kind = "filter"
    return error_for(provider, status, kind, retry_after, said)
