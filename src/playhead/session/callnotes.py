"""Every model call of a run goes to the call log: some together, and never in the way of the run."""

import asyncio

from msgspec.structs import replace

from playhead.llm.records import call_watcher
from playhead.session.runs import LiveRun
from playhead.storage.calls import CallLog, log_failure
from playhead.types import CallRecord

# How long a record may wait for others, in seconds: a commit of its own costs more than all it says.
_COMPANY = 0.25


class CallNotes:
    """Brings records into a log.

    Args:
        log: where they are kept. What it cannot write is said in the program's log, and breaks no run.
    """

    def __init__(self, log: CallLog) -> None:
        self._log = log
        self._waiting: list[tuple[LiveRun, CallRecord]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self, run: LiveRun) -> None:
        """Take note of the calls that are made in this context, as those of a run."""
        thread_id, tenant_id = run.thread.thread_id, run.thread.tenant_id
        turn_id, loop = run.row.turn_id, asyncio.get_running_loop()

        def note(record: CallRecord) -> None:
            named = replace(record, thread_id=thread_id, tenant_id=tenant_id, turn_id=turn_id)
            # A tool may call a model from a thread of its own.
            loop.call_soon_threadsafe(self._add, run, named)

        call_watcher.set(note)

    def _add(self, run: LiveRun, record: CallRecord) -> None:
        self._waiting.append((run, record))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_COMPANY, self._flush)

    async def settle(self) -> None:
        """Write what waits."""
        self._flush()
        if self._task is not None:
            await asyncio.wait((self._task,))

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._task is None:
            self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        while self._waiting:
            records, self._waiting = self._waiting, []
            written = (self._log.record(record) for run, record in records if not run.deleted)
            for failed in await asyncio.gather(*written, return_exceptions=True):
                if isinstance(failed, Exception):  # a log of the application's own
                    log_failure(failed)
        self._task = None
