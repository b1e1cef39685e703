"""Who cannot see, has no mouse, or holds a phone; long conversations; and hosts with their own looks."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.server.browsing import say, texts
from tests.server.panels import Stage, held, staged

pytestmark = pytest.mark.anyio
AXE = Path(__file__).parent.parent / "vendor" / "axe-core-4.14.1" / "axe.min.js"
MARKDOWN = """# Head

At 0:10, `code`, [a link](https://example.com/a).

```js
1
```

|a|b|
|-|-|
|1|2|

- [x] x"""
PUBLISH = ("publish_video", {"title": "Ask not"})


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("home")) as stage:
        yield stage


async def violations(page: Page) -> list[Any]:
    found: list[Any] = await page.evaluate(
        """async () => {
          const { violations } = await axe.run(document, { resultTypes: ["violations"] });
          const about = ({ html, failureSummary }) => [html, failureSummary];
          return violations.map(({ id, nodes }) => [id, nodes.map(about)]);
        }"""
    )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_35_axe_has_nothing_to_say(scheme: Any, stage: Stage, browser: Browser) -> None:
    """34: contrast and sizes among it; over every kind of row, a question, the menu and a sheet."""
    stage.puppet.plays |= {
        "all": [
            [("transcript", {}), ("break_it", {"what": "knife"}), ("list_all", {"count": 200})],
            MARKDOWN,
        ],
        "ask": [[PUBLISH], "So."],
        "fail": [RuntimeError("boom")],
    }
    # axe is not of the page: it may come from outside.
    async with stage.page(browser, color_scheme=scheme, bypass_csp=True) as page:
        await page.evaluate(AXE.read_text())
        assert await violations(page) == []
        for n, text in enumerate(("fail", "all", "ask"), 1):
            await page.evaluate("panel.attach({ label: 'Intro' })")
            await say(page, text)
            await expect(page.locator(".from-user")).to_have_count(n)
            await expect(page.locator("#stop")).to_be_hidden()
        await expect(page.locator(".question:visible")).to_be_visible()
        seen = "all => all.forEach((one) => (one.style.contentVisibility = 'visible'))"
        await page.locator(".row").evaluate_all(seen)
        assert await violations(page) == []
        small = await page.evaluate(
            """() => [...panel.shadowRoot.querySelectorAll("button, summary, input, textarea")]
              .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
              .filter(([, { width, height }]) => width && (width < 24 || height < 24))
              .map(([html]) => html)"""
        )
        assert [html for html in small if "checkbox" not in html] == []
        await page.click("#menu-button")
        assert await violations(page) == []
        await page.locator(".menu .usage").click()
        await expect(page.locator(".sheet table")).to_be_visible()
        assert await violations(page) == []


async def test_34_colours_and_motion_are_the_users(stage: Stage, browser: Browser) -> None:
    """Forced colours hide nothing, nothing moves where that is not wanted, and at 200 % all fits."""
    options: dict[str, Any] = {
        "forced_colors": "active",
        "reduced_motion": "reduce",
        "viewport": {"width": 400, "height": 450},
    }
    stage.puppet.plays["still"] = [held(stage, "Still", " life")]
    stage.go.clear()
    async with stage.page(browser, **options) as page:
        await say(page, "still")
        await expect(page.locator(".assistant")).to_have_text("Still")
        moving = "document.getAnimations().length + panel.shadowRoot.getAnimations().length"
        assert await page.evaluate(moving) == 0
        assert await page.locator(".user").evaluate("one => getComputedStyle(one).borderStyle") == "solid"
        await page.evaluate("document.documentElement.style.fontSize = '200%'")
        wider = "panel.shadowRoot.querySelector('#log')"
        assert await page.evaluate(f"{wider}.scrollWidth - {wider}.clientWidth") <= 0
        await expect(page.locator("#stop")).to_be_in_viewport()
        stage.go.set()
        await expect(page.locator(".assistant")).to_have_text("Still life")


async def test_36_on_a_phone(stage: Stage, browser: Browser) -> None:
    """At 390 px nothing sticks out, the field does not make the page zoom, and is not under the keyboard."""
    wide = "|" + "column|" * 12 + "\n|" + "-|" * 12 + "\n|" + "value|" * 12
    stage.puppet.plays["wide"] = [[PUBLISH], f"{wide}\n\n```\n{'x' * 300}\n```\n\n{'y' * 300}"]
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    async with stage.page(browser, **phone) as page:
        await say(page, "wide")
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator(".assistant table")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        log = "inside('#log')"
        assert await page.evaluate(f"{log}.scrollWidth - {log}.clientWidth") <= 0
        size = await page.locator("#message").evaluate("one => parseFloat(getComputedStyle(one).fontSize)")
        assert size >= 16
        await page.set_viewport_size({"width": 390, "height": 400})  # the keyboard is open
        await expect(page.locator("#message")).to_be_in_viewport(ratio=1)
        await expect(page.locator(".actions button").last).to_have_css("opacity", "1")


async def test_37_a_host_has_its_own_looks_and_words(stage: Stage, browser: Browser) -> None:
    async with stage.page(browser, color_scheme="light") as page:
        await page.evaluate(
            """() => {
              const sheet = new CSSStyleSheet();
              sheet.replaceSync(`playhead-panel { --playhead-accent: rgb(1, 2, 3); }
                playhead-panel::part(composer) { border-radius: 1px; }`);
              document.adoptedStyleSheets = [sheet];
              document.documentElement.dir = "rtl";
              panel.strings = { title: "Hilfe", send: "Los", starters: ["Hallo"], errors: { login: "Nein" } };
            }"""
        )
        await expect(page.locator("header h2")).to_have_text("Hilfe")
        await expect(page.locator("#send")).to_have_attribute("aria-label", "Los")
        await expect(page.locator("#send")).to_have_css("background-color", "rgb(1, 2, 3)")
        await expect(page.locator("#composer")).to_have_css("border-radius", "1px")
        assert await page.locator("#panel").evaluate("one => getComputedStyle(one).fontFamily") == "serif"
        await page.locator(".starter").click()
        await expect(texts(page)).to_have_text(["Hallo", "You said: Hallo"])
        await expect(page.locator("#stop")).to_be_hidden()
        await expect(page.locator("#send")).to_be_visible()
        send, field = [await page.locator(name).bounding_box() for name in ("#send", "#message")]
        assert send
        assert field
        assert send["x"] < field["x"], "it is read from the right"
        await page.evaluate("panel.theme = 'dark'")
        await expect(page.locator("#panel")).to_have_css("background-color", "rgb(22, 24, 27)")


async def test_39_a_long_conversation_is_set_as_it_comes_into_sight(stage: Stage, browser: Browser) -> None:
    """A thousand messages: the newest at once, the others when they are near; how fast is in `make bench`."""
    async with stage.page(browser) as page:
        view = {"seq": 0, "messages": []}
        for n in range(500):
            view["messages"] += [  # type: ignore[operator]  # a list
                {"role": "user", "content": f"question {n}", "id": f"u{n}", "timestamp": 1},
                {"role": "assistant", "content": f"answer **{n}**", "id": f"a{n}", "timestamp": 1},
            ]
        await page.route("**/api/agent/threads/long", lambda route: route.fulfill(json=view))
        await page.evaluate("panel.thread = 'long'")
        await expect(page.locator(".assistant").last).to_have_text("answer 499")
        await expect(page.locator(".assistant").last).to_be_in_viewport()
        await expect(page.locator(".assistant")).to_have_count(500)
        assert await page.locator(".assistant strong").count() < 100
        await expect(page.locator(".assistant").first).to_have_text("answer **0**")
        await page.locator("#log").evaluate("log => (log.scrollTop = 0)")
        await expect(page.locator(".assistant").first).to_have_text("answer 0")
