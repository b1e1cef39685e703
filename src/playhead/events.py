"""What a run tells while it goes on. A stream ends at `run_end` or `run_paused`, exactly once.

A model's deltas are these same structs, so nothing is converted on the way up. They are not frozen:
the loop stamps each one once (run, step, time), before anybody sees it.
"""

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

import msgspec

from playhead.types import AgentRunResult, AgentStep, ToolCall, ToolResult, UserMessage


class _Event(msgspec.Struct, rename="camel", omit_defaults=True, tag_field="type", kw_only=True, gc=False):
    run_id: str = ""
    step: int = 0
    at: int = 0
    seq: int | None = None


class RunStart(_Event, tag="run_start"):
    """A run began."""

    type: ClassVar[Literal["run_start"]] = "run_start"
    turn_id: str = ""


class StepStart(_Event, tag="step_start"):
    """A model call is about to be made."""

    type: ClassVar[Literal["step_start"]] = "step_start"


class TextDelta(_Event, tag="text_delta"):
    """More text of the reply; `offset` counts the characters before it."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str
    message_id: str = ""
    offset: int = 0


class ReasoningDelta(_Event, tag="reasoning_delta"):
    """More of the model's reasoning."""

    type: ClassVar[Literal["reasoning_delta"]] = "reasoning_delta"
    text: str
    message_id: str = ""
    offset: int = 0


class ToolCallStart(_Event, tag="tool_call_start"):
    """The model began to write a call."""

    type: ClassVar[Literal["tool_call_start"]] = "tool_call_start"
    call_id: str
    name: str


class ToolCallDelta(_Event, tag="tool_call_delta"):
    """More of the arguments, as text."""

    type: ClassVar[Literal["tool_call_delta"]] = "tool_call_delta"
    call_id: str
    text: str


class Attempt(_Event, tag="attempt"):
    """A model call opens. What was shown of this step before it is void. Never recorded."""

    type: ClassVar[Literal["attempt"]] = "attempt"
    number: int = 1
    reason: str = ""
    provider: str = ""
    model: str = ""


class UserMessageEvent(_Event, tag="user_message", gc=True):
    """A user message that reached the run while it went on, or that the run itself asks with."""

    type: ClassVar[Literal["user_message"]] = "user_message"
    message: UserMessage


class ToolCallEvent(_Event, tag="tool_call", gc=True):
    """A complete call, about to be run or answered."""

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    call: ToolCall


class ToolProgress(_Event, tag="tool_progress"):
    """How far a tool is: `fraction` from 0 to 1, or None when that is unknown."""

    type: ClassVar[Literal["tool_progress"]] = "tool_progress"
    call_id: str
    fraction: float | None = None
    text: str = ""


class ToolResultEvent(_Event, tag="tool_result", gc=True):
    """A call was answered."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    result: ToolResult


class StepEnd(_Event, tag="step_end", gc=True):
    """A step is complete."""

    type: ClassVar[Literal["step_end"]] = "step_end"
    result: AgentStep


class RunPaused(_Event, tag="run_paused", gc=True):
    """The run ended with calls that wait for a person or a client."""

    type: ClassVar[Literal["run_paused"]] = "run_paused"
    result: AgentRunResult


class RunEnd(_Event, tag="run_end", gc=True):
    """The run ended. On the wire its result has neither steps nor messages: they were sent."""

    type: ClassVar[Literal["run_end"]] = "run_end"
    result: AgentRunResult


LLMDelta: TypeAlias = TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta | Attempt
Event: TypeAlias = (
    RunStart
    | StepStart
    | LLMDelta
    | UserMessageEvent
    | ToolCallEvent
    | ToolProgress
    | ToolResultEvent
    | StepEnd
    | RunPaused
    | RunEnd
)
LiveEvent: TypeAlias = LLMDelta | ToolProgress
EmitDelta: TypeAlias = Callable[[LLMDelta], None]
