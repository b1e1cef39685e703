"""A model, a tool, an answer. Set LLM_PROVIDER, LLM_MODEL, LLM_API_KEY (and LLM_BASE_URL) first."""

import asyncio

from playhead import AgentLoop, LoopOptions, connect, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    loop = AgentLoop(connect(), tools=[add], system="You are terse.", options=LoopOptions(max_steps=10))
    result = await loop.run("What is 2 + 3?")
    print(result.text or result.error_message)


asyncio.run(main())
