"""What the tests of Gemini share: answers to play, runs held to what the API refuses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from playhead import AgentLoop, ChatMessage, LoopOptions, ToolDefinition, UserMessage, tool
from playhead.llm.gemini import Gemini
from playhead.testing import FakeProvider, Reply, reply_json, sse, stream
from playhead.types import AssistantMessage, LLMRequest, ToolCall, ToolMessage
from tests.support.invariants import KEY, Played, play
from tests.support.strict_apis import Issued, StrictProvider, check_gemini

Part = dict[str, Any]
Chunk = dict[str, Any]
Turn = Sequence[Chunk] | Reply


@tool
async def tide_at(port: str = "") -> str:
    """Say when the tide is high."""
    return f"high at {port}"


@tool
async def now() -> str:
    """Say what time it is."""
    return "noon"


def chunk(*parts: Part, finish: str | None = None, **candidate: Any) -> Chunk:
    """A piece of an answer as the API sends it."""
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    reason = {"finishReason": finish} if finish else {}
    usage = {"promptTokenCount": 25, "candidatesTokenCount": 15}
    return {"candidates": [{"index": 0, **content, **reason, **candidate}], "usageMetadata": usage}


def called(name: str, args: Any = None, id: str | None = None, signature: str | None = None) -> Part:
    call = {"name": name, "args": {} if args is None else args, **({"id": id} if id else {})}
    return {"functionCall": call, **({"thoughtSignature": signature} if signature else {})}


DONE = chunk({"text": "done"}, finish="STOP")


def reply_of(turn: Turn, form: str) -> Reply:
    if isinstance(turn, Reply):
        return turn
    if form == "stream":
        return stream(sse(*turn))
    return reply_json(list(turn) if form == "list" or len(turn) != 1 else turn[0])


def issued_by(turn: Turn) -> list[Part]:
    """The parts of an answer that go back as they came."""
    if isinstance(turn, Reply):
        return []
    candidates = [c for one in turn for c in one.get("candidates") or () if c]
    parts = [p for c in candidates for p in (c.get("content") or {}).get("parts") or ()]
    objects = [part for part in parts if isinstance(part, dict)]
    return [{"text": "", **part} if set(part) == {"thoughtSignature"} else part for part in objects]


@dataclass(frozen=True)
class Seen:
    """A run, and the bodies of its requests."""

    played: Played
    bodies: list[dict[str, Any]]
    paths: list[str]

    def contents(self, request: int) -> list[tuple[str, list[Part]]]:
        return [(c["role"], c["parts"]) for c in self.bodies[request]["contents"]]


async def run(
    *turns: Turn,
    form: str = "stream",
    history: str | Sequence[ChatMessage] = "go",
    tools: Sequence[ToolDefinition[..., Any]] = (tide_at, now),
    retries: int = 1,
    then: str | None = None,
    issued: Sequence[Part] = (),
) -> Seen:
    """Play the turns of the model in one turn of the user; with `then`, in a second one, too."""
    own = Issued([*issued, *(part for turn in turns for part in issued_by(turn))])
    own.signs = any("thoughtSignature" in part for part in own.parts)
    strict = StrictProvider(lambda body: check_gemini(body, own), *(reply_of(t, form) for t in turns))
    async with FakeProvider(default=strict) as server:
        loop = AgentLoop(
            Gemini("fake-model", KEY, server.url), tools=tools, options=LoopOptions(retries=retries)
        )
        played = await play(loop, history)
        if then is not None:
            # What is stored goes on: through JSON and back.
            played = await play(loop, [*played.messages, UserMessage(then)])
    assert strict.refusals == []
    assert strict.replies == [], "not every reply was asked for"
    return Seen(played, [r.json for r in server.requests], [r.path for r in server.requests])


async def sent(messages: Sequence[ChatMessage], **fields: Any) -> dict[str, Any]:
    """The body of one request, which the strict checker has taken."""
    strict = StrictProvider(check_gemini, reply_of([DONE], "whole"))
    async with FakeProvider(default=strict) as server:
        await Gemini("fake-model", KEY, server.url).generate(LLMRequest(messages, **fields))
    body: dict[str, Any] = server.requests[0].json
    return body


def turn_of(count: int, name: str = "f", **more: Any) -> list[ChatMessage]:
    """A question, calls of some tool, and their results."""
    calls = [ToolCall(f"c{n}", name, {"n": n}) for n in range(count)]
    results = [ToolMessage(f"c{n}", name, f"result {n}") for n in range(count)]
    return [UserMessage("go"), AssistantMessage("", calls, **more), *results]
