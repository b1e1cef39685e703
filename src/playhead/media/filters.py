"""What may stand in a transcript: times inside the speech, and no sentence that a model made up."""

import zlib
from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from playhead.media.types import Segment, Word

# Whisper's own limits of a plausible text, and the speed that nobody speaks at.
_REPETITION = 2.4
_NO_SPEECH, _UNSURE = 0.6, -1.0
_WORDS_PER_SECOND = 8.0
# The detector is late for a soft onset and early for a fading end.
_SLACK = 0.1
_SHORTEST_WORD = 0.15
_CLOSING = tuple(".,;:!?\u2026\u3002\uff0c\u3001\uff01\uff1f")

Span: TypeAlias = tuple[float, float]


def settle(segments: Sequence[Segment], start: float, spans: Sequence[Span]) -> list[Segment]:
    """Return the segments of one window on the file's clock, without what cannot have been said.

    Args:
        segments: times relative to the window.
        start: where the window begins, in seconds of the file.
        spans: from when to when somebody speaks in it, in seconds of the file, in order.
    """
    kept: list[Segment] = []
    for raw in segments:
        segment = _placed(raw, start, spans)
        if segment is None or _invented(segment):
            continue
        if kept and kept[-1].text.strip() == segment.text.strip():
            continue  # a loop: who says a thing twice hardly says it so evenly
        kept.append(segment)
    if kept and _repeats(" ".join(segment.text for segment in kept)):
        return []
    return kept


def _placed(segment: Segment, start: float, spans: Sequence[Span]) -> Segment | None:
    """Move a segment to the file's clock and into the speech; None when it lies outside of it."""
    begin, end = segment.start + start, segment.end + start
    inside = [span for span in spans if begin < span[1] + _SLACK and end > span[0] - _SLACK]
    if not segment.text.strip() or not inside:
        return None
    words: list[Word] = []
    at = 0.0
    for word in segment.words or ():
        # One after another, and none in a pause, whatever the model's alignment says.
        times = max(word.start + start, at), max(word.end + start, at)
        low, high = _held(times, spans, closes=word.text.rstrip().endswith(_CLOSING))
        low, at = max(low, at), max(high, at)
        words.append(Word(round(low, 3), round(at, 3), word.text, word.prob))
    if words:
        begin, end = words[0].start, words[-1].end
    else:
        begin = max(begin, inside[0][0] - _SLACK, 0.0)
        end = max(begin, min(end, inside[-1][1] + _SLACK))
    return replace(segment, start=round(begin, 3), end=round(end, 3), words=words or None)


def _held(times: Span, spans: Sequence[Span], *, closes: bool) -> Span:
    """Return the part of a word's time that lies in the span it belongs to.

    That is the span it overlaps most. The first word after a pause is often aligned from the end of
    the word before it: what begins too late in a span to be said there belongs to the next, unless
    its punctuation `closes` a phrase.
    """
    begin, end = times
    index = max(range(len(spans)), key=lambda i: min(end, spans[i][1]) - max(begin, spans[i][0]))
    late = spans[index][1] - begin < _SHORTEST_WORD and end > spans[index][1] + 2 * _SHORTEST_WORD
    if late and not closes and index + 1 < len(spans):
        index += 1
    low, high = spans[index][0] - _SLACK, spans[index][1] + _SLACK
    begin = min(max(begin, low, 0.0), high)
    return begin, min(max(end, begin + _SHORTEST_WORD if end < low else begin), high)


def _invented(segment: Segment) -> bool:
    unsure = segment.avg_logprob is not None and segment.avg_logprob < _UNSURE
    silent = segment.no_speech_prob is not None and segment.no_speech_prob > _NO_SPEECH
    # Two words more than the rate allows: a short "Thank you." may be quick.
    fast = len(segment.text.split()) > _WORDS_PER_SECOND * (segment.end - segment.start) + 2
    return (unsure and silent) or fast or _repeats(segment.text)


def _repeats(text: str) -> bool:
    """Whether a text is so repetitive that a model got stuck in it; the measure is Whisper's."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) > _REPETITION
