"""What a run shows the model of its thread: whole turns, by number and by tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from playhead import AgentLoop, Sessions, tool
from playhead.errors import ConfigError
from playhead.events import EmitDelta
from playhead.llm.history import normalise
from playhead.llm.window import estimate_tokens, window
from playhead.session.borders import borders, fitting
from playhead.storage.base import TurnRow
from playhead.types import (
    AssistantMessage,
    ChatMessage,
    LLMRequest,
    LLMResult,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.session.models import StrictLLM, loop_of
from tests.session.readers import all_of, terminals

pytestmark = pytest.mark.anyio


def rows_of(*turns: Sequence[ChatMessage]) -> list[TurnRow]:
    said = [(f"turn{n}", message) for n, turn in enumerate(turns) for message in turn]
    return [TurnRow("t", turn, seq, message) for seq, (turn, message) in enumerate(said, 1)]


def asks(*ids: str) -> AssistantMessage:
    return AssistantMessage("", [ToolCall(id, "quick", {}) for id in ids])


def told(id: str) -> ToolMessage:
    return ToolMessage(id, "quick", "1")


def texts(messages: Sequence[ChatMessage]) -> list[Any]:
    return [m.content for m in messages]


class NormalisingLLM(StrictLLM):
    """Reads a history as an adapter does: what came late is put in its place."""

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        return await super().generate(replace(request, messages=normalise(request.messages)), emit)


async def paused(sessions: Sessions, text: str) -> str:
    run = await sessions.start("t", text)
    assert terminals(await all_of(sessions, run.run_id)) == ["run_paused"]
    return run.run_id


async def test_a_run_is_shown_as_many_whole_turns_as_fit(tmp_path: Path) -> None:
    """S17: of the last turns those that fit the tokens; the same from memory and after a restart."""
    llm = StrictLLM()
    url = f"sqlite:///{tmp_path / 'p.db'}"
    bound = 3 * round(estimate_tokens(UserMessage("x" * 400)) + estimate_tokens(AssistantMessage("done")))
    for first in (0, 5):
        async with Sessions(loop_of(llm), url, window_tokens=bound) as sessions:
            for n in range(first, first + 5):
                await sessions.run("t", f"{n}" + "x" * 399)
    # Two turns before it fit beside a question.
    assert [len(seen) for seen in llm.seen] == [1, 3, *[5] * 8]
    assert [m.content[0] for m in llm.seen[-1]] == ["7", "d", "8", "d", "9"]


async def test_what_is_asked_now_is_shown_however_large() -> None:
    """S17: the current turn is always there, alone if need be."""
    llm = StrictLLM()
    async with Sessions(loop_of(llm), window_tokens=10) as sessions:
        await sessions.run("t", "small")
        await sessions.run("t", "x" * 4_000)
        await sessions.run("t", "y" * 4_000)
    assert [texts(seen) for seen in llm.seen] == [["small"], ["x" * 4_000], ["y" * 4_000]]


async def test_a_paused_turn_is_shown_whole_to_the_run_that_goes_on_with_it() -> None:
    """S17, Q209: what waits for an answer is neither cut off nor cut apart by any bound."""

    @tool(approval=True)
    async def quick(a: int = 1) -> int:
        """Return the number."""
        return a

    llm = NormalisingLLM(ToolCall("c1", "quick", {"a": 1}))
    async with Sessions(AgentLoop(llm, tools=[quick]), window_tokens=1) as sessions:
        first = await paused(sessions, "x" * 400)
        handle = await sessions.answer(first, "c1", approved=True)
        assert terminals(await all_of(sessions, handle.run_id)) == ["run_end"]
        await paused(sessions, "again")
        # It waits, and a new message says no to it.
        await sessions.run("t", [TextPart("no")])
    assert texts(llm.seen[1]) == ["x" * 400, "", "1"]
    assert texts(llm.seen[2]) == ["again"]
    assert texts(llm.seen[3])[:2] == ["again", ""]
    assert texts(llm.seen[3])[2].startswith("Not approved")


@pytest.mark.parametrize("tokens", [0, -1])
def test_a_bound_that_holds_nothing_is_refused(tokens: int) -> None:
    """S17: misuse says what is wrong."""
    with pytest.raises(ConfigError, match="window_tokens"):
        Sessions(loop_of(StrictLLM()), window_tokens=tokens)


def test_a_call_and_an_answer_in_a_later_turn_are_not_parted() -> None:
    """Q190, Q191, Q209: the answer of a call that a new message passed over stands in the next turn."""
    rows = rows_of(
        [UserMessage("a"), AssistantMessage("b")],
        [UserMessage("c"), asks("x", "y"), told("x")],
        [UserMessage("d"), told("y"), AssistantMessage("e")],
        [UserMessage("f"), AssistantMessage("g")],
        [UserMessage("h"), asks("x"), told("x"), asks("z")],
        [UserMessage("i")],
    )
    assert borders(rows) == [0, 2, 8, 10]
    assert texts([row.message for row in fitting(rows, 1)]) == ["h", "", "1", "", "i"]


def test_turns_that_were_written_into_one_another_are_not_parted() -> None:
    """Q190: what stands before a border was written before it, so that a number says which rows it is."""
    rows = rows_of([UserMessage("a"), AssistantMessage("b")], [UserMessage("c"), AssistantMessage("d")])
    mixed = [rows[0], rows[2], rows[1], rows[3]]
    numbered = [TurnRow("t", row.turn_id, seq, row.message) for seq, row in enumerate(mixed, 1)]
    assert borders(sorted(numbered, key=lambda row: row.turn_id)) == [0]


turns = st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=8)


@given(turns, st.integers(1, 300))
def test_a_window_by_rows_is_a_window_by_messages(calls: list[int], tokens: int) -> None:
    """S17, Q190: one implementation; where turns are as they look, they are cut in the same place."""
    made: list[list[ChatMessage]] = []
    for n, count in enumerate(calls):
        ids = [f"{n}.{c}" for c in range(count)]
        group: list[ChatMessage] = [asks(*ids), *map(told, ids)] if ids else []
        made.append([UserMessage(f"question {n}"), *group, AssistantMessage("answer")])
    rows = rows_of(*made)
    shown = [row.message for row in fitting(rows, tokens)]
    assert shown == window([row.message for row in rows], tokens=tokens)
