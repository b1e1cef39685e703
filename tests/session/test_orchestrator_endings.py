"""However a client-side run ends, the stores are left in order."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from playhead import FatalToolError, tool
from playhead.errors import StoreError
from playhead.session.orchestrator import Orchestrator
from playhead.session.stores import AgentStore, ChatStore
from playhead.testing import FakeProvider, Reply, hang, sse, stream
from playhead.types import ChatMessage, ToolMessage, UserMessage
from tests.session.models import assert_valid
from tests.session.shown import Call, Shown, landed, says

pytestmark = pytest.mark.anyio


class Tools:
    """`quick` ends at once; `forever` never does."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

        @tool
        async def forever() -> str:
            """Never return."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return ""

        @tool
        async def quick() -> str:
            """Return."""
            return "quick"

        self.all = [forever, quick]


CALLS: list[Call] = [("forever", {}), ("quick", {})]


def open_stream(*pieces: str) -> Reply:
    """A reply that begins and then says nothing more."""
    chunks = [b"event: text_delta\n" + sse({"type": "text_delta", "text": p})[0] for p in pieces]
    return stream(chunks, cut="hang")


@pytest.mark.parametrize("how", ["cancel", "CancelledError"])
async def test_a_stop_while_tools_run_closes_the_open_calls(how: str) -> None:
    """D: loading False, status idle; results that landed are kept, open calls are told as cancelled."""
    tools, cancel = Tools(), asyncio.Event()
    async with FakeProvider(says("", *CALLS)) as server:
        shown = Shown(server, tools.all)
        run = asyncio.create_task(shown.ask("go", cancel=cancel))
        await tools.begun.wait()
        await shown.until(landed("quick"))
        assert shown.chat.loading
        await stop(how, run, cancel)
    assert tools.ended.is_set()
    assert (shown.chat.loading, shown.agent.status, shown.agent.active_tool) == (False, "idle", None)
    assert shown.chat.error is None
    results = [m for m in shown.chat.messages if isinstance(m, ToolMessage)]
    assert [(m.tool_name, m.is_error) for m in results] == [("forever", True), ("quick", False)]
    assert "Cancelled" in results[0].content
    assert results[1].content == "quick"
    assert_valid(shown.chat.messages)


async def stop(how: str, run: "asyncio.Task[Any]", cancel: asyncio.Event) -> None:
    if how == "cancel":
        cancel.set()
        assert (await run).finish_reason == "cancelled"
    else:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


@pytest.mark.parametrize("how", ["cancel", "CancelledError"])
async def test_a_stop_while_the_route_is_silent(how: str) -> None:
    """D: the stores are idle again, and the connection is closed."""
    cancel = asyncio.Event()
    async with FakeProvider(hang()) as server:
        shown = Shown(server)
        run = asyncio.create_task(shown.ask("go", cancel=cancel))
        await server.wait_for_requests(1)
        assert shown.agent.status == "sending"
        await stop(how, run, cancel)
        async with asyncio.timeout(5):
            await server.requests[0].closed.wait()
    assert (shown.chat.loading, shown.agent.status, shown.chat.error) == (False, "idle", None)
    assert shown.said == [("user", "go")]


async def test_a_stop_in_the_middle_of_a_reply_keeps_what_was_said() -> None:
    """Q173: the partial text stays, marked as interrupted, in the store and in the result alike."""
    cancel = asyncio.Event()
    async with FakeProvider(open_stream("It ", "says")) as server:
        shown = Shown(server)

        def tell(event: Any) -> None:
            if event.type == "text_delta" and event.text == "says":
                cancel.set()

        shown.chat.add_message(role="user", content="go")
        result = await shown.orchestrator.run(shown.chat.messages, cancel=cancel, on_event=tell)
    assert (result.finish_reason, result.text) == ("cancelled", "It says")
    assert shown.said == [("user", "go"), ("assistant", "It says")]
    assert (shown.chat.loading, shown.agent.status) == (False, "idle")


async def test_a_stop_before_the_start_asks_nobody() -> None:
    """D: a run that is stopped already ends as cancelled."""
    cancel = asyncio.Event()
    cancel.set()
    async with FakeProvider() as server:
        shown = Shown(server)
        assert (await shown.ask("go", cancel=cancel)).finish_reason == "cancelled"
        assert server.requests == []
    assert (shown.chat.loading, shown.agent.status) == (False, "idle")


async def test_the_next_run_after_a_stop_works() -> None:
    """D: what a stop leaves in the store is a history that can be posted."""
    tools, cancel = Tools(), asyncio.Event()
    async with FakeProvider(says("", *CALLS), says("ok")) as server:
        shown = Shown(server, tools.all)
        run = asyncio.create_task(shown.ask("go", cancel=cancel))
        await tools.begun.wait()
        await stop("CancelledError", run, cancel)
        assert (await shown.ask("and now?")).text == "ok"
        roles = [m["role"] for m in server.requests[1].json["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


async def test_a_fatal_tool_is_an_error_that_is_shown() -> None:
    """S8, R25: the run fails, with the tool's text in the chat store."""

    @tool
    async def fatal() -> str:
        """Fail for good."""
        raise FatalToolError("the licence is gone")

    async with FakeProvider(says("", ("fatal", {}))) as server:
        shown = Shown(server, [fatal])
        result = await shown.ask("go")
    assert (result.finish_reason, shown.chat.error) == ("error", "the licence is gone")
    assert (shown.chat.loading, shown.agent.status) == (False, "error")
    assert_valid(shown.chat.messages)


class FullAfter(ChatStore):
    """A chat whose disk is full after so many messages."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def add_message(self, message: ChatMessage | None = None, **fields: Any) -> ChatMessage:
        if not self.room:
            raise StoreError("chat.jsonl could not be written: No space left on device.")
        self.room -= 1
        return super().add_message(message, **fields)


@pytest.mark.parametrize("room", [0, 1, 2])
async def test_a_store_that_fails_is_raised_and_shown(room: int) -> None:
    """D: the error of the store reaches the caller; loading is False all the same."""
    chat, agent, tools = FullAfter(room), AgentStore(), Tools()
    async with FakeProvider(says("", ("quick", {})), says("ok")) as server:
        orchestrator = Orchestrator(f"{server.url}/api/agent/chat", tools.all, chat, agent)
        with pytest.raises(StoreError, match="No space left"):
            await orchestrator.run([UserMessage("go")])
        assert (chat.loading, agent.status, agent.active_tool) == (False, "error", None)
        assert "No space left" in (chat.error or "")
        chat.room = 9
        server.add(says("ok"))
        assert (await orchestrator.run([UserMessage("go")])).finish_reason == "final"
        assert (chat.error, agent.status) == (None, "idle")


async def test_a_persisted_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    """R3, D: stored message by message as the run goes; another process's orchestrator continues it."""
    path = tmp_path / "chat.jsonl"
    async with FakeProvider(says("", ("quick", {})), says("one"), says("two")) as server:
        for text in ("first", "second"):
            chat = ChatStore(persist=path)
            chat.add_message(role="user", content=text)
            url = f"{server.url}/api/agent/chat"
            await Orchestrator(url, Tools().all, chat, AgentStore()).run(chat.messages)
        sent = server.requests[2].json["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert ChatStore(persist=path).messages == chat.messages
