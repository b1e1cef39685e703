"""The tiny agent that everybody builds: a system prompt, one tool, and a history of any length."""

from collections.abc import Iterator
from typing import Any, Literal, Protocol

SYSTEM = "You are a helpful assistant. Use the tools when they help. Answer briefly."
PROMPT = "What is the weather in Paris this week, and what should I pack for it?"
FILL = ("The quick brown fox jumps over the lazy dog while the weather is mild, with some wind. " * 3)[:200]
ARGUMENTS = '{"city":"Paris","days":2}'
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather forecast of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["city"],
        },
    },
}

Kind = Literal["user", "call", "tool", "assistant"]


async def get_weather(city: str, days: int = 1) -> str:
    """Get the weather forecast of a city."""
    return f"{city}: mild and cloudy for {days} days, 18 degrees"


class Agent(Protocol):
    """What `bench/agents/NAME.py` defines as `Agent`, made with the base URL of the fake provider."""

    def __init__(self, base_url: str) -> None: ...
    def history(self, count: int) -> Any: ...
    async def run(self, model: str, history: Any = None) -> str: ...
    async def stream(self, model: str) -> str: ...
    async def close(self) -> None: ...


def exchange(count: int) -> Iterator[tuple[Kind, str]]:
    """A history of `count` messages, a multiple of four: question, tool call, its result, answer."""
    for number in range(count // 4):
        yield "user", FILL
        yield "call", f"call_h{number}"
        yield "tool", f"call_h{number}"
        yield "assistant", FILL


def chat_messages(count: int) -> list[dict[str, Any]]:
    """That history in the form of the chat completions API."""
    out: list[dict[str, Any]] = []
    for kind, text in exchange(count):
        if kind == "call":
            function = {"name": "get_weather", "arguments": ARGUMENTS}
            call = {"id": text, "type": "function", "function": function}
            out.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "tool":
            out.append({"role": "tool", "tool_call_id": text, "content": FILL})
        else:
            out.append({"role": kind, "content": text})
    return out
