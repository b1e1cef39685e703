"""Durable sessions within one process: what is said is carried out as in any other sessions."""

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy import text

from playhead import AgentLoop, tool
from playhead.errors import ConfigError, StoreError
from playhead.events import Event
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from playhead.types import ToolCall, UserMessage
from tests.session.durable.support import table
from tests.session.models import CALLS, GateLLM, Holding, StrictLLM, loop_of
from tests.session.readers import all_of, terminals, text_of
from tests.support.until import until

pytestmark = pytest.mark.anyio


async def events_of(sessions: Sessions, thread: str, ends: int) -> list[Event]:
    """All events of a thread up to so many ends of runs."""
    told: list[Event] = []
    async with asyncio.timeout(20):
        async for event in sessions.thread_events(thread):
            told.append(event)
            if len(terminals(told)) == ends:
                break
    return told


def said(messages: Sequence[object]) -> list[str]:
    return [str(getattr(message, "content", "")) for message in messages]


async def test_a_run_answers_and_is_recorded(url: str) -> None:
    """Issue 6: a durable run shows, stores and returns what any other does."""
    async with Sessions(loop_of(StrictLLM(*CALLS)), url, durable=True) as sessions:
        result = await sessions.run("t", "hello")
        assert (result.finish_reason, result.text, len(result.steps)) == ("final", "done", 2)
        assert said(result.messages) == ["hello", "", "1", "2", "done"]
        assert sorted(said(await sessions.history("t"))) == sorted(said(result.messages))
        last = await sessions.last_run("t")
        assert last is not None
        told = await all_of(sessions, last.run_id)
        assert text_of(told) == "done"
        assert terminals(told) == ["run_end"]
        assert [event.seq for event in told] == list(range(told[0].seq or 0, (told[-1].seq or 0) + 1))


async def test_a_result_is_known_to_who_comes_later(url: str) -> None:
    """Issue 6: sending a message again finds its run, whichever process carried it out."""
    async with Sessions(loop_of(StrictLLM(*CALLS)), url, durable=True) as sessions:
        first = await sessions.run("t", "hello", message_id="m1")
    model = StrictLLM()
    async with Sessions(loop_of(model), url, durable=True) as sessions:
        again = await sessions.run("t", "hello", message_id="m1")
    assert not model.seen
    assert (again.text, again.finish_reason) == ("done", "final")
    # Rows are in the order in which the results landed.
    assert sorted(said(again.messages)) == sorted(said(first.messages))
    assert [len(step.tool_results) for step in again.steps] == [2, 0]


async def test_a_process_has_one_durable_sessions(url: str) -> None:
    """Issue 6: a second is a clear error, and the first goes on."""
    async with Sessions(loop_of(StrictLLM()), url, durable=True) as sessions:
        with pytest.raises(ConfigError, match="durable sessions already"):
            await Sessions(loop_of(StrictLLM()), url, durable=True).check()
        assert (await sessions.run("t", "hello")).text == "done"


async def test_durable_sessions_need_a_database() -> None:
    """Issue 6: what would not survive is refused."""
    with pytest.raises(ConfigError, match="need a database"):
        await Sessions(loop_of(StrictLLM()), durable=True).check()


async def test_messages_of_a_thread_are_answered_in_order_one_at_a_time(url: str) -> None:
    """Issue 6: one active run for each thread; the others wait in order, those of other threads do not."""
    model = GateLLM()
    async with Sessions(loop_of(model), url, durable=True) as sessions:
        for n in range(4):
            await sessions.start("t", f"message {n}")
        other = asyncio.create_task(sessions.run("u", "hello"))
        await until(lambda: len(model.seen) == 2)
        assert sorted(str(messages[0].content) for messages in model.seen) == ["hello", "message 0"]
        model.gate.set()
        assert (await other).text == "done"
        told = await events_of(sessions, "t", 4)
        kinds = [event.type for event in told if event.type in ("run_start", "run_end")]
        assert kinds == ["run_start", "run_end"] * 4
        asked = [m.content for m in await sessions.history("t") if isinstance(m, UserMessage)]
        assert asked == [f"message {n}" for n in range(4)]


async def test_a_message_steers_the_run_at_work(url: str) -> None:
    """Issue 6: it is taken in before the next model call, once, and begins no run of its own."""
    holding = Holding()
    loop = AgentLoop(StrictLLM(ToolCall("c1", "hold", {})), tools=[holding.tool])
    async with Sessions(loop, url, durable=True) as sessions:
        first = await sessions.start("t", "one")
        await holding.begun.wait()
        second = await sessions.start("t", "two", policy="steer", message_id="m2")
        holding.go_on.set()
        told = await all_of(sessions, first.run_id)
        assert [e.message.content for e in told if e.type == "user_message"] == ["one", "two"]
        assert (await sessions.find(second.run_id)).absorbed_by == first.run_id
        assert said(await sessions.history("t")).count("two") == 1
        assert (await sessions.run("t", "three")).text == "done"


async def test_a_message_interrupts_the_run_at_work(url: str) -> None:
    """Issue 6: that ends as cancelled, with what it said, and the message is answered next."""
    model = GateLLM()
    async with Sessions(loop_of(model), url, durable=True) as sessions:
        first = await sessions.start("t", "one")
        await model.waiting.wait()
        second = asyncio.create_task(sessions.run("t", "two", policy="interrupt"))
        told = await all_of(sessions, first.run_id)
        assert told[-1].result.finish_reason == "cancelled"  # type: ignore[union-attr]
        model.gate.set()
        assert (await second).text == "done"


async def test_a_run_is_stopped_at_work_and_before_its_turn(url: str) -> None:
    """Issue 6: a run that waits ends as if its message had not been sent."""
    model = GateLLM()
    async with Sessions(loop_of(model), url, durable=True) as sessions:
        first = await sessions.start("t", "one")
        second = await sessions.start("t", "two")
        await model.waiting.wait()
        await sessions.cancel(second.run_id)
        assert (await sessions.find(second.run_id)).finish_reason == "cancelled"
        await sessions.cancel(first.run_id)
        assert (await sessions.find(first.run_id)).finish_reason == "cancelled"
        assert "two" not in said(await sessions.history("t"))
        model.gate.set()
        assert (await sessions.run("t", "three")).text == "done"


async def test_a_paused_run_survives_a_restart_and_is_answered(url: str) -> None:
    """Issue 6: an approval that waits holds no worker; its answer starts the next run of the turn."""
    done: list[str] = []

    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        done.append(f"paid {amount}")
        return "ok"

    async with Sessions(
        AgentLoop(StrictLLM(ToolCall("c1", "pay", {"amount": 5})), tools=[pay]), url, durable=True
    ) as one:
        paused = await one.run("t", "pay 5")
        assert paused.finish_reason == "paused"
    async with Sessions(AgentLoop(StrictLLM(), tools=[pay]), url, durable=True) as two:
        ((run_id, call),) = await two.pending("t")
        handle = await two.answer(run_id, call.call.id, args_hash=call.args_hash, approved=True)
        told = await all_of(two, handle.run_id)
        assert told[-1].result.finish_reason == "final"  # type: ignore[union-attr]
        assert done == ["paid 5"]
        with pytest.raises(StoreError, match="answered already"):
            await two.answer(run_id, call.call.id, args_hash=call.args_hash, approved=True)


async def test_two_hundred_runs_are_in_flight_at_once(url: str) -> None:
    """Issue 6: 200 runs are at work in one process."""
    model = GateLLM()
    async with Sessions(loop_of(model), url, durable=True) as sessions:
        runs = [asyncio.create_task(sessions.run(f"t{n}", "hello")) for n in range(200)]
        await until(lambda: len(model.seen) == 200, within=30)
        model.gate.set()
        assert {(await run).text for run in runs} == {"done"}


async def test_nothing_of_a_deleted_thread_stays_with_the_engine(url: str) -> None:
    """Issue 6: a step's record holds what was said, and goes with the thread; so does a run that waits."""
    model = GateLLM()
    async with Sessions(loop_of(model), url, durable=True) as sessions:
        await sessions.start("t", "one")
        await sessions.start("t", "two")
        await sessions.start("u", "three")
        await until(lambda: len(model.seen) == 2)
        await sessions.delete("t")
        model.gate.set()
        assert (await sessions.run("u", "four")).text == "done"
        assert await sessions.history("t") == ()
        assert (await sessions.run("t", "anew")).text == "done"
        async with await open_database(url) as database:
            count = text(f"SELECT count(*) FROM {await table(database, 'workflow_status')}")
            assert await database.read(lambda connection: connection.execute(count).scalar()) == 3
        await sessions.delete_tenant(None)
        async with await open_database(url) as database:
            assert await database.read(lambda connection: connection.execute(count).scalar()) == 0
