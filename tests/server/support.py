"""A real server on a real port, its event streams, and models that wait to be told what to do."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from starlette.applications import Starlette

from playhead.config import Settings
from playhead.events import EmitDelta, TextDelta
from playhead.server.app import create_app
from playhead.server.listen import Server, address_of, listen
from playhead.testing import FakeProvider, reply_json
from playhead.types import AssistantMessage, LLMRequest, LLMResult

CANARY = "sk-canary-4f1d9c2b7a"
ROOT = Path(__file__).parent.parent.parent
SAMPLE = ROOT / "src" / "playhead" / "media" / "samples" / "jfk.mp4"

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
STREAM = {"Accept": "text/event-stream"}


def settings(home: Path, base_url: str | None = None, **more: Any) -> Settings:
    """The settings of an OpenAI-compatible provider, or of none."""
    if base_url is not None:
        provider = {"llm_provider": "openai-compatible", "llm_model": "some-model", "llm_api_key": CANARY}
        more = {**provider, "llm_base_url": base_url, **more}
    return Settings(home=home, **more)


class PromptServer(Server):
    """The server, which looks at once whether it should end, and not ten times a second."""

    def __init__(self, app: Starlette, on_ready: Callable[[], object]) -> None:
        super().__init__(app, on_ready)
        self.end = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.end.wait()


@asynccontextmanager
async def served(app: Starlette | None = None, **parts: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve an app on loopback; what is yielded asks it."""
    app = app or create_app(**parts)
    ready = asyncio.Event()
    with listen("127.0.0.1", 0) as listener:
        server = PromptServer(app, ready.set)
        task = asyncio.create_task(server.serve([listener]))
        await ready.wait()
        try:
            async with aiohttp.ClientSession(address_of(listener)) as client:
                yield client
        finally:
            server.end.set()
            await task


@asynccontextmanager
async def process(home: Path, model: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A server in a process of its own, and its address."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.server.serving",
        str(home),
        model,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert started.stdout is not None
    try:
        async with asyncio.timeout(30):
            yield started, (await started.stdout.readline()).decode().strip()
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


def address(client: aiohttp.ClientSession) -> str:
    """Where the server is, as a browser writes an origin."""
    return str(client._base_url).rstrip("/")


async def ask(client: aiohttp.ClientSession, method: str, path: str, **more: Any) -> tuple[int, Any]:
    """Ask and return the status and the JSON of the answer."""
    async with client.request(method, path, **more) as response:
        return response.status, await response.json()


async def chat(client: aiohttp.ClientSession, body: Any = HELLO, **more: Any) -> tuple[int, Any]:
    return await ask(client, "POST", "/api/agent/chat", json=body, **more)


Event = tuple[str, Any]


async def frames(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """The events of a stream as (type, data), comments as ("comment", text)."""
    assert response.status == 200, await response.text()
    assert response.content_type == "text/event-stream"
    block: list[str] = []
    async for raw in response.content:
        line = raw.decode().removesuffix("\n")
        if line:
            block.append(line)
            continue
        fields = dict(part.split(": ", 1) for part in block)
        if set(fields) == {""}:
            yield "comment", fields[""]
        else:
            assert set(fields) - {"id"} == {"event", "data"}, fields
            yield fields["event"], json.loads(fields["data"])
        block = []
    assert not block, "the stream ended within a frame"


async def all_frames(client: aiohttp.ClientSession, method: str, path: str, **more: Any) -> Sequence[Event]:
    headers = {**STREAM, **more.pop("headers", {})}
    async with client.request(method, path, headers=headers, **more) as response:
        return [event async for event in frames(response)]


class HeldModel:
    """Says `Wait`, and the rest once it is let go. `ended` tells how the last call ended."""

    provider = model = "held"

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.go = asyncio.Event()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.requests: list[LLMRequest] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.requests.append(request)
        if emit is not None:
            emit(TextDelta(text="Wait"))
        self.called.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.put_nowait("cancelled")
            raise
        if emit is not None:
            emit(TextDelta(text=" for it"))
        self.ended.put_nowait("done")
        return LLMResult(AssistantMessage("Wait for it"))


SPOKEN = "Ask not what your country can do for you."


def speech_endpoint() -> FakeProvider:
    """A transcription endpoint that hears the same sentence in each window, whatever it is sent."""
    return FakeProvider(default=reply_json({"text": SPOKEN, "language": "english"}))
