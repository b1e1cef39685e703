"""Compaction: the oldest turns of a thread, summarised for the model. The raw log stays as it is.

It is part of carrying out a run, before its first model call, so that no other run of the thread is
at work. A failure is logged, and the run goes on with the window that it would have had.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from time import monotonic

import msgspec
from msgspec.structs import replace

from playhead.encode import masked_traceback
from playhead.errors import ConfigError, StoreError
from playhead.ids import now_ms
from playhead.llm.attempts import AttemptPolicy, Attempts, OnCall
from playhead.llm.base import AgentLLM
from playhead.port import Port
from playhead.session.borders import borders
from playhead.session.summarising import entry_bytes, summary_request, summary_text, tokens_of
from playhead.storage.base import TurnRow
from playhead.storage.ledger import Ledger, RunRow
from playhead.storage.summaries import Summary
from playhead.types import CallRecord, LLMRequest

logger = logging.getLogger("playhead")

_PAGE = 100  # turns that are read at once


@dataclass(frozen=True)
class Compaction:
    """When and by whom a thread's oldest turns are summarised. Tokens are estimated.

    Args:
        llm: the model that writes summaries; a small one will do.
        above_tokens: turns that no summary stands for are shown as they are up to so many tokens.
            Beyond that the oldest are summarised, together with the summary before.
        keep_turns: so many last turns, at least 1, are left as they are, beside the one that is
            carried out and those with a call that waits for an answer.
        chunk_tokens: what the model is given at once. Of a thread that is longer the rest is
            summarised in its next runs: there is at most one call for each.
        summary_tokens: the output limit of the call, what a model thinks before it writes included.
        timeout: seconds for the call, with its attempts.
        rest: seconds without another call after one that failed.
        on_call: takes a record of each attempt. A model that makes its own attempts, such as a router,
            records them itself.

    Raises `ConfigError` for a value out of range.
    """

    llm: AgentLLM
    _: KW_ONLY
    above_tokens: int = 24_000
    keep_turns: int = 6
    chunk_tokens: int = 48_000
    summary_tokens: int = 2_000
    timeout: float = 60.0
    rest: float = 60.0
    on_call: OnCall | None = None

    def __post_init__(self) -> None:
        for name in ("above_tokens", "keep_turns", "chunk_tokens", "summary_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Compaction: {name} is {getattr(self, name)!r}; it must be at least 1.")
        for name in ("timeout", "rest"):
            if getattr(self, name) < 0:
                raise ConfigError(f"Compaction: {name} is {getattr(self, name)!r} s; it must be 0 or more.")


class Written(msgspec.Struct, frozen=True):
    """The record of a summarising call. Without a text it failed."""

    text: str | None = None


@dataclass(frozen=True)
class Earlier:
    """What a run is to show of what was said before it. `whole` says that nothing is missing between
    the summary and the rows."""

    rows: Sequence[TurnRow]
    summary: Summary | None
    whole: bool


class Compactor:
    """Reads the threads of one ledger for their runs, and summarises what has become too much.

    Args:
        options: when and by whom.
        ledger: where turns and summaries are.
        turns: how many last turns are shown while there is more than can be shown or summarised.
    """

    def __init__(self, options: Compaction, ledger: Ledger, turns: int) -> None:
        self._options = options
        self._ledger = ledger
        self._turns = max(turns, options.keep_turns)
        self._not_before = 0.0

    async def earlier(self, port: Port, run: RunRow, before: int | None) -> Earlier:
        """Return what was said before the row `before` of the run's thread; None for all.

        Raises `StoreError` if it cannot be read.
        """
        summary = await self._ledger.summaries.last(run.thread_id, tenant_id=run.tenant_id)
        rows, whole = await self._unsummarised(run, summary, before)
        end = self._end(rows, run.turn_id)
        if end and not port.stopping() and monotonic() >= self._not_before:
            made = await self._summarised(port, run, summary, rows[:end])
            if made is not None:
                summary, rows = made, rows[end:]
        if whole and (tokens_of(rows) <= self._options.above_tokens or len(_starts(rows)) <= self._turns):
            return Earlier(rows, summary, True)
        last = await self._ledger.turns.window(
            run.thread_id, turns=self._turns, before_seq=before, tenant_id=run.tenant_id
        )
        through = _through(summary)
        shown = [row for row in last if row.seq > through]
        return Earlier(shown, summary, whole and len(shown) == len(rows))

    async def _unsummarised(
        self, run: RunRow, summary: Summary | None, before: int | None
    ) -> tuple[list[TurnRow], bool]:
        """The turns that no summary stands for, and whether these are all of them: of a thread that
        grew far beyond it is the oldest that are read."""
        options, past = self._options, _through(summary)
        most = options.above_tokens + options.chunk_tokens
        rows: list[TurnRow] = []
        while True:
            page = await self._ledger.summaries.rows_after(
                run.thread_id, past, turns=_PAGE, tenant_id=run.tenant_id
            )
            rows += page if before is None else [row for row in page if row.seq < before]
            if not page or (before is not None and max(row.seq for row in page) >= before - 1):
                return rows, True
            starts = _starts(rows)
            if len(starts) > options.keep_turns + 1 and tokens_of(rows) > most:
                return rows, False
            past = page[_starts(page)[-1]].seq

    def _end(self, rows: Sequence[TurnRow], turn_id: str) -> int:
        """How many rows are to be summarised now: whole turns of them, or 0."""
        options = self._options
        starts = _starts(rows)
        if starts and rows[starts[-1]].turn_id == turn_id:
            starts.pop()  # the turn that goes on is none of them
            rows = [row for row in rows if row.turn_id != turn_id]
        if len(starts) <= options.keep_turns or tokens_of(rows) <= options.above_tokens:
            return 0
        sizes = [0]
        for row in rows:
            sizes.append(sizes[-1] + entry_bytes(row))
        ends = [end for end in borders(rows) if 0 < end <= starts[-options.keep_turns]]
        fitting = [end for end in ends if sizes[end] <= 4 * options.chunk_tokens]
        # A first turn that does not fit is cut for the summary, or the thread would never get past it.
        return max(fitting) if fitting else min(ends, default=0)

    async def _summarised(
        self, port: Port, run: RunRow, former: Summary | None, rows: Sequence[TurnRow]
    ) -> Summary | None:
        options = self._options
        room = 4 * options.chunk_tokens + (len(former.text.encode()) if former else 0)
        request = summary_request(former, rows, room, options.summary_tokens, options.timeout)

        async def ask() -> Written:
            try:
                return Written(await self._asked(request, run))
            except asyncio.CancelledError:
                if not port.stopping():
                    raise
                return Written()
            except Exception as error:
                self._failed(run, error)
                return Written()

        written = await port.step("0/summary", Written, ask)
        if written.text is None:
            return None
        made = Summary(max(row.seq for row in rows), written.text, now_ms())
        try:
            kept = await self._ledger.summaries.put(
                run.thread_id, made, after=_through(former), rows=len(rows), tenant_id=run.tenant_id
            )
        except StoreError as error:
            self._failed(run, error)
            return None
        return made if kept else None

    async def _asked(self, request: LLMRequest, run: RunRow) -> str:
        options, llm, on_call = self._options, self._options.llm, self._options.on_call
        if not getattr(llm, "owns_attempts", False):

            def recorded(record: CallRecord) -> None:
                assert on_call is not None
                ids = {"tenant_id": run.tenant_id, "thread_id": run.thread_id, "turn_id": run.turn_id}
                on_call(replace(record, **ids))

            policy = AttemptPolicy(budget=options.timeout)
            llm = Attempts([llm], policy, on_call=recorded if on_call else None, task="summary")
        async with asyncio.timeout(options.timeout):
            return summary_text(await llm.generate(request), 8 * options.summary_tokens)

    def _failed(self, run: RunRow, error: Exception) -> None:
        self._not_before = monotonic() + self._options.rest
        logger.warning(
            "The thread of run %s was not summarised; it goes on with its last turns.\n%s",
            run.run_id,
            masked_traceback(error),
        )


def _starts(rows: Sequence[TurnRow]) -> list[int]:
    return [n for n, row in enumerate(rows) if not n or row.turn_id != rows[n - 1].turn_id]


def _through(summary: Summary | None) -> int:
    return 0 if summary is None else summary.through_seq
