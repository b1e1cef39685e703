"""Reasoning that a server left in the text, between `<think>` and `</think>`.

Only a tag at the very start of the text opens reasoning: anywhere else it is text about tags. Where
the chat template opened the tag already, only the closing one arrives.
"""

_OPEN = "<think>"
_CLOSE = "</think>"


class ThinkSplitter:
    """Splits the text of one response as it arrives, whatever way the tags are cut.

    While `plain` is true, a piece without `<` is text and need not be fed.
    """

    def __init__(self, inside: bool = False) -> None:
        self.plain = False
        self._held = ""
        self._inside = inside
        self._begun = inside
        self._closed = False

    def feed(self, piece: str) -> tuple[str, str, bool]:
        """Return what is reasoning, what is text, and whether a closing tag without an opening one
        came between: what was told as text before it was then reasoning, too."""
        piece, self._held = self._held + piece, ""
        if self._closed:
            return "", piece, False
        if not self._begun:
            start = piece.lstrip()
            if not start or _OPEN.startswith(start):
                self._held = piece
                return "", "", False
            self._begun = True
            self._inside = start.startswith(_OPEN)
            piece = start[len(_OPEN) :] if self._inside else piece
        before, tag, after = piece.partition(_CLOSE)
        if tag:
            orphan = not self._inside
            self._inside = False
            self._closed = self.plain = True
            return before, after.lstrip("\n"), orphan
        keep = _partial_tag(piece)
        self._held = piece[len(piece) - keep :]
        told = piece[: len(piece) - keep]
        self.plain = not self._inside and not self._held
        return (told, "", False) if self._inside else ("", told, False)

    def finish(self) -> tuple[str, str]:
        """Return what was held back, as reasoning and as text."""
        held, self._held = self._held, ""
        return (held, "") if self._inside else ("", held)


def _partial_tag(text: str) -> int:
    """Return how many last characters may be the beginning of a closing tag."""
    if "<" not in text[-len(_CLOSE) + 1 :]:
        return 0
    return next((n for n in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:n])), 0)
