"""Every model call of a run is in the call log, and what is known of providers is shared."""

import asyncio
import logging

import pytest

from playhead import AgentLoop, AIRouter, tool
from playhead.errors import OverloadedError, StoreError
from playhead.llm.attempts import AttemptPolicy, Attempts, Target
from playhead.session.sessions import Sessions
from playhead.storage.calls import CallFilter
from playhead.testing import ScriptedLLM
from playhead.types import CallRecord

pytestmark = pytest.mark.anyio

QUICK = AttemptPolicy(retries=2, backoff=0.001)


async def test_every_attempt_is_a_row_with_its_turn(store_url: str | None) -> None:
    """S20: also those that failed, and those that a tool makes through a router of its own."""
    aside = AIRouter({"intent": [ScriptedLLM("yes")]})

    @tool
    async def classify() -> str:
        """Classify."""
        return (await aside.route("intent", "hello")).message.content

    llm = ScriptedLLM(OverloadedError("busy"), [("classify", {})], "so", default="again")
    async with Sessions(AgentLoop(Attempts([llm], QUICK), tools=[classify]), store_url) as sessions:
        await sessions.run("t", "go", tenant="acme")
        await sessions.run("t", "go on", tenant="other")
        await asyncio.sleep(0.4)
        log = await sessions.calls()
        rows = [row.call for row in reversed(await log.calls(tenant_id="acme"))]
        assert [(row.task, row.status) for row in rows] == [
            ("chat", "error"),
            ("chat", "success"),
            ("intent", "success"),
            ("chat", "success"),
        ]
        history = await sessions.find((await sessions.start("t", "x", tenant="acme")).run_id, tenant="acme")
        assert {row.thread_id for row in rows} == {"t"}
        assert len({row.turn_id for row in rows}) == 1
        assert history.turn_id not in {row.turn_id for row in rows}
        mine = CallFilter(turn_id=rows[0].turn_id)
        assert await log.counts(mine, tenant_id="acme") == {"success": 3, "error": 1}


async def test_what_is_noted_last_is_written_before_the_end(url: str) -> None:
    """S20: closing the sessions loses no row."""
    async with Sessions(AgentLoop(ScriptedLLM("so")), url) as sessions:
        await sessions.run("t", "go")
    async with Sessions(AgentLoop(ScriptedLLM()), url) as sessions:
        assert len(await (await sessions.calls()).calls()) == 1


async def test_a_deleted_thread_leaves_no_row_that_was_still_to_be_written(url: str) -> None:
    """Q206: what waits for company is written before the thread is forgotten, and goes with it."""
    async with Sessions(AgentLoop(ScriptedLLM("so")), url) as sessions:
        await sessions.run("t", "go")
        await sessions.delete("t")
        await asyncio.sleep(0.4)
        assert await (await sessions.calls()).calls() == []


async def test_a_log_that_fails_breaks_no_run(caplog: pytest.LogCaptureFixture) -> None:
    """S20: it is said in the program's own log."""
    async with Sessions(AgentLoop(ScriptedLLM("so"))) as sessions:
        log = await sessions.calls()

        async def record(record: CallRecord) -> None:
            raise StoreError("the disk is full")

        log.record = record  # type: ignore[method-assign]
        with caplog.at_level(logging.WARNING):
            assert (await sessions.run("t", "go")).finish_reason == "final"
            await asyncio.sleep(0.4)
    assert "the disk is full" in caplog.text


async def test_the_states_of_providers_are_shared_by_who_shares_the_database(url: str) -> None:
    """S22: what one process learnt of a provider, the next one knows."""

    def router(sessions: Sessions, bad: ScriptedLLM) -> AIRouter:
        chain = [Target(bad, "bad", "m"), Target(ScriptedLLM(default="good"), "good", "m")]
        return AIRouter(chain, breakers=sessions.breakers, policy=AttemptPolicy(retries=0))

    bad = ScriptedLLM(default=OverloadedError("busy"))
    async with Sessions(AgentLoop(ScriptedLLM()), url) as sessions:
        first = router(sessions, bad)
        for _ in range(8):
            assert (await first.route("chat", "hi")).message.content == "good"
    assert len(bad.requests) == 5, "five errors open it"
    async with Sessions(AgentLoop(ScriptedLLM()), url) as sessions:
        assert (await router(sessions, bad).route("chat", "hi")).message.content == "good"
    assert len(bad.requests) == 5
