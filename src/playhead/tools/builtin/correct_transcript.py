"""A tool that corrects what was misheard. Each turn that used it can be taken back as one."""

import asyncio
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from playhead.errors import ToolError
from playhead.ids import new_id
from playhead.tools.builtin.assets import Library, assets_of, choose, shown_in
from playhead.tools.builtin.transcribe_video import Spoken, SpokenSegment
from playhead.tools.define import tool
from playhead.types import JsonObject, ToolContext, ToolDefinition

_SHOWN = 50
LONGEST_LINE = 5_000
# A time that a model gives is often rounded.
_NEAR = 0.5


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was heard, and what was said."""

    heard: Annotated[
        str, Meta(min_length=1, max_length=200, description="Words as they stand in a line now, whole words.")
    ]
    text: Annotated[str, Meta(max_length=500, description="What stands there instead; empty takes them out.")]
    at: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Only in the line at this time, in seconds; else in all lines."),
    ] = None


class TranscriptWriter(Protocol):
    """What was said in the media that were transcribed, and a pen."""

    async def known(self, asset_id: str) -> Spoken | None:
        """Return the transcript of a file, None where there is none yet, or no such file."""

    async def rewrite(self, asset_id: str, lines: Sequence[tuple[Any, str]], *, change: str) -> None:
        """Give lines of the transcript, as `known` returned them, other texts, all or none.

        Args:
            change: what is written under one name is taken back as one.
        """


def correct_transcript(library: Library, writer: TranscriptWriter) -> ToolDefinition[..., Any]:
    """Make the `correct_transcript` tool over a media library and what writes its transcripts.

    It returns `assetId`, `assetName`, `changed` (lines) and the first `segments` of them: `start`, `end`
    (seconds), `text` and `before`. Where one of the corrections fits no line, nothing is changed.
    """

    @tool(
        name="correct_transcript",
        description=(
            "Correct what was misheard in a transcript, such as a name: replaces words, whatever their case, "
            "in all lines or in the one at a time. The user sees what changed, and can take it back."
        ),
        timeout=60.0,
    )
    async def correct(
        corrections: Annotated[list[Correction], Meta(min_length=1, max_length=50)],
        context: ToolContext,
        assetId: Annotated[
            str | None, Meta(description="The id or the name of the asset; the open one if left out.")
        ] = None,
    ) -> JsonObject:
        """See above."""
        asset = choose(assets_of(context.context, library), assetId, shown_in(context.context))
        transcript = await writer.known(asset.id)
        if transcript is None:
            raise ToolError(f"{asset.name!r} is not transcribed yet: call transcribe_video first.")
        texts = await asyncio.to_thread(_corrected, transcript.segments, corrections)
        lines = [(transcript.segments[number], text) for number, text in texts.items()]
        change = context.turn_id or context.idempotency_key or new_id()
        await writer.rewrite(asset.id, lines, change=change)
        result: JsonObject = {
            "assetId": asset.id,
            "assetName": asset.name,
            "changed": len(lines),
            "segments": [_shown(line, text) for line, text in lines[:_SHOWN]],
        }
        if len(lines) > _SHOWN:
            result["note"] = f"The first {_SHOWN} of {len(lines)} changed lines are shown."
        return result

    return correct


def _corrected(lines: Sequence[SpokenSegment], corrections: Sequence[Correction]) -> Mapping[int, str]:
    """The lines that become other ones, by number. Raises `ToolError` where a correction fits none."""
    wanted = [(correction, _pattern(correction.heard), _plain(correction.text)) for correction in corrections]
    unused = set(range(len(wanted)))
    changed: dict[int, str] = {}
    for n, line in enumerate(lines):
        former = _plain(line.text)
        # All of them are about what stands there now: names can be swapped.
        found = [
            (match.start(), -match.end(), which)
            for which, (correction, pattern, _) in enumerate(wanted)
            if _is_at(line, correction.at)
            for match in pattern.finditer(former)
        ]
        pieces: list[str] = []
        done = 0
        for start, end, which in sorted(found):
            if start < done:
                continue
            pieces += (former[done:start], wanted[which][2])
            done = -end
            unused.discard(which)
        text = _plain("".join((*pieces, former[done:])))
        if len(text) > LONGEST_LINE:
            raise ToolError(f"The line at {line.start:g} s would have more than {LONGEST_LINE} characters.")
        if text != former:
            changed[n] = text
    if unused:
        missing = ", ".join(_named(wanted[n][0]) for n in sorted(unused))
        raise ToolError(
            f"Nothing was changed, since no line has {missing},"
            " or another correction has taken the same words. Give whole words as they stand in one line;"
            " search_transcript finds them."
        )
    return changed


def _named(correction: Correction) -> str:
    where = "" if correction.at is None else f" at {correction.at:g} s"
    return f"{correction.heard!r}{where}"


def _pattern(heard: str) -> re.Pattern[str]:
    words = _plain(heard).split()
    if not words:
        raise ToolError("heard: It is blank; give the words that stand in the line.")
    inner = " ".join(map(re.escape, words))
    before = r"(?<!\w)" if words[0][0].isalnum() else ""
    after = r"(?!\w)" if words[-1][-1].isalnum() else ""
    return re.compile(f"{before}{inner}{after}", re.IGNORECASE)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _is_at(line: SpokenSegment, at: float | None) -> bool:
    return at is None or line.start - _NEAR <= at <= line.end + _NEAR


def _shown(line: SpokenSegment, text: str) -> JsonObject:
    return {
        "start": round(line.start, 3),
        "end": round(line.end, 3),
        "text": text,
        "before": line.text.strip(),
    }
