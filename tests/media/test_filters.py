"""What an engine says of a window, set on the file's clock and held to what can have been said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.media.filters import settle
from playhead.media.types import Segment, Word


def said(
    text: str,
    start: float = 0.0,
    end: float = 2.0,
    avg_logprob: float | None = None,
    no_speech_prob: float | None = None,
) -> Segment:
    return Segment(start, end, text, avg_logprob=avg_logprob, no_speech_prob=no_speech_prob)


def words(*times: tuple[str, float, float]) -> Segment:
    found = [Word(start, end, text) for text, start, end in times]
    return Segment(found[0].start, found[-1].end, "".join(word.text for word in found), found)


def test_times_become_those_of_the_file() -> None:
    """R32: a window that begins at 100 s."""
    [segment] = settle([words((" Hello", 0.3, 0.8), (" there.", 0.9, 1.4))], 100.0, [(100.2, 101.5)])
    assert [(word.start, word.end) for word in segment.words or ()] == [(100.3, 100.8), (100.9, 101.4)]
    assert (segment.start, segment.end) == (100.3, 101.4)


def test_words_stay_inside_the_speech() -> None:
    """R32: engines stretch the first and the last word into the silence around them."""
    [segment] = settle([words((" Hello", 0.0, 0.8), (" there.", 0.9, 3.0))], 0.0, [(0.5, 1.5)])
    assert (segment.start, segment.end) == pytest.approx((0.4, 1.6))


def test_a_word_aligned_over_a_pause_belongs_after_it() -> None:
    """R32: "ask not | what": a new phrase begins when it is heard to begin."""
    told = [words((" not", 0.6, 1.0), (" what", 1.0, 2.1), (" your", 2.4, 2.7))]
    [segment] = settle(told, 0.0, [(0.1, 1.05), (2.2, 4.0)])
    assert [word.start for word in segment.words or ()] == pytest.approx([0.6, 2.1, 2.4])


def test_a_word_that_closes_a_phrase_stays_before_the_pause() -> None:
    """R32: "for them. | He": its full stop says where it belongs."""
    told = [words((" for", 0.6, 1.0), (" them.", 1.0, 2.1), (" He", 2.4, 2.7))]
    [segment] = settle(told, 0.0, [(0.1, 1.05), (2.2, 4.0)])
    assert [word.start for word in segment.words or ()] == pytest.approx([0.6, 1.0, 2.4])


@pytest.mark.parametrize(
    "invented",
    [
        said("Thank you.", 10.0, 12.0),
        said("   "),
        said("you and me " * 30, 0.0, 2.0),
        said("one two three four five six seven eight nine ten eleven twelve", 0.0, 0.4),
        said("Subtitles by nobody", avg_logprob=-1.3, no_speech_prob=0.9),
        said("la la la la la la la la la la la la la la la la la la la la", 0.0, 5.0),
    ],
    ids=["outside", "blank", "too fast and stuck", "too fast", "unsure and silent", "stuck"],
)
def test_what_cannot_have_been_said_is_left_out(invented: Segment) -> None:
    """R32: engines make up sentences; a transcript holds none of them (Q236)."""
    assert settle([invented], 0.0, [(0.0, 5.0)]) == []
    kept = settle([invented, said("This was said.", 2.0, 3.5)], 0.0, [(0.0, 5.0)])
    assert [segment.text for segment in kept] == ["This was said."]


def test_a_sentence_told_twice_in_a_row_is_one() -> None:
    """R32: a model that got stuck."""
    twice = [said(" Ask not.", 0.0, 1.0), said(" Ask not.", 1.0, 2.0), said(" What?", 2.0, 3.0)]
    assert [segment.text for segment in settle(twice, 0.0, [(0.0, 5.0)])] == [" Ask not.", " What?"]


def test_plain_speech_is_kept_as_it_is() -> None:
    """R32: short, quick and quiet things are still speech."""
    plain = [
        said(" Thank you.", 0.0, 0.3),
        said(" No.", 1.0, 1.1),
        said(" Well, yes.", 2.0, 3.0, no_speech_prob=0.7),
    ]
    assert [segment.text for segment in settle(plain, 0.0, [(0.0, 5.0)])] == [s.text for s in plain]


times = st.floats(-5, 40, allow_nan=False)


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=8), times, times), min_size=1, max_size=12),
    st.lists(st.floats(0.05, 6), min_size=2, max_size=8).filter(lambda steps: len(steps) % 2 == 0),
)
def test_whatever_an_engine_tells_the_times_make_sense(
    told: list[tuple[str, float, float]], steps: list[float]
) -> None:
    """R32: times go up, lie inside the speech and are never negative."""
    edges = [sum(steps[: i + 1]) for i in range(len(steps))]
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    for segment in settle([words(*told)], 0.0, spans):
        at = 0.0
        for word in segment.words or ():
            assert at <= word.start + 1e-9
            assert word.start <= word.end
            assert any(low - 0.101 <= word.start <= high + 0.101 for low, high in spans)
            at = word.end
        assert segment.start <= segment.end
