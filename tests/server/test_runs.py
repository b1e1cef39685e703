"""Threads and runs over real HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from playhead import AgentLoop, LLMRequest, LLMResult, ToolRegistry, tool
from playhead.config import Settings
from playhead.events import EmitDelta
from playhead.server import ServerOptions
from playhead.session.sessions import Sessions
from playhead.testing import FakeProvider, openai_calls, openai_sse, openai_text, reply_json
from playhead.tools.builtin import default_registry
from playhead.types import AssistantMessage, ToolCall
from tests.server.support import CANARY, STREAM, HeldModel, all_frames, ask, frames, served, settings

pytestmark = pytest.mark.anyio

RUNS = "/api/agent/threads/t1/runs"
THREAD = "/api/agent/threads/t1"


def texts(view: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in view["messages"]]


async def test_a_run_streams_from_its_first_event_to_its_last(tmp_path: Path) -> None:
    """R10 for a whole turn: model, tool, model, on the server, with the history kept there."""
    script = (
        openai_sse(calls=[("echo_context", {})]),
        openai_sse("The project ", "is demo."),
    )
    body = {"message": "Which project?", "context": {"projectId": "demo"}}
    async with (
        FakeProvider(*script) as provider,
        served(settings=settings(tmp_path, provider.url), registry=default_registry(mock=True)) as client,
    ):
        events = await all_frames(client, "POST", RUNS, json=body)
        _, view = await ask(client, "GET", THREAD)
    kinds = [kind for kind, _ in events]
    assert (kinds[0], kinds[-1]) == ("run_start", "run_end")
    assert kinds.count("run_end") == 1
    order = [k for k in kinds if k in ("step_start", "tool_call", "tool_result", "step_end")]
    assert order == ["step_start", "tool_call", "tool_result", "step_end", "step_start", "step_end"]
    (result,) = [data["result"] for kind, data in events if kind == "tool_result"]
    assert result["result"]["projectId"] == "demo"
    said = "".join(data["text"] for kind, data in events if kind == "text_delta")
    end = events[-1][1]["result"]
    assert said == end["text"] == "The project is demo."
    assert end["finishReason"] == "final"
    assert not {"steps", "messages"} & set(end), "they were sent as they happened"
    assert all(data["runId"] == events[0][1]["runId"] for _, data in events)
    assert [role for role, _ in texts(view)] == ["user", "assistant", "tool", "assistant"]
    assert "activeRun" not in view


@pytest.mark.parametrize(
    "message", ["Hello", {"content": "Hello"}, {"content": [{"type": "text", "text": "Hello"}], "id": "m-1"}]
)
async def test_a_run_starts_from_a_text_or_a_message(message: Any, tmp_path: Path) -> None:
    async with (
        FakeProvider(openai_sse("Hi")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        status, started = await ask(client, "POST", RUNS, json={"message": message})
        assert (status, list(started)) == (202, ["runId"])
        events = await all_frames(client, "GET", f"/api/agent/runs/{started['runId']}/events")
        _, view = await ask(client, "GET", THREAD)
    assert events[-1][0] == "run_end"
    assert view["messages"][0]["role"] == "user"
    if isinstance(message, dict) and "id" in message:
        assert view["messages"][0]["id"] == message["id"]


async def test_the_server_owns_the_history(tmp_path: Path) -> None:
    """The second message reaches the model with the first turn before it; other threads do not."""
    async with (
        FakeProvider(openai_sse("One"), openai_sse("Two"), openai_sse("Three")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        for thread, text in (("t1", "first"), ("t1", "second"), ("t2", "elsewhere")):
            await all_frames(client, "POST", f"/api/agent/threads/{thread}/runs", json={"message": text})
    sent = [[m["content"] for m in r.json["messages"] if m["role"] != "system"] for r in provider.requests]
    assert sent == [["first"], ["first", "One", "second"], ["elsewhere"]]


async def test_a_message_sent_again_is_not_said_twice(tmp_path: Path) -> None:
    """A client that did not hear the answer sends the same id again, and finds the same run."""
    async with (
        FakeProvider(openai_sse("Hi")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        body = {"message": {"content": "Hello", "id": "m-1"}}
        first = await all_frames(client, "POST", RUNS, json=body)
        again = await all_frames(client, "POST", RUNS, json=body)
        _, view = await ask(client, "GET", THREAD)
    assert first[0][1]["runId"] == again[0][1]["runId"]
    assert texts(view) == [("user", "Hello"), ("assistant", "Hi")]
    assert len(provider.requests) == 1


async def test_a_closed_connection_is_never_a_stop(tmp_path: Path) -> None:
    """The run goes on, is recorded, and can be listened to again from its first event."""
    model = HeldModel()
    async with served(llm=model, settings=settings(tmp_path)) as client:
        async with client.post(RUNS, json={"message": "Hello"}, headers=STREAM) as response:
            run_id = response.headers["Run-Id"]
            async for kind, _ in frames(response):
                if kind == "text_delta":
                    break
        _, view = await ask(client, "GET", THREAD)
        assert view["activeRun"] == {"runId": run_id, "state": "running", "seq": 0}
        reading = asyncio.create_task(all_frames(client, "GET", f"/api/agent/runs/{run_id}/events"))
        model.go.set()
        events = await reading
        _, view = await ask(client, "GET", THREAD)
    assert "".join(data["text"] for kind, data in events if kind == "text_delta") == "Wait for it"
    assert events[-1][1]["result"]["finishReason"] == "final"
    assert texts(view) == [("user", "Hello"), ("assistant", "Wait for it")]


async def test_stop_is_asked_for_by_the_runs_id(tmp_path: Path) -> None:
    """Q214: whoever listens sees the end; the half answer is kept, and the history stays valid."""
    model = HeldModel()
    async with served(llm=model, settings=settings(tmp_path)) as client:
        reading = asyncio.create_task(all_frames(client, "POST", RUNS, json={"message": "Hello"}))
        await model.called.wait()
        _, view = await ask(client, "GET", THREAD)
        run_id = view["activeRun"]["runId"]
        status, answer = await ask(client, "POST", f"/api/agent/runs/{run_id}/cancel")
        events = await reading
        again = await ask(client, "POST", f"/api/agent/runs/{run_id}/cancel")
        _, view = await ask(client, "GET", THREAD)
    assert (status, answer) == again == (200, {"runId": run_id})
    assert await model.ended.get() == "cancelled"
    assert events[-1][1]["result"]["finishReason"] == "cancelled"
    assert texts(view) == [("user", "Hello"), ("assistant", "Wait")]
    assert "activeRun" not in view


async def test_messages_of_one_thread_come_in_order(tmp_path: Path) -> None:
    """A second message waits for its turn, and is not lost."""
    model = HeldModel()
    async with served(llm=model, settings=settings(tmp_path)) as client:
        first = asyncio.create_task(all_frames(client, "POST", RUNS, json={"message": "one"}))
        await model.called.wait()
        _, second = await ask(client, "POST", RUNS, json={"message": "two"})
        model.go.set()
        await first
        events = await all_frames(client, "GET", f"/api/agent/runs/{second['runId']}/events")
        _, view = await ask(client, "GET", THREAD)
    assert events[-1][1]["result"]["finishReason"] == "final"
    assert [text for role, text in texts(view) if role == "user"] == ["one", "two"]


async def test_a_provider_that_fails_ends_the_run_with_an_error_and_a_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R16: in the stream, without the key and the provider's body; the user's message is kept."""
    fault = reply_json({"error": {"message": f"SECRET-BODY {CANARY}"}}, 401)
    async with (
        FakeProvider(fault) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        events = await all_frames(client, "POST", RUNS, json={"message": "Hello"})
        _, view = await ask(client, "GET", THREAD)
    kind, data = events[-1]
    assert kind == "run_end"
    assert (data["result"]["finishReason"], data["result"]["errorCode"]) == ("error", "auth")
    assert data["result"]["errorMessage"]
    assert texts(view) == [("user", "Hello")]
    for secret in (CANARY, "SECRET-BODY"):
        assert secret not in str(events) + str(view) + caplog.text


@pytest.mark.parametrize("headers", [{}, STREAM])
async def test_without_a_model_nothing_is_begun(
    headers: dict[str, str], client: aiohttp.ClientSession
) -> None:
    """R44: 502 with the names of what is missing, and the thread stays as it was."""
    status, answer = await ask(client, "POST", RUNS, json={"message": "Hello"}, headers=headers)
    assert (status, answer["code"]) == (502, "config")
    assert "LLM_PROVIDER" in answer["error"]
    assert await ask(client, "GET", THREAD) == (200, {"messages": [], "seq": 0})


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "message"),
        ({"message": None}, "message"),
        ({"message": ""}, "message"),
        ({"message": "  \n"}, "message"),
        ({"message": {"content": []}}, "message"),
        ({"message": {"content": [{"type": "text", "text": " \n"}]}}, "message"),
        ({"message": 5}, "message"),
        ({"message": {}}, "message.content"),
        ({"message": {"content": 5}}, "message.content"),
        ({"message": {"content": "x", "id": 5}}, "message.id"),
        ({"message": {"content": "x", "id": "x" * 201}}, "message.id"),
        ({"message": {"content": [{"type": "film"}]}}, "message.content[0].type"),
        ({"message": "x", "context": []}, "context"),
        ([], "$"),
    ],
)
async def test_a_wrong_body_is_400_and_its_place_is_named(
    body: Any, path: str, client: aiohttp.ClientSession
) -> None:
    """R15"""
    status, answer = await ask(client, "POST", RUNS, json=body)
    assert (status, answer["code"], answer["path"]) == (400, "invalid", path)


@pytest.mark.parametrize("thread", ["x" * 201, "a%0Ab", "%00", "a%E2%80%AEb"])
async def test_a_thread_has_a_name_that_can_be_read(thread: str, client: aiohttp.ClientSession) -> None:
    for method, path in (("POST", "/runs"), ("GET", "")):
        url = URL(f"/api/agent/threads/{thread}{path}", encoded=True)
        async with client.request(method, url, json={"message": "x"} if path else None) as response:
            answer = await response.json()
        assert (response.status, answer["code"], answer["path"]) == (400, "invalid", "thread_id")


@pytest.mark.parametrize(("method", "what"), [("GET", "events"), ("POST", "cancel")])
async def test_an_unknown_run_is_404(method: str, what: str, client: aiohttp.ClientSession) -> None:
    status, answer = await ask(client, method, f"/api/agent/runs/no-such-run/{what}")
    assert (status, answer["code"]) == (404, "not_found")


async def test_head_of_a_stream_does_not_wait_for_the_run(tmp_path: Path) -> None:
    model = HeldModel()
    async with served(llm=model, settings=settings(tmp_path)) as client:
        _, run = await ask(client, "POST", RUNS, json={"message": "Hello"})
        async with asyncio.timeout(5), client.head(f"/api/agent/runs/{run['runId']}/events") as response:
            assert (response.status, response.content_type) == (200, "text/event-stream")
        model.go.set()


async def test_what_is_internal_stays_inside(tmp_path: Path) -> None:
    """A provider's opaque data never leaves; reasoning is told as events, and not kept in what is read."""

    class Reasoning:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            metadata = {"x": {"signature": "OPAQUE"}}
            return LLMResult(AssistantMessage("Hi", reasoning="HIDDEN", provider_metadata=metadata))

    async with served(llm=Reasoning(), settings=settings(tmp_path)) as client:
        events = await all_frames(client, "POST", RUNS, json={"message": "Hello"})
        _, view = await ask(client, "GET", THREAD)
    assert texts(view)[-1] == ("assistant", "Hi")
    for secret in ("OPAQUE", "HIDDEN"):
        assert secret not in str(events) + str(view)


async def test_silence_is_filled_with_comments(tmp_path: Path) -> None:
    """Q215"""
    model = HeldModel()
    options = ServerOptions(heartbeat=0.02)
    async with (
        served(llm=model, settings=settings(tmp_path), options=options) as client,
        client.post(RUNS, json={"message": "Hello"}, headers=STREAM) as response,
    ):
        kinds: list[str] = []
        async for kind, _ in frames(response):
            kinds.append(kind)
            if kinds.count("comment") == 3:
                model.go.set()
    assert kinds[-1] == "run_end"


async def test_sessions_of_the_application_are_used_with_their_own_model(tmp_path: Path) -> None:
    """Given sessions need no configuration of ours, and are closed when the server ends."""
    model = HeldModel()
    model.go.set()
    sessions = Sessions(AgentLoop(model, system="Be brief."))
    async with served(sessions=sessions, settings=settings(tmp_path)) as client:
        events = await all_frames(client, "POST", RUNS, json={"message": "Hello"})
        assert (await ask(client, "GET", "/readyz"))[0] == 200
    assert events[-1][1]["result"]["text"] == "Wait for it"
    assert model.requests[0].system == "Be brief."


async def test_the_mock_answers_a_whole_turn(tmp_path: Path) -> None:
    """R64: call, result, answer."""
    held = Settings(home=tmp_path, llm_provider="mock")
    async with served(settings=held) as client:
        events = await all_frames(client, "POST", RUNS, json={"message": "hello"})
    assert events[-1][1]["result"]["finishReason"] == "final"
    assert "no media" in str(events) or "mediaCount" in str(events)


async def test_a_run_without_streaming_is_recorded_all_the_same(tmp_path: Path) -> None:
    """A provider that answers a streamed request with plain JSON."""
    async with (
        FakeProvider(openai_calls([("nope", {})]), openai_text("done")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        events = await all_frames(client, "POST", RUNS, json={"message": "Hello"})
    assert events[-1][1]["result"]["text"] == "done"
    (result,) = [data["result"] for kind, data in events if kind == "tool_result"]
    assert "nope" in result["error"]


class Asker:
    """A model that waits for `go`, calls a tool, and says that it is done."""

    provider = model = "asker"

    def __init__(self, *calls: ToolCall) -> None:
        self.calls = calls
        self.called = asyncio.Event()
        self.go = asyncio.Event()
        self.seen: list[str | None] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.seen.append(request.context.project_id if request.context else None)
        self.called.set()
        await self.go.wait()
        if len(self.seen) == 1:
            return LLMResult(AssistantMessage("", self.calls), "tool_calls")
        return LLMResult(AssistantMessage("Done."))


async def test_the_next_step_is_shown_what_is_open_by_then(tmp_path: Path) -> None:
    """Issue 7, 2: also by a message that steers the run; where none is at work it is said."""
    model = Asker(ToolCall("c", "echo_context", {}))
    registry = default_registry(mock=True)
    async with served(llm=model, settings=settings(tmp_path), registry=registry) as client:
        body = {"message": "Hello", "context": {"projectId": "one"}}
        now = {"context": {"projectId": "two", "playbackTimeMs": 5}}
        assert await ask(client, "PUT", f"{THREAD}/context", json=now) == (200, {"taken": False})
        reading = asyncio.create_task(all_frames(client, "POST", RUNS, json=body))
        await model.called.wait()
        assert await ask(client, "PUT", f"{THREAD}/context", json=now) == (200, {"taken": True})
        other = THREAD.replace("t1", "t2")
        assert await ask(client, "PUT", f"{other}/context", json=now) == (200, {"taken": False})
        model.go.set()
        events = await reading
        assert model.seen == ["one", "two"]
        (result,) = [data["result"] for kind, data in events if kind == "tool_result"]
        assert (result["result"]["projectId"], result["result"]["playbackTimeMs"]) == ("two", 5)
        for bad in ({"context": None}, {"context": {"playbackTimeMs": "x"}}, {}):
            assert (await ask(client, "PUT", f"{THREAD}/context", json=bad))[0] == 400

        model.seen, model.called, model.go = [], asyncio.Event(), asyncio.Event()
        reading = asyncio.create_task(all_frames(client, "POST", RUNS, json=body))
        await model.called.wait()
        steer = {"message": "And?", "policy": "steer", "context": {"projectId": "three"}}
        assert (await ask(client, "POST", RUNS, json=steer))[0] == 202
        model.go.set()
        await reading
        assert model.seen == ["one", "three"]


async def test_an_answer_brings_what_is_open_by_then(tmp_path: Path) -> None:
    """Issue 7, 2: or else the run goes on with what was open before."""

    @tool(client=True)
    async def look() -> str:
        """Look."""
        return ""

    for more, expected in (({}, "one"), ({"context": {"projectId": "two"}}, "two")):
        model = Asker(ToolCall("c", "look", {}))
        model.go.set()
        home = settings(tmp_path / expected)
        async with served(llm=model, settings=home, registry=ToolRegistry([look])) as client:
            body = {"message": "Hello", "context": {"projectId": "one"}}
            await all_frames(client, "POST", RUNS, json=body)
            (waits,) = (await ask(client, "GET", THREAD))[1]["pending"]
            answer = {"callId": "c", "argsHash": waits["argsHash"], "result": "seen", **more}
            await all_frames(client, "POST", f"/api/agent/runs/{waits['runId']}/tool-results", json=answer)
            assert model.seen == ["one", expected]
