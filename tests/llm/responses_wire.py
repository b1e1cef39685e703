"""What the tests of the Responses API share: answers to play, runs held to what the API refuses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playhead import AgentLoop, ChatMessage, LoopOptions, UserMessage, tool
from playhead.events import LLMDelta
from playhead.llm.openai_responses import OpenAIResponses
from playhead.testing import FakeProvider, Reply, split, stream
from playhead.testing.responses import responses_events, responses_frames, responses_message
from playhead.types import (
    LLMRequest,
    LLMResult,
)
from tests.support.invariants import KEY, Played, play
from tests.support.strict_apis import Issued, StrictProvider
from tests.support.strict_responses import check_responses

Item = dict[str, Any]
Event = dict[str, Any]


@tool
async def tide_at(port: str = "") -> str:
    """Say when the tide is high."""
    return f"high at {port}"


def said(*texts: str, **more: Any) -> Item:
    part = {"type": "output_text", "text": list(texts)}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part], **more}


def refused(*texts: str) -> Item:
    return {"type": "message", "id": "msg_1", "content": [{"type": "refusal", "refusal": list(texts)}]}


def asks(arguments: str = "{}", call_id: str | None = "call_1", name: str = "tide_at", **more: Any) -> Item:
    ids = {"id": f"fc_{call_id}", "call_id": call_id} if call_id is not None else {}
    return {"type": "function_call", **ids, "name": name, "arguments": arguments, **more}


def thinks(*thoughts: str, encrypted: str | None = "E1", id: str = "rs_1", **more: Any) -> Item:
    summary = [{"type": "summary_text", "text": thought} for thought in thoughts]
    return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted, **more}


def played(*events: Event, size: int | None = None) -> Reply:
    frames = responses_frames(*events)
    return stream(split(b"".join(frames), size) if size else frames)


def delta(kind: str, text: str, index: int | None = 0, **more: Any) -> Event:
    at = {} if index is None else {"output_index": index}
    return {"type": f"response.{kind}.delta", "delta": text, **at, **more}


def added(item: Mapping[str, Any], index: int = 0) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def ended(status: str = "completed", output: Sequence[Item] = (), name: str = "", **more: Any) -> Event:
    response = {"status": status, "model": "fake-model", "output": list(output), **more}
    return {"type": f"response.{name or status}", "response": response}


async def answer(reply: Reply, streaming: bool = True, **fields: Any) -> tuple[LLMResult, list[LLMDelta]]:
    deltas: list[LLMDelta] = []
    async with FakeProvider(reply) as server:
        llm = OpenAIResponses("fake-model", KEY, f"{server.url}/v1")
        request = LLMRequest([UserMessage("go")], timeout=5.0, **fields)
        result = await llm.generate(request, deltas.append if streaming else None)
    return result, deltas


@dataclass(frozen=True)
class Seen:
    """A run, and the bodies of its requests."""

    played: Played
    bodies: list[dict[str, Any]]


async def run(
    *turns: Sequence[Item] | Reply,
    history: Sequence[ChatMessage] = (),
    then: str | None = None,
    retries: int = 1,
    **options: Any,
) -> Seen:
    """Play the answers of the model in one turn of the user; with `then`, in a second one, too."""
    issued = Issued([item for turn in turns if not isinstance(turn, Reply) for item in turn])
    replies = (turn if isinstance(turn, Reply) else played(*responses_events(*turn)) for turn in turns)
    strict = StrictProvider(lambda body: check_responses(body, issued), *replies)
    async with FakeProvider(default=strict) as server:
        llm = OpenAIResponses("fake-model", KEY, server.url, **options)
        loop = AgentLoop(llm, tools=[tide_at], options=LoopOptions(retries=retries))
        seen = await play(loop, [*history, UserMessage("go")])
        if then is not None:
            seen = await play(loop, [*seen.messages, UserMessage(then)])
    assert strict.refusals == []
    assert strict.replies == [], "not every reply was asked for"
    return Seen(seen, [request.json for request in server.requests])


async def sent(messages: Sequence[ChatMessage], llm: Mapping[str, Any] | None = None, **fields: Any) -> Any:
    """The body of one request, which the strict checker has taken."""
    strict = StrictProvider(check_responses, responses_message(said("ok")))
    async with FakeProvider(default=strict) as server:
        model = OpenAIResponses("fake-model", KEY, f"{server.url}/v1/responses", **(llm or {}))
        await model.generate(LLMRequest(messages, **fields))
    assert [request.path for request in server.requests] == ["/v1/responses"]
    return server.requests[0].json
