"""Where the rows of a thread may be parted: between turns, and never between a call and its answer."""

from collections.abc import Sequence

from playhead.llm.window import window
from playhead.storage.base import TurnRow
from playhead.types import AssistantMessage, ToolMessage
from playhead.waiting import left_open


def borders(rows: Sequence[TurnRow]) -> list[int]:
    """Return the places, 0 the first, where what stands before can be left out of the rows of a thread.

    A turn begins there, no row from there on answers a call before it or was written before it, and
    no call before it can still be answered.
    """
    first_split = _still_open(rows)
    asked: dict[str, int] = {}
    reach = [0] * (len(rows) + 1)  # how many more places are inside a pair, from here on and up to here
    for n, row in enumerate(rows):
        if isinstance(row.message, AssistantMessage):
            asked.update((call.id, n) for call in row.message.tool_calls)
        elif isinstance(row.message, ToolMessage):
            start = asked.pop(row.message.tool_call_id, n)
            reach[start + 1] += 1
            reach[n + 1] -= 1
    found, inside, highest = [], 0, 0
    for n, row in enumerate(rows):
        inside += reach[n]
        begins = not n or row.turn_id != rows[n - 1].turn_id
        if begins and not inside and n <= first_split and row.seq > highest:
            found.append(n)
        highest = max(highest, row.seq)
    return found


def _still_open(rows: Sequence[TurnRow]) -> int:
    """The place of the last message with calls, if some of them have no answer yet; else the end."""
    asked, calls, _ = left_open([row.message for row in rows])
    if not calls:
        return len(rows)
    return next(n for n, row in enumerate(rows) if row.message is asked)


def fitting(rows: Sequence[TurnRow], tokens: float | None) -> Sequence[TurnRow]:
    """Return the rows of the last turns that have so many tokens, as estimated; the last turn always."""
    if tokens is None or not rows:
        return rows
    shown = window([row.message for row in rows], tokens=tokens, starts=borders(rows))
    return rows[len(rows) - len(shown) :]
