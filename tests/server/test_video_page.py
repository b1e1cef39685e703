"""The video page, in a real browser: its media, its projects, and how a newcomer begins."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from playhead.events import EmitDelta
from playhead.testing import ScriptedLLM
from playhead.types import AssistantMessage, LLMRequest, LLMResult, ToolCall
from tests.server.browsing import page_of, say, tabs_of
from tests.server.support import SAMPLE, SPOKEN, HeldModel, address, ask, served, settings, speech_endpoint
from tests.server.videos import now, video_page, violations

pytestmark = pytest.mark.anyio

DROP = """async ([names, bytes]) => {
  const data = new DataTransfer();
  for (const name of names) data.items.add(new File([Uint8Array.from(bytes)], name, { type: "video/mp4" }));
  for (const type of ["dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  }
}"""


async def test_a_newcomer_is_started_by_one_click(browser: Browser, tmp_path: Path) -> None:
    """Issue 7, 2: the sample, its picture and sound, its transcript on the video and beside it, to save."""
    async with (
        speech_endpoint() as endpoint,
        served(
            settings=settings(tmp_path, llm_provider="mock", speech_base_url=f"{endpoint.url}/v1")
        ) as client,
        page_of(browser, address(client)) as page,
    ):
        await expect(page.locator("#drop")).to_be_visible()
        assert await violations(page) == []
        await page.click("#sample")
        await expect(page.locator("#lines .text").first).to_contain_text(SPOKEN)
        await expect(page.locator(".assistant")).to_contain_text(SPOKEN)
        await expect(page.locator("#drop")).to_be_hidden()
        await page.wait_for_function("() => player.textTracks[0]?.cues?.length > 0")
        assert await page.evaluate("player.textTracks[0].mode") == "showing"
        await page.click("#show-captions")
        assert await page.evaluate("player.textTracks[0].mode") == "hidden"
        await expect(page.locator(".picture")).to_have_css("background-image", re.compile("thumbnails"))
        await page.wait_for_function(_TALL)
        saved = []
        for link in await page.locator("#captions a").all():
            async with page.expect_download() as download:
                await link.click()
            saved.append((await download.value).suggested_filename)
        assert saved == ["jfk.srt", "jfk.vtt", "jfk.txt", "jfk.json"]


# Somewhere in the drawing a bar is half as tall as the waveform.
_TALL = """() => {
  const canvas = document.querySelector("#wave canvas");
  const copy = new OffscreenCanvas(canvas.width || 1, canvas.height || 1);
  const context = copy.getContext("2d", { willReadFrequently: true });
  if (canvas.width) context.drawImage(canvas, 0, 0);
  const seen = context.getImageData(0, Math.round(copy.height * 0.3), copy.width, 1).data;
  return seen.some((value) => value > 0);
}"""


async def test_the_timeline_shows_and_moves_the_playhead(browser: Browser, tmp_path: Path) -> None:
    """Issue 7, 2: a picture of where the pointer is; a click goes there; the keyboard can as well."""
    async with video_page(browser, tmp_path) as (page, _):
        box = await page.locator("#wave").bounding_box()
        assert box
        await page.wait_for_function(_TALL)
        middle = (box["x"] + box["width"] / 2, box["y"] + 20)
        await page.mouse.move(*middle)
        await expect(page.locator("#peek-time")).to_have_text("0:05")
        await expect(page.locator("#peek-picture")).to_be_visible()
        await page.mouse.click(*middle)
        assert await now(page) == pytest.approx(5.5, abs=0.2)
        await page.locator("#wave").focus()
        await page.keyboard.press("ArrowRight")
        assert await now(page) == pytest.approx(10.5, abs=0.2)
        await page.keyboard.press("Home")
        await expect(page.locator("#wave")).to_have_attribute("aria-valuetext", "0:00 of 0:11")
        await page.click("#play")
        await expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
        await page.wait_for_function("() => player.currentTime > 0.1")


async def test_several_files_are_dropped_and_one_upload_is_cancelled(
    browser: Browser, tmp_path: Path
) -> None:
    """Issue 7, 2: progress and cancel for each; a file that is none says so, and the others go on."""
    held: list[Route] = []
    reached = asyncio.Event()

    async def hold(route: Route) -> None:
        held.append(route)
        reached.set()

    async with (
        served(llm=HeldModel(), settings=settings(tmp_path)) as client,
        page_of(browser, address(client)) as page,
    ):
        await page.route("**/api/media?name=first.mp4*", hold)
        names = ["first.mp4", "second.mp4", "third.mp4"]
        await page.evaluate(DROP, [names, list(SAMPLE.read_bytes())])
        await expect(page.locator("#uploads li")).to_have_count(3)
        await expect(page.locator("#uploads progress").first).to_have_attribute("aria-label", "first.mp4")
        await reached.wait()
        await page.click("[aria-label='Cancel first.mp4']")
        await expect(page.locator("#uploads li")).to_have_count(0)
        await expect(page.locator("#media .name")).to_have_text(["second.mp4", "third.mp4"])
        await expect(page.locator("#media [aria-current] .name")).to_have_text("third.mp4")
        await page.evaluate(DROP, [["notes.mp4"], [1, 2, 3]])
        await expect(page.locator("#media-error")).to_contain_text("notes.mp4")
        await page.click("#media-error button")
        await expect(page.locator("#media-error")).to_be_empty()
        await page.click("[aria-label='Remove third.mp4']")
        await page.click("#dialog-yes")
        await expect(page.locator("#media .name")).to_have_text(["second.mp4"])
        await expect(page.locator("#media [aria-current] .name")).to_have_text("second.mp4")
        await page.reload()
        await expect(page.locator("#media .name")).to_have_text(["second.mp4"])


async def choose(page: Page, button: str, name: str | None = None) -> None:
    await page.click("#project")
    await page.click(button)
    if name is not None:
        await page.fill("#dialog-name", name)
    await page.click("#dialog-yes")


async def test_projects_have_their_own_media_and_conversation(browser: Browser, tmp_path: Path) -> None:
    """Issue 7, 2: made, renamed, switched and deleted on the page; another browser sees the same."""
    async with (
        served(llm=ScriptedLLM(default="Yes."), settings=settings(tmp_path)) as client,
        tabs_of(browser, address(client), 1) as (page,),
    ):
        await page.set_input_files("#file", SAMPLE)
        await expect(page.locator("#media .name")).to_have_text("jfk.mp4")
        await page.fill("#message", "in the first")
        await page.press("#message", "Enter")
        await expect(page.locator(".assistant")).to_have_text("Yes.")
        await choose(page, "#project-new", " ")
        await expect(page.locator("#dialog-error")).to_contain_text("name")
        await page.fill("#dialog-name", "Second film")
        await page.click("#dialog-yes")
        await expect(page.locator("#project")).to_have_text("Second film")
        await expect(page.locator("#drop")).to_be_visible()
        await expect(page.locator(".user")).to_have_count(0)
        await choose(page, "#project-rename", "Renamed <b>film</b>")
        await expect(page.locator("#project")).to_have_text("Renamed <b>film</b>")
        await page.click("#project")
        await page.click("#project-list >> text=My first project")
        await expect(page.locator("#media .name")).to_have_text("jfk.mp4")
        await expect(page.locator(".user")).to_have_text("in the first")
        await page.click("#new-chat")
        await expect(page.locator("#hint")).to_be_visible()
        await page.fill("#message", "begun anew")
        await page.press("#message", "Enter")
        await expect(page.locator(".assistant")).to_have_text("Yes.")
        async with page_of(browser, address(client)) as other:
            await expect(other.locator(".user")).to_have_text("begun anew")
        await page.click("#project")
        await page.click("#project-list >> text=Renamed")
        await expect(page.locator("#project")).to_have_text("Renamed <b>film</b>")
        await choose(page, "#project-delete")
        await expect(page.locator("#project")).to_have_text("My first project")
        _, listed = await ask(client, "GET", "/api/projects")
        assert len(listed["items"]) == 1
        await page.click("#project")
        await expect(page.locator("#project-delete")).to_be_disabled()


async def test_a_message_brings_what_is_open_at_that_moment(browser: Browser, tmp_path: Path) -> None:
    """Issue 7, 2 and check 20: project, scene, selection, media and playhead, fresh for each message."""
    async with video_page(browser, tmp_path, llm=ScriptedLLM(default="Yes.")) as (page, _):

        async def context(text: str) -> Any:
            await page.fill("#message", text)
            async with page.expect_request("**/runs") as request:
                await page.press("#message", "Enter")
            posted: Any = (await request.value).post_data_json
            return posted["context"]

        first = await context("one")
        (asset,) = first["mediaAssets"]
        assert (first["projectId"], first["activeSceneId"], first["playbackTimeMs"]) == (
            "first",
            asset["id"],
            0,
        )
        assert (asset["name"], asset["type"]) == ("jfk.mp4", "video")
        await page.evaluate("player.currentTime = 4.5")
        # As a person drags over the last words of a line and the first of the next.
        await page.evaluate(
            """() => {
              const lines = [...document.querySelectorAll("#lines .text")];
              const [one, two] = lines.slice(1).map((text) => text.firstChild);
              getSelection().setBaseAndExtent(one, one.data.indexOf("country"), two, 3);
            }"""
        )
        await expect(page.locator("#selection")).to_contain_text("0:04 – 0:06")
        second = await context("two")
        assert second["playbackTimeMs"] == 4_500
        scene, _, times = second["activeSceneId"].partition("#t=")
        start, end = map(float, times.split(","))
        assert scene == asset["id"]
        assert start == pytest.approx(3 + 4 * 3 / 9, abs=0.02)
        assert end == pytest.approx(6 + 3 / 8, abs=0.02)
        # What is chosen is attached by one action, and stands in the message.
        await page.click("#attach")
        async with page.expect_request("**/runs") as request:
            await say(page, "What is this about?")
        sent: Any = (await request.value).post_data_json
        asked, attached = (part["text"] for part in sent["message"]["content"])
        assert asked == "What is this about?"
        label, facts = attached.split("\n")
        assert label == "Attached: 0:04 – 0:06 of jfk.mp4"
        assert json.loads(facts)["assetId"] == asset["id"]
        assert json.loads(facts)["text"].startswith("country")
        await expect(page.locator(".from-user .chips")).to_have_text("0:04 – 0:06 of jfk.mp4")
        await page.click("#selection .icon")
        assert (await context("three"))["activeSceneId"] == asset["id"]


async def test_the_model_moves_the_playhead_and_captions_the_video(browser: Browser, tmp_path: Path) -> None:
    """Issue 7, 3: `seek` is executed by the page, whose answer the model reads; a wrong id is an error;
    captions that were made are shown."""
    llm = ScriptedLLM(
        [("seek", {"seconds": 4}, "c1")],
        [("seek", {"seconds": 1, "assetId": "nope"}, "c2")],
        [("make_captions", {"wordsPerLine": 2, "lines": 1}, "c3")],
        "There.",
    )
    async with video_page(browser, tmp_path, llm=llm) as (page, _):
        await page.fill("#message", "Go there")
        await page.press("#message", "Enter")
        await expect(page.locator(".assistant")).to_have_text("There.")
        assert await now(page) == pytest.approx(4, abs=0.1)
        await page.wait_for_function("() => player.textTracks[0]?.cues?.length > 5")
        cues = await page.evaluate("[...player.textTracks[0].cues].map(({ text }) => text)")
        assert max(len(cue.split()) for cue in cues) <= 2
    told = [message.content for message in llm.requests[-1].messages if message.role == "tool"]
    assert '"seconds":4' in told[0].replace(" ", "")
    assert "no media nope" in told[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_fits_every_width(scheme: Any, browser: Browser, tmp_path: Path) -> None:
    """Issue 7, 2, checks 34 and 35: 390 px to wide, light and dark: nothing sticks out, what is needed can
    be seen, and axe-core finds nothing, also not in what opens."""
    async with video_page(browser, tmp_path, color_scheme=scheme) as (page, _):
        await page.fill("#query", "country")
        await expect(page.locator("#hits")).to_have_text("1 of 2")
        assert await violations(page) == []
        await page.click("#project")
        assert await violations(page) == []
        await page.click("#project-rename")
        assert await violations(page) == []
        await page.click("#dialog-no")
        await page.locator("#lines .text").first.dblclick()
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        for width, height in ((390, 844), (768, 1024), (1100, 800), (1440, 900), (2200, 1200)):
            await page.set_viewport_size({"width": width, "height": height})
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            if await page.locator("#sheet-open").is_visible():
                assert await violations(page) == []
                await page.click("#sheet-open")
                await expect(page.locator("#message")).to_be_focused()
                assert await violations(page) == []
            for id in ("player", "wave", "lines", "message"):
                box = await page.locator(f"#{id}").bounding_box()
                assert box
                assert box["width"] > 150
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= width


STILL = "() => document.getElementById('sheet').getAnimations().length === 0"
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


async def test_36_on_a_phone_the_conversation_is_a_sheet_below_the_video(
    browser: Browser, tmp_path: Path
) -> None:
    """Check 36: it opens by its button and by what asks something, the video stays in sight, the keyboard
    does not hide the field, and a tap or a pull closes it."""

    async def box(selector: str) -> Any:
        return await page.locator(selector).bounding_box()

    async with video_page(browser, tmp_path, **PHONE) as (page, _):
        await expect(page.locator("#message")).to_be_hidden()
        await expect(page.locator("#sheet-open")).to_have_text("Ask the assistant")
        await page.tap("#sheet-open")
        await expect(page.locator("#message")).to_be_focused()
        await page.wait_for_function(STILL)
        frame, sheet, field = await box("#frame"), await box("#sheet"), await box("#message")
        assert frame["y"] + frame["height"] <= sheet["y"] + 1
        assert sheet["y"] + sheet["height"] == pytest.approx(844, abs=1)
        assert field["y"] + field["height"] <= 844
        assert field["height"] >= 24
        await page.set_viewport_size({"width": 390, "height": 420})  # the keyboard is open
        field = await box("#message")
        assert 0 <= field["y"] <= 420 - field["height"]
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.fill("#message", "Hello")
        await page.tap("#send")
        await expect(page.locator(".assistant")).to_have_text("Wait")
        await page.reload()
        await expect(page.locator(".assistant")).to_be_visible()
        await page.tap("#sheet-close")
        await expect(page.locator("#message")).to_be_hidden()
        await expect(page.locator("#sheet-open")).to_be_focused()
        await expect(page.locator("#sheet-open")).to_have_text("Working…")
        await page.locator("#lines .text").first.select_text()
        await page.locator("#attach").click()
        await expect(page.locator("#composer .chip")).to_be_visible()
        await page.wait_for_function(STILL)
        handle = await box("#sheet-close")
        at = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
        for way, closed in ((30, False), (200, True)):
            await page.mouse.move(*at)
            await page.mouse.down()
            await page.mouse.move(at[0], at[1] + way, steps=4)
            await page.mouse.up()
            await expect(page.locator("body")).to_have_class("" if closed else "asking")
            await page.wait_for_function(STILL)
        assert await page.evaluate("document.documentElement.scrollWidth") == 390


class Patient:
    """A model that waits before it searches, and before it moves the playhead."""

    provider = model = "patient"

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.requests: list[LLMRequest] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.requests.append(request)
        step = len(self.requests)
        await self.go.wait()
        calls = {
            1: ToolCall("a", "search_transcript", {"query": "ask"}),
            2: ToolCall("b", "seek", {"seconds": 8}),
        }
        if step in calls:
            return LLMResult(AssistantMessage("", [calls[step]]), "tool_calls")
        return LLMResult(AssistantMessage("Done."))


async def test_what_is_open_is_fresh_at_every_step(browser: Browser, tmp_path: Path) -> None:
    """Issue 7, 2: what a person does while a run is at work is known to its next step, and where the player
    is after the run has moved it to the step after that."""
    llm = Patient()
    async with video_page(browser, tmp_path, llm=llm) as (page, _):
        await page.evaluate("chat.send('go')")
        await page.wait_for_function("() => chat.status.state === 'running'")
        async with page.expect_request("**/context") as told:
            await page.evaluate("player.currentTime = 5")
        await (await told.value).response()
        llm.go.set()
        await expect(page.locator(".assistant")).to_have_text("Done.")
        assert [r.context.playback_time_ms for r in llm.requests if r.context] == [0, 5_000, 8_000]
