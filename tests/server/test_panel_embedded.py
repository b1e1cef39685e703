"""The panel in the pages of other applications, as the examples mount it."""

import pytest
from playwright.async_api import Browser, Page, expect

from tests.test_examples import free_ports, serving

pytestmark = pytest.mark.anyio


async def said(page: Page, text: str) -> None:
    """Say something by the panel; the mock model answers with the context."""
    panel = page.locator("playhead-panel")
    await page.evaluate("customElements.whenDefined('playhead-panel').then(() => null)")
    await panel.evaluate("(panel, text) => panel.send(text)", text)
    await expect(panel).to_contain_text(text)
    await expect(panel).to_contain_text("The context is:")


@pytest.mark.parametrize("name", ["mount_in_fastapi", "mount_in_django"])
async def test_the_users_of_an_application_have_the_panel_in_its_page(name: str, browser: Browser) -> None:
    """By the application's own sign-in; each finds what they said, and nothing of another."""
    async with serving(name, *free_ports(1)) as client:
        here = str(client._base_url).rstrip("/")
        page = await browser.new_page()
        await page.goto(here)
        await expect(page.locator("playhead-panel")).to_contain_text("not signed in")
        await page.goto(f"{here}/login?name=ada")
        await said(page, "I am Ada")
        await page.reload()
        await expect(page.locator("playhead-panel")).to_contain_text("I am Ada")
        await page.goto(f"{here}/login?name=bob")
        await said(page, "I am Bob")
        await expect(page.locator("playhead-panel")).not_to_contain_text("I am Ada")
        await page.close()


async def test_a_page_of_another_origin_has_the_panel(browser: Browser) -> None:
    """Its module, its requests and its streams go there with the token that the page was given."""
    async with serving("beside_a_page", *free_ports(2), line=b"http://") as client:
        page = await browser.new_page()
        await page.goto(str(client._base_url))
        await said(page, "I am a visitor")
        await page.close()
