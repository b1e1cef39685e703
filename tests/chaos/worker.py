"""One server of the crash test, in a process of its own: `python -m tests.chaos.worker URL EFFECTS HOME`."""

import asyncio
import hashlib
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from playhead import ToolContext, ToolRegistry, tool
from playhead.config import Settings
from playhead.events import EmitDelta, TextDelta
from playhead.server import create_app
from playhead.server.listen import serve
from playhead.types import AssistantMessage, LLMRequest, LLMResult, ToolCall, ToolMessage, UserMessage

_TOOLS = (("never",), ("safe", "never"), ("key",), ("never", "safe", "key"), ())


class Model:
    """Calls tools that hang on the text of the message, then answers with the ids of all that was asked."""

    provider = model = "chaos"
    owns_attempts = True

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        await asyncio.sleep(0.02)
        turn = list(request.messages)
        last = max(n for n, message in enumerate(turn) if _begins(turn, n))
        asked = [str(message.content) for message in turn[last:] if isinstance(message, UserMessage)]
        steps = sum(isinstance(message, AssistantMessage) for message in turn[last:])
        number = hashlib.sha256(asked[0].encode()).digest()
        if steps < 1 + number[0] % 2 and (names := _TOOLS[number[1] % len(_TOOLS)]):
            calls = tuple(ToolCall(f"c{n}-{steps}", name, {"of": asked[0]}) for n, name in enumerate(names))
            return LLMResult(AssistantMessage("", calls), "tool_calls")
        words = ["re:", *asked]
        for word in words:
            if emit is not None:
                emit(TextDelta(f"{word} "))
            await asyncio.sleep(0.02)
        return LLMResult(AssistantMessage("".join(f"{word} " for word in words)), "stop")


def _begins(messages: Sequence[object], n: int) -> bool:
    # What steers a run comes behind what it did so far; a turn begins behind an answer without calls.
    if not isinstance(messages[n], UserMessage):
        return False
    before = messages[n - 1] if n else None
    return not isinstance(before, ToolMessage | UserMessage) and not (
        isinstance(before, AssistantMessage) and before.tool_calls
    )


def tools(effects: Path) -> ToolRegistry:
    """Tools whose effect is a line in a file, which no database takes back."""

    async def effect(name: str, of: str, context: ToolContext) -> str:
        _append(effects, f"{name} start {context.idempotency_key}")
        await asyncio.sleep(0.03)
        _append(effects, f"{name} end {context.idempotency_key}")
        return f"{name} of {of}"

    @tool
    async def never(of: str, context: ToolContext) -> str:
        """Must not be repeated."""
        return await effect("never", of, context)

    @tool(replay="safe")
    async def safe(of: str, context: ToolContext) -> str:
        """May be repeated."""
        return await effect("safe", of, context)

    @tool(replay="idempotency_key")
    async def key(of: str, context: ToolContext) -> str:
        """May be repeated with the same key."""
        return await effect("key", of, context)

    return ToolRegistry([never, safe, key])


def _append(path: Path, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


class _Stamped(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"{time.time():.3f} {record.levelname} {record.getMessage()}", file=sys.stderr, flush=True)


async def main(url: str, effects: str, home: str) -> None:
    """Serve until a signal."""
    logging.getLogger().addHandler(_Stamped())
    settings = Settings(home=Path(home), database=url)
    app = create_app(llm=Model(), registry=tools(Path(effects)), settings=settings, durable=True)
    await app.state.playhead.sessions.check()
    await serve(app, port=0, on_ready=lambda address: print(address, flush=True))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
