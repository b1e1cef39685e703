"""The panel's line to the server: breaks, sleep, refusals, logins that ran out, other servers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.server.browsing import line_to, say, tabs_of, texts
from tests.server.panels import Stage, held, staged

pytestmark = pytest.mark.anyio
LOST = "Connection lost. Trying again…"


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("home")) as stage:
        yield stage


async def test_25_it_comes_back_and_says_so(stage: Stage, browser: Browser) -> None:
    """From the last event that came; at growing distances, none the same; at last by a button only."""
    async with line_to(stage.url) as line, tabs_of(browser, line.url, 1, "/host") as (page,):
        await say(page, "one")
        await expect(texts(page)).to_have_text(["one", "You said: one"])
        resumed: list[str | None] = []

        def look(request: Any) -> None:
            if request.url.endswith("/events"):
                resumed.append(request.headers.get("last-event-id"))

        page.on("request", look)
        await page.evaluate(
            """() => {
              window.pauses = [];
              const { pause } = panel.connection.constructor.prototype;
              panel.connection.pause = function (ms) {
                pauses.push(ms);
                return pause.call(this, ms === null ? null : 1);
              };
            }"""
        )
        there, line.to = line.to, None
        line.cut()
        await expect(page.locator("#again")).to_be_visible(timeout=30_000)
        await expect(page.locator("#status")).to_have_text("The server cannot be reached.")
        *pauses, last = await page.evaluate("pauses")
        assert last is None
        assert len(set(pauses)) == len(pauses)
        assert pauses[0] <= 500
        assert 5_000 <= pauses[-1] <= 10_000
        assert all(250 * 2**n <= pause <= 500 * 2**n for n, pause in enumerate(pauses[:5]))
        line.to = there
        await page.click("#again")
        await expect(page.locator("#status")).to_have_text("Connected again.")
        await expect(page.locator("#again")).to_be_hidden()
        await say(page, "two")
        await expect(texts(page)).to_have_text(["one", "You said: one", "two", "You said: two"])
        assert resumed
        assert all(id and int(id.partition(".")[0]) > 0 for id in resumed)


async def test_27_after_sleep_all_is_there_once(stage: Stage, browser: Browser) -> None:
    """A connection that died unheard is not waited for: who comes back to the tab is told at once."""
    stage.puppet.plays["doze"] = [held(stage, "Before sleep,", " and after it.")]
    stage.go.clear()
    async with line_to(stage.url) as line, tabs_of(browser, line.url, 1, "/host") as (page,):
        await say(page, "doze")
        await expect(page.locator(".assistant")).to_have_text("Before sleep,")
        line.deaf = True
        stage.go.set()
        thread = await page.evaluate("panel.thread")
        async with stage.client.get(f"/api/agent/threads/{thread}/events") as events:
            async for chunk in events.content:
                if b"run_end" in chunk:
                    break
        await expect(page.locator(".assistant")).to_have_text("Before sleep,")
        line.deaf = False
        await page.evaluate(
            """() => {
              panel.connection.heardAt -= 3_600_000;
              document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
        await expect(texts(page)).to_have_text(["doze", "Before sleep, and after it."])
        await expect(page.locator("#stop")).to_be_hidden()


async def refused(page: Page, text: str, **answer: Any) -> None:
    """What is said where a request is answered so; and that it goes on when it is answered well again."""

    async def fulfill(route: Any) -> None:
        await route.fulfill(**answer)

    await page.route("**/api/agent/threads/**", fulfill)
    await page.evaluate("panel.connection.again()")
    await expect(page.locator("#chat-error")).to_contain_text(text)
    await expect(page.locator("#again")).to_be_visible()
    await page.unroute("**/api/agent/threads/**")
    await page.click("#again")
    await expect(page.locator("#chat-error")).to_be_hidden()
    await expect(page.locator("#again")).to_be_hidden()


async def test_30_a_login_that_ran_out_is_told(stage: Stage, browser: Browser) -> None:
    """Also where it is a page that says 200; what is written meanwhile is kept."""
    async with stage.page(browser) as page:
        await say(page, "one")
        await expect(texts(page)).to_have_text(["one", "You said: one"])
        await page.fill("#message", "kept")
        for answer in (
            {"status": 401, "json": {"error": "Who are you?", "code": "auth"}},
            {"status": 200, "content_type": "text/html; charset=utf-8", "body": "<h1>Sign in</h1>"},
        ):
            await refused(page, "Sign in again", **answer)
        await refused(page, "You may not use this", status=403, body="no")
        await expect(page.locator("#message")).to_have_value("kept")
        await expect(texts(page)).to_have_text(["one", "You said: one"])


async def test_28_a_run_that_was_interrupted_can_be_tried_again(stage: Stage, browser: Browser) -> None:
    """What broke off says so, and is asked again; `test_page_durable` shows what goes on by itself."""
    async with stage.page(browser) as page:
        await say(page, "one")
        await expect(texts(page)).to_have_text(["one", "You said: one"])
        stage.puppet.plays["dies"] = [RuntimeError("boom"), "unused"]
        await say(page, "dies")
        await expect(page.locator(".note.error")).to_have_count(1)
        stage.puppet.plays["dies"] = ["It lives."]
        await page.locator(".failure").get_by_role("button", name="Try again").click()
        await expect(texts(page)).to_have_text(["one", "You said: one", "dies", "It lives."])


async def test_a_host_may_fetch_by_itself(stage: Stage, browser: Browser) -> None:
    """The property `fetch`, for hosts with a login of their own; `server`, for another address."""
    async with stage.page(browser) as page:
        await page.evaluate(
            """() => {
              window.asked = [];
              panel.fetch = (url, init) => {
                asked.push(url);
                return fetch(url, { ...init, headers: { ...init.headers, "X-Mine": "yes" } });
              };
              panel.server = "/";
            }"""
        )
        async with page.expect_request("**/runs") as sent:
            await say(page, "mine")
        assert (await sent.value).headers["x-mine"] == "yes"
        await expect(texts(page)).to_have_text(["mine", "You said: mine"])
        assert all(url.startswith(stage.url) for url in await page.evaluate("asked"))


async def test_38_two_panels_and_none(stage: Stage, browser: Browser) -> None:
    """Each has its own thread and theme; one that is taken out closes its stream, and can come back."""
    stage.puppet.plays["both"] = ["Only here."]
    open_streams: set[Any] = set()
    async with stage.tabs(browser, 1, "/two") as (page,):
        page.on("request", lambda one: open_streams.add(one) if one.url.endswith("/events") else None)
        page.on("requestfailed", lambda one: open_streams.discard(one))
        await page.reload()
        left, right = page.locator("playhead-panel").first, page.locator("playhead-panel").last
        await left.locator("#message").fill("both")
        await left.locator("#message").press("Enter")
        await expect(left.locator(".assistant")).to_have_text("Only here.")
        await expect(right.locator(".assistant")).to_have_count(0)
        schemes = [await one.evaluate("one => getComputedStyle(one).colorScheme") for one in (left, right)]
        assert schemes == ["light", "dark"]
        await expect(left.locator(".dot")).to_have_attribute("data-line", "live")
        await expect(right.locator(".dot")).to_have_attribute("data-line", "live")
        ours = "Object.keys(window).filter((name) => /playhead|marked|purify/i.test(name))"
        assert await page.evaluate(ours) == []
        sheets = "document.adoptedStyleSheets.length + document.querySelectorAll('style').length"
        assert await page.evaluate(sheets) == 0
        assert len(open_streams) == 2
        async with page.expect_event("requestfailed"):
            await page.evaluate("window.taken = panel; panel.remove()")
        assert len(open_streams) == 1
        await page.evaluate("document.querySelector('main').append(taken)")
        back = page.locator("playhead-panel").last
        await expect(back.locator(".assistant")).to_have_text("Only here.")
        await expect(back.locator(".dot")).to_have_attribute("data-line", "live")
