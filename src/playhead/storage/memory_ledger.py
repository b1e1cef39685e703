"""A `Ledger` in memory: it lives as long as the process."""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from playhead.ids import now_ms
from playhead.storage.base import TurnRow
from playhead.storage.ledger import (
    AT_WORK,
    DEFAULT_PAGE,
    OPEN,
    SPOKEN_SINCE,
    Enlist,
    Entry,
    EventPage,
    EventRow,
    PendingCall,
    Recorded,
    RunRow,
    RunState,
    Thread,
    conflict,
    deleted,
    misnamed,
    over,
    taken,
    thread_of,
)
from playhead.storage.memory import MemoryTurnStore
from playhead.storage.results import MemoryResultStore
from playhead.storage.summaries import MemorySummaryStore
from playhead.types import ChatMessage


class MemoryEventLog:
    """Events in memory, by thread and by run."""

    def __init__(self) -> None:
        self.of_thread: dict[Thread, list[tuple[EventRow, str]]] = {}
        self._last: dict[Thread, int] = {}

    async def after(
        self,
        thread_id: str,
        seq: int,
        *,
        run_id: str | None = None,
        limit: int = DEFAULT_PAGE,
        tenant_id: str | None = None,
    ) -> EventPage:
        """See `EventLog.after`."""
        thread = Thread(thread_id, tenant_id)
        held = self.of_thread.get(thread, [])
        found = [
            row
            for row, of in held[bisect_right(held, seq, key=lambda item: item[0].seq) :]
            if run_id is None or of == run_id
        ][:limit]
        return EventPage(found, found[-1].seq if len(found) == limit else max(self._last.get(thread, 0), seq))

    async def last(self, threads: Sequence[Thread]) -> Mapping[Thread, int]:
        """See `EventLog.last`."""
        return {thread: self._last.get(thread, 0) for thread in threads}

    def put(self, thread: Thread, run_id: str, events: Sequence[tuple[str, bytes]]) -> Sequence[int]:
        """Add events at the end of a thread and return their places."""
        first = self._last.get(thread, 0) + 1
        held = self.of_thread.setdefault(thread, [])
        held.extend((EventRow(n, kind, data), run_id) for n, (kind, data) in enumerate(events, first))
        self._last[thread] = first + len(events) - 1
        return range(first, first + len(events))

    def forget(self, thread: Thread, run_ids: set[str] | None = None) -> None:
        """Forget what some runs of a thread showed; without them, all of it. Its `seq` goes on."""
        kept = [] if run_ids is None else [e for e in self.of_thread.get(thread, ()) if e[1] not in run_ids]
        if kept:
            self.of_thread[thread] = kept
        else:
            self.of_thread.pop(thread, None)


class MemoryLedger:
    """Everything that sessions keep, in memory.

    Args:
        turns: where the messages are; new when not given.
        keep_runs: how many runs that have ended are remembered, with their events.
        keep_for: for how many seconds they are.
    """

    def __init__(
        self, turns: MemoryTurnStore | None = None, *, keep_runs: int = 1_000, keep_for: float = 86_400.0
    ) -> None:
        self.turns = turns or MemoryTurnStore()
        self.events = MemoryEventLog()
        self.summaries = MemorySummaryStore(self.turns)
        self.results = MemoryResultStore(self.turns)
        self._keep_runs = keep_runs
        self._keep_for = keep_for
        self._runs: dict[tuple[str | None, str], RunRow] = {}
        self._by_message: dict[tuple[Thread, str], str] = {}
        self._keys: dict[str, dict[str, int]] = {}
        self._pending: dict[tuple[str | None, str], dict[str, PendingCall]] = {}
        self._ended: deque[tuple[int, RunRow]] = deque()

    async def accept(self, run: RunRow, *, replaces: int | None = None) -> RunRow:
        """See `Ledger.accept`."""
        self._forget_old()
        thread = thread_of(run)
        if run.message is not None:
            known = self._by_message.get((thread, run.message.id))
            if known is not None:
                return self._runs[run.tenant_id, known]
            held = self.turns.held(run.thread_id, run.message.id, tenant_id=run.tenant_id)
            _check_role(run.message, held)
        if replaces is not None and any(
            r.state in OPEN and thread_of(r) == thread for r in self._runs.values()
        ):
            raise conflict(AT_WORK)
        if run.message is not None:
            self._by_message[thread, run.message.id] = run.run_id
        if run.answers:
            self._take_answers(run)
        if replaces is not None:
            self.turns.replace_from(run.thread_id, replaces, tenant_id=run.tenant_id)
            self.summaries.replace_from(run.thread_id, replaces, tenant_id=run.tenant_id)
        self._runs[run.tenant_id, run.run_id] = run
        return run

    async def begin(
        self, opening: Entry, *, replaces: int | None = None, enlist: Enlist | None = None
    ) -> tuple[RunRow, Recorded | None]:
        """See `Ledger.begin`."""
        accepted = await self.accept(opening.run, replaces=replaces)
        if accepted.run_id != opening.run.run_id:
            return accepted, None
        return accepted, await self.record(opening)

    async def record(self, entry: Entry) -> Recorded:
        """See `Ledger.record`."""
        run = self._runs.get((entry.run.tenant_id, entry.run.run_id))
        if run is None:
            raise deleted(entry.run)
        keys = self._keys.setdefault(run.run_id, {})
        # The state was set with the events, or neither was written.
        state_is_new = not (entry.again and entry.events and entry.events[-1].key in keys)
        if (
            entry.state is not None
            and state_is_new
            and run.state not in (OPEN[:1] if entry.unbegun else OPEN)
        ):
            raise conflict(over(run))
        rows: list[TurnRow] = []
        for message, step in entry.messages:
            rows.append(
                await self.turns.append(
                    run.thread_id, message, turn_id=run.turn_id, step_index=step, tenant_id=run.tenant_id
                )
            )
            _check_role(message, rows[-1])
            if rows[0].turn_id != run.turn_id:
                return Recorded(rows, [None] * len(entry.events))
        new = [event for event in entry.events if event.key not in keys]
        places = self.events.put(thread_of(run), run.run_id, [(event.type, event.data) for event in new])
        keys.update({event.key: seq for event, seq in zip(new, places, strict=True)})
        if entry.state is not None and state_is_new:
            self._set_state(run, entry, places)
        for call in entry.pending:
            self._pending.setdefault((run.tenant_id, run.turn_id), {}).setdefault(call.call.id, call)
        fresh = {event.key for event in new}
        return Recorded(rows, [keys[e.key] if entry.again or e.key in fresh else None for e in entry.events])

    async def absorb(self, runs: Sequence[RunRow], by: RunRow, step: int) -> Sequence[str]:
        """See `Ledger.absorb`."""
        if (by.tenant_id, by.run_id) not in self._runs:
            raise deleted(by)
        taken = []
        for given in runs:
            run = self._runs.get((by.tenant_id, given.run_id))
            if run is None or run.state != "queued" or run.message is None:
                continue
            if self.turns.held(run.thread_id, run.message.id, tenant_id=run.tenant_id) is not None:
                continue
            self._end(replace(run, state="absorbed", absorbed_by=by.run_id))
            taken.append(run.run_id)
            await self.turns.append(
                by.thread_id, run.message, turn_id=by.turn_id, step_index=step, tenant_id=by.tenant_id
            )
        return taken

    async def run(self, run_id: str, *, tenant_id: str | None = None) -> RunRow | None:
        """See `Ledger.run`."""
        return self._runs.get((tenant_id, run_id))

    async def runs(
        self, thread: Thread | None = None, *, states: Sequence[RunState] = OPEN, limit: int = 1_000
    ) -> Sequence[RunRow]:
        """See `Ledger.runs`."""
        found = (
            run
            for run in self._runs.values()
            if run.state in states and (thread is None or thread_of(run) == thread)
        )
        return [run for run, _ in zip(found, range(limit), strict=False)]

    async def last_run(self, thread: Thread) -> RunRow | None:
        """See `Ledger.last_run`."""
        runs = reversed(self._runs.values())
        return next((run for run in runs if thread_of(run) == thread and self._speaks(run)), None)

    async def pending(self, turn_id: str, *, tenant_id: str | None = None) -> Sequence[PendingCall]:
        """See `Ledger.pending`."""
        return list(self._pending.get((tenant_id, turn_id), {}).values())

    async def copy(self, source: Thread, target: Thread, through: int) -> int:
        """See `Ledger.copy`."""
        if await self.turns.window(target.thread_id, turns=1, tenant_id=target.tenant_id):
            raise conflict(taken(target))
        rows = await self.turns.window(source.thread_id, turns=None, tenant_id=source.tenant_id)
        kept = [row for row in rows if row.seq <= through]
        for row in kept:
            await self.turns.append(
                target.thread_id,
                row.message,
                turn_id=row.turn_id,
                step_index=row.step_index,
                tenant_id=target.tenant_id,
            )
        ends = [(one.tenant_id, one.thread_id) for one in (source, target)]
        self.summaries.copy(ends[0], ends[1], [row.seq for row in kept])
        self.results.copy(ends[0], ends[1], {row.turn_id for row in kept})
        return len(kept)

    async def threads(self, prefix: str, *, tenant_id: str | None = None) -> Sequence[Thread]:
        """See `Ledger.threads`."""
        known = {thread_of(run) for run in self._runs.values()}
        return [one for one in known if one.tenant_id == tenant_id and one.thread_id.startswith(prefix)]

    async def delete_thread(self, thread: Thread) -> int:
        """See `Ledger.delete_thread`."""
        self._drop([run for run in self._runs.values() if thread_of(run) == thread])
        self.events.forget(thread)
        for beside in (self.summaries, self.results):
            beside.forget(thread.thread_id, tenant_id=thread.tenant_id)
        return await self.turns.delete_thread(thread.thread_id, tenant_id=thread.tenant_id)

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """See `Ledger.delete_tenant`."""
        gone = [run for run in self._runs.values() if run.tenant_id == tenant_id]
        self._drop(gone)
        for thread in {thread_of(run) for run in gone}:
            self.events.forget(thread)
        for beside in (self.summaries, self.results):
            beside.forget_tenant(tenant_id)
        return await self.turns.delete_tenant(tenant_id)

    async def delete_before(self, created_at: int) -> int:
        """See `Ledger.delete_before`."""
        self._drop([r for r in self._runs.values() if r.created_at < created_at and r.state not in OPEN])
        count = await self.turns.delete_before(created_at)
        await self.summaries.forget_broken()
        await self.results.forget_before(created_at)
        return count

    def _take_answers(self, run: RunRow) -> None:
        waiting = self._pending.get((run.tenant_id, run.turn_id), {})
        for answer in run.answers:
            call = waiting.get(answer.call_id)
            if call is None or call.answered_by is not None:
                raise conflict(
                    f"The call {answer.call_id!r} does not wait for an answer: it has one already."
                )
        thread = thread_of(run)
        others = (r for r in reversed(self._runs.values()) if thread_of(r) == thread and self._speaks(r))
        if any(other.turn_id != run.turn_id for other in islice(others, 1)):
            raise conflict(SPOKEN_SINCE)
        for answer in run.answers:
            waiting[answer.call_id] = replace(waiting[answer.call_id], answered_by=run.run_id)

    def _speaks(self, run: RunRow) -> bool:
        """Is the run's message said by it? Not if another took it in, or it was taken back."""
        taken_back = run.finish_reason == "cancelled" and not run.first_seq
        if run.state == "absorbed" or run.message is None:
            return run.state != "absorbed"
        held = self.turns.held(run.thread_id, run.message.id, tenant_id=run.tenant_id)
        return not taken_back or held is not None

    def _set_state(self, run: RunRow, entry: Entry, places: Sequence[int]) -> None:
        if entry.state == "running":
            run = replace(run, state="running", first_seq=places[0] if places else 0)
            self._runs[run.tenant_id, run.run_id] = run
            return
        assert entry.state is not None
        self._end(replace(run, state=entry.state, finish_reason=entry.finish_reason))

    def _end(self, run: RunRow) -> None:
        self._runs[run.tenant_id, run.run_id] = run
        self._ended.append((now_ms(), run))

    def _forget_old(self) -> None:
        oldest = now_ms() - self._keep_for * 1_000
        old = []
        while self._ended and (len(self._ended) > self._keep_runs or self._ended[0][0] <= oldest):
            old.append(self._ended.popleft()[1])
        self._drop(old)

    def _drop(self, runs: Sequence[RunRow]) -> None:
        by_thread: dict[Thread, set[str]] = {}
        for run in runs:
            if self._runs.pop((run.tenant_id, run.run_id), None) is None:
                continue
            self._keys.pop(run.run_id, None)
            self._pending.pop((run.tenant_id, run.turn_id), None)
            if run.message is not None:
                self._by_message.pop((thread_of(run), run.message.id), None)
            by_thread.setdefault(thread_of(run), set()).add(run.run_id)
        for thread, run_ids in by_thread.items():
            self.events.forget(thread, run_ids)


def _check_role(message: ChatMessage, held: TurnRow | None) -> None:
    error = None if held is None else misnamed(message, held.role)
    if error is not None:
        raise error
