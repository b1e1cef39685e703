"""`playhead chat`: a conversation in the terminal, by lines. The answer is all that goes to stdout."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from playhead.cli.bridge import Bridge
from playhead.cli.exits import DONE, FAILED, INTERRUPTED, WRONG
from playhead.cli.faults import CommandError, Fault, fault_of, say, todo_for
from playhead.cli.screen import RunView, clean, make_console, put
from playhead.config import Settings, connect_with, create_library, create_registry, create_speech
from playhead.errors import PlayheadError
from playhead.events import RunEnd, RunPaused, StepEnd, UserMessageEvent
from playhead.ids import new_id
from playhead.loop import AgentLoop
from playhead.prompt import build_system_prompt
from playhead.session.runs import RunHandle
from playhead.session.sessions import Sessions
from playhead.storage.ledger import PendingCall
from playhead.types import AgentContext, AgentRunResult

Begin = Callable[[], Awaitable[RunHandle]]
Waiting = tuple[str, PendingCall]


def chat(settings: Settings, message: str | None, thread_id: str | None = None) -> int:
    """Answer one message, or talk until the end of the input. Returns the exit code."""
    talk = Conversation(settings, thread_id)
    asked = _asked(message)
    with Bridge() as bridge:
        try:
            if asked is not None:
                return _exit_code(talk.turn(bridge, asked))
            return _interactive(talk, bridge)
        finally:
            bridge.run(talk.aclose())


class Conversation:
    """A thread in the database of the settings, a model, and its tools over the media library.

    Raises `ConfigError` when no model is configured, and `ImportError` without the package of databases.
    """

    def __init__(self, settings: Settings, thread_id: str | None = None) -> None:
        llm = connect_with(settings)
        import_module("playhead.storage.engine")
        self.thread_id = thread_id or new_id()
        self.library = create_library(settings)
        self._speech = create_speech(settings)
        registry = create_registry(settings, self.library, self._speech)
        loop = AgentLoop(llm, tools=registry, system=build_system_prompt)
        self._sessions = Sessions(loop, settings.database_url)
        self._unanswered: str | None = None

    def turn(self, bridge: Bridge, text: str) -> AgentRunResult:
        """Say something and show the answer. Ctrl-C stops it; what was said by then is kept."""
        return self._carry_out(bridge, partial(self._say, text))

    def settle(self, bridge: Bridge) -> None:
        """Ask about what the thread waits for since it was left."""
        pending = bridge.run(self._pending())
        if pending:
            self._carry_out(bridge, partial(self._answer, *pending[0], _decide(pending[0][1])))

    async def aclose(self) -> None:
        """End what works for this conversation."""
        await self._sessions.aclose()
        await self._speech.aclose()

    def _carry_out(self, bridge: Bridge, begin: Begin) -> AgentRunResult:
        view = RunView(make_console(sys.stderr), sys.stdout)
        while True:
            stop = asyncio.Event()
            result = bridge.run(self._follow(begin, view, stop), on_interrupt=stop.set)
            pending = bridge.run(self._pending()) if result.finish_reason == "paused" else ()
            if not pending:
                _tell_end(result)
                return result
            begin = partial(self._answer, *pending[0], _decide(pending[0][1]))

    async def _say(self, text: str) -> RunHandle:
        context = AgentContext(media_assets=self.library.assets())
        replaced, self._unanswered = self._unanswered, None
        if replaced is not None:
            return await self._sessions.edit(self.thread_id, replaced, text, context=context)
        return await self._sessions.start(self.thread_id, text, context=context)

    async def _answer(self, run_id: str, waiting: PendingCall, given: dict[str, Any]) -> RunHandle:
        context = AgentContext(media_assets=self.library.assets())
        hashed = waiting.args_hash
        return await self._sessions.answer(
            run_id, waiting.call.id, args_hash=hashed, context=context, **given
        )

    async def _pending(self) -> Sequence[Waiting]:
        return await self._sessions.pending(self.thread_id)

    async def _follow(self, begin: Begin, view: RunView, stop: asyncio.Event) -> AgentRunResult:
        run = await begin()
        stopping = asyncio.create_task(self._stop(run.run_id, stop))
        result, asked, answered = None, None, False
        try:
            async with contextlib.aclosing(self._sessions.events(run.run_id)) as events:
                async for event in events:
                    view.show(event)
                    answered |= isinstance(event, StepEnd)
                    if isinstance(event, UserMessageEvent):
                        asked = event.message.id
                    elif isinstance(event, RunEnd | RunPaused):
                        result = event.result
        finally:
            stopping.cancel()
            view.close()
        if result is None:
            raise CommandError("The run ended without a result.", "Try again.")
        if result.finish_reason == "error" and not answered:
            self._unanswered = asked  # what is said next takes its place
        return result

    async def _stop(self, run_id: str, stop: asyncio.Event) -> None:
        await stop.wait()
        await self._sessions.cancel(run_id)


def _decide(waiting: PendingCall) -> dict[str, Any]:
    """What is answered to a call that waits."""
    if waiting.kind == "client":
        return {"error": "It cannot be executed here: the user is at a terminal."}
    shown = clean(f"{waiting.call.name} {json.dumps(waiting.call.args, ensure_ascii=False)}")
    if sys.stdin is None or not sys.stdin.isatty():
        put(sys.stderr, f"Not approved, because nobody is here to ask: {shown}\n")
        return {"approved": False, "reason": "Nobody is here to approve it."}
    try:
        said = _read_line(f"Run {shown} ? [y/N] ")
    except (EOFError, KeyboardInterrupt):
        put(sys.stderr, "\n")
        said = ""
    return {"approved": said.strip().lower() in ("y", "yes")}


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
    thread = clean(talk.thread_id)
    put(sys.stderr, f"To go on with this conversation later: playhead chat --thread {thread}\n")
    put(sys.stderr, "Ctrl-C stops an answer, Ctrl-D ends the conversation.\n")
    talk.settle(bridge)
    while True:
        try:
            line = _read_line("> ")
        except EOFError:
            put(sys.stderr, "\n")
            return DONE
        except KeyboardInterrupt:
            put(sys.stderr, "\n(Ctrl-D ends the conversation.)\n")
            continue
        if not line.strip():
            continue
        try:
            talk.turn(bridge, line)
        except PlayheadError as error:
            say(fault_of(error))


def _read_line(prompt: str) -> str:
    if sys.stdout.isatty():
        return input(prompt)
    # `input` would write its prompt into the answers.
    put(sys.stderr, prompt)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
