"""State that can be watched. A change is made by an action, and told to who subscribed."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from playhead.encode import masked_traceback
from playhead.errors import StoreError

logger = logging.getLogger("playhead")

S = TypeVar("S", bound=msgspec.Struct)

# A listener that takes longer than this, in seconds, gets a rest of ten times what it took, so that
# it can never have more than about a tenth of the event loop.
SLOW = 0.02
_REST = 10.0


class Observable(Generic[S]):
    """Holds an immutable state and tells each new one to its listeners.

    A listener is called in the thread of the action, before the action returns, with the newest
    state. It cannot break the store or a run: an error in it is logged; while it rests for having
    been slow it is not called, and then gets the newest state and none of those between.
    """

    def __init__(self, state: S) -> None:
        self._state = state
        self._listeners: list[_Listener[S]] = []

    @property
    def state(self) -> S:
        """All of the state at once. It is immutable: the next change makes another one."""
        return self._state

    def subscribe(self, listener: Callable[[S], Any]) -> Callable[[], None]:
        """Call `listener` with the state after each change, until the returned function is called.

        Raises `StoreError` for a coroutine function: start a task in a plain one instead.
        """
        if inspect.iscoroutinefunction(listener):
            raise StoreError("A listener must be a plain function; start a task in it for what takes time.")
        held = _Listener(listener, self)
        self._listeners.append(held)

        def unsubscribe() -> None:
            if held in self._listeners:
                self._listeners.remove(held)
            held.close()

        return unsubscribe

    def _change(self, **changes: Any) -> None:
        state = replace(self._state, **changes)
        if state == self._state:
            return
        self._state = state
        for listener in tuple(self._listeners):
            listener.tell()


class _Listener(Generic[S]):
    def __init__(self, call: Callable[[S], Any], source: Observable[S]) -> None:
        self._call = call
        self._source = source
        self._open = True
        self._rested_at = 0.0
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def close(self) -> None:
        self._open = False
        if self._wake is not None:
            self._wake[1].cancel()

    def tell(self) -> None:
        loop = _running_loop()
        if loop is not None:
            if self._wake is not None and self._wake[0] is loop:
                return
            rest = self._rested_at - perf_counter()
            if rest > 0:
                self._wake = (loop, loop.call_later(rest, self._now))
                return
        self._now()

    def _now(self) -> None:
        self._wake = None
        if not self._open:
            return
        started = perf_counter()
        try:
            self._call(self._source.state)
        except (Exception, asyncio.CancelledError) as error:  # its fault must not break the store
            name = type(self._source).__name__
            logger.error("A listener of %s failed.\n%s", name, masked_traceback(error))
        ended = perf_counter()
        if ended - started > SLOW:
            if not self._rested_at:
                logger.warning(
                    "A listener of %s took %.0f ms; states that come while it rests are not told to it.",
                    type(self._source).__name__,
                    (ended - started) * 1000,
                )
            self._rested_at = ended + _REST * (ended - started)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
