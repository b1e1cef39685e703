"""The client-side run, over real HTTP against a chat route in raw bytes (requirements D)."""

import asyncio
from typing import Any

import pytest

from playhead import AgentContext, AgentRunResult, LoopOptions
from playhead.errors import ConfigError, StoreError
from playhead.events import RunEnd
from playhead.session.orchestrator import LIMIT_REACHED, Orchestrator
from playhead.session.stores import AgentStore, ChatStore
from playhead.testing import FakeProvider, Reply, reply_bytes, reply_json
from playhead.types import AssistantMessage, MediaAsset, ToolMessage, UserMessage
from tests.session.shown import Call, Shown, says, streams, transcribe_video

pytestmark = pytest.mark.anyio

CONTEXT = AgentContext("p1", "s1", [MediaAsset("a1", "clip.mp4")], 1500.0)
TRANSCRIBE: Call = ("transcribe_video", {})


@pytest.mark.parametrize(
    "reply",
    [
        says("Hello!"),
        reply_json({"content": "Hello!"}),
        reply_json({"content": "Hello!", "toolCalls": None}),
        streams("Hel", "lo!"),
    ],
    ids=["empty toolCalls", "no toolCalls", "null toolCalls", "stream"],
)
async def test_happy_path_with_no_tool_calls(reply: Reply) -> None:
    """R18, R23, R26: the reply is in the chat store, the status idle; absent and empty calls are alike."""
    async with FakeProvider(reply) as server:
        shown = Shown(server)
        result = await shown.ask("Hi")
    assert shown.said == [("user", "Hi"), ("assistant", "Hello!")]
    assert (shown.agent.status, shown.chat.loading, shown.chat.error) == ("idle", False, None)
    assert isinstance(result, AgentRunResult)
    assert (result.finish_reason, result.text) == ("final", "Hello!")


async def test_messages_and_context_are_posted() -> None:
    """R20: POST {messages, context}; the caller's messages are not added again."""
    async with FakeProvider(says("ok")) as server:
        shown = Shown(server)
        await shown.ask("Hi", CONTEXT)
        (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/api/agent/chat")
    assert [(m["role"], m["content"]) for m in request.json["messages"]] == [("user", "Hi")]
    assert request.json["messages"][0]["id"] == shown.chat.messages[0].id
    assert request.json["context"]["projectId"] == "p1"
    assert request.json["context"]["mediaAssets"] == [
        {"id": "a1", "name": "clip.mp4", "type": "video", "duration": None}
    ]
    assert sorted(request.json) == ["context", "messages"]
    assert shown.agent.context == CONTEXT


async def test_the_store_s_context_serves_when_none_is_given() -> None:
    """R6, R20: the context that the front end set is the one that is posted."""
    async with FakeProvider(default=says("ok")) as server:
        shown = Shown(server)
        await shown.ask("Hi")
        shown.agent.set_context(CONTEXT)
        await shown.ask("Hi")
    assert "context" not in server.requests[0].json
    assert server.requests[1].json["context"]["projectId"] == "p1"


async def test_tool_call_then_final_answer() -> None:
    """R21, R27: assistant message with its calls, the result, the reply, in that order; one grown history."""
    async with FakeProvider(says("", TRANSCRIBE), says("Here is the transcription...")) as server:
        shown = Shown(server)
        result = await shown.ask("Transcribe this video")
        first, second = (request.json["messages"] for request in server.requests)
    asked, told, reply = shown.chat.messages[1:]
    assert isinstance(asked, AssistantMessage)
    assert isinstance(told, ToolMessage)
    assert [c.name for c in asked.tool_calls] == ["transcribe_video"]
    assert (told.tool_call_id, told.tool_name) == (asked.tool_calls[0].id, "transcribe_video")
    assert "hello world" in told.content
    assert reply.content == "Here is the transcription..."
    assert shown.agent.status == "idle"
    assert second[:1] == first
    assert [m["role"] for m in second] == ["user", "assistant", "tool"]
    assert list(result.messages) == list(shown.chat.messages[1:])


async def test_a_failing_tool_is_told_and_the_run_goes_on() -> None:
    """R22, R28: its error is a result, the other call still runs, the model answers in the end."""
    async with FakeProvider(says("", ("broken", {}), TRANSCRIBE), says("I see.")) as server:
        shown = Shown(server)
        await shown.ask("go")
        results = [m for m in server.requests[1].json["messages"] if m["role"] == "tool"]
    assert [m.get("isError", False) for m in results] == [True, False]
    assert "the disk is on fire" in results[0]["content"]
    assert "hello world" in results[1]["content"]
    assert shown.said[-1] == ("assistant", "I see.")
    assert (shown.agent.status, shown.chat.error) == ("idle", None)


@pytest.mark.parametrize(
    ("call", "says_what"),
    [
        (("needs", {"assetId": 123}), "assetId"),
        (("needs", {}), "assetId"),
        (("no_such_tool", {}), "no_such_tool"),
    ],
)
async def test_a_call_that_is_not_valid_does_not_run(call: Any, says_what: str) -> None:
    """R21, R46, R47, R48: the tool does not run; the result names what was wrong."""
    async with FakeProvider(says("", call), says("Sorry.")) as server:
        shown = Shown(server)
        await shown.ask("go")
    told = shown.chat.messages[2]
    assert isinstance(told, ToolMessage)
    assert told.is_error
    assert says_what in told.content
    assert shown.said[-1] == ("assistant", "Sorry.")


async def test_an_empty_argument_object_passes() -> None:
    """R48: `{}` is enough for a tool without required parameters."""
    async with FakeProvider(says("", TRANSCRIBE), says("ok")) as server:
        shown = Shown(server)
        await shown.ask("go")
    told = shown.chat.messages[2]
    assert isinstance(told, ToolMessage)
    assert not told.is_error


@pytest.mark.parametrize("options", [None, LoopOptions(tool_timeout=5), LoopOptions(max_steps=50)])
async def test_the_cap_is_eight(options: LoopOptions | None) -> None:
    """R24, R49, R50, R51: the eighth's tools run, then the limit is said, and the status is idle."""
    async with FakeProvider(default=says("", TRANSCRIBE)) as server:
        shown = Shown(server, options=options)
        result = await shown.ask("go")
        assert len(server.requests) == 8
    roles = [role for role, _ in shown.said]
    assert roles == ["user", *(["assistant", "tool"] * 8), "assistant"]
    assert shown.said[-1] == ("assistant", "Reached maximum iteration limit")
    assert (shown.agent.status, shown.chat.loading, shown.chat.error) == ("idle", False, None)
    assert (result.finish_reason, result.text, len(result.steps)) == ("max_steps", LIMIT_REACHED, 8)
    assert list(result.messages) == list(shown.chat.messages[1:])
    assert isinstance(shown.events[-1], RunEnd)
    assert shown.events[-1].result == result


@pytest.mark.parametrize("rounds", [2, 7])
async def test_within_the_cap_no_limit_is_said(rounds: int) -> None:
    """R52: a reply after some rounds of tools, the eighth included, is just the reply."""
    async with FakeProvider(*[says("", TRANSCRIBE)] * rounds, says("done")) as server:
        shown = Shown(server)
        result = await shown.ask("go")
    assert shown.said[-1] == ("assistant", "done")
    assert LIMIT_REACHED not in [content for _, content in shown.said]
    assert (result.finish_reason, shown.agent.status) == ("final", "idle")


async def test_a_smaller_cap_is_kept() -> None:
    """R24: the application may allow less, not more."""
    async with FakeProvider(default=says("", TRANSCRIBE)) as server:
        await Shown(server, options=LoopOptions(max_steps=2)).ask("go")
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (reply_json({"error": "LLM provider error", "code": "auth"}, 502), "LLM provider error"),
        (reply_json({"error": "LLM provider error"}, 502), "LLM provider error"),
        (
            reply_json({"error": "messages: expected array", "code": "invalid"}, 400),
            "messages: expected array",
        ),
        (reply_bytes(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"), "The chat route answered 500"),
        (reply_bytes(), "closed the connection"),
        (reply_json({}), "neither content nor toolCalls"),
        (says("  "), "neither text nor a tool call"),
    ],
)
async def test_an_error_of_route_or_network_is_shown(reply: Reply, error: str) -> None:
    """R25, S21: the chat store has the error, the status is `error`, loading False; asked once only."""
    async with FakeProvider(reply) as server:
        shown = Shown(server)
        result = await shown.ask("Hi")
        assert len(server.requests) == 1
    assert error in (shown.chat.error or "")
    assert (shown.agent.status, shown.chat.loading) == ("error", False)
    assert (result.finish_reason, result.error_message) == ("error", shown.chat.error)
    assert shown.said == [("user", "Hi")]


async def test_nobody_there_is_an_error() -> None:
    """R25: a server that is not up."""
    async with FakeProvider() as server:
        shown = Shown(server)
    await shown.ask("Hi")
    assert "Could not connect" in (shown.chat.error or "")
    assert (shown.agent.status, shown.chat.loading) == ("error", False)


async def test_an_error_after_a_tool_keeps_what_was_done() -> None:
    """R25: the steps before the failure stay in the store."""
    async with FakeProvider(says("", TRANSCRIBE), reply_json({"error": "LLM provider error"}, 502)) as server:
        shown = Shown(server)
        result = await shown.ask("go")
    assert [role for role, _ in shown.said] == ["user", "assistant", "tool"]
    assert (shown.chat.error, len(result.steps)) == ("LLM provider error", 1)


async def test_a_run_clears_the_error_of_the_last_one() -> None:
    """D: `run()` sets loading and clears the error first; R19: the status is `sending` at the request."""
    during: list[Any] = []

    def answer(request: Any) -> Reply:
        during.append((shown.chat.error, shown.chat.loading, shown.agent.status))
        return says("ok")

    async with FakeProvider(reply_json({"error": "no"}, 502), answer) as server:
        shown = Shown(server)
        await shown.ask("Hi")
        before = shown.chat.error
        await shown.ask("Hi")
    assert (before, during) == ("no", [(None, True, "sending")])
    assert (shown.chat.error, shown.chat.loading, shown.agent.status) == (None, False, "idle")


async def test_one_run_at_a_time() -> None:
    """A second run beside the first would mix their messages: it is refused with what to do."""
    async with FakeProvider(default=says("ok")) as server:
        shown = Shown(server)
        run = asyncio.create_task(shown.ask("Hi"))
        await server.wait_for_requests(1)
        with pytest.raises(StoreError, match="goes on already"):
            await shown.orchestrator.run([UserMessage("again")])
        assert shown.chat.loading
        await run
        await shown.ask("and now")
    assert shown.said[-1] == ("assistant", "ok")


def test_a_wrong_address_is_refused_at_once() -> None:
    """A typing error is said when the orchestrator is made."""
    with pytest.raises(ConfigError):
        Orchestrator("localhost:8765", [transcribe_video], ChatStore(), AgentStore())
