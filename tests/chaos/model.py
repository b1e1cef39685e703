"""What the workers of the crash test carry out: a model by script, and tools whose effects are seen
outside of the database."""

import asyncio
import json
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from playhead import tool
from playhead.events import EmitDelta, TextDelta
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    LLMResult,
    ToolCall,
    ToolContext,
    ToolMessage,
    UserMessage,
)
from tests.session.models import assert_valid

NAME = re.compile(r"\bt\d+-\d+\b")
"""What a message of the test is named, and all that it says."""

# The names of the tools are what may be done with a call whose outcome is not known.
_TOOLS: Sequence[Literal["never", "safe", "idempotency_key"]] = ("never", "safe", "idempotency_key")


class Effects:
    """A file that every process adds lines to. A line is there as soon as it is written, whole."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, **fields: Any) -> None:
        """Add a line."""
        os.write(self._file, json.dumps({"what": what, "pid": os.getpid(), **fields}).encode() + b"\n")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """Return what is in a file."""
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_tools(effects: Effects) -> list[Any]:
    """Return a tool of each kind."""

    def one(replay: Literal["never", "safe", "idempotency_key"]) -> Any:
        async def work(ms: int, context: ToolContext) -> str:
            """Do something outside of the database."""
            fields = {"tool": replay, "call": context.call_id, "key": context.idempotency_key}
            effects.write("start", **fields)
            await asyncio.sleep(ms / 1_000)
            effects.write("end", **fields)
            return done(context.call_id)

        work.__name__ = replay
        return tool(work, replay=replay)

    return [one(replay) for replay in _TOOLS]


def done(call_id: str) -> str:
    """What a tool says that was run."""
    return f"{call_id} is done"


class Scripted:
    """Calls tools in some steps, several at once, and then names all messages that it answers.

    What it does is decided by the message that its turn begins with, so it asks for the same calls when it
    is asked again: one that may not be repeated would be seen to be.
    """

    provider = model = "chaos"
    owns_attempts = True

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        try:
            assert_valid(request.messages)
        except AssertionError as error:
            self._effects.write("refused", why=str(error))
        turn = turn_of(request.messages)
        names = [name for m in turn if isinstance(m, UserMessage) for name in NAME.findall(str(m.content))]
        steps = script(names[0])
        step = sum(isinstance(message, AssistantMessage) for message in turn)
        if step < len(steps):
            text = f"Step {step + 1} of {names[0]}."
            calls = tuple(ToolCall(f"{names[0]}.{step}.{n}", *call) for n, call in enumerate(steps[step]))
        else:
            told = [m.content for m in turn if isinstance(m, ToolMessage)]
            unknown = sum("unknown" in str(content) for content in told)
            text = f"I heard {', '.join(names)}. Of {len(told)} calls, {unknown} have an unknown outcome. 🎬"
            calls = ()
        # The times are not those of the script: no two attempts go the same way.
        await asyncio.sleep(random.uniform(0.0, 0.02))
        for start in range(0, len(text), 6):
            if emit is not None:
                emit(TextDelta(text[start : start + 6]))
            await asyncio.sleep(random.uniform(0.0, 0.015))
        return LLMResult(AssistantMessage(text, calls), "tool_calls" if calls else "stop")


def turn_of(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return the messages from the one on that the last turn begins with."""
    for n in range(len(messages) - 1, 0, -1):
        before = messages[n - 1]
        ended = isinstance(before, AssistantMessage) and not before.tool_calls
        if isinstance(messages[n], UserMessage) and ended:
            return messages[n:]
    return messages


def script(name: str) -> list[list[tuple[str, dict[str, Any]]]]:
    """Return the calls of each step of a turn."""
    chance = random.Random(name)
    return [
        [(chance.choice(_TOOLS), {"ms": chance.randint(0, 60)}) for _ in range(chance.choice((1, 1, 2, 3)))]
        for _ in range(chance.choice((0, 1, 2, 3, 4)))
    ]
