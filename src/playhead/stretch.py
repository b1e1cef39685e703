"""The first stretch of a coroutine, up to where it has to wait."""

from collections.abc import Awaitable, Generator
from typing import Any


class FirstStretch:
    """Runs an awaitable up to its first wait; awaiting this goes on from there, in the same task.

    A time limit costs more than most tools: it is set up only for what has to wait. Errors of the
    first stretch are raised at once. When `done`, `value` is what was returned.
    """

    __slots__ = ("_steps", "_waiting", "done", "value")

    def __init__(self, work: Awaitable[Any]) -> None:
        self.done = False
        self.value: Any = None
        self._steps: Generator[Any, Any, Any] = work.__await__()
        self._waiting: Any = None
        try:
            self._waiting = self._steps.send(None)
        except StopIteration as end:
            self.done = True
            self.value = end.value

    def _finish(self, value: Any) -> None:
        self.done = True
        self.value = value

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._steps
        while not self.done:
            try:
                sent = yield self._waiting
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # a cancellation, handed on to where it waits
                self._step(steps.throw, error)
            else:
                self._step(steps.send, sent)

    def _step(self, go_on: Any, value: Any) -> None:
        try:
            self._waiting = go_on(value)
        except StopIteration as end:
            self._finish(end.value)
