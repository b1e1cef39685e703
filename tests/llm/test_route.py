"""The model behind a chat route, over real HTTP against a route in raw bytes."""

import json
from typing import Any

import pytest

from playhead.events import Attempt, LLMDelta, ReasoningDelta, TextDelta, ToolCallStart
from playhead.testing import reply_json, split, stream
from playhead.types import (
    AgentContext,
    AssistantMessage,
    ChatMessage,
    MediaAsset,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSchema,
    Usage,
    UserMessage,
)
from tests.llm.routes import HELLO, MESSAGE, call, frames, text_delta

pytestmark = pytest.mark.anyio


async def test_messages_and_context_are_posted_and_nothing_else() -> None:
    """R20: the body is {messages, context}; tools and instructions are the server's own."""
    context = AgentContext("p1", None, [MediaAsset("a", "clip.mp4", duration=2.5)], 1500.0)
    messages: list[ChatMessage] = [
        UserMessage("Hello", id="m1", timestamp=5),
        AssistantMessage("", [ToolCall("c", "f", {"b": 1, "a": [True, None]})], id="m2", timestamp=6),
        ToolMessage("c", "f", "no", is_error=True, id="m3", timestamp=7),
    ]
    _, server = await call(
        reply_json({"content": "ok"}),
        messages=messages,
        context=context,
        tools=[ToolSchema("f", "d", ())],
        system="SECRET",
    )
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/api/agent/chat")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept"] == "application/json"
    assert int(request.headers["content-length"]) == len(request.body)
    assert request.json == {
        "messages": [
            {"role": "user", "content": "Hello", "id": "m1", "timestamp": 5},
            {
                "role": "assistant",
                "content": "",
                "toolCalls": [{"id": "c", "name": "f", "args": {"b": 1, "a": [True, None]}}],
                "id": "m2",
                "timestamp": 6,
            },
            {
                "role": "tool",
                "toolCallId": "c",
                "toolName": "f",
                "content": "no",
                "isError": True,
                "id": "m3",
                "timestamp": 7,
            },
        ],
        "context": {
            "projectId": "p1",
            "activeSceneId": None,
            "mediaAssets": [{"id": "a", "name": "clip.mp4", "type": "video", "duration": 2.5}],
            "playbackTimeMs": 1500.0,
        },
    }


async def test_context_is_left_out_when_there_is_none() -> None:
    """R20: `context` is optional."""
    _, server = await call(reply_json({"content": "ok"}), messages=[SystemMessage("s"), *HELLO])
    assert list(server.requests[0].json) == ["messages"]
    assert [m["role"] for m in server.requests[0].json["messages"]] == ["system", "user"]


async def test_a_message_is_encoded_once() -> None:
    """The wire bytes live in the message: the second call sends the very same object's bytes."""
    message = UserMessage("Hello")
    await call(reply_json({"content": "ok"}), messages=[message])
    held = message.__dict__["playhead"]
    await call(reply_json({"content": "ok"}), messages=[message, AssistantMessage("hi")])
    assert message.__dict__["playhead"] is held


async def test_half_a_character_pair_does_not_stop_the_call() -> None:
    """Text that UTF-8 cannot carry is sent with a replacement (Q202)."""
    _, server = await call(
        reply_json({"content": "ok"}),
        messages=[UserMessage("a\ud83d")],
        context=AgentContext(media_assets=[MediaAsset("a", "\udc00.mp4")]),
    )
    assert server.requests[0].json["messages"][0]["content"] == "a\ufffd"
    assert server.requests[0].json["context"]["mediaAssets"][0]["name"] == "\ufffd.mp4"


@pytest.mark.parametrize(
    ("body", "content", "calls", "stop"),
    [
        pytest.param({"content": "Hello!", "toolCalls": []}, "Hello!", [], "stop", id="empty toolCalls"),
        pytest.param({"content": "Hello!", "toolCalls": None}, "Hello!", [], "stop", id="null toolCalls"),
        pytest.param({"content": "Hello!"}, "Hello!", [], "stop", id="no toolCalls"),
        pytest.param({"content": None}, "", [], "stop", id="null content"),
        pytest.param(
            {"content": None, "toolCalls": [{"id": "c", "name": "f", "args": {"x": 1}}]},
            "",
            [("f", {"x": 1}, None)],
            "tool_calls",
            id="calls without text",
        ),
        pytest.param(
            {"content": "", "toolCalls": [{"name": "f", "args": {}}, {"name": "g"}, {"id": "", "name": "f"}]},
            "",
            [("f", {}, None), ("g", {}, None), ("f", {}, None)],
            "tool_calls",
            id="calls without ids",
        ),
        pytest.param(
            {"toolCalls": [{"name": "f", "args": '{"x": 1}'}]},
            "",
            [("f", {"x": 1}, None)],
            "tool_calls",
            id="arguments as text",
        ),
        pytest.param(
            {"content": "x", "message": {"role": "assistant"}}, "x", [], "stop", id="a message that is none"
        ),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["json", "message event"])
async def test_the_plain_form_of_a_reply_is_understood(
    body: dict[str, Any], content: str, calls: list[Any], stop: str, streamed: bool
) -> None:
    """R21, R23: content and toolCalls as the seed's route gives them; every call has an id of its own."""
    reply = stream(frames(("message", json.dumps(body)))) if streamed else reply_json(body)
    result, _ = await call(reply, deltas=[] if streamed else None)
    message = result.message
    assert (message.content, result.stop_reason) == (content, stop)
    assert [(c.name, c.args, c.error) for c in message.tool_calls] == calls
    ids = [c.id for c in message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)


async def test_arguments_that_cannot_be_read_are_told_and_not_run() -> None:
    """R46: such a call carries its fault."""
    result, _ = await call(
        reply_json({"content": "", "toolCalls": [{"id": "c", "name": "f", "args": "{broken"}]})
    )
    (made,) = result.message.tool_calls
    assert (made.args, "not valid JSON" in (made.error or "")) == ({}, True)


async def test_the_whole_message_wins_over_the_plain_fields() -> None:
    """R21: stop reason, opaque data, reasoning and the errors of calls come with `message`."""
    message = {
        "role": "assistant",
        "content": "so",
        "reasoning": "because",
        "stopReason": "length",
        "providerMetadata": {"gemini": {"signature": "S"}},
        "toolCalls": [
            {"id": "c", "name": "f", "args": {}, "error": "unreadable"},
            {"id": "", "name": "f", "args": {}},
        ],
    }
    body = {"content": "so", "message": message, "usage": {"inputTokens": 3, "outputTokens": 4}}
    result, _ = await call(reply_json(body))
    got = result.message
    assert (got.content, got.reasoning, result.stop_reason) == ("so", "because", "length")
    assert got.provider_metadata == {"gemini": {"signature": "S"}}
    assert got.tool_calls[0] == ToolCall("c", "f", {}, "unreadable")
    assert got.tool_calls[1].id
    assert result.usage == Usage(3, 4)
    assert result.provider == "route"


async def test_a_stream_gives_deltas_and_then_the_message() -> None:
    """R20: with `emit` an event stream is asked for; unknown events and heartbeats are passed over."""
    deltas: list[LLMDelta] = []
    events = frames(
        ("attempt", '{"type":"attempt","number":1}'),
        ("reasoning_delta", '{"type":"reasoning_delta","text":"hm"}'),
        text_delta("Hel"),
        ("a_later_kind", "{}"),
        text_delta("lo!"),
        ("tool_call_start", '{"type":"tool_call_start","callId":"c","name":"f"}'),
        MESSAGE,
        text_delta("ignored"),
    )
    data = b": ping\n\n" + b"".join(events)
    for size in (1, 7, len(data)):
        deltas.clear()
        result, server = await call(stream(split(data, size)), deltas=deltas)
        assert server.requests[0].headers["accept"] == "text/event-stream"
        assert [type(d) for d in deltas] == [ReasoningDelta, TextDelta, TextDelta, ToolCallStart]
        assert (result.message.content, result.stop_reason) == ("Hello!", "length")


async def test_a_further_attempt_makes_what_was_shown_void() -> None:
    """A route that tries again says so; only what came after counts."""
    deltas: list[LLMDelta] = []
    events = frames(text_delta("wrong"), ("attempt", '{"type":"attempt","number":2}'), text_delta("rig"))
    result, _ = await call(stream(events), deltas=deltas)
    assert [type(d) for d in deltas] == [TextDelta, Attempt, TextDelta]
    assert (result.message.content, result.stop_reason) == ("rig", "interrupted")


async def test_a_route_that_streams_nothing_may_answer_in_json() -> None:
    """R20: a route without streaming ignores what was asked for, and is understood."""
    deltas: list[LLMDelta] = []
    result, _ = await call(reply_json({"content": "Hello!"}), deltas=deltas)
    assert (result.message.content, deltas) == ("Hello!", [])


@pytest.mark.parametrize("cut", ["fin", "rst", None])
async def test_a_stream_that_is_cut_after_text_is_interrupted(cut: Any) -> None:
    """Neither message nor error: what was said is kept and said to be cut; half a call is not told."""
    events = frames(
        text_delta("Hel"),
        ("tool_call_start", '{"type":"tool_call_start","callId":"c","name":"f"}'),
        ("tool_call_delta", '{"type":"tool_call_delta","callId":"c","text":"{}"}'),
    )
    result, _ = await call(stream([*events, b'event: message\ndata: {"content":"Hel'], cut=cut), deltas=[])
    message = result.message
    assert (message.content, message.tool_calls, message.stop_reason) == ("Hel", (), "interrupted")


async def test_the_last_event_may_lack_its_blank_line() -> None:
    """A message that is whole counts, though the stream ended right behind it."""
    result, _ = await call(stream([b"".join(frames(MESSAGE)).rstrip()]), deltas=[])
    assert result.stop_reason == "length"
