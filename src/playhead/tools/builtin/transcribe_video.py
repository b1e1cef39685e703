"""A tool that writes down what is said in a video or a sound file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from playhead.errors import MediaError, ToolError
from playhead.tools.builtin.assets import Library, assets_of, choose, text_of
from playhead.tools.define import Tool
from playhead.types import JsonObject, MediaAsset, ToolContext, ToolDefinition, ToolParameter

_DESCRIPTION = (
    "Transcribe the speech of a video or audio file: the full text, and segments with start and end in "
    "seconds. Without assetId it takes the one that is loaded."
)
_PARAMETERS = (
    ToolParameter("assetId", "string", False, "The id or the name of the asset."),
    ToolParameter("language", "string", False, "What is spoken, as a code such as en; heard when not given."),
    ToolParameter("modelId", "string", False, "The speech model; leave it out for the usual one."),
)
# What the model can say of a cause that the error's own text may only name.
_CAUSES = {
    "not_found": "the file is not in the media library",
    "empty": "the file is empty",
    "unreadable": "the file cannot be read as media",
    "no_audio": "it has no audio track",
    "no_decodable_audio": "its audio cannot be decoded",
    "unsupported": "its format is not supported",
    "too_large": "it is too large",
    "weights_missing": "the speech model is not installed",
    "weights_damaged": "the speech model is damaged",
    "engine_failed": "the speech engine failed",
    "cancelled": "the transcription was stopped",
}
_TIMEOUT = 3_600.0
# A person goes on talking while a recording of an hour is worked on.
_BACKGROUND = 300.0


class SpokenSegment(Protocol):
    """A piece of speech; times in seconds."""

    @property
    def text(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


class Spoken(Protocol):
    """A transcript; `duration` in seconds. It may have `warnings`, a sequence of codes."""

    @property
    def text(self) -> str: ...
    @property
    def language(self) -> str | None: ...
    @property
    def duration(self) -> float | None: ...
    @property
    def segments(self) -> Sequence[SpokenSegment]: ...


class Transcriber(Protocol):
    """What turns a file into a transcript. Cancelling the call stops the work."""

    async def transcribe(
        self,
        path: Path,
        *,
        language: str | None = None,
        model_id: str | None = None,
        on_progress: Callable[[float | None, str], None] | None = None,
    ) -> Spoken: ...


def transcribe_video(library: Library | None, service: Transcriber | None) -> ToolDefinition[..., Any]:
    """Make the `transcribe_video` tool over a media library and a transcription service.

    The asset is chosen among those of the `AgentContext`, or of the library when it has none: by id,
    by exact name, then by name whatever its case; when none is named, the only playable one. It
    returns `assetId`, `assetName`, `language`, `duration`, `segmentCount`, `text`, and `segments` of
    `start`, `end` (seconds, to the millisecond) and `text`; `warnings` and a `note` where there is
    cause. Each failure of the file or the engine has a text of its own.
    """

    async def execute(args: JsonObject, context: ToolContext) -> JsonObject:
        if library is None or service is None:
            raise ToolError(
                "Transcription is not set up here: the application has no media library or no speech engine."
            )
        asset = choose(assets_of(context.context, library), text_of(args, "assetId"))
        try:
            transcript = await service.transcribe(
                library.path(asset.id),
                language=text_of(args, "language"),
                model_id=text_of(args, "modelId"),
                on_progress=context.progress,
            )
        except MediaError as error:
            raise _told(asset, error) from error
        return _result(asset, transcript)

    return Tool(
        "transcribe_video",
        _DESCRIPTION,
        parameters=_PARAMETERS,
        execute=execute,
        timeout=_TIMEOUT,
        replay="safe",
        background=_BACKGROUND,
    )


def _told(asset: MediaAsset, error: MediaError) -> ToolError:
    cause = _CAUSES.get(error.code, "the media could not be used")
    detail = str(error).strip()
    return ToolError(
        f"{asset.name!r} was not transcribed, because {cause}." + (f" Details: {detail}" if detail else "")
    )


def _result(asset: MediaAsset, transcript: Spoken) -> JsonObject:
    segments = [
        {"start": round(part.start, 3), "end": round(part.end, 3), "text": part.text.strip()}
        for part in transcript.segments
    ]
    text = transcript.text.strip()
    result: JsonObject = {
        "assetId": asset.id,
        "assetName": asset.name,
        "language": transcript.language,
        "duration": None if transcript.duration is None else round(transcript.duration, 3),
        "segmentCount": len(segments),
        "text": text,
        "segments": segments,
    }
    warnings = list(getattr(transcript, "warnings", None) or ())
    if warnings:
        result["warnings"] = warnings
    if not text:
        result["note"] = "No speech was found in it. Say so; do not make up words."
    return result
