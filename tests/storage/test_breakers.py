"""What circuit breakers in a database promise: one state for all processes, little cost, no harm."""

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import initialize, run_state_machine_as_test
from sqlalchemy import Connection, event, insert, select

from playhead.llm.attempts import AttemptPolicy, Attempts, Target
from playhead.llm.breaker import (
    CLOSED,
    BreakerState,
    BreakerStore,
    Verdict,
    ask,
    failed,
    released,
    succeeded,
)
from playhead.storage.breakers import SQLBreakerStore
from playhead.storage.engine import Database, open_database
from playhead.storage.tables import breaker_states, key_of
from playhead.testing import ScriptedLLM
from playhead.types import LLMRequest, UserMessage
from tests.llm.test_breaker import Breaker

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent
HALF_OPEN = BreakerState(open_until=1.0, opened_for=30.0, kind="rate_limit")


def over(database: Database, **more: Any) -> SQLBreakerStore[BreakerState]:
    return SQLBreakerStore(database, BreakerState, CLOSED, **{"patience": 30, **more})


async def put(store: BreakerStore, state: BreakerState, provider: str = "p") -> None:
    await store.update(provider, lambda _: (state, None))


async def get(store: BreakerStore, provider: str = "p") -> BreakerState:
    return await store.update(provider, lambda state: (state, state))


async def asked(store: BreakerStore, now: float = 1_000.0) -> Verdict:
    return await store.update("p", lambda state: ask(state, now))


async def time_out(store: BreakerStore, provider: str, now: float = 1_000.0) -> None:
    await store.update(provider, lambda state: (failed(state, now, "timeout"), None))


class Statements:
    """How many statements the database ran since this was last asked."""

    def __init__(self, database: Database) -> None:
        self.reads = self.writes = 0
        event.listen(database._engines.read, "before_cursor_execute", self._read)
        event.listen(database._engines.write, "before_cursor_execute", self._write)

    def __call__(self) -> tuple[int, int]:
        counts, self.reads, self.writes = (self.reads, self.writes), 0, 0
        return counts

    def _read(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self.reads += statement.startswith("SELECT breaker")

    def _write(self, *_: Any) -> None:
        self.writes += 1


# ---------------------------------------------------------------- one state for all


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


def test_the_breaker_keeps_its_rules_when_each_change_is_made_by_another_process(
    url: str, runner: asyncio.Runner
) -> None:
    """S22: the same machine that the rules are tested with, over two stores in turn."""
    databases = [runner.run(open_database(url)) for _ in range(2)]
    stores: list[BreakerStore] = [over(database, fresh=0) for database in databases]

    class Shared(Breaker):
        machines = 0

        @initialize()
        def begin(self) -> None:
            super().begin()
            Shared.machines += 1
            self.provider = f"p{Shared.machines}"

        def change(self, change: Callable[[BreakerState], tuple[BreakerState, T]]) -> T:
            stores.reverse()
            answer = runner.run(stores[0].update(self.provider, change))
            self.state = runner.run(get(stores[1], self.provider))
            return answer

    quick = settings(max_examples=12, stateful_step_count=40, deadline=None, database=None)
    run_state_machine_as_test(Shared, settings=quick)
    for database in databases:
        runner.run(database.aclose())


@pytest.mark.anyio
async def test_of_many_in_two_stores_one_gets_the_probe(url: str) -> None:
    """S22: half-open lets one probe through, whoever asks."""
    async with await open_database(url) as one, await open_database(url) as two:
        stores = [over(one), over(two)]
        await put(stores[0], HALF_OPEN)
        verdicts = await asyncio.gather(*(asked(stores[n % 2]) for n in range(40)))
        assert sorted(verdicts) == ["open"] * 39 + ["probe"]
        prober = stores[verdicts.index("probe") % 2]
        await prober.update("p", lambda state: (released(state, 1_000.0), None))
        assert await asked(prober) == "probe"


PROBER = """
import asyncio, sys, time
from playhead.llm.breaker import CLOSED, BreakerState, ask
from playhead.storage.breakers import SQLBreakerStore
from playhead.storage.engine import open_database

async def main(url):
    async with await open_database(url) as database:
        store = SQLBreakerStore(database, BreakerState, CLOSED, patience=30)
        await store.update("other", lambda state: (state, None))
        print("ready", flush=True)
        sys.stdin.readline()
        change = lambda state: ask(state, time.time())
        print(*await asyncio.gather(*(store.update("p", change) for _ in range(10))))

asyncio.run(main(sys.argv[1]))
"""


def probed(url: str, number: int) -> list[str]:
    """What processes are told that all ask at the same moment, ten times each."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROBER, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in range(number)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [verdict for p in processes for verdict in p.communicate(timeout=60)[0].split()]
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=30)


@pytest.mark.anyio
async def test_of_four_processes_one_gets_the_probe(url: str) -> None:
    """S22: also when they ask at the same moment."""
    async with await open_database(url) as database:
        await put(over(database), HALF_OPEN)
    verdicts = probed(url, 4)
    assert sorted(verdicts) == ["open"] * 39 + ["probe"]


@pytest.mark.anyio
async def test_failures_in_two_processes_add_up(url: str) -> None:
    """S22: three in all trip it, and providers are held apart whatever they are called."""
    async with await open_database(url) as one, await open_database(url) as two:
        stores = [over(one, fresh=0), over(two, fresh=0)]
        await asyncio.gather(*(time_out(stores[n % 2], "p\0") for n in range(3)))
        await time_out(stores[0], "p\ufffd")
        for store in stores:
            assert (await get(store, "p\0")).opened_for == 60
            assert (await get(store, "p\ufffd")).opened_for == 0


@pytest.mark.anyio
async def test_a_state_is_there_after_closing_and_opening(url: str) -> None:
    """S22: a provider that rests goes on resting after a restart."""
    async with await open_database(url) as database:
        await put(over(database), failed(HALF_OPEN, 50.0, "error", 9.5))
    async with await open_database(url) as database:
        assert await get(over(database)) == failed(HALF_OPEN, 50.0, "error", 9.5)


@pytest.mark.anyio
@pytest.mark.parametrize("stored", ["", "[]", '{"openUntil":"soon"}', '{"kind":"of a later version"}'])
async def test_a_state_that_cannot_be_read_counts_as_closed_and_is_replaced(
    database: Database, stored: str
) -> None:
    """S22, Q205: what another version wrote stops nobody."""
    row = {"provider_key": key_of("p"), "provider": "p", "state": stored, "updated_at": 1}
    await database.write(lambda connection: connection.execute(insert(breaker_states), row).close())
    assert await asked(over(database)) == "closed"
    await time_out(over(database), "p", 5.0)
    kept = await database.read(lambda c: c.execute(select(breaker_states.c.state)).scalar_one())
    assert msgspec.json.decode(kept, type=BreakerState).failures == {"timeout": [5.0]}


# ---------------------------------------------------------------- cost


@pytest.mark.anyio
async def test_a_provider_that_is_well_costs_one_read_and_no_write(database: Database) -> None:
    """S22: of a hundred calls within a moment; each one reads when nothing is to be remembered."""
    count, store = Statements(database), over(database, fresh=60)
    for _ in range(100):
        assert await asked(store) == "closed"
        await store.update("p", lambda state: (succeeded(state, 1_000.0), None))
    assert count() == (1, 0)
    eager = over(database, fresh=0)
    assert [await asked(eager) for _ in range(3)] == ["closed"] * 3
    assert count() == (3, 0)


@pytest.mark.anyio
async def test_what_is_remembered_is_a_moment_old_at_most(database: Database) -> None:
    """S22: what another process changed is seen after that moment, what this one did at once."""
    mine, other = over(database, fresh=60), over(database)
    assert await asked(mine) == "closed"
    await put(other, HALF_OPEN)
    assert await asked(mine) == "closed"
    mine._fresh = 0
    assert await asked(mine) == "probe"
    mine._fresh = 60
    count = Statements(database)
    assert await asked(mine) == "open"
    assert count() == (0, 0)


@pytest.mark.anyio
async def test_a_read_does_not_take_back_what_was_written_meanwhile(database: Database) -> None:
    """S22: of two that this process learns, the later moment counts and not the later arrival."""
    store = over(database, fresh=60)
    begun = time.monotonic()
    await put(store, HALF_OPEN)
    assert store._learn("p", CLOSED, begun) == HALF_OPEN
    assert await get(store) == HALF_OPEN


# ---------------------------------------------------------------- no harm


@pytest.mark.anyio
async def test_a_database_that_fails_breaks_no_model_call(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """S22: the answer comes, and one line of the log says what is wrong."""
    targets = [Target(ScriptedLLM(RuntimeError("broken"), default="a"), "a"), Target(ScriptedLLM(), "b")]
    store = over(database)
    attempts = Attempts(targets, AttemptPolicy(retries=1, backoff=0.001), breakers=store)
    await database.aclose()
    with caplog.at_level(logging.WARNING, "playhead.storage"):
        result = await attempts.generate(LLMRequest([UserMessage("hi")]))
    assert result.message.content == "a"
    told = [record.getMessage() for record in caplog.records if record.name == "playhead.storage"]
    assert len(told) == 1
    assert "circuit breakers are not shared for the next 10 s: The database" in told[0]


@pytest.mark.anyio
async def test_without_the_database_a_process_goes_on_by_itself(database: Database) -> None:
    """S22: from what it last knew, by the same rules; a provider of which it knew nothing is closed."""
    store = over(database, fresh=0)
    await put(store, HALF_OPEN)
    await database.aclose()
    assert [await asked(store) for _ in range(3)] == ["probe", "open", "open"]
    for _ in range(2):
        await store.update("p", lambda state: (succeeded(state, 1_000.0), None))
    assert await asked(store) == "closed"
    for _ in range(3):
        await time_out(store, "new")
    assert (await get(store, "new")).opened_for == 60


@pytest.mark.anyio
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_locked_database_is_not_waited_for(
    database: Database, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S22: a model call is not held up by somebody else's lock; still one of them is the probe."""
    store = over(database, fresh=0, patience=0.05)
    await put(over(database), HALF_OPEN)
    begun, release = threading.Event(), threading.Event()

    def lock(_: Connection) -> None:
        begun.set()
        release.wait(30)

    async with await open_database(url) as other:
        locking = asyncio.create_task(other.write(lock))
        await asyncio.to_thread(begun.wait, 30)
        verdicts = await asyncio.gather(*(asked(store) for _ in range(5)))
        assert sorted(verdicts) == ["open"] * 4 + ["probe"]
        assert caplog.text.count("did not answer within 0.05 s") == 1
        release.set()
        await locking
    await database.write(lambda _: None)  # behind the write that was not waited for
    assert await get(over(database)) == await get(store) == ask(HALF_OPEN, 1_000.0)[0]


@pytest.mark.anyio
async def test_a_database_that_failed_is_asked_again_after_a_rest(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S22: what others changed meanwhile then holds again."""
    store = over(database, fresh=0)
    await put(store, HALF_OPEN)
    with monkeypatch.context() as broken:
        broken.setattr(database, "read", database.aclose)  # takes no argument: the call fails
        assert await get(store) == HALF_OPEN
    await put(over(database), CLOSED)
    assert await get(store) == HALF_OPEN
    store._resting_until = 0.0
    assert await get(store) == CLOSED
