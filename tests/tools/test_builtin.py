"""The tools that ship: what they are called, what they choose, what they say."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from playhead.errors import MediaError
from playhead.tools.builtin import default_registry
from playhead.types import AgentContext, MediaAsset, ToolCall, ToolContext, ToolResult

CONTEXT = AgentContext(
    "p1", "s1", (MediaAsset("a1", "One.mp4"), MediaAsset("a2", "two.mp3", "audio")), 1500.0
)


@dataclass
class Segment:
    text: str
    start: float
    end: float


@dataclass
class Transcript:
    text: str = " Hello there. "
    language: str | None = "en"
    duration: float | None = 2.50049
    segments: Sequence[Segment] = (Segment(" Hello", 0.12345, 1.0), Segment("there. ", 1.0, 2.49999))
    warnings: Sequence[str] = ()


@dataclass
class Media:
    """A library and a service in one."""

    known: Sequence[MediaAsset] = ()
    transcript: Transcript = field(default_factory=Transcript)
    error: Exception | None = None
    calls: list[Any] = field(default_factory=list)
    begun: asyncio.Event | None = None

    def assets(self) -> Sequence[MediaAsset]:
        return self.known

    def path(self, asset_id: str) -> Path:
        if asset_id not in {asset.id for asset in self.known}:
            raise MediaError("nothing there", code="not_found")
        return Path("/srv/media") / asset_id

    async def transcribe(
        self,
        path: Path,
        *,
        language: str | None = None,
        model_id: str | None = None,
        on_progress: Callable[[float | None, str], None] | None = None,
    ) -> Transcript:
        self.calls.append((path.name, language, model_id))
        if on_progress is not None:
            on_progress(0.5, "half")
        if self.begun is not None:
            self.begun.set()
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.transcript


async def transcribe(media: Media, context: Any = None, **args: Any) -> ToolResult:
    registry = default_registry(media, media)
    return await registry.execute(ToolCall("c1", "transcribe_video", args), context)


ASSETS = (
    MediaAsset("a1", "Intro.mp4"),
    MediaAsset("a2", "intro.mp4"),
    MediaAsset("a3", "Talk.mp3", "audio"),
    MediaAsset("a4", "a3"),
    MediaAsset("a5", "twin.mp4"),
    MediaAsset("a6", "twin.mp4"),
    MediaAsset("a7", "Photo.png", "image"),
)


def test_the_default_registry_holds_exactly_one_tool() -> None:
    """R31, R59, R61: without any import for its side effect."""
    registry = default_registry()
    assert [tool.name for tool in registry.get_all()] == ["transcribe_video"]
    assert registry.has("transcribe_video")


def test_the_mock_registry_holds_echo_context_too() -> None:
    """R31, R59: beside transcribe_video."""
    assert [tool.name for tool in default_registry(mock=True).get_all()] == [
        "transcribe_video",
        "echo_context",
    ]


def test_the_parameters_are_three_optional_strings_in_order() -> None:
    """R30, R32: assetId first."""
    (schema,) = default_registry().to_tool_schemas()
    assert [(p.key, p.type, p.required) for p in schema.parameters] == [
        ("assetId", "string", False),
        ("language", "string", False),
        ("modelId", "string", False),
    ]
    assert "required" not in schema.input_schema
    assert default_registry().get("transcribe_video").replay == "safe"


@pytest.mark.anyio
async def test_echo_context_tells_the_context() -> None:
    """R60: projectId, mediaCount, activeSceneId, mediaNames, playbackTimeMs."""
    registry = default_registry(mock=True)
    assert await registry.get("echo_context").execute({}, CONTEXT) == {
        "projectId": "p1",
        "mediaCount": 2,
        "activeSceneId": "s1",
        "mediaNames": ["One.mp4", "two.mp3"],
        "playbackTimeMs": 1500.0,
    }
    result = await registry.execute(ToolCall("c1", "echo_context", {}), CONTEXT)
    assert result.result["mediaCount"] == 2


@pytest.mark.anyio
@pytest.mark.parametrize("context", [None, object()])
async def test_echo_context_without_a_context_says_so(context: Any) -> None:
    """R60: nulls and none, and a note."""
    assert await default_registry(mock=True).get("echo_context").execute({}, context) == {
        "projectId": None,
        "mediaCount": 0,
        "activeSceneId": None,
        "mediaNames": [],
        "playbackTimeMs": None,
        "note": "The application gave no context.",
    }


@pytest.mark.anyio
async def test_a_transcript_has_text_times_and_counts() -> None:
    """R32: seconds to the millisecond."""
    media = Media(ASSETS[2:3])
    result = await transcribe(media, language=" en ", modelId="base")
    assert result.result == {
        "assetId": "a3",
        "assetName": "Talk.mp3",
        "language": "en",
        "duration": 2.5,
        "segmentCount": 2,
        "text": "Hello there.",
        "segments": [
            {"start": 0.123, "end": 1.0, "text": "Hello"},
            {"start": 1.0, "end": 2.5, "text": "there."},
        ],
    }
    assert media.calls == [("a3", "en", "base")]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("a1", "a1"),
        ("a3", "a3"),
        ("Intro.mp4", "a1"),
        ("intro.mp4", "a2"),
        ("talk.MP3", "a3"),
        (" a1 ", "a1"),
    ],
)
async def test_an_asset_is_found_by_id_then_name_then_name_in_any_case(wanted: str, chosen: str) -> None:
    """R32: in this order; "a3" is also the name of another."""
    media = Media(ASSETS)
    assert (await transcribe(media, assetId=wanted)).error is None
    assert media.calls == [(chosen, None, None)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("assets", "args", "texts"),
    [
        (ASSETS, {"assetId": "INTRO.MP4"}, ["more than one", "'a1'", "'Intro.mp4'", "'a2'"]),
        (ASSETS, {"assetId": "twin.mp4"}, ["more than one", "'a5'", "'a6'"]),
        (ASSETS, {"assetId": "nope"}, ["no asset 'nope'", "'a1'", "'Talk.mp3'", "'a7'"]),
        (ASSETS, {}, ["more than one", "'a1'", "'a6'"]),
        (ASSETS, {"assetId": ""}, ["more than one"]),
        (ASSETS, {"assetId": "a7"}, ["'image'", "nothing to hear"]),
        ((), {}, ["No media loaded", "ask the user"]),
        (ASSETS[6:], {}, ["No media loaded"]),
        ((), {"assetId": "a1"}, ["No media loaded", "'a1'"]),
        ((), {"assetId": "../../etc/passwd"}, ["no '../../etc/passwd'. Ask the user to add"]),
        ((), {"assetId": "x" * 5_000_000}, [f"no '{'x' * 100}…'. Ask the user to add"]),
        (ASSETS, {"assetId": "x" * 5_000_000}, [f"no asset '{'x' * 100}…'", "'a1'"]),
    ],
)
async def test_a_choice_that_cannot_be_made_lists_ids_and_names(
    assets: Sequence[MediaAsset], args: dict[str, str], texts: list[str]
) -> None:
    """R32: ambiguous, unknown, none given and several, none at all."""
    media = Media(assets)
    error = str((await transcribe(media, **args)).error)
    assert [text for text in texts if text not in error] == []
    assert media.calls == []


@pytest.mark.anyio
async def test_the_only_playable_asset_needs_no_name() -> None:
    """R32: pictures do not count."""
    media = Media((ASSETS[0], ASSETS[6]))
    assert (await transcribe(media)).error is None
    assert media.calls[0][0] == "a1"


@pytest.mark.anyio
async def test_the_context_says_what_is_loaded_and_the_library_where_it_is() -> None:
    """R32: an id that only the client knows resolves to no file."""
    media = Media(ASSETS[2:3])
    context = AgentContext(
        media_assets=(MediaAsset("a3", "Renamed.mp3", "audio"), MediaAsset("../x", "Evil"))
    )
    result = await transcribe(media, context, assetId="renamed.mp3")
    assert result.result["assetName"] == "Renamed.mp3"
    refused = await transcribe(media, context, assetId="../x")
    assert refused.error == (
        "'Evil' was not transcribed, because the file is not in the media library. Details: nothing there"
    )
    assert (await transcribe(media, AgentContext())).error is None


@pytest.mark.anyio
async def test_each_failure_has_a_text_of_its_own() -> None:
    """R32: no audio track, unreadable file, engine failure and the others, told apart; no path."""
    codes = ["empty", "unreadable", "no_audio", "no_decodable_audio", "unsupported", "too_large"]
    codes += ["weights_missing", "weights_damaged", "engine_failed", "cancelled", "media"]
    errors = set()
    for code in codes:
        media = Media(ASSETS[:1], error=MediaError("/srv/media/a1 failed", code=code))
        errors.add(str((await transcribe(media)).error))
    assert len(errors) == len(codes)
    assert all("'Intro.mp4'" in error and "/srv" not in error for error in errors)
    assert any("no audio track" in error for error in errors)


@pytest.mark.anyio
async def test_silence_is_told_as_silence() -> None:
    """R32: an honest empty transcript."""
    media = Media(ASSETS[:1], Transcript("", None, 3.0, (), ("no_speech",)))
    result = (await transcribe(media)).result
    assert (result["text"], result["segmentCount"], result["warnings"]) == ("", 0, ["no_speech"])
    assert result["note"].startswith("No speech was found")


@pytest.mark.anyio
async def test_progress_is_told_and_a_stop_ends_the_work() -> None:
    """R32: progress events while it works; cancellable."""
    told: list[Any] = []
    media = Media(ASSETS[:1], begun=asyncio.Event())
    context = ToolContext(progress=lambda *args: told.append(args))
    task = asyncio.ensure_future(transcribe(media, context))
    assert media.begun is not None
    await media.begun.wait()
    assert told == [(0.5, "half")]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.anyio
async def test_without_media_the_tool_answers_that_it_is_not_set_up() -> None:
    """R61: it is registered all the same."""
    result = await default_registry().execute(ToolCall("c1", "transcribe_video", {}))
    assert "not set up" in str(result.error)
