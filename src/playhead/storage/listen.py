"""News from other processes on the same Postgres, by LISTEN.

https://www.postgresql.org/docs/current/sql-notify.html
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from playhead.encode import error_text
from playhead.storage.sql_events import CHANNEL

logger = logging.getLogger("playhead.storage")

_LOOK = 0.25  # how often the thread sees that it shall end, in seconds
_AGAIN = 1.0


class Listening:
    """A connection of its own, on a thread of its own, that waits for notifications.

    Args:
        url: of the database, as SQLAlchemy writes it.
    """

    def __init__(self, url: Any) -> None:
        self._url = url
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def start(self, on_news: Callable[[], None]) -> None:
        """Call `on_news` on this event loop whenever anything was written. Does nothing the second time."""
        if self._thread is not None:
            return
        loop = asyncio.get_running_loop()

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(on_news)
            except RuntimeError:
                self._over.set()  # the loop was closed

        self._thread = threading.Thread(target=self._run, args=(tell,), name="playhead-listen", daemon=True)
        self._thread.start()

    async def aclose(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self, tell: Callable[[], None]) -> None:
        import psycopg

        plain = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        while not self._over.is_set():
            try:
                with psycopg.connect(plain, autocommit=True) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    tell()  # what came before is found by looking
                    while not self._over.is_set():
                        if any(True for _ in connection.notifies(timeout=_LOOK, stop_after=1)):
                            tell()
            except psycopg.Error as error:
                logger.warning(
                    "Listening to the database broke off; it is tried again: %s", error_text(error)
                )
                self._over.wait(_AGAIN)
