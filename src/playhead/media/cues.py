"""Captions that can be read: a transcript cut into cues of two lines, at pauses and sentence ends.

At most 2 lines of 42 columns and 7 seconds, at least 1 second where the next cue leaves room, and
longer where a reading speed asks for it. The words are the transcript's own and keep their order; a
word is never cut.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import msgspec

from playhead.media.types import Segment

COLUMNS = 42
LINES = 2
LONGEST = 7.0
SHORTEST = 1.0
_PAUSE = 0.6
_SENTENCE = re.compile(r"[.!?\u2026\u3002\uff01\uff1f][\"'\u201d\u2019\u00bb)\]]*$")
_CLAUSE = re.compile(r"[,;:\u3001\uff0c\u2014-][\"'\u201d\u2019)]*$")
# What a clause border is worth, in columns away from the middle.
_CLAUSE_WORTH = 12


class Cue(msgspec.Struct, frozen=True, rename="camel"):
    """A caption: times in whole milliseconds, and its lines."""

    start_ms: int
    end_ms: int
    lines: Sequence[str]


class CueStyle(msgspec.Struct, frozen=True, kw_only=True):
    """What cues are like.

    Attributes:
        lines: of a cue, 1 or 2.
        words: of a line at most; None for as many as fit.
        speed: characters per second that can be read: a cue stays for so long, where the next leaves
            room. None for the usual length.
    """

    lines: int = LINES
    words: int | None = None
    speed: float | None = None

    def is_too_fast(self, cue: Cue) -> bool:
        """Whether a cue goes before it could be read."""
        read = _characters(cue.lines) / self.speed if self.speed else 0.0
        return read * 1000 > cue.end_ms - cue.start_ms + 1


_USUAL = CueStyle()


class _Unit(msgspec.Struct):
    """What stays together: a word with what is glued to it. `text` keeps its leading space."""

    text: str
    start: float
    end: float


def make_cues(segments: Iterable[Segment], style: CueStyle = _USUAL) -> list[Cue]:
    """Return the cues of a transcript, in order and without overlap."""
    phrases: list[list[_Unit]] = []
    for unit in (unit for segment in segments for unit in _units(segment)):
        if not phrases or _breaks(phrases[-1], unit):
            phrases.append([])
        phrases[-1].append(unit)
    groups = [part for phrase in phrases for part in _split(phrase, style)]
    return _timed(_joined(groups, style), style)


def clean(text: str) -> str:
    """Return a text on one line, without control characters and lone halves of characters."""
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\ufeff", "")
    return "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)


def width(text: str) -> int:
    """Return the columns that a text takes: a wide character (CJK) takes two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _units(segment: Segment) -> list[_Unit]:
    words = [(clean(w.text), w.start, w.end) for w in segment.words or ()] or _spread(segment)
    # Whisper writes "-hearted" as a word of its own, without a space; Chinese has no spaces at all.
    spaced = sum(text.startswith(" ") for text, _, _ in words) * 2 >= len(words)
    units: list[_Unit] = []
    for text, start, end in words:
        if not text.strip():
            continue
        if units and spaced and not text.startswith(" "):
            units[-1] = _Unit(units[-1].text + text.rstrip(), units[-1].start, end)
        else:
            units.append(_Unit((" " if not units or text[0] == " " else "") + text.strip(), start, end))
    return units


def _spread(segment: Segment) -> list[tuple[str, float, float]]:
    """Words for a segment that has none: its time shared out by length."""
    text = clean(segment.text).strip()
    words = [f" {word}" for word in text.split()]
    if len(words) <= 2 and width(text) > COLUMNS:
        words = list(text)  # a script without spaces
    whole = sum(map(len, words)) or 1
    each = (segment.end - segment.start) / whole
    placed, at = [], segment.start
    for word in words:
        placed.append((word, at, at + each * len(word)))
        at += each * len(word)
    return placed


def _breaks(phrase: list[_Unit], unit: _Unit) -> bool:
    return unit.start - phrase[-1].end >= _PAUSE or _SENTENCE.search(phrase[-1].text) is not None


def _split(units: list[_Unit], style: CueStyle) -> list[list[_Unit]]:
    """Halve what is too much for one cue, near the middle and after a clause if there is one."""
    if _fits(units, style):
        return [units]
    total = width(_text(units))
    best, cost = 1, float("inf")
    done = 0
    for i, unit in enumerate(units[:-1], 1):
        done += width(unit.text)
        price = abs(total - 2 * done) / 2 - (_CLAUSE_WORTH if _CLAUSE.search(unit.text) else 0)
        if price < cost:
            best, cost = i, price
    return _split(units[:best], style) + _split(units[best:], style)


def _joined(groups: list[list[_Unit]], style: CueStyle) -> list[list[_Unit]]:
    """Put a group that is too short to read together with the one before it, where that fits."""
    joined: list[list[_Unit]] = []
    for group in groups:
        if joined:
            both = joined[-1] + group
            short = min(_length(joined[-1]), _length(group)) < SHORTEST
            if short and group[0].start - joined[-1][-1].end < _PAUSE and _fits(both, style):
                joined[-1] = both
                continue
        joined.append(group)
    return joined


def _fits(units: list[_Unit], style: CueStyle) -> bool:
    if len(units) == 1:
        return True
    # The first test alone keeps an hour without a full stop from taking minutes.
    if width(_text(units)) > style.lines * COLUMNS or _length(units) > LONGEST:
        return False
    if len(units) > style.lines * (style.words or len(units)):
        return False
    lines = _lines(units, style)
    return len(lines) <= style.lines and max(map(width, lines)) <= COLUMNS


def _lines(units: list[_Unit], style: CueStyle) -> list[str]:
    """One line, or the two that are most alike."""
    text, most = _text(units), style.words or len(units)
    if len(units) == 1 or (width(text) <= COLUMNS and len(units) <= most):
        return [text]
    places = range(max(1, len(units) - most), min(most, len(units) - 1) + 1)
    halves = [[_text(units[:i]), _text(units[i:])] for i in places]
    return min(halves, key=lambda pair: max(map(width, pair)))


def _text(units: Iterable[_Unit]) -> str:
    return " ".join("".join(unit.text for unit in units).split())


def _length(units: list[_Unit]) -> float:
    return units[-1].end - units[0].start


def _characters(lines: Iterable[str]) -> int:
    return sum(map(len, lines))


def _timed(groups: list[list[_Unit]], style: CueStyle) -> list[Cue]:
    """Give each group its times: long enough to read, none over another."""
    starts = [_ms(group[0].start) for group in groups]
    cues: list[Cue] = []
    shortest, longest = _ms(SHORTEST), _ms(LONGEST)
    for i, group in enumerate(groups):
        lines = _lines(group, style)
        read = _characters(lines) / style.speed if style.speed else 0.0
        before = cues[-1].end_ms if cues else 0
        start = max(starts[i], before)
        end = min(max(_ms(group[-1].end), start + max(shortest, _ms(read))), start + longest)
        if i + 1 < len(groups):
            end = min(end, max(starts[i + 1], start + 1))
        if end - start < shortest:
            start = max(before, end - shortest)
        cues.append(Cue(start, end, lines))
    return cues


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
