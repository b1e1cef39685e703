"""This project, by its public names only."""

from collections.abc import Sequence
from typing import Any

from bench.task import FILL, PROMPT, SYSTEM, exchange, get_weather
from playhead import (
    AgentLoop,
    AssistantMessage,
    ChatMessage,
    LoopOptions,
    ToolCall,
    ToolMessage,
    UserMessage,
    connect,
    tool,
)


class Agent:
    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.tool = tool(get_weather)
        self.loops: dict[str, AgentLoop] = {}

    def loop(self, model: str) -> AgentLoop:
        if model not in self.loops:
            llm = connect(
                provider="openai-compatible", model=model, api_key="sk-fake", base_url=self.base_url
            )
            options = LoopOptions(max_steps=10_000)
            self.loops[model] = AgentLoop(llm, tools=[self.tool], system=SYSTEM, options=options)
        return self.loops[model]

    def history(self, count: int) -> Sequence[ChatMessage]:
        return [_message(kind, text) for kind, text in exchange(count)]

    async def run(self, model: str, history: Any = None) -> str:
        result = await self.loop(model).run([*(history or ()), UserMessage(content=PROMPT)])
        assert result.finish_reason == "final", result.error_message
        return result.text

    async def stream(self, model: str) -> str:
        return "".join(
            [event.text async for event in self.loop(model).stream(PROMPT) if event.type == "text_delta"]
        )

    async def close(self) -> None:
        pass


def _message(kind: str, text: str) -> ChatMessage:
    if kind == "call":
        call = ToolCall(id=text, name="get_weather", args={"city": "Paris", "days": 2})
        return AssistantMessage(content="", tool_calls=[call])
    if kind == "tool":
        return ToolMessage(tool_call_id=text, tool_name="get_weather", content=FILL)
    return UserMessage(content=text) if kind == "user" else AssistantMessage(content=text)
