"""A transcript as people wrote it anew, line by line. What the recogniser wrote stays beside it.

The words of an edited line are timed again: a word that still stands keeps its time, and those between
two of them share the time between them by their length.
"""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

from msgspec.structs import replace

from playhead.media.types import Segment, Transcript, Word

# The times of a line in milliseconds, and what the recogniser wrote: this names a line.
Line: TypeAlias = tuple[int, int, str]


def line_of(segment: Segment) -> Line:
    """Return what names a line, edited or not."""
    said = segment.text if segment.said is None else segment.said
    return round(segment.start * 1000), round(segment.end * 1000), said.strip()


def edited(transcript: Transcript, texts: Mapping[Line, str]) -> Transcript:
    """Return a transcript with other texts for some of its lines; `said` of these is the former one."""
    if not texts:
        return transcript
    segments = [
        _written(segment, texts[line]) if (line := line_of(segment)) in texts else segment
        for segment in transcript.segments
    ]
    return replace(transcript, segments=segments)


def _written(segment: Segment, text: str) -> Segment:
    words = None if segment.words is None else _retimed(segment, text.split())
    said = segment.text if segment.said is None else segment.said
    return replace(segment, text=text, said=said, words=words)


def _retimed(segment: Segment, texts: Sequence[str]) -> Sequence[Word]:
    old = list(segment.words or ())
    words: list[Word] = []
    start = segment.start
    # A match of no length at the end closes the last gap.
    same = SequenceMatcher(None, [_bare(word.text) for word in old], [_bare(text) for text in texts])
    for match in same.get_matching_blocks():
        until = old[match.a].start if match.size else segment.end
        words += _spread(texts[len(words) : match.b], start, max(start, until))
        for was, text in zip(old[match.a :][: match.size], texts[match.b :], strict=False):
            words.append(replace(was, text=f" {text}"))
        start = words[-1].end if words else start
    return words


def _bare(text: str) -> str:
    """A word as it sounds: one that only got a comma keeps its time."""
    return "".join(c for c in text.casefold() if c.isalnum()) or text.strip()


def _spread(texts: Sequence[str], start: float, end: float) -> list[Word]:
    whole = sum(map(len, texts)) or 1
    words: list[Word] = []
    for text in texts:
        first = words[-1].end if words else start
        until = first + (end - start) * len(text) / whole
        words.append(Word(round(first, 3), round(until, 3), f" {text}"))
    return words
