"""Threads and runs as a server or a program uses them."""

import asyncio
from typing import Any

import pytest

from playhead import AgentLoop, connect, tool
from playhead.errors import ConfigError, StoreError
from playhead.session.sessions import Sessions
from playhead.storage.memory_ledger import MemoryLedger
from playhead.testing import FakeProvider, openai_sse
from playhead.types import (
    AgentContext,
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolContext,
    UserMessage,
)
from tests.session.models import CALLS, GateLLM, StrictLLM, loop_of
from tests.session.readers import all_of, terminals

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_and_remembered() -> None:
    """S1: the history is loaded, the turn recorded, over a provider in raw bytes."""
    async with FakeProvider(
        openai_sse(calls=[("quick", {"a": 2}, "c1")]),
        openai_sse("It is ", "two."),
        openai_sse("As I said: two."),
    ) as server:
        loop = loop_of(connect("openai-compatible", "m", "k", f"{server.url}/v1"))
        async with Sessions(loop) as sessions:
            result = await sessions.run("user-42", "how many?")
            again = await sessions.run("user-42", [TextPart("really?")])
            history = await sessions.history("user-42")
        roles = [m["role"] for m in server.requests[2].json["messages"]]
    assert (result.finish_reason, result.text) == ("final", "It is two.")
    assert again.text == "As I said: two."
    assert result.turn_id != again.turn_id
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert [m.role for m in history] == [*roles, "assistant"]
    assert list(result.messages) == list(history[:4])


async def test_the_context_reaches_the_tools() -> None:
    """S6: what is given to `run` is what a tool gets."""
    seen: list[Any] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context.context)
        return "ok"

    context = AgentContext(project_id="p")
    async with Sessions(AgentLoop(StrictLLM(ToolCall("c", "look", {})), tools=[look])) as sessions:
        await sessions.run("t", "go", context=context)
    assert seen == [context]


async def test_messages_of_a_thread_are_answered_in_order_and_none_is_dropped() -> None:
    """One active run per thread; what comes meanwhile waits; other threads do not (Q244)."""
    llm = GateLLM()
    async with Sessions(loop_of(llm)) as sessions:
        first = await sessions.start("t", "m0")
        rest = [await sessions.start("t", f"m{n}") for n in range(1, 6)]
        other = await sessions.start("other", "hi")
        assert next(iter(await sessions.open_runs("t"))).run_id == first.run_id
        await llm.waiting.wait()
        await asyncio.sleep(0)
        assert len(llm.seen) == 2
        llm.gate.set()
        for run in [first, *rest, other]:
            assert terminals(await all_of(sessions, run.run_id)) == ["run_end"]
        history = await sessions.history("t")
        assert await sessions.open_runs("t") == []
    assert [m.content for m in history] == [x for n in range(6) for x in (f"m{n}", "done")]


async def test_the_same_message_again_is_the_same_run() -> None:
    """Sent twice, said once: while it runs, when it is over, and by one id in two threads."""
    llm = GateLLM()
    async with Sessions(loop_of(llm)) as sessions:
        run = await sessions.start("t", "pay", message_id="m1")
        assert await sessions.start("t", "pay", message_id="m1") == run
        assert await sessions.start("t", UserMessage("pay", id="m1")) == run
        elsewhere = await sessions.start("u", "pay", message_id="m1")
        assert elsewhere.run_id != run.run_id
        llm.gate.set()
        results = [await sessions.run("t", "pay", message_id="m1") for _ in range(2)]
        assert {(result.turn_id, result.text) for result in results} == {(run.turn_id, "done")}
        assert len(await sessions.history("t")) == 2
        await all_of(sessions, elsewhere.run_id)
    assert len(llm.seen) == 2


async def test_the_same_message_is_harmless_when_its_run_is_forgotten() -> None:
    """The thread still knows the message: it is neither said nor answered again."""
    llm = StrictLLM(*CALLS)
    async with Sessions(loop_of(llm), keep_runs=0) as sessions:
        first = await sessions.run("t", "pay", message_id="m1")
        calls = len(llm.seen)
        again = await sessions.run("t", "pay", message_id="m1")
        assert len(await sessions.history("t")) == 5
    assert len(llm.seen) == calls
    assert (again.turn_id, again.text, again.finish_reason) == (first.turn_id, "done", "final")
    assert {m.id for m in again.messages} == {m.id for m in first.messages}


async def test_a_forgotten_message_without_an_answer_is_not_run_again() -> None:
    """What became of its tools is unknown: saying so is harmless, running them again is not."""
    store = MemoryLedger()
    await store.turns.append("t", UserMessage("pay", id="m1"), turn_id="a")
    await store.turns.append("t", AssistantMessage("", CALLS), turn_id="a", step_index=1)
    llm = StrictLLM()
    async with Sessions(loop_of(llm), store) as sessions:
        again = await sessions.run("t", "pay", message_id="m1")
        assert (await sessions.run("t", "and now?")).text == "done"
    assert (again.finish_reason, again.error_code) == ("error", "interrupted")
    assert len(llm.seen) == 1


async def test_finished_runs_are_forgotten() -> None:
    """Memory is bounded, by count and by age; what was said stays in the thread."""
    async with Sessions(loop_of(StrictLLM()), keep_runs=3) as sessions:
        runs = [await sessions.start(f"t{n % 2}", "hi") for n in range(8)]
        await asyncio.gather(*(all_of(sessions, run.run_id) for run in runs))
        await sessions.run("u", "hi")
        known = [run for run in runs if await _known(sessions, run.run_id)]
        assert len(known) == 3
        assert len(await sessions.history("t0")) == 8
    async with Sessions(loop_of(StrictLLM()), keep_for=0) as sessions:
        run = await sessions.start("t", "hi")
        await all_of(sessions, run.run_id)
        await sessions.run("u", "hi")
        assert not await _known(sessions, run.run_id)


async def _known(sessions: Sessions, run_id: str) -> bool:
    try:
        await sessions.find(run_id)
    except StoreError:
        return False
    return True


@pytest.mark.parametrize("tenants", [(None, "acme"), ("acme", None), ("acme", "other")])
async def test_tenants_never_see_each_other(tenants: tuple[str | None, str | None]) -> None:
    """S19: neither threads, nor runs, nor who is active."""
    mine, theirs = tenants
    llm = GateLLM()
    async with Sessions(loop_of(llm)) as sessions:
        run = await sessions.start("t", "secret", tenant=mine)
        assert await sessions.open_runs("t", tenant=theirs) == []
        with pytest.raises(StoreError) as caught:
            await all_of(sessions, run.run_id, tenant=theirs)
        assert caught.value.code == "not_found"
        with pytest.raises(StoreError):
            await sessions.cancel(run.run_id, tenant=theirs)
        llm.gate.set()
        await sessions.run("t", "hi", tenant=theirs)
        assert len(await all_of(sessions, run.run_id, tenant=mine)) > 2
        assert [m.content for m in await sessions.history("t", tenant=theirs)] == ["hi", "done"]


@pytest.mark.parametrize(
    ("thread", "message"),
    [("", "hi"), ("t", AssistantMessage("I said")), ("t", ToolCall)],
    ids=["no-thread", "no-user-message", "no-message"],
)
async def test_what_cannot_begin_a_run_is_refused(thread: str, message: Any) -> None:
    """A clear error, and the thread stays empty."""
    async with Sessions(loop_of(StrictLLM())) as sessions:
        with pytest.raises(StoreError) as caught:
            await sessions.start(thread, message)
        assert caught.value.code == "invalid"
        assert await sessions.history("t") == ()


@pytest.mark.parametrize("limit", ["window", "keep_runs", "keep_for", "stop_timeout"])
async def test_limits_out_of_range_are_refused(limit: str) -> None:
    """A setting that makes no sense is named."""
    limits: dict[str, Any] = {limit: -1}
    with pytest.raises(ConfigError, match=f"{limit} is -1"):
        Sessions(loop_of(StrictLLM()), **limits)


async def test_a_thread_is_not_followed_once_the_sessions_are_closed() -> None:
    """A reader that would wait for ever is told so."""
    sessions = Sessions(loop_of(StrictLLM()))
    await sessions.run("t", "hi")
    await sessions.aclose()
    with pytest.raises(StoreError) as caught:
        await anext(sessions.thread_events("t"))
    assert caught.value.code == "stopping"


async def test_an_unknown_run_is_said_to_be_unknown() -> None:
    """`not_found`, for events and for cancel alike."""
    async with Sessions(loop_of(StrictLLM())) as sessions:
        with pytest.raises(StoreError, match="'nope'") as caught:
            await all_of(sessions, "nope")
        assert caught.value.code == "not_found"
        with pytest.raises(StoreError):
            await sessions.cancel("nope")
        assert await sessions.open_runs("nope") == []
        assert await sessions.history("nope") == ()
