"""Long tool results of a thread's runs: kept in the ledger, read by the model of any later run."""

import hashlib
import logging
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial

from msgspec.structs import replace

from playhead.encode import encode_result, masked_traceback
from playhead.errors import StoreError, ToolError
from playhead.loop import AgentLoop
from playhead.storage.ledger import Ledger, RunRow
from playhead.tools.aside import KEPT_LIMIT, AsideTools
from playhead.tools.registry import ToolRegistry
from playhead.types import CallAnswer

logger = logging.getLogger("playhead")

# The tools of a loop are shared by all runs; each run is a task of its own, and what it starts is in it.
Turn = tuple[str, str]
"""The ids of a thread and of a turn in it."""

CURRENT: ContextVar[RunRow] = ContextVar("run")


class Aside:
    """A loop whose tools keep long results in the thread that they are called in.

    Args:
        loop: as it was given; without `above` it stays as it is.
        ledger: where results are kept.
        above: how many characters are not yet long; None to keep nothing aside.

    Raises `ConfigError` as `AsideTools` does.
    """

    def __init__(self, loop: AgentLoop, ledger: Ledger, above: int | None) -> None:
        self._ledger = ledger
        self._above = above
        self._tools = self.around(loop.tools)
        self.loop = loop if self._tools is loop.tools else loop.with_tools(self._tools)

    def around(self, tools: ToolRegistry, of: Turn | None = None) -> ToolRegistry:
        """Return tools whose long results are kept beside a turn, or without one beside the run's own."""
        if self._above is None:
            return tools
        return AsideTools(tools, self._above, partial(self._keep, of), partial(self._read, of))

    async def begin(self, run: RunRow) -> Sequence[CallAnswer]:
        """Be in a run from now on, in the task that carries it out; return its answers to calls, those
        of a client's tools shortened too."""
        CURRENT.set(run)
        tools = self._tools
        if not isinstance(tools, AsideTools):
            return run.answers
        return [await self._shortened(tools, answer) for answer in run.answers]

    async def _shortened(self, tools: AsideTools, answer: CallAnswer) -> CallAnswer:
        if answer.result is None:
            return answer
        whole = encode_result(answer.result, KEPT_LIMIT).text
        text = await tools.shortened(answer.call_id, whole)
        return answer if text is whole else replace(answer, result=text)

    async def _keep(self, of: Turn | None, call_id: str, text: str) -> str | None:
        run = CURRENT.get()
        thread_id, turn_id = of or (run.thread_id, run.turn_id)
        # The same in a replay, and of another text never the same.
        whole = "\0".join((turn_id, call_id, text)).encode("utf-8", "replace")
        id = hashlib.blake2b(whole, digest_size=6).hexdigest()
        try:
            await self._ledger.results.put(thread_id, id, text, turn_id=turn_id, tenant_id=run.tenant_id)
        except StoreError as error:
            logger.warning("A long result was not kept:\n%s", masked_traceback(error))
            return None
        return id

    async def _read(self, of: Turn | None, id: str, offset: int, limit: int) -> tuple[str, int] | None:
        run = CURRENT.get()
        thread_id = of[0] if of else run.thread_id
        try:
            page = await self._ledger.results.page(thread_id, id, offset, limit, tenant_id=run.tenant_id)
        except StoreError as error:
            logger.warning("A result that was kept could not be read:\n%s", masked_traceback(error))
            raise ToolError("The result could not be read just now. Try again later.") from None
        return None if page is None else (page.text, page.total)
