"""Pages in a real browser, and the line between browser and server, which can break."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from playwright.async_api import Browser, Locator, Page
from yarl import URL

# What a browser says by itself of an answer that is no success, or of a connection that broke.
EXPECTED = "Failed to load resource"


@asynccontextmanager
async def tabs_of(
    browser: Browser, url: str, count: int, path: str = "/", **options: Any
) -> AsyncIterator[list[Page]]:
    """Open pages of one person. It fails if one says anything on the console or asks another host."""
    complaints: list[str] = []
    hosts: set[str] = set()
    context = await browser.new_context(**options)
    context.set_default_timeout(20_000)
    context.on("console", lambda m: None if EXPECTED in m.text else complaints.append(m.text))
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    context.on("request", lambda request: hosts.add(re.sub(r"^(\w+://[^/]*).*", r"\1", request.url)))
    pages = [await context.new_page() for _ in range(count)]
    for page in pages:
        await page.goto(f"{url}{path}")
    yield pages
    await context.close()
    assert complaints == []
    assert {host for host in hosts if not host.startswith("data:")} == {url}


@asynccontextmanager
async def page_of(browser: Browser, url: str, **options: Any) -> AsyncIterator[Page]:
    """The same of one page."""
    async with tabs_of(browser, url, 1, **options) as (page,):
        yield page


async def say(page: Page, text: str) -> None:
    """Write a message in the panel and send it."""
    await page.fill("#message", text)
    await page.press("#message", "Enter")


def texts(page: Page) -> Locator:
    """What was said and noted in the panel, and what waits to be, from first to last."""
    return page.locator("#log :is(.user, .assistant, .note)")


class Line:
    """A TCP proxy. `to` is the server's address, and may change; without one, nobody answers.

    Attributes:
        budgets: how many bytes each of the next event streams gets before its connection is cut.
        cuts: how many connections were cut in the midst of an event stream.
        deaf: nothing of what the servers say is passed on, by the connections of now.
    """

    def __init__(self, to: str) -> None:
        self.to: str | None = to
        self.url = ""
        self.budgets: deque[int] = deque()
        self.cuts = 0
        self.deaf = False
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Break every connection, without a word."""
        for writer in self._writers:
            writer.transport.abort()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.to is None:
            writer.transport.abort()
            return
        server = URL(self.to)
        with suppress(OSError):
            there, back = await asyncio.open_connection(server.host, server.port)
            pair = {writer, back}
            self._writers |= pair
            try:
                await asyncio.gather(self._up(reader, back), self._down(there, writer))
            finally:
                self._writers -= pair
                for one in pair:
                    one.transport.abort()
            return
        writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.transport.abort()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        budget: int | None = None
        while data := await reader.read(65_536):
            if self.deaf:
                continue
            if budget is None and b"content-type: text/event-stream" in data and self.budgets:
                budget = self.budgets.popleft()
            if budget is not None:
                data, budget = data[:budget], budget - len(data)
            writer.write(data)
            await writer.drain()
            if budget is not None and budget <= 0:
                self.cuts += 1
                break
        writer.transport.abort() if budget is not None else writer.close()


@asynccontextmanager
async def line_to(url: str, budgets: Iterable[int] = ()) -> AsyncIterator[Line]:
    """A line to a server; ask `url` of it instead."""
    async with AsyncExitStack() as stack:
        line = Line(url)
        line.budgets.extend(budgets)
        listening = await asyncio.start_server(line.take, "127.0.0.1", 0)
        stack.callback(line.cut)
        stack.callback(listening.close)
        line.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield line
