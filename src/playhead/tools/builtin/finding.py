"""Finding words in what was said, whatever their case and accents: a phrase, or something near it."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

# Chinese and Japanese are written without spaces: each character is a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+(?:['\u2019][^\W_]+)*")
# How alike two words must be to be near, and how much of a phrase must be there.
_ALIKE = 0.75
_ENOUGH = 0.7
# Words that may stand between those of a phrase.
_BETWEEN = 2


class Heard(msgspec.Struct, frozen=True):
    """A word of a transcript, folded. `line` counts segments; `guessed` times were shared out."""

    folded: str
    text: str
    start: float
    end: float
    line: int
    guessed: bool


class Hit(msgspec.Struct, frozen=True):
    """Words `first` up to `last` match; a `score` of 1 is the phrase itself."""

    first: int
    last: int
    score: float


def fold(text: str) -> str:
    """Return a text without case and accents: `Über` is `uber`, `Straße` is `strasse`."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in plain if not unicodedata.combining(c)).replace("\u2019", "'")


def words_of(text: str) -> list[str]:
    """Return the words of a text, folded."""
    return [fold(word) for word in _WORD.findall(unicodedata.normalize("NFC", text))]


def heard(segments: Iterable[Any]) -> list[Heard]:
    """Return the words of segments, with the times that were recognised, or else shared out by length."""
    found: list[Heard] = []
    for line, segment in enumerate(segments):
        timed = getattr(segment, "words", None)
        pieces = [(w.text, w.start, w.end) for w in timed or ()] or [
            (segment.text, segment.start, segment.end)
        ]
        for text, start, end in pieces:
            found += _placed(text, start, end, line, guessed=not timed)
    return found


def _placed(text: str, start: float, end: float, line: int, *, guessed: bool) -> Iterator[Heard]:
    text = unicodedata.normalize("NFC", text.strip())
    matches = list(_WORD.finditer(text))
    for match in matches:
        at, until = start, end  # of a word by itself, commas included
        if len(matches) > 1:
            at, until = (start + (end - start) * place / len(text) for place in match.span())
        yield Heard(fold(match[0]), match[0], at, until, line, guessed)


def find(words: Sequence[Heard], asked: Sequence[str], *, near: bool) -> list[Hit]:
    """Return where the words that are asked for stand, best first; no two hits overlap.

    With `near`, also words that are alike, in another order, or with one or two between them.
    """
    hits = list(_phrases(words, asked))
    if near:
        hits += _near(words, asked)
    kept: list[Hit] = []
    taken: set[int] = set()
    for hit in sorted(hits, key=lambda hit: (-hit.score, hit.last - hit.first, hit.first)):
        places = range(hit.first, hit.last)
        if taken.isdisjoint(places):
            taken.update(places)
            kept.append(hit)
    return kept


def _phrases(words: Sequence[Heard], asked: Sequence[str]) -> Iterator[Hit]:
    size = len(asked)
    for first in range(len(words) - size + 1):
        if all(words[first + i].folded == asked[i] for i in range(size)):
            yield Hit(first, first + size, 1.0)


def _near(words: Sequence[Heard], asked: Sequence[str]) -> Iterator[Hit]:
    alike = _alike({word.folded for word in words}, asked)
    places = [i for i, word in enumerate(words) if word.folded in alike]
    for n, first in enumerate(places):
        best = [0.0] * len(asked)
        for place in places[n:]:
            if place - first >= len(asked) + _BETWEEN:
                break
            for i, likeness in alike[words[place].folded].items():
                best[i] = max(best[i], likeness)
            score = sum(best) / len(asked)
            if score >= _ENOUGH:
                yield Hit(first, place + 1, round(min(score, 0.99), 2))


def _alike(vocabulary: Iterable[str], asked: Sequence[str]) -> dict[str, Mapping[int, float]]:
    """Of each word that is alike one of those asked for: which of them, and how much."""
    found: dict[str, dict[int, float]] = {}
    for i, wanted in enumerate(asked):
        matcher = SequenceMatcher(b=wanted, autojunk=False)
        for word in vocabulary:
            likeness = 1.0 if word == wanted else _likeness(matcher, word, wanted)
            if likeness >= _ALIKE:
                found.setdefault(word, {})[i] = likeness
    return dict(found)


def _likeness(matcher: "SequenceMatcher[str]", word: str, wanted: str) -> float:
    if len(wanted) < 3 or len(word) < 3:
        return 0.0
    # Another ending is not another word: "asks" and "asking".
    short, long = sorted((len(word), len(wanted)))
    same = next((i for i, (a, b) in enumerate(zip(word, wanted, strict=False)) if a != b), short)
    if same >= max(3, short - 1, long / 2):
        return max(_ALIKE, short / long)
    matcher.set_seq1(word)
    if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE:
        return 0.0
    return matcher.ratio()
