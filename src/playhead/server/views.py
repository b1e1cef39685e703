"""What the page shows of a file: its transcript, captions, waveform and thumbnails."""

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from playhead.errors import MediaError
from playhead.media.captions import CONTENT_TYPES, render
from playhead.media.library import no_such_media
from playhead.media.previews import Waveform
from playhead.media.types import Segment, Transcript
from playhead.server.body import read_json
from playhead.server.errors import ApiError
from playhead.server.media import SAFE
from playhead.server.parts import parts_of
from playhead.server.routes import Endpoint
from playhead.server.wire import ChangeList, LineBody, ThumbnailSheet, dump
from playhead.server.workspace import RANGES, Workspace, style_of

N = TypeVar("N", int, float)
_CAPTION_TYPES = [kind.partition(";")[0] for kind in CONTENT_TYPES.values()]


def view_endpoints() -> Sequence[Endpoint]:
    """The part of the route table that is here."""
    file = "/api/media/{media_id}"
    style = [
        ("words", "Words on a line of a caption at most, 1 to 20."),
        ("lines", "Lines of a caption at most, 1 or 2."),
        ("speed", "Characters per second that can be read, 5 to 40."),
    ]
    drawn = (400, 404, 409, 415, 422, 503)
    return (
        Endpoint("GET", f"{file}/transcript", media_transcript, reply=Transcript, errors=[404]),
        Endpoint(
            "PUT",
            f"{file}/transcript/lines/{{number}}",
            edit_line,
            body=LineBody,
            reply=Segment,
            errors=[400, 404, 409, 413],
        ),
        Endpoint("GET", f"{file}/transcript/changes", transcript_changes, reply=ChangeList, errors=[404]),
        Endpoint(
            "GET",
            f"{file}/captions.{{form}}",
            media_captions,
            download=_CAPTION_TYPES,
            query=style,
            errors=[400, 404],
        ),
        Endpoint("GET", f"{file}/waveform", media_waveform, reply=Waveform, errors=drawn),
        Endpoint("GET", f"{file}/thumbnails", media_thumbnails, reply=ThumbnailSheet, errors=drawn),
        Endpoint("GET", f"{file}/thumbnails.jpg", thumbnail_sheet, download=["image/jpeg"], errors=drawn),
    )


async def media_transcript(request: Request) -> Response:
    """The transcript of a file that was made last, as it was edited since.

    A line that was edited has `said`, what was recognised. 404 as long as nobody asked for a
    transcript: a run does, with the tool `transcribe_video`.
    """
    transcript = await _workspace(request).transcript(request.path_params["media_id"])
    return Response(render(transcript, "json"), media_type="application/json", headers=SAFE)


async def media_captions(request: Request) -> Response:
    """The transcript as a file: WebVTT, SubRip, text or JSON.

    The name of the download is that of the media file.
    """
    form = request.path_params["form"]
    if form not in CONTENT_TYPES:
        text = f"There are no captions as {form[:20]!r}: use one of {', '.join(CONTENT_TYPES)}."
        raise ApiError(404, "not_found", text)
    words, lines = _number(request, "words", int), _number(request, "lines", int)
    style = style_of(words, lines, _number(request, "speed", float))
    workspace, media_id = _workspace(request), request.path_params["media_id"]
    transcript = await workspace.transcript(media_id)
    record = workspace.library.get(media_id)
    if record is None:
        raise no_such_media(media_id)
    name = quote(f"{record.name.rpartition('.')[0] or record.name}.{form}", safe="")
    headers = {**SAFE, "Content-Disposition": f"inline; filename*=utf-8''{name}"}
    return Response(render(transcript, form, style), headers=headers, media_type=CONTENT_TYPES[form])


async def edit_line(request: Request) -> Response:
    """Write a line of a transcript anew; what was recognised is kept beside it.

    Lines are counted from 0. The answer is the line as it stands now. Words that are the same keep
    their times, and others share the time between them. 409 where the file was transcribed anew since.
    """
    number = request.path_params["number"]
    body = await read_json(request, LineBody, parts_of(request).options.max_body)
    if not number.isdecimal() or len(number) > 9:
        raise ApiError(404, "not_found", f"There is no line {number[:20]!r}: lines are counted from 0.")
    line = await _workspace(request).edit(request.path_params["media_id"], int(number), body.said, body.text)
    return Response(dump(line), media_type="application/json", headers=SAFE)


async def transcript_changes(request: Request) -> Response:
    """What was changed in the lines of a transcript, the newest first; the last 100 changes are kept.

    One change is a line that a person wrote, or all that an agent wrote in one turn.
    """
    made = await _workspace(request).changes(request.path_params["media_id"])
    return Response(dump(ChangeList(made)), media_type="application/json", headers=SAFE)


async def media_waveform(request: Request) -> Response:
    """The loudness of a file in equal parts, from 0 to 255, to draw its waveform.

    It is made when it is first asked for, which takes seconds for an hour, and kept.
    """
    parts = parts_of(request)
    waveform = await parts.carry_out(_workspace(request).waveform(request.path_params["media_id"]))
    return Response(dump(waveform), media_type="application/json", headers=SAFE)


async def media_thumbnails(request: Request) -> Response:
    """How the pictures of a file lie on its sheet.

    They are made when they are first asked for, and kept.
    """
    parts = parts_of(request)
    made = await parts.carry_out(_workspace(request).thumbnails(request.path_params["media_id"]))
    sheet = ThumbnailSheet(made.count, made.columns, made.width, made.height, made.every)
    return Response(dump(sheet), media_type="application/json", headers=SAFE)


async def thumbnail_sheet(request: Request) -> Response:
    """The pictures of a file on one sheet. 404 for a file without any."""
    parts = parts_of(request)
    made = await parts.carry_out(_workspace(request).thumbnails(request.path_params["media_id"]))
    if not made.jpeg:
        raise MediaError("There are no pictures in this file.", code="not_found")
    return Response(made.jpeg, media_type="image/jpeg", headers=SAFE)


def _workspace(request: Request) -> Workspace:
    return parts_of(request).workspace


def _number(request: Request, name: str, kind: Callable[[str], N]) -> N | None:
    given = request.query_params.get(name)
    if given is None:
        return None
    least, most = RANGES[name]
    try:
        number = kind(given)
    except ValueError:
        number = None
    if number is None or not least <= number <= most:
        text = f"{name}: It is {given[:20]!r}; give {least:g} to {most:g}."
        raise ApiError(400, "invalid", text, path=name)
    return number
