"""The page of a server with an access token, in a real browser; and what every page may load."""

import re
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser, expect

from playhead.server import ServerOptions, create_app
from playhead.server.parts import STATIC
from tests.server.browsing import page_of
from tests.server.support import address, served, settings
from tests.server.test_access import TOKEN

pytestmark = pytest.mark.anyio

ASKED = """fetch("api/agent/threads/t/runs", {method: "POST", body: '{"message": "Hello"}'})
    .then((response) => response.status)"""


async def test_a_link_opens_the_page_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    """Before it there is a page that says what to do; after it, nothing of it is to be seen."""
    app = create_app(settings=settings(tmp_path, llm_provider="mock"), options=ServerOptions(token=TOKEN))
    async with served(app) as client, page_of(browser, address(client), color_scheme="dark") as page:
        await expect(page.locator("h1")).to_have_text("You are not signed in")
        await expect(page.locator("pre")).to_contain_text("playhead link")
        link = f"{address(client)}/sign-in?code={app.state.playhead.access.link_code()}"
        await page.goto(link)
        assert page.url == f"{address(client)}/"
        await expect(page.locator("h1")).not_to_have_text("You are not signed in")
        assert await page.evaluate(ASKED) == 202
        assert await page.evaluate("document.cookie") == ""
        (cookie,) = await page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert "code=" not in await page.evaluate("document.referrer + location.href")
        # A used link leads to the page: who is signed in stays so, who is not is told what to do.
        await page.goto(link)
        await expect(page.locator("h1")).not_to_have_text("You are not signed in")
        await page.context.clear_cookies()
        await page.goto(link)
        await expect(page.locator("h1")).to_have_text("You are not signed in")
        wider = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        for name, value in attrs:
            if (
                name.startswith("on")
                or name in ("style", "srcdoc")
                or re.match(r"(\w+:)?//|javascript:", value or "")
            ):
                self.faults.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style") and data.strip():
            self.faults.append(f"{self._inside}: {data[:50]}")


def _faults(path: Path) -> list[str]:
    page = _Page()
    page.feed(path.read_text())
    return page.faults


@pytest.mark.parametrize("path", sorted(STATIC.glob("**/*.html")), ids=lambda path: path.stem)
async def test_every_page_is_under_a_strict_policy_and_keeps_to_it(
    path: Path, client: aiohttp.ClientSession
) -> None:
    """Issue 7, 4: no script of its own in it, and no other host, wherever the page is got from."""
    assert _faults(path) == []
    places = [f"/static/{path.relative_to(STATIC)}", *(["/"] if path.stem == "index" else [])]
    for place in places:
        async with client.get(place) as response:
            assert response.content_type == "text/html"
            policy = dict(
                part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";")
            )
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert not re.search(r"unsafe|http|\*", str(policy))
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
