"""A page of somebody else's with a panel in it, and a model that does what the test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
from playwright.async_api import Browser, Page
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from playhead import AgentLLM, LLMRequest, LLMResult, ToolRegistry, tool
from playhead.events import EmitDelta, TextDelta
from playhead.server import create_app
from playhead.types import AssistantMessage, ToolCall, ToolContext, Usage, UserMessage
from tests.server.browsing import page_of, tabs_of
from tests.server.support import address, served, settings

WEB = Path(__file__).parent.parent.parent / "web"
Calls: TypeAlias = Sequence[tuple[str, dict[str, Any]]]
Step: TypeAlias = str | Calls | Exception | Callable[[EmitDelta], Awaitable[str]]

# The strictest policy a page can have; the panel must need no other.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types dompurify"
)
HTML = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Host</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="/host.css"><script type="module" src="/host.js"></script>
<script type="module" src="/panel.js"></script></head><body><main><h1>Host</h1>
{panels}</main></body></html>"""
CSS = """html, body { margin: 0; height: 100%; } main { height: 100%; display: flex; flex-direction: column; }
h1 { font-size: 1rem; margin: 0; } playhead-panel { flex: 1; min-height: 0; font-family: serif; }"""
SCRIPT = """window.told = [];
for (const name of ["seek", "playhead-result", "playhead-status"])
  document.addEventListener(name, ({ detail }) => told.push([name, detail]));
window.panel = document.querySelector("playhead-panel");
panel.context = () => ({ projectId: "p1", playbackTimeMs: 1500 });
panel.clientTools = { seek_player: async ({ ms }) => {
  window.sought = (window.sought ?? 0) + 1;
  return `at ${ms}`;
} };
window.inside = (selector) => panel.shadowRoot.querySelector(selector);
"""


class Puppet:
    """A model that plays what is written for the last message of the user, step by step.

    A step is a text, calls, an error, or a function that says the text itself.
    """

    provider = model = "puppet"

    def __init__(self) -> None:
        self.plays: dict[str, Sequence[Step]] = {}
        self.requests: list[LLMRequest] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.requests.append(request)
        at = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
        said = request.messages[at].content
        asked = said if isinstance(said, str) else next(part.text for part in said if part.type == "text")
        done = sum(isinstance(message, AssistantMessage) for message in request.messages[at:])
        step = self.plays.get(asked, [f"You said: {asked}"])[done]
        usage = Usage(input_tokens=1000 + done, output_tokens=20, cost_micro_usd=1500)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str) or callable(step):
            assert emit is not None
            if callable(step):
                text = await step(emit)
            else:
                text = step
                for start in range(0, len(text), 7):
                    emit(TextDelta(text=text[start : start + 7]))
            return LLMResult(AssistantMessage(text), usage=usage, model="puppet-1")
        calls = [
            ToolCall(f"call-{len(self.requests)}-{n}", name, args) for n, (name, args) in enumerate(step)
        ]
        return LLMResult(AssistantMessage("", calls), "tool_calls", usage=usage, model="puppet-1")


class Stage:
    """A server with a `Puppet`, tools, and a page with a panel at `/host`, or with two at `/two`."""

    def __init__(self, client: aiohttp.ClientSession, puppet: Puppet) -> None:
        self.client = client
        self.puppet = puppet
        self.url = address(client)
        self.go = asyncio.Event()
        self.published: list[str] = []

    @asynccontextmanager
    async def tabs(
        self, browser: Browser, count: int = 2, path: str = "/host", **more: Any
    ) -> AsyncIterator[list[Page]]:
        async with tabs_of(browser, self.url, count, path, **more) as pages:
            for page in pages:
                await page.locator("#message").first.wait_for()
            yield pages

    @asynccontextmanager
    async def page(self, browser: Browser, path: str = "/host", **more: Any) -> AsyncIterator[Page]:
        async with self.tabs(browser, 1, path, **more) as (page,):
            yield page


def held(stage: Stage, before: str, after: str) -> Callable[[EmitDelta], Awaitable[str]]:
    """A step that says the one text at once, and the other when the stage says go."""

    async def say(emit: EmitDelta) -> str:
        emit(TextDelta(text=before))
        await stage.go.wait()
        emit(TextDelta(text=after))
        return before + after

    return say


def tools_of(stage: Callable[[], Stage]) -> ToolRegistry:
    @tool(approval=True)
    async def publish_video(title: str, api_key: str = "") -> str:
        """Publish a video."""
        stage().published.append(title)
        return f"published {title} from 0:02 to 0:05"

    @tool
    async def measure(what: str, context: ToolContext) -> str:
        """Measure something, and take one's time."""
        context.progress(0.25, "a quarter of it")
        await stage().go.wait()
        return "measured"

    @tool
    async def break_it(what: str) -> str:
        """Fail."""
        raise ValueError(f"There is no {what}. Choose another one.")

    @tool
    async def list_all(count: int) -> list[str]:
        """A long list."""
        return [f"item {n}" for n in range(count)]

    @tool
    async def transcript() -> dict[str, Any]:
        """A transcript."""
        lines = [{"start": n * 2.0, "end": n * 2.0 + 2, "text": f"line {n}"} for n in range(3)]
        return {"assetId": "a1", "assetName": "film.mp4", "segments": lines}

    @tool
    async def parts() -> dict[str, Any]:
        """What looks like a transcript and is none."""
        return {"segments": ["intro", None, {"start": "now", "text": 5}]}

    @tool(replay="safe", background=0.01)
    async def long_work() -> str:
        """Outlast the run."""
        await stage().go.wait()
        return "the outcome"

    @tool(client=True)
    async def seek_player(ms: int) -> str:
        """Move the player."""
        raise AssertionError("the page does it")

    return ToolRegistry(
        [publish_video, measure, break_it, list_all, transcript, parts, long_work, seek_player]
    )


@asynccontextmanager
async def staged(home: Path, model: AgentLLM | None = None, **parts: Any) -> AsyncIterator[Stage]:
    """Serve a `Stage`."""

    def answer(content: str, kind: str, **headers: str) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            return Response(content, media_type=kind, headers=headers)

        return route

    one, attributes = "<playhead-panel></playhead-panel>", 'thread="{}" theme="{}"'
    two = "".join(
        f"<playhead-panel {attributes.format(thread, theme)}></playhead-panel>"
        for thread, theme in (("left", "light"), ("right", "dark"))
    )
    policy = {"Content-Security-Policy": POLICY}
    stages: list[Stage] = []
    puppet = Puppet()
    app = create_app(
        llm=model or puppet, registry=tools_of(lambda: stages[0]), settings=settings(home), **parts
    )
    app.router.routes[:0] = [
        Route("/host", answer(HTML.format(panels=one), "text/html", **policy)),
        Route("/two", answer(HTML.format(panels=two), "text/html", **policy)),
        Route("/host.css", answer(CSS, "text/css")),
        Route("/host.js", answer(SCRIPT, "text/javascript")),
    ]
    async with served(app) as client:
        stages.append(Stage(client, puppet))
        yield stages[0]


__all__ = ["WEB", "Puppet", "Stage", "held", "page_of", "staged"]
