"""Gates: how much of something goes on at once, over all processes on one database."""

import asyncio

import pytest
from msgspec.structs import replace

from playhead import AgentLoop, ToolRegistry, tool
from playhead.errors import ConfigError
from playhead.gates import LAPSE, Gate, Gated, GateState, Limit, MemoryGateStore, gated
from playhead.session.sessions import Sessions
from playhead.storage.breakers import SQLBreakerStore
from playhead.storage.engine import open_database
from playhead.testing import ScriptedLLM
from tests.session.models import GateLLM, StrictLLM, loop_of
from tests.support.until import until

pytestmark = pytest.mark.anyio


class Busy:
    """Counts who is inside, and the most that ever were."""

    def __init__(self) -> None:
        self.inside = self.most = self.times = 0

    async def work(self, gate: Gate) -> None:
        async with gate.place():
            self.inside += 1
            self.times += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0.01)
            self.inside -= 1


async def test_no_more_go_on_at_once_than_the_limit_says() -> None:
    """Issue 6: concurrency of a model or a tool is bounded; who waits comes in later."""
    busy, gate = Busy(), Gate("g", Limit(at_once=2))
    await asyncio.gather(*(busy.work(gate) for _ in range(7)))
    assert (busy.most, busy.times, busy.inside) == (2, 7, 0)


async def test_processes_on_one_database_share_a_gate(url: str) -> None:
    """Issue 6: the limit holds over all of them."""
    busy = Busy()
    async with await open_database(url) as one, await open_database(url) as two:
        gates = [
            Gate("model:x", Limit(at_once=2), SQLBreakerStore(database, GateState, GateState(), fresh=0.0))
            for database in (one, two)
        ]
        await asyncio.gather(*(busy.work(gates[n % 2]) for n in range(10)))
    assert (busy.most, busy.times) == (2, 10)


async def test_no_more_begin_in_a_time_than_the_limit_says() -> None:
    """Issue 6: the rate of a model or a tool is bounded, by a window that slides."""
    now, busy = 1_000.0, Busy()
    gate = Gate("g", Limit(rate=2, per=60.0), clock=lambda: now)
    waiting = asyncio.gather(*(busy.work(gate) for _ in range(3)))
    await until(lambda: busy.times == 2)
    now += 59.0
    await asyncio.sleep(0.2)
    assert busy.times == 2
    now += 1.5
    await waiting
    assert busy.times == 3


async def test_the_place_of_a_process_that_died_lapses() -> None:
    """Issue 6: a dead holder keeps a gate shut for seconds, not for ever; a living one keeps its place."""
    now, store = 1_000.0, MemoryGateStore()
    await store.update("g", lambda state: (GateState({"dead": now + LAPSE}), None))
    busy, gate = Busy(), Gate("g", Limit(at_once=1), store, clock=lambda: now)
    waiting = asyncio.create_task(busy.work(gate))
    await asyncio.sleep(0.1)
    assert busy.times == 0
    now += LAPSE + 0.1
    await waiting
    assert busy.times == 1


async def test_who_is_cancelled_gives_the_place_back() -> None:
    """Issue 6: a stopped run leaves no place taken."""
    gate, entered = Gate("g", Limit(at_once=1)), asyncio.Event()

    async def hold() -> None:
        async with gate.place():
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await entered.wait()
    task.cancel()
    await asyncio.wait((task,))
    async with asyncio.timeout(5), gate.place():
        pass


async def test_a_model_behind_a_gate_answers_in_turn(url: str) -> None:
    """Issue 6: runs of any number of threads share the places of their model."""
    model = GateLLM()
    loop = loop_of(StrictLLM())
    async with Sessions(loop, url) as sessions:
        gate = Gate("model:gate", Limit(at_once=3), sessions.gates)
        asking = AgentLoop(Gated(model, gate))
        runs = [asyncio.create_task(asking.run("hello")) for _ in range(5)]
        await until(lambda: len(model.seen) == 3)
        await asyncio.sleep(0.3)
        assert len(model.seen) == 3
        model.gate.set()
        assert [(await run).text for run in runs] == ["done"] * 5


async def test_a_gate_and_a_breaker_of_one_name_are_two_things(url: str) -> None:
    """Issue 6: both are kept in one place, and neither takes the other's state for its own."""
    async with Sessions(loop_of(StrictLLM()), url) as sessions:
        await sessions.breakers.update("openai", lambda state: (replace(state, kind="rate_limit"), None))
        gate = Gate("openai", Limit(at_once=1), sessions.gates)
        # Another process, which knows only what is stored.
        async with gate.place(), Sessions(loop_of(StrictLLM()), url) as other:
            kept = await other.breakers.update("openai", lambda state: (state, state.kind))
            held = await other.gates.update("openai", lambda state: (state, len(state.holders)))
        assert (kept, held) == ("rate_limit", 1)


async def test_a_tool_behind_a_gate_is_the_same_tool() -> None:
    """Issue 6: name, schema and result stay; only its place is waited for."""

    @tool(replay="safe", timeout=5.0)
    async def double(a: int) -> int:
        """Double a number."""
        return 2 * a

    behind = gated(double, Gate("tool:double", Limit(at_once=1)))
    assert (behind.name, behind.replay, behind.timeout) == ("double", "safe", 5.0)
    registry = ToolRegistry([behind])
    loop = AgentLoop(ScriptedLLM([("double", {"a": 2}), ("double", {"a": 3})], "done"), tools=registry)
    result = await loop.run("go")
    assert [message.content for message in result.steps[0].tool_results] == ["4", "6"]


@pytest.mark.parametrize("wrong", [{"at_once": 0}, {"rate": 0}, {"rate": 1, "per": 0.0}])
async def test_a_limit_that_lets_nothing_through_is_refused(wrong: dict[str, float]) -> None:
    """Issue 6: said with the value, before anything waits for ever."""
    with pytest.raises(ConfigError, match="must be"):
        Limit(**wrong)  # type: ignore[arg-type]
