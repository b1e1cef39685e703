"""Reading the events of a run in tests."""

import asyncio
from contextlib import aclosing
from typing import Any

from playhead.events import Event, RunEnd, TextDelta
from playhead.session.sessions import Sessions


async def all_of(sessions: Sessions, run_id: str, **named: Any) -> list[Event]:
    async with asyncio.timeout(10):
        return [event async for event in sessions.events(run_id, **named)]


def terminals(events: list[Event]) -> list[str]:
    return [event.type for event in events if event.type in ("run_end", "run_paused")]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def ends(sessions: Sessions, thread: str, many: int) -> list[RunEnd]:
    """Wait for so many runs of a thread to end."""
    found: list[RunEnd] = []
    async with asyncio.timeout(20), aclosing(sessions.thread_events(thread)) as events:
        async for event in events:
            if isinstance(event, RunEnd):
                found.append(event)
                if len(found) == many:
                    break
    return found
