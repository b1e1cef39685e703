"""The items of a response of the Responses API: as they arrive, and as they go back.

What cannot be made again from the message (reasoning, which is encrypted) is kept as it came. Text
is kept as a range of the message's text, a call by its place.
"""

from collections.abc import Sequence
from typing import Any

from playhead.llm.kept import is_storable
from playhead.types import JsonObject

MADE_AGAIN = ("message", "function_call")
"""Kinds of items that are made again from the message."""


class Item:
    """One item of the output as it arrives. `start` and `end` say which part of the text it is."""

    __slots__ = ("done", "end", "kind", "pieces", "place", "raw", "start")

    def __init__(self, place: int, raw: JsonObject) -> None:
        self.place = place
        self.raw = raw
        self.kind = str(raw.get("type") or "")
        self.done = False
        self.pieces: list[str] = []
        self.start: int | None = None
        self.end: int | None = None

    def rest(self, whole: str) -> str:
        """Return what the deltas have not brought of the whole."""
        known = "".join(self.pieces)
        return whole[len(known) :] if whole.startswith(known) else ""

    def kept(self, length: int) -> JsonObject | None:
        """Return the item for replay, or None for what must not go back.

        `length` is that of the message's text. A thought goes back without what the API does not
        take: a status, a null, plain text beside the encrypted (BerriAI/litellm#13420,
        microsoft/agent-framework-go#784). One of which only an id is known would be looked for on
        the server, which stored nothing (vercel/ai#7543).
        """
        if self.kind == "message":
            if self.start is None:
                return None
            phase = {"phase": self.raw["phase"]} if self.raw.get("phase") else {}
            end = length if self.end is None else self.end
            return {"type": "message", "start": self.start, "end": end, **phase}
        if self.kind == "function_call":
            return {"type": "function_call"}
        if not self.done:
            return None
        raw = {name: value for name, value in self.raw.items() if value is not None and name != "status"}
        if raw.get("encrypted_content"):
            raw.pop("content", None)
        elif self.kind != "reasoning" or not raw.get("content"):
            return None
        return raw if is_storable(raw) else None


def kept_items(items: Sequence[Item], length: int) -> list[JsonObject]:
    """Return what is worth keeping of the items, in their order: none if the message says it all."""
    kept = [wire for item in items if (wire := item.kept(length)) is not None]
    # A thought must be followed by what it led to, or it is refused (continuedev/continue#8933).
    while kept and kept[-1]["type"] not in MADE_AGAIN:
        kept.pop()
    opaque = any(item["type"] not in MADE_AGAIN or "phase" in item for item in kept)
    return kept if opaque else []


def parts_of(content: Any) -> list[JsonObject]:
    """Return the parts of an item's content; text alone is one part."""
    if isinstance(content, str):
        return [{"text": content}]
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
