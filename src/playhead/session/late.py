"""Ends of runs that were told while the store was away, and are written once it is back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from playhead.errors import StoreError
from playhead.session.journal import LONGEST_DELAY
from playhead.session.runs import LiveRun
from playhead.storage.ledger import Thread
from playhead.types import AgentRunResult


class LateEnds:
    """What is still to be written.

    Args:
        write: writes the end of a run, and waits for a store that is away.
    """

    def __init__(self, write: Callable[[LiveRun, AgentRunResult], Awaitable[None]]) -> None:
        self._write = write
        self._late: dict[str, tuple[LiveRun, asyncio.Task[None]]] = {}
        self._closed = False

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._late

    @property
    def runs(self) -> Sequence[LiveRun]:
        """Whose end is not written yet."""
        return [run for run, _ in self._late.values()]

    def add(self, run: LiveRun, result: AgentRunResult) -> None:
        """Write an end that was told."""
        self._late[run.run_id] = (run, asyncio.create_task(self._until_written(run, result)))

    async def is_written(self, run_id: str) -> bool:
        """Is the end written, now that the store seems to be back? The next try is waited for."""
        await asyncio.wait((self._late[run_id][1],), timeout=2 * LONGEST_DELAY)
        return run_id not in self._late

    async def drop_where(self, which: Callable[[Thread], bool]) -> None:
        """Write nothing more in some threads."""
        late = [(run, task) for run, task in self._late.values() if which(run.thread)]
        for run, _ in late:
            if run.port is not None:
                run.port.close()
        if late:
            await asyncio.wait([task for _, task in late])

    async def settle(self, seconds: float) -> None:
        """Begin no further try, and wait so long for those that are made."""
        self._closed = True
        if self._late:
            await asyncio.wait([task for _, task in self._late.values()], timeout=seconds)

    async def _until_written(self, run: LiveRun, result: AgentRunResult) -> None:
        try:
            while not self._closed:
                try:
                    await self._write(run, result)
                    return
                except StoreError as error:
                    if not error.passing:
                        return
        finally:
            del self._late[run.run_id]
