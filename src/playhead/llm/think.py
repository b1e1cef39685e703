"""Reasoning that a server left in the text, between `<think>` and `</think>`.

Only a tag at the very start of the text opens reasoning: anywhere else it is text about tags. Where
the chat template opened the tag already, only the closing one arrives.
"""

_OPEN = "<think>"
_CLOSE = "</think>"


class ThinkSplitter:
    """Splits the text of one response as it arrives, whatever way the tags are cut.

    `feed` returns `(reasoning, text, void)`: what to add to either, and whether the text told so far
    was reasoning all along (a closing tag without an opening one).
    """

    def __init__(self, inside: bool = False) -> None:
        self._held = ""
        self._state = "inside" if inside else "start"
        self._said = ""

    @property
    def settled(self) -> bool:
        """True once all that comes is text, and `feed` need not be called any more."""
        return self._state == "done"

    def feed(self, piece: str) -> tuple[str, str, bool]:
        piece, self._held = self._held + piece, ""
        if self._state == "start":
            start = piece.lstrip()
            if not start or _OPEN.startswith(start):
                self._held = piece
                return "", "", False
            if start.startswith(_OPEN):
                self._state, piece = "inside", start[len(_OPEN) :]
            else:
                self._state = "text"
        if self._state == "inside":
            return self._inside(piece)
        return self._text(piece)

    def finish(self) -> tuple[str, str]:
        """Return what was held back, as reasoning and as text."""
        held, self._held = self._held, ""
        return (held, "") if self._state == "inside" else ("", held)

    def _inside(self, piece: str) -> tuple[str, str, bool]:
        before, tag, after = piece.partition(_CLOSE)
        if tag:
            self._state = "done"
            return before, after.lstrip("\n"), False
        keep = _partial_tag(piece)
        self._held = piece[len(piece) - keep :]
        return piece[: len(piece) - keep], "", False

    def _text(self, piece: str) -> tuple[str, str, bool]:
        # An orphan closing tag turns all before it into reasoning, unless the text is about tags.
        before, tag, after = piece.partition(_CLOSE)
        said = self._said + before
        if tag:
            self._state = "done"
            if "`" in said or _OPEN in said:
                return "", piece, False
            return said, after.lstrip("\n"), True
        keep = _partial_tag(piece)
        self._held = piece[len(piece) - keep :]
        told = piece[: len(piece) - keep]
        self._said += told
        return "", told, False


def _partial_tag(text: str) -> int:
    """Return how many last characters may be the beginning of a closing tag."""
    if "<" not in text[-len(_CLOSE) + 1 :]:
        return 0
    return next((n for n in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:n])), 0)
