"""A living process takes the runs of a dead one: it is seen to be dead when its lock is free. What a process
writes that was only taken for dead is refused.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from time import monotonic

from playhead.encode import error_text
from playhead.errors import PlayheadError
from playhead.ids import now_ms
from playhead.session.durable.engine import DurableEngine
from playhead.session.durable.locks import Locks

logger = logging.getLogger("playhead")

# How often the locks of others are tried, in seconds.
LOOK = 0.4
# How often it is asked for runs of this process that nothing here carries out; they are put back when they
# are found again the next time.
STRAYS = 2.0
# How often rows are swept and lost runs ended, and how long the engine's rows of an ended run are kept.
HOUSEKEEPING = 600.0
KEEP = 7 * 86_400.0
_SWEEPER = "sweeper"


class Takeover:
    """Looks for runs of dead processes, and puts them back into the queue.

    Args:
        engine: where they are.
        locks: of the processes.
        tidy: ends what nobody else would.
    """

    def __init__(self, engine: DurableEngine, locks: Locks, tidy: Callable[[], Awaitable[None]]) -> None:
        self._engine = engine
        self._tidy = tidy
        self._locks = locks
        self._task: asyncio.Task[None] | None = None
        self._strays: set[tuple[str, str]] = set()

    async def hold(self) -> None:
        """Say that this process lives."""
        await self._locks.hold(self._engine.executor)

    async def start(self) -> None:
        """Take what is there, then go on looking."""
        await self._engine.adopt()
        await self._take()
        self._engine.kick()
        self._task = asyncio.create_task(self._watch(), name="playhead takeover")

    async def aclose(self) -> None:
        """Look no more, and let go of this process's own lock."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._locks.aclose()

    async def _watch(self) -> None:
        tidied, asked = -math.inf, monotonic()
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._locks.keep()
                await self._take()
                if monotonic() - asked > STRAYS:
                    asked = monotonic()
                    await self._gather()
                if monotonic() - tidied > HOUSEKEEPING:
                    tidied = monotonic()
                    await self._keep_house()
            except Exception as error:  # of a disk without room for a lock, say: it must go on looking
                text = error_text(error) if isinstance(error, PlayheadError) else type(error).__name__
                logger.warning("Runs of other processes cannot be looked at for now: %s", text)

    async def _keep_house(self) -> None:
        """Sweep and tidy, unless another process is at it."""
        if not await self._locks.take(_SWEEPER):
            return
        try:
            await self._tidy()
            swept = await self._engine.sweep(now_ms() - round(KEEP * 1_000))
            if swept:
                logger.info("The engine's rows of %s ended runs were swept.", swept)
        finally:
            await self._locks.give_back(_SWEEPER)

    async def _take(self) -> None:
        taken = 0
        for executor in await self._engine.executors():
            if executor != self._engine.executor and await self._locks.is_free(executor):
                taken += await self._engine.recover(executor)
        if taken:
            logger.warning("%s runs of a process that is gone go on.", taken)
            self._engine.kick()

    async def _gather(self) -> None:
        before, self._strays = self._strays, set(await self._engine.strays())
        for stray in before & self._strays:
            if await self._engine.recover(self._engine.executor, only=stray, handed_over=True):
                logger.warning("A run is carried out anew: the database did not answer when it was to begin.")
                self._engine.kick()
