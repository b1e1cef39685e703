"""The blocks of a message of the Messages API: as they arrive, as they are kept, as they go back.

What cannot be made again from the message (thinking with its signature, blocks of kinds unknown
here) is kept as it came. Text is kept as a range of the message's text, a call by its place.
"""

from collections.abc import Sequence

import msgspec

from playhead.llm.kept import is_storable
from playhead.llm.lenient import text_of
from playhead.types import JsonObject

THINKING = ("thinking", "redacted_thinking")
# Fields of a call that are made again from the message; `caller` says no more than the default.
_CALL_FIELDS = frozenset(("type", "id", "name", "input", "caller"))


class Block:
    """One block as it arrives. `place` is its number: servers may use an index twice."""

    __slots__ = ("complete", "end", "held", "json", "kind", "place", "raw", "start", "thinking")

    def __init__(self, place: int, raw: JsonObject) -> None:
        self.place = place
        self.raw = dict(raw)
        self.kind = str(raw.get("type") or "")
        self.complete = False
        self.held = ""
        self.start: int | None = None
        self.end: int | None = None
        self.json: list[str] = []
        self.thinking: list[str] = []

    def sign(self, piece: str) -> None:
        """Take a signature, or more of it."""
        known = text_of(self.raw.get("signature"))
        self.raw["signature"] = piece if piece.startswith(known) else known + piece

    def kept(self, length: int) -> JsonObject | None:
        """Return the block for replay, or None for what must not go back.

        `length` is that of the message's text.
        """
        if self.kind == "text":
            end = length if self.end is None else self.end
            return None if self.start is None else {"type": "text", "start": self.start, "end": end}
        if self.kind == "tool_use":
            more = {k: v for k, v in self.raw.items() if k not in _CALL_FIELDS}
            return {"type": "tool_use", **more}
        if self.kind == "thinking":
            if not self.raw.get("signature") and not (self.complete and self.thinking):
                return None  # half a thought, or an emptied one: it would be refused
            return _storable({**self.raw, "thinking": _paired("".join(self.thinking))})
        return self._whole() if self.complete and self.kind else None

    def _whole(self) -> JsonObject | None:
        if not self.json:
            return _storable(self.raw)
        try:
            return _storable({**self.raw, "input": msgspec.json.decode("".join(self.json))})
        except msgspec.DecodeError:
            return None


def _paired(text: str) -> str:
    """Join the halves of characters that came apart. A half without its other stays as it is."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _storable(block: JsonObject) -> JsonObject | None:
    return block if is_storable(block) else None


def worth_keeping(blocks: Sequence[JsonObject]) -> bool:
    """Is there anything among kept blocks that cannot be made again from the message?"""
    return any(b["type"] != "text" and (b["type"] != "tool_use" or len(b) > 1) for b in blocks)
