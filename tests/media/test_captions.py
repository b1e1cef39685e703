"""Captions are read back by the real parsers, word for word."""

import html
import json
import re
from datetime import timedelta
from itertools import pairwise

import pytest
import srt  # type: ignore[import-untyped]
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.errors import MediaError
from playhead.media.captions import render, write_srt, write_vtt
from playhead.media.cues import COLUMNS, LINES, Cue, CueStyle, clean, make_cues, width
from playhead.media.types import Segment, Transcript, Word


def spoken(*words: tuple[str, float, float]) -> list[Segment]:
    found = [Word(start, end, text) for text, start, end in words]
    return [
        Segment(found[0].start, found[-1].end, "".join(word.text for word in found), found, language="en")
    ]


def steady(text: str, start: float = 0.0, each: float = 0.3) -> list[Segment]:
    """A text spoken without a pause, each word taking `each` seconds."""
    words = text.split()
    return spoken(*((f" {word}", start + i * each, start + (i + 1) * each) for i, word in enumerate(words)))


def transcript(segments: list[Segment]) -> Transcript:
    return Transcript(60.0, "en", "fake", "fake", segments)


def read_vtt(text: str) -> list[webvtt.Caption]:
    return list(webvtt.from_string(text).captions)


def flat(text: str) -> str:
    return " ".join(clean(text).split())


def shown(cues: list[Cue]) -> str:
    return " ".join(line for cue in cues for line in cue.lines)


TALK = (
    "And so my fellow Americans, ask not what your country can do for you, "
    "ask what you can do for your country."
)


def test_cues_are_of_two_lines_and_readable_length() -> None:
    """R32: at most 2 lines of 42 columns, 7 s at most, 1 s at least."""
    cues = make_cues(steady(" ".join([TALK] * 20)))
    assert shown(cues) == " ".join([TALK] * 20)
    for cue in cues:
        assert 1 <= len(cue.lines) <= LINES
        assert all(width(line) <= COLUMNS for line in cue.lines)
        assert 1000 <= cue.end_ms - cue.start_ms <= 7000


def test_cues_end_where_sentences_and_pauses_are() -> None:
    """R32: a cue does not run on over a pause, nor over a full stop."""
    words = (
        (" We", 0.0, 0.5),
        (" came", 0.5, 1.2),
        (" and", 2.5, 3.0),
        (" saw.", 3.0, 4.0),
        (" They", 4.1, 4.5),
    )
    cues = make_cues(spoken(*words, (" did", 4.5, 5.0), (" not.", 5.0, 5.6)))
    assert [cue.lines for cue in cues] == [["We came"], ["and saw."], ["They did not."]]


def test_a_long_sentence_is_cut_after_a_clause() -> None:
    """R32: where a reader would draw breath."""
    cues = make_cues(
        steady("Had he married a more amiable woman, he might have been made still more respectable.")
    )
    assert " ".join(cues[0].lines) == "Had he married a more amiable woman,"


def test_a_short_cue_is_shown_long_enough_where_there_is_room() -> None:
    """R32: a word of a tenth of a second is shown for a second, not over the next one."""
    cues = make_cues(spoken((" No.", 10.0, 10.1), (" Never,", 12.0, 12.1), (" ever.", 12.9, 13.0)))
    assert [(cue.start_ms, cue.end_ms) for cue in cues] == [
        (10_000, 11_000),
        (11_900, 12_900),
        (12_900, 13_900),
    ]


def test_the_continuation_of_a_word_stays_with_it() -> None:
    """R32: Whisper writes "cold-hearted" as two words; the second has no leading space."""
    [segment] = spoken((" cold", 0.0, 0.5), ("-hearted", 0.5, 1.0), (" man", 1.0, 1.5))
    assert shown(make_cues([segment])) == "cold-hearted man"
    assert "cold-hearted man" in render(transcript([segment]), "txt")


def test_a_script_without_spaces_is_cut_by_its_words() -> None:
    """R32: Chinese takes two columns a character, and no spaces are put in."""
    text = "今天我们要讨论一个非常重要的问题" * 6
    words = [(text[i : i + 2], i * 0.15, (i + 2) * 0.15) for i in range(0, len(text), 2)]
    cues = make_cues(spoken(*words))
    assert "".join(line for cue in cues for line in cue.lines) == text
    assert all(width(line) <= COLUMNS for cue in cues for line in cue.lines)


def test_a_text_without_word_times_is_shared_out() -> None:
    """R32: an engine that gives text only still gives captions that move."""
    cues = make_cues([Segment(10.0, 30.0, TALK)])
    assert shown(cues) == TALK
    assert (cues[0].start_ms, cues[-1].end_ms) == (10_000, 30_000)
    assert len(cues) >= 3


def test_an_hour_without_a_full_stop_takes_no_time() -> None:
    """R32: hostile text is normal."""
    assert len(make_cues(steady("and then " * 5_000))) > 1000


words = st.lists(
    st.tuples(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).map(
            lambda text: f" {text}"
        ),
        st.floats(0, 3),
        st.floats(0, 2),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=200)
@given(words)
def test_the_real_parsers_read_back_what_was_written(told: list[tuple[str, float, float]]) -> None:
    """R32: captions that real parsers read back: every cue, its times and its text."""
    at, placed = 0.0, []
    for text, pause, length in told:
        placed.append((text, at + pause, at + pause + length))
        at += pause + length
    cues = make_cues(spoken(*placed))
    expected = [(cue.start_ms, cue.end_ms, " ".join(cue.lines)) for cue in cues]
    assert all(a[1] <= b[0] for a, b in pairwise(expected))

    by_srt = [(_ms(c.start), _ms(c.end), flat(c.content)) for c in srt.parse(write_srt(cues))]
    assert by_srt == [(start, end, flat(text.replace("-->", "->"))) for start, end, text in expected]

    by_vtt = read_vtt(write_vtt(cues))
    read = [(_clock(c.start), _clock(c.end), flat(html.unescape(_lines(c.text)))) for c in by_vtt]
    assert read == [(start, end, flat(text)) for start, end, text in expected]


def _ms(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)


def _clock(text: str) -> int:
    hours, minutes, seconds = re.fullmatch(r"(\d+):(\d+):([\d.]+)", text).groups()  # type: ignore[union-attr]
    return round(int(hours) * 3_600_000 + int(minutes) * 60_000 + float(seconds) * 1000)


def _lines(text: str) -> str:
    return text.replace("\n", " ")


@given(words)
def test_no_word_is_lost_or_moved(told: list[tuple[str, float, float]]) -> None:
    """R32: the captions hold the whole text in its order."""
    segments = spoken(*((text, float(i), i + 0.5) for i, (text, _, _) in enumerate(told)))
    assert shown(make_cues(segments)) == flat("".join(text for text, _, _ in told))


def test_markup_in_the_text_is_text() -> None:
    """R32: what somebody says of HTML does not become it."""
    said = spoken(
        (" <b>", 0.0, 1.0), (" a", 1.0, 2.0), (" &", 2.0, 3.0), (" -->", 3.0, 4.0), (" {b}", 4.0, 5.0)
    )
    assert "&lt;b&gt; a &amp; --&gt; {b}" in render(transcript(said), "vtt")
    [cue] = read_vtt(render(transcript(said), "vtt"))
    assert html.unescape(cue.text) == "<b> a & --> {b}"


def test_milliseconds_are_rounded_and_not_cut() -> None:
    """R32: 1.9995 s is two seconds."""
    assert "00:00:02,000 --> 01:00:03,500" in write_srt([Cue(2000, 3_603_500, ["x"])])
    assert make_cues(spoken((" x", 1.9995, 3.0)))[0].start_ms == 2000


def test_text_and_json_hold_the_whole_transcript() -> None:
    """R32: TXT is a line for each segment; JSON is the transcript in camelCase, with its text."""
    whole = transcript(steady("First.") + steady("Second & last.", start=4.0))
    assert render(whole, "txt") == "First.\nSecond & last.\n"
    plain = json.loads(render(whole, "json"))
    assert plain["text"] == "First. Second & last."
    assert plain["segments"][1]["words"][0] == {"start": 4.0, "end": 4.3, "text": " Second"}
    assert {"duration", "language", "engine", "model", "warnings"} <= set(plain)


def test_an_empty_transcript_is_a_valid_file() -> None:
    """R32: a silent video has captions too: none."""
    empty = transcript([])
    assert read_vtt(render(empty, "vtt")) == []
    assert (render(empty, "srt"), render(empty, "txt")) == ("", "")


def test_an_unknown_format_is_named() -> None:
    """R32: the error says which there are."""
    with pytest.raises(MediaError, match="'doc': use one of srt, vtt, txt, json"):
        render(transcript([]), "doc")


@pytest.mark.parametrize(("words", "lines"), [(1, 1), (3, 1), (3, 2), (20, 2)])
def test_cues_have_no_more_words_on_a_line_than_asked_for(words: int, lines: int) -> None:
    """Issue 7, 3: and lose none, nor their order."""
    cues = make_cues(steady(" ".join([TALK] * 3)), CueStyle(words=words, lines=lines))
    assert shown(cues) == " ".join([TALK] * 3)
    assert max(len(line.split()) for cue in cues for line in cue.lines) <= words
    assert max(len(cue.lines) for cue in cues) <= lines
    assert all(before.end_ms <= after.start_ms for before, after in pairwise(cues))


def test_a_cue_stays_until_it_can_be_read_where_the_next_leaves_room() -> None:
    """Issue 7, 3: reading speed, in characters per second; what is too fast is told."""
    style = CueStyle(speed=10)
    slow, after = make_cues(steady("This is quickly said.", each=0.2) + steady("End.", start=9.0), style)
    assert slow.end_ms - slow.start_ms == 2_100
    assert not style.is_too_fast(slow)
    assert not style.is_too_fast(after)
    rushed, _ = make_cues(steady("This is quickly said.", each=0.2) + steady("Next.", start=1.45), style)
    assert rushed.end_ms == 1_450
    assert style.is_too_fast(rushed)
