"""The video page with something to show: a recording whose transcript has the words and times one wants."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from playwright.async_api import Browser, Page, expect

from playhead.llm.base import AgentLLM
from playhead.media.cache import CacheKey, TranscriptCache, content_hash
from playhead.media.types import Segment, Transcript, Word
from tests.server.browsing import page_of
from tests.server.support import ROOT, SAMPLE, HeldModel, address, ask, served, settings

AXE = ROOT / "tests" / "vendor" / "axe-core-4.14.1" / "axe.min.js"
LINES = (
    "And so my fellow Américans",
    "ask not what your country can do for you",
    "ask what you can do for your country",
)


def spoken(lines: Sequence[str], each: float) -> list[Segment]:
    """Lines of so many seconds, whose words share them."""
    found = []
    for number, line in enumerate(lines):
        texts = line.split()
        start, step = number * each, each / len(texts)
        words = [Word(start + i * step, start + (i + 1) * step, f" {text}") for i, text in enumerate(texts)]
        found.append(Segment(start, start + each, f" {line}", words))
    return found


def write_down(home: Path, segments: Sequence[Segment], sample: Path = SAMPLE) -> None:
    """Let a file have been transcribed."""
    sha256 = content_hash(sample)
    key = CacheKey(sha256, "fake", "fake", None)
    made = Transcript(11.0, "en", "fake", "fake", segments, sha256=sha256)
    TranscriptCache(home / "cache" / "transcripts").put(key, made)


@asynccontextmanager
async def video_page(
    browser: Browser,
    home: Path,
    lines: Sequence[str] = LINES,
    *,
    each: float = 3.0,
    llm: AgentLLM | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Page, aiohttp.ClientSession]]:
    """A page with the sample open and its transcript beside it, and what asks its server."""
    write_down(home, spoken(lines, each))
    async with served(llm=llm or HeldModel(), settings=settings(home)) as client:
        assert (await ask(client, "POST", "/api/projects/first/sample"))[0] == 201
        async with page_of(browser, address(client), **options) as page:
            await expect(page.locator("#lines .line")).to_have_count(len(lines))
            await page.wait_for_function("() => player.readyState > 0")
            yield page, client


async def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with the page as it is."""
    await page.evaluate(AXE.read_text())
    found = await page.evaluate("axe.run().then((result) => result.violations)")
    return [f"{rule['id']}: {node['html']}" for rule in found for node in rule["nodes"]]


async def now(page: Page) -> float:
    """Where the playhead is, in seconds."""
    at: float = await page.evaluate("player.currentTime")
    return at
