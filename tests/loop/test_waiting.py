"""Calls that wait for a person or a client: pause, answer, go on in the same turn. Issue 4."""

from collections.abc import Sequence
from typing import Any

import pytest

from playhead import (
    AgentLoop,
    AgentRunResult,
    AssistantMessage,
    CallAnswer,
    ChatMessage,
    Event,
    LLMResult,
    ToolCall,
    UserMessage,
    tool,
)
from playhead.events import RunPaused
from tests.loop.support import Scripted, assert_pairs, text

pytestmark = pytest.mark.anyio

paid: list[int] = []


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    paid.append(amount)
    return f"paid {amount}"


@tool(approval=lambda args, context: args["amount"] > 100)
async def pay_large(amount: int) -> str:
    """Pay; large sums are asked for."""
    paid.append(amount)
    return f"paid {amount}"


@tool(client=True)
async def seek(seconds: float) -> None:
    """Move the playhead of the page."""


@tool
async def look() -> str:
    """Look."""
    return "seen"


def asks(*calls: tuple[str, dict[str, Any]]) -> LLMResult:
    made = [ToolCall(f"c{n}", name, args) for n, (name, args) in enumerate(calls)]
    return LLMResult(AssistantMessage("", made), "tool_calls")


def loop_of(*answers: LLMResult) -> tuple[AgentLoop, Scripted]:
    model = Scripted(*answers)
    return AgentLoop(model, tools=[pay, pay_large, seek, look]), model


async def go_on(
    loop: AgentLoop, first: AgentRunResult, *answers: CallAnswer, said: str | None = None
) -> AgentRunResult:
    history: list[ChatMessage] = [*first.messages, *([UserMessage(said)] if said else [])]
    return await loop.run(history, answers=answers, turn_id=first.turn_id)


def results(messages: Sequence[ChatMessage]) -> dict[str, str]:
    return {m.tool_call_id: m.content for m in messages if m.role == "tool"}


async def test_a_call_that_wants_approval_ends_the_run_as_paused() -> None:
    """Q241: the other calls of the step have run; nothing waits on a worker; `run_paused` is last."""
    loop, _ = loop_of(asks(("look", {}), ("pay", {"amount": 5})))
    events: list[Event] = [event async for event in loop.stream("pay")]
    end = events[-1]
    assert isinstance(end, RunPaused)
    assert end.result.finish_reason == "paused"
    assert [(c.name, c.args) for c in end.result.pending] == [("pay", {"amount": 5})]
    assert results(end.result.messages) == {"c0": "seen"}
    assert paid == []
    assert sum(e.type in ("run_end", "run_paused") for e in events) == 1


async def test_an_approval_starts_a_new_run_of_the_same_turn() -> None:
    """Design 4: the open call runs as step 0, then the model goes on."""
    loop, model = loop_of(asks(("pay", {"amount": 5})), text("done"))
    first = await loop.run("pay")
    second = await go_on(loop, first, CallAnswer("c0", approved=True))
    assert (second.finish_reason, second.text, paid) == ("final", "done", [5])
    assert second.turn_id == first.turn_id
    assert second.messages[0].id.startswith(f"{first.turn_id}/")
    ids = [message.id for message in [*first.messages, *second.messages]]
    assert len(set(ids)) == len(ids), "the steps of both runs have the same numbers"
    assert_pairs([*first.messages, *second.messages])
    assert results(model.requests[1].messages) == {"c0": "paid 5"}


async def test_an_approval_may_change_the_arguments() -> None:
    """Issue 5: edited arguments are what runs."""
    loop, _ = loop_of(asks(("pay", {"amount": 500})), text())
    first = await loop.run("pay")
    await go_on(loop, first, CallAnswer("c0", approved=True, args={"amount": 3}))
    assert paid == [3]


@pytest.mark.parametrize("answer", [CallAnswer("c0", approved=False, reason="too much"), CallAnswer("c0")])
async def test_a_no_is_told_to_the_model_and_nothing_runs(answer: CallAnswer) -> None:
    """Q187: only a plain yes runs the tool."""
    loop, model = loop_of(asks(("pay", {"amount": 5})), text("then not"))
    second = await go_on(loop, await loop.run("pay"), answer)
    assert paid == []
    assert second.text == "then not"
    told = results(model.requests[1].messages)["c0"]
    assert "Not approved" in told
    assert (answer.reason or "") in told


async def test_a_new_message_instead_of_an_answer_is_a_no() -> None:
    """Q187: the call gets its result, then the text is processed."""
    loop, model = loop_of(asks(("pay", {"amount": 5})), text("never mind, then"))
    first = await loop.run("pay")
    second = await go_on(loop, first, said="forget it")
    assert (second.finish_reason, paid) == ("final", [])
    assert "new message" in results(model.requests[1].messages)["c0"]
    assert model.requests[1].messages[-2].content == "forget it"


async def test_what_is_not_answered_yet_goes_on_waiting() -> None:
    """Several calls may be answered one by one; the answered ones have run, once."""
    loop, _ = loop_of(asks(("pay", {"amount": 1}), ("pay", {"amount": 2})), text("both"))
    first = await loop.run("pay")
    assert [c.id for c in first.pending] == ["c0", "c1"]
    second = await go_on(loop, first, CallAnswer("c1", approved=True))
    assert (second.finish_reason, [c.id for c in second.pending], paid) == ("paused", ["c0"], [2])
    history = [*first.messages, *second.messages]
    third = await loop.run(history, answers=[CallAnswer("c0", approved=True)], turn_id=first.turn_id)
    assert (third.text, paid) == ("both", [2, 1])


async def test_a_tool_may_ask_only_for_some_calls() -> None:
    """`approval` as a function of the arguments and the context."""
    loop, _ = loop_of(asks(("pay_large", {"amount": 50})), asks(("pay_large", {"amount": 500})))
    result = await loop.run("pay")
    assert (result.finish_reason, paid) == ("paused", [50])


async def test_a_call_that_is_invalid_is_refused_at_once() -> None:
    """Nobody is asked about a call that cannot run."""
    loop, _ = loop_of(asks(("pay", {"amount": "much"})), text())
    result = await loop.run("pay")
    assert result.finish_reason == "final"
    assert "amount" in results(result.messages)["c0"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (CallAnswer("c0", result={"at": 12.5}), '{"at":12.5}'),
        (CallAnswer("c0"), "null"),
        (CallAnswer("c0", error="the player is gone"), "the player is gone"),
    ],
)
async def test_a_tool_of_the_client_is_executed_there(answer: CallAnswer, told: str) -> None:
    """Issue 4: its result or its error is what the front end says, encoded like any other."""
    loop, model = loop_of(asks(("seek", {"seconds": 12.5})), text("there"))
    first = await loop.run("go to 0:12")
    assert [c.name for c in first.pending] == ["seek"]
    await go_on(loop, first, answer)
    assert results(model.requests[1].messages)["c0"] == told


async def test_an_answer_to_a_call_that_does_not_wait_does_nothing() -> None:
    """A forged or late answer runs nothing twice."""
    loop, _ = loop_of(asks(("pay", {"amount": 5})), text("done"), text("again"))
    first = await loop.run("pay")
    second = await go_on(loop, first, CallAnswer("c0", approved=True))
    history = [*first.messages, *second.messages, UserMessage("and now?")]
    await loop.run(history, answers=[CallAnswer("c0", approved=True), CallAnswer("zz", approved=True)])
    assert paid == [5]


async def test_a_call_that_a_crash_left_open_is_not_taken_for_a_denied_one() -> None:
    """Only calls that wait are answered as denied; the normaliser sees to the others."""
    loop, model = loop_of(text("ok"))
    history: list[ChatMessage] = [UserMessage("x"), AssistantMessage("", [ToolCall("c0", "look", {})])]
    await loop.run([*history, UserMessage("hello?")])
    assert results(model.requests[0].messages) == {}
