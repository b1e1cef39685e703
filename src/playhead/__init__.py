"""Playhead: an agent session shell, the layer between a chat surface and its models and tools.

Every public name is importable from here, and loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.config import connect as connect
    from playhead.errors import (
        AuthError as AuthError,
    )
    from playhead.errors import (
        BadRequestError as BadRequestError,
    )
    from playhead.errors import (
        ConfigError as ConfigError,
    )
    from playhead.errors import (
        ContentFilterError as ContentFilterError,
    )
    from playhead.errors import (
        ContextTooLongError as ContextTooLongError,
    )
    from playhead.errors import (
        FatalToolError as FatalToolError,
    )
    from playhead.errors import (
        LLMConnectionError as LLMConnectionError,
    )
    from playhead.errors import (
        LLMError as LLMError,
    )
    from playhead.errors import (
        LLMTimeoutError as LLMTimeoutError,
    )
    from playhead.errors import (
        MediaError as MediaError,
    )
    from playhead.errors import (
        ModelNotFoundError as ModelNotFoundError,
    )
    from playhead.errors import (
        OutputError as OutputError,
    )
    from playhead.errors import (
        OverloadedError as OverloadedError,
    )
    from playhead.errors import (
        PlayheadError as PlayheadError,
    )
    from playhead.errors import (
        ProtocolError as ProtocolError,
    )
    from playhead.errors import (
        QuotaError as QuotaError,
    )
    from playhead.errors import (
        RateLimitError as RateLimitError,
    )
    from playhead.errors import (
        StoreError as StoreError,
    )
    from playhead.errors import (
        ToolError as ToolError,
    )
    from playhead.events import (
        Attempt as Attempt,
    )
    from playhead.events import (
        Event as Event,
    )
    from playhead.events import (
        LLMDelta as LLMDelta,
    )
    from playhead.events import (
        ReasoningDelta as ReasoningDelta,
    )
    from playhead.events import (
        RunEnd as RunEnd,
    )
    from playhead.events import (
        RunPaused as RunPaused,
    )
    from playhead.events import (
        RunStart as RunStart,
    )
    from playhead.events import (
        StepEnd as StepEnd,
    )
    from playhead.events import (
        StepStart as StepStart,
    )
    from playhead.events import (
        TextDelta as TextDelta,
    )
    from playhead.events import (
        ToolCallDelta as ToolCallDelta,
    )
    from playhead.events import (
        ToolCallEvent as ToolCallEvent,
    )
    from playhead.events import (
        ToolCallStart as ToolCallStart,
    )
    from playhead.events import (
        ToolProgress as ToolProgress,
    )
    from playhead.events import (
        ToolResultEvent as ToolResultEvent,
    )
    from playhead.events import (
        UserMessageEvent as UserMessageEvent,
    )
    from playhead.ids import new_id as new_id
    from playhead.llm.attempts import AttemptPolicy as AttemptPolicy
    from playhead.llm.attempts import Target as Target
    from playhead.llm.base import AgentLLM as AgentLLM
    from playhead.llm.profiles import Profile as Profile
    from playhead.llm.router import AIClient as AIClient
    from playhead.llm.router import AIRouter as AIRouter
    from playhead.llm.window import Windowed as Windowed
    from playhead.loop import AgentLoop as AgentLoop
    from playhead.options import LoopOptions as LoopOptions
    from playhead.output import Output as Output
    from playhead.port import Inbox as Inbox
    from playhead.port import LiveContext as LiveContext
    from playhead.session.compaction import Compaction as Compaction
    from playhead.session.orchestrator import Orchestrator as Orchestrator
    from playhead.session.runs import RunHandle as RunHandle
    from playhead.session.sessions import Sessions as Sessions
    from playhead.session.stores import AgentStore as AgentStore
    from playhead.session.stores import ChatStore as ChatStore
    from playhead.storage.base import TurnStore as TurnStore
    from playhead.storage.engine import open_database as open_database
    from playhead.storage.ledger import EventLog as EventLog
    from playhead.storage.ledger import Ledger as Ledger
    from playhead.storage.memory import MemoryTurnStore as MemoryTurnStore
    from playhead.storage.memory_messages import MemoryMessageLog as MemoryMessageLog
    from playhead.storage.messages import MessageLog as MessageLog
    from playhead.tools.define import Tool as Tool
    from playhead.tools.define import tool as tool
    from playhead.tools.registry import DefinitionRegistry as DefinitionRegistry
    from playhead.tools.registry import ToolRegistry as ToolRegistry
    from playhead.types import (
        AgentContext as AgentContext,
    )
    from playhead.types import (
        AgentMessage as AgentMessage,
    )
    from playhead.types import (
        AgentRunResult as AgentRunResult,
    )
    from playhead.types import (
        AgentStep as AgentStep,
    )
    from playhead.types import (
        AssistantMessage as AssistantMessage,
    )
    from playhead.types import (
        AudioPart as AudioPart,
    )
    from playhead.types import (
        CallAnswer as CallAnswer,
    )
    from playhead.types import (
        CallRecord as CallRecord,
    )
    from playhead.types import (
        ChatMessage as ChatMessage,
    )
    from playhead.types import (
        ExecutionState as ExecutionState,
    )
    from playhead.types import (
        ExecutionStatus as ExecutionStatus,
    )
    from playhead.types import (
        FilePart as FilePart,
    )
    from playhead.types import (
        ImagePart as ImagePart,
    )
    from playhead.types import (
        LLMRequest as LLMRequest,
    )
    from playhead.types import (
        LLMResult as LLMResult,
    )
    from playhead.types import (
        MediaAsset as MediaAsset,
    )
    from playhead.types import (
        SystemMessage as SystemMessage,
    )
    from playhead.types import (
        TextPart as TextPart,
    )
    from playhead.types import (
        ToolCall as ToolCall,
    )
    from playhead.types import (
        ToolContext as ToolContext,
    )
    from playhead.types import (
        ToolDefinition as ToolDefinition,
    )
    from playhead.types import (
        ToolMessage as ToolMessage,
    )
    from playhead.types import (
        ToolParameter as ToolParameter,
    )
    from playhead.types import (
        ToolResult as ToolResult,
    )
    from playhead.types import (
        ToolSchema as ToolSchema,
    )
    from playhead.types import (
        Usage as Usage,
    )
    from playhead.types import (
        UserMessage as UserMessage,
    )

_HOMES = {
    "errors": "AuthError BadRequestError ConfigError ContentFilterError ContextTooLongError FatalToolError"
    " LLMConnectionError LLMError LLMTimeoutError MediaError ModelNotFoundError OutputError OverloadedError"
    " PlayheadError ProtocolError QuotaError RateLimitError StoreError ToolError",
    "events": "Attempt Event LLMDelta ReasoningDelta RunEnd RunPaused RunStart StepEnd StepStart TextDelta"
    " ToolCallDelta ToolCallEvent ToolCallStart ToolProgress ToolResultEvent UserMessageEvent",
    "config": "connect",
    "ids": "new_id",
    "llm.attempts": "AttemptPolicy Target",
    "llm.base": "AgentLLM",
    "llm.profiles": "Profile",
    "llm.router": "AIClient AIRouter",
    "llm.window": "Windowed",
    "loop": "AgentLoop",
    "options": "LoopOptions",
    "output": "Output",
    "port": "Inbox LiveContext",
    "session.compaction": "Compaction",
    "session.orchestrator": "Orchestrator",
    "session.runs": "RunHandle",
    "session.sessions": "Sessions",
    "session.stores": "AgentStore ChatStore",
    "storage.base": "TurnStore",
    "storage.engine": "open_database",
    "storage.ledger": "EventLog Ledger",
    "storage.memory": "MemoryTurnStore",
    "storage.memory_messages": "MemoryMessageLog",
    "storage.messages": "MessageLog",
    "tools.define": "Tool tool",
    "tools.registry": "DefinitionRegistry ToolRegistry",
    "types": "AgentContext AgentMessage AgentRunResult AgentStep AssistantMessage AudioPart CallAnswer"
    " CallRecord ChatMessage ExecutionState ExecutionStatus FilePart ImagePart LLMRequest LLMResult"
    " MediaAsset SystemMessage TextPart ToolCall ToolContext ToolDefinition ToolMessage ToolParameter"
    " ToolResult ToolSchema Usage UserMessage",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)
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
