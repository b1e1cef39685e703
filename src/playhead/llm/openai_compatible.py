"""The chat completions API, as OpenAI and the servers compatible with it speak it.

Source: https://platform.openai.com/docs/api-reference/chat. What servers differ in stands in
`profiles.py`; reading the answers in `openai_reply.py`.
"""

import hashlib
import re
from collections.abc import Sequence
from operator import or_
from typing import Any

import msgspec

from playhead import http
from playhead.errors import LLMError
from playhead.events import EmitDelta
from playhead.llm.assembly import Assembly
from playhead.llm.codecs import ID_CODECS, real_names, wire_name
from playhead.llm.gemini_schema import convert_schema
from playhead.llm.history import EncodedHistory, Group
from playhead.llm.http_model import HttpModel, told_error
from playhead.llm.kept import own_data
from playhead.llm.openai_errors import KEY, error_of
from playhead.llm.openai_plain import read_plain
from playhead.llm.openai_reply import OpenAIReader, warn_of_full_context
from playhead.llm.profiles import Profile
from playhead.llm.servers import DEFAULT_BASE_URL, profile_for
from playhead.llm.stand_ins import GO_ON, NO_TEXT, NO_TOOL
from playhead.llm.strict_schema import strict_schema
from playhead.llm.structured import OutputWay
from playhead.types import (
    AssistantMessage,
    AudioPart,
    ChatMessage,
    ContentPart,
    ImagePart,
    JsonObject,
    LLMRequest,
    LLMResult,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSchema,
    UserMessage,
)

_encode = msgspec.json.Encoder().encode
_EMPTIES = {"text": "", "null": None, "placeholder": "(calling tools)"}
_GO_ON = _encode({"role": "user", "content": GO_ON})


class OpenAICompatible(HttpModel):
    """An `AgentLLM` over `POST {base_url}/chat/completions`.

    Args:
        model: the model's id.
        api_key: goes into the Authorization header and nowhere else.
        base_url: up to and including the version, such as `http://localhost:11434/v1`.
        profile: how to speak to the server; by default what is known of its host.

    Raises `ConfigError` for a base URL that is none.
    """

    provider = "openai-compatible"

    def __init__(
        self, model: str, api_key: str, base_url: str | None = None, *, profile: Profile | None = None
    ) -> None:
        base = http.checked_base(base_url or DEFAULT_BASE_URL).removesuffix("/chat/completions")
        self.model = model
        self.profile = profile or profile_for(base)
        self.url = f"{base}/chat/completions"
        self._api_key = api_key
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}
        self._stream_headers = {**self._headers, "Accept": "text/event-stream"}
        self._head = b'{"model":%b,"messages":[' % _encode(model)
        self._server = http.where(base)
        # Wire bytes are kept in the messages: those of another profile or server are not ours.
        which = hashlib.sha256(_encode([self.profile, self._server])).hexdigest()[:16]
        self._key = f"{KEY}/{which}"
        self._begin_key = f"{self._key}/begin/{model}"
        self._options_key = f"{self._key}/options"
        self._names_key = f"{self._key}/names"
        self._convert_id = ID_CODECS[self.profile.id_codec]

    def repaired(self, change: JsonObject) -> "OpenAICompatible":
        """Return the same model, spoken to as the change of the profile says."""
        profile = msgspec.structs.replace(self.profile, **change)
        return OpenAICompatible(self.model, self._api_key, self.url, profile=profile)

    def can_stream(self, request: LLMRequest) -> bool:
        return self.profile.stream_tools or not request.tools

    def output_way(self, request: LLMRequest) -> OutputWay:
        form = self.profile.output
        if request.tools and form in ("json_schema", "json_object") and not self.profile.output_beside_tools:
            return OutputWay("tool")
        told = form == "json_schema" and not _strict(request.output_schema or {}, self.profile)
        return OutputWay(form, told)

    # ------------------------------------------------------------ request

    def build_request(self, request: LLMRequest, stream: bool) -> http.HttpRequest:
        history = self._history(request)
        conversation, systems = history.update(request.messages)
        conversation = conversation or [_GO_ON]  # no messages, or instructions alone, are refused
        options = self._options(request, stream, history.has_calls)
        body = b"".join((self._begin(request, systems), *conversation, b"]", options, b"}"))
        headers = self._stream_headers if stream else self._headers
        return http.HttpRequest(self.url, headers, body, request.timeout, request.total_timeout)

    def _begin(self, request: LLMRequest, systems: Sequence[str]) -> bytes:
        """The body up to the conversation. Encoded once for a run, like the options."""
        system = request.system or ""
        if systems:
            system = "\n\n".join([system, *systems] if system else systems)
        held: tuple[str, bytes] | None = request.memo.get(self._begin_key)
        if held is None or held[0] != system:
            told = _encode({"role": "system", "content": system}) + b"," if system else b""
            held = request.memo[self._begin_key] = (system, self._head + told)
        return held[1]

    def _history(self, request: LLMRequest) -> EncodedHistory:
        held: EncodedHistory | None = request.memo.get(self._key)
        if held is None:
            held = request.memo[self._key] = EncodedHistory(self.convert_group, f"{self._key}/history")
        return held

    def _options(self, request: LLMRequest, stream: bool, has_calls: bool) -> bytes:
        """The body's fields after the messages, each with its comma. Encoded once for a run."""
        key = (
            *(request.tools, request.tool_choice, request.max_tokens, request.temperature),
            *(request.output_schema, stream, has_calls),
        )
        held: tuple[Any, bytes] | None = request.memo.get(self._options_key)
        if held is None or held[0] != key:
            fields = self.convert_options(request, stream, has_calls)
            held = request.memo[self._options_key] = (key, b"," + _encode(fields)[1:-1] if fields else b"")
        return held[1]

    def convert_options(self, request: LLMRequest, stream: bool, has_calls: bool) -> JsonObject:
        """Return the request's fields besides model and messages. Optional ones as the profile says."""
        profile = self.profile
        fields = self._tool_fields(request)
        if has_calls and profile.needs_tools_with_tool_history and "tools" not in fields:
            fields["tools"] = convert_tools([NO_TOOL], profile)
        if request.max_tokens is not None:
            fields[profile.max_tokens_field] = request.max_tokens
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if request.output_schema is not None:
            fields["response_format"] = response_format(request.output_schema, profile)
        if stream:
            fields["stream"] = True
            if profile.usage_in_stream:
                fields["stream_options"] = {"include_usage": True}
        return fields

    def _tool_fields(self, request: LLMRequest) -> JsonObject:
        tools, choice, form = request.tools, request.tool_choice, self.profile.tool_choice
        named = choice is not None and choice not in ("auto", "none", "required")
        if named and form != "named":
            # The server cannot be told which one: offer that one alone, and require it if it can.
            tools, choice = [tool for tool in tools if tool.name == choice], "required"
        if not tools or (choice == "none" and form == "none"):
            return {}
        fields: JsonObject = {"tools": convert_tools(tools, self.profile)}
        if choice is not None and form != "none":
            name = {"name": wire_name(choice, self.profile.max_tool_name)}
            one = named and form == "named"
            fields["tool_choice"] = {"type": "function", "function": name} if one else choice
        return fields

    def convert_group(self, group: Group, before: Group | None, after: Group | None) -> Sequence[bytes]:
        """Return the wire bytes of messages that stand together, one piece each."""
        profile, key = self.profile, self._key
        if profile.merge_users and isinstance(group[0], UserMessage) and len(group) > 1:
            return [_encode(_merged([m for m in group if isinstance(m, UserMessage)]))]
        pieces = [message.__dict__.get(key) or self._message_bytes(message) for message in group]
        if after is not None and not profile.needs_assistant_after_tool:
            return pieces
        to_user = after is not None and isinstance(after[0], UserMessage)
        if profile.needs_assistant_after_tool and to_user and isinstance(group[-1], ToolMessage):
            pieces.append(b'{"role":"assistant","content":"OK."}')
        if after is None and not profile.prefill and isinstance(group[-1], AssistantMessage):
            pieces.append(_GO_ON)
        return pieces

    def _message_bytes(self, message: ChatMessage) -> bytes:
        encoded = message.__dict__[self._key] = _encode(self.convert_message(message))
        return encoded

    def convert_message(self, message: ChatMessage) -> JsonObject:
        """Return a message in this API's form."""
        if isinstance(message, AssistantMessage):
            return self._convert_assistant(message)
        if isinstance(message, ToolMessage):
            id = self._convert_id(message.tool_call_id)
            return {"role": "tool", "tool_call_id": id, "content": message.content or "(no output)"}
        if isinstance(message, UserMessage):
            return {"role": "user", "content": _convert_content(message.content)}
        return {"role": "system", "content": message.content}

    def _convert_assistant(self, message: AssistantMessage) -> JsonObject:
        profile, calls = self.profile, message.tool_calls
        # Opaque data of another server means nothing here, or is refused.
        own = own_data(message, KEY, server=self._server) if message.provider_metadata else {}
        wire: JsonObject = {"role": "assistant", "content": message.content}
        if not message.content and not calls:
            wire["content"] = NO_TEXT  # opaque data of another provider is all that it holds
        elif not message.content:
            wire["content"] = _EMPTIES.get(profile.assistant_empty)
            if profile.assistant_empty == "omit":
                del wire["content"]
        replay = profile.replay_reasoning
        if replay == "always" or (replay == "calls" and calls):
            reasoning = message.reasoning if "reasoningField" in own else None
            wire[own.get("reasoningField", profile.reasoning_field)] = reasoning or ""
        if "reasoningDetails" in own:
            wire["reasoning_details"] = own["reasoningDetails"]
        if calls:
            converted = [self._convert_call(call) for call in calls]
            extras = _extras(own["calls"], calls) if "calls" in own else None
            wire["tool_calls"] = [*map(or_, extras, converted)] if extras else converted
        return wire

    def _convert_call(self, call: ToolCall) -> JsonObject:
        name = wire_name(call.name, self.profile.max_tool_name)
        function = {"name": name, "arguments": _encode(call.args).decode()}
        return {"id": self._convert_id(call.id), "type": "function", "function": function}

    # ------------------------------------------------------------ response

    def parse_response(self, request: LLMRequest, body: bytes, emit: EmitDelta | None = None) -> LLMResult:
        """Read a whole response. Raises `LLMError`."""
        if emit is None and not self.profile.think_prefilled:
            plain = read_plain(body, self.model, self._names(request), request.max_tokens)
            if plain is not None:
                warn_of_full_context(plain.usage, plain.model, self._server)
                return plain
        return super().parse_response(request, body, emit)

    def reader(self, request: LLMRequest, emit: EmitDelta | None) -> OpenAIReader:
        names = self._names(request)
        assembly = Assembly(emit, lenient=self.profile.lenient_arguments)
        prefilled = self.profile.think_prefilled
        return OpenAIReader(assembly, self.model, self._server, names, prefilled, request.max_tokens)

    def _names(self, request: LLMRequest) -> dict[str, str]:
        held: tuple[Any, dict[str, str]] | None = request.memo.get(self._names_key)
        if held is None or held[0] is not request.tools:
            held = request.memo[self._names_key] = (
                request.tools,
                real_names(request.tools, self.profile.max_tool_name),
            )
        return held[1]

    def map_error(self, status: int, body: bytes, retry_after: float | None) -> LLMError:
        """Return the error of a refusal. Its text holds nothing of the body."""
        error = told_error(body)
        mapped = error_of(status, error if isinstance(error, dict | str) else None, retry_after)
        if mapped.code == "bad_request":
            mapped.repair = self._repair(str(error))
        return mapped

    def _repair(self, said: str) -> JsonObject | None:
        """Return the change of the profile for a field that the server says it does not take."""
        profile = self.profile
        if "stream_options" in said and profile.usage_in_stream:
            return {"usage_in_stream": False}
        if profile.max_tokens_field in said:
            both = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
            return {"max_tokens_field": both[profile.max_tokens_field]}
        if "tool_choice" in said and profile.tool_choice != "none":
            return {"tool_choice": "none"}
        return _weaker_output(said, profile)


def convert_tools(tools: Sequence[ToolSchema], profile: Profile) -> list[JsonObject]:
    """Return the tools in this API's form."""
    return [
        {
            "type": "function",
            "function": {
                "name": wire_name(tool.name, profile.max_tool_name),
                "description": tool.description,
                "parameters": _schema(tool.input_schema, profile),
            },
        }
        for tool in tools
    ]


_WEAKER: JsonObject = {"json_schema": "json_object", "json_object": "prompt"}


def _weaker_output(said: str, profile: Profile) -> JsonObject | None:
    """Return the change for a form of answer that the server, or this model on it, does not take."""
    words = ("response_format", "response format", "json_schema", "json_object", "json mode")
    if profile.output == "tool" and re.search(r"not support\w* (tools?|function)", said.lower()):
        return {"output": "prompt"}
    if profile.output not in _WEAKER or not any(word in said.lower() for word in words):
        return None
    if profile.output_beside_tools and re.search(r"\b(tools?|function)\b", said.lower()):
        return {"output_beside_tools": False}
    return {"output": _WEAKER[profile.output]}


def response_format(schema: JsonObject, profile: Profile) -> JsonObject:
    """Return the field that asks for JSON, and for a schema where the profile has that."""
    if profile.output == "json_object":
        return {"type": "json_object"}
    strict = _strict(schema, profile)
    named: JsonObject = {"name": "output", "schema": strict or _schema(schema, profile)}
    return {"type": "json_schema", "json_schema": {**named, "strict": True} if strict else named}


def _strict(schema: JsonObject, profile: Profile) -> JsonObject | None:
    return strict_schema(schema) if profile.output_strict else None


def _schema(schema: JsonObject, profile: Profile) -> JsonObject:
    return convert_schema(schema) if profile.schema_dialect == "openapi" else schema


def _extras(kept: Any, calls: Sequence[ToolCall]) -> Sequence[JsonObject] | None:
    """What was kept of each call, in their order: a call may have another id by now."""
    if isinstance(kept, dict):  # as it was kept at first
        return [kept.get(call.id, {}) for call in calls]
    return kept if len(kept) == len(calls) else None


def _merged(messages: Sequence[UserMessage]) -> JsonObject:
    parts: list[ContentPart] = []
    for message in messages:
        parts += [TextPart(message.content)] if isinstance(message.content, str) else message.content
    return {"role": "user", "content": _convert_content(parts)}


def _convert_content(content: str | Sequence[ContentPart]) -> str | list[JsonObject]:
    # Several servers refuse text as a list of parts: lists are kept for what is not text.
    if isinstance(content, str):
        return content
    texts = [part.text for part in content if isinstance(part, TextPart)]
    return "\n\n".join(texts) if len(texts) == len(content) else [_convert_part(part) for part in content]


def _convert_part(part: ContentPart) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": part.url}}
    if isinstance(part, AudioPart):
        kind = part.media_type.rpartition("/")[2] or "wav"
        return {"type": "input_audio", "input_audio": {"data": part.url.partition(",")[2], "format": kind}}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": part.url}}
