"""Playhead: an agent session shell, the layer between a chat surface and its models and tools.

Every public name is importable from here, and loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.errors import (
        AuthError,
        BadRequestError,
        ConfigError,
        ContentFilterError,
        ContextTooLongError,
        FatalToolError,
        LLMConnectionError,
        LLMError,
        LLMTimeoutError,
        MediaError,
        ModelNotFoundError,
        OverloadedError,
        PlayheadError,
        ProtocolError,
        QuotaError,
        RateLimitError,
        StoreError,
        ToolError,
    )
    from playhead.events import (
        Attempt,
        Event,
        LLMDelta,
        ReasoningDelta,
        RunEnd,
        RunPaused,
        RunStart,
        StepEnd,
        StepStart,
        TextDelta,
        ToolCallDelta,
        ToolCallEvent,
        ToolCallStart,
        ToolProgress,
        ToolResultEvent,
    )
    from playhead.llm.base import AgentLLM
    from playhead.loop import AgentLoop
    from playhead.options import LoopOptions
    from playhead.types import (
        AgentContext,
        AgentMessage,
        AgentRunResult,
        AgentStep,
        AssistantMessage,
        AudioPart,
        ChatMessage,
        ExecutionState,
        ExecutionStatus,
        FilePart,
        ImagePart,
        LLMRequest,
        LLMResult,
        MediaAsset,
        SystemMessage,
        TextPart,
        ToolCall,
        ToolContext,
        ToolDefinition,
        ToolMessage,
        ToolParameter,
        ToolResult,
        ToolSchema,
        Usage,
        UserMessage,
    )

_HOMES = {
    "errors": "AuthError BadRequestError ConfigError ContentFilterError ContextTooLongError FatalToolError"
    " LLMConnectionError LLMError LLMTimeoutError MediaError ModelNotFoundError OverloadedError"
    " PlayheadError ProtocolError QuotaError RateLimitError StoreError ToolError",
    "events": "Attempt Event LLMDelta ReasoningDelta RunEnd RunPaused RunStart StepEnd StepStart TextDelta"
    " ToolCallDelta ToolCallEvent ToolCallStart ToolProgress ToolResultEvent",
    "llm.base": "AgentLLM",
    "loop": "AgentLoop",
    "options": "LoopOptions",
    "types": "AgentContext AgentMessage AgentRunResult AgentStep AssistantMessage AudioPart ChatMessage"
    " ExecutionState ExecutionStatus FilePart ImagePart LLMRequest LLMResult MediaAsset SystemMessage"
    " TextPart ToolCall ToolContext ToolDefinition ToolMessage ToolParameter ToolResult ToolSchema Usage"
    " UserMessage",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'playhead' has no attribute {name!r}")
    value = getattr(import_module(f"playhead.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
