"""What holds after every case, whatever a provider sent: the three invariants of the wire cases.

1. every call in the stored history has exactly one result, after it and before the next other message;
2. no secret and no raw body of a provider is in anything that a browser is sent;
3. the run ended with exactly one terminal event.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from playhead import AgentLoop, AgentRunResult, AssistantMessage, ChatMessage, ToolMessage
from playhead.events import Event, RunEnd, RunPaused
from playhead.server.wire import event_frame

KEY = "sk-canary-0123456789"
"""The key that the tests' models are made with."""
BODY = "raw-body-canary-77"
"""Stands in what a provider sends that nobody but developers may see."""


@dataclass(frozen=True)
class Played:
    """A run as it was seen, and what is stored of it."""

    events: Sequence[Event]
    result: AgentRunResult
    messages: Sequence[ChatMessage]

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """The calls that were made, with their arguments, or why these could not be read."""
        replies = (m for m in self.messages if isinstance(m, AssistantMessage))
        return [(call.name, call.error or call.args) for reply in replies for call in reply.tool_calls]

    @property
    def outputs(self) -> list[str]:
        """The results of the calls."""
        return [m.content for m in self.messages if isinstance(m, ToolMessage)]


async def play(loop: AgentLoop, history: str | Sequence[ChatMessage]) -> Played:
    """Carry out a turn as a stream, and hold it to the three invariants."""
    events = [event async for event in loop.stream(history)]
    endings = [event for event in events if isinstance(event, RunEnd | RunPaused)]
    assert [type(event) for event in endings] == [RunEnd], "not one terminal event"
    assert events[-1] is endings[0], "the terminal event is not the last one"
    sent = b"".join(map(event_frame, events)).decode()
    for secret in (KEY, BODY):
        assert secret not in sent, f"{secret} was sent to the browser"
    result = endings[0].result
    stored = stored_again([*([] if isinstance(history, str) else history), *result.messages])
    assert_paired(stored)
    assert KEY not in repr(stored)
    return Played(events, result, stored)


def stored_again(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages as they come back from a store: nothing is lost, nothing is changed."""
    again = msgspec.json.decode(msgspec.json.encode(messages), type=list[ChatMessage])
    assert msgspec.json.encode(again) == msgspec.json.encode(messages)
    return again


def assert_paired(messages: Sequence[ChatMessage]) -> None:
    """Every call has exactly one result, behind it, before the next other message."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in waiting, f"a result without a call: {message.tool_call_id}"
            waiting.remove(message.tool_call_id)
            continue
        assert not waiting, f"calls without results: {waiting}"
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.tool_calls]
            assert len(set(waiting)) == len(waiting), "an id comes twice in a message"
            assert all(waiting), "a call without an id"
    assert not waiting, f"calls without results: {waiting}"
