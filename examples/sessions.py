"""A thread that is kept: run it twice, and the second time it remembers. Set LLM_PROVIDER first."""

import asyncio
import sys

from playhead import AgentLoop, Sessions, connect


async def main(database: str) -> None:
    async with Sessions(AgentLoop(connect(), system="You are terse."), database) as sessions:
        run = await sessions.start("user-42", "How often did I say this?")
        async for event in sessions.events(run.run_id):
            if event.type == "text_delta":
                print(event.text, end="", flush=True)
        print(f"\n{len(await sessions.history('user-42'))} messages in the thread")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///playhead.db"))
