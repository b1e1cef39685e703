"""A chat route in raw bytes, and one call of it."""

from collections.abc import Sequence
from typing import Any

from playhead.events import LLMDelta
from playhead.llm.route import RouteLLM
from playhead.testing import FakeProvider, Reply
from playhead.types import ChatMessage, LLMRequest, LLMResult, UserMessage

HELLO: list[ChatMessage] = [UserMessage("Hello")]


def frames(*events: tuple[str, str]) -> list[bytes]:
    return [f"event: {name}\ndata: {data}\n\n".encode() for name, data in events]


def text_delta(text: str) -> tuple[str, str]:
    return "text_delta", f'{{"type":"text_delta","text":"{text}","at":1}}'


MESSAGE = ("message", '{"content":"Hello!","message":{"content":"Hello!","stopReason":"length"}}')


async def call(
    *replies: Reply,
    deltas: list[LLMDelta] | None = None,
    messages: Sequence[ChatMessage] = HELLO,
    **more: Any,
) -> tuple[LLMResult, FakeProvider]:
    async with FakeProvider(*replies) as server:
        llm = RouteLLM(f"{server.url}/api/agent/chat")
        emit = None if deltas is None else deltas.append
        return await llm.generate(LLMRequest(messages, **more), emit), server
