"""Sees what other processes write, for readers of this one."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from playhead.encode import error_text
from playhead.errors import StoreError
from playhead.session.feed import Feed
from playhead.storage.ledger import EventLog, Thread

logger = logging.getLogger("playhead")

# How often a database that cannot tell is asked, and how often one that can; in seconds.
POLL = 0.25
POLL_BESIDE_NEWS = 2.0
_PAUSE = 0.02  # news that come close together are looked at once


class Watcher:
    """Asks the log about the threads that somebody reads, while somebody does.

    Args:
        log: the log that others write too.
        feeds: the threads that are read here.
        period: seconds between two looks, without news.
    """

    def __init__(self, log: EventLog, feeds: Mapping[Thread, Feed], period: float) -> None:
        self._log = log
        self._feeds = feeds
        self._period = period
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def on_news(self) -> Callable[[], None]:
        """To be called when something may have been written."""
        return self._news.set

    def start(self) -> None:
        """See to it that it watches."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="playhead watcher")

    async def aclose(self) -> None:
        """Watch no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _watch(self) -> None:
        while threads := [thread for thread, feed in self._feeds.items() if feed.readers]:
            try:
                for thread, seq in (await self._log.last(threads)).items():
                    feed = self._feeds.get(thread)
                    if feed is not None:
                        feed.look(seq)
            except StoreError as error:
                logger.warning("Other processes cannot be followed for now: %s", error_text(error))
            await asyncio.sleep(_PAUSE)
            try:
                async with asyncio.timeout(self._period):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
        self._task = None
