"""Every shared shape, once. Frozen msgspec structs: snake_case here, camelCase on the wire.

A turn goes from a user message to the final answer; a run is one execution of a turn; a step is
one model call and its tools. Recorded values and wire forms are the same JSON.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, ParamSpec, TypeAlias, TypeVar

import msgspec

from playhead.ids import new_id, now_ms

P = ParamSpec("P")
R = TypeVar("R")

JsonObject: TypeAlias = dict[str, Any]

ExecutionState = Literal["idle", "sending", "processing", "responding", "error"]
ExecutionStatus = ExecutionState
StopReason = Literal["stop", "length", "tool_calls", "content_filter", "interrupted", "other"]
FinishReason = Literal["final", "stop", "max_steps", "error", "cancelled", "paused"]
Replay = Literal["safe", "idempotency_key", "never"]


# ---------------------------------------------------------------- messages


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class _MediaPart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Bytes by address: a `data:` URL, or an https URL that the provider fetches itself."""

    url: str
    media_type: str = ""
    name: str = ""


class ImagePart(_MediaPart, frozen=True, tag_field="type", tag="image"):
    """A picture."""

    type: ClassVar[Literal["image"]] = "image"


class AudioPart(_MediaPart, frozen=True, tag_field="type", tag="audio"):
    """A sound."""

    type: ClassVar[Literal["audio"]] = "audio"


class FilePart(_MediaPart, frozen=True, tag_field="type", tag="file"):
    """Any other file, for example a PDF."""

    type: ClassVar[Literal["file"]] = "file"


ContentPart: TypeAlias = TextPart | ImagePart | AudioPart | FilePart


class ToolCall(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A call that the model asks for.

    `error` is set when the arguments could not be read: such a call is answered, never run.
    """

    id: str
    name: str
    args: JsonObject
    error: str | None = None


class _Message(
    msgspec.Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="role",
    kw_only=True,
    dict=True,
    weakref=True,
):
    # dict=True: an adapter keeps the message's wire bytes in the message, under its own key.
    # They are not encoded, compared or copied, and go with the message.
    id: str = msgspec.field(default_factory=new_id)
    timestamp: int = msgspec.field(default_factory=now_ms)


class SystemMessage(_Message, frozen=True, tag="system"):
    """Instructions. Never stored."""

    role: ClassVar[Literal["system"]] = "system"
    content: str


class UserMessage(_Message, frozen=True, tag="user"):
    """What a person said: text, or parts. `source` is "background" where the program says what came of
    a call that went on in the background."""

    role: ClassVar[Literal["user"]] = "user"
    content: str | Sequence[ContentPart]
    source: Literal["background"] | None = None


class AssistantMessage(_Message, frozen=True, tag="assistant"):
    """What a model said.

    `provider_metadata` holds opaque data by provider dialect (signatures, reasoning blocks); it
    stays with the message and goes back only to the dialect that made it.
    """

    role: ClassVar[Literal["assistant"]] = "assistant"
    content: str
    tool_calls: Sequence[ToolCall] = ()
    reasoning: str | None = None
    stop_reason: StopReason | None = None
    provider_metadata: JsonObject | None = None


class ToolMessage(_Message, frozen=True, tag="tool"):
    """The answer to one call, as the model reads it."""

    role: ClassVar[Literal["tool"]] = "tool"
    tool_call_id: str
    tool_name: str
    content: str
    is_error: bool = False


ChatMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
AgentMessage = ChatMessage


# ---------------------------------------------------------------- tools and context


class ToolParameter(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One parameter; `type` is a JSON Schema type name. `required` is always on the wire."""

    key: str
    type: str
    required: bool
    description: str = ""


class ToolSchema(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a model may know of a tool; nothing executable.

    `input_schema` is the whole JSON Schema of the arguments; `parameters` is derived from it.
    """

    name: str
    description: str
    parameters: Sequence[ToolParameter]
    input_schema: JsonObject = {}


class ToolResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What came of one call. `result` is ready for JSON; `text` is what the model reads.

    With `error` set, `result` is None and `text` is the error.
    """

    tool_call_id: str
    name: str
    result: Any = None
    error: str | None = None
    text: str = ""


class CallAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a person or a client says to a call that waits.

    For an approval: `approved`, and `args` to run it with others, or a `reason` for a no. For a tool
    of the client: its `result`, or an `error`.
    """

    call_id: str
    approved: bool | None = None
    args: JsonObject | None = None
    reason: str | None = None
    result: Any = None
    error: str | None = None


class MediaAsset(msgspec.Struct, frozen=True, rename="camel"):
    """A file of the project. `type` is `video`, `audio` or `image`; `duration` is in seconds."""

    id: str
    name: str
    type: str = "video"
    duration: float | None = None


class AgentContext(msgspec.Struct, frozen=True, rename="camel"):
    """What the host application shows: told to the model, handed to the tools."""

    project_id: str | None = None
    active_scene_id: str | None = None
    media_assets: Sequence[MediaAsset] = ()
    playback_time_ms: float | None = None


def _no_progress(fraction: float | None = None, text: str = "") -> None:
    pass


def _never() -> bool:
    return False


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool is handed beside its arguments, if a parameter is annotated with this class.

    `context` is the application's own, untouched. `idempotency_key` is the same each time one call
    is run again. `progress(fraction, text)` may be called from any thread. `tenant` is whose run it is,
    as `Sessions` was told: what a client put into the context proves nothing. `turn_id` is that of all
    calls between a message of the user and the answer to it.
    """

    context: Any = None
    call_id: str = ""
    idempotency_key: str = ""
    progress: Callable[..., None] = _no_progress
    is_cancelled: Callable[[], bool] = _never
    tenant: str | None = None
    turn_id: str = ""

    @property
    def cancelled(self) -> bool:
        """True once the run was stopped or the call timed out: a blocking tool should return."""
        return self.is_cancelled()


@dataclass(frozen=True, slots=True, eq=False)
class ToolDefinition(Generic[P, R]):
    """A tool as a registry holds it: what `@tool` and `Tool(...)` make.

    `validate` takes the arguments as the model gave them and returns what `run` takes, or raises
    `ToolError` naming each offending argument. `timeout` is in seconds, None for the loop's own.
    `replay` says whether a call whose outcome is unknown may run again. With `approval`, or where it
    says so of the arguments and the context, a person is asked first; with `client`, the front end
    executes the call. Both end the run as `paused`. `background` is for how many seconds a run waits
    for a call before it goes on without (see `playhead.session.jobs`), None for as long as it takes.
    """

    name: str
    description: str
    parameters: Sequence[ToolParameter]
    input_schema: JsonObject
    validate: Callable[[JsonObject], Any]
    run: Callable[[Any, ToolContext], Awaitable[Any]]
    function: Callable[P, R]
    timeout: float | None = None
    replay: Replay = "never"
    approval: bool | Callable[[JsonObject, Any], bool] = False
    client: bool = False
    background: float | None = None

    async def execute(self, args: JsonObject, context: Any = None) -> Any:
        """Validate and run. `context` is the application's own, or a `ToolContext` around it."""
        prepared = self.validate(args)
        wrapped = context if isinstance(context, ToolContext) else ToolContext(context)
        return await self.run(prepared, wrapped)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


# ---------------------------------------------------------------- model calls


class Usage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Tokens and cost of a response or a run. None is unknown, never zero.

    `input_tokens` includes tool-use prompt tokens and those that were read from a cache
    (`cached_tokens`) or written to one, `output_tokens` includes reasoning. Cost is in millionths of
    a dollar; `playhead.llm.prices.Priced` fills it in.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_micro_usd: int | None = None
    cache_write_tokens: int | None = None


ToolChoice: TypeAlias = str  # "auto", "none", "required", or a tool's name


class LLMRequest(msgspec.Struct, frozen=True, rename="camel"):
    """One call of a model. It names no model: a router picks among `AgentLLM`s.

    `system` goes first; SystemMessages in `messages` follow it in order. `timeout` bounds the
    first byte and each silence between bytes, `first_token_timeout` the wait for the first content
    of a stream (keep-alives do not count), `total_timeout` the whole call, in seconds.
    `context` is filled by the loop and read only by a model behind a route. `memo` is the
    adapter's scratch for one run; it holds the encoded prefix. `tenant` is whose run it is, for a
    `prepare_step` or a router; no provider is told.
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[ToolSchema] = ()
    system: str | None = None
    context: AgentContext | None = None
    tool_choice: ToolChoice | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    timeout: float | None = 60.0
    total_timeout: float | None = None
    output_schema: JsonObject | None = None
    memo: dict[str, Any] = {}
    first_token_timeout: float | None = None
    tenant: str | None = None


class LLMResult(msgspec.Struct, frozen=True, rename="camel"):
    """What a model answered. `usage` is always there; its fields may be unknown."""

    message: AssistantMessage
    stop_reason: StopReason = "stop"
    usage: Usage = Usage()
    provider: str = ""
    model: str = ""
    latency_ms: int = 0


CallStatus = Literal[
    "success", "rate_limited", "timeout", "error", "parse_error", "skipped_open", "skipped_budget"
]


class CallRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One attempt of a model call, or one that was skipped.

    `error_kind` is the error's code; `error_message` is cut at 500 characters and holds no secret.
    """

    task: str
    provider: str
    model: str
    status: CallStatus
    created_at: int
    http_status: int | None = None
    latency_ms: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_micro_usd: int | None = None
    error_kind: str | None = None
    error_message: str | None = None
    tenant_id: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None


# ---------------------------------------------------------------- steps and runs


class AgentStep(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One model call and its tools. `step_index` is 1-based."""

    step_index: int
    assistant_message: AssistantMessage
    tool_results: Sequence[ToolMessage] = ()
    provider: str | None = None
    model: str | None = None
    latency_ms: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    usage: Usage | None = None


class AgentRunResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How a run ended.

    `text` is the last assistant text, partial text of a cut answer included. `stop_reason` is that
    of the last response, so a cut answer is `final` with `length`, never plain. `messages` are those
    that the run added to the history it was given. `error_code` is stable, `error_message` is for
    people. `pending` holds calls that wait for a person or a client. `output` is the value of the text
    where the loop has an `output_type`: an instance of that type in this process, JSON on the wire.
    """

    turn_id: str
    finish_reason: FinishReason
    text: str = ""
    steps: Sequence[AgentStep] = ()
    stop_reason: StopReason | None = None
    error_message: str | None = None
    error_code: str | None = None
    usage: Usage = Usage()
    messages: Sequence[ChatMessage] = ()
    pending: Sequence[ToolCall] = ()
    output: Any = None
