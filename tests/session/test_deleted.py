"""Threads that are deleted: by this process or another, under their readers and under their runs."""

import asyncio
from typing import Any

import pytest

from playhead import AgentLoop, tool
from playhead.events import EmitDelta, RunEnd, TextDelta
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from playhead.storage.ledger import RunState
from playhead.storage.memory_ledger import MemoryLedger
from playhead.storage.tables import metadata
from playhead.testing import ScriptedLLM
from playhead.types import AgentRunResult, LLMRequest, LLMResult
from tests.session.models import Holding, StrictLLM, loop_of
from tests.session.readers import all_of, terminals, text_of

pytestmark = pytest.mark.anyio

ALL: tuple[RunState, ...] = ("queued", "running", "paused", "ended", "absorbed")


def shared(store_url: str | None) -> Any:
    """What two sessions use as two processes do."""
    return store_url or MemoryLedger()


async def assert_nothing_in(place: Any) -> None:
    """Nothing is left of the only thread, but where its events ended."""
    if isinstance(place, MemoryLedger):
        assert await place.turns.window("t") == []
        assert (await place.events.after("t", 0)).rows == []
        assert await place.runs(states=ALL) == []
        return
    async with await open_database(place) as database:
        found = await database.read(
            lambda connection: {t.name: list(connection.execute(t.select())) for t in metadata.sorted_tables}
        )
    assert {name for name, rows in found.items() if rows} == {"agent_threads", "playhead_schema"}
    assert {row.thread_id for row in found["agent_threads"]} == {""}


def assert_deleted(result: AgentRunResult) -> None:
    assert (result.finish_reason, result.error_code) == ("error", "deleted")
    assert "'t' was deleted" in (result.error_message or "")


async def test_who_had_read_a_deleted_thread_is_told_all_of_the_one_that_begins_anew(
    store_url: str | None,
) -> None:
    """Q206, Q248: a cursor of the thread before is not one of its future; in other processes neither."""
    place = store_url or MemoryLedger()
    async with (
        Sessions(loop_of(StrictLLM()), place) as sessions,
        Sessions(loop_of(StrictLLM()), place) as other,
    ):
        run = await sessions.start("t", "one")
        cursor = (await all_of(sessions, run.run_id))[-1].seq
        await other.delete("t")
        # In memory nobody else tells what is written.
        following = (sessions if store_url is None else other).thread_events("t", after=f"{cursor}.7")
        first = asyncio.ensure_future(anext(following))
        anew = await sessions.start("t", "two")
        async with asyncio.timeout(10):
            found = [await first]
            while found[-1].type != "run_end":
                found.append(await anext(following))
        await following.aclose()
        assert ({event.run_id for event in found}, text_of(found)) == ({anew.run_id}, "done")
        recorded = [event.seq for event in found if event.seq is not None]
        assert recorded[:2] == [(cursor or 0) + 1, (cursor or 0) + 2]


class Endless:
    """Talks without end, once it may."""

    provider = model = "endless"

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()
        self.calls = 0

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.calls += 1
        self.began.set()
        await self.go.wait()
        while True:
            assert emit is not None
            emit(TextDelta("and "))
            await asyncio.sleep(0.01)


async def test_a_run_whose_thread_another_process_deleted_stops_and_leaves_nothing(
    store_url: str | None,
) -> None:
    """Q206: also in the midst of a text, and what waits behind it; those who read it or wait are told."""
    llm, place = Endless(), shared(store_url)
    loop = AgentLoop(llm)
    async with Sessions(loop, place, flush_seconds=0.01) as sessions, Sessions(loop, place) as other:
        one, two = [await sessions.start("t", text) for text in ("one", "two")]
        following = sessions.events(one.run_id)
        events = [await anext(following)]
        runs = (await sessions._opened()).lines.runs
        results = [runs[run.run_id].result for run in (one, two)]
        await llm.began.wait()
        await other.delete("t")
        llm.go.set()
        async with asyncio.timeout(10):
            events += [event async for event in following]
            for result in results:
                assert_deleted(await result)
        assert isinstance(events[-1], RunEnd)
        assert_deleted(events[-1].result)
        assert (terminals(events), llm.calls) == (["run_end"], 1)
    await assert_nothing_in(place)


async def test_a_run_that_another_process_deleted_asks_the_model_no_more(store_url: str | None) -> None:
    """Q206, rule 7: what a tool returns after that is not kept either, long or short."""
    began, go = asyncio.Event(), asyncio.Event()

    @tool
    async def look(much: bool) -> str:
        """Look."""
        began.set()
        await go.wait()
        return "seen " * (1_000 if much else 1)

    llm, place = ScriptedLLM([("look", {"much": True}), ("look", {"much": False})], "so"), shared(store_url)
    loop = AgentLoop(llm, tools=[look])
    async with (
        Sessions(loop, place, keep_aside_above=1_000) as sessions,
        Sessions(loop_of(StrictLLM()), place) as other,
    ):
        running = asyncio.create_task(sessions.run("t", "go"))
        await began.wait()
        await other.delete("t")
        go.set()
        async with asyncio.timeout(10):
            assert_deleted(await running)
    assert len(llm.requests) == 1
    await assert_nothing_in(place)


async def test_a_run_of_a_deleted_thread_adds_nothing_to_the_one_that_begins_anew(
    store_url: str | None,
) -> None:
    """Q206, Q193: under the same id there is another thread by now."""
    llm, place = Endless(), shared(store_url)
    async with (
        Sessions(AgentLoop(llm), place, flush_seconds=0.01) as sessions,
        Sessions(loop_of(StrictLLM()), place) as other,
    ):
        running = asyncio.create_task(sessions.run("t", "one"))
        await llm.began.wait()
        await other.delete("t")
        anew = await other.start("t", "anew")
        events = await all_of(other, anew.run_id)
        llm.go.set()
        async with asyncio.timeout(10):
            assert_deleted(await running)
        assert [m.content for m in await other.history("t")] == ["anew", "done"]
        recorded = [event.seq for event in events if event.seq is not None]
        assert await other.last_seq("t") == recorded[-1]


async def test_a_message_that_comes_to_steer_a_deleted_run_is_answered_by_its_own(
    store_url: str | None,
) -> None:
    """Q244, Q206: it is in the thread that begins anew with it; what is gone does not take it in."""
    place, holding = shared(store_url), Holding()
    loop = AgentLoop(ScriptedLLM([("hold", {})], "so"), tools=[holding.tool])
    async with Sessions(loop, place) as sessions, Sessions(loop_of(StrictLLM()), place) as other:
        running = asyncio.create_task(sessions.run("t", "one"))
        await holding.begun.wait()
        await other.delete("t")
        steering = await sessions.start("t", "two", policy="steer")
        holding.go_on.set()
        async with asyncio.timeout(10):
            assert_deleted(await running)
            assert text_of(await all_of(sessions, steering.run_id)) == "so"
        assert [m.content for m in await sessions.history("t")] == ["two", "so"]


@pytest.mark.parametrize("first", ["deletion", "message"])
async def test_a_message_and_the_deletion_of_its_thread_come_one_after_the_other(
    first: str, store_url: str | None
) -> None:
    """Q193, Q206: under way at the same time from two processes, neither loses the other or a part of it."""
    place = shared(store_url)
    loop = loop_of(StrictLLM())
    async with Sessions(loop, place) as sessions, Sessions(loop, place) as other:
        for n in range(10):
            await sessions.run("t", "before")
            before = await sessions.last_seq("t")
            work: list[Any] = [other.delete("t"), sessions.run("t", "go", message_id=f"m{n}")]
            async with asyncio.timeout(20):
                result = (await asyncio.gather(*(work if first == "deletion" else work[::-1])))[
                    first == "deletion"
                ]
            said = [m.content for m in await sessions.history("t")]
            if result.error_code == "deleted" or not said:
                assert said == []
            else:
                assert (result.text, said) == ("done", ["go", "done"])
                following = other.thread_events("t", after=before)
                event = await anext(following)
                assert (event.type, event.seq) == ("run_start", before + 1)
                await following.aclose()
