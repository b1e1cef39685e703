"""A durable process: `python -m tests.session.durable.working URL FOLDER` does what lines of JSON on its
stdin say, and tells what happens as lines of JSON."""

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

from playhead import AgentLoop, tool
from playhead.encode import error_text
from playhead.errors import PlayheadError, StoreError
from playhead.events import EmitDelta, TextDelta
from playhead.session.sessions import Sessions
from playhead.types import (
    AssistantMessage,
    LLMRequest,
    LLMResult,
    ToolCall,
    ToolContext,
    ToolMessage,
    UserMessage,
)
from tests.session.clients import Client


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


class Gates:
    """What is held back in all processes of a test until it is let go, and a note of what was begun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def held(self, name: str) -> None:
        # Another process tells nobody when it makes a file.
        while not (self.folder / name).exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def note(self, name: str, line: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(f"{line}\n")


class Model:
    """Answers a message; of one that begins with `act` it asks the tool first, and within the answer to one
    that begins with `hold` it is held back."""

    provider = model = "working"

    def __init__(self, gates: Gates) -> None:
        self.gates = gates

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        said = [str(m.content) for m in request.messages if isinstance(m, UserMessage)][-1]
        last = request.messages[-1]
        self.gates.note("asked", said)
        if said.startswith("act") and isinstance(last, UserMessage):
            return LLMResult(AssistantMessage("", (ToolCall("c1", "act", {}),)), "tool_calls")
        result = f", and {last.content}" if isinstance(last, ToolMessage) else ""
        answer = f"answer to {said}{result}"
        if emit is not None:
            emit(TextDelta(answer[:7]))
        tell(at="model", said=said)
        if said.startswith("hold"):
            await self.gates.held("answer")
        for at in range(7, len(answer), 3):
            if emit is not None:
                emit(TextDelta(answer[at : at + 3]))
            await asyncio.sleep(0)
        return LLMResult(AssistantMessage(answer), "stop")


class Working:
    """The sessions of this process, and what it is told to do with them."""

    def __init__(self, url: str, folder: Path) -> None:
        gates = Gates(folder)

        @tool(replay="never")
        async def act(context: ToolContext) -> str:
            """Do what must not be done twice."""
            gates.note("acted", context.idempotency_key)
            tell(at="tool")
            await gates.held("done")
            return "done"

        loop = AgentLoop(Model(gates), tools=[act])
        self.sessions = Sessions(loop, url, durable=True, flush_seconds=0.05, stop_timeout=0.5)

    async def say(self, thread: str, text: str, id: str) -> None:
        try:
            run = await self.sessions.start(thread, text, message_id=id)
        except PlayheadError as error:
            tell(of=id, failed=error.code, text=error_text(error))
        else:
            tell(of=id, run=run.run_id)

    async def read(self, run: str) -> None:
        """Read as a page does: a stream that breaks is gone on with from where it was."""
        client = Client()
        while not client.over:
            try:
                async for shown in self.sessions.shown(run, after=client.id):
                    client.take(shown)
            except StoreError:
                await asyncio.sleep(0.1)
            except AssertionError as wrong:
                tell(read=run, wrong=str(wrong))
                return
        tell(read=run, texts=list(client.texts.values()), ends=len(client.over))


async def main(url: str, folder: Path) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    working = Working(url, folder)
    tasks = set()

    async def listen() -> None:
        async for line in reader:
            command = json.loads(line)
            tasks.add(asyncio.create_task(getattr(working, command.pop("do"))(**command)))

    async with working.sessions:
        tell(at="ready")
        listening = asyncio.create_task(listen())
        await over.wait()
    listening.cancel()
    tell(at="over")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
