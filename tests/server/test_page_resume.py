"""The page and what interrupts it: a reload, a line that breaks, another tab, a server that dies."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from playhead import LLMRequest, LLMResult, ToolRegistry, tool
from playhead.events import Attempt, EmitDelta, TextDelta
from playhead.testing import ScriptedLLM
from playhead.types import AssistantMessage, ToolCall, ToolMessage
from tests.server.browsing import line_to, page_of, tabs_of
from tests.server.support import HeldModel, address, ask, process, served, settings

pytestmark = pytest.mark.anyio

# Characters of one to four bytes, and of one and two units in a browser.
WORDS = "an answer – with naïve words, 漢字, 🎬 and 👩‍👩‍👧 and more of it, "
FIRST, SECOND = (f"{label}: " + WORDS * 12 for label in ("First", "Second"))
LOST = "Connection lost. Trying again…"

# Every state of the answers that a person could see, in their order.
WATCH = """() => {
  window.seen = [];
  const look = () => seen.push([...document.querySelectorAll(".assistant")].map((p) => p.textContent));
  new MutationObserver(look).observe(document.getElementById("log"), { subtree: true, childList: true });
}"""


async def say(page: Page, text: str) -> None:
    await page.fill("#message", text)
    await page.press("#message", "Enter")


def texts(page: Page) -> Any:
    return page.locator("#log > p:is(.user, .assistant, .note), #log > .queue > .user")


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"seen: {at}"


class Talker:
    """Says a text piece by piece, calls a tool, and says another."""

    provider = model = "talker"

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        again = isinstance(request.messages[-1], ToolMessage)
        text = SECOND if again else FIRST
        for at in range(0, len(text), 5):
            if emit is not None:
                emit(TextDelta(text=text[at : at + 5]))
            await asyncio.sleep(0.01)  # the pace of a model: what is cut shall be in its midst
        if again:
            return LLMResult(AssistantMessage(text))
        return LLMResult(AssistantMessage(text, [ToolCall("c1", "look", {"at": "it"})]), "tool_calls")


async def test_a_reload_in_mid_answer_goes_on_with_it(browser: Browser, tmp_path: Path) -> None:
    """Q212: the answer so far is there again, and goes on, once and in order."""
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, address(client)) as page,
    ):
        await say(page, "Hello")
        await expect(page.locator(".assistant")).to_have_text("Wait")
        for _ in range(2):
            await page.reload()
            await expect(texts(page)).to_have_text(["Hello", "Wait"])
            await expect(page.locator("#stop")).to_be_visible()
        model.go.set()
        await expect(texts(page)).to_have_text(["Hello", "Wait for it"])
        await expect(page.locator("#stop")).to_be_hidden()
        await say(page, "And now?")
        await expect(texts(page)).to_have_text(["Hello", "Wait for it", "And now?", "Wait for it"])
        await page.reload()
        await expect(texts(page)).to_have_text(["Hello", "Wait for it", "And now?", "Wait for it"])


@pytest.mark.parametrize("seed", range(3))
async def test_a_line_that_breaks_in_mid_answer_loses_and_doubles_nothing(
    seed: int, browser: Browser, tmp_path: Path
) -> None:
    """Q212: cut at any byte, several times; at each moment what is shown is the beginning of the answer."""
    chance = random.Random(seed)
    budgets = [chance.randrange(150, 5_000) for _ in range(7)]
    async with (
        served(llm=Talker(), registry=ToolRegistry([look]), settings=settings(tmp_path)) as client,
        line_to(address(client), budgets) as line,
        page_of(browser, line.url) as page,
    ):
        await page.evaluate(WATCH)
        await say(page, "Talk")
        await expect(texts(page).nth(2)).to_have_text(SECOND.strip(), timeout=60_000)
        await expect(page.locator("#stop")).to_be_hidden()
        await expect(texts(page)).to_have_text(["Talk", FIRST.strip(), SECOND.strip()])
        await expect(page.locator(".tool .state")).to_have_text(["done"])
        await expect(page.locator("#status")).to_have_text("")
        shown = await page.evaluate("seen")
    assert line.cuts >= 3
    lengths = [sum(map(len, state)) for state in shown]
    assert lengths == sorted(lengths), "nothing that was shown goes away"
    whole = [FIRST, SECOND]
    wrong = [text for state in shown for n, text in enumerate(state) if not whole[n].startswith(text)]
    assert wrong == []
    assert shown[-1] == whole


async def test_a_line_that_is_away_is_said_and_a_message_waits_for_it(
    browser: Browser, tmp_path: Path
) -> None:
    """What is written meanwhile is said once when the line is back, also where only the answer was lost."""
    model = ScriptedLLM("One.", "Two.", "Three.", "Four.")
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        line_to(address(client)) as line,
        page_of(browser, line.url) as page,
    ):
        await say(page, "first")
        await expect(texts(page)).to_have_text(["first", "One."])
        there, line.to = line.to, None
        line.cut()
        await expect(page.locator("#status")).to_have_text(LOST)
        await say(page, "second")
        await say(page, "third")
        await expect(page.locator(".queue .user").first).to_have_attribute("data-state", "Not sent yet")
        line.to = there
        await expect(texts(page)).to_have_text(["first", "One.", "second", "Two.", "third", "Three."])
        await expect(page.locator("#status")).to_have_text("")

        # The server took it, and its answer was not heard.
        async def unheard(route: Any) -> None:
            await route.fetch()
            await route.abort()

        await page.route("**/runs", unheard, times=1)
        await say(page, "fourth")
        await expect(texts(page)).to_have_text(
            ["first", "One.", "second", "Two.", "third", "Three.", "fourth", "Four."]
        )
        assert len(model.requests) == 4


async def test_what_was_not_sent_yet_outlives_a_reload(browser: Browser, tmp_path: Path) -> None:
    """It is sent when the server can be reached, once, and in order."""
    async with (
        served(llm=ScriptedLLM("One.", "Two."), settings=settings(tmp_path)) as client,
        page_of(browser, address(client)) as page,
    ):
        await page.route("**/runs", lambda route: route.abort())
        for text in ("first", "second"):
            await say(page, text)
        await expect(page.locator(".queue .user").first).to_have_attribute("data-state", "Not sent yet")
        await page.reload()
        await expect(page.locator(".queue .user")).to_have_text(["first", "second"])
        await page.unroute("**/runs")
        await expect(texts(page)).to_have_text(["first", "One.", "second", "Two."])
        await page.reload()
        await expect(texts(page)).to_have_text(["first", "One.", "second", "Two."])


async def test_two_tabs_show_the_same(browser: Browser, tmp_path: Path) -> None:
    """Q244: what is said in one tab appears in the other; what comes meanwhile waits, and is not lost."""
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        tabs_of(browser, address(client), 2) as (one, two),
    ):
        await say(one, "first")
        for page in (one, two):
            await expect(texts(page)).to_have_text(["first", "Wait"])
            await expect(page.locator("#stop")).to_be_visible()
        await say(two, "second")
        waiting = two.locator(".queue .user")
        await expect(waiting).to_have_text("second")
        await expect(waiting).to_have_attribute("data-state", "Waits for its turn")
        await one.reload()
        await expect(one.locator(".queue .user")).to_have_text("second")
        await expect(texts(one)).to_have_text(["first", "Wait", "second"])
        model.go.set()
        for page in (one, two):
            await expect(texts(page)).to_have_text(["first", "Wait for it", "second", "Wait for it"])
            await expect(page.locator(".queue .user")).to_have_count(0)
            await expect(page.locator("#stop")).to_be_hidden()


async def test_stop_after_a_reload_stops_the_run(browser: Browser, tmp_path: Path) -> None:
    """Q214: by its id, and not by the connection; what was said stays, in every tab and after a reload."""
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        tabs_of(browser, address(client), 2) as (one, two),
    ):
        await say(one, "Hello")
        await expect(one.locator(".assistant")).to_have_text("Wait")
        await one.reload()
        await expect(one.locator(".assistant")).to_have_text("Wait")
        await one.click("#stop")
        assert await model.ended.get() == "cancelled"
        for page in (one, two, one):
            await expect(texts(page)).to_have_text(["Hello", "Wait", "Stopped."])
            await expect(page.locator("#stop")).to_be_hidden()
            await one.reload()


async def test_what_was_stopped_before_its_turn_can_be_sent_again(browser: Browser, tmp_path: Path) -> None:
    model = HeldModel()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, address(client)) as page,
    ):
        await say(page, "first")
        await expect(page.locator(".assistant")).to_have_text("Wait")
        async with page.expect_response("**/runs") as response:
            await say(page, "second")
        queued = (await (await response.value).json())["runId"]
        await ask(client, "POST", f"/api/agent/runs/{queued}/cancel")
        await expect(page.locator("#message")).to_have_value("second")
        await expect(texts(page)).to_have_text(["first", "Wait"])
        await expect(page.locator("#stop")).to_be_visible()
        model.go.set()
        await expect(texts(page)).to_have_text(["first", "Wait for it"])


async def test_what_a_failed_attempt_showed_is_taken_back(browser: Browser, tmp_path: Path) -> None:
    """Design 5: an attempt voids what was shown of its step, here and for who comes later."""

    class Twice(HeldModel):
        owns_attempts = True

        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            assert emit is not None
            emit(Attempt(number=1))
            emit(TextDelta(text="Half an ans"))
            self.called.set()
            await self.go.wait()
            emit(Attempt(number=2, reason="it broke"))
            emit(TextDelta(text="A whole answer."))
            return LLMResult(AssistantMessage("A whole answer."))

    model = Twice()
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, address(client)) as page,
    ):
        await say(page, "Hello")
        await expect(texts(page)).to_have_text(["Hello", "Half an ans"])
        await page.reload()
        await expect(texts(page)).to_have_text(["Hello", "Half an ans"])
        model.go.set()
        for _ in range(2):
            await expect(texts(page)).to_have_text(["Hello", "A whole answer."])
            await page.reload()


async def test_a_call_that_is_approved_in_one_tab_is_settled_in_the_other(
    browser: Browser, tmp_path: Path
) -> None:
    """Q220, Q241: what exactly would happen is shown, also after a reload; each call is answered once."""
    published: list[str] = []

    @tool(approval=True)
    async def publish(title: str) -> str:
        """Publish a video."""
        published.append(title)
        return f"published {title}"

    calls = [("publish", {"title": title}) for title in ("<b>one</b>", "two", "three")]
    model = ScriptedLLM(calls[:2], "Both.", calls[2], "As you like.")
    async with (
        served(llm=model, registry=ToolRegistry([publish]), settings=settings(tmp_path)) as client,
        tabs_of(browser, address(client), 2) as (one, two),
    ):
        await say(one, "Publish them")
        for page in (one, two):
            await expect(page.locator(".question pre").first).to_contain_text('"title": "<b>one</b>"')
            await expect(page.get_by_role("button", name="Approve")).to_have_count(2)
            await expect(page.locator(".tool .state")).to_have_text(["waits for approval"] * 2)
        await two.reload()
        await two.get_by_role("button", name="Approve").first.click()
        for page in (one, two):
            await expect(page.locator(".tool .state")).to_have_text(["done", "waits for approval"])
            await expect(page.get_by_role("button", name="Deny")).to_have_count(1)
        assert published == ["<b>one</b>"]
        await one.get_by_role("button", name="Deny").click()
        for page in (one, two):
            await expect(page.locator(".tool .state")).to_have_text(["done", "failed"])
            await expect(page.locator(".tool .detail").last).to_contain_text("Not approved")
            await expect(page.get_by_role("button", name="Deny")).to_have_count(0)
            await expect(texts(page)).to_have_text(["Publish them", "Both."])
        assert published == ["<b>one</b>"]
        await say(one, "Once more")
        await expect(two.get_by_role("button", name="Approve")).to_have_count(1)
        await say(two, "Never mind")
        for page in (one, two):
            await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
            await expect(page.locator(".tool .state")).to_have_text(["done", "failed", "failed"])
            await expect(texts(page).last).to_have_text("As you like.")
    assert published == ["<b>one</b>"]


async def test_a_server_that_is_killed_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    """Q242, Q247: what was said is there, the run is told to be interrupted, and the thread goes on."""
    async with (
        process(tmp_path, "asked") as (first, url),
        line_to(url) as line,
        page_of(browser, line.url) as page,
    ):
        await say(page, "hello")
        await expect(texts(page)).to_have_text(["hello", "Here it is."])
        await say(page, "hold")
        await expect(texts(page)).to_have_text(["hello", "Here it is.", "hold", "Here "])
        await say(page, "later")
        await expect(page.locator(".queue .user")).to_have_attribute("data-state", "Waits for its turn")
        line.to = None
        first.kill()
        await first.wait()
        await expect(page.locator("#status")).to_have_text(LOST)
        async with process(tmp_path, "asked") as (_, url_again):
            line.to = url_again
            note = page.locator(".note.error")
            await expect(note.first).to_contain_text("interrupted")
            await expect(page.locator("#status")).to_have_text("")
            await expect(page.locator("#stop")).to_be_hidden()
            await expect(page.locator(".user")).to_have_text(["hello", "hold", "later"])
            await expect(page.locator(".queue .user")).to_have_count(0)
            await say(page, "again")
            await expect(texts(page).last).to_have_text("Here it is.")
            await page.reload()
            await expect(page.locator(".user")).to_have_text(["hello", "hold", "later", "again"])
            await expect(texts(page).last).to_have_text("Here it is.")


async def test_a_thread_that_was_deleted_begins_anew(browser: Browser, tmp_path: Path) -> None:
    model = ScriptedLLM(default="Yes.")
    async with (
        served(llm=model, settings=settings(tmp_path)) as client,
        page_of(browser, address(client)) as page,
    ):
        await say(page, "first")
        await expect(texts(page)).to_have_text(["first", "Yes."])
        thread = await page.evaluate("localStorage.getItem('playhead.project.thread')")
        async with client.delete(f"/api/agent/threads/{thread}") as response:
            assert response.status == 204
        await expect(texts(page)).to_have_count(0)
        await expect(page.locator("#hint")).to_be_visible()
        await say(page, "second")
        await expect(texts(page)).to_have_text(["second", "Yes."])
        await page.click("#new-chat")
        await expect(page.locator("#hint")).to_be_visible()
        await expect(texts(page)).to_have_count(0)
