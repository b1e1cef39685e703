"""`playhead chat`: a conversation in the terminal, by lines. The answer is all that goes to stdout."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from importlib import import_module

from playhead.cli.bridge import Bridge
from playhead.cli.exits import DONE, FAILED, INTERRUPTED, WRONG
from playhead.cli.faults import CommandError, Fault, say, todo_for
from playhead.cli.screen import RunView, clean, make_console, put
from playhead.config import Settings, connect_with, create_library, create_registry, create_speech
from playhead.events import RunEnd
from playhead.loop import AgentLoop
from playhead.prompt import build_system_prompt
from playhead.types import AgentContext, AgentRunResult, ChatMessage, UserMessage


def chat(settings: Settings, message: str | None) -> int:
    """Answer one message, or talk until the end of the input. Returns the exit code."""
    talk = Conversation(settings)
    asked = _asked(message)
    with Bridge() as bridge:
        try:
            if asked is not None:
                return _exit_code(talk.turn(bridge, asked))
            return _interactive(talk, bridge)
        finally:
            bridge.run(talk.aclose())


class Conversation:
    """A model, its tools over the media library, and what was said so far in this process.

    Raises `ConfigError` when no model is configured.
    """

    def __init__(self, settings: Settings) -> None:
        llm = connect_with(settings)
        self.library = create_library(settings)
        self._speech = create_speech(settings)
        registry = create_registry(settings, self.library, self._speech)
        self._loop = AgentLoop(llm, tools=registry, system=build_system_prompt)
        self.history: list[ChatMessage] = []

    def turn(self, bridge: Bridge, text: str) -> AgentRunResult:
        """Say something and show the answer. Ctrl-C stops it; what was said by then is kept."""
        stop = asyncio.Event()
        return bridge.run(self._turn(text, stop), on_interrupt=stop.set)

    async def aclose(self) -> None:
        """End what works for this conversation."""
        await self._speech.aclose()

    async def _turn(self, text: str, stop: asyncio.Event) -> AgentRunResult:
        said = [*self.history, UserMessage(text)]
        context = AgentContext(media_assets=self.library.assets())
        view = RunView(make_console(sys.stderr), sys.stdout)
        result = None
        try:
            async for event in self._loop.stream(said, context=context, cancel=stop):
                view.show(event)
                if isinstance(event, RunEnd):
                    result = event.result
        finally:
            view.close()
        if result is None:
            raise CommandError("The run ended without a result.", "Try again.")
        if result.messages or result.finish_reason != "error":
            self.history = [*said, *result.messages]
        _tell_end(result)
        return result


def _tell_end(result: AgentRunResult) -> None:
    match result.finish_reason:
        case "error":
            what = clean(" ".join((result.error_message or "The run failed.").split()))
            say(Fault(what, todo_for(result.error_code)))
        case "max_steps":
            say(Fault("The model went on calling tools until the limit of steps.", "Ask for less at once."))
        case "cancelled":
            put(sys.stderr, "(stopped)\n")
        case "final" if result.stop_reason == "length":
            put(sys.stderr, "(cut off: the answer reached the output limit)\n")
        case "final" if result.stop_reason == "interrupted":
            put(sys.stderr, "(cut off: the connection to the provider broke)\n")


def _exit_code(result: AgentRunResult) -> int:
    if result.finish_reason == "cancelled":
        return INTERRUPTED
    return DONE if result.finish_reason == "final" else FAILED


def _asked(message: str | None) -> str | None:
    """The one message of this call: the argument, what is piped in, or both. None: talk."""
    if sys.stdin is None or sys.stdin.isatty():
        piped = ""
    else:
        piped = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
        if not piped and not (message or "").strip():
            raise CommandError(
                "There is no message: neither an argument nor anything on stdin.",
                'Say something: playhead chat "What is in the video?"',
                WRONG,
            )
    parts: Sequence[str] = [part for part in ((message or "").strip(), piped) if part]
    if message is not None and not parts:
        raise CommandError("The message is empty.", 'Say something: playhead chat "Hello"', WRONG)
    return "\n\n".join(parts) or None


def _interactive(talk: Conversation, bridge: Bridge) -> int:
    with contextlib.suppress(ImportError):
        import_module("readline")  # makes `input` a line editor, where there is one
    put(sys.stderr, "Ctrl-C stops an answer, Ctrl-D ends the conversation.\n")
    while True:
        try:
            line = _read_line()
        except EOFError:
            put(sys.stderr, "\n")
            return DONE
        except KeyboardInterrupt:
            put(sys.stderr, "\n(Ctrl-D ends the conversation.)\n")
            continue
        if line.strip():
            talk.turn(bridge, line)


def _read_line() -> str:
    if sys.stdout.isatty():
        return input("> ")
    # `input` would write its prompt into the answers.
    put(sys.stderr, "> ")
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
