"""The same run, as events: text as it comes, calls and their results. Needs LLM_* as quickstart.py."""

import asyncio
from datetime import UTC, datetime

from playhead import AgentLoop, RunEnd, TextDelta, ToolCallEvent, ToolResultEvent, connect, tool


@tool
def today() -> str:
    """Tell today's date."""
    return datetime.now(UTC).date().isoformat()


async def main() -> None:
    loop = AgentLoop(connect(), tools=[today])
    async for event in loop.stream("What day is it?"):
        match event:
            case TextDelta():
                print(event.text, end="", flush=True)
            case ToolCallEvent():
                print(f"[calls {event.call.name} with {event.call.args}]")
            case ToolResultEvent():
                print(f"[it answers {event.result.text}]")
            case RunEnd():
                print(f"\n[{event.result.finish_reason}, {event.result.usage.output_tokens} tokens]")


asyncio.run(main())
