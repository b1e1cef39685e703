"""What the assistant changes in a transcript is seen, and a turn of it is taken back as one."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.server.panels import Puppet
from tests.server.support import ask
from tests.server.videos import LINES, video_page, violations

pytestmark = pytest.mark.anyio

AGENT = "#lines .by-agent .text"


def corrector() -> Puppet:
    """A model that corrects two things in one turn, by two calls."""
    llm = Puppet()
    llm.plays["fix it"] = [
        [("correct_transcript", {"corrections": [{"heard": "country", "text": "county"}]})],
        [("correct_transcript", {"corrections": [{"heard": "county", "text": "land", "at": 7}]})],
        "I changed it.",
    ]
    llm.plays["once more"] = [
        [("correct_transcript", {"corrections": [{"heard": "américans", "text": "Americans"}]})],
        "Done.",
    ]
    return llm


async def say(page: Page, text: str, answer: str) -> None:
    await page.fill("#message", text)
    await page.keyboard.press("Enter")
    await expect(page.locator(".assistant").last).to_have_text(answer)
    await expect(page.locator("#stop")).to_be_hidden()


FIXED = [LINES[0], "ask not what your county can do for you", "ask what you can do for your land"]


async def test_21_what_the_assistant_changed_is_shown_and_one_undo_takes_its_turn_back(
    browser: Browser, tmp_path: Path
) -> None:
    """Check 21: lines and timeline show it, also after a reload; Undo restores what the turn found."""
    async with video_page(browser, tmp_path, llm=corrector()) as (page, client):
        await expect(page.locator("#changed")).to_be_hidden()
        await page.locator("#lines .text").nth(1).dblclick()
        await page.keyboard.press("End")
        await page.keyboard.type("!")
        await page.keyboard.press("Enter")
        await expect(page.locator("#changed-said")).to_have_text("You changed a line")
        await expect(page.locator(AGENT)).to_have_count(0)
        await say(page, "fix it", "I changed it.")
        fixed = [FIXED[0], f"{FIXED[1]}!", FIXED[2]]
        await expect(page.locator("#lines .text")).to_have_text(fixed)
        await expect(page.locator("#changed-said")).to_have_text("The assistant changed 2 lines")
        await expect(page.locator(AGENT)).to_have_text(fixed[1:])
        await expect(page.locator(AGENT).first).to_have_attribute(
            "title", f"Changed by the assistant. Heard: {LINES[1]}"
        )
        await expect(page.locator(".tool").first.locator(".lines, details").first).to_be_attached()
        assert await violations(page) == []
        await page.reload()
        await expect(page.locator(AGENT)).to_have_text(fixed[1:])
        await page.click("#show-changed")
        await expect(page.locator("#lines .text[tabindex='0']")).to_have_text(fixed[1])
        await page.click("#undo")
        await expect(page.locator("#lines .text")).to_have_text([LINES[0], f"{LINES[1]}!", LINES[2]])
        await expect(page.locator(AGENT)).to_have_count(0)
        await expect(page.locator("#changed-said")).to_have_text("You changed a line")
        await page.locator("h1").click()
        await page.keyboard.press("Control+z")
        await expect(page.locator("#lines .text")).to_have_text(list(LINES))
        await expect(page.locator("#changed")).to_be_hidden()
        await expect(page.locator("#lines .edited")).to_have_count(0)
        _, project = await ask(client, "GET", "/api/projects/first")
        path = f"/api/media/{project['media'][0]['id']}/transcript"
        _, transcript = await ask(client, "GET", path)
        assert [line["text"].strip() for line in transcript["segments"]] == list(LINES)
        assert (await ask(client, "GET", f"{path}/changes"))[1] == {"changes": []}


async def test_21_what_a_person_wrote_since_stays(browser: Browser, tmp_path: Path) -> None:
    """Check 21: Undo says that it left something; a line that is being written in stays open."""
    async with video_page(browser, tmp_path, llm=corrector()) as (page, client):
        await page.locator("#lines .text").nth(0).dblclick()
        await page.keyboard.type("Half a thou")
        await page.evaluate("chat.send('fix it')")
        await expect(page.locator(AGENT)).to_have_text(FIXED[1:])
        await expect(page.locator("#lines textarea")).to_have_value("Half a thou")
        await page.keyboard.press("Escape")
        _, project = await ask(client, "GET", "/api/projects/first")
        line = f"/api/media/{project['media'][0]['id']}/transcript/lines/1"
        assert (await ask(client, "PUT", line, json={"said": LINES[1], "text": "Mine"}))[0] == 200
        await page.click("#undo")
        await expect(page.locator("#lines .text")).to_have_text([LINES[0], "Mine", LINES[2]])
        await expect(page.locator("#media-error")).to_contain_text("stay as they are")
        await expect(page.locator("#changed-said")).to_have_text("You changed a line")


async def test_21_the_assistant_reads_what_it_wrote(browser: Browser, tmp_path: Path) -> None:
    """Check 21: a second turn is a change of its own, and goes back before the first."""
    async with video_page(browser, tmp_path, llm=corrector()) as (page, _):
        await say(page, "once more", "Done.")
        await say(page, "fix it", "I changed it.")
        fixed = ["And so my fellow Americans", *FIXED[1:]]
        await expect(page.locator("#lines .text")).to_have_text(fixed)
        await page.click("#undo")
        await expect(page.locator("#lines .text")).to_have_text([fixed[0], *LINES[1:]])
        await expect(page.locator(AGENT)).to_have_text(fixed[:1])
        await page.click("#undo")
        await expect(page.locator("#lines .text")).to_have_text(list(LINES))


async def test_21_what_another_tab_took_back_is_seen_when_one_looks_again(
    browser: Browser, tmp_path: Path
) -> None:
    """Check 21: the list of changes is that of the server."""
    async with video_page(browser, tmp_path, llm=corrector()) as (page, client):
        await say(page, "once more", "Done.")
        await expect(page.locator(AGENT)).to_have_count(1)
        _, project = await ask(client, "GET", "/api/projects/first")
        path = f"/api/media/{project['media'][0]['id']}/transcript"
        (change,) = (await ask(client, "GET", f"{path}/changes"))[1]["changes"]
        await ask(client, "POST", "/api/projects/first/undo", json={"change": change["id"]})
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(page.locator("#lines .text")).to_have_text(list(LINES))
        await expect(page.locator("#changed")).to_be_hidden()
        await ask(client, "PUT", f"{path}/lines/1", json={"said": LINES[1], "text": "Elsewhere"})
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(page.locator("#lines .text")).to_have_text([LINES[0], "Elsewhere", LINES[2]])


async def test_a_change_is_taken_back_once_and_by_its_own_project(browser: Browser, tmp_path: Path) -> None:
    """Check 21: what is not there, or not there any more, is `not_found`."""
    async with video_page(browser, tmp_path, llm=corrector()) as (page, client):
        await say(page, "once more", "Done.")
        _, project = await ask(client, "GET", "/api/projects/first")
        path = f"/api/media/{project['media'][0]['id']}/transcript/changes"
        (change,) = (await ask(client, "GET", path))[1]["changes"]
        assert (change["by"], change["lines"]) == (
            "agent",
            [{"number": 0, "before": LINES[0], "text": "And so my fellow Americans"}],
        )
        _, other = await ask(client, "POST", "/api/projects", json={"name": "Other"})
        undo = {"change": change["id"]}
        assert (await ask(client, "POST", f"/api/projects/{other['id']}/undo", json=undo))[0] == 404
        assert await ask(client, "POST", "/api/projects/first/undo", json=undo) == (200, {"lines": 1})
        status, said = await ask(client, "POST", "/api/projects/first/undo", json=undo)
        assert (status, said["code"]) == (404, "not_found")
        assert (await ask(client, "GET", "/api/media/none/transcript/changes"))[0] == 404
