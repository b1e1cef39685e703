"""Calls that wait for a person or a client, over a restart, two tabs and clients that lie."""

import asyncio
from typing import Any

import pytest

from playhead import AgentLoop, tool
from playhead.errors import StoreError
from playhead.events import EmitDelta, RunPaused, ToolResultEvent
from playhead.session.sessions import Sessions
from playhead.testing import ScriptedLLM
from playhead.types import AssistantMessage, LLMRequest, LLMResult, ToolCall, ToolMessage
from tests.session.models import Holding, StrictLLM, assert_valid
from tests.session.readers import all_of, terminals

pytestmark = pytest.mark.anyio


async def approve(sessions: Sessions) -> None:
    """Say yes to the one call that waits, and see its run end."""
    ((run_id, call),) = await sessions.pending("t")
    answer = await sessions.answer(run_id, call.call.id, approved=True)
    assert terminals(await all_of(sessions, answer.run_id)) == ["run_end"]


class Till:
    """A tool that asks for approval, one of the client, and what was paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @tool(approval=True)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        @tool(client=True)
        async def seek(seconds: float) -> None:
            """Move the playhead."""

        self.tools: list[Any] = [pay, seek]

    def loop(self, *script: Any, **named: Any) -> AgentLoop:
        return AgentLoop(ScriptedLLM(*script, **named), tools=self.tools)


PAY = ("pay", {"amount": 5})
SEEK = ("seek", {"seconds": 1.5})


async def paused(sessions: Sessions, **named: Any) -> tuple[str, list[tuple[str, str]]]:
    """The run that paused, and its open calls with the hashes of their arguments."""
    run = await sessions.start("t", "go", **named)
    events = await all_of(sessions, run.run_id, **named)
    assert (terminals(events), type(events[-1])) == (["run_paused"], RunPaused)
    waiting = await sessions.waiting(run.run_id, **named)
    return run.run_id, [(call.call.id, call.args_hash) for call in waiting]


async def test_an_answer_goes_on_with_the_turn_after_a_restart(url: str) -> None:
    """Q241: `paused` ends the run and its stream; the answer is a new run of the same turn."""
    till = Till()
    async with Sessions(till.loop([PAY]), url) as sessions:
        run_id, ((call_id, hashed),) = await paused(sessions)
        assert till.paid == []
    async with Sessions(till.loop("thank you"), url) as sessions:
        (waiting,) = await sessions.pending("t")
        assert (waiting[0], waiting[1].call.args, waiting[1].kind) == (run_id, {"amount": 5}, "approval")
        answer = await sessions.answer(run_id, call_id, args_hash=hashed, approved=True)
        events = await all_of(sessions, answer.run_id)
        assert terminals(events) == ["run_end"]
        first = await sessions.find(run_id)
        assert (answer.turn_id, answer.run_id != run_id) == (first.turn_id, True)
        history = await sessions.history("t")
        assert await sessions.pending("t") == ()
    assert till.paid == [5]
    assert [m.role for m in history] == ["user", "assistant", "tool", "assistant"]
    assert_valid(history)
    (result,) = [event.result for event in events if isinstance(event, ToolResultEvent)]
    assert result.result == "paid 5"


async def test_an_approval_may_change_the_arguments(store_url: str | None) -> None:
    till = Till()
    async with Sessions(till.loop([PAY], "so"), store_url) as sessions:
        run_id, ((call_id, _),) = await paused(sessions)
        answer = await sessions.answer(run_id, call_id, approved=True, args={"amount": 3})
        await all_of(sessions, answer.run_id)
    assert till.paid == [3]


async def test_a_denial_is_told_to_the_model_with_its_reason(store_url: str | None) -> None:
    till = Till()
    async with Sessions(till.loop([PAY], "so"), store_url) as sessions:
        run_id, ((call_id, _),) = await paused(sessions)
        answer = await sessions.answer(run_id, call_id, approved=False, reason="too much")
        await all_of(sessions, answer.run_id)
        (said,) = [m for m in await sessions.history("t") if isinstance(m, ToolMessage)]
    assert (till.paid, said.is_error) == ([], True)
    assert "too much" in said.content


async def test_several_calls_are_answered_one_by_one_in_any_order(store_url: str | None) -> None:
    """Q241: each answer is a run; the turn goes on with the last of them; any run of it may be named."""
    till = Till()
    async with Sessions(till.loop([PAY, SEEK, ("pay", {"amount": 7})], "so"), store_url) as sessions:
        run_id, calls = await paused(sessions)
        (first, _), (seek, _), (last, _) = calls
        runs = [
            await sessions.answer(run_id, last, approved=True),
            await sessions.answer(run_id, seek, result=None),
            await sessions.answer(run_id, first, approved=False),
        ]
        ends = [terminals(await all_of(sessions, run.run_id)) for run in runs]
        assert ends == [["run_paused"], ["run_paused"], ["run_end"]]
        history = await sessions.history("t")
        assert len({m.id for m in history}) == len(history)
        assert [m.content for m in history][-1] == "so"
    assert till.paid == [7]


async def test_steps_of_the_runs_of_one_turn_do_not_take_each_others_ids(store_url: str | None) -> None:
    """S4: what a later run of the turn says in its first step is not taken for the earlier one's."""
    till = Till()
    async with Sessions(till.loop([PAY], [PAY], "so"), store_url) as sessions:
        run_id, ((call_id, _),) = await paused(sessions)
        second = await sessions.answer(run_id, call_id, approved=True)
        assert terminals(await all_of(sessions, second.run_id)) == ["run_paused"]
        (waiting,) = await sessions.waiting(second.run_id)
        third = await sessions.answer(second.run_id, waiting.call.id, approved=True)
        assert terminals(await all_of(sessions, third.run_id)) == ["run_end"]
        history = await sessions.history("t")
    assert till.paid == [5, 5]
    assert [m.role for m in history] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


class Counting:
    """Asks to pay until it was paid twice, under ids that are counted anew in each response."""

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        paid = sum(isinstance(message, ToolMessage) for message in request.messages)
        if paid == 2:
            return LLMResult(AssistantMessage("so"), "stop")
        call = ToolCall("call_0", *PAY)
        return LLMResult(AssistantMessage("", [call]), "tool_calls")


async def test_a_call_whose_id_comes_again_in_its_turn_can_be_answered(store_url: str | None) -> None:
    """Q034, Q220: what waits is kept by turn and call; each waits for an answer of its own."""
    till = Till()
    async with Sessions(AgentLoop(Counting(), tools=till.tools), store_url) as sessions:
        run_id, ((call_id, _),) = await paused(sessions)
        second = await sessions.answer(run_id, call_id, approved=True)
        assert terminals(await all_of(sessions, second.run_id)) == ["run_paused"]
        (waiting,) = await sessions.waiting(second.run_id)
        third = await sessions.answer(second.run_id, waiting.call.id, approved=True)
        assert terminals(await all_of(sessions, third.run_id)) == ["run_end"]
        assert (await sessions.history("t"))[-1].content == "so"
    assert (call_id, till.paid) == ("call_0", [5, 5])


async def test_arguments_may_hold_half_a_surrogate_pair(store_url: str | None) -> None:
    """Q202: JSON can carry it, UTF-8 cannot; the call waits like any other."""
    noted: list[str] = []

    @tool(approval=True)
    async def note(text: str) -> None:
        """Note."""
        noted.append(text)

    loop = AgentLoop(StrictLLM(ToolCall("c1", "note", {"text": "a\ud83d"})), tools=[note])
    async with Sessions(loop, store_url) as sessions:
        run_id, ((call_id, hashed),) = await paused(sessions)
        run = await sessions.answer(run_id, call_id, args_hash=hashed, approved=True)
        assert terminals(await all_of(sessions, run.run_id)) == ["run_end"]
    assert [text[0] for text in noted] == ["a"]


async def test_an_answer_is_taken_once(store_url: str | None) -> None:
    """Q220: a second tab, a double click, a retry: one of them is taken, the tool runs once."""
    till = Till()
    async with Sessions(till.loop([PAY], "so"), store_url) as sessions:
        run_id, ((call_id, hashed),) = await paused(sessions)
        given = [sessions.answer(run_id, call_id, args_hash=hashed, approved=True) for _ in range(5)]
        outcomes = await asyncio.gather(*given, return_exceptions=True)
        taken = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
        assert (len(taken), {error.code for error in refused}) == (1, {"conflict"})
        await all_of(sessions, taken[0].run_id)
    assert till.paid == [5]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"args_hash": "0" * 32, "approved": True}, "conflict"),
    ({"result": "I paid"}, "invalid"),
    ({}, "invalid"),
    ({"approved": "yes"}, "invalid"),
    ({"approved": 1}, "invalid"),
    ({"approved": True, "args": [5]}, "invalid"),
    ({"approved": False, "args": {"amount": 1}}, "invalid"),
    ({"call_id": "nope", "approved": True}, "not_found"),
    ({"run_id": "nope", "approved": True}, "not_found"),
    ({"tenant": "other", "approved": True}, "not_found"),
    ({"approved": True, "role": "system"}, "invalid"),
]


@pytest.mark.parametrize(("given", "code"), WRONG, ids=range(len(WRONG)))
async def test_an_answer_that_does_not_fit_is_refused(
    given: dict[str, Any], code: str, store_url: str | None
) -> None:
    """Q188, Q220: bound to run, call and arguments; of the right kind; of the right tenant."""
    till = Till()
    async with Sessions(till.loop([PAY], "so"), store_url) as sessions:
        run_id, ((call_id, hashed),) = await paused(sessions)
        named: dict[str, Any] = {"run_id": run_id, "call_id": call_id, **given}
        with pytest.raises(StoreError) as caught:
            await sessions.answer(named.pop("run_id"), named.pop("call_id"), **named)
        assert caught.value.code == code
        assert till.paid == []
        answer = await sessions.answer(run_id, call_id, args_hash=hashed, approved=True)
        await all_of(sessions, answer.run_id)
    assert till.paid == [5]


async def test_a_client_tool_takes_no_approval(store_url: str | None) -> None:
    till = Till()
    async with Sessions(till.loop([SEEK], "so"), store_url) as sessions:
        run_id, ((call_id, _),) = await paused(sessions)
        with pytest.raises(StoreError) as caught:
            await sessions.answer(run_id, call_id, approved=True)
        assert caught.value.code == "invalid"
        answer = await sessions.answer(run_id, call_id, error="the player is closed")
        await all_of(sessions, answer.run_id)
        (said,) = [m for m in await sessions.history("t") if isinstance(m, ToolMessage)]
    assert (said.content, said.is_error) == ("the player is closed", True)


async def test_an_answer_that_comes_too_late_is_not_taken(store_url: str | None) -> None:
    """Q220: an approval expires."""
    till = Till()
    async with Sessions(till.loop([PAY], "so"), store_url, approval_seconds=0) as sessions:
        run = await sessions.start("t", "go")
        await all_of(sessions, run.run_id)
        await asyncio.sleep(0.01)
        assert await sessions.waiting(run.run_id) == []
        with pytest.raises(StoreError, match="too long") as caught:
            await sessions.answer(run.run_id, "call_1", approved=True)
        assert caught.value.code == "conflict"
    assert till.paid == []


async def test_a_new_message_instead_of_an_answer_is_a_no(store_url: str | None) -> None:
    """Design 4: the open call is closed as denied, and an answer after it is late."""
    till = Till()
    async with Sessions(till.loop([PAY], "as you like", default="again"), store_url) as sessions:
        run_id, ((call_id, _),) = await paused(sessions)
        assert (await sessions.run("t", "never mind")).text == "as you like"
        with pytest.raises(StoreError) as caught:
            await sessions.answer(run_id, call_id, approved=True)
        assert caught.value.code == "conflict"
        assert await sessions.pending("t") == ()
        history = await sessions.history("t")
        (said,) = [m for m in history if isinstance(m, ToolMessage)]
        assert "Not approved" in said.content
        assert (await sessions.run("t", "go on")).text == "again"
    assert till.paid == []


async def test_a_message_that_was_taken_back_denies_nothing(store_url: str | None) -> None:
    """Design 4: it was not said; what waits still does."""
    till = Till()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def held(request: Any) -> Any:
        begun.set()
        await go_on.wait()
        return [PAY]

    async with Sessions(till.loop(held, "so"), store_url) as sessions:
        run = await sessions.start("t", "go")
        await begun.wait()
        await sessions.cancel((await sessions.start("t", "never mind")).run_id)
        go_on.set()
        await all_of(sessions, run.run_id)
        await approve(sessions)
    assert till.paid == [5]


async def test_a_message_that_steered_the_run_denies_nothing_of_it(store_url: str | None) -> None:
    """Design 4: it was said before the call that waits."""
    till, holding = Till(), Holding()
    till.tools.append(holding.tool)
    async with Sessions(till.loop([("hold", {})], [PAY], "so"), store_url) as sessions:
        run = await sessions.start("t", "go")
        await holding.begun.wait()
        await sessions.start("t", "and pay", policy="steer")
        holding.go_on.set()
        await all_of(sessions, run.run_id)
        await approve(sessions)
    assert till.paid == [5]


async def test_an_answer_to_a_run_that_is_at_work_or_over_is_refused(store_url: str | None) -> None:
    """Bad input: nothing of such a run waits."""
    till = Till()
    async with Sessions(till.loop("so"), store_url) as sessions:
        run = await sessions.start("t", "go")
        await all_of(sessions, run.run_id)
        with pytest.raises(StoreError) as caught:
            await sessions.answer(run.run_id, "call_1", approved=True)
        assert caught.value.code == "not_found"
