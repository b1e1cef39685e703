"""Anthropic's Messages API.

Source: https://docs.anthropic.com/en/api/messages. Reading the answers stands in `anthropic_reply.py`.

The API wants turns: a user's first and last, the results of all calls first in the message behind
them, no blank text anywhere, and its thinking back byte for byte, in place, or not at all. Where a
turn is missing a short one is sent, never stored.
"""

import copy
import hashlib
from collections.abc import Sequence

import msgspec

from playhead import http
from playhead.errors import LLMError
from playhead.events import EmitDelta
from playhead.llm.anthropic_blocks import THINKING
from playhead.llm.anthropic_reply import KEY, AnthropicReader, error_of
from playhead.llm.anthropic_schema import convert_output_schema
from playhead.llm.assembly import Assembly
from playhead.llm.attachments import inline_data, inline_text, media_type
from playhead.llm.codecs import real_names, safe64, wire_name
from playhead.llm.history import EncodedHistory, EncodeGroup, Group
from playhead.llm.http_model import HttpModel, told_error
from playhead.llm.kept import own_data, still_says
from playhead.llm.object_schema import object_schema
from playhead.llm.stand_ins import EMPTY_MESSAGE, GO_ON, NO_OUTPUT, NO_TEXT, NO_TOOL, not_shown, prepared
from playhead.llm.strict_schema import has_open_objects, is_recursive
from playhead.llm.structured import OutputWay
from playhead.types import (
    AssistantMessage,
    AudioPart,
    ChatMessage,
    ContentPart,
    FilePart,
    ImagePart,
    JsonObject,
    LLMRequest,
    TextPart,
    ToolMessage,
    ToolSchema,
    UserMessage,
)

DEFAULT_BASE_URL = "https://api.anthropic.com"
DEFAULT_MAX_TOKENS = 16_384
"""The API takes no request without an output limit; this one stands where the request has none."""
VERSION = "2023-06-01"

_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_MARK = b',"cache_control":{"type":"ephemeral"}}'

_encode = msgspec.json.Encoder().encode
_GO_ON = _encode({"role": "user", "content": GO_ON})


class Anthropic(HttpModel):
    """An `AgentLLM` over `POST {base_url}/v1/messages`.

    Args:
        model: the model's id.
        api_key: goes into the x-api-key header and nowhere else.
        base_url: without the version, such as `https://api.anthropic.com`.
        cache: mark the tools, the instructions and the last message for the prompt cache, so that
            the next request of the run reads what this one had. Too short a prefix is not cached,
            and costs nothing more; what is written to the cache costs a quarter more, once.
            Source: https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
        thinking: the request's `thinking` field as the API has it, such as `{"type": "adaptive"}`;
            None for the model's own default. The API takes none with a forced tool: it is then left
            out, as it is while a tool round without thinking is open and a budget is given.

    Raises `ConfigError` for a base URL that is none.
    """

    provider = "anthropic"

    def __init__(
        self,
        model: str,
        api_key: str,
        base_url: str | None = None,
        *,
        cache: bool = True,
        thinking: JsonObject | None = None,
    ) -> None:
        base = http.checked_base(base_url or DEFAULT_BASE_URL).removesuffix("/messages").removesuffix("/v1")
        self.model = model
        self.cache = cache
        self.thinking = thinking
        self.send_thinking = True
        self.send_temperature = True
        self.native_output = True
        self.url = f"{base}/v1/messages"
        self._headers = {
            "Content-Type": "application/json",
            "x-api-key": api_key,
            "anthropic-version": VERSION,
        }
        self._server = http.where(base)
        # Wire bytes are kept in the messages; thinking in them is for this model and server alone.
        self._key = f"{KEY}/{hashlib.sha256(_encode([self._server, model])).hexdigest()[:16]}"

    def repaired(self, change: JsonObject) -> "Anthropic":
        """Return the same model, without what its server refused: the `repair` of an error."""
        other = copy.copy(self)
        vars(other).update(change)
        other._key = "/".join([self._key, *sorted(change)])
        return other

    def can_stream(self, request: LLMRequest) -> bool:
        return True

    def output_way(self, request: LLMRequest) -> OutputWay:
        # https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations:
        # no recursion, and closed objects only.
        schema = request.output_schema or {}
        if self.native_output and not is_recursive(schema) and not has_open_objects(schema):
            return OutputWay("json_schema")
        # Without other tools it would be forced, which thinking does not go with.
        return OutputWay("prompt" if self.thinking is not None and not request.tools else "tool")

    # ------------------------------------------------------------ request

    def build_request(self, request: LLMRequest, stream: bool) -> http.HttpRequest:
        turns: _Turns | None = request.memo.get(self._key)
        if turns is None:
            turns = request.memo[self._key] = _Turns(self.convert_group)
        conversation, systems = turns.history.update(request.messages)
        system = "\n\n".join([request.system, *systems] if request.system else systems)
        has_calls, thinks = turns.history.has_calls, self._may_think(request, turns.asked)
        limits = (request.tool_choice, request.max_tokens, request.temperature, stream, has_calls, thinks)
        options = prepared(
            request,
            f"{self._key}/options",
            limits,
            lambda: _encode(self.convert_options(request, stream, has_calls, thinks)),
        )
        body: list[bytes | bytearray] = [options[:-1]]
        if system.strip():
            body += [b',"system":', self._system_bytes(system)]
        body += [b',"messages":[', *(conversation or [_GO_ON]), b"]}"]
        headers = self._headers if not stream else {**self._headers, "Accept": "text/event-stream"}
        return http.HttpRequest(self.url, headers, b"".join(body), request.timeout, request.total_timeout)

    def _system_bytes(self, system: str) -> bytes:
        block = _encode({"type": "text", "text": system})
        return b"[%b]" % (_marked(block) if self.cache else block)

    def _may_think(self, request: LLMRequest, asked: AssistantMessage | None) -> bool:
        """Would the API take the `thinking` field? `asked` made the calls of a round that is open."""
        if self.thinking is None or request.tool_choice not in (None, "auto", "none"):
            return False
        if self.thinking.get("type") != "enabled" or asked is None:
            return True
        # https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking: with a budget, the
        # turn of an open round must begin with thinking; another vendor's does not.
        kept = self._kept_blocks(asked)
        return bool(kept and kept[0]["type"] in THINKING)

    def convert_options(self, request: LLMRequest, stream: bool, has_calls: bool, thinks: bool) -> JsonObject:
        """Return the request's fields besides system and messages."""
        fields: JsonObject = {"model": self.model, "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS}
        if request.tools:
            fields["tools"] = convert_tools(request.tools)
            if request.tool_choice is not None:
                fields["tool_choice"] = convert_tool_choice(request.tool_choice)
        elif has_calls:
            # BerriAI/litellm#3144: calls in the history need tools in the request.
            fields |= {"tools": convert_tools([NO_TOOL]), "tool_choice": {"type": "none"}}
        if self.cache and "tools" in fields:
            fields["tools"][-1]["cache_control"] = {"type": "ephemeral"}
        if request.temperature is not None and self.send_temperature:
            fields["temperature"] = request.temperature
        if thinks:
            fields["thinking"] = self.thinking
        if request.output_schema is not None:
            # https://platform.claude.com/docs/en/build-with-claude/structured-outputs
            schema = convert_output_schema(request.output_schema)
            fields["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if stream:
            fields["stream"] = True
        return fields

    def convert_group(self, group: Group, before: Group | None, after: Group | None) -> Sequence[bytes]:
        """Return the wire messages of a group.

        Results and what the user says next are one message: where a user's group follows, that of
        the results is left open, and the user's closes it.
        """
        first, last = group[0], after is None
        if isinstance(first, UserMessage):
            blocks = b",".join(filter(None, map(self._blocks, group)))
            blocks = blocks or _encode({"type": "text", "text": EMPTY_MESSAGE})
            opening = b"" if before is not None and _has_results(before) else b'{"role":"user","content":['
            return [opening + self._marked_if(last, blocks) + b"]}"]
        pieces = [] if before is not None and _ends_in_user(before) else [_GO_ON]
        pieces.append(b'{"role":"assistant","content":[%b]}' % self._blocks(first))
        if _has_results(group):
            results = self._marked_if(last, b",".join(map(self._blocks, group[1:])))
            closing = b"" if after is not None and isinstance(after[0], UserMessage) else b"]}"
            pieces.append(b'{"role":"user","content":[' + results + closing)
        elif last:
            pieces.append(_GO_ON)
        return pieces

    def _marked_if(self, last: bool, blocks: bytes) -> bytes:
        return _marked(blocks) if last and self.cache else blocks

    def _blocks(self, message: ChatMessage) -> bytes:
        """The blocks of a message, joined. Kept in the message."""
        held: bytes | None = message.__dict__.get(self._key)
        if held is None:
            blocks = self.convert_message(message)
            held = message.__dict__[self._key] = b",".join(map(_encode, blocks))
        return held

    def convert_message(self, message: ChatMessage) -> list[JsonObject]:
        """Return a message's blocks of content; those of a user may be none."""
        if isinstance(message, AssistantMessage):
            return self._assistant_blocks(message)
        if isinstance(message, ToolMessage):
            text = message.content if message.content.strip() else NO_OUTPUT
            result = {"type": "tool_result", "tool_use_id": safe64(message.tool_call_id), "content": text}
            return [{**result, "is_error": True} if message.is_error else result]
        if isinstance(message.content, str):
            return _text_blocks(message.content)
        return [block for part in message.content for block in convert_part(part)]

    def _assistant_blocks(self, message: AssistantMessage) -> list[JsonObject]:
        calls = [
            {"type": "tool_use", "id": safe64(c.id), "name": wire_name(c.name), "input": c.args}
            for c in message.tool_calls
        ]
        blocks: list[JsonObject] = []
        remaining = iter(calls)
        for kept in self._kept_blocks(message) or ():
            if kept["type"] == "text":
                blocks += _text_blocks(message.content[kept["start"] : kept["end"]])
            else:
                blocks.append({**kept, **next(remaining)} if kept["type"] == "tool_use" else kept)
        blocks = blocks or [*_text_blocks(message.content), *calls]
        # Text behind a call is refused, and so is thinking at the end.
        blocks.sort(key=lambda block: block["type"] == "tool_use")
        if not blocks or blocks[-1]["type"] in THINKING:
            blocks += _text_blocks(NO_TEXT)
        return blocks

    def _kept_blocks(self, message: AssistantMessage) -> list[JsonObject] | None:
        """Return the blocks of a message of this model on this server, if it still says what they say."""
        if not self.send_thinking:
            return None
        own = own_data(message, KEY, server=self._server, model=self.model)
        blocks: list[JsonObject] = own.get("blocks") or []
        texts = [block for block in blocks if block["type"] == "text"]
        asked = sum(block["type"] == "tool_use" for block in blocks)
        return blocks if still_says(message, texts, asked) else None

    # ------------------------------------------------------------ response

    def reader(self, request: LLMRequest, emit: EmitDelta | None) -> AnthropicReader:
        names = prepared(request, f"{self._key}/names", None, lambda: real_names(request.tools))
        return AnthropicReader(Assembly(emit), self.model, self._server, names)

    def map_error(self, status: int, body: bytes, retry_after: float | None) -> LLMError:
        """Return the error of a refusal. Its text holds nothing of the body."""
        error = told_error(body)
        return error_of(status, error if isinstance(error, dict | str) else None, retry_after)


class _Turns:
    """The encoded history of a run, and what its last turn is: known once the history is in order."""

    def __init__(self, encode: EncodeGroup) -> None:
        self.history = EncodedHistory(self._convert)
        self.asked: AssistantMessage | None = None
        self._encode = encode

    def _convert(self, group: Group, before: Group | None, after: Group | None) -> Sequence[bytes]:
        if after is None:
            # What the user says behind results is in one message with them.
            turn = before if isinstance(group[0], UserMessage) and before is not None else group
            asked = turn[0] if _has_results(turn) else None
            self.asked = asked if isinstance(asked, AssistantMessage) else None
        return self._encode(group, before, after)


def convert_tools(tools: Sequence[ToolSchema]) -> list[JsonObject]:
    """Return the tools in this API's form."""
    return [
        {
            "name": wire_name(tool.name),
            "description": tool.description,
            "input_schema": object_schema(tool.input_schema),
        }
        for tool in tools
    ]


def convert_tool_choice(choice: str) -> JsonObject:
    """`auto`, `none` and `required` in the API's words; any other text is a tool's name."""
    words = {"auto": "auto", "none": "none", "required": "any"}
    return {"type": words[choice]} if choice in words else {"type": "tool", "name": wire_name(choice)}


def convert_part(part: ContentPart) -> list[JsonObject]:
    """Return a part of a user's message: none for blank text, a note for what no model of this API takes."""
    if isinstance(part, TextPart):
        return _text_blocks(part.text)
    kind, data = media_type(part), inline_data(part)
    source: JsonObject = {"type": "url", "url": part.url}
    if data is not None:
        source = {"type": "base64", "media_type": kind, "data": data}
    picture = isinstance(part, ImagePart) or (isinstance(part, FilePart) and kind.startswith("image/"))
    if picture and (kind in _PICTURES or data is None):
        return [{"type": "image", "source": source}]
    title = {"title": part.name} if part.name else {}
    if kind == "application/pdf":
        return [{"type": "document", "source": source, **title}]
    text = inline_text(part) if isinstance(part, FilePart) else None
    if text and text.strip():
        plain = {"type": "text", "media_type": "text/plain", "data": text}
        return [{"type": "document", "source": plain, **title}]
    what = "sound" if isinstance(part, AudioPart) else "picture" if picture else "file"
    return _text_blocks(not_shown(what, part.name or kind))


def _text_blocks(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}] if text and not text.isspace() else []


def _marked(blocks: bytes) -> bytes:
    """Mark the last of some blocks for the cache."""
    return blocks[:-1] + _MARK


def _has_results(group: Group) -> bool:
    return isinstance(group[0], AssistantMessage) and len(group) > 1


def _ends_in_user(group: Group) -> bool:
    return isinstance(group[0], UserMessage) or len(group) > 1
