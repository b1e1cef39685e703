"""Take the README's picture of the page: the sample, transcribed by the mock model, in Chromium.

.venv/bin/python scripts/screenshot.py docs/images/page.png
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"PLAYHEAD_HOME": home, "LLM_PROVIDER": "mock"}
        command = [sys.executable, "-u", "-m", "playhead"]
        subprocess.run([*command, "demo", "--once"], env=environment, check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen(
            [*command, "serve", "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            address = next(line for line in server.stdout if "http://" in line).split()[-1]
            with sync_playwright() as playwright:
                chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
                page = chromium.new_page(viewport={"width": 1180, "height": 720}, device_scale_factor=1.5)
                take(page, address, target)
                chromium.close()
        finally:
            server.terminate()
            server.wait()


def take(page: Page, address: str, target: Path) -> None:
    page.goto(address)
    page.get_by_role("button", name="Transcribe this").click()
    page.locator("#log").get_by_text("Here is the transcript of").wait_for()
    page.locator("video").evaluate("video => { video.currentTime = 4 }")
    page.wait_for_timeout(800)
    page.screenshot(path=target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
