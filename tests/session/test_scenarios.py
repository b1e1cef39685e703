"""The seeds' scenarios through the whole shell, on real sockets: chat store, orchestrator,
`POST /api/agent/chat` of our server, provider adapter, a provider in raw bytes, and back.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from playhead import AgentContext, MediaAsset, ToolRegistry, connect, tool
from playhead.session.orchestrator import LIMIT_REACHED, Orchestrator
from playhead.session.stores import AgentStore, ChatStore
from playhead.testing import (
    FakeProvider,
    Reply,
    gemini_calls,
    gemini_sse,
    openai_calls,
    openai_sse,
    openai_text,
    reply_json,
)
from playhead.tools.builtin.echo_context import echo_context
from playhead.types import AssistantMessage, ToolMessage
from tests.server.support import CANARY, address, served, settings
from tests.session.models import assert_valid

pytestmark = pytest.mark.anyio

CONTEXT = AgentContext("p1", "scene-1", [MediaAsset("a1", "talk.mp4", duration=4.0)], 1500.0)
TRANSCRIBE: Any = ("transcribe_video", {})


@tool
async def transcribe_video(assetId: str | None = None) -> dict[str, str]:
    """Transcribe."""
    if assetId == "broken":
        raise ValueError("the file cannot be read")
    return {"text": "and so my fellow Americans"}


class Shell:
    """A front end: two stores and an orchestrator on the route of a server."""

    def __init__(self, url: str, registry: ToolRegistry) -> None:
        self.chat = ChatStore()
        self.agent = AgentStore()
        self.orchestrator = Orchestrator(f"{url}/api/agent/chat", registry, self.chat, self.agent)

    async def ask(self, text: str) -> None:
        self.chat.add_message(role="user", content=text)
        await self.orchestrator.run(self.chat.messages, CONTEXT)
        assert_valid(self.chat.messages)
        assert CANARY not in str(self.chat.state)
        assert not self.chat.loading

    @property
    def last(self) -> str:
        return str(self.chat.messages[-1].content)


@asynccontextmanager
async def shell(home: Path, *replies: Reply, default: Reply | None = None) -> AsyncIterator[Shell]:
    registry = ToolRegistry([transcribe_video])
    async with (
        FakeProvider(*replies, default=default) as provider,
        served(settings=settings(home, f"{provider.url}/v1"), registry=registry) as client,
    ):
        yield Shell(address(client), registry)


@asynccontextmanager
async def gemini_shell(home: Path, *replies: Reply) -> AsyncIterator[Shell]:
    registry = ToolRegistry([transcribe_video])
    async with (
        FakeProvider(*replies) as provider,
        served(
            settings=settings(home), llm=connect("gemini", "m", CANARY, provider.url), registry=registry
        ) as client,
    ):
        yield Shell(address(client), registry)


async def test_happy_path_with_no_tool_calls(tmp_path: Path) -> None:
    """R26: seed 000, Orchestrator Shell."""
    async with shell(tmp_path, openai_sse("Hello", "!")) as shown:
        await shown.ask("Hi")
    assert [m.role for m in shown.chat.messages] == ["user", "assistant"]
    assert (shown.last, shown.agent.status) == ("Hello!", "idle")


async def test_tool_call_then_final_answer(tmp_path: Path) -> None:
    """R27: seed 000, Orchestrator Shell; the transcript reaches the provider."""
    async with shell(
        tmp_path, openai_sse(calls=[TRANSCRIBE]), openai_sse("Here is the transcription...")
    ) as shown:
        await shown.ask("Transcribe this video")
    assert [m.role for m in shown.chat.messages] == ["user", "assistant", "tool", "assistant"]
    assert "and so my fellow Americans" in str(shown.chat.messages[2].content)
    assert (shown.last, shown.agent.status) == ("Here is the transcription...", "idle")


async def test_tool_call_then_final_answer_through_gemini(tmp_path: Path) -> None:
    """R27, R40: the same run over an API without call ids: each call still has one."""
    async with gemini_shell(
        tmp_path, gemini_calls([TRANSCRIBE, TRANSCRIBE]), gemini_sse("Here it is.")
    ) as shown:
        await shown.ask("Transcribe this video")
    asked = shown.chat.messages[1]
    assert isinstance(asked, AssistantMessage)
    assert len({call.id for call in asked.tool_calls} - {""}) == 2
    assert (shown.last, shown.agent.status) == ("Here it is.", "idle")


async def test_error_during_tool_execution(tmp_path: Path) -> None:
    """R28: seed 000, per-tool recovery: the error is read by the model, which answers."""
    async with shell(
        tmp_path,
        openai_sse(calls=[("transcribe_video", {"assetId": "broken"})]),
        openai_sse("It cannot be read."),
    ) as shown:
        await shown.ask("Transcribe this video")
    told = shown.chat.messages[2]
    assert isinstance(told, ToolMessage)
    assert (told.is_error, "the file cannot be read" in told.content) == (True, True)
    assert (shown.last, shown.agent.status, shown.chat.error) == ("It cannot be read.", "idle", None)


async def test_wrong_argument_type(tmp_path: Path) -> None:
    """R48: seed 000, Tool Argument Validation: the result names `assetId`, the tool does not run."""
    async with shell(
        tmp_path, openai_sse(calls=[("transcribe_video", {"assetId": 123})]), openai_sse("Sorry.")
    ) as shown:
        await shown.ask("Transcribe this video")
    told = shown.chat.messages[2]
    assert isinstance(told, ToolMessage)
    assert told.is_error
    assert "assetId" in told.content


async def test_cap_reached_in_mid_loop(tmp_path: Path) -> None:
    """R51: seed 000, Max Iteration Guard: the eighth also asks for tools."""
    async with shell(tmp_path, default=openai_sse(calls=[TRANSCRIBE])) as shown:
        await shown.ask("go")
    assert [m.role for m in shown.chat.messages] == ["user", *["assistant", "tool"] * 8, "assistant"]
    assert (shown.last, shown.agent.status) == ("Reached maximum iteration limit", "idle")


async def test_loop_completes_within_the_cap(tmp_path: Path) -> None:
    """R52: seed 000, Max Iteration Guard: text after two rounds of tools."""
    rounds = [openai_sse(calls=[TRANSCRIBE])] * 2
    async with shell(tmp_path, *rounds, openai_sse("done")) as shown:
        await shown.ask("go")
    assert (shown.last, shown.agent.status) == ("done", "idle")
    assert LIMIT_REACHED not in [m.content for m in shown.chat.messages]


@pytest.mark.parametrize("status", [401, 500])
async def test_provider_error(tmp_path: Path, status: int) -> None:
    """R16, R25: seed 000: the provider's failure is shown in the route's words, and nothing of its body."""
    refusal = reply_json({"error": {"message": f"bad key {CANARY}"}}, status)
    # What may pass is asked for again by the server, a refused key is not.
    refusals = [refusal] * (1 if status == 401 else 3)
    async with shell(tmp_path, *refusals) as shown:
        await shown.ask("Hi")
    assert (shown.chat.error, shown.agent.status) == ("LLM provider error", "error")


async def test_missing_configuration(tmp_path: Path) -> None:
    """R44: seed 000, Provider Configuration: the front end is told which settings are missing."""
    registry = ToolRegistry([transcribe_video])
    async with served(settings=settings(tmp_path), registry=registry) as client:
        shown = Shell(address(client), registry)
        await shown.ask("Hi")
    assert "LLM_API_KEY" in (shown.chat.error or "")
    assert shown.agent.status == "error"


@pytest.mark.parametrize(
    ("text", "name", "answer"),
    [("Hi", "echo_context", "p1"), ("Transcribe this video", "transcribe_video", "fellow Americans")],
)
async def test_the_mock_route(tmp_path: Path, text: str, name: str, answer: str) -> None:
    """R60, R62, R63, R64: seed 003: by intent a `transcribe_video` or an `echo_context` call, then text."""
    registry = ToolRegistry([transcribe_video, echo_context()])
    async with served(settings=settings(tmp_path, llm_provider="mock"), registry=registry) as client:
        shown = Shell(address(client), registry)
        await shown.ask(text)
    asked, told, reply = shown.chat.messages[1:]
    assert isinstance(asked, AssistantMessage)
    assert isinstance(told, ToolMessage)
    assert [(c.name, c.args) for c in asked.tool_calls] == [(name, {})]
    assert not told.is_error
    assert answer in str(reply.content)
    assert shown.agent.status == "idle"


async def test_a_stop_reaches_the_provider(tmp_path: Path) -> None:
    """D, Q211: stopping the client-side run ends the server's call of the provider too."""
    registry = ToolRegistry([transcribe_video])
    cancel = asyncio.Event()
    async with (
        FakeProvider(openai_sse("Hello", cut="hang", done=False, finish_reason=None)) as provider,
        served(settings=settings(tmp_path, f"{provider.url}/v1"), registry=registry) as client,
    ):
        shown = Shell(address(client), registry)

        def stop_at_text(event: Any) -> None:
            if event.type == "text_delta":
                cancel.set()

        shown.chat.add_message(role="user", content="Hi")
        result = await shown.orchestrator.run(shown.chat.messages, cancel=cancel, on_event=stop_at_text)
        assert (result.finish_reason, result.text) == ("cancelled", "Hello")
        async with asyncio.timeout(5):
            await provider.requests[0].closed.wait()
    assert (shown.last, shown.agent.status) == ("Hello", "idle")


async def test_replies_without_streaming_are_the_same(tmp_path: Path) -> None:
    """R21: a provider that answers whole, though asked to stream."""
    async with shell(tmp_path, openai_calls([TRANSCRIBE]), openai_text("Here.")) as shown:
        await shown.ask("Transcribe this video")
    assert [m.role for m in shown.chat.messages] == ["user", "assistant", "tool", "assistant"]
    assert shown.last == "Here."
