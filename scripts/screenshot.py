"""Take the README's pictures: the page with the sample, transcribed by the mock model, in Chromium.

.venv/bin/python scripts/screenshot.py docs/images
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
WIDE, PHONE = (1440, 820), (390, 844)


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"PLAYHEAD_HOME": home, "LLM_PROVIDER": "mock"}
        command = [sys.executable, "-u", "-m", "playhead", "serve", "--port", "0"]
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = next(line for line in server.stdout if "http://" in line).split()[-1]
            with sync_playwright() as playwright:
                chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
                for name, page in pictures(chromium, address):
                    page.wait_for_timeout(800)
                    page.screenshot(path=folder / f"{name}.png")
                    page.close()
                chromium.close()
        finally:
            server.terminate()
            server.wait()


def pictures(chromium: Browser, address: str) -> Iterator[tuple[str, Page]]:
    start = opened(chromium, address, WIDE, "light")
    start.get_by_text("No file at hand?").wait_for()
    yield "start", start
    page = opened(chromium, address, WIDE, "light")
    page.get_by_role("button", name="Try it with a sample").click()
    page.locator("#media .name").wait_for()
    heard(page)
    yield "page", page
    dark = opened(chromium, address, WIDE, "dark")
    heard(dark)
    dark.locator("#query").fill("country")
    yield "dark", dark
    phone = opened(chromium, address, PHONE, "light")
    phone.locator("#sheet-open").click()
    heard(phone)
    yield "phone", phone


def opened(chromium: Browser, address: str, size: tuple[int, int], scheme: Literal["light", "dark"]) -> Page:
    width, height = size
    context = chromium.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=1.5, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(address)
    return page


def heard(page: Page) -> None:
    page.locator("#log").get_by_text("Here is the transcript of").wait_for(timeout=120_000)
    page.locator("#lines .text").first.wait_for()
    page.locator("video").evaluate("video => { video.currentTime = 4 }")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
