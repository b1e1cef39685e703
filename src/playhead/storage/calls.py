"""What each model call took and cost. One protocol, and its form in memory."""

import logging
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from playhead.encode import error_text, mask, scrub
from playhead.errors import StoreError
from playhead.types import CallRecord, CallStatus

logger = logging.getLogger("playhead.storage")

DEFAULT_CALLS = 100
_MAX_MESSAGE = 500
_TEXTS = ("task", "provider", "model", "status", "error_kind", "tenant_id", "thread_id", "turn_id")
_NUMBERS = ("created_at", "http_status", "latency_ms", "tokens_in", "tokens_out", "cost_micro_usd")
_HUGE = 2**53  # past it no count is one; it also keeps sums within what a database adds up


class CallFilter(msgspec.Struct, frozen=True):
    """Which calls are meant: those that have all the values given here. None is any.

    `since` and `until` are milliseconds since 1970; `until` itself is not included. With
    `all_tenants`, the tenant that a query names does not matter: for whoever runs the installation.
    """

    task: str | None = None
    provider: str | None = None
    model: str | None = None
    status: CallStatus | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    since: int | None = None
    until: int | None = None
    all_tenants: bool = False


ANY_CALL = CallFilter()


class CallRow(msgspec.Struct, frozen=True, rename="camel"):
    """One call as it is kept. `row_id` grows with each row: it is the order, no clock is."""

    row_id: int
    call: CallRecord


class ProviderCost(msgspec.Struct, frozen=True, rename="camel"):
    """What the calls of one provider cost, in millionths of a dollar.

    The cost of `unpriced` of its successful calls is unknown, and not in the sum.
    """

    provider: str
    calls: int
    cost_micro_usd: int
    unpriced: int


class CallLog(Protocol):
    """One row per model call, and per attempt or skip of a router. Tenants never see each other.

    All but `record` raise `StoreError` when the log cannot be read or written.
    """

    async def record(self, record: CallRecord) -> None:
        """Write one call. A failure is logged and never raised: a log breaks no run.

        `error_message` is masked and cut at 500 characters; a number that is none is left out.
        """
        ...

    async def calls(
        self,
        which: CallFilter = ANY_CALL,
        *,
        tenant_id: str | None = None,
        limit: int = DEFAULT_CALLS,
        before: int | None = None,
    ) -> Sequence[CallRow]:
        """Return the newest calls, newest first; with `before`, only those of a lower `row_id`."""
        ...

    async def counts(
        self, which: CallFilter = ANY_CALL, *, tenant_id: str | None = None
    ) -> Mapping[CallStatus, int]:
        """Return how many calls ended with each status; a status that none has is absent."""
        ...

    async def costs(
        self, which: CallFilter = ANY_CALL, *, tenant_id: str | None = None
    ) -> Sequence[ProviderCost]:
        """Return what each provider's calls cost, by the provider's name."""
        ...

    async def delete_thread(self, thread_id: str, *, tenant_id: str | None = None) -> int:
        """Forget the calls of a thread, and return how many there were."""
        ...

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """Forget the calls of a tenant, and return how many there were."""
        ...

    async def delete_before(self, created_at: int) -> int:
        """Forget the calls, of any tenant, older than a time in milliseconds since 1970."""
        ...


def clean_record(record: CallRecord) -> CallRecord:
    """Return a record as a log keeps it: without secrets, NUL, half surrogate pairs, absurd numbers."""
    texts = {name: value for name in _TEXTS if isinstance(value := getattr(record, name), str)}
    cleaned = {name: scrub(value) for name, value in texts.items() if scrub(value) != value}
    wrong = {name: None for name in _NUMBERS if not _is_count(getattr(record, name))}
    if "created_at" in wrong:
        raise StoreError(f"A call's created_at is in milliseconds since 1970; it was {record.created_at!r}.")
    message = record.error_message
    if message is not None:
        cleaned["error_message"] = mask(message, _MAX_MESSAGE)
    return replace(record, **cleaned, **wrong)


def log_failure(error: Exception) -> None:
    """Say that a call was not written."""
    logger.warning("A model call was not written to the call log: %s", error_text(error))


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value < _HUGE)


class MemoryCallLog:
    """The last calls in memory, at most `limit` of them."""

    def __init__(self, limit: int = 10_000) -> None:
        self._rows: deque[tuple[tuple[str | None, str | None], CallRow]] = deque(maxlen=limit)
        self._last = 0

    async def record(self, record: CallRecord) -> None:
        """See `CallLog.record`."""
        try:
            row = CallRow(self._last + 1, clean_record(record))
        except Exception as error:
            log_failure(error)
            return
        self._last = row.row_id
        self._rows.append(((record.tenant_id, record.thread_id), row))

    async def calls(
        self,
        which: CallFilter = ANY_CALL,
        *,
        tenant_id: str | None = None,
        limit: int = DEFAULT_CALLS,
        before: int | None = None,
    ) -> Sequence[CallRow]:
        """See `CallLog.calls`."""
        found = (row for row in self._matching(which, tenant_id) if before is None or row.row_id < before)
        return [row for row, _ in zip(found, range(limit), strict=False)]

    async def counts(
        self, which: CallFilter = ANY_CALL, *, tenant_id: str | None = None
    ) -> Mapping[CallStatus, int]:
        """See `CallLog.counts`."""
        return dict(Counter(row.call.status for row in self._matching(which, tenant_id)))

    async def costs(
        self, which: CallFilter = ANY_CALL, *, tenant_id: str | None = None
    ) -> Sequence[ProviderCost]:
        """See `CallLog.costs`."""
        by_provider: dict[str, list[CallRecord]] = {}
        for row in self._matching(which, tenant_id):
            by_provider.setdefault(row.call.provider, []).append(row.call)
        return [
            ProviderCost(
                provider,
                len(calls),
                sum(call.cost_micro_usd or 0 for call in calls),
                sum(call.status == "success" and call.cost_micro_usd is None for call in calls),
            )
            for provider, calls in sorted(by_provider.items())
        ]

    async def delete_thread(self, thread_id: str, *, tenant_id: str | None = None) -> int:
        """See `CallLog.delete_thread`."""
        return self._keep([item for item in self._rows if item[0] != (tenant_id, thread_id)])

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """See `CallLog.delete_tenant`."""
        return self._keep([item for item in self._rows if item[0][0] != tenant_id])

    async def delete_before(self, created_at: int) -> int:
        """See `CallLog.delete_before`."""
        return self._keep([item for item in self._rows if item[1].call.created_at >= created_at])

    def _keep(self, kept: Sequence[tuple[tuple[str | None, str | None], CallRow]]) -> int:
        gone = len(self._rows) - len(kept)
        self._rows = deque(kept, self._rows.maxlen)
        return gone

    def _matching(self, which: CallFilter, tenant_id: str | None) -> Iterator[CallRow]:
        names = ("task", "provider", "model", "status", "thread_id", "turn_id")
        wanted = {name: scrub(value) for name in names if (value := getattr(which, name)) is not None}
        for (tenant, _), row in reversed(self._rows):
            call = row.call
            if (
                (which.all_tenants or tenant == tenant_id)
                and (which.since is None or call.created_at >= which.since)
                and (which.until is None or call.created_at < which.until)
                and all(getattr(call, name) == value for name, value in wanted.items())
            ):
                yield row
