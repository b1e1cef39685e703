"""An orchestrator on a chat route in raw bytes, and what its stores showed."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from playhead import AgentContext, AgentRunResult, tool
from playhead.events import Event, ToolResultEvent
from playhead.session.orchestrator import Orchestrator
from playhead.session.stores import AgentStore, ChatStore
from playhead.testing import FakeProvider, Reply, reply_json, sse, stream
from playhead.types import ChatMessage, ToolDefinition

Call = tuple[str, dict[str, Any]]


def says(text: str, *calls: Call, ids: Sequence[str] = ()) -> Reply:
    """The route's reply in the seed's form."""
    made = [
        {"id": ids[n] if ids else f"c{n}", "name": name, "args": args} for n, (name, args) in enumerate(calls)
    ]
    return reply_json({"content": text, "toolCalls": made})


def streams(*pieces: str) -> Reply:
    """The route's reply as an event stream."""
    events = [
        b"event: text_delta\n" + chunk for chunk in sse(*({"type": "text_delta", "text": p} for p in pieces))
    ]
    return stream([*events, b"event: message\n" + sse({"content": "".join(pieces)})[0]])


def landed(text: str) -> Callable[[Event], bool]:
    """Say whether an event is a tool's result with that text."""
    return lambda event: isinstance(event, ToolResultEvent) and event.result.text == text


@tool
async def transcribe_video() -> dict[str, str]:
    """Transcribe."""
    return {"text": "hello world"}


@tool
async def broken() -> str:
    """Fail."""
    raise ValueError("the disk is on fire")


@tool
async def needs(assetId: str) -> str:
    """Take an asset."""
    return assetId


TOOLS: list[ToolDefinition[..., Any]] = [transcribe_video, broken, needs]


class Shown:
    """Two stores, an orchestrator over them, and a record of what they told."""

    def __init__(self, server: FakeProvider, tools: Sequence[ToolDefinition[..., Any]] = TOOLS, **more: Any):
        self.chat = ChatStore()
        self.agent = AgentStore()
        self.events: list[Event] = []
        self.states: list[tuple[str, str | None, bool, int]] = []
        self._news = asyncio.Event()
        self.orchestrator = Orchestrator(f"{server.url}/api/agent/chat", tools, self.chat, self.agent, **more)
        self.chat.subscribe(lambda state: self._note())
        self.agent.subscribe(lambda state: self._note())

    def _note(self) -> None:
        self.states.append(
            (self.agent.status, self.agent.active_tool, self.chat.loading, len(self.chat.messages))
        )

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, found: Callable[[Event], bool]) -> None:
        """Wait for an event."""
        while not any(map(found, self.events)):
            self._news.clear()
            await self._news.wait()

    @property
    def statuses(self) -> list[str]:
        """The statuses in order, without repeats."""
        found = [status for status, *_ in self.states]
        return [status for n, status in enumerate(found) if n == 0 or found[n - 1] != status]

    @property
    def said(self) -> list[tuple[str, Any]]:
        return [(m.role, m.content) for m in self.chat.messages]

    async def ask(self, text: str = "Hi", context: AgentContext | None = None, **more: Any) -> AgentRunResult:
        """Say something as a front end does: into the store, then to the orchestrator."""
        self.chat.add_message(role="user", content=text)
        return await self.run(self.chat.messages, context, **more)

    async def run(
        self, messages: Sequence[ChatMessage], context: AgentContext | None = None, **more: Any
    ) -> AgentRunResult:
        return await self.orchestrator.run(messages, context, on_event=self._hear, **more)
