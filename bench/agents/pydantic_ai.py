"""A peer: a framework in wide use. Needs the package `pydantic-ai-slim[openai]`."""

from typing import Any

from pydantic_ai import Agent as Framework
from pydantic_ai import UsageLimits, messages
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.task import ARGUMENTS, FILL, PROMPT, SYSTEM, exchange, get_weather


class Agent:
    def __init__(self, base_url: str) -> None:
        self.provider = OpenAIProvider(base_url=base_url, api_key="sk-fake")
        self.agent: Any = Framework(system_prompt=SYSTEM, tools=[get_weather])
        self.models: dict[str, OpenAIChatModel] = {}

    def model(self, name: str) -> OpenAIChatModel:
        return self.models.setdefault(name, OpenAIChatModel(name, provider=self.provider))

    def history(self, count: int) -> list[Any]:
        return [_message(kind, text) for kind, text in exchange(count)]

    async def run(self, model: str, history: Any = None) -> str:
        limits = UsageLimits(request_limit=None)
        result = await self.agent.run(
            PROMPT, model=self.model(model), message_history=history, usage_limits=limits
        )
        return str(result.output)

    async def stream(self, model: str) -> str:
        async with self.agent.run_stream(PROMPT, model=self.model(model)) as result:
            return "".join([text async for text in result.stream_text(delta=True, debounce_by=None)])

    async def close(self) -> None:
        pass


def _message(kind: str, text: str) -> Any:
    if kind == "call":
        call = messages.ToolCallPart(tool_name="get_weather", args=ARGUMENTS, tool_call_id=text)
        return messages.ModelResponse(parts=[call])
    if kind == "tool":
        part = messages.ToolReturnPart(tool_name="get_weather", content=FILL, tool_call_id=text)
        return messages.ModelRequest(parts=[part])
    if kind == "user":
        return messages.ModelRequest(parts=[messages.UserPromptPart(content=text)])
    return messages.ModelResponse(parts=[messages.TextPart(content=text)])
