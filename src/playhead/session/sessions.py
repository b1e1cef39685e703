"""Threads and their runs on the server's side, in memory: one active run for each thread.

A run belongs to nobody who listens to it: readers come and go, and only `cancel` or `aclose` stops
it. It ends with exactly one `run_end`, also when the application's own code fails in it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from time import monotonic
from types import TracebackType
from typing import Any

from playhead.encode import error_text, masked_traceback
from playhead.errors import ConfigError, PlayheadError
from playhead.events import Event
from playhead.loop import AgentLoop
from playhead.session.port import StoredPort, ThreadKey
from playhead.session.runs import LiveRun, RunHandle, Said, result_of, store_error, user_message
from playhead.storage.base import DEFAULT_TURNS, TurnStore
from playhead.storage.memory import MemoryTurnStore
from playhead.types import AgentRunResult, ChatMessage, FinishReason

logger = logging.getLogger("playhead")

_Reason = tuple[FinishReason, str | None, str | None]
_CANCELLED: _Reason = ("cancelled", None, None)

# What a task that was cancelled outright may still take, in seconds, before it is given up.
_LAST_MOMENT = 0.5


class Sessions:
    """Runs a loop for any number of threads. An async context manager: leaving it stops all runs.

    Args:
        loop: what answers.
        store: where the turns are kept; in memory when not given.
        window: how many earlier turns of its thread a run is shown.
        keep_runs: how many finished runs are remembered, with their events.
        keep_for: for how many seconds they are.
        stop_timeout: how many seconds a run may take to end once it was stopped.

    A `tenant` is part of a thread's name, and of who may ask for a run: what is another tenant's is
    unknown. A `message_id` makes sending a message again harmless: the run is the same one.
    """

    def __init__(
        self,
        loop: AgentLoop,
        store: TurnStore | None = None,
        *,
        window: int = DEFAULT_TURNS,
        keep_runs: int = 200,
        keep_for: float = 900.0,
        stop_timeout: float = 3.0,
    ) -> None:
        for name, value in (
            ("window", window),
            ("keep_runs", keep_runs),
            ("keep_for", keep_for),
            ("stop_timeout", stop_timeout),
        ):
            if value < 0:
                raise ConfigError(f"Sessions: {name} is {value!r}; it must be 0 or more.")
        self._loop = loop
        self._store = store if store is not None else MemoryTurnStore()
        self._window = window
        self._keep_runs = keep_runs
        self._keep_for = keep_for
        self._stop_timeout = stop_timeout
        self._closed = False
        self._runs: dict[str, LiveRun] = {}
        self._by_message: dict[tuple[ThreadKey, str], LiveRun] = {}
        self._waiting: dict[ThreadKey, deque[LiveRun]] = {}
        self._finished: deque[LiveRun] = deque()

    async def __aenter__(self) -> "Sessions":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def run(
        self,
        thread_id: str,
        message: Said,
        *,
        tenant: str | None = None,
        context: Any = None,
        message_id: str | None = None,
    ) -> AgentRunResult:
        """Say something in a thread and wait for the answer.

        Being cancelled ends the waiting and not the run, which goes on and is recorded; the same
        `message_id` finds it again. Raises as `start` does.
        """
        handle = await self.start(thread_id, message, tenant=tenant, context=context, message_id=message_id)
        return await self._runs[handle.run_id].log.ended()

    async def start(
        self,
        thread_id: str,
        message: Said,
        *,
        tenant: str | None = None,
        context: Any = None,
        message_id: str | None = None,
    ) -> RunHandle:
        """Say something in a thread and return at once.

        While another run of the thread is at work, this one waits for its turn: runs of a thread
        come in the order of their messages, and none is dropped. Raises `StoreError`, with code
        `stopping` once the sessions are closed.
        """
        if self._closed:
            raise store_error("stopping", "These sessions are closed and take no more messages.")
        if not thread_id:
            raise store_error("invalid", "The thread id is empty; give each conversation a name of its own.")
        said = user_message(message, message_id)
        thread = ThreadKey(thread_id, tenant)
        self._forget()
        known = self._by_message.get((thread, said.id))
        if known is not None:
            return known.handle
        run = LiveRun(thread, said, context)
        self._runs[run.handle.run_id] = self._by_message[thread, said.id] = run
        line = self._waiting.setdefault(thread, deque())
        line.append(run)
        if len(line) == 1:
            self._begin(run)
        return run.handle

    def events(self, run_id: str, *, tenant: str | None = None) -> AsyncGenerator[Event, None]:
        """The run's events from its first, then live; the last is `run_end` or `run_paused`.

        Each reader goes at its own pace; one that is slow gets neighbouring deltas as one, and
        closing it changes nothing for the run. Raises `StoreError` with code `not_found`.
        """
        return self._found(run_id, tenant).log.read()

    async def cancel(self, run_id: str, *, tenant: str | None = None) -> None:
        """Stop a run and return when it has ended, with `finish_reason "cancelled"`.

        A run that still waits for its turn ends at once, as if its message had not been sent. One
        that has ended stays as it is. Raises `StoreError` with code `not_found`.
        """
        await self._stop(self._found(run_id, tenant))

    async def history(self, thread_id: str, *, tenant: str | None = None) -> Sequence[ChatMessage]:
        """Everything that was said in a thread, oldest first."""
        rows = await self._store.window(thread_id, turns=None, tenant_id=tenant)
        return tuple(row.message for row in rows)

    def active_run(self, thread_id: str, *, tenant: str | None = None) -> RunHandle | None:
        """The run of a thread that is at work; others may wait behind it."""
        line = self._waiting.get(ThreadKey(thread_id, tenant))
        return line[0].handle if line else None

    async def aclose(self) -> None:
        """Stop every run and take no more. Each ends with its last event, within a bound.

        The bound is `stop_timeout` and a moment: a run that does not end by then is given up.
        """
        self._take_no_more()
        await asyncio.gather(*(self._stop(line[0]) for line in tuple(self._waiting.values())))

    # ------------------------------------------------------------ the life of a run

    def _begin(self, run: LiveRun) -> None:
        run.task = asyncio.create_task(self._carry_out(run), name=f"run {run.handle.run_id}")

    async def _carry_out(self, run: LiveRun) -> None:
        reason: _Reason = ("error", "The run broke off.", "internal")
        try:
            port = run.port = StoredPort(
                self._store,
                run.thread,
                run.message,
                turns=self._window,
                on_event=run.log.put,
                stream=True,
                cancel=run.cancel,
                turn_id=run.handle.turn_id,
                run_id=run.handle.run_id,
            )
            start = await port.open()
            if start.turn_id == run.handle.turn_id:
                await self._loop.run_on(port, context=run.context, made=(start.message,))
            else:
                run.tell_end(result_of(await self._store.turn(start.turn_id, tenant_id=start.tenant_id)))
        except asyncio.CancelledError as error:
            reason = self._cancelled(run, error)
        except PlayheadError as error:
            _log_failure(run, error)
            reason = ("error", error_text(error), error.code)
        except Exception as error:  # the application's own code: its fault must not leave a run open
            _log_failure(run, error)
            reason = ("error", f"The run failed: {type(error).__name__}.", "internal")
        finally:
            self._end(run, reason)

    def _cancelled(self, run: LiveRun, error: asyncio.CancelledError) -> _Reason:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            # Nobody cancelled the run: the application's own code let such an error escape.
            _log_failure(run, error)
            return ("error", "The run failed: CancelledError.", "internal")
        if not run.cancel.is_set():
            self._take_no_more()  # the event loop itself is ending
        return _CANCELLED

    def _take_no_more(self) -> None:
        self._closed = True
        for line in tuple(self._waiting.values()):
            for run in list(line)[1:]:
                self._end(run, _CANCELLED)

    def _end(self, run: LiveRun, reason: _Reason) -> None:
        """See to it that the end is told, and let the next run of the thread begin."""
        run.end(*reason)
        line = self._waiting.get(run.thread)
        if not line or run not in line:
            return
        active = line[0] is run
        line.remove(run)
        run.ended_at = monotonic()
        self._finished.append(run)
        self._forget()
        if not line:
            del self._waiting[run.thread]
        elif active:
            self._begin(line[0])

    async def _stop(self, run: LiveRun) -> None:
        run.cancel.set()
        if run.task is None:
            self._end(run, _CANCELLED)
            return
        done, _ = await asyncio.wait((run.task,), timeout=self._stop_timeout)
        if not done:
            run.task.cancel()
            await asyncio.wait((run.task,), timeout=_LAST_MOMENT)
            self._end(run, _CANCELLED)

    def _found(self, run_id: str, tenant: str | None) -> LiveRun:
        run = self._runs.get(run_id)
        if run is None or run.thread.tenant_id != tenant:
            raise store_error("not_found", f"There is no run {run_id!r}, or it is forgotten by now.")
        return run

    def _forget(self) -> None:
        oldest = monotonic() - self._keep_for
        finished = self._finished
        while finished and (len(finished) > self._keep_runs or finished[0].ended_at < oldest):
            run = finished.popleft()
            del self._runs[run.handle.run_id]
            del self._by_message[run.thread, run.message.id]


def _log_failure(run: LiveRun, error: BaseException) -> None:
    # Masked: the application's own errors may quote a key, and name paths of this machine.
    logger.error("Run %s failed.\n%s", run.handle.run_id, masked_traceback(error))
