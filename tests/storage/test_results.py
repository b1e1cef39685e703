"""Results kept aside: whole, in pages, each in its thread."""

from collections.abc import AsyncIterator, Callable

import pytest

from playhead.errors import StoreError
from playhead.ids import new_id
from playhead.storage.engine import open_database
from playhead.storage.ledger import Entry, Ledger, RunRow, Thread
from playhead.storage.memory_ledger import MemoryLedger
from playhead.storage.results import ResultPage
from playhead.storage.sql_ledger import SQLLedger
from playhead.types import UserMessage

pytestmark = pytest.mark.anyio

TEXT = "0123456789é\N{PILE OF POO}" * 100


@pytest.fixture
async def ledger(store_url: str | None) -> AsyncIterator[Ledger]:
    if store_url is None:
        yield MemoryLedger()
        return
    async with await open_database(store_url) as opened:
        yield SQLLedger(opened)


async def say(ledger: Ledger, thread: Thread, turn_id: str) -> None:
    """A turn with a result, whose id is the turn's."""
    message = UserMessage("go", id=f"m/{turn_id}")
    run = RunRow(new_id(), turn_id, thread.thread_id, thread.tenant_id, message=message)
    await ledger.accept(run)
    await ledger.record(Entry(run, messages=[(message, 0)]))
    await ledger.record(Entry(run, state="ended", finish_reason="final"))
    await ledger.results.put(thread.thread_id, turn_id, TEXT, turn_id=turn_id, tenant_id=thread.tenant_id)


async def kept(ledger: Ledger, thread: Thread, id: str) -> bool:
    page = await ledger.results.page(thread.thread_id, id, 0, 2_000, tenant_id=thread.tenant_id)
    assert page is None or page == ResultPage(TEXT, len(TEXT))
    return page is not None


async def test_a_result_is_read_in_pages_by_characters(ledger: Ledger) -> None:
    """Rule 10: what is read is what was kept, wherever it is cut."""
    await say(ledger, Thread("t", "acme"), "r")
    pages = [await ledger.results.page("t", "r", n, 7, tenant_id="acme") for n in range(0, 1_300, 7)]
    assert "".join(page.text for page in pages if page) == TEXT
    assert {page.total for page in pages if page} == {len(TEXT)}
    assert pages[-1] == ResultPage("", 1_200)
    assert await ledger.results.page("t", "r", 10**30, 10**30, tenant_id="acme") == ResultPage("", 1_200)


async def test_a_result_is_kept_once(ledger: Ledger) -> None:
    """Q206: keeping it again, as a replay does, changes nothing."""
    await say(ledger, Thread("t"), "r")
    await ledger.results.put("t", "r", "other", turn_id="r")
    assert await kept(ledger, Thread("t"), "r")


async def test_a_result_is_of_its_thread_and_tenant(ledger: Ledger) -> None:
    """S19: nobody else has it, whoever knows its id."""
    await say(ledger, Thread("t", "acme"), "r")
    others = [Thread("t"), Thread("t", ""), Thread("t", "other"), Thread("u", "acme")]
    assert [await kept(ledger, thread, "r") for thread in others] == [False] * 4
    assert not await kept(ledger, Thread("t", "acme"), "other")


async def test_results_go_with_their_thread_and_their_tenant(ledger: Ledger) -> None:
    """Q206: nothing of a thread is left when it is deleted."""
    threads = [Thread("t", "acme"), Thread("u", "acme"), Thread("v", "acme"), Thread("t")]
    for thread in threads:
        await say(ledger, thread, "r")
    await ledger.delete_thread(threads[0])
    assert [await kept(ledger, thread, "r") for thread in threads] == [False, True, True, True]
    assert await ledger.delete_tenant("nobody") == 0
    await ledger.delete_tenant("acme")
    assert [await kept(ledger, thread, "r") for thread in threads] == [False, False, False, True]


async def test_a_copy_has_the_results_of_what_was_copied(ledger: Ledger) -> None:
    """Q206: the ids that stand in the messages lead to the same text, also when the first is deleted."""
    source, target = Thread("t", "acme"), Thread("copy", "acme")
    for turn in ("a", "b", "c"):
        await say(ledger, source, turn)
    await ledger.copy(source, target, 2)
    await ledger.delete_thread(source)
    assert [await kept(ledger, target, turn) for turn in ("a", "b", "c")] == [True, True, False]


async def test_results_are_forgotten_with_their_turn(
    ledger: Ledger, clock: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q206: what should be forgotten for its age is not left beside; a young turn keeps its own."""
    thread = Thread("t", "acme")
    for turn, time in (("a", 100), ("b", 200)):
        clock(time)
        for module in ("results", "sql_results"):
            monkeypatch.setattr(f"playhead.storage.{module}.now_ms", lambda time=time: time)
        await say(ledger, thread, turn)
    assert await ledger.delete_before(150) == 1
    assert [await kept(ledger, thread, turn) for turn in ("a", "b")] == [False, True]


async def test_a_result_of_a_thread_that_is_gone_is_not_kept(ledger: Ledger) -> None:
    """Q206: a tool that ends after its thread was deleted leaves nothing behind."""
    with pytest.raises(StoreError):
        await ledger.results.put("gone", "r", "x", turn_id="r")
