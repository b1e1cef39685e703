"""A conversation begun on one adapter goes on at every other, however strict that one is.

What one provider said in confidence (reasoning, thinking, signatures) goes back to it, and to nobody else.
"""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playhead import AgentLoop, ChatMessage, LoopOptions, UserMessage, tool
from playhead.events import EmitDelta
from playhead.llm.anthropic import Anthropic
from playhead.llm.gemini import Gemini
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import Profile
from playhead.testing import FakeProvider, Reply, reply_json
from playhead.testing.anthropic import anthropic_message
from playhead.types import AssistantMessage, LLMRequest, LLMResult, SystemMessage, ToolMessage, ToolSchema
from tests.support.invariants import KEY, play, stored_again
from tests.support.strict_apis import Issued, StrictProvider, check_anthropic, check_gemini, check_openai

LONG = "look_up_the_time_of_high_and_low_water_at_a_port_of_the_north_sea"[:64]
STRICTEST = Profile(
    name="strictest",
    assistant_empty="placeholder",
    needs_assistant_after_tool=True,
    merge_users=True,
    tool_choice="none",
    stream_tools=False,
    id_codec="alnum9",
    max_tool_name=40,
    schema_dialect="openapi",
    needs_tools_with_tool_history=True,
)
REASONING = Profile(name="reasoning", replay_reasoning="always", assistant_empty="null", id_codec="short40")
BUDGET = {"type": "enabled", "budget_tokens": 1024}


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
    thinking = BUDGET if name == "anthropic-budget" else None
    return Vendor(
        name, lambda url: Anthropic("m", KEY, url, thinking=thinking), check_anthropic, anthropic_steps
    )


NAMES = ["openai", "openai-strictest", "openai-reasoning", "gemini", "anthropic", "anthropic-budget"]
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


# ---------------------------------------------------------------- any history

TOOLS = [
    ToolSchema(LONG, "Tides.", [], {"type": "object", "properties": {"port": {"type": "string"}}}),
    ToolSchema("files.read", "Read.", [], {"anyOf": [{"properties": {"a": {"type": ["string", "null"]}}}]}),
]
TEXTS = st.sampled_from(["", " ", "\n", "hi", "é🎬", "a\n\nb", "</think>", '"}]}'])
IDS = st.sampled_from(["a", "b", "a-2", "", "x:1", "é", "y" * 80])
NAMED = st.sampled_from(["f", LONG, "files.read", "", "2nd", "ünï"])
ARGS = st.sampled_from([{}, {"port": "é"}, {"z": 1, "a": [None, {"b": 1.5}]}])
SIGNED = st.sampled_from(["", "S1", "S2/+="])
CALLED = st.lists(st.tuples(IDS, NAMED, ARGS, SIGNED), max_size=3)


@st.composite
def gemini_bodies(draw: st.DrawFn) -> Any:
    parts: list[Any] = []
    for text, signature in draw(st.lists(st.tuples(TEXTS, SIGNED), max_size=2)):
        parts.append({"text": text, **({"thoughtSignature": signature} if signature else {})})
    for id, name, args, signature in draw(CALLED):
        call = {"functionCall": {"name": name, "args": args, **({"id": id} if id else {})}}
        parts.append({**call, **({"thoughtSignature": signature} if signature else {})})
    return {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}


@st.composite
def anthropic_bodies(draw: st.DrawFn) -> Any:
    blocks: list[Any] = []
    for text, signature in draw(st.lists(st.tuples(TEXTS, SIGNED), max_size=3)):
        blocks.append(
            {"type": "thinking", "thinking": text, "signature": signature}
            if signature
            else {"type": "text", "text": text}
        )
    for id, name, args, _ in draw(CALLED):
        blocks.append({"type": "tool_use", "id": id, "name": name, "input": args})
    return {
        "content": draw(st.permutations(blocks)),
        "stop_reason": draw(st.sampled_from(["end_turn", "tool_use", "refusal"])),
    }


@st.composite
def openai_bodies(draw: st.DrawFn) -> Any:
    calls = [
        {
            "id": id,
            "function": {"name": name, "arguments": json.dumps(args)},
            **({"extra": signature} if signature else {}),
        }
        for id, name, args, signature in draw(CALLED)
    ]
    message = {"content": draw(TEXTS), "tool_calls": calls, "reasoning_content": draw(SIGNED)}
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


BODIES = st.one_of(
    st.tuples(st.just("gemini"), gemini_bodies()),
    st.tuples(st.just("anthropic"), anthropic_bodies()),
    st.tuples(st.just("openai"), openai_bodies()),
)
OTHERS: st.SearchStrategy[ChatMessage] = st.one_of(
    st.builds(UserMessage, TEXTS),
    st.builds(ToolMessage, IDS, NAMED, TEXTS, st.booleans()),
    st.builds(SystemMessage, TEXTS),
)
LOGS = st.lists(st.one_of(OTHERS, BODIES), max_size=9)


def issued_by(body: Any) -> Issued:
    """What the servers gave out in a body and take back."""
    parts = [p for c in body.get("candidates", ()) for p in c["content"]["parts"]]
    for choice in body.get("choices", ()):
        parts += [{"extra": c["extra"]} for c in choice["message"]["tool_calls"] if "extra" in c]
    return Issued([*parts, *body.get("content", ())])


def histories(log: Sequence[Any]) -> tuple[list[ChatMessage], dict[str, Issued]]:
    """The log as messages, and what each vendor gave out."""
    made: dict[str, Any] = {
        "gemini": Gemini("m", KEY),
        "anthropic": Anthropic("m", KEY),
        "openai": OpenAICompatible("m", KEY),
    }
    issued = {name: Issued(signs=False) for name in made}
    messages: list[ChatMessage] = []
    for item in log:
        if not isinstance(item, tuple):
            messages.append(item)
            continue
        name, body = item
        result = made[name].parse_response(LLMRequest([]), json.dumps(body).encode())
        messages.append(result.message)
        issued[name].parts += issued_by(body).parts
        issued[name].texts |= {"S1", "S2/+="} if name == "openai" else set()
    return stored_again(messages), issued


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LOGS, st.booleans(), st.sampled_from([None, "auto", "required", LONG]))
def test_any_history_is_taken_by_every_api(log: list[Any], tools: bool, choice: str | None) -> None:
    """Issue 3: whatever the log holds, the request is valid, for each adapter and the strictest profile."""
    messages, issued = histories(log)
    request: dict[str, Any] = {"tools": TOOLS if tools else (), "tool_choice": choice}
    targets: list[tuple[Any, Callable[[Any], None]]] = [
        (Gemini("m", KEY), lambda body: check_gemini(body, issued["gemini"])),
        (Anthropic("m", KEY), lambda body: check_anthropic(body, issued["anthropic"])),
        (Anthropic("m", KEY, thinking=BUDGET), lambda body: check_anthropic(body, issued["anthropic"])),
        (
            OpenAICompatible("m", KEY, profile=STRICTEST),
            lambda body: check_openai(body, STRICTEST, issued["openai"]),
        ),
        (
            OpenAICompatible("m", KEY, profile=REASONING),
            lambda body: check_openai(body, REASONING, issued["openai"]),
        ),
    ]
    for llm, check in targets:
        body = llm.build_request(LLMRequest(messages, **request), False).body
        check(json.loads(body))


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LOGS, st.lists(st.integers(0, 9), max_size=4))
def test_a_history_that_grows_makes_the_same_request(log: list[Any], cuts: list[int]) -> None:
    """Encode once: what was kept of earlier requests of the run changes nothing of the next."""
    messages, _ = histories(log)
    for llm in (Gemini("m", KEY), Anthropic("m", KEY), OpenAICompatible("m", KEY, profile=STRICTEST)):
        memo: dict[str, Any] = {}
        for cut in [*sorted(cuts), len(messages)]:
            grown = llm.build_request(LLMRequest(messages[:cut], memo=memo), False).body
            fresh = llm.build_request(LLMRequest(stored_again(messages[:cut])), False).body
            assert grown == fresh


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(LOGS)
def test_nothing_said_is_lost(log: list[Any]) -> None:
    """Issue 3: every text of a person and of a model is in the request, in order, for every adapter."""
    messages, _ = histories(log)
    said = [m.content for m in messages if isinstance(m, UserMessage | AssistantMessage)]
    for llm in (Gemini("m", KEY), Anthropic("m", KEY), OpenAICompatible("m", KEY, profile=STRICTEST)):
        body = json.loads(llm.build_request(LLMRequest(messages), False).body)
        told = _squeezed("".join(_texts(body.get("contents") or body.get("messages"))))
        place = 0
        for text in map(_squeezed, map(str, said)):
            place = told.find(text, place)
            assert place >= 0, f"{text!r} is not in {told!r}"
            place += len(text)


def _squeezed(text: str) -> str:
    """Without white space: two texts may be put together with a blank line."""
    return "".join(text.split())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("text", "content") and isinstance(inner, str):
                yield inner
            elif key not in ("thinking", "tool_calls", "functionResponse"):
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
