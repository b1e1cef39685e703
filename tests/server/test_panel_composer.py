"""Where one writes: stop, drafts, keys, what is sent meanwhile, what is attached, what is offered."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from playhead.errors import AuthError
from tests.server.browsing import say, texts
from tests.server.panels import Stage, held, staged

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("home")) as stage:
        yield stage


async def test_05_stop_stands_in_the_place_of_send(stage: Stage, browser: Browser) -> None:
    """By the button, by Esc and by the host; the partial answer stays, marked, also after a reload."""
    stage.puppet.plays["hold"] = [held(stage, "A part", " and more")]
    stage.go.clear()
    async with stage.page(browser) as page:
        for n, stop in enumerate(("click", "key", "host"), 1):
            await say(page, "hold")
            await expect(page.locator(".assistant").nth(n - 1)).to_have_text("A part")
            await expect(page.locator("#stop")).to_be_visible()
            await expect(page.locator("#send")).to_be_hidden()
            if stop == "click":
                await page.click("#stop")
            elif stop == "key":
                await page.press("#message", "Escape")
            else:
                await page.evaluate("panel.stop()")
            await expect(page.locator(".cut:visible")).to_have_text(["Stopped."] * n)
            await expect(page.locator("#send")).to_be_visible()
            await expect(page.locator("#message")).to_be_focused()
        await page.reload()
        await expect(page.locator(".cut:visible")).to_have_text(["Stopped."] * 3)
        await expect(page.locator(".assistant")).to_have_text(["A part"] * 3)


async def test_06_keys(stage: Stage, browser: Browser) -> None:
    """Enter sends, Shift and Enter do not, and neither does the Enter that ends a composition."""
    async with stage.page(browser) as page:
        field = page.locator("#message")
        await field.press_sequentially("one")
        await field.press("Shift+Enter")
        await field.press_sequentially("two")
        for how in ("isComposing: true", "keyCode: 229"):
            keys = f"{{ key: 'Enter', {how}, bubbles: true, cancelable: true }}"
            event = f"new KeyboardEvent('keydown', {keys})"
            assert await field.evaluate(f"field => field.dispatchEvent({event})"), "nobody took it"
        await expect(field).to_have_value("one\ntwo")
        await field.press("Enter")
        await expect(field).to_have_value("")
        await expect(page.locator(".user")).to_have_text("one\ntwo")


async def test_07_a_draft_outlives_a_reload(stage: Stage, browser: Browser) -> None:
    """Each conversation has its own; what could not be sent is there to be sent again."""
    async with stage.page(browser) as page:
        await page.fill("#message", "half a thought")
        await page.reload()
        await expect(page.locator("#message")).to_have_value("half a thought")
        await page.click("#new-chat")
        await expect(page.locator("#message")).to_have_value("")
        await page.route(
            "**/runs", lambda route: route.fulfill(status=413, json={"error": "No", "code": "too_large"})
        )
        await say(page, "too much")
        await expect(page.locator("#chat-error")).to_contain_text("too large")
        await expect(page.locator("#message")).to_have_value("too much")
        await expect(texts(page)).to_have_count(0)


@pytest.mark.parametrize("fault", ["throw new Error('broken host')", "const a = {}; a.broken = a; return a"])
async def test_07_a_context_that_cannot_be_sent_loses_nothing(
    fault: str, stage: Stage, browser: Browser
) -> None:
    """A host may have a bug: what was written stays, and it is said."""
    async with stage.page(browser) as page:
        await page.evaluate(f"void (panel.context = () => {{ {fault} }})")
        await page.evaluate("addEventListener('error', (event) => event.preventDefault())")
        await say(page, "keep me")
        await expect(page.locator("#chat-error")).to_contain_text("broken")
        await expect(page.locator("#message")).to_have_value("keep me")
        await expect(texts(page)).to_have_count(0)
        await page.evaluate("void (panel.context = { projectId: 'p' })")
        await page.click("#send")
        await expect(texts(page)).to_have_text(["keep me", "You said: keep me"])


async def test_08_what_is_sent_meanwhile_waits_in_sight(stage: Stage, browser: Browser) -> None:
    stage.puppet.plays["busy"] = [held(stage, "Busy", " no more")]
    stage.go.clear()
    async with stage.page(browser) as page:
        await say(page, "busy")
        await expect(page.locator(".assistant")).to_have_text("Busy")
        await page.fill("#message", "next")
        await expect(page.locator("#send")).to_be_visible()
        await page.click("#send")
        await say(page, "never")
        await expect(page.locator(".queue .waits")).to_have_text(["Waits for its turn"] * 2)
        await page.get_by_role("button", name="Take back").last.click()
        await expect(page.locator("#message")).to_have_value("never")
        stage.go.set()
        await expect(texts(page)).to_have_text(["busy", "Busy no more", "next", "You said: next"])
        await expect(page.locator(".queue .user")).to_have_count(0)


async def test_08_what_is_said_into_an_answer_is_read_before_it_ends(stage: Stage, browser: Browser) -> None:
    """By a button beside Send, or Ctrl+Enter: the run takes it in at its next step, or it is taken back."""
    stage.puppet.plays |= {"busy": [[("measure", {"what": "it"})]], "and hurry": ["I hurry."]}
    stage.go.clear()
    async with stage.page(browser) as page:
        await say(page, "busy")
        await expect(page.locator(".tool")).to_be_visible()
        await expect(page.locator("#steer")).to_be_hidden()
        await page.fill("#message", "and hurry")
        await page.click("#steer")
        await page.fill("#message", "never")
        await page.press("#message", "Control+Enter")
        await expect(page.locator(".queue .waits")).to_have_text(["Is said as soon as possible"] * 2)
        await page.get_by_role("button", name="Take back").last.click()
        await expect(page.locator("#message")).to_have_value("never")
        stage.go.set()
        await expect(texts(page)).to_have_text(["busy", "and hurry", "I hurry."])
        await expect(page.locator("#message")).to_have_value("never")
        assert [len(request.messages) for request in stage.puppet.requests[-2:]] == [1, 4], "it was one run"


async def test_20_what_is_attached_is_shown_and_sent(stage: Stage, browser: Browser) -> None:
    """By one call of the host; it is in the message that the model reads, and is shown after a reload."""
    async with stage.page(browser) as page:
        await page.evaluate("panel.attach({ label: 'Intro, 0:10–0:20', ms: 10000, end_ms: 20000 })")
        await page.evaluate("panel.attach('The title')")
        await expect(page.locator("#composer .chip")).to_have_text(["Intro, 0:10–0:20", "The title"])
        await page.get_by_role("button", name="Remove The title").click()
        async with page.expect_request("**/runs") as sent:
            await say(page, "Shorten this")
        body = (await sent.value).post_data_json
        assert body
        context = body["context"]
        assert (context["projectId"], context["attachments"][0]["ms"]) == ("p1", 10_000)
        await expect(texts(page)).to_have_text(["Shorten this", "You said: Shorten this"])
        await expect(page.locator("#composer .chip")).to_have_count(0)
        said = stage.puppet.requests[-1].messages[-1].content
        assert "Intro, 0:10" in str(said)
        assert "10000" in str(said)
        await page.reload()
        await expect(page.locator(".row .chip")).to_have_text("Intro, 0:10–0:20")


async def test_29_errors_say_what_to_do(stage: Stage, browser: Browser) -> None:
    """In plain words; what somebody needs who can help is in a fold, without a key."""
    stage.puppet.plays["no key"] = [AuthError("401: bad key sk-canary-1234567890abcdef")]
    async with stage.page(browser) as page:
        await say(page, "no key")
        note = page.locator(".failure", has=page.locator(".note"))
        await expect(note.locator(".note")).to_contain_text("refused the key")
        await note.locator("summary").click()
        await expect(note.locator(".details")).to_contain_text("Reference:")
        await expect(note).not_to_contain_text("sk-canary")
        stage.puppet.plays["no key"] = ["Now it works."]
        await note.get_by_role("button", name="Try again").click()
        await expect(texts(page)).to_have_text(["no key", "Now it works."])


async def test_31_something_to_begin_with(stage: Stage, browser: Browser) -> None:
    """The host knows what: without its word there is none."""
    async with stage.page(browser) as page:
        starters = page.locator(".starter")
        await expect(page.locator("#hint")).to_be_visible()
        await expect(starters).to_have_count(0)
        await page.evaluate("panel.strings = { starters: ['Transcribe this', 'Cut it', 'Publish it'] }")
        await expect(starters).to_have_count(3)
        await starters.first.click()
        await expect(page.locator(".user")).to_have_text("Transcribe this")
        await expect(starters.first).to_be_hidden()


async def test_33_all_of_it_by_keyboard(stage: Stage, browser: Browser) -> None:
    """The menu and its sheets, the shortcuts, and back to where one was; focus is seen."""
    async with stage.page(browser) as page:
        await page.focus("#menu-button")
        await page.keyboard.press("Enter")
        entries = page.locator(".menu [role=menuitem]")
        await expect(entries.first).to_be_focused()
        await page.keyboard.press("ArrowUp")
        await expect(entries.last).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.locator("#menu-button")).to_be_focused()
        await expect(entries.first).to_be_hidden()
        await page.keyboard.press("?")
        await expect(page.locator(".sheet")).to_contain_text("Shift + Enter")
        await page.keyboard.press("Escape")
        await expect(page.locator(".sheet")).to_be_hidden()
        await expect(page.locator("#menu-button")).to_be_focused()
        await page.keyboard.press("Tab")
        assert await page.evaluate("panel.shadowRoot.activeElement.id") == "log"
        width = await page.evaluate(
            "parseFloat(getComputedStyle(panel.shadowRoot.activeElement).outlineWidth)"
        )
        assert width >= 2
        await page.focus("#message")
        await page.keyboard.type("what?")
        await expect(page.locator("#message")).to_have_value("what?")
