"""A tool that finds where something is said."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from playhead.errors import ToolError
from playhead.tools.builtin.assets import Library, assets_of, choose, is_playable, text_of
from playhead.tools.builtin.finding import Heard, Hit, find, heard, words_of
from playhead.tools.builtin.transcribe_video import Spoken
from playhead.tools.define import Tool
from playhead.types import JsonObject, MediaAsset, ToolContext, ToolDefinition, ToolParameter

_DESCRIPTION = (
    "Find where something is said, in all transcribed media or in one: a phrase or something near it, "
    "whatever its case and accents. Answers 'where do I say ...' with times in seconds."
)
_PARAMETERS = (
    ToolParameter("query", "string", True, "The words to find."),
    ToolParameter("assetId", "string", False, "Only in this one: its id or its name."),
    ToolParameter("near", "boolean", False, "Also what is alike, which is so unless false is given."),
    ToolParameter("limit", "integer", False, "How many places to return, best first; 10, and 50 at most."),
)
_USUAL, _MOST = 10, 50
_LONGEST = 200
_WORDS = 20


class Transcripts(Protocol):
    """What was said in the media that were transcribed."""

    async def known(self, asset_id: str) -> Spoken | None:
        """Return the transcript of a file, None where there is none yet, or no such file."""


def search_transcript(library: Library, transcripts: Transcripts) -> ToolDefinition[..., Any]:
    """Make the `search_transcript` tool over a media library and its transcripts.

    It searches the assets of the `AgentContext`, or of the library when it has none. It returns
    `query`, `count` (all places), and of the best of them `matches`: `assetId`, `assetName`, `start`,
    `end` (seconds), `match` (`exact` or `near`), `text` (the lines they stand in) and `words` of
    `text`, `start` and `end`; `timesEstimated` where the engine gave none for words. Media that have no
    transcript are named in `notTranscribed`.
    """

    async def execute(args: JsonObject, context: ToolContext) -> JsonObject:
        query = text_of(args, "query") or ""
        asked = _asked(query)
        assets = [asset for asset in assets_of(context.context, library) if is_playable(asset)]
        wanted = text_of(args, "assetId")
        if wanted is not None or not assets:
            assets = [choose(assets_of(context.context, library), wanted)]
        spoken = [(asset, await transcripts.known(asset.id)) for asset in assets]
        there = [(asset, found) for asset, found in spoken if found is not None]
        missing = [asset for asset, found in spoken if found is None]
        if not there:
            names = ", ".join(repr(asset.name) for asset in missing[:_MOST])
            raise ToolError(f"Nothing is transcribed yet: call transcribe_video first. Media: {names}.")
        near = args.get("near") is not False
        found = await asyncio.to_thread(_search, there, asked, near)
        matches = found[: _limit(args)]
        result: JsonObject = {"query": query, "count": len(found), "matches": matches}
        if missing:
            result["notTranscribed"] = [{"assetId": a.id, "assetName": a.name} for a in missing[:_MOST]]
        if not found:
            result["note"] = "It is not said in these transcripts. Say so; do not make up times."
        return result

    return Tool(
        "search_transcript",
        _DESCRIPTION,
        parameters=_PARAMETERS,
        execute=execute,
        timeout=60.0,
        replay="safe",
    )


def _asked(query: str) -> Sequence[str]:
    if len(query) > _LONGEST:
        raise ToolError(f"query: It has {len(query)} characters; give the words to find, {_LONGEST} at most.")
    asked = words_of(query)[:_WORDS]
    if not asked:
        raise ToolError(f"query: There is no word in {query!r}; give the words to find.")
    return asked


def _limit(args: JsonObject) -> int:
    limit = args.get("limit")
    if limit is None:
        return _USUAL
    if not 1 <= limit <= _MOST:
        raise ToolError(f"limit: It is {limit}; give 1 to {_MOST}.")
    return int(limit)


def _search(
    spoken: Sequence[tuple[MediaAsset, Spoken]], asked: Sequence[str], near: bool
) -> Sequence[JsonObject]:
    """All places, best first, then in the order of the media and of time."""
    found: list[tuple[tuple[float, int, float], JsonObject]] = []
    for order, (asset, transcript) in enumerate(spoken):
        words = heard(transcript.segments)
        for hit in find(words, asked, near=near):
            place = (-hit.score, order, words[hit.first].start)
            found.append((place, _match(asset, transcript, words[hit.first : hit.last], hit)))
    return [match for _, match in sorted(found, key=lambda one: one[0])]


def _match(asset: MediaAsset, transcript: Spoken, words: Sequence[Heard], hit: Hit) -> JsonObject:
    lines = transcript.segments[words[0].line : words[-1].line + 1]
    match: JsonObject = {
        "assetId": asset.id,
        "assetName": asset.name,
        "start": round(words[0].start, 3),
        "end": round(words[-1].end, 3),
        "match": "exact" if hit.score == 1 else "near",
        "text": " ".join(line.text.strip() for line in lines),
        "words": [
            {"text": word.text, "start": round(word.start, 3), "end": round(word.end, 3)} for word in words
        ],
    }
    if any(word.guessed for word in words):
        match["timesEstimated"] = True
    return match
