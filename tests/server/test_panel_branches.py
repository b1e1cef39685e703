"""Another answer, another question, a copy; what it cost; a text to keep; and to have it gone."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.server.browsing import say, texts
from tests.server.panels import Stage, staged
from tests.server.support import ask

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("home")) as stage:
        yield stage


def read(path: Path) -> str:
    return path.read_text()


async def versions(page: Page, which: int, shown: str, earlier: list[str]) -> None:
    """Look at an earlier version of a message, and come back."""
    row = page.locator(".from-user").nth(which)
    await expect(row.locator(".picker")).to_have_text(shown)
    await row.get_by_role("button", name="Show the earlier version").click()
    await expect(row.locator(".earlier :is(.user, .assistant)")).to_have_text(earlier)
    await expect(row.locator(".earlier-title")).to_contain_text("This was replaced")
    await row.get_by_role("button", name="Show the later version").click()
    await expect(row.locator(".earlier")).to_be_hidden()


async def test_09_a_retry_keeps_the_old_answer(stage: Stage, browser: Browser) -> None:
    """As a version, in every tab and after a reload; nothing of it is told to the model."""
    stage.puppet.plays["q"] = ["First answer."]
    async with stage.tabs(browser, 2) as (other, page):
        await say(page, "q")
        for one in (page, other):
            await expect(texts(one)).to_have_text(["q", "First answer."])
        stage.puppet.plays["q"] = ["Second answer."]
        await page.get_by_role("button", name="Try again").click()
        for one in (page, other):
            await expect(texts(one)).to_have_text(["q", "Second answer."])
            await expect(one.locator(".picker")).to_have_text("Version 2 of 2")
        await page.reload()
        await versions(page, 0, "Version 2 of 2", ["q", "First answer."])
        assert "First" not in str(stage.puppet.requests[-1].messages)


async def test_10_an_edit_replaces_what_came_after(stage: Stage, browser: Browser) -> None:
    async with stage.tabs(browser, 2) as (other, page):
        for n, text in enumerate(("one", "two", "three"), 1):
            await say(page, text)
            await expect(page.locator(".assistant")).to_have_count(n)
        row = page.locator(".from-user").nth(1)
        await row.hover()
        await row.get_by_role("button", name="Edit").click()
        await row.get_by_role("textbox", name="Edit").fill("deux")
        await row.get_by_role("button", name="Send anew").click()
        said = ["one", "You said: one", "deux", "You said: deux"]
        for one in (page, other):
            await expect(texts(one)).to_have_text(said)
            await expect(one.locator(".picker:visible")).to_have_text("Version 2 of 2")
        await versions(page, 1, "Version 2 of 2", ["two", "You said: two", "three", "You said: three"])
        # An empty field's arrow edits the last message; Esc leaves it as it is.
        await page.press("#message", "ArrowUp")
        field = page.get_by_role("textbox", name="Edit")
        await expect(field).to_have_value("deux")
        await field.press("Escape")
        await expect(texts(page)).to_have_text(said)


async def test_a_branch_is_a_conversation_of_its_own(stage: Stage, browser: Browser) -> None:
    async with stage.page(browser) as page:
        for n, text in enumerate(("one", "two"), 1):
            await say(page, text)
            await expect(page.locator(".assistant")).to_have_count(n)
        before = await page.evaluate("panel.thread")
        row = page.locator(".from-assistant").first
        await row.hover()
        await row.get_by_role("button", name="Go on from here").click()
        await expect(texts(page)).to_have_text(["one", "You said: one"])
        assert await page.evaluate("panel.thread") != before
        await say(page, "other")
        await expect(texts(page).last).to_have_text("You said: other")
        _, view = await ask(stage.client, "GET", f"/api/agent/threads/{before}")
        assert len(view["messages"]) == 4


async def test_40_usage_export_delete(stage: Stage, browser: Browser) -> None:
    stage.puppet.plays["work"] = [[("list_all", {"count": 2})], "All ``` of it."]
    async with stage.page(browser) as page:
        await say(page, "work")
        await expect(page.locator(".assistant")).to_have_text("All ``` of it.")
        await say(page, "more")
        await expect(page.locator(".assistant")).to_have_count(2)
        await page.click("#menu-button")
        await page.locator(".menu .usage").click()
        rows = page.locator(".sheet tbody tr")
        await expect(rows.first).to_contain_text("work")
        await expect(rows.first).to_contain_text("puppet-1")
        await expect(rows.first).to_contain_text("2,001 / 40")
        await expect(rows.first).to_contain_text("$0.003")
        await expect(page.locator(".sheet tfoot")).to_contain_text("3,001 / 60")
        await page.keyboard.press("Escape")
        saved = {}
        for name in ("exportMarkdown", "exportJson"):
            await page.click("#menu-button")
            async with page.expect_download() as download:
                await page.locator(f".menu .{name}").click()
            file = await download.value
            saved[file.suggested_filename] = read(await file.path())
        assert "### List all (`list_all`): done" in saved["conversation.md"]
        assert saved["conversation.md"].rstrip().endswith("You said: more")
        items = json.loads(saved["conversation.json"])["items"]
        assert [item["kind"] for item in items] == ["user", "tool", "text", "user", "text"]
        thread = await page.evaluate("panel.thread")
        await page.click("#menu-button")
        await page.locator(".menu .delete").click()
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator(".user")).to_have_count(2)
        await page.click("#menu-button")
        await page.locator(".menu .delete").click()
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(texts(page)).to_have_count(0)
        _, view = await ask(stage.client, "GET", f"/api/agent/threads/{thread}")
        assert view["messages"] == []


async def test_the_routes_of_branches(stage: Stage) -> None:
    """What is edited, asked again and copied over HTTP, and what is told of the versions."""
    thread = "/api/agent/threads/routes"

    async def done(path: str, body: object) -> None:
        async with stage.client.post(path, json=body, headers={"Accept": "text/event-stream"}) as response:
            assert response.status == 200
            assert "run_end" in await response.text()

    for n in (1, 2):
        await done(f"{thread}/runs", {"message": {"id": f"m{n}", "content": f"say {n}"}})
    await done(f"{thread}/edit", {"messageId": "m2", "message": {"id": "m3", "content": "say 3"}})
    await done(f"{thread}/edit", {"messageId": "m1", "message": {"id": "m4", "content": "say 4"}})
    await done(f"{thread}/retry", {})
    _, view = await ask(stage.client, "GET", thread)
    assert [m["content"] for m in view["messages"]] == ["say 4", "You said: say 4"]
    told = [[m["content"] for m in one["messages"] if m["role"] == "user"] for one in view["versions"]]
    assert told == [["say 1", "say 2"], ["say 1", "say 3"], ["say 4"]]
    assert {one["before"] for one in view["versions"]} == {view["messages"][0]["id"]}
    status, copy = await ask(stage.client, "POST", f"{thread}/fork", json={"to": "copy"})
    assert (status, copy) == (201, {"threadId": "copy"})
    assert (await ask(stage.client, "GET", "/api/agent/threads/copy"))[1]["messages"] == view["messages"]
    for path, body, expected in (
        ("fork", {"to": "copy"}, 409),
        ("fork", {"at": "nowhere"}, 404),
        ("fork", {"to": ""}, 400),
        ("edit", {"messageId": "m1", "message": " "}, 400),
        ("edit", {"messageId": "nowhere", "message": "x"}, 404),
        ("edit", {"messageId": view["messages"][1]["id"], "message": "x"}, 400),
        ("retry", [], 400),
    ):
        status, answer = await ask(stage.client, "POST", f"{thread}/{path}", json=body)
        assert (status, set(answer) >= {"error", "code"}) == (expected, True), (path, body, answer)
    status, usage = await ask(stage.client, "GET", f"{thread}/usage")
    assert (status, len(usage["steps"])) == (200, 5)
    assert usage["steps"][-1]["messageId"] == view["messages"][1]["id"]
    assert usage["steps"][-1]["usage"]["inputTokens"] == 1_000


async def test_10_a_message_that_is_replaced_before_its_answer_is_known_waits_no_more(
    stage: Stage, browser: Browser
) -> None:
    """Somebody else edits an earlier message while the line is away: what was sent meanwhile is over."""
    async with stage.page(browser) as page:
        held = asyncio.Event()

        async def late(route: Route) -> None:
            answer = await route.fetch()
            await held.wait()
            await route.fulfill(response=answer)

        await say(page, "first")
        await expect(page.locator(".assistant")).to_have_count(1)
        await page.route("**/events*", lambda route: route.abort())
        await page.route("**/runs", late)
        await page.evaluate("panel.connection.again()")
        await expect(page.locator("#status")).to_contain_text("Connection lost")
        await say(page, "meanwhile")
        path = f"/api/agent/threads/{await page.evaluate('panel.thread')}"
        view: dict[str, Any] = {}
        while len(view.get("messages", ())) < 4 or "activeRun" in view:
            _, view = await ask(stage.client, "GET", path)
        edit = {"messageId": view["messages"][0]["id"], "message": {"content": "other"}}
        assert (await ask(stage.client, "POST", f"{path}/edit", json=edit))[0] == 202
        while [m["content"] for m in view["messages"]] != ["other", "You said: other"] or "activeRun" in view:
            _, view = await ask(stage.client, "GET", path)
        await page.unroute("**/events*")
        await page.evaluate("panel.connection.again()")
        await expect(texts(page).first).to_have_text("other")
        held.set()
        await expect(texts(page)).to_have_text(["other", "You said: other"])
        await expect(page.locator(".queue .user")).to_have_count(0)
