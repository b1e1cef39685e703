"""A tool that makes a caption file of a transcript, as long and as fast as one wants it."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from playhead.errors import MediaError, ToolError
from playhead.tools.builtin.assets import Library, assets_of, choose, shown_in, text_of
from playhead.tools.define import Tool
from playhead.types import JsonObject, ToolContext, ToolDefinition, ToolParameter

_DESCRIPTION = (
    "Make captions of a transcribed video or audio file, as SRT or WebVTT: at most so many words on a "
    "line, on the screen for long enough to be read. Returns a link to the file, and its cues."
)
_PARAMETERS = (
    ToolParameter("assetId", "string", False, "The id or the name of the asset; the open one if left out."),
    ToolParameter("format", "string", False, "srt or vtt; vtt if left out."),
    ToolParameter("wordsPerLine", "integer", False, "Words on a line at most, 1 to 20."),
    ToolParameter("lines", "integer", False, "Lines of a caption at most, 1 or 2; 2 if left out."),
    ToolParameter(
        "readingSpeed", "number", False, "Characters per second that can be read, 5 to 40; 17 is usual."
    ),
)
FORMATS = ("srt", "vtt")
_SHOWN = 100


class Caption(Protocol):
    """A caption: times in milliseconds, and its lines."""

    @property
    def start_ms(self) -> int: ...
    @property
    def end_ms(self) -> int: ...
    @property
    def lines(self) -> Sequence[str]: ...


class MadeCaptions(msgspec.Struct, frozen=True):
    """A caption file: where it is, its cues, and how many of them go faster than can be read."""

    url: str
    cues: Sequence[Caption]
    too_fast: int = 0


class CaptionMaker(Protocol):
    """What makes captions of a transcript."""

    async def captions(
        self, asset_id: str, form: str, *, words: int | None, lines: int | None, speed: float | None
    ) -> MadeCaptions:
        """Make them.

        Raises:
            MediaError: the file is not there or was not transcribed (`not_found`), or a number is out of
                range (`unsupported`).
        """


def make_captions(library: Library, maker: CaptionMaker) -> ToolDefinition[..., Any]:
    """Make the `make_captions` tool over a media library and what makes captions.

    It returns `assetId`, `assetName`, `format`, `url`, `cueCount`, `tooFast` (cues that cannot be read
    at the speed asked for, since the next one comes too soon) and the first `cues` of `start`, `end`
    (seconds) and `text`.
    """

    async def execute(args: JsonObject, context: ToolContext) -> JsonObject:
        form = (text_of(args, "format") or "vtt").lower().lstrip(".")
        if form not in FORMATS:
            raise ToolError(f"format: {form[:20]!r} is not known; use srt or vtt.")
        assets = assets_of(context.context, library)
        asset = choose(assets, text_of(args, "assetId"), shown_in(context.context))
        words, lines, speed = (args.get(key) for key in ("wordsPerLine", "lines", "readingSpeed"))
        try:
            made = await maker.captions(asset.id, form, words=words, lines=lines, speed=speed)
        except MediaError as error:
            if error.code == "not_found":
                text = f"{asset.name!r} is not transcribed yet: call transcribe_video first."
                raise ToolError(text) from error
            raise ToolError(str(error)) from error
        result: JsonObject = {
            "assetId": asset.id,
            "assetName": asset.name,
            "format": form,
            "url": made.url,
            "cueCount": len(made.cues),
            "tooFast": made.too_fast,
            "cues": [_cue(cue) for cue in made.cues[:_SHOWN]],
        }
        if len(made.cues) > _SHOWN:
            result["note"] = f"The first {_SHOWN} of {len(made.cues)} cues are shown; the file has all."
        return result

    return Tool(
        "make_captions", _DESCRIPTION, parameters=_PARAMETERS, execute=execute, timeout=60.0, replay="safe"
    )


def _cue(cue: Caption) -> JsonObject:
    return {"start": cue.start_ms / 1000, "end": cue.end_ms / 1000, "text": "\n".join(cue.lines)}
