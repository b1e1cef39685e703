"""The page and durable runs: the server dies in mid-answer, and what it was at goes on in the next."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, Page, expect

from playhead.testing import FakeProvider, Reply, openai_sse
from playhead.testing.provider import Request
from tests.cli.support import line_with, started
from tests.server.browsing import page_of

pytestmark = pytest.mark.anyio

ANSWER = [f"word {n}, 漢字 🎬; " for n in range(40)]
WHOLE = "".join(ANSWER).strip()
LOST = "Connection lost. Trying again…"


class Provider:
    """Answers in pieces; the first `held` times it comes to the midst of its answer and no further."""

    def __init__(self, held: int) -> None:
        self.held = held
        self.asked: list[str] = []

    def reply(self, request: Request) -> Reply:
        said = [m["content"] for m in request.json["messages"] if m["role"] == "user"][-1]
        self.asked.append(said)
        self.held -= 1
        holds = self.held >= 0

        async def pace(number: int) -> None:
            if holds and number > len(ANSWER) // 2:
                await request.closed.wait()
            await asyncio.sleep(0.01)  # the pace of a model: it is seen while it grows

        return openai_sse(*(ANSWER if said == "long" else [f"You said {said}."]), pause=pace)


@asynccontextmanager
async def server(home: Path, provider: FakeProvider, port: int = 0) -> AsyncIterator[tuple[Any, str]]:
    """`playhead serve` on a port, and its address."""
    env = {
        "PLAYHEAD_HOME": str(home),
        "LLM_PROVIDER": "openai-compatible",
        "LLM_MODEL": "some-model",
        "LLM_API_KEY": "sk-none",
        "LLM_BASE_URL": provider.url,
    }
    async with started("serve", "--port", str(port), env=env) as process:
        assert process.stdout
        yield process, (await line_with("Serving http", process.stdout)).split()[1].rstrip("/")


async def say(page: Page, text: str) -> None:
    await page.fill("#message", text)
    await page.press("#message", "Enter")


def texts(page: Page) -> Any:
    return page.locator("#log > p:is(.user, .assistant, .note), #log > .queue > .user")


async def messages_of(page: Page, url: str) -> list[tuple[str, str]]:
    """The thread, as the server knows it."""
    thread = await page.evaluate("localStorage.getItem('playhead.project.thread')")
    async with aiohttp.ClientSession(url) as client, client.get(f"/api/agent/threads/{thread}") as response:
        return [(m["role"], m["content"].strip()) for m in (await response.json())["messages"]]


async def test_an_answer_goes_on_after_the_death_of_its_server(browser: Browser, tmp_path: Path) -> None:
    """Issue 6: killed in mid-answer and started again on the same port and home. The page reconnects, the
    answer goes on and ends, what waited behind it is answered, and nothing is there twice."""
    scripted = Provider(held=1)
    async with FakeProvider(default=scripted.reply) as provider, server(tmp_path, provider) as (first, url):
        port = int(url.rsplit(":", 1)[1])
        async with page_of(browser, url) as page:
            await say(page, "long")
            await expect(page.locator(".assistant")).to_contain_text("word 15,")
            await say(page, "later")
            await expect(page.locator(".queue .user")).to_have_attribute("data-state", "Waits for its turn")
            first.kill()
            await first.wait()
            await expect(page.locator("#status")).to_have_text(LOST)
            # What was shown stays to be read.
            await expect(page.locator(".assistant")).to_contain_text("word 15,")
            async with server(tmp_path, provider, port):
                said = ["long", WHOLE, "later", "You said later."]
                await expect(texts(page)).to_have_text(said)
                await expect(page.locator("#status")).to_have_text("")
                await expect(page.locator("#stop")).to_be_hidden()
                told = await messages_of(page, url)
                assert told == [*zip(("user", "assistant") * 2, said, strict=True)]
                await page.reload()
                await expect(texts(page)).to_have_text(said)
                assert scripted.asked == ["long", "long", "later"]


async def test_a_server_that_dies_again_and_again_is_no_matter(browser: Browser, tmp_path: Path) -> None:
    """Issue 6: three deaths in one answer, and the answer is there once."""
    scripted = Provider(held=3)
    async with FakeProvider(default=scripted.reply) as provider, server(tmp_path, provider) as (first, url):
        port = int(url.rsplit(":", 1)[1])
        async with page_of(browser, url) as page:
            await say(page, "long")
            await expect(page.locator(".assistant")).to_contain_text("word 15,")
            first.kill()
            await first.wait()
            for n in range(2):
                async with server(tmp_path, provider, port) as (again, _):
                    await provider.wait_for_requests(n + 2)
                    await expect(page.locator(".assistant")).to_contain_text("word 15,")
                    again.kill()
                    await again.wait()
            async with server(tmp_path, provider, port):
                await expect(texts(page)).to_have_text(["long", WHOLE])
                await expect(page.locator("#status")).to_have_text("")
                assert await messages_of(page, url) == [("user", "long"), ("assistant", WHOLE)]
                assert scripted.asked == ["long"] * 4
