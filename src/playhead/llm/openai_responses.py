"""OpenAI's Responses API, without any state on the server.

Sources: https://platform.openai.com/docs/api-reference/responses/create and, for the field `detail`,
vercel/ai#20300. Reading the answers stands in `openai_responses_reply.py`.

Nothing is stored (`store: false`), so the whole conversation goes along as a list of items: messages,
calls, results, and the model's reasoning, which comes back encrypted and goes back as it came, in its
place, to the model and the server that made it
(https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items).
"""

import copy
import hashlib
import mimetypes
from collections.abc import Sequence

import msgspec

from playhead import http
from playhead.errors import LLMError
from playhead.events import EmitDelta
from playhead.llm.assembly import Assembly
from playhead.llm.attachments import inline_data, media_type
from playhead.llm.codecs import real_names, safe64, wire_name
from playhead.llm.history import EncodedHistory, Group
from playhead.llm.http_model import HttpModel, told_error
from playhead.llm.kept import own_data, still_says
from playhead.llm.object_schema import object_schema
from playhead.llm.openai_responses_errors import KEY, refusal
from playhead.llm.openai_responses_reply import ResponsesReader
from playhead.llm.servers import DEFAULT_BASE_URL
from playhead.llm.stand_ins import EMPTY_MESSAGE, GO_ON, NO_OUTPUT, NO_TEXT, not_shown, prepared
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
    TextPart,
    ToolMessage,
    ToolSchema,
)

LEAST_MAX_TOKENS = 16
"""The API refuses a smaller `max_output_tokens` (earendil-works/pi#6265): this much is asked instead."""

_encode = msgspec.json.Encoder().encode
_GO_ON = _encode({"role": "user", "content": GO_ON})


class OpenAIResponses(HttpModel):
    """An `AgentLLM` over `POST {base_url}/responses`.

    Args:
        model: the model's id.
        api_key: goes into the Authorization header and nowhere else.
        base_url: up to and including the version, such as `https://api.openai.com/v1`.
        reasoning: the request's `reasoning` field as the API has it, such as
            `{"effort": "low", "summary": "auto"}`; None for the model's own default, which tells no
            summary.

    Raises `ConfigError` for a base URL that is none.
    """

    provider = "openai-responses"

    def __init__(
        self,
        model: str,
        api_key: str,
        base_url: str | None = None,
        *,
        reasoning: JsonObject | None = None,
    ) -> None:
        base = http.checked_base(base_url or DEFAULT_BASE_URL).removesuffix("/responses")
        self.model = model
        self.reasoning = reasoning
        self.ask_reasoning = True
        self.send_reasoning = True
        self.send_temperature = True
        self.native_output = True
        self.url = f"{base}/responses"
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api_key}"}
        self._server = http.where(base)
        # Wire bytes are kept in the messages; reasoning in them is for this model and server alone.
        self._key = f"{KEY}/{hashlib.sha256(_encode([self._server, model])).hexdigest()[:16]}"

    def repaired(self, change: JsonObject) -> "OpenAIResponses":
        """Return the same model, without what its server refused: the `repair` of an error."""
        other = copy.copy(self)
        vars(other).update(change)
        other._key = "/".join([self._key, *sorted(change)])
        return other

    def can_stream(self, request: LLMRequest) -> bool:
        return True

    def output_way(self, request: LLMRequest) -> OutputWay:
        if not self.native_output:
            return OutputWay("tool")
        return OutputWay("json_schema", told=strict_schema(request.output_schema or {}) is None)

    # ------------------------------------------------------------ request

    def build_request(self, request: LLMRequest, stream: bool) -> http.HttpRequest:
        history: EncodedHistory | None = request.memo.get(self._key)
        if history is None:
            history = request.memo[self._key] = EncodedHistory(self.convert_group)
        conversation, systems = history.update(request.messages)
        system = "\n\n".join([request.system, *systems] if request.system else systems)
        options = prepared(
            request,
            f"{self._key}/options",
            (request.tool_choice, request.max_tokens, request.temperature, stream),
            lambda: _encode(self.convert_options(request, stream)),
        )
        body: list[bytes | bytearray] = [options[:-1]]
        if system:
            body += [b',"instructions":', _encode(system)]
        body += [b',"input":[', *(conversation or [_GO_ON]), b"]}"]
        headers = self._headers if not stream else {**self._headers, "Accept": "text/event-stream"}
        return http.HttpRequest(self.url, headers, b"".join(body), request.timeout, request.total_timeout)

    def convert_options(self, request: LLMRequest, stream: bool) -> JsonObject:
        """Return the request's fields besides instructions and input."""
        fields: JsonObject = {"model": self.model, "store": False}
        if self.ask_reasoning:
            fields["include"] = ["reasoning.encrypted_content"]
        if self.reasoning is not None:
            fields["reasoning"] = self.reasoning
        if request.tools:
            fields["tools"] = convert_tools(request.tools)
            if request.tool_choice is not None:
                fields["tool_choice"] = convert_tool_choice(request.tool_choice)
        if request.max_tokens is not None:
            fields["max_output_tokens"] = max(request.max_tokens, LEAST_MAX_TOKENS)
        if request.temperature is not None and self.send_temperature:
            fields["temperature"] = request.temperature
        if request.output_schema is not None:
            fields["text"] = {"format": convert_output_schema(request.output_schema)}
        if stream:
            fields["stream"] = True
        return fields

    def convert_group(self, group: Group, before: Group | None, after: Group | None) -> Sequence[bytes]:
        """Return the input items of messages that stand together."""
        pieces = list(map(self._items, group))
        if after is None and isinstance(group[-1], AssistantMessage):
            pieces.append(_GO_ON)
        return pieces

    def _items(self, message: ChatMessage) -> bytes:
        """The items of a message, joined. Kept in the message."""
        held: bytes | None = message.__dict__.get(self._key)
        if held is None:
            items = self.convert_message(message)
            held = message.__dict__[self._key] = b",".join(map(_encode, items))
        return held

    def convert_message(self, message: ChatMessage) -> list[JsonObject]:
        """Return a message's input items: one, or several of an assistant."""
        if isinstance(message, AssistantMessage):
            return self._assistant_items(message)
        if isinstance(message, ToolMessage):
            output, id = message.content or NO_OUTPUT, safe64(message.tool_call_id)
            return [{"type": "function_call_output", "call_id": id, "output": output}]
        content = message.content
        if isinstance(content, str) or not content:
            return [{"role": "user", "content": content or EMPTY_MESSAGE}]
        return [{"role": "user", "content": [convert_part(part) for part in content]}]

    def _assistant_items(self, message: AssistantMessage) -> list[JsonObject]:
        calls = [
            {
                "type": "function_call",
                "call_id": safe64(c.id),
                "name": wire_name(c.name),
                "arguments": _encode(c.args).decode(),
            }
            for c in message.tool_calls
        ]
        items: list[JsonObject] = []
        remaining = iter(calls)
        for kept in self._kept_items(message) or ():
            if kept["type"] == "message":
                text = message.content[kept["start"] : kept["end"]]
                items += _said(text, {"phase": kept["phase"]} if "phase" in kept else {})
            else:
                items.append(next(remaining) if kept["type"] == "function_call" else kept)
        items = items or [*_said(message.content), *calls]
        return items or _said(NO_TEXT)

    def _kept_items(self, message: AssistantMessage) -> list[JsonObject] | None:
        """Return the items of a message of this model on this server, if it still says what they say."""
        if not self.send_reasoning:
            return None
        own = own_data(message, KEY, server=self._server, model=self.model)
        items: list[JsonObject] = own.get("items") or []
        texts = [item for item in items if item["type"] == "message"]
        asked = sum(item["type"] == "function_call" for item in items)
        return items if still_says(message, texts, asked) else None

    # ------------------------------------------------------------ response

    def reader(self, request: LLMRequest, emit: EmitDelta | None) -> ResponsesReader:
        names = prepared(request, f"{self._key}/names", None, lambda: real_names(request.tools))
        return ResponsesReader(Assembly(emit), self.model, self._server, names)

    def map_error(self, status: int, body: bytes, retry_after: float | None) -> LLMError:
        """Return the error of a refusal. Its text holds nothing of the body."""
        error = told_error(body)
        return refusal(status, error if isinstance(error, dict | str) else None, retry_after)


def convert_tools(tools: Sequence[ToolSchema]) -> list[JsonObject]:
    """Return the tools in this API's form.

    `strict` is said because the API's default is true, which makes every property required
    (https://platform.openai.com/docs/guides/function-calling#strict-mode). The top of a schema must be
    an object without a choice (langchain-ai/langchainjs#9804).
    """
    return [
        {
            "type": "function",
            "name": wire_name(tool.name),
            "description": tool.description,
            "parameters": object_schema(tool.input_schema),
            "strict": False,
        }
        for tool in tools
    ]


def convert_tool_choice(choice: str) -> str | JsonObject:
    """`auto`, `none` and `required` are the API's words, too; any other text is a tool's name."""
    named = choice not in ("auto", "none", "required")
    return {"type": "function", "name": wire_name(choice)} if named else choice


def convert_output_schema(schema: JsonObject) -> JsonObject:
    """Return the format of an answer; it is held to the schema where that is in the strict subset."""
    strict = strict_schema(schema)
    named: JsonObject = {"type": "json_schema", "name": "output", "schema": strict or schema}
    return {**named, "strict": strict is not None}


def convert_part(part: ContentPart) -> JsonObject:
    """Return a part of a user's message; a sound, which the API does not take, is named in words.

    Source: https://developers.openai.com/api/docs/guides/file-inputs.
    """
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    kind, data = media_type(part), inline_data(part)
    if isinstance(part, AudioPart) or kind.startswith("audio/"):
        return {"type": "input_text", "text": not_shown("sound", part.name or kind)}
    url = part.url if data is None else f"data:{kind};base64,{data}"
    if isinstance(part, ImagePart) or kind.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if data is None:
        return {"type": "input_file", "file_url": url}
    name = part.name or f"file{mimetypes.guess_extension(kind) or ''}"
    return {"type": "input_file", "filename": name, "file_data": url}


def _said(text: str, more: JsonObject | None = None) -> list[JsonObject]:
    return [{"role": "assistant", "content": text, **(more or {})}] if text else []
