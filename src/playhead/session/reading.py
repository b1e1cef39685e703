"""What may be asked of threads and runs, beside following them: the reading half of `Sessions`."""

from collections.abc import Sequence

import msgspec

from playhead.events import StepEnd
from playhead.session.opened import Opened
from playhead.storage.base import TurnRow
from playhead.storage.calls import CallLog
from playhead.storage.ledger import PendingCall, RunRow, Thread
from playhead.types import AgentStep, ChatMessage

_decode = msgspec.json.Decoder(StepEnd).decode


class Reading:
    """The methods of `Sessions` that change nothing."""

    async def _opened(self) -> Opened:
        raise NotImplementedError

    async def find(self, run_id: str, *, tenant: str | None = None) -> RunRow:
        """Return what is known of a run."""
        return await (await self._opened()).found(run_id, tenant)

    async def replaced(self, thread_id: str, *, tenant: str | None = None) -> Sequence[tuple[int, TurnRow]]:
        """What edits and retries took out of a thread, each row with the `seq` from which on rows left."""
        return await (await self._opened()).ledger.turns.replaced(thread_id, tenant_id=tenant)

    async def rows(self, thread_id: str, *, tenant: str | None = None) -> Sequence[TurnRow]:
        """As `history`, each message with its place."""
        return await (await self._opened()).rows(Thread(thread_id, tenant))

    async def steps(self, thread_id: str, *, tenant: str | None = None) -> Sequence[AgentStep]:
        """The steps of all runs of a thread, oldest first, as far as their events are kept."""
        log = (await self._opened()).ledger.events
        found: list[AgentStep] = []
        seq = 0
        while True:
            page = await log.after(thread_id, seq, tenant_id=tenant)
            found += [_decode(row.data).result for row in page.rows if row.type == StepEnd.type]
            if page.through <= seq:
                return found
            seq = page.through

    async def history(self, thread_id: str, *, tenant: str | None = None) -> Sequence[ChatMessage]:
        """Everything that was said in a thread, oldest first."""
        opened = await self._opened()
        return tuple(row.message for row in await opened.rows(Thread(thread_id, tenant)))

    async def open_runs(self, thread_id: str, *, tenant: str | None = None) -> Sequence[RunRow]:
        """The runs of a thread that have not ended: the one at work, and those that wait behind it."""
        opened = await self._opened()
        rows = await opened.ledger.runs(Thread(thread_id, tenant))
        return [row for row in rows if not await opened.settled(row)]

    async def at_work(self, *, tenant: str | None = None) -> int:
        """How many runs of a tenant this process carries out, or holds in line."""
        return (await self._opened()).at_work(tenant)

    async def last_run(self, thread_id: str, *, tenant: str | None = None) -> RunRow | None:
        """The newest run of a thread."""
        return await (await self._opened()).ledger.last_run(Thread(thread_id, tenant))

    async def pending(
        self, thread_id: str, *, tenant: str | None = None
    ) -> Sequence[tuple[str, PendingCall]]:
        """The calls of a thread that wait for an answer, each with the run to answer."""
        return await (await self._opened()).pending(Thread(thread_id, tenant))

    async def last_seq(self, thread_id: str, *, tenant: str | None = None) -> int:
        """The `seq` of the last event of a thread; 0 where there is none."""
        thread = Thread(thread_id, tenant)
        return (await (await self._opened()).ledger.events.last([thread]))[thread]

    async def calls(self) -> CallLog:
        """The log of model calls: a row of each attempt, with the turn it was made in."""
        return (await self._opened()).books.calls
