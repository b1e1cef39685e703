"""The cards of tools: what they are, what they ask, what they gave."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from playhead.events import EmitDelta, ToolCallDelta, ToolCallStart
from playhead.testing import ScriptedLLM
from playhead.types import ToolCall
from tests.server.browsing import say, texts
from tests.server.panels import Stage, staged

pytestmark = pytest.mark.anyio
PUBLISH = ("publish_video", {"title": "Ask <b>not</b>", "api_key": "sk-canary-1234567890abcdef"})


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("home")) as stage:
        yield stage


async def test_11_14_a_card_says_what_it_is_and_how_far(stage: Stage, browser: Browser) -> None:
    """With a title and the name, in words and with a sign; 14: progress, and for how long."""
    stage.puppet.plays["all"] = [
        [("measure", {"what": "x"})],
        [("break_it", {"what": "knife"}), ("seek_player", {"ms": 5})],
        "Done.",
    ]
    stage.go.clear()
    async with stage.page(browser) as page:
        await say(page, "all")
        card = page.locator(".tool")
        await expect(card.locator("strong")).to_have_text("Measure")
        await expect(card.locator("code").first).to_have_text("measure")
        await expect(card.locator(".state")).to_have_text("running")
        await expect(card.locator(".detail")).to_have_text("25% · a quarter of it")
        assert await card.locator("progress").evaluate("bar => bar.value") == 0.25
        await expect(card.locator(".elapsed")).to_have_text(re.compile(r"0:0\d"))
        signs = {await card.locator(".sign svg").get_attribute("class")}
        stage.go.set()
        await expect(card.locator(".state")).to_have_text(["done", "failed", "done"])
        await expect(card.first.locator("progress")).to_be_hidden()
        for n in (0, 1):
            signs.add(await card.nth(n).locator(".sign svg").get_attribute("class"))
        assert len(signs) == 3
        await expect(card.nth(1).locator(".result")).to_contain_text("There is no knife")
        colours = [await card.nth(n).evaluate("one => getComputedStyle(one).borderColor") for n in (0, 1)]
        assert colours[0] != colours[1]
        assert await page.evaluate("window.sought") == 1
        tools = [detail["tool"] for name, detail in await page.evaluate("told") if name == "playhead-result"]
        assert sorted(tools) == ["break_it", "measure", "seek_player"]
        await page.reload()
        await expect(card.locator(".state")).to_have_text(["done", "failed", "done"])
        await expect(card.nth(1).locator(".result")).to_contain_text("There is no knife")
        assert await page.evaluate("window.sought ?? 0") == 0


async def test_12_arguments_are_seen_as_they_are_written(browser: Browser, tmp_path: Path) -> None:
    """Pretty, folded when they are whole, and without what is secret."""
    async with staged(tmp_path) as stage:

        async def write(emit: EmitDelta) -> str:
            emit(ToolCallStart(call_id="w", name="publish_video"))
            emit(ToolCallDelta(call_id="w", text='{"title": "Ask", "api_key": "sk-can'))
            await stage.go.wait()
            return "No, nothing."

        stage.puppet.plays |= {"write": [write], "whole": [[("break_it", PUBLISH[1] | {"what": "x"})], "So."]}
        async with stage.page(browser) as page:
            await say(page, "write")
            card = page.locator(".tool").first
            await expect(card.locator(".state")).to_have_text("writing")
            await expect(card.locator("pre")).to_be_visible()
            await expect(card.locator("pre")).to_have_text('{"title": "Ask", "api_key": "••••••"')
            stage.go.set()
            await expect(card.locator(".state")).to_have_text("not finished")
            await say(page, "whole")
            card = page.locator(".tool").last
            await expect(card.locator(".state")).to_have_text("failed")
            await expect(card.locator("pre")).to_be_hidden()
            await card.locator(".args summary").click()
            await expect(card.locator("pre")).to_contain_text('"title": "Ask <b>not</b>"')
            await expect(card.locator("pre")).not_to_contain_text("sk-canary")


async def test_13_a_result_that_looks_like_a_transcript_is_shown_as_it_is(
    stage: Stage, browser: Browser
) -> None:
    """Segments of a tool may be anything."""
    stage.puppet.plays["parts"] = [[("parts", {})], "There."]
    async with stage.page(browser) as page:
        await say(page, "parts")
        await expect(page.locator(".result")).to_contain_text('"intro"')
        await expect(page.locator(".result")).to_contain_text('"now"')


async def test_11_a_provider_that_counts_its_calls_anew_has_a_card_for_each(
    browser: Browser, tmp_path: Path
) -> None:
    """Q034: in each response of each turn, also after a reload."""
    calls = [[ToolCall("call_0", "list_all", {"count": n})] for n in (1, 2, 3)]
    llm = ScriptedLLM(calls[0], calls[1], "First.", calls[2], "Second.")
    async with staged(tmp_path, model=llm) as stage, stage.page(browser) as page:
        for text in ("First.", "Second."):
            await say(page, "go")
            await expect(page.locator(".assistant").last).to_have_text(text)
        for _ in range(2):
            await expect(page.locator(".tool .result")).to_have_text(
                [re.compile(rf"^\D*{'.*'.join(map(str, range(n)))}\D*$", re.DOTALL) for n in (1, 2, 3)]
            )
            await page.reload()


async def test_13_a_long_result_is_cut_and_can_be_seen_whole(stage: Stage, browser: Browser) -> None:
    stage.puppet.plays["list"] = [[("list_all", {"count": 200})], "That is all."]
    async with stage.page(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        await say(page, "list")
        result = page.locator(".result")
        await expect(result).to_contain_text("item 10")
        await expect(result).not_to_contain_text("item 199")
        await page.get_by_role("button", name="Show all").click()
        await expect(result).to_contain_text("item 199")
        await page.get_by_role("button", name="Show less").click()
        await expect(result).not_to_contain_text("item 199")
        await page.locator(".result-foot button.copy").last.click()
        await expect(page.locator(".result-foot")).to_contain_text("Copied")
        assert "item 199" in await page.evaluate("navigator.clipboard.readText()")


async def test_15_17_an_approval_shows_exactly_what_would_happen(stage: Stage, browser: Browser) -> None:
    """Its arguments can be changed, and a no can have a reason. 17: in every tab, once, until when."""
    stage.puppet.plays["two"] = [[PUBLISH, PUBLISH], "As you like."]
    stage.published.clear()
    async with stage.tabs(browser, 2) as (one, two):
        await say(two, "two")
        for page in (one, two):
            await expect(page.locator(".question")).to_have_count(2)
            await expect(page.locator(".question pre").first).to_contain_text('"title": "Ask <b>not</b>"')
            await expect(page.locator(".question .expires").first).to_contain_text("An answer is taken until")
        await two.reload()
        first, second = (two.locator(".tool").nth(n) for n in (0, 1))
        await first.get_by_role("button", name="Edit arguments").click()
        await first.locator("textarea").fill("[1]")
        await first.get_by_role("button", name="Approve").click()
        await expect(first.locator(".fault")).to_contain_text("not a JSON object")
        await first.locator("textarea").fill('{"title": "Better"}')
        await first.get_by_role("button", name="Approve").click()
        for page in (one, two):
            await expect(page.locator(".tool .state")).to_have_text(["done", "waits for approval"])
        assert stage.published == ["Better"]
        await expect(two.locator("#message")).to_be_focused()
        await second.get_by_label("Reason for a no").fill("too early")
        await second.get_by_role("button", name="Deny").click()
        for page in (one, two):
            await expect(page.locator(".tool .state")).to_have_text(["done", "denied"])
            await expect(page.locator(".tool .result").last).to_contain_text("too early")
            await expect(page.locator(".question:visible")).to_have_count(0)
    assert stage.published == ["Better"]


async def test_16_always_for_a_tool_until_it_is_revoked(stage: Stage, browser: Browser) -> None:
    stage.puppet.plays["again"] = [[PUBLISH], "Published."]
    stage.published.clear()
    async with stage.page(browser) as page:
        await say(page, "again")
        await page.get_by_label("Always allow Publish video").check()
        await page.get_by_role("button", name="Approve").click()
        await expect(texts(page)).to_have_text(["again", "Published."])
        await page.reload()
        await say(page, "again")
        await expect(texts(page)).to_have_text(["again", "Published."] * 2)
        assert len(stage.published) == 2
        await page.click("#menu-button")
        await page.locator(".menu .allowed").click()
        await page.get_by_role("button", name="Revoke").click()
        await expect(page.locator(".sheet")).to_contain_text("Every tool that needs your approval asks")
        await page.keyboard.press("Escape")
        await say(page, "again")
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        assert len(stage.published) == 2


async def test_18_an_approval_is_not_given_by_the_enter_that_sends(stage: Stage, browser: Browser) -> None:
    """Focus stays in the field when a question comes."""
    stage.puppet.plays["early"] = [[PUBLISH], "No?"]
    stage.published.clear()
    async with stage.page(browser) as page:
        await say(page, "early")
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        await expect(page.locator("#message")).to_be_focused()
        await expect(page.locator("#spoken")).to_have_text("Publish video waits for your approval.")
        await page.keyboard.press("Enter")
        await page.keyboard.press("Space")
        await say(page, "Never mind")
        await expect(page.locator(".tool .state")).to_have_text("denied")
    assert stage.published == []


async def test_a_tool_of_the_page_is_executed_by_one_tab(stage: Stage, browser: Browser) -> None:
    stage.puppet.plays["move"] = [[("seek_player", {"ms": 7})], "Moved."]
    async with stage.tabs(browser, 2) as pages:
        await say(pages[0], "move")
        for page in pages:
            await expect(texts(page)).to_have_text(["move", "Moved."])
            await expect(page.locator(".tool .result")).to_have_text("at 7")
        assert sum([await page.evaluate("window.sought ?? 0") for page in pages]) == 1


async def test_a_tool_that_another_tab_has_executed_is_not_executed_again(
    stage: Stage, browser: Browser
) -> None:
    """A tab may learn late that a call waited, when it waits no more."""
    stage.puppet.plays["move"] = [[("seek_player", {"ms": 7})], "Moved."]
    asked, done = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        answer = await route.fetch()
        asked.set()
        await done.wait()
        await route.fulfill(response=answer)

    async with stage.tabs(browser, 2) as (page, other):
        await other.evaluate("panel.clientTools = {}")
        await page.evaluate(
            """() => void (panel.clientTools = { seek_player: async ({ ms }) => {
              await new Promise((release) => (window.release = release));
              return `at ${ms}`;
            } })"""
        )
        await say(page, "move")
        await page.wait_for_function("() => Boolean(window.release)")
        await other.route("**/api/agent/threads/*", late, times=1)
        await other.reload()
        await asked.wait()
        await page.evaluate("release()")
        await expect(texts(page)).to_have_text(["move", "Moved."])
        done.set()
        await expect(texts(other)).to_have_text(["move", "Moved."])
        await expect(other.locator(".tool .result")).to_have_text("at 7")
        assert await other.evaluate("window.sought ?? 0") == 0


async def test_what_came_of_a_call_in_the_background_is_no_message_of_the_person(
    stage: Stage, browser: Browser
) -> None:
    """Q238: it is shown as what it is, live and after a reload, and is not there to be edited."""
    stage.puppet.plays["work"] = [[("long_work", {})], "Later."]
    stage.go.clear()
    async with stage.page(browser) as page:
        await say(page, "work")
        await expect(page.locator(".assistant")).to_have_text(["Later."])
        stage.go.set()
        for _ in range(2):
            said = page.locator(".from-user[data-source=background]")
            await expect(said).to_contain_text("the outcome")
            await expect(said.get_by_role("button", name="Edit")).to_be_hidden()
            await expect(page.locator(".assistant")).to_have_count(2)
            await page.reload()
