"""What the tests of the loop share: two tools, a scripted model, a check of pairs."""

from collections.abc import Sequence
from typing import Any

from playhead import (
    AgentLoop,
    AgentRunResult,
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    LLMResult,
    ToolCall,
    ToolMessage,
    connect,
    tool,
)
from playhead.events import EmitDelta
from playhead.testing import (
    FakeProvider,
    Reply,
)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def broken() -> str:
    """Fail."""
    raise ValueError("the disk is on fire")


def loop_on(server: FakeProvider, provider: str = "openai-compatible", **more: Any) -> AgentLoop:
    base = server.url if provider == "gemini" else f"{server.url}/v1"
    return AgentLoop(connect(provider, "fake-model", "sk-x", base), **{"tools": [add, broken], **more})


async def run(*replies: Reply, input: Any = "what is 2 + 3?", **more: Any) -> AgentRunResult:
    async with FakeProvider(*replies) as server:
        return await loop_on(server, **more).run(input)


def assert_pairs(messages: Sequence[ChatMessage]) -> None:
    """Every call in a history has exactly one result, after it and before the next other message."""
    open_ids: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            open_ids.remove(message.tool_call_id)
        else:
            assert not open_ids
            if isinstance(message, AssistantMessage):
                open_ids = [call.id for call in message.tool_calls]
    assert not open_ids


class Scripted:
    """A model as a list of answers, for what no wire can time."""

    def __init__(self, *answers: LLMResult | BaseException) -> None:
        self.answers = list(answers)
        self.requests: list[LLMRequest] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def calls(*names: str) -> LLMResult:
    made = [ToolCall(f"c{n}", name, {}) for n, name in enumerate(names)]
    return LLMResult(AssistantMessage("", made), "tool_calls")


def text(content: str = "done") -> LLMResult:
    return LLMResult(AssistantMessage(content), "stop")
