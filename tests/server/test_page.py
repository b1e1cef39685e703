"""The page, in a real browser, with the mock model and a fake transcription endpoint."""

import re
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser, expect

from playhead.config import Settings
from playhead.testing import FakeProvider, openai_sse
from tests.media.build import picture
from tests.server.browsing import page_of, say
from tests.server.support import SAMPLE, SPOKEN, HeldModel, address, ask, served, settings, speech_endpoint

pytestmark = pytest.mark.anyio

PANEL = Path(__file__).parent.parent.parent / "web"
STATIC = Path(__file__).parent.parent.parent / "src" / "playhead" / "server" / "static"
FOCUSED = """() => {
  let at = document.activeElement;
  while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return at.id || at.className;
}"""
SIZES = {"phone": (390, 844), "wide": (1280, 800)}


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
        page_of(browser, address(client), **options) as page,
    ):
        await page.set_input_files("#file", SAMPLE)
        await expect(page.locator("#player")).to_be_visible()
        await expect(page.locator("#media .name")).to_have_text("jfk.mp4")
        if size == "phone":
            await page.click("#sheet-open")
        await say(page, "Please transcribe this")
        await expect(page.locator(".user")).to_have_text("Please transcribe this")
        await expect(page.locator(".tool code")).to_have_text("transcribe_video")
        await expect(page.locator(".tool .state")).to_have_text("done")
        await expect(page.locator(".assistant")).to_contain_text(SPOKEN)
        await expect(page.locator("#send")).to_be_visible()
        await expect(page.locator("#stop")).to_be_hidden()
        if size == "phone":
            await page.click("#sheet-close")
        lines = page.locator("#lines .text")
        await expect(lines.first).to_contain_text(SPOKEN)
        await page.evaluate("document.getElementById('player').currentTime = 9")
        await lines.first.click()
        await page.wait_for_function("document.getElementById('player').currentTime < 5")
        await expect(page.locator("#lines .line").first).to_have_attribute("aria-current", "true")
        async with page.expect_download() as download:
            await page.click("#captions >> text=vtt")
        assert (await download.value).suggested_filename == "jfk.vtt"
        wider = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, "nothing sticks out to the right"
        await page.reload()
        await expect(page.locator(".assistant")).to_contain_text(SPOKEN)
        await expect(page.locator(".tool .state")).to_have_text("done")
        await expect(page.locator("#lines .text").first).to_contain_text(SPOKEN)


async def test_the_reply_is_shown_as_it_is_said_and_can_be_stopped(browser: Browser, tmp_path: Path) -> None:
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, address(client)) as page,
    ):
        await page.fill("#message", "Hello")
        await page.click("#send")
        await expect(page.locator(".assistant")).to_have_text("Wait")
        await page.click("#stop")
        await expect(page.locator(".note")).to_have_text("Stopped.")
        await expect(page.locator("#stop")).to_be_hidden()
        await expect(page.locator("#message")).to_be_focused()
    assert await model.ended.get() == "cancelled"


async def test_errors_are_plain_text_and_nothing_is_lost(browser: Browser, tmp_path: Path) -> None:
    """No model, a file that is none, a provider that fails: each says what it is."""
    bad = tmp_path / "notes.mp4"
    bad.write_text("just text")
    async with served(settings=settings(tmp_path)) as client, page_of(browser, address(client)) as page:
        await say(page, "Hello")
        await expect(page.locator("#chat-error")).to_contain_text("LLM_PROVIDER")
        await expect(page.locator("#message")).to_have_value("Hello")
        await expect(page.locator(".user")).to_have_count(0)
        await page.set_input_files("#file", bad)
        await expect(page.locator("#media-error")).to_contain_text("notes.mp4")
        await expect(page.locator("#drop")).to_be_visible()
    down = settings(tmp_path, "http://127.0.0.1:9")
    async with served(settings=down) as client, page_of(browser, address(client)) as page:
        await say(page, "Hello")
        await expect(page.locator(".note.error")).not_to_be_empty()
        await expect(page.locator("#send")).to_be_visible()


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
        async with page_of(browser, address(client)) as page:
            await say(page, evil)
            await expect(page.locator(".assistant")).to_have_text(evil)
            await expect(page.locator(".user")).to_have_text(evil)
            assert await page.title() == "Playhead"
            assert await page.locator("#log img, #log script").count() == 0


async def test_the_page_is_used_by_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, address(client)) as page,
    ):
        await expect(page.locator(".starter").first).to_be_visible()
        await expect(page.locator("#sample")).to_be_visible()
        reached = []
        for _ in range(8):
            await page.keyboard.press("Tab")
            reached.append(await page.evaluate(FOCUSED))
        starters = ["starter"] * 3
        assert reached == ["project", "file", "sample", "new-chat", "menu-button", "log", *starters[:2]]
        await page.focus("#message")
        await page.keyboard.type("one")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("two")
        await page.keyboard.press("Enter")
        await expect(page.locator(".user")).to_have_text("one\ntwo")
        await expect(page.locator("#stop")).to_be_visible()
        await page.focus("#message")
        await page.keyboard.press("Tab")
        assert await page.evaluate(FOCUSED) == "stop"
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
    scripts = {f"/static/{script.name}": script for script in STATIC.glob("*.js")}
    scripts |= {f"/panel/{script.name}": script for script in PANEL.glob("panel/*.js")}
    scripts["/panel.js"] = PANEL / "panel.js"
    for url, script in scripts.items():
        source = script.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", source
        )
        async with client.get(url) as response:
            assert response.content_type in ("text/javascript", "application/javascript")


@pytest.mark.parametrize(
    ("given", "state", "said"),
    [
        ({"llm_provider": "mock"}, "mock", "a stand-in answers"),
        ({}, "missing", "No model is set up yet"),
        ({"base_url": "http://127.0.0.1:9"}, "ready", ""),
    ],
)
async def test_the_page_says_who_answers(
    given: dict[str, str], state: str, said: str, browser: Browser, tmp_path: Path
) -> None:
    """A newcomer is told that there is no model, before a stand-in answers what they ask."""
    async with (
        served(settings=settings(tmp_path, **given)) as client,
        page_of(browser, address(client)) as page,
    ):
        assert (await ask(client, "GET", "/api/model"))[1]["state"] == state
        asked = "() => performance.getEntriesByName(new URL('api/model', location).href).length"
        await page.wait_for_function(asked)
        await expect(page.locator("#notice")).to_contain_text(said)


async def test_a_picture_is_shown_as_one(browser: Browser, tmp_path: Path) -> None:
    """R32: the library takes pictures; there is no time to go to in one, and nothing to be transcribed."""
    async with (
        served(llm=HeldModel(), settings=settings(tmp_path)) as client,
        page_of(browser, address(client)) as page,
    ):
        await page.set_input_files("#file", picture(tmp_path / "dot.png"))
        await expect(page.locator("#media .name")).to_have_text("dot.png")
        await expect(page.locator("#player")).to_have_attribute("poster", re.compile("/content$"))
        await expect(page.locator("#timeline")).to_be_hidden()
        await expect(page.locator("#transcript")).to_be_hidden()
        await expect(page.locator("#media-error")).to_be_empty()
