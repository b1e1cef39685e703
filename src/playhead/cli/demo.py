"""`playhead demo`: one turn through everything, on a real recording, as it happens.

Chat store, orchestrator, HTTP to our own server, adapter, tool call, validation, `transcribe_video`,
speech recognition, result, answer.
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

import playhead
from playhead.cli.bridge import Bridge
from playhead.cli.exits import DONE, FAILED
from playhead.cli.faults import SPEECH_TODO, CommandError, Fault, say, todo_for
from playhead.cli.screen import RunView, clean, make_console, put
from playhead.cli.serve import Serving
from playhead.config import Settings, connect_with, create_library, create_registry, create_speech
from playhead.errors import ConfigError
from playhead.media.library import MediaRecord
from playhead.server import create_app
from playhead.session.orchestrator import Orchestrator
from playhead.session.stores import AgentStore, ChatStore
from playhead.tools.registry import ToolRegistry
from playhead.types import AgentContext, AgentRunResult, MediaAsset, ToolMessage

if TYPE_CHECKING:
    from rich.console import Console
    from starlette.applications import Starlette

SAMPLE = Path(playhead.__file__).parent / "media" / "samples" / "jfk.mp4"
PORT = 8765
QUESTION = "Transcribe this video, then say in one sentence what it is about."
_TOOL = "transcribe_video"


def demo(settings: Settings, video: Path | None, *, once: bool, port: int | None) -> int:
    """Show one run and, unless `once`, serve the page until Ctrl-C. Returns the exit code of the run."""
    if not settings.names_llm:
        settings = replace(settings, llm_provider="mock")
    llm = connect_with(settings)
    library = create_library(settings)
    speech = create_speech(settings)
    status = speech.status()
    if status.state != "ready":
        raise CommandError(status.message, SPEECH_TODO[status.state])
    registry = create_registry(settings, library, speech)
    console = make_console(sys.stdout)
    with Bridge() as bridge:
        record = bridge.run(library.add_file(video or SAMPLE))
        app = create_app(llm=llm, registry=registry, library=library, speech=speech, settings=settings)
        serving = _taken_address(app, port)
        try:
            url = bridge.run(serving.start())
            _introduce(console, settings, record, url)
            code = bridge.run(_run(settings, registry, record, url, console))
            if not once:
                console.print(f"\nThe page: {url}   (Ctrl-C ends it)")
                put(sys.stdout, serving.sign_in())
                with suppress(KeyboardInterrupt):
                    bridge.run(serving.wait())
            return code
        finally:
            bridge.run(serving.stop())


def _taken_address(app: "Starlette", port: int | None) -> Serving:
    """Take the port asked for, or the usual one, or any that is free."""
    if port is not None:
        return Serving(app, "127.0.0.1", port)
    try:
        return Serving(app, "127.0.0.1", PORT)
    except ConfigError:
        serving = Serving(app, "127.0.0.1", 0)
        put(sys.stderr, f"Port {PORT} is in use: taking {serving.url.rpartition(':')[2]} instead.\n")
        return serving


def _introduce(console: "Console", settings: Settings, record: MediaRecord, url: str) -> None:
    model = f"{settings.llm_provider} {settings.llm_model or ''}".strip()
    why = " (no LLM_* is set)" if settings.llm_provider == "mock" and not settings.llm_model else ""
    length = f", {record.duration:.1f} s" if record.duration is not None else ""
    console.print(clean(f"Video   {record.name}{length}"))
    console.print(clean(f"Model   {model}{why}"))
    console.print(f"Path    chat store, orchestrator, POST {url}/api/agent/chat, tool, answer", style="dim")
    console.print(clean(f"You     {QUESTION}\n"))


async def _run(
    settings: Settings, registry: ToolRegistry, record: MediaRecord, url: str, console: "Console"
) -> int:
    store = ChatStore(persist=settings.chats_folder / "demo.jsonl")
    store.clear_messages()
    store.add_message(role="user", content=QUESTION)
    headers = {"Authorization": f"Bearer {settings.token}"} if settings.token else None
    orchestrator = Orchestrator(f"{url}/api/agent/chat", registry, store, AgentStore(), headers=headers)
    asset = MediaAsset(record.id, record.name, record.type, record.duration)
    view = RunView(console, sys.stdout, transcript=True)
    try:
        result = await orchestrator.run(
            store.messages, AgentContext(media_assets=[asset]), on_event=view.show
        )
    finally:
        view.close()
    fault = _fault(result)
    if fault is None:
        return DONE
    sys.stdout.flush()
    say(fault)
    return FAILED


def _fault(result: AgentRunResult) -> Fault | None:
    """Why the run does not count as a success, if it does not."""
    if result.finish_reason != "final":
        what = " ".join((result.error_message or result.text or "The run failed.").split())
        return Fault(clean(what), todo_for(result.error_code))
    answers = [m for m in result.messages if isinstance(m, ToolMessage) and m.tool_name == _TOOL]
    if not answers:
        return Fault(f"The model answered without calling {_TOOL}.", "Use a model that takes tools.")
    if all(message.is_error for message in answers):
        what = clean(" ".join(answers[-1].content.split()))
        return Fault(what, "Try another file; `playhead doctor` looks at the speech model.")
    return None
