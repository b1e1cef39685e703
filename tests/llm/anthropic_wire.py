"""What the tests of the Messages API share: answers to play, runs held to what the API refuses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playhead import AgentLoop, ChatMessage, LoopOptions, UserMessage, tool
from playhead.llm.anthropic import Anthropic
from playhead.testing import FakeProvider, Reply, split, stream
from playhead.testing.anthropic import anthropic_events, anthropic_frames, anthropic_message
from playhead.types import LLMRequest
from tests.support.invariants import KEY, Played, play
from tests.support.strict_apis import Issued, StrictProvider, check_anthropic

Block = dict[str, Any]
Event = dict[str, Any]
Log = list[ChatMessage]


@tool
async def tide_at(port: str = "") -> str:
    """Say when the tide is high."""
    return f"high at {port}"


@tool
async def now() -> str:
    """Say what time it is."""
    return "noon"


@dataclass(frozen=True)
class Turn:
    """One answer of the model."""

    blocks: Sequence[Block]
    stop: str | None = None

    def reply(self, form: str) -> Reply:
        calls = any(block.get("type") == "tool_use" for block in self.blocks)
        stop = self.stop or ("tool_use" if calls else "end_turn")
        if form == "whole":
            return anthropic_message(*self.blocks, stop_reason=stop)
        return stream(anthropic_frames(*anthropic_events(*self.blocks, stop_reason=stop)))


def turn(*blocks: Block, stop: str | None = None) -> Turn:
    return Turn(blocks, stop)


def text(content: str) -> Block:
    return {"type": "text", "text": content}


def asks(name: str, input: Any = None, id: str = "toolu_1", **more: Any) -> Block:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if input is None else input, **more}


def thinks(thought: str = "hm", signature: str = "S") -> Block:
    return {"type": "thinking", "thinking": thought, "signature": signature}


def redacted(data: str = "xyz==") -> Block:
    return {"type": "redacted_thinking", "data": data}


DONE = turn(text("done"))


def events(*middle: Event, size: int | None = None, ends: bool = True) -> Reply:
    """A stream as it is written here, between a start and an end."""
    start, *_, delta, stop = anthropic_events()
    frames = anthropic_frames(start, *middle, *((delta, stop) if ends else ()))
    return stream(split(b"".join(frames), size) if size else frames)


def started(block: Mapping[str, Any], index: int | None = 0) -> Event:
    at = {} if index is None else {"index": index}
    return {"type": "content_block_start", **at, "content_block": block}


def delta(kind: str, index: int | None = 0, **fields: Any) -> Event:
    at = {} if index is None else {"index": index}
    return {"type": "content_block_delta", **at, "delta": {"type": f"{kind}_delta", **fields}}


def stopped(index: int = 0) -> Event:
    return {"type": "content_block_stop", "index": index}


@dataclass(frozen=True)
class Seen:
    """A run, and the bodies of its requests."""

    played: Played
    bodies: list[dict[str, Any]]

    def shape(self, request: int = -1) -> list[list[str]]:
        """The role and the kinds of blocks of each message."""
        return shape(self.bodies[request])

    def blocks(self, request: int, message: int) -> list[Block]:
        """The blocks of a message as they were sent, without marks for the cache."""
        blocks = self.bodies[request]["messages"][message]["content"]
        return [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]


def shape(body: dict[str, Any]) -> list[list[str]]:
    return [
        [m["role"], *(["text"] if isinstance(m["content"], str) else [b["type"] for b in m["content"]])]
        for m in body["messages"]
    ]


async def run(
    *turns: Turn | Reply,
    form: str = "stream",
    history: str | Sequence[ChatMessage] = "go",
    then: str | None = None,
    retries: int = 1,
    issued: Sequence[Block] = (),
    **options: Any,
) -> Seen:
    """Play the turns of the model in one turn of the user; with `then`, in a second one, too."""
    own = Issued([*issued, *(b for t in turns if isinstance(t, Turn) for b in t.blocks)])
    replies = (t if isinstance(t, Reply) else t.reply(form) for t in turns)
    strict = StrictProvider(lambda body: check_anthropic(body, own), *replies)
    async with FakeProvider(default=strict) as server:
        llm = Anthropic("fake-model", KEY, server.url, **options)
        loop = AgentLoop(llm, tools=[tide_at, now], options=LoopOptions(retries=retries))
        played = await play(loop, history)
        if then is not None:
            # What is stored goes on: through JSON and back.
            played = await play(loop, [*played.messages, UserMessage(then)])
    assert strict.refusals == []
    assert strict.replies == [], "not every reply was asked for"
    return Seen(played, [r.json for r in server.requests])


async def sent(
    messages: Sequence[ChatMessage], *, llm: Mapping[str, Any] | None = None, **fields: Any
) -> Any:
    """The body of one request, which the strict checker has taken."""
    strict = StrictProvider(check_anthropic, DONE.reply("whole"))
    async with FakeProvider(default=strict) as server:
        model = Anthropic("fake-model", KEY, server.url, **(llm or {}))
        await model.generate(LLMRequest(messages, **fields))
    return server.requests[0].json
