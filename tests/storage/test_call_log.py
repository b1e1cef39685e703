"""What every call log promises: in memory, on SQLite and on Postgres."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from playhead.errors import StoreError
from playhead.storage.calls import CallFilter, CallLog, CallRow, MemoryCallLog, ProviderCost
from playhead.storage.engine import Database, open_database
from playhead.storage.sql_calls import SQLCallLog
from playhead.types import CallRecord

pytestmark = pytest.mark.anyio

CALL = CallRecord("chat", "openai", "gpt", "success", 1_000)
EVERYTHING = CallRecord(
    "chat",
    "openai",
    "gpt",
    "rate_limited",
    1_000,
    http_status=429,
    latency_ms=12,
    tokens_in=3,
    tokens_out=4,
    cost_micro_usd=5,
    error_kind="rate_limit",
    error_message="too many",
    tenant_id="acme",
    thread_id="t",
    turn_id="turn",
)


def models(rows: Sequence[CallRow]) -> list[str]:
    return [row.call.model for row in rows]


async def fill(log: CallLog, *changes: dict[str, Any]) -> None:
    """Write a call for each change, its number as the model."""
    for number, change in enumerate(changes):
        await log.record(replace(CALL, model=str(number), **change))


async def test_a_call_comes_back_with_every_column(log: CallLog) -> None:
    """S20: one row for each call, with all that is known of it."""
    await log.record(EVERYTHING)
    await log.record(replace(CALL, tenant_id="acme"))
    newest, oldest = await log.calls(tenant_id="acme")
    assert oldest.call == EVERYTHING
    assert newest.call == replace(CALL, tenant_id="acme")
    assert newest.row_id > oldest.row_id


async def test_the_newest_come_first_whatever_the_clock_says(log: CallLog) -> None:
    """S20, Q203: the order is that of the rows; a page goes on below the last row of the one before."""
    await fill(log, *({"created_at": at} for at in (5, 1, 9, 1, 3)))
    assert models(await log.calls()) == ["4", "3", "2", "1", "0"]
    first = await log.calls(limit=2)
    assert models(first) == ["4", "3"]
    second = await log.calls(limit=2, before=first[-1].row_id)
    assert models(second) == ["2", "1"]
    assert models(await log.calls(limit=2, before=second[-1].row_id)) == ["0"]
    assert models(await log.calls(limit=0)) == []


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (CallFilter(), "6543210"),
        (CallFilter(task="title"), "1"),
        (CallFilter(provider="gemini"), "2"),
        (CallFilter(model="3"), "3"),
        (CallFilter(status="timeout"), "4"),
        (CallFilter(thread_id="t"), "65"),
        (CallFilter(thread_id="t", turn_id="u"), "6"),
        (CallFilter(turn_id="nothing"), ""),
        (CallFilter(since=2_000), "1"),
        (CallFilter(until=1_000), "0"),
        (CallFilter(since=900, until=2_000), "65432" + "0"),
        (CallFilter(task="'; --\0\ud800"), ""),
    ],
)
async def test_a_list_is_of_the_calls_that_were_asked_for(
    log: CallLog, which: CallFilter, expected: str
) -> None:
    """S20: by task, provider, model, status, thread, turn and time."""
    await fill(
        log,
        {"created_at": 900},
        {"task": "title", "created_at": 2_000},
        {"provider": "gemini"},
        {},
        {"status": "timeout"},
        {"thread_id": "t", "turn_id": "v"},
        {"thread_id": "t", "turn_id": "u"},
    )
    assert models(await log.calls(which)) == list(expected)
    assert sum((await log.counts(which)).values()) == len(expected)
    assert sum(cost.calls for cost in await log.costs(which)) == len(expected)


async def test_calls_are_counted_by_status(log: CallLog) -> None:
    """S20: how many calls ended how."""
    await fill(log, {}, {}, {"status": "timeout"}, {"status": "skipped_open"})
    assert await log.counts() == {"success": 2, "timeout": 1, "skipped_open": 1}
    assert await log.counts(CallFilter(status="error")) == {}


async def test_costs_are_added_up_by_provider_and_unknown_is_not_zero(log: CallLog) -> None:
    """S20: what a provider's calls cost, and of how many that is not known."""
    await fill(
        log,
        {"cost_micro_usd": 7},
        {"cost_micro_usd": 2**52, "provider": "gemini"},
        {"cost_micro_usd": 5, "status": "error"},
        {},
        {"status": "timeout"},
        {"provider": "Other"},
    )
    assert await log.costs() == [
        ProviderCost("Other", 1, 0, 1),
        ProviderCost("gemini", 1, 2**52, 0),
        ProviderCost("openai", 4, 12, 1),
    ]


async def test_tenants_see_their_own_calls_and_an_operator_all(log: CallLog) -> None:
    """S20: None and "" are tenants like any other."""
    for tenant in (None, "", "acme", "a\0", "a\ufffd"):
        await log.record(replace(CALL, model=repr(tenant), tenant_id=tenant, thread_id="t"))
    for tenant in (None, "", "acme", "a\0", "a\ufffd"):
        assert models(await log.calls(tenant_id=tenant)) == [repr(tenant)]
        assert await log.counts(CallFilter(thread_id="t"), tenant_id=tenant) == {"success": 1}
    assert list(await log.calls(tenant_id="nobody")) == []
    assert await log.counts(CallFilter(all_tenants=True)) == {"success": 5}
    assert len(await log.calls(CallFilter(thread_id="t", all_tenants=True), tenant_id="nobody")) == 5


async def test_calls_are_deleted_by_thread_tenant_and_age(log: CallLog) -> None:
    """Q206: what is told to forget is forgotten, and no more."""
    await fill(
        log,
        {"thread_id": "t"},
        {"thread_id": "t", "tenant_id": "acme"},
        {"thread_id": "u", "tenant_id": "acme"},
        {"thread_id": "u", "created_at": 500},
        {"thread_id": "u"},
    )
    everyone = CallFilter(all_tenants=True)
    assert await log.delete_thread("t") == 1
    assert await log.delete_thread("t") == 0
    assert models(await log.calls(everyone)) == ["4", "3", "2", "1"]
    assert await log.delete_tenant("acme") == 2
    assert await log.delete_before(1_000) == 1
    assert models(await log.calls(everyone)) == ["4"]


async def test_no_secret_and_no_long_text_is_kept(log: CallLog) -> None:
    """S20: an error's text is masked and cut at 500 characters; NUL and half surrogates go."""
    key = "sk-abcdefghijklmnop1234"
    await log.record(replace(CALL, error_message=f"bad key {key} \0\ud800 " + "x" * 900, task="a\0\ud800"))
    (row,) = await log.calls()
    assert row.call.error_message is not None
    assert key not in row.call.error_message
    assert len(row.call.error_message) <= 500
    assert row.call.error_message.startswith("bad key *** \ufffd\ufffd")
    assert row.call.task == "a\ufffd\ufffd"


@pytest.mark.parametrize("absurd", [-1, 10**30, 1.5, "many"])
async def test_a_number_that_is_none_is_left_out_and_the_call_kept(log: CallLog, absurd: Any) -> None:
    """S20: a provider may claim anything."""
    await log.record(replace(CALL, tokens_in=absurd, cost_micro_usd=absurd, tokens_out=7))
    (row,) = await log.calls()
    assert row.call == replace(CALL, tokens_out=7)


async def test_a_record_that_cannot_be_written_is_logged_and_breaks_nothing(
    log: CallLog, caplog: pytest.LogCaptureFixture
) -> None:
    """S20: a failing log write never breaks a run."""
    await log.record(replace(CALL, created_at=-5))
    await log.record(replace(CALL, model=object()))
    await log.record(None)  # type: ignore[arg-type]
    assert "was not written to the call log" in caplog.text
    await log.record(CALL)
    assert CALL in [row.call for row in await log.calls()]


async def test_a_database_that_is_gone_breaks_no_run(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """S20: writing is logged as failed; reading, which nobody's run depends on, raises."""
    log = SQLCallLog(database)
    await log.record(CALL)
    await database.aclose()
    await log.record(CALL)
    assert "was not written to the call log: The database" in caplog.text
    with pytest.raises(StoreError, match="was closed"):
        await log.calls()


async def test_calls_are_there_after_closing_and_opening(url: str) -> None:
    """S20: the log outlives the process."""
    async with await open_database(url) as database:
        await SQLCallLog(database).record(EVERYTHING)
    async with await open_database(url) as database:
        assert [row.call for row in await SQLCallLog(database).calls(tenant_id="acme")] == [EVERYTHING]


async def test_the_log_in_memory_does_not_grow_without_bound() -> None:
    """Q206: it keeps the newest."""
    log = MemoryCallLog(limit=3)
    await fill(log, *({} for _ in range(5)))
    assert models(await log.calls()) == ["4", "3", "2"]
