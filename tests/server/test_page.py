"""The page, in a real browser, with the mock model and a fake transcription endpoint."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from playhead.config import Settings
from playhead.testing import FakeProvider, openai_sse
from tests.media.build import picture
from tests.server.support import SAMPLE, SPOKEN, HeldModel, address, served, settings, speech_endpoint

pytestmark = pytest.mark.anyio

STATIC = Path(__file__).parent.parent.parent / "src" / "playhead" / "server" / "static"
SIZES = {"phone": (390, 844), "wide": (1280, 800)}
# What a browser says by itself of an answer that is no success, such as that there is no transcript yet.
EXPECTED = "Failed to load resource"


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


@asynccontextmanager
async def page_of(browser: Browser, client: aiohttp.ClientSession, **options: Any) -> AsyncIterator[Page]:
    """Open the page. It fails if the page says anything on the console or asks another host."""
    complaints: list[str] = []
    hosts: set[str] = set()
    page = await browser.new_page(**options)
    page.set_default_timeout(20_000)
    page.on("console", lambda m: None if EXPECTED in m.text else complaints.append(m.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: hosts.add(re.sub(r"^(\w+://[^/]*).*", r"\1", request.url)))
    await page.goto(address(client) + "/")
    yield page
    await page.close()
    assert complaints == []
    assert {host for host in hosts if not host.startswith("data:")} == {address(client)}


def speaking(home: Path, endpoint: FakeProvider) -> Settings:
    return settings(home, llm_provider="mock", speech_base_url=f"{endpoint.url}/v1")


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("wide", "light")])
async def test_a_person_with_a_video_gets_its_transcript(
    size: str, scheme: str, browser: Browser, tmp_path: Path
) -> None:
    """Drop a file, ask, read, click a line, download: on a phone and wide, in light and dark."""
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
    async with (
        speech_endpoint() as endpoint,
        served(settings=speaking(tmp_path, endpoint)) as client,
        page_of(browser, client, **options) as page,
    ):
        await page.set_input_files("#file", SAMPLE)
        await expect(page.locator("#player")).to_be_visible()
        await expect(page.locator("#media option")).to_have_text("jfk.mp4")
        await page.fill("#message", "Please transcribe this")
        await page.press("#message", "Enter")
        await expect(page.locator(".user")).to_have_text("Please transcribe this")
        await expect(page.locator(".tool code")).to_have_text("transcribe_video")
        await expect(page.locator(".tool .state")).to_have_text("done")
        await expect(page.locator(".assistant")).to_contain_text(SPOKEN)
        await expect(page.locator("#send")).to_be_enabled()
        await expect(page.locator("#stop")).to_be_hidden()
        if size == "phone":
            await page.click("#transcript > summary")
        lines = page.locator("#lines button")
        await expect(lines.first).to_contain_text(SPOKEN)
        await page.evaluate("document.getElementById('player').currentTime = 9")
        await lines.first.click()
        await page.wait_for_function("document.getElementById('player').currentTime < 5")
        await expect(page.locator("#lines li").first).to_have_attribute("aria-current", "true")
        async with page.expect_download() as download:
            await page.click("#captions >> text=vtt")
        assert (await download.value).suggested_filename == "jfk.vtt"
        wider = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, "nothing sticks out to the right"
        await page.reload()
        await expect(page.locator(".assistant")).to_contain_text(SPOKEN)
        await expect(page.locator(".tool .state")).to_have_text("done")
        await expect(page.locator("#lines button").first).to_contain_text(SPOKEN)


async def test_the_reply_is_shown_as_it_is_said_and_can_be_stopped(browser: Browser, tmp_path: Path) -> None:
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, client) as page,
    ):
        await page.fill("#message", "Hello")
        await page.click("#send")
        await expect(page.locator(".assistant")).to_have_text("Wait")
        await expect(page.locator("#send")).to_be_disabled()
        await page.click("#stop")
        await expect(page.locator(".note")).to_have_text("Stopped.")
        await expect(page.locator("#stop")).to_be_hidden()
        await expect(page.locator("#message")).to_be_focused()
    assert await model.ended.get() == "cancelled"


async def test_a_reload_in_mid_answer_goes_on_with_it(browser: Browser, tmp_path: Path) -> None:
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, client) as page,
    ):
        await page.fill("#message", "Hello")
        await page.press("#message", "Enter")
        await expect(page.locator(".assistant")).to_have_text("Wait")
        await page.reload()
        await expect(page.locator(".user")).to_have_text("Hello")
        await expect(page.locator(".assistant")).to_have_text("Wait")
        await expect(page.locator("#stop")).to_be_visible()
        model.go.set()
        await expect(page.locator(".assistant")).to_have_text("Wait for it")
        await expect(page.locator("#stop")).to_be_hidden()


async def test_a_connection_that_breaks_is_taken_up_again(browser: Browser, tmp_path: Path) -> None:
    """The run goes on without its listener; the page finds it again and tells it once."""
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, client) as page,
    ):
        # What a proxy that hangs up would do: the stream ends before the run has.
        await page.route("**/runs", _first_frames)
        await page.fill("#message", "Hello")
        await page.press("#message", "Enter")
        await asyncio.wait_for(model.called.wait(), 10)
        model.go.set()
        await expect(page.locator(".assistant")).to_have_text("Wait for it")
        await expect(page.locator("#status")).to_have_text("")
        await expect(page.locator("#chat-error")).to_be_hidden()


async def _first_frames(route: Any) -> None:
    request = route.request
    headers = {**request.headers, "accept": "application/json"}
    started = await route.fetch(headers=headers)
    run_id = (await started.json())["runId"]
    body = f'event: run_start\ndata: {{"type":"run_start","runId":"{run_id}"}}\n\n'
    await route.fulfill(status=200, headers={"Run-Id": run_id}, content_type="text/event-stream", body=body)


async def test_errors_are_plain_text_and_nothing_is_lost(browser: Browser, tmp_path: Path) -> None:
    """No model, a file that is none, a provider that fails: each says what it is."""
    bad = tmp_path / "notes.mp4"
    bad.write_text("just text")
    async with served(settings=settings(tmp_path)) as client, page_of(browser, client) as page:
        await page.fill("#message", "Hello")
        await page.press("#message", "Enter")
        await expect(page.locator("#chat-error")).to_contain_text("LLM_PROVIDER")
        await expect(page.locator("#message")).to_have_value("Hello")
        await expect(page.locator(".user")).to_have_count(0)
        await page.set_input_files("#file", bad)
        await expect(page.locator("#media-error")).to_contain_text("notes.mp4")
        await expect(page.locator("#drop")).to_be_visible()
    down = settings(tmp_path, "http://127.0.0.1:9")
    async with served(settings=down) as client, page_of(browser, client) as page:
        await page.fill("#message", "Hello")
        await page.press("#message", "Enter")
        await expect(page.locator(".note.error")).not_to_be_empty()
        await expect(page.locator("#send")).to_be_enabled()


async def test_a_picture_is_not_promised_to_be_transcribed(browser: Browser, tmp_path: Path) -> None:
    """R32: the library takes pictures; the player can do nothing with one, and says so."""
    file = picture(tmp_path / "still.png")
    async with served(settings=settings(tmp_path)) as client, page_of(browser, client) as page:
        await page.set_input_files("#file", file)
        await expect(page.locator("#media-error")).to_contain_text("There is no sound in it")


async def test_what_a_model_writes_is_text(browser: Browser, tmp_path: Path) -> None:
    """Markup of a model, a file's name or a message is shown, and never becomes part of the page."""
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    async with (
        FakeProvider(openai_sse(evil)) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        with SAMPLE.open("rb") as file:
            async with client.post("/api/media", params={"name": f"{evil}.mp4"}, data=file) as response:
                assert response.status == 201
        async with page_of(browser, client) as page:
            await page.fill("#message", evil)
            await page.press("#message", "Enter")
            await expect(page.locator(".assistant")).to_have_text(evil)
            await expect(page.locator(".user")).to_have_text(evil)
            assert await page.title() == "Playhead"
            assert await page.locator("#log img, #log script").count() == 0


async def test_the_page_is_used_by_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, client) as page,
    ):
        reached = []
        for _ in range(6):
            await page.keyboard.press("Tab")
            reached.append(await page.evaluate("document.activeElement.id"))
        assert reached == ["new-chat", "file", "log", "suggestion", "message", "send"]
        await page.focus("#message")
        await page.keyboard.type("one")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("two")
        await page.keyboard.press("Enter")
        await expect(page.locator(".user")).to_have_text("one\ntwo")
        await expect(page.locator("#stop")).to_be_visible()
        await page.focus("#message")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.id") == "stop"
        await page.keyboard.press("Enter")
        await expect(page.locator(".note")).to_have_text("Stopped.")


async def test_the_page_may_run_only_its_own_files(client: aiohttp.ClientSession) -> None:
    """A strict policy, and nothing in the page that would need a laxer one."""
    async with client.get("/") as response:
        html = await response.text()
        policy = response.headers["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert "unsafe" not in policy
    assert not re.search(r"\son\w+=|style=|<script>|//", html)
    for name in ("app.js", "run.js", "media.js", "sse.js"):
        source = (STATIC / name).read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", source
        )
        async with client.get(f"/static/{name}") as response:
            assert response.content_type in ("text/javascript", "application/javascript")
