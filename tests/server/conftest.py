"""A server without any configuration, and a browser."""

import shutil
from collections.abc import AsyncIterator

import aiohttp
import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.server.support import served, settings


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[aiohttp.ClientSession]:
    """A server with an empty library and no model. Its tests change nothing in it."""
    async with served(settings=settings(tmp_path_factory.mktemp("home"))) as client:
        yield client


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=20_000)
    async with async_playwright() as playwright:
        chromium = shutil.which("chromium")
        assert chromium, "the tests of the page need a command named chromium: apt-get install chromium"
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--mute-audio"]
        )
        yield browser
        await browser.close()
