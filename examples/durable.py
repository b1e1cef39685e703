"""A run that survives its process: end this with Ctrl-\\ while it works, start it again, and it goes on.

No model is needed: one of its own counts to five with a tool. Each number is counted once.
"""

import asyncio
import sys

from playhead import AgentLoop, Sessions, tool
from playhead.types import AssistantMessage, LLMResult, ToolCall, ToolMessage


@tool  # not marked: it is never begun twice
async def count(number: int) -> int:
    """Say a number, slowly."""
    print(number, flush=True)
    await asyncio.sleep(0.5)
    return number


class Counting:
    async def generate(self, request, emit=None) -> LLMResult:
        said = sum(isinstance(message, ToolMessage) for message in request.messages)
        if said < 5:
            call = ToolCall(f"count-{said}", "count", {"number": said + 1})
            return LLMResult(AssistantMessage("", (call,)), "tool_calls")
        return LLMResult(AssistantMessage("counted"), "stop")


async def main(database: str) -> None:
    async with Sessions(AgentLoop(Counting(), tools=[count]), database, durable=True) as sessions:
        # The same id finds the same run, also one that another process began.
        result = await sessions.run("user-42", "Count to five.", message_id="count-once")
        print(result.text)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///counting.db"))
