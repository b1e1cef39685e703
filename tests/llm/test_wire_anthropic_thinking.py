"""Thinking goes back to the model that thought it, byte for byte and in its place, or not at all. Q161."""

import json
from typing import Any

import pytest

from playhead import UserMessage
from playhead.events import ReasoningDelta, TextDelta
from playhead.types import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
)
from tests.llm.anthropic_wire import (
    DONE,
    Block,
    Event,
    Log,
    asks,
    delta,
    events,
    redacted,
    run,
    sent,
    started,
    stopped,
    text,
    thinks,
    turn,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["stream", "whole"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------- thinking

SIGNATURE = "EqoBCkgIARABGAIiQL2UoU0b1OHYi+Zz" + "A/+=" * 300
THOUGHTS: list[tuple[list[Block], list[Block]]] = [
    ([thinks("r", SIGNATURE), asks("now")], [thinks("r", SIGNATURE), asks("now")]),
    ([thinks("", SIGNATURE), asks("now")], [thinks("", SIGNATURE), asks("now")]),
    ([redacted(), asks("now")], [redacted(), asks("now")]),
    (
        [thinks("a", "S1"), redacted("r"), thinks("b", "S2"), asks("now")],
        [thinks("a", "S1"), redacted("r"), thinks("b", "S2"), asks("now")],
    ),
    (
        [thinks("é\n🎬 \\u00e9"), text("Let me look."), asks("now")],
        [thinks("é\n🎬 \\u00e9"), text("Let me look."), asks("now")],
    ),
    (
        [thinks("a", "S1"), text("one"), thinks("b", "S2"), text("two"), asks("now")],
        [thinks("a", "S1"), text("one"), thinks("b", "S2"), text("two"), asks("now")],
    ),
    ([thinks(), text("\n"), asks("now")], [thinks(), asks("now")]),
    (
        [thinks(), asks("now", id="a"), text("so"), asks("now", id="b")],
        [thinks(), text("so"), asks("now", id="a"), asks("now", id="b")],
    ),
    ([asks("now", caller={"type": "direct"})], [asks("now")]),
    ([asks("now", signature="kept")], [asks("now", signature="kept")]),
    (
        [{"type": "server_thing", "data": {"z": 1, "a": [None]}}, asks("now")],
        [{"type": "server_thing", "data": {"z": 1, "a": [None]}}, asks("now")],
    ),
]


@pytest.mark.parametrize(("blocks", "expected"), THOUGHTS)
async def test_q161_thinking_goes_back_as_it_came(
    form: str, blocks: list[Block], expected: list[Block]
) -> None:
    """Q161: byte for byte, in its place before the calls; within the turn, and after the store."""
    seen = await run(turn(*blocks), DONE, turn(text("bye")), form=form, then="thanks")
    assert seen.blocks(1, 1) == seen.blocks(2, 1) == expected
    assert "thinking" not in seen.played.result.text


async def test_q161_within_one_turn_all_thinking_goes_back(form: str) -> None:
    """Q161: each step has its own."""
    steps = [turn(thinks(f"t{n}", f"S{n}"), asks("now", id=f"c{n}")) for n in range(3)]
    seen = await run(*steps, DONE, form=form)
    signed = [b["signature"] for m in (1, 3, 5) for b in seen.blocks(3, m) if b["type"] == "thinking"]
    assert signed == ["S0", "S1", "S2"]


@pytest.mark.parametrize("pieces", [["S1S2"], ["S1", "S2"], ["S1", "S1S2"], ["", "S1S2"]])
async def test_q161_a_signature_in_pieces(pieces: list[str]) -> None:
    """Q161: put together as it is sent: in pieces, or growing."""
    signed = [delta("signature", signature=piece) for piece in pieces]
    call = [started(asks("now"), 1), stopped(1)]
    reply = events(started(thinks("", "")), delta("thinking", thinking="r"), *signed, stopped(), *call)
    seen = await run(reply, DONE, issued=[thinks("r", "S1S2")])
    assert seen.blocks(1, 1)[0] == thinks("r", "S1S2")


@pytest.mark.parametrize("thought", [[], [delta("thinking", thinking="half a tho")]])
async def test_q161_an_unsigned_half_of_a_thought_is_dropped(thought: list[Event]) -> None:
    """Q161: changed or emptied thinking is refused, so it does not go back at all."""
    reply = events(started(thinks("", "")), *thought, ends=False)
    seen = await run(reply, DONE, then="again", retries=0) if thought else await run(reply, retries=0)
    assert all("thinking" not in kinds for kinds in seen.shape())


@pytest.mark.parametrize(
    "change", [{"server": "elsewhere.example"}, {"model": "other"}, {"blocks": []}, "text", "calls"]
)
async def test_thinking_goes_to_nobody_else(change: Any) -> None:
    """Q119, Q161: not to another server or model, and not with a message that was changed."""
    seen = await run(turn(thinks("SECRET", "SIG"), text("so"), asks("now", id="t1")), DONE)
    log = list(seen.played.messages)
    asked = log[1]
    assert isinstance(asked, AssistantMessage)
    metadata = json.loads(json.dumps(asked.provider_metadata))
    changed: dict[str, Any] = {"content": asked.content, "tool_calls": asked.tool_calls}
    if change == "text":
        changed["content"] = "something else"
    elif change == "calls":
        changed["tool_calls"] = (*asked.tool_calls, ToolCall("t2", "f", {}))
    else:
        metadata["anthropic"] |= change
    log[log.index(asked)] = AssistantMessage(provider_metadata=metadata, **changed)
    body = await sent([*log, UserMessage("and now?")])
    assert "SECRET" not in json.dumps(body)
    assert "SIG" not in json.dumps(body)


async def test_thinking_stays_with_a_turn_whose_ids_are_given_anew() -> None:
    """Q035, Q161: an id that was there before gets another one; what was thought is the same."""
    earlier: Log = [
        AssistantMessage("", [ToolCall("t1", "f", {})]),
        ToolMessage("t1", "f", "1"),
        UserMessage("go"),
    ]
    seen = await run(turn(thinks(), asks("now", id="t1")), DONE, history=earlier)
    ids = [seen.blocks(1, message)[-1]["id"] for message in (1, 3)]
    assert len(set(ids)) == 2
    assert seen.shape()[3] == ["assistant", "thinking", "tool_use"]


async def test_reasoning_is_told_apart_from_text(form: str) -> None:
    """Q074: as events and on the message; two thoughts are two paragraphs, and so are two texts."""
    seen = await run(turn(thinks("a"), text("one"), thinks("b"), text("two")), form=form)
    told = "".join(e.text for e in seen.played.events if isinstance(e, ReasoningDelta))
    assert (told, seen.played.result.text) == ("a\n\nb", "one\n\ntwo")
    shown = "".join(e.text for e in seen.played.events if isinstance(e, TextDelta))
    assert shown == seen.played.result.text
