"""The tools of the video page: what is said where, captions of a style, and the playhead."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from playhead.errors import MediaError
from playhead.media.types import Segment, Transcript, Word
from playhead.tools.builtin import (
    MadeCaptions,
    correct_transcript,
    default_registry,
    make_captions,
    search_transcript,
    seek,
)
from playhead.tools.joined import JoinedTools
from playhead.tools.registry import ToolRegistry
from playhead.types import AgentContext, MediaAsset, ToolCall, ToolContext, ToolResult

pytestmark = pytest.mark.anyio

FILM, TALK, SONG = (
    MediaAsset("a1", "Film.mp4", duration=20.0),
    MediaAsset("a2", "Talk.mp3", "audio"),
    MediaAsset("a3", "Song.mp3", "audio"),
)


def timed(start: float, text: str) -> Segment:
    """A line whose words take half a second each."""
    words = [Word(start + i / 2, start + (i + 1) / 2, f" {word}") for i, word in enumerate(text.split())]
    return Segment(start, words[-1].end, text, words)


SAID = {
    "a1": [
        timed(0.0, "Welcome to the Café Müller, my friends."),
        timed(10.0, "We went to the harbour at night"),
        timed(13.0, "and nobody was asking questions."),
    ],
    "a2": [Segment(5.0, 9.0, "The harbor lights were out."), Segment(9.0, 12.0, "今日は東京です")],
}


class Media:
    """A library with its transcripts, and what makes captions of them."""

    def __init__(self, known: Sequence[MediaAsset] = (FILM, TALK, SONG)) -> None:
        self.known_assets = known
        self.asked: list[Any] = []

    def assets(self) -> Sequence[MediaAsset]:
        return self.known_assets

    def path(self, asset_id: str) -> Path:
        return Path(asset_id)

    async def known(self, asset_id: str) -> Transcript | None:
        said = SAID.get(asset_id)
        return None if said is None else Transcript(20.0, "en", "fake", "fake", said)

    async def captions(
        self, asset_id: str, form: str, *, words: int | None, lines: int | None, speed: float | None
    ) -> MadeCaptions:
        self.asked.append((asset_id, form, words, lines, speed))
        if asset_id not in SAID:
            raise MediaError("nothing yet", code="not_found")
        if words == 99:
            raise MediaError("words: It is 99; give 1 to 20.", code="unsupported")
        return MadeCaptions("api/x.vtt", [], 3)


async def call(media: Media, name: str, context: Any = None, **args: Any) -> ToolResult:
    registry = ToolRegistry([search_transcript(media, media), make_captions(media, media)])
    return await registry.execute(ToolCall("c1", name, args), context)


async def found(query: str, context: Any = None, **args: Any) -> Any:
    result = await call(Media(), "search_transcript", context, query=query, **args)
    assert result.error is None
    return result.result


@pytest.mark.parametrize("query", ["cafe muller", "CAFÉ, MÜLLER!", "  Café\u2002Mu\u0308ller "])
async def test_a_phrase_is_found_whatever_its_case_and_accents(query: str) -> None:
    """Issue 7, 3: with the times of its words."""
    result = await found(query)
    (match,) = result["matches"]
    assert (match["assetId"], match["assetName"], match["match"]) == ("a1", "Film.mp4", "exact")
    assert (match["start"], match["end"]) == (1.5, 2.5)
    assert match["text"] == "Welcome to the Café Müller, my friends."
    assert match["words"] == [
        {"text": "Café", "start": 1.5, "end": 2.0},
        {"text": "Müller", "start": 2.0, "end": 2.5},
    ]
    assert "timesEstimated" not in match


async def test_a_phrase_is_found_over_the_border_of_two_lines() -> None:
    result = await found("at night and nobody")
    assert result["matches"][0]["text"] == "We went to the harbour at night and nobody was asking questions."
    assert (result["matches"][0]["start"], result["matches"][0]["end"]) == (12.5, 14.0)


async def test_what_is_near_is_found_after_what_is_exact() -> None:
    """Issue 7, 3: another spelling, another form, another order, a word between; and it says so."""
    result = await found("harbour")
    assert [(m["assetId"], m["match"]) for m in result["matches"]] == [("a1", "exact"), ("a2", "near")]
    assert result["count"] == 2
    assert (await found("nobody asks"))["matches"][0]["text"] == "and nobody was asking questions."
    assert (await found("night, at the harbour"))["matches"][0]["match"] == "near"
    assert [m["assetId"] for m in (await found("harbour", near=False))["matches"]] == ["a1"]


async def test_times_that_were_shared_out_are_called_estimated() -> None:
    (match,) = (await found("harbor lights", near=False))["matches"]
    assert match["timesEstimated"] is True
    assert 5.0 < match["start"] < match["end"] < 9.0
    (match,) = (await found("東京"))["matches"]
    assert 9.0 < match["start"] < match["end"] < 12.0


async def test_one_file_is_searched_when_it_is_named_and_the_project_otherwise() -> None:
    result = await found("harbor", assetId="talk.mp3")
    assert [m["assetId"] for m in result["matches"]] == ["a2"]
    context = AgentContext("p", media_assets=[TALK, SONG])
    result = await found("welcome", context)
    assert (result["count"], result["matches"]) == (0, [])
    assert "do not make up times" in result["note"]
    assert result["notTranscribed"] == [{"assetId": "a3", "assetName": "Song.mp3"}]


async def test_no_more_places_are_returned_than_asked_for() -> None:
    result = await found("the", limit=1)
    assert result["count"] > len(result["matches"]) == 1


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"query": "?!"}, "There is no word"),
        ({"query": ""}, "There is no word"),
        ({"query": "x" * 201}, "201 characters"),
        ({"query": "x", "limit": 51}, "limit: It is 51; give 1 to 50"),
        ({"query": "x", "limit": 0}, "limit: It is 0"),
        ({"query": "x", "assetId": "nope"}, "no asset 'nope'"),
        ({"query": "x", "assetId": "a3"}, "call transcribe_video first"),
        ({}, "query"),
    ],
)
async def test_a_search_that_cannot_be_made_says_why(args: Any, text: str) -> None:
    result = await call(Media(), "search_transcript", **args)
    assert text in (result.error or "")


async def test_an_hour_is_searched_without_holding_up_the_loop() -> None:
    """Issue 7: nine thousand words, and a phrase that is nearly there."""
    media = Media([FILM])
    words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"]
    SAID["a1"], kept = [timed(i * 4.0, " ".join([*words, str(i)])) for i in range(900)], SAID["a1"]
    try:
        result = await call(media, "search_transcript", query="juliet 450 alpha")
    finally:
        SAID["a1"] = kept
    assert result.result["matches"][0]["start"] == 1804.5


async def test_captions_are_made_of_the_open_file_with_what_was_asked() -> None:
    """Issue 7, 3: the scene that is open decides where none is named, selection or not."""
    media = Media()
    context = AgentContext("p", "a2#t=5,7", [FILM, TALK])
    result = await call(media, "make_captions", context, format=" SRT ", wordsPerLine=4, readingSpeed=15)
    assert media.asked == [("a2", "srt", 4, None, 15)]
    assert result.result == {
        "assetId": "a2",
        "assetName": "Talk.mp3",
        "format": "srt",
        "url": "api/x.vtt",
        "cueCount": 0,
        "tooFast": 3,
        "cues": [],
    }


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"format": "ass"}, "'ass' is not known; use srt or vtt"),
        ({"assetId": "a3"}, "'Song.mp3' is not transcribed yet: call transcribe_video"),
        ({"assetId": "a1", "wordsPerLine": 99}, "give 1 to 20"),
        ({}, "more than one"),
    ],
)
async def test_captions_that_cannot_be_made_say_why(args: Any, text: str) -> None:
    result = await call(Media(), "make_captions", **args)
    assert text in (result.error or "")


def test_seek_is_left_to_the_front_end() -> None:
    """Issue 7, 3: only there is a player."""
    tool = seek()
    assert tool.client
    (schema,) = ToolRegistry([tool]).to_tool_schemas()
    assert [(p.key, p.type, p.required) for p in schema.parameters] == [
        ("seconds", "number", True),
        ("assetId", "string", False),
    ]


async def test_joined_tools_are_those_of_both_also_later_ones() -> None:
    """R31: what is beside the default tools is not among them."""
    inner = default_registry()
    joined = JoinedTools(inner, [seek()])
    assert [schema.name for schema in joined.to_tool_schemas()] == ["transcribe_video", "seek"]
    inner.register(make_captions(Media(), Media()))
    assert [schema.name for schema in joined.to_tool_schemas()][-2:] == ["make_captions", "seek"]
    assert joined.has("make_captions")
    assert not inner.has("seek")
    assert joined.to_tool_schemas() is joined.to_tool_schemas()


class Pen(Media):
    """The same, with what was written in it."""

    def __init__(self) -> None:
        super().__init__((FILM, SONG))
        self.written: list[tuple[str, list[tuple[float, str]], str]] = []

    async def rewrite(self, asset_id: str, lines: Sequence[tuple[Any, str]], *, change: str) -> None:
        self.written.append((asset_id, [(line.start, text) for line, text in lines], change))


async def correct(media: Pen, *corrections: Any, turn: str = "turn", **args: Any) -> ToolResult:
    registry = ToolRegistry([correct_transcript(media, media)])
    context = ToolContext(AgentContext(media_assets=[FILM, SONG], active_scene_id="a1#t=1,2"), turn_id=turn)
    asked = {"corrections": list(corrections), **args}
    return await registry.execute(ToolCall("c1", "correct_transcript", asked), context)


async def test_what_was_misheard_is_corrected_in_every_line() -> None:
    """Check 21: whole words, whatever their case, all that one turn wrote under one name."""
    media = Pen()
    result = await correct(
        media, {"heard": "the", "text": "their"}, {"heard": "MU\u0308LLER,", "text": "Moll"}
    )
    assert media.written == [
        (
            "a1",
            [
                (0.0, "Welcome to their Café Moll my friends."),
                (10.0, "We went to their harbour at night"),
            ],
            "turn",
        )
    ]
    assert result.result["changed"] == 2
    assert (result.result["assetId"], result.result["assetName"]) == ("a1", "Film.mp4")
    assert result.result["segments"][1] == {
        "start": 10.0,
        "end": 13.5,
        "text": "We went to their harbour at night",
        "before": "We went to the harbour at night",
    }


async def test_a_correction_of_one_place_leaves_the_others() -> None:
    """Check 21: at a time, as a model rounds it; without words it takes some out."""
    media = Pen()
    assert (await correct(media, {"heard": "the", "text": "", "at": 10.4})).error is None
    assert media.written[0][1] == [(10.0, "We went to harbour at night")]
    assert (await correct(media, {"heard": "We went", "text": "we  went"})).result["changed"] == 1
    assert (await correct(media, {"heard": "at night", "text": "at night"})).result["changed"] == 0


@pytest.mark.parametrize(
    ("correction", "said"),
    [
        ({"heard": "harb", "text": "x"}, "no line has 'harb'"),
        ({"heard": "the", "text": "x", "at": 14.9}, "no line has 'the' at 14.9 s"),
        ({"heard": "night and", "text": "x"}, "stand in one line"),
        ({"heard": " ", "text": "x"}, "heard: It is blank"),
        ({"heard": "", "text": "x"}, "heard"),
        ({"heard": "night", "text": "x" * 501}, "text"),
        ({"heard": "night", "new": "x"}, "new"),
        ({"text": "x"}, "heard"),
    ],
)
async def test_a_correction_that_fits_no_line_changes_nothing(correction: Any, said: str) -> None:
    """Check 21: nor do those beside it; the error says which it was, and what to do."""
    media = Pen()
    result = await correct(media, {"heard": "harbour", "text": "port"}, correction)
    assert result.error is not None
    assert said in result.error
    assert media.written == []
    missing = await correct(media, {"heard": "x", "text": "y"}, assetId="a3")
    assert missing.error is not None
    assert "call transcribe_video first" in missing.error


async def test_corrections_are_about_what_stands_there_now() -> None:
    """Check 21: none sees what another wrote, so that names can be swapped; of two the longer one counts."""
    media = Pen()
    swap = ({"heard": "harbour", "text": "night"}, {"heard": "night", "text": "harbour"})
    assert (await correct(media, *swap)).error is None
    assert media.written[0][1] == [(10.0, "We went to the night at harbour")]
    longer = ({"heard": "the", "text": "a"}, {"heard": "the Café", "text": "Chez"})
    assert (await correct(media, *longer)).error is None
    assert media.written[1][1][0] == (0.0, "Welcome to Chez Müller, my friends.")
    shadowed = await correct(media, {"heard": "to the", "text": "a"}, {"heard": "the harbour", "text": "b"})
    assert shadowed.error is not None
    assert "taken the same words" in shadowed.error


async def test_a_line_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAID, "a3", [timed(0.0, " ".join(f"w{n}" for n in range(20)))])
    many = [{"heard": f"w{n}", "text": "x" * 400} for n in range(20)]
    media = Pen()
    result = await correct(media, *many, assetId="a3")
    assert result.error is not None
    assert "more than 5000 characters" in result.error
    assert media.written == []
    assert (await correct(media, *many[:12], assetId="a3")).error is None
