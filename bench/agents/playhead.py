"""This project, by its public names only."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from bench.task import FILL, PROMPT, SYSTEM, exchange, get_weather
from playhead import (
    AgentLLM,
    AgentLoop,
    AIRouter,
    AssistantMessage,
    ChatMessage,
    Event,
    LLMRequest,
    LoopOptions,
    ToolCall,
    ToolMessage,
    ToolRegistry,
    UserMessage,
    connect,
    tool,
)

Call = Callable[[], Awaitable[None]]


class Agent:
    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.tool = tool(get_weather)
        self.loops: dict[str, AgentLoop] = {}

    def model(self, name: str) -> AgentLLM:
        return connect(provider="openai-compatible", model=name, api_key="sk-fake", base_url=self.base_url)

    def loop(self, model: str) -> AgentLoop:
        if model not in self.loops:
            options = LoopOptions(max_steps=10_000)
            self.loops[model] = AgentLoop(
                self.model(model), tools=[self.tool], system=SYSTEM, options=options
            )
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

    async def listen(self, model: str) -> str:
        texts: list[str] = []

        def take(event: Event) -> None:
            if event.type == "text_delta":
                texts.append(event.text)

        await self.loop(model).run(PROMPT, emit=take)
        return "".join(texts)

    def calls(self, model: str) -> tuple[Call, Call]:
        """One call of a bare model, and the same through a router of three."""
        bare = self.model(model)
        request = LLMRequest([UserMessage(PROMPT)], tools=ToolRegistry([self.tool]).to_tool_schemas())
        routed = AIRouter([bare, *(self.model(f"{model}-l{n}") for n in (1, 2))])
        return partial(_asked, bare, request), partial(_asked, routed, request)

    async def close(self) -> None:
        pass


async def _asked(llm: AgentLLM, request: LLMRequest) -> None:
    result = await llm.generate(replace(request, memo={}))
    assert result.message.content


def _message(kind: str, text: str) -> ChatMessage:
    if kind == "call":
        call = ToolCall(id=text, name="get_weather", args={"city": "Paris", "days": 2})
        return AssistantMessage(content="", tool_calls=[call])
    if kind == "tool":
        return ToolMessage(tool_call_id=text, tool_name="get_weather", content=FILL)
    return UserMessage(content=text) if kind == "user" else AssistantMessage(content=text)
