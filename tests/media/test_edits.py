"""Lines that a person wrote anew: what was said stays beside them, and their words are timed again."""

from msgspec.structs import replace

from playhead.media.captions import render
from playhead.media.edits import edited, line_of
from playhead.media.types import Segment, Transcript, Word

WORDS = [
    Word(1.0, 1.4, " Ask"),
    Word(1.4, 1.8, " knot"),
    Word(2.0, 2.4, " what"),
    Word(2.4, 3.0, " country"),
]
LINE = Segment(1.0, 3.0, " Ask knot what country", WORDS)
TRANSCRIPT = Transcript(4.0, "en", "whisper", "base", [LINE, Segment(3.0, 4.0, "No words here")])


def written(text: str) -> Segment:
    return edited(TRANSCRIPT, {line_of(LINE): text}).segments[0]


def test_what_was_said_is_kept_beside_what_was_written() -> None:
    """Issue 7, 2: an edit never overwrites what the recogniser said; captions use what was written."""
    line = written("Ask not what country.")
    assert (line.said, line.text, line.start, line.end) == (LINE.text, "Ask not what country.", 1.0, 3.0)
    made = edited(TRANSCRIPT, {line_of(LINE): "Ask not what country."})
    assert "Ask not what country." in render(made, "srt")
    assert "knot" not in render(made, "vtt") + render(made, "txt") + made.text
    assert edited(made, {line_of(line): "Again"}).segments[0].said == LINE.text


def test_words_that_stand_keep_their_times_and_the_others_share_what_is_between() -> None:
    """Issue 7, 2: a corrected word lies between its neighbours; a comma moves nothing."""
    words = written("Ask, not, what country").words
    assert words == [Word(1.0, 1.4, " Ask,"), Word(1.4, 2.0, " not,"), *WORDS[2:]]
    words = written("Ask what in your country is, really").words
    assert words is not None
    assert [word.text for word in words] == [" Ask", " what", " in", " your", " country", " is,", " really"]
    assert [word.start for word in words] == sorted(word.start for word in words)
    assert (words[1].start, words[4].start, words[-1].end) == (2.0, 2.4, 3.0)
    assert all(word.end >= word.start for word in words)


def test_a_line_without_word_times_gets_none_and_an_empty_one_leaves_the_captions() -> None:
    second = TRANSCRIPT.segments[1]
    made = edited(TRANSCRIPT, {line_of(second): "Other words", line_of(LINE): ""})
    assert made.segments[1].words is None
    assert made.segments[0].words == []
    assert "Ask" not in render(made, "srt")
    assert made.text == "Other words"


def test_an_edit_is_of_the_line_that_was_read_and_of_no_other() -> None:
    """A file that is transcribed anew has other lines: none of them is written over."""
    other = replace(TRANSCRIPT, segments=[replace(LINE, text=" Ask not what country")])
    assert edited(other, {line_of(LINE): "Nonsense"}) == other
