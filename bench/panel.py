"""The panel in a browser: how soon a token is seen, what a long answer blocks, how fast a long thread opens.

Chromium through Playwright, over the real server with a model in this process. A long task is one that
keeps the page from answering for more than 50 ms.
"""

import asyncio
import gzip
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from playhead import LLMRequest, LLMResult
from playhead.config import Settings
from playhead.events import EmitDelta, TextDelta
from playhead.server import create_app, serve
from playhead.server.app import PANEL
from playhead.session.sessions import Sessions
from playhead.types import AssistantMessage, UserMessage

DELTAS, PACE = 2_500, 0.002
MESSAGES = 1_000
PIECES = [f"\n\n## Part {n}\n\n" if n % 100 == 0 else f"word{n % 900:03} " for n in range(DELTAS)]
WATCH = """() => {
  window.long = [];
  new PerformanceObserver((list) => list.getEntries().forEach(({ duration }) => long.push(duration)))
    .observe({ type: "longtask" });
  const log = document.querySelector("playhead-panel").shadowRoot.getElementById("log");
  window.first = () => new Promise((resolve) => {
    const before = log.querySelectorAll(".assistant").length;
    const watch = new MutationObserver(() => {
      if (log.querySelectorAll(".assistant").length === before) return;
      watch.disconnect();
      requestAnimationFrame(() => setTimeout(() => resolve(performance.timeOrigin + performance.now())));
    });
    watch.observe(log, { subtree: true, childList: true });
  });
}"""


# The project of the page goes on with the conversation that is filled.
FILLED = """async () => {
  const body = JSON.stringify({ threadId: "filled" });
  const headers = { "Content-Type": "application/json" };
  await fetch("api/projects/first", { method: "PATCH", headers, body });
  localStorage.setItem("playhead.project.thread", "filled");
}"""


class Speaker:
    """Says what it is asked for, and when it began to."""

    provider = model = "speaker"

    def __init__(self) -> None:
        self.began = 0.0

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        assert emit is not None
        pieces = PIECES if request.messages[-1].content == "long" else ["Hello."]
        self.began = time.time()
        for piece in pieces:
            emit(TextDelta(text=piece))
            await asyncio.sleep(PACE)
        return LLMResult(AssistantMessage("".join(pieces)))


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(_measure(Path(home)))


async def _measure(home: Path) -> None:
    speaker = Speaker()
    scripts = [PANEL / "panel.js", *sorted((PANEL / "panel").glob("*.js"))]
    packed = len(gzip.compress(b"".join(script.read_bytes() for script in scripts), 9))
    print(f"own script, packed                      {packed / 1024:8.1f} kB    (at most 24)")
    async with _page(home, speaker) as (page, url):
        tokens = [await _first_token(page, speaker) for _ in range(10)]
        middle, worst = statistics.median(tokens), max(tokens)
        print(f"first token on screen, median and worst {middle:8.0f} {worst:4.0f} ms (at most 100)")
        await page.evaluate("long.length = 0")
        await page.fill("#message", "long")
        await page.press("#message", "Enter")
        await page.locator("#stop").wait_for()
        await page.locator("#stop").wait_for(state="hidden", timeout=60_000)
        tasks = await page.evaluate("long")
        size = len("".join(PIECES)) / 1e3
        print(f"long tasks, {size:.0f} kB in {DELTAS} deltas        {len(tasks):8}         (none)")
        print(f"the longest of them                     {max(tasks, default=0):8.0f} ms")
        await page.evaluate(FILLED)
        opened = [await _open(page, url) for _ in range(3)]
        middle = statistics.median(opened)
        print(f"{MESSAGES} messages open, median             {middle:8.0f} ms    (under 1,000)")


async def _first_token(page: Page, speaker: Speaker) -> float:
    await page.evaluate("void (window.seen = first())")
    await page.fill("#message", "short")
    await page.press("#message", "Enter")
    seen: float = await page.evaluate("seen")
    await page.locator("#stop").wait_for(state="hidden")
    return seen - speaker.began * 1e3


async def _open(page: Page, url: str) -> float:
    """From the start of the page's load to the newest message on screen."""
    await page.goto(url)
    took: float = await page.evaluate(
        """() => new Promise((resolve) => {
          const look = () => {
            const log = document.querySelector("playhead-panel")?.shadowRoot?.getElementById("log");
            const last = [...(log?.querySelectorAll(".assistant") ?? [])].at(-1);
            if (last?.getBoundingClientRect().height) resolve(performance.now());
            else requestAnimationFrame(look);
          };
          look();
        })"""
    )
    assert await page.locator(".assistant").count() == MESSAGES // 2
    return took


async def _fill(sessions: Sessions, thread_id: str) -> None:
    ledger = (await sessions._opened()).ledger
    for n in range(MESSAGES // 2):
        turn = f"t{n}"
        await ledger.turns.append(thread_id, UserMessage(f"Question {n}?"), turn_id=turn)
        said = f"Answer **{n}**, at 0:{n % 60:02}.\n\n- one\n- two\n\n```\ncode {n}\n```"
        await ledger.turns.append(thread_id, AssistantMessage(said), turn_id=turn, step_index=1)


@asynccontextmanager
async def _page(home: Path, speaker: Speaker) -> AsyncIterator[tuple[Page, str]]:
    app: Any = create_app(llm=speaker, settings=Settings(home=home))
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(app, port=0, on_ready=ready.set_result))
    url = await ready
    await _fill(app.state.playhead.sessions, "filled")
    async with async_playwright() as playwright:
        browser: Browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = await browser.new_page()
        await page.goto(url)
        await page.locator("#message").wait_for()
        await page.evaluate(WATCH)
        yield page, url
        await browser.close()
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)
