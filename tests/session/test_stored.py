"""Threads in a database: what is there after a restart, and what a client may do to a thread."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from playhead import AgentLoop, tool
from playhead.errors import StoreError
from playhead.events import EmitDelta, RunEnd, UserMessageEvent
from playhead.ids import now_ms
from playhead.session import journal
from playhead.session.sessions import Sessions
from playhead.storage.engine import open_database
from playhead.storage.memory_ledger import MemoryLedger
from playhead.storage.sql_ledger import SQLLedger
from playhead.storage.tables import agent_runs
from playhead.testing import ScriptedLLM
from playhead.types import (
    AgentContext,
    AssistantMessage,
    LLMRequest,
    LLMResult,
    ToolCall,
    ToolContext,
    UserMessage,
)
from tests.session.models import CALLS, GateLLM, Holding, StrictLLM, loop_of
from tests.session.readers import all_of, text_of

pytestmark = pytest.mark.anyio


async def test_a_thread_is_there_after_a_restart(url: str) -> None:
    """S1, S18: history, events and the result of a run, and the next run goes on from them."""
    async with Sessions(loop_of(StrictLLM(CALLS[0], reply="so")), url) as sessions:
        run = await sessions.start("t", "go", message_id="m1")
        events = await all_of(sessions, run.run_id)
        history = await sessions.history("t")
    llm = StrictLLM(reply="well")
    async with Sessions(loop_of(llm), url) as sessions:
        assert await sessions.history("t") == history
        kept = [event for event in events if event.seq is not None]
        replayed = await all_of(sessions, run.run_id)
        assert [e for e in replayed if e.type != "text_delta"] == [e for e in kept if e.type != "text_delta"]
        assert text_of(replayed) == text_of(events) == "so"
        again = await sessions.run("t", "go", message_id="m1")
        assert (again.turn_id, again.text, again.finish_reason) == (run.turn_id, "so", "final")
        assert list(again.messages) == list(history)
        assert (await sessions.run("t", "and now?")).text == "well"
    assert [message.content for message in llm.seen[0]] == [m.content for m in history] + ["and now?"]


async def test_the_message_is_written_before_the_model_is_called(url: str) -> None:
    """Q242: and the partial answer of a run that is at work is there for another reader of the database."""
    llm = GateLLM("hello")
    async with (
        Sessions(loop_of(llm), url, flush_seconds=0.01) as sessions,
        Sessions(loop_of(llm), url) as other,
    ):
        run = await sessions.start("t", "go")
        await llm.waiting.wait()
        assert [m.content for m in await other.history("t")] == ["go"]
        async with asyncio.timeout(5):
            async for event in other.events(run.run_id):
                if event.type == "text_delta":
                    break
        assert (await other.find(run.run_id)).state == "running"
        llm.gate.set()
        assert text_of(await all_of(sessions, run.run_id)) == "hello"


async def test_the_first_events_say_what_was_asked(store_url: str | None) -> None:
    """Design 5: whoever only reads the thread's events knows the conversation from them."""
    async with Sessions(loop_of(StrictLLM()), store_url) as sessions:
        run = await sessions.start("t", "hello?", message_id="m1")
        start, asked, *_ = await all_of(sessions, run.run_id)
    assert start.type == "run_start"
    assert isinstance(asked, UserMessageEvent)
    assert (asked.message.content, asked.message.id) == ("hello?", "m1")


async def test_one_cursor_goes_over_all_runs_of_a_thread(store_url: str | None) -> None:
    """Design 5: `seq` counts the events of the thread without a gap, in order."""
    async with Sessions(loop_of(StrictLLM(*CALLS)), store_url) as sessions:
        runs = [await sessions.start("t", f"m{n}") for n in range(3)]
        found = []
        async with asyncio.timeout(10):
            async for event in sessions.thread_events("t"):
                found.append(event)
                if isinstance(event, RunEnd) and event.run_id == runs[-1].run_id:
                    break
        seqs = [event.seq for event in found if event.seq is not None]
        assert seqs == sorted(set(seqs))
        assert {event.run_id for event in found} == {run.run_id for run in runs}
        ends = [event.run_id for event in found if isinstance(event, RunEnd)]
        assert ends == [run.run_id for run in runs]
        replayed = [e.seq async for e in _until_end(sessions, runs[-1].run_id, 0)]
        assert replayed == list(range(1, seqs[-1] + 1))


async def _until_end(sessions: Sessions, run_id: str, after: int) -> Any:
    async for event in sessions.thread_events("t", after=after):
        yield event
        if isinstance(event, RunEnd) and event.run_id == run_id:
            return


async def test_a_message_may_steer_the_run_that_is_at_work(store_url: str | None) -> None:
    """Q244: it is taken in before the next model call, once, and its own run is that run from then on."""
    llm, holding = ScriptedLLM([("hold", {})], "blue it is", default="unasked"), Holding()
    async with Sessions(AgentLoop(llm, tools=[holding.tool]), store_url) as sessions:
        first = await sessions.start("t", "paint it red")
        await holding.begun.wait()
        second = await sessions.start("t", "no, blue", policy="steer")
        waiting = asyncio.create_task(sessions.run("t", "no, blue", message_id="x", policy="steer"))
        await asyncio.sleep(0.05)
        holding.go_on.set()
        assert (await waiting).text == "blue it is"
        events = await all_of(sessions, first.run_id)
        assert [e.message.content for e in events if isinstance(e, UserMessageEvent)] == [
            "paint it red",
            "no, blue",
            "no, blue",
        ]
        assert [e.type for e in await all_of(sessions, second.run_id)] == [e.type for e in events if e.seq]
        assert (await sessions.find(second.run_id)).state == "absorbed"
        assert [m.content for m in await sessions.history("t")][-1] == "blue it is"
    assert len(llm.requests) == 2


async def test_who_follows_a_message_before_it_is_taken_in_gets_the_answer(store_url: str | None) -> None:
    """Q244: the reader of a run that is to steer goes on with the one that took it in."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        begun.set()
        await go_on.wait()
        return "worked"

    async with Sessions(AgentLoop(ScriptedLLM([("work", {})], "so"), tools=[work]), store_url) as sessions:
        await sessions.start("t", "go")
        await begun.wait()
        steering = await sessions.start("t", "and?", policy="steer")
        reading = asyncio.create_task(all_of(sessions, steering.run_id))
        await asyncio.sleep(0.05)
        go_on.set()
        assert text_of(await reading) == "so"


async def test_what_waits_at_an_orderly_end_is_kept_and_told(url: str) -> None:
    """Q242: nothing that was accepted is lost; the message is in the thread, and not answered."""
    llm = GateLLM()
    async with Sessions(loop_of(llm), url) as sessions:
        await sessions.start("t", "one")
        waiting = await sessions.start("t", "two")
        await llm.waiting.wait()
    async with Sessions(loop_of(StrictLLM()), url) as sessions:
        assert [m.content for m in await sessions.history("t")].count("two") == 1
        events = await all_of(sessions, waiting.run_id)
        assert [event.type for event in events] == ["run_start", "user_message", "run_end"]


@pytest.mark.parametrize("which", ["active", "steering"])
async def test_a_run_is_stopped_while_it_takes_a_message_in(
    which: str, store_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2, rule 7: what was written as said in it is told in it, and both runs end as stopped."""
    kind: Any = MemoryLedger if store_url is None else SQLLedger
    absorb, absorbing = kind.absorb, asyncio.Event()

    async def slowly(*args: Any) -> Any:
        absorbing.set()
        taken = await absorb(*args)
        await asyncio.sleep(0.05)
        return taken

    monkeypatch.setattr(kind, "absorb", slowly)
    called, go = asyncio.Event(), asyncio.Event()

    @tool
    async def hold(a: int) -> int:
        """Wait."""
        called.set()
        await go.wait()
        return a

    class Calls:
        """Calls the tool, and then thinks without end."""

        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            if isinstance(request.messages[-1], UserMessage) and len(request.messages) > 1:
                await asyncio.Event().wait()
            return LLMResult(AssistantMessage("", (ToolCall("c1", "hold", {"a": 1}),)), "tool_calls")

    async with Sessions(AgentLoop(Calls(), tools=[hold]), store_url) as sessions:
        run = await sessions.start("t", "one")
        await called.wait()
        other = await sessions.start("t", "two", policy="steer", message_id="m2")
        waiting = asyncio.create_task(sessions.run("t", "two", policy="steer", message_id="m2"))
        go.set()
        await absorbing.wait()
        await sessions.cancel((run if which == "active" else other).run_id)
        events = await all_of(sessions, run.run_id)
        assert isinstance(events[-1], RunEnd)
        for result in (events[-1].result, await waiting):
            assert (result.finish_reason, result.error_message) == ("cancelled", None)
        said = [event.message.content for event in events if isinstance(event, UserMessageEvent)]
        assert said == ["one", "two"]
        assert (await sessions.find(other.run_id)).state == "absorbed"
        assert await sessions.open_runs("t") == []


async def test_a_message_that_came_too_late_to_steer_is_a_run_of_its_own(store_url: str | None) -> None:
    """Q244: no message is ever dropped."""
    llm = GateLLM()
    async with Sessions(loop_of(llm), store_url) as sessions:
        await sessions.start("t", "one")
        await llm.waiting.wait()
        late = await sessions.start("t", "two", policy="steer")
        llm.gate.set()
        assert (await all_of(sessions, late.run_id))[-1].type == "run_end"
        assert [m.content for m in await sessions.history("t")] == ["one", "done", "two", "done"]


async def test_a_message_may_interrupt_the_run_that_is_at_work(store_url: str | None) -> None:
    """Q244: that run ends as cancelled with what it had said; the message is answered."""
    llm = GateLLM("hello")
    async with Sessions(loop_of(llm), store_url) as sessions:
        first = await sessions.start("t", "one")
        await llm.waiting.wait()
        second = await sessions.start("t", "two", policy="interrupt")
        end = (await all_of(sessions, first.run_id))[-1]
        assert isinstance(end, RunEnd)
        assert (end.result.finish_reason, end.result.text) == ("cancelled", "he")
        llm.gate.set()
        assert text_of(await all_of(sessions, second.run_id)) == "hello"
        assert [m.content for m in await sessions.history("t")] == ["one", "he", "two", "hello"]


async def test_a_policy_that_does_not_exist_is_refused(store_url: str | None) -> None:
    async with Sessions(loop_of(StrictLLM()), store_url) as sessions:
        with pytest.raises(StoreError, match="'drop'") as caught:
            await sessions.start("t", "hi", policy="drop")  # type: ignore[arg-type]
        assert (caught.value.code, await sessions.history("t")) == ("invalid", ())


async def test_a_fork_goes_on_by_itself(store_url: str | None) -> None:
    """The copy holds what was said up to a message; neither knows of the other afterwards."""
    async with Sessions(loop_of(StrictLLM(*CALLS, reply="so")), store_url) as sessions:
        await sessions.run("t", "one")
        await sessions.run("t", "two")
        history = await sessions.history("t")
        first_turn = history[: len(history) // 2]
        fork = await sessions.fork("t", at=first_turn[-1].id)
        assert await sessions.history(fork) == first_turn
        assert await sessions.fork("t", to="copy") == "copy"
        assert await sessions.history("copy") == history
        await sessions.run(fork, "three")
        assert await sessions.history("t") == history
        assert (await sessions.history(fork))[: len(first_turn)] == first_turn
        for source, named in (("nope", {}), ("t", {"at": "nope"})):
            with pytest.raises(StoreError) as caught:
                await sessions.fork(source, **named)
            assert caught.value.code == "not_found"
        with pytest.raises(StoreError) as caught:
            await sessions.fork("t", to="copy")
        assert caught.value.code == "conflict"


async def test_an_edit_takes_the_place_of_a_message_and_of_all_after_it(store_url: str | None) -> None:
    """What was replaced is neither shown to the model nor to the user, and its id is still known."""
    llm = StrictLLM()
    async with Sessions(loop_of(llm), store_url) as sessions:
        await sessions.run("t", "one")
        await sessions.run("t", "two", message_id="m2")
        await sessions.run("t", "three")
        run = await sessions.edit("t", "m2", "zwei")
        await all_of(sessions, run.run_id)
        assert [m.content for m in await sessions.history("t")] == ["one", "done", "zwei", "done"]
        assert [m.content for m in llm.seen[-1]] == ["one", "done", "zwei"]
        left = await sessions.replaced("t")
        assert [row.content for _, row in left] == ["two", "done", "three", "done"]
        assert {mark for mark, _ in left} == {left[0][1].seq}
        assert [step.assistant_message.content for step in await sessions.steps("t")] == ["done"] * 4
        assert (await sessions.run("t", "two", message_id="m2")).text == "done"
        assert len(llm.seen) == 4
        answer = (await sessions.history("t"))[1]
        for message_id, code in (("nope", "not_found"), (answer.id, "invalid")):
            with pytest.raises(StoreError) as caught:
                await sessions.edit("t", message_id, "x")
            assert caught.value.code == code


async def test_a_retry_asks_the_last_question_again(store_url: str | None) -> None:
    """The answer that was not wanted leaves the conversation."""
    llm = ScriptedLLM("first", "second", "third")
    async with Sessions(AgentLoop(llm), store_url) as sessions:
        await sessions.run("t", "one")
        await sessions.run("t", "two")
        run = await sessions.retry("t")
        assert text_of(await all_of(sessions, run.run_id)) == "third"
        assert [m.content for m in await sessions.history("t")] == ["one", "first", "two", "third"]
        with pytest.raises(StoreError) as caught:
            await sessions.retry("empty")
        assert caught.value.code == "not_found"


async def test_a_thread_at_work_is_not_edited(store_url: str | None) -> None:
    """Q193: a writer that comes second is told so."""
    llm = GateLLM()
    async with Sessions(loop_of(llm), store_url) as sessions:
        run = await sessions.start("t", "one", message_id="m1")
        await llm.waiting.wait()
        with pytest.raises(StoreError) as caught:
            await sessions.edit("t", "m1", "two")
        assert caught.value.code == "conflict"
        llm.gate.set()
        await all_of(sessions, run.run_id)


async def test_an_edit_takes_nothing_of_a_run_that_begins_meanwhile(store_url: str | None) -> None:
    """Q193: one of the two comes first. What is said in the other's place is not what it knew."""
    async with Sessions(loop_of(StrictLLM()), store_url) as sessions:
        for turns in range(12):
            thread = f"t{turns}"
            await sessions.run(thread, "one", message_id="m1")
            editing = asyncio.create_task(sessions.edit(thread, "m1", "two"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await sessions.run(thread, "more")
            edited = (await asyncio.gather(editing, return_exceptions=True))[0]
            if isinstance(edited, StoreError):
                assert edited.code == "conflict"
            else:
                assert not isinstance(edited, BaseException)
                await all_of(sessions, edited.run_id)
            said = [m.content for m in await sessions.history(thread)]
            assert said in (["one", "done", "more", "done"], ["two", "done", "more", "done"], ["two", "done"])


@pytest.mark.parametrize("turns", range(8))
async def test_who_stops_waiting_before_it_is_written_stops_nothing(
    turns: int, store_url: str | None
) -> None:
    """Q242, rule 9: the message was taken; sent again, it finds its run, which is at work."""
    llm = StrictLLM()
    async with Sessions(loop_of(llm), store_url) as sessions:
        waiting = asyncio.create_task(sessions.run("t", "go", message_id="m"))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        async with asyncio.timeout(10):
            assert (await sessions.run("t", "go", message_id="m")).text == "done"
        assert [m.content for m in await sessions.history("t")] == ["go", "done"]
    assert len(llm.seen) == 1


async def test_a_message_whose_writing_failed_though_it_was_written_is_no_riddle(
    store_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q239: nobody carries its run out; whoever sends it again is told so, and does not wait for ever."""
    kind: Any = MemoryLedger if store_url is None else SQLLedger
    begin = kind.begin

    async def unheard(*args: Any, **named: Any) -> Any:
        await begin(*args, **named)
        raise StoreError("The connection was lost.")

    async with Sessions(loop_of(StrictLLM()), store_url) as sessions:
        with monkeypatch.context() as patch:
            patch.setattr(kind, "begin", unheard)
            with pytest.raises(StoreError):
                await sessions.start("t", "go", message_id="m")
        async with asyncio.timeout(10):
            again = await sessions.run("t", "go", message_id="m")
        assert (again.finish_reason, again.error_code) == ("error", "interrupted")
        assert (await sessions.run("t", "on")).text == "done"


async def test_what_is_taken_while_sessions_close_is_ended(url: str) -> None:
    """S2: the same process finds no run at work that nobody carries out."""
    for turns in range(8):
        sessions = Sessions(loop_of(StrictLLM()), url)
        await sessions.check()
        starting = asyncio.create_task(sessions.start(f"t{turns}", "go"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await sessions.aclose()
        await asyncio.gather(starting, return_exceptions=True)
    async with Sessions(loop_of(StrictLLM()), url) as again:
        for turns in range(8):
            assert await again.open_runs(f"t{turns}") == []


async def test_a_thread_that_is_deleted_while_a_run_begins_is_gone(store_url: str | None) -> None:
    """Q206: one comes before the other; of a thread that was deleted, no event or answer comes after."""
    gone = 0
    async with Sessions(loop_of(StrictLLM()), store_url) as sessions:
        for turns in range(12):
            running = asyncio.create_task(sessions.run("t", "go"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await sessions.delete("t")
            seq = await sessions.last_seq("t")
            reason = (await running).finish_reason
            said = [m.content for m in await sessions.history("t")]
            assert (reason, said) in [("cancelled", []), ("final", []), ("final", ["go", "done"])]
            assert said or await sessions.last_seq("t") == seq
            gone += not said
            await sessions.delete("t")
    assert gone


async def test_a_deleted_thread_is_gone_with_all_that_belongs_to_it(store_url: str | None) -> None:
    """Q206: messages, runs and events, what is at work and who reads; other threads stay."""
    llm = GateLLM()
    async with Sessions(loop_of(llm), store_url) as sessions:
        run = await sessions.start("t", "one", tenant="acme")
        other = await sessions.start("t", "one", tenant="other")
        await llm.waiting.wait()
        reading = asyncio.create_task(_all_of_thread(sessions, "t", "acme"))
        await asyncio.sleep(0.02)
        await sessions.delete("t", tenant="acme")
        async with asyncio.timeout(5):
            await reading
        assert await sessions.history("t", tenant="acme") == ()
        with pytest.raises(StoreError):
            await sessions.find(run.run_id, tenant="acme")
        seq = await sessions.last_seq("t", tenant="acme")
        llm.gate.set()
        await all_of(sessions, other.run_id, tenant="other")
        assert (await sessions.run("t", "anew", tenant="acme")).text == "done"
        assert len(await sessions.history("t", tenant="acme")) == 2
        async for event in sessions.thread_events("t", tenant="acme"):
            assert (event.type, event.seq) == ("run_start", seq + 1)
            break
        assert await sessions.delete_tenant("other") == 2
        assert await sessions.history("t", tenant="other") == ()
        assert len(await sessions.history("t", tenant="acme")) == 2


async def _all_of_thread(sessions: Sessions, thread: str, tenant: str) -> int:
    return len([e async for e in sessions.thread_events(thread, tenant=tenant)])


async def test_what_is_older_than_a_time_is_forgotten(store_url: str | None) -> None:
    """Q206: turns, runs and events by age; what is younger stays and goes on."""
    async with Sessions(loop_of(StrictLLM()), store_url) as sessions:
        old = await sessions.start("old", "hi")
        await all_of(sessions, old.run_id)
        await asyncio.sleep(0.01)
        border = now_ms()
        await asyncio.sleep(0.01)
        await sessions.run("new", "hi")
        assert await sessions.delete_before(border) == 2
        assert await sessions.history("old") == ()
        with pytest.raises(StoreError):
            await sessions.find(old.run_id)
        assert len(await sessions.history("new")) == 2
        assert (await sessions.run("old", "again")).finish_reason == "final"


ODD = ["a" * 5_000, "a/b?c#d%20", "ä\u202e🎬", " ", "../../etc", "'; DROP TABLE agent_turns; --"]


@pytest.mark.parametrize("thread", ODD, ids=range(len(ODD)))
async def test_a_thread_id_may_be_of_any_length_or_form(thread: str, store_url: str | None) -> None:
    """Bad input: no two are taken for one."""
    async with Sessions(loop_of(StrictLLM()), store_url) as sessions:
        said = UserMessage("hi \0 \ud83d", id="m\0" + thread)
        run = await sessions.start(thread, said, tenant=thread)
        await all_of(sessions, run.run_id, tenant=thread)
        assert len(await sessions.history(thread, tenant=thread)) == 2
        assert await sessions.history(thread + "x", tenant=thread) == ()
        assert await sessions.history(thread) == ()
        assert await sessions.start(thread, said, tenant=thread) == run


@pytest.mark.parametrize(("thread", "tenant"), [("\0", None), ("a\ud83d", None), ("a", "b\0")], ids=range(3))
async def test_an_id_that_no_database_takes_is_refused(
    thread: str, tenant: str | None, store_url: str | None
) -> None:
    """Q202: NUL and half a surrogate pair, in every store alike."""
    async with Sessions(loop_of(StrictLLM()), store_url) as sessions:
        with pytest.raises(StoreError) as caught:
            await sessions.start(thread, "hi", tenant=tenant)
        assert caught.value.code == "invalid"


@pytest.mark.parametrize(
    "message",
    [UserMessage(7), UserMessage("x", id=7), UserMessage([{"a": 1}])],  # type: ignore[arg-type,list-item]
)
async def test_a_message_that_could_not_be_read_back_is_refused(message: UserMessage, url: str) -> None:
    """Q205: also one that waits for its turn; it would be in the way of all that come later."""
    llm = GateLLM()
    async with Sessions(loop_of(llm), url) as sessions:
        await sessions.start("t", "one")
        await llm.waiting.wait()
        with pytest.raises(StoreError) as caught:
            await sessions.start("t", message)
        assert caught.value.code == "invalid"


async def test_a_context_of_other_types_breaks_nothing(url: str) -> None:
    """Q205: it reaches the tools, and is not kept."""
    context = AgentContext(project_id=7)  # type: ignore[arg-type]
    async with Sessions(loop_of(StrictLLM()), url) as sessions:
        assert (await sessions.run("t", "go", context=context)).finish_reason == "final"
        last = await sessions.last_run("t")
        assert last is not None
        assert last.context is None


async def test_a_run_that_a_later_version_wrote_is_in_nobodys_way(url: str) -> None:
    """Q205: its message has a part of an unknown kind. All other threads are there."""
    async with Sessions(loop_of(StrictLLM()), url) as sessions:
        assert (await sessions.run("t", "go")).finish_reason == "final"
    later = '{"role":"user","content":[{"type":"hologram"}],"id":"m","timestamp":1}'
    async with await open_database(url) as database:
        await database.write(
            lambda connection: connection.execute(
                update(agent_runs).values(message=later, state="running", owner="elsewhere/1/1/1")
            )
        )
    async with Sessions(loop_of(StrictLLM()), url) as sessions:
        assert [run.message for run in await sessions.open_runs("t")] == [None]
        assert (await sessions.run("other", "go")).finish_reason == "final"


async def test_the_context_is_kept_with_a_run_that_waits(store_url: str | None) -> None:
    """Design 5: what the host application showed goes with the message."""
    seen: list[Any] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context.context)
        return "ok"

    context = AgentContext("p", playback_time_ms=12.5)
    async with Sessions(AgentLoop(ScriptedLLM([("look", {})], "so"), tools=[look]), store_url) as sessions:
        run = await sessions.start("t", "go", context=context)
        await all_of(sessions, run.run_id)
        assert (await sessions.find(run.run_id)).context is not None
    assert seen == [context]


async def test_the_progress_of_a_long_job_is_recorded_now_and_then(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 6: who comes later, or reads in another process, sees how far a long tool is."""
    monkeypatch.setattr(journal, "PROGRESS", 0.05)

    @tool
    async def long(context: ToolContext) -> str:
        """Take long."""
        for n in range(30):
            context.progress(n / 30, f"part {n}")
            await asyncio.sleep(0.01)
        return "done"

    loop = AgentLoop(StrictLLM(ToolCall("c1", "long", {})), tools=[long])
    async with Sessions(loop, url) as sessions:
        run = await sessions.start("t", "go")
        await all_of(sessions, run.run_id)
    async with Sessions(loop, url) as sessions:
        told = await all_of(sessions, run.run_id)
    progress = [event for event in told if event.type == "tool_progress"]
    assert 2 <= len(progress) <= 10
    assert [event.seq for event in told] == list(range(1, len(told) + 1))
