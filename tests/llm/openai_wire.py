"""What the tests of the chat completions dialect share: chunks to play, and what holds after each."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from playhead import (
    AgentLoop,
    ChatMessage,
    LLMRequest,
    LLMResult,
    LoopOptions,
    ToolMessage,
    UserMessage,
    tool,
)
from playhead.events import (
    Attempt,
    EmitDelta,
    LLMDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from playhead.llm.arguments import read_arguments
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import DEFAULT, Profile
from playhead.server.wire import event_frame
from playhead.testing import FakeProvider, Reply, openai_text, reply_json, split, sse, stream
from tests.support.invariants import KEY, Played, assert_paired, play, stored_again
from tests.support.strict_apis import Issued, StrictProvider, check_openai

Chunk = dict[str, Any] | str

_LLM = OpenAICompatible("fake-model", KEY, "http://fake.example/v1")


@tool
async def f(a: int = 0) -> str:
    """Do something."""
    return f"f {a}"


@tool
async def g(b: int = 0) -> str:
    """Do something else."""
    return f"g {b}"


@tool
async def now() -> str:
    """Tell the time."""
    return "noon"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk as the API sends it."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def piece(
    index: int | None = None, id: Any = "-", name: str | None = None, args: Any = None
) -> dict[str, Any]:
    """A piece of a call; an id of "-" is no id at all."""
    function = {k: v for k, v in (("name", name), ("arguments", args)) if v is not None}
    fields: dict[str, Any] = {"function": function}
    if index is not None:
        fields["index"] = index
    if id != "-":
        fields["id"] = id
    return fields


def pieces(*calls: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return delta(finish, tool_calls=list(calls))


async def read(
    *chunks: Chunk, done: bool = True, size: int | None = None, profile: Profile | None = None
) -> tuple[LLMResult, list[LLMDelta]]:
    body = sse(*map(_text, chunks), done=done)
    return await ask(stream(split(b"".join(body), size) if size else body), profile=profile)


def _text(chunk: Chunk) -> str:
    if isinstance(chunk, str):
        return chunk
    text = json.dumps(chunk, ensure_ascii=False)
    halves = any("\ud800" <= c <= "\udfff" for c in text)
    return json.dumps(chunk) if halves else text


async def ask(reply: Reply, *, profile: Profile | None = None) -> tuple[LLMResult, list[LLMDelta]]:
    """What the adapter makes of a reply, and what it tells meanwhile; and a run that gets the same."""
    deltas: list[LLMDelta] = []
    await in_a_run(reply, profile)
    async with FakeProvider(reply) as server:
        llm = OpenAICompatible("fake-model", KEY, f"{server.url}/v1", profile=profile)
        result = await llm.generate(LLMRequest([UserMessage("hi")], timeout=5), deltas.append)
    assert_told(result, deltas, profile is not None and profile.lenient_arguments)
    assert_valid(result)
    return result, deltas


async def whole(message: dict[str, Any], finish: str | None = "stop", **body: Any) -> LLMResult:
    """The same of an answer that is not streamed though it was asked for as a stream."""
    choice = {"index": 0, "message": message, "finish_reason": finish}
    result, _ = await ask(reply_json({"choices": [choice], **body}))
    return result


async def in_a_run(reply: Reply, profile: Profile | None = None) -> Played:
    """A turn that begins with the reply, and the next turn: held to the three invariants.

    Every later request is held to what a strict server refuses.
    """
    issued = Issued()
    strict = StrictProvider(
        lambda body: check_openai(body, profile or DEFAULT, issued), reply, *[openai_text("done")] * 4
    )
    async with FakeProvider(default=strict) as server:
        llm = OpenAICompatible("fake-model", KEY, f"{server.url}/v1", profile=profile)
        options = LoopOptions(retries=0, max_steps=3, call_timeout=5.0)
        loop = AgentLoop(_Issuing(llm, issued), tools=[f, g, now], options=options)
        played = await play(loop, "hi")
        await play(loop, [*played.messages, UserMessage("go on")])
    assert strict.refusals == []
    return played


class _Issuing:
    """Notes what the server gave out itself and may get back."""

    def __init__(self, llm: OpenAICompatible, issued: Issued) -> None:
        self.llm = llm
        self.issued = issued

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        result = await self.llm.generate(request, emit)
        kept = (result.message.provider_metadata or {}).get("openai-compatible") or {}
        self.issued.parts += [*kept.get("calls", []), kept.get("reasoningDetails")]
        return result


def assert_told(result: LLMResult, told: Sequence[LLMDelta], lenient: bool = False) -> None:
    """A reader of the events ends up with the message."""
    for event in told:
        event_frame(event)
    begin = max((n for n, d in enumerate(told) if isinstance(d, Attempt)), default=-1) + 1
    left, message = told[begin:], result.message
    assert "".join(d.text for d in left if isinstance(d, TextDelta)) == message.content
    assert "".join(d.text for d in left if isinstance(d, ReasoningDelta)) == (message.reasoning or "")
    calls = {call.id: call for call in message.tool_calls}
    started: dict[str, str] = {}
    for delta in left:
        if isinstance(delta, ToolCallStart):
            assert delta.call_id not in started
            assert calls[delta.call_id].name.startswith(delta.name)
            started[delta.call_id] = ""
        elif isinstance(delta, ToolCallDelta):
            started[delta.call_id] += delta.text
    assert set(started) == {call.id for call in message.tool_calls if call.name}
    for id, text in started.items():
        assert read_arguments(text, lenient) == (calls[id].args, calls[id].error)


def assert_valid(result: LLMResult) -> None:
    """The message can be stored, shown, and sent back to the strictest server."""
    message = result.message
    assert message.stop_reason == result.stop_reason
    results = [ToolMessage(c.id, c.name, "done") for c in message.tool_calls]
    log: list[ChatMessage] = [UserMessage("hi"), message, *results, UserMessage("and now?")]
    again = stored_again(log)
    assert_paired(again)
    body = json.loads(_LLM.build_request(LLMRequest(again), True).body)
    extras = ((message.provider_metadata or {}).get("openai-compatible") or {}).get("calls", [])
    for sent in body["messages"]:
        sent.pop("reasoning_details", None)
    check_openai(body, _LLM.profile, Issued(parts=extras))
    msgspec.json.encode(result.usage)


def shown(deltas: Sequence[LLMDelta]) -> str:
    """The text that a reader ends up with: an `attempt` voids what came before."""
    text = ""
    for d in deltas:
        if isinstance(d, Attempt) and d.number > 1:
            text = ""
        elif isinstance(d, TextDelta):
            text += d.text
    return text


def brief(result: LLMResult) -> list[tuple[str, Any]]:
    return [(c.name, c.error or c.args) for c in result.message.tool_calls]
