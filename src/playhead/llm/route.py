"""A model behind the chat route of a server: `POST /api/agent/chat` with `{messages, context}`.

The server has the model, its key, the instructions and the tool schemas; this side has the
conversation and the tools themselves. A server that knows only `{content, toolCalls}` is understood
as well.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from playhead import http
from playhead.encode import message_bytes, scrub, total_json
from playhead.errors import (
    AuthError,
    BadRequestError,
    ConfigError,
    ContextTooLongError,
    LLMError,
    LLMTimeoutError,
    ModelNotFoundError,
    OverloadedError,
    ProtocolError,
    RateLimitError,
)
from playhead.events import Attempt, EmitDelta, LLMDelta, ReasoningDelta, TextDelta
from playhead.ids import new_id
from playhead.llm.arguments import make_call
from playhead.llm.call import call
from playhead.llm.lenient import decode_lenient
from playhead.llm.structured import OutputWay
from playhead.types import AssistantMessage, JsonObject, LLMRequest, LLMResult, ToolCall, Usage

_WHO = "The chat route"
_MAX_ERROR = 500
# Those of the tree alone: what others derive depends on what was imported before.
_BY_CODE = {cls.code: cls for cls in LLMError.__subclasses__() if cls.__module__ == LLMError.__module__}
_BY_STATUS: dict[int, type[LLMError]] = {
    401: AuthError,
    403: AuthError,
    404: ModelNotFoundError,
    408: LLMTimeoutError,
    413: ContextTooLongError,
    429: RateLimitError,
    504: LLMTimeoutError,
}


class _Call(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    args: Any = None
    error: str | None = None


class _Reply(msgspec.Struct, rename="camel"):
    content: str | UnsetType | None = UNSET
    tool_calls: list[_Call] | None = None
    message: JsonObject | None = None
    usage: Usage | None = None
    error: str | None = None
    code: str | None = None


_decode_delta = msgspec.json.Decoder(LLMDelta).decode
_DELTAS = ("text_delta", "reasoning_delta", "tool_call_start", "tool_call_delta", "attempt")


class RouteLLM:
    """An `AgentLLM` that posts to a chat route. It sends messages and context, and no tools or system.

    Args:
        url: the address of the route, such as `http://127.0.0.1:8765/api/agent/chat`.
        headers: what the server asks for besides, such as `Authorization`.

    Raises `ConfigError` for what is no address. It never retries.
    """

    provider = "route"

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not the address of a chat route: give http(s)://host/path.")
        self.url = url
        self._headers = {**(headers or {}), "Content-Type": "application/json"}

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """One call of the route. Raises an `LLMError` whose text is what the route said."""
        return await call(self, request, emit)

    def can_stream(self, request: LLMRequest) -> bool:
        return True

    def output_way(self, request: LLMRequest) -> OutputWay:
        # The instructions are the server's. What does not fit is complained of in the conversation.
        return OutputWay("prompt")

    def build_request(self, request: LLMRequest, stream: bool) -> http.HttpRequest:
        body = [b'{"messages":[', b",".join(map(message_bytes, request.messages)), b"]"]
        if request.context is not None:
            body += (b',"context":', total_json(request.context))
        accept = "text/event-stream" if stream else "application/json"
        headers = {**self._headers, "Accept": accept}
        return http.HttpRequest(
            self.url, headers, b"".join((*body, b"}")), request.timeout, request.total_timeout
        )

    def parse_response(self, request: LLMRequest, body: bytes, emit: EmitDelta | None = None) -> LLMResult:
        """Read a whole reply. Raises `ProtocolError` for one without content, calls and message."""
        return _result(_reply(body))

    def reader(self, request: LLMRequest, emit: EmitDelta) -> "_Reader":
        return _Reader(emit)

    def map_error(self, status: int, body: bytes, retry_after: float | None) -> LLMError:
        """Return the error that the route told, or that its status means."""
        try:
            reply = msgspec.json.decode(body, type=_Reply)
        except (msgspec.DecodeError, UnicodeError):
            reply = _Reply()
        return _error(reply, status, retry_after)


class _Reader:
    """Reads the stream of one reply: deltas, then exactly one `message` or `error`."""

    def __init__(self, emit: EmitDelta) -> None:
        self._emit = emit
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._whole: LLMResult | None = None

    @property
    def empty(self) -> bool:
        return self._whole is None and not (self._text or self._reasoning)

    def take(self, name: str, data: bytes) -> None:
        if self._whole is not None:
            return
        if name == "message":
            self._whole = _result(_reply(data))
        elif name == "error":
            raise _error(_reply(data), None, None)
        elif name in _DELTAS:
            self._take_delta(_delta(data))

    def _take_delta(self, delta: LLMDelta) -> None:
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._reasoning.append(delta.text)
        elif isinstance(delta, Attempt):
            if delta.number <= 1:
                return  # the first attempt is opened on this side
            self._text.clear()
            self._reasoning.clear()
        self._emit(delta)

    def result(self) -> LLMResult:
        if self._whole is not None:
            return self._whole
        # A call that was not told whole is not told at all: it must not look like one to run.
        reasoning = "".join(self._reasoning) or None
        message = AssistantMessage("".join(self._text), (), reasoning, "interrupted")
        return LLMResult(message, "interrupted")


def _reply(data: bytes) -> _Reply:
    try:
        return msgspec.json.decode(data, type=_Reply)
    except (msgspec.DecodeError, UnicodeError):
        reply: _Reply = decode_lenient(data, _Reply, _WHO)
        return reply


def _delta(data: bytes) -> LLMDelta:
    try:
        return _decode_delta(data)
    except (msgspec.DecodeError, UnicodeError):
        raise ProtocolError(f"{_WHO} sent an event that cannot be read.") from None


def _result(reply: _Reply) -> LLMResult:
    message = _message(reply)
    stop = message.stop_reason or ("tool_calls" if message.tool_calls else "stop")
    return LLMResult(message, stop, reply.usage or Usage())


def _message(reply: _Reply) -> AssistantMessage:
    if reply.message is not None:
        try:
            whole = msgspec.convert({**reply.message, "role": "assistant"}, AssistantMessage)
        except msgspec.ValidationError:
            pass  # the plain fields beside it say what matters
        else:
            return replace(whole, tool_calls=tuple(_with_id(call) for call in whole.tool_calls))
    if reply.content is UNSET and reply.tool_calls is None:
        if reply.error is not None:
            raise _error(reply, None, None)
        raise ProtocolError(f"{_WHO} answered with neither content nor toolCalls. Is the address right?")
    calls = tuple(
        replace(made, error=given.error or made.error)
        for given in reply.tool_calls or ()
        for made in (make_call(given.id or new_id(), given.name or "", given.args),)
    )
    return AssistantMessage(reply.content or "", calls)


def _with_id(call: ToolCall) -> ToolCall:
    return call if call.id else replace(call, id=new_id())


def _error(reply: _Reply, status: int | None, retry_after: float | None) -> LLMError:
    code = reply.code if re.fullmatch(r"[a-z_]{1,40}", reply.code or "") else ""
    text = scrub(reply.error or "")[:_MAX_ERROR].strip()
    if not text:
        text = f"{_WHO} failed." if status is None else f"{_WHO} answered {status}. Is the address right?"
    cls = _BY_CODE.get(code or "") or _BY_STATUS.get(status or 0)
    if cls is None:
        cls = BadRequestError if 400 <= (status or 500) < 500 else OverloadedError
    error = cls(text, status=status, retry_after=retry_after)
    error.code = code or cls.code
    return error
