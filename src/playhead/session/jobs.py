"""Calls that outlast the run that made them: each goes on as a run of its own, a job.

A job is a run of a thread of its own, so that it is written down, shown, stopped and survives like
every other. It has a script in place of a model: it makes the call, and says what came of it in the
thread that the call was made in.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from playhead.errors import FatalToolError, StoreError, ToolError
from playhead.events import EmitDelta
from playhead.ids import now_ms
from playhead.loop import AgentLoop
from playhead.options import LoopOptions
from playhead.session.aside import CURRENT, Aside
from playhead.storage.ledger import OPEN, Ledger, RunRow, Thread, coded
from playhead.tools.background import BackgroundTools
from playhead.tools.define import tool
from playhead.tools.registry import ToolRegistry
from playhead.types import (
    AssistantMessage,
    JsonObject,
    LLMRequest,
    LLMResult,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)

T = TypeVar("T")

# In the id of a job's thread, after that of the thread of the call: nobody else may begin such a one.
MARK = "~job-"
# No tool of an application can have this name.
_DELIVER = "~deliver"
# How often a store that is away is asked again, in seconds.
_AGAIN = 1.0
# What came of a call is not given up because the store is away for long, in seconds.
_DELIVER_TIMEOUT = 7 * 86_400.0
_NOTE = (
    "It takes longer than {seconds:g} seconds, and goes on in the background. What comes of it will be said"
    " in this conversation: tell the user so. Do not wait for it, and do not call it again."
)
_SAID = "[Said by the program, not by a person: {what}.]\n\n{text}"

Say = Callable[[Thread, UserMessage, Any], Awaitable[RunRow]]
"""Begins a run of a thread with a message, and returns it."""


class _Job(msgspec.Struct, frozen=True, rename="camel"):
    """What the message of a job's run holds, as JSON."""

    tool: str
    args: JsonObject
    thread_id: str
    turn_id: str
    run_id: str


class Jobs:
    """A loop whose calls may become jobs, and the loops of jobs.

    Args:
        aside: the loop, which keeps long results.
        ledger: where runs are kept.
        say: begins runs.
    """

    def __init__(self, aside: Aside, ledger: Ledger, say: Say) -> None:
        self._aside = aside
        self._ledger = ledger
        self._say_once = say
        self.loop = aside.loop.with_tools(BackgroundTools(aside.loop.tools, self._hand_over))

    def loop_for(self, run: RunRow) -> AgentLoop:
        """Return the loop that carries out a run."""
        if MARK not in run.thread_id or run.message is None:
            return self.loop
        job = _read(run.message)
        tools = ToolRegistry([self._deliver])
        tools.result_limit = self.loop.tools.result_limit
        if self.loop.tools.has(job.tool):
            tools.register(_in_a_job(self.loop.tools.get(job.tool)))
        options = LoopOptions(tool_timeout=self.loop.options.tool_timeout)
        return AgentLoop(
            _Script(), tools=self._aside.around(tools, (job.thread_id, job.turn_id)), options=options
        )

    async def _hand_over(
        self, call: ToolCall, context: ToolContext, tool: ToolDefinition[..., Any]
    ) -> JsonObject:
        run = CURRENT.get()
        key = hashlib.blake2b(context.idempotency_key.encode("utf-8", "replace"), digest_size=12).hexdigest()
        job = _Job(tool.name, call.args, run.thread_id, run.turn_id, run.run_id)
        message = UserMessage(msgspec.json.encode(job).decode(), id=key)
        thread = Thread(f"{run.thread_id}{MARK}{key}", run.tenant_id)
        begun = await self._say(thread, message, context.context)
        note = _NOTE.format(seconds=tool.background)
        return {"status": "running", "runId": begun.run_id, "threadId": begun.thread_id, "note": note}

    @property
    def _deliver(self) -> ToolDefinition[..., Any]:
        @tool(description="Say what came of the call.", timeout=_DELIVER_TIMEOUT, replay="idempotency_key")
        async def deliver(context: ToolContext) -> str:
            run = CURRENT.get()
            assert run.message is not None
            job = _read(run.message)
            thread = Thread(job.thread_id, run.tenant_id)
            said = await _in_time(lambda: self._outcome(run, job))
            if said is None:
                return "The conversation was deleted."
            while await _in_time(lambda: self._is_taken(thread)):  # noqa: ASYNC110 - others may write it
                await asyncio.sleep(_AGAIN)
            await self._say(thread, said, context.context)
            return "Said."

        return replace(deliver, name=_DELIVER)

    async def _outcome(self, run: RunRow, job: _Job) -> UserMessage | None:
        """Return what is said of a job's call; None where the thread of the call was deleted."""
        # Not the run of the call: in memory, one that has ended is forgotten sooner than what it said.
        if not await self._ledger.turns.turn(job.turn_id, tenant_id=run.tenant_id):
            return None
        rows = await self._ledger.turns.turn(run.turn_id, tenant_id=run.tenant_id)
        result = next(row.message for row in rows if isinstance(row.message, ToolMessage))
        done = "has an outcome" if not result.is_error else "failed"
        what = f"the call of {job.tool} that went on in the background {done}"
        return UserMessage(
            _SAID.format(what=what, text=result.content), id=f"job-{run.run_id}", source="background"
        )

    async def _is_taken(self, thread: Thread) -> bool:
        """Is a run at work that may yet ask a person, or a call waiting that speaking would pass over?"""
        last = await self._ledger.last_run(thread)
        if last is None or last.state in OPEN:
            return last is not None
        if last.state != "paused":
            return False
        calls = await self._ledger.pending(last.turn_id, tenant_id=last.tenant_id)
        return any(call.answered_by is None and call.expires_at >= now_ms() for call in calls)

    async def _say(self, thread: Thread, message: UserMessage, context: Any) -> RunRow:
        return await _in_time(lambda: self._say_once(thread, message, context))


async def _in_time(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask a store, again and again while it is away."""
    while True:
        try:
            return await ask()
        except StoreError as error:
            if error.code == "stopping":
                # Of a process that ends nothing is recorded: a durable run does this again elsewhere.
                await asyncio.Event().wait()
            if not error.passing:
                raise
        await asyncio.sleep(_AGAIN)


def _in_a_job(definition: ToolDefinition[..., Any]) -> ToolDefinition[..., Any]:
    """Return a tool as a job has it: waited for and approved in the run that made the call, and with every
    failure an outcome to be said."""

    async def run(prepared: Any, context: ToolContext) -> Any:
        try:
            return await definition.run(prepared, context)
        except FatalToolError as error:
            raise ToolError(str(error) or type(error).__name__) from None

    return replace(definition, run=run, background=None, approval=False)


class _Script:
    """Stands in for the model of a job: the call, what came of it, the end."""

    provider, model = "playhead", "job"
    owns_attempts = True

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        said = request.messages
        job = _read(next(message for message in said if isinstance(message, UserMessage)))
        done = sum(isinstance(message, AssistantMessage) for message in said)
        calls = [ToolCall("call", job.tool, job.args)] if not done else []
        if done == 1:
            calls = [ToolCall("deliver", _DELIVER, {})]
        text = "" if calls else "Done."
        return LLMResult(AssistantMessage(text, tuple(calls)), "tool_calls" if calls else "stop")


def check_not_a_job(thread_id: str) -> None:
    """Raise `StoreError`, `invalid`, for a thread that only a job may write in."""
    if MARK in thread_id:
        raise coded(
            "invalid", f"The thread id {thread_id[:200]!r} is one of a job: {MARK!r} is kept for those."
        )


def _read(message: UserMessage) -> _Job:
    assert isinstance(message.content, str)
    return msgspec.json.decode(message.content, type=_Job)
