"""A client as strict as one can be: it takes each thing once, and notices what is missing."""

from typing import Any

import msgspec

from playhead.events import Attempt, ReasoningDelta, TextDelta
from playhead.session.shown import Shown


class Client:
    """What a page knows of a thread, from events alone, over any number of connections.

    A text delta must begin where the text ends; a recorded event must come after the last one.
    Reasoning has no place that can be resumed from, so it may be told again, though not with a gap.

    Args:
        id: where it goes on from, with its `seq`; it knows nothing of what came before.
    """

    def __init__(self, id: str | None = None, seq: int = 0) -> None:
        self.id = id
        self.seq = seq
        self.texts: dict[str, str] = {}
        self.reasoning: dict[str, str] = {}
        self.recorded: list[dict[str, Any]] = []
        self.over: set[str] = set()
        self._in_step: set[str] = set()

    def take(self, shown: Shown) -> None:
        self.id = shown.id or self.id
        event = shown.event
        if shown.seq is not None:
            assert shown.seq > self.seq, f"{shown.type} {shown.seq} came after {self.seq}"
            self.seq = shown.seq
        if isinstance(event, TextDelta | ReasoningDelta):
            self._grow(event)
            return
        if isinstance(event, Attempt):
            for message_id in self._in_step:
                self.texts.pop(message_id, None)
                self.reasoning.pop(message_id, None)
            self._in_step.clear()
            return
        if shown.seq is None:
            return
        if shown.type in ("step_start", "step_end"):
            self._in_step.clear()
        self.recorded.append({**msgspec.json.decode(shown.data), "seq": shown.seq})
        if shown.type in ("run_end", "run_paused"):
            self.over.add(event.run_id)

    def _grow(self, event: TextDelta | ReasoningDelta) -> None:
        texts = self.texts if isinstance(event, TextDelta) else self.reasoning
        held = texts.get(event.message_id, "")
        assert event.offset <= len(held), f"characters {len(held)} to {event.offset} are missing"
        if isinstance(event, TextDelta):
            assert event.offset == len(held), f"characters {event.offset} to {len(held)} came twice"
        texts[event.message_id] = held[: event.offset] + event.text
        self._in_step.add(event.message_id)

    @property
    def known(self) -> tuple[Any, ...]:
        return self.texts, self.reasoning, self.recorded
