"""A conversation begun on one adapter goes on at every other, however strict that one is.

What one provider said in confidence (reasoning, thinking, signatures) goes back to it, and to nobody else.
"""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from playhead import AgentLoop, ChatMessage, LoopOptions, UserMessage, tool
from playhead.events import EmitDelta
from playhead.llm.anthropic import Anthropic
from playhead.llm.gemini import Gemini
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.openai_responses import OpenAIResponses
from playhead.llm.profiles import Profile
from playhead.testing import FakeProvider, Reply, reply_json
from playhead.testing.anthropic import anthropic_message
from playhead.testing.responses import responses_message
from playhead.types import LLMRequest, LLMResult, ToolMessage
from tests.llm.strictest import BUDGET, LONG, REASONING, STRICTEST
from tests.support.invariants import KEY, play
from tests.support.strict_apis import Issued, StrictProvider, check_anthropic, check_gemini, check_openai
from tests.support.strict_responses import check_responses


@tool(name=LONG)
async def tide(port: str, day: int | None = None) -> str:
    """Say when the tide is high."""
    return f"high at {port}"


@tool
async def now() -> str:
    """Say what time it is."""
    return "noon"


Call = tuple[str, dict[str, Any]]
Steps = Callable[[str, Issued], Iterator[Reply]]


def steps(secret: str) -> list[tuple[str, str, list[Call]]]:
    """Text, reasoning and calls of each answer in a turn: two calls at once, the same tool twice, an end."""
    return [
        ("Let me see.", f"{secret}-1", [(LONG, {"port": "Ü", "day": 1}), (LONG, {"port": "b"})]),
        ("", f"{secret}-2", [("now", {}), (LONG, {"port": "c"})]),
        ("", f"{secret}-3", [("now", {})]),
        ("That is all.", f"{secret}-4", []),
    ]


def openai_steps(secret: str, issued: Issued, limit: int = 64) -> Iterator[Reply]:
    for text, thought, calls in steps(secret):
        issued.texts.add(thought)
        extra = {"extra_content": {"google": {"thought_signature": thought}}}
        issued.parts.append(extra)
        wire = [
            # Ids that start again with each answer, in an alphabet that others refuse.
            {
                **(extra if not n else {}),
                "id": f"functions.{name[:limit]}:{n}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(args)},
            }
            for n, (name, args) in enumerate(calls)
        ]
        message = {"role": "assistant", "content": text or None, "reasoning_content": thought}
        finish = "tool_calls" if calls else "stop"
        yield reply_json({"choices": [{"message": {**message, "tool_calls": wire}, "finish_reason": finish}]})


def gemini_steps(secret: str, issued: Issued) -> Iterator[Reply]:
    for text, thought, calls in steps(secret):
        parts: list[Any] = [{"text": thought, "thought": True}]
        if text:
            parts.append({"text": text, **({} if calls else {"thoughtSignature": thought})})
        for n, (name, args) in enumerate(calls):
            call = {
                "functionCall": {"name": name, "args": args, **({"id": f"g-{n}"} if len(calls) > 1 else {})}
            }
            parts.append({**call, **({} if n else {"thoughtSignature": thought})})
        issued.parts += parts
        yield reply_json(
            {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
        )


def anthropic_steps(secret: str, issued: Issued) -> Iterator[Reply]:
    for text, thought, calls in steps(secret):
        blocks: list[Any] = [
            {"type": "thinking", "thinking": thought, "signature": thought},
            {"type": "redacted_thinking", "data": thought},
            *([{"type": "text", "text": text}] if text else []),
            *(
                {"type": "tool_use", "id": f"toolu_{thought[-1]}_{n}", "name": name, "input": args}
                for n, (name, args) in enumerate(calls)
            ),
        ]
        issued.parts += blocks
        yield anthropic_message(*blocks, stop_reason="tool_use" if calls else "end_turn")


def responses_steps(secret: str, issued: Issued) -> Iterator[Reply]:
    for text, thought, calls in steps(secret):
        said = {"type": "message", "id": "msg", "content": [{"type": "output_text", "text": text}]}
        items: list[Any] = [reasoned(thought, 0)]
        items += [{**said, "phase": "commentary" if calls else "final_answer"}] if text else []
        for n, (name, args) in enumerate(calls):
            # The model thinks between two calls as well.
            call = {"type": "function_call", "id": f"fc_{n}", "name": name, "arguments": json.dumps(args)}
            items += [*([reasoned(thought, n)] if n else []), {**call, "call_id": f"call_{thought[-1]}_{n}"}]
        issued.parts += [item for item in items if item["type"] == "reasoning"]
        yield responses_message(*({**item, "status": "completed"} for item in items))


def reasoned(thought: str, n: int) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": thought}]
    return {"type": "reasoning", "id": f"rs_{n}", "summary": summary, "encrypted_content": f"{thought}-{n}"}


@dataclass
class Vendor:
    """A provider with a memory of what it gave out."""

    name: str
    make: Callable[[str], Any]
    check: Callable[[Any, Issued], None]
    steps: Steps
    issued: Issued = field(default_factory=Issued)

    def __post_init__(self) -> None:
        self.strict = StrictProvider(lambda body: self.check(body, self.issued))
        self.secret = f"SECRET-{self.name}"

    def answer(self, only: int | None = None) -> None:
        """Prepare the answers of a turn, or the one of a step."""
        replies = list(self.steps(self.secret, self.issued))
        self.strict.replies += replies if only is None else [replies[only]]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeProvider]:
        async with FakeProvider(default=self.strict) as server:
            self.llm = self.make(server.url)
            yield server


def openai_like(profile: Profile | None) -> tuple[Callable[[str], Any], Callable[[Any, Issued], None]]:
    known = profile or Profile(name="default")
    return (
        lambda url: OpenAICompatible("m", KEY, f"{url}/v1", profile=known),
        lambda body, issued: check_openai(body, known, issued),
    )


def vendor(name: str) -> Vendor:
    profiles = {"openai": None, "openai-strictest": STRICTEST, "openai-reasoning": REASONING}
    if name in profiles:
        return Vendor(name, *openai_like(profiles[name]), openai_steps)
    if name == "gemini":
        return Vendor(name, lambda url: Gemini("m", KEY, url), check_gemini, gemini_steps)
    if name == "openai-responses":
        return Vendor(name, lambda url: OpenAIResponses("m", KEY, url), check_responses, responses_steps)
    thinking = BUDGET if name == "anthropic-budget" else None
    return Vendor(
        name, lambda url: Anthropic("m", KEY, url, thinking=thinking), check_anthropic, anthropic_steps
    )


NAMES = [
    *("openai", "openai-strictest", "openai-reasoning", "openai-responses"),
    *("gemini", "anthropic", "anthropic-budget"),
]
PAIRS = list(itertools.product(NAMES, NAMES))


@contextlib.asynccontextmanager
async def two(origin: str, target: str) -> AsyncIterator[tuple[Vendor, Vendor]]:
    """Two vendors at work; at the end, nobody has refused anything or got another's secrets."""
    first = vendor(origin)
    second = vendor(target) if target != origin else first
    async with contextlib.AsyncExitStack() as stack:
        at_work = {first.name: first, second.name: second}.values()
        servers = [(one, await stack.enter_async_context(one.serving())) for one in at_work]
        yield first, second
    for one, server in servers:
        assert one.strict.refusals == []
        assert one.strict.replies == []
        sent = b"".join(request.body for request in server.requests).decode()
        for other in {first.name, second.name} - {one.name}:
            assert f"SECRET-{other}" not in sent.replace(one.secret, ""), (
                f"{one.name} got a secret of {other}"
            )


@pytest.mark.anyio
@pytest.mark.parametrize(("origin", "target"), PAIRS)
async def test_a_conversation_goes_on_at_every_other(origin: str, target: str) -> None:
    """Issue 3: with tools and parallel calls, through the store, there and back."""
    async with two(origin, target) as (first, second):
        history: list[ChatMessage] = []
        for one, said in ((first, "one"), (second, "two"), (first, "three"), (second, "four")):
            one.answer()
            loop = AgentLoop(one.llm, tools=[tide, now], system="Be terse.", options=LoopOptions(retries=0))
            played = await play(loop, [*history, UserMessage(said)])
            assert (played.result.finish_reason, played.result.text) == ("final", "That is all.")
            history = list(played.messages)
        results = [m.content for m in history if isinstance(m, ToolMessage)]
        assert results == ["high at Ü", "high at b", "noon", "high at c", "noon"] * 4


class Alternating:
    """A model that is another one in each step of a turn, as a router is when providers fail."""

    owns_attempts = True

    def __init__(self, *vendors: Vendor) -> None:
        self.vendors = list(vendors)

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        result: LLMResult = await self.vendors.pop(0).llm.generate(request, emit)
        return result


@pytest.mark.anyio
@pytest.mark.parametrize(("origin", "target"), PAIRS)
async def test_a_turn_goes_on_at_every_other(origin: str, target: str) -> None:
    """Q119: in the middle of a turn, with calls open that another model made; and back within it."""
    async with two(origin, target) as (first, second):
        order = [first, second, first, second]
        for n, one in enumerate(order):
            one.answer(only=n)
        loop = AgentLoop(Alternating(*order), tools=[tide, now])
        played = await play(loop, "go")
        assert (played.result.finish_reason, played.result.text) == ("final", "That is all.")
        assert played.outputs == ["high at Ü", "high at b", "noon", "high at c", "noon"]
