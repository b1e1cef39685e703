"""Event streams out, and clients that go away."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from playhead.protocols.sse import comment

# Q215: a proxy must neither buffer nor compress a stream, nor close a silent one.
HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Content-Type": "text/event-stream; charset=utf-8",
}


def wants_events(request: Request) -> bool:
    """True if the client asks for an event stream."""
    accepted = request.headers.get("accept", "").lower().split(",")
    return any(part.partition(";")[0].strip() == "text/event-stream" for part in accepted)


async def gone(receive: Receive) -> None:
    """Return once the client has left. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Sends frames as they come, and a comment whenever nothing was sent for `heartbeat` seconds.

    When the client leaves, `frames` is closed where it stands: what that stops is its own business. So
    it is after `lasts` seconds, when the client has to come back.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        heartbeat: float,
        headers: Mapping[str, str] | None = None,
        lasts: float | None = None,
    ) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self.frames = frames
        self.heartbeat = heartbeat
        self.lasts = lasts
        self.over = False
        self.sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await self.frames.aclose()
            await super().__call__(scope, receive, send)
            return
        writer = asyncio.create_task(self._write(send))
        helpers = (asyncio.create_task(gone(receive)), asyncio.create_task(self._beat(send)))
        try:
            left = asyncio.FIRST_COMPLETED
            ended, _ = await asyncio.wait((writer, helpers[0]), timeout=self.lasts, return_when=left)
            if writer.done():
                await writer
            elif not ended:
                await self._break_off(writer, send)
        finally:
            self.over = True
            for task in (writer, *helpers):
                task.cancel()
            await asyncio.gather(writer, *helpers, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self.frames) as frames:
            async for data in frames:
                await self._send(send, data)
        self.over = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _break_off(self, writer: asyncio.Task[None], send: Send) -> None:
        """End between two frames: what is being sent goes out whole."""
        self.over = True
        writer.cancel()
        await asyncio.wait((writer,))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _beat(self, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        self.sent_at = clock()
        while not self.over:
            rest = self.sent_at + self.heartbeat - clock()
            if rest > 0:
                await asyncio.sleep(rest)
            else:
                await self._send(send, comment())

    async def _send(self, send: Send, data: bytes) -> None:
        self.sent_at = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def until_gone(request: Request, task: asyncio.Task[Any]) -> bool:
    """Wait for the task, or for the client to leave; then cancel it. True if the task ended first."""
    watch = asyncio.create_task(gone(request.receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return task.done()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
