"""Reading the events of a run in tests."""

import asyncio
from typing import Any

from playhead.events import Event, TextDelta
from playhead.session.sessions import Sessions


async def all_of(sessions: Sessions, run_id: str, **named: Any) -> list[Event]:
    async with asyncio.timeout(10):
        return [event async for event in sessions.events(run_id, **named)]


def terminals(events: list[Event]) -> list[str]:
    return [event.type for event in events if event.type in ("run_end", "run_paused")]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))
