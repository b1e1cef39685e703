"""`/api/media`: upload, list and playback of the media library."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from playhead.errors import MediaError, StoreError
from playhead.media.library import MediaRecord, no_such_media
from playhead.server.body import bounded, drain
from playhead.server.errors import ApiError
from playhead.server.multipart import file_part
from playhead.server.parts import Parts, parts_of
from playhead.server.wire import MediaItem, MediaList, dump

# Shown in place by a browser; anything else is only ever saved.
_SHOWN = re.compile(r"(?:video|audio)/[\w.+-]+|image/(?:png|jpeg|webp|gif|bmp)")
# One range, or several: https://www.rfc-editor.org/rfc/rfc9110.html#section-14.2
_ONE = r"(?:\d{1,18}-\d{0,18}|-\d{1,18})"
_RANGES = re.compile(rf"bytes\s*=\s*{_ONE}(?:\s*,\s*{_ONE})*\s*", re.ASCII | re.I)
# What a form may hold beside its file.
_FORM_ROOM = 64 * 1024
_File = tuple[str, AsyncGenerator[bytes, None]]
SAFE = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


async def upload_media(request: Request) -> Response:
    """Add a file.

    The body is the file itself, named by the query parameter `name`, or a form with one file in it.
    It is written to disk as it arrives, and judged by its content, whatever its name says. `project` is
    the project that it is for; without one it is in the first.
    """
    parts = parts_of(request)
    parts.check_open()
    project_id = request.query_params.get("project")
    limit = _room(parts)
    form = request.headers.get("content-type", "").lower().startswith("multipart/form-data")
    async with aclosing(bounded(request, limit + _FORM_ROOM if form else limit)) as body:
        try:
            if project_id is not None:
                await parts.workspace.project(project_id)  # before a gigabyte was sent
            before = {record.id for record in parts.library.list()}
            name, chunks = await (_form_file if form else _plain_file)(request, body)
            record = await parts.carry_out(parts.library.add(name, chunks, max_bytes=limit))
            if project_id is not None:
                await parts.workspace.put(project_id, record.id, known=record.id in before)
        except (ApiError, MediaError, StoreError):
            if not parts.stopping:
                with suppress(ApiError):
                    await drain(body)
            raise
    return Response(dump(item(record)), 201, media_type="application/json")


def _room(parts: Parts) -> int:
    """How many bytes a file may have. Raises `ApiError` 413 where there is no room for any."""
    options = parts.options
    if options.max_stored is None:
        return options.max_upload
    left = options.max_stored - sum(record.size for record in parts.library.list())
    if left <= 0:
        text = (
            f"The media library is full: at most {options.max_stored:,} bytes are kept. Remove a file first."
        )
        raise ApiError(413, "too_large", text)
    return min(options.max_upload, left)


async def _form_file(request: Request, body: AsyncGenerator[bytes, None]) -> _File:
    return await file_part(request.headers["content-type"], body)


async def _plain_file(request: Request, body: AsyncGenerator[bytes, None]) -> _File:
    name = request.query_params.get("name", "")
    if not name.strip():
        text = "name: Give the file's name: POST /api/media?name=talk.mp4."
        raise ApiError(400, "invalid", text, path="name")
    return name, body


async def list_media(request: Request) -> Response:
    """The files, oldest first."""
    items = [item(record) for record in parts_of(request).library.list()]
    return Response(dump(MediaList(items)), media_type="application/json")


async def delete_media(request: Request) -> Response:
    """Remove a file, from every project that it is in."""
    await parts_of(request).workspace.delete_media(request.path_params["media_id"])
    return Response(status_code=204)


async def media_content(request: Request) -> Response:
    """The file itself, whole or by byte range.

    A browser plays it in place; with `?download` it is saved under its name. What is neither video,
    sound nor picture is only ever saved.
    """
    library = parts_of(request).library
    media_id = request.path_params["media_id"]
    path = library.path(media_id)
    record = library.get(media_id)
    try:
        status = await asyncio.to_thread(path.stat)
    except FileNotFoundError:
        record = None
    if record is None:
        raise no_such_media(media_id)
    etag = f'"{record.sha256}"'
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={**SAFE, "ETag": etag})
    _settle_range(request, status.st_size)
    shown = _SHOWN.fullmatch(record.content_type) is not None
    inline = shown and "download" not in request.query_params
    return FileResponse(
        path,
        headers={**SAFE, "ETag": etag},
        media_type=record.content_type if shown else "application/octet-stream",
        filename=record.name,
        stat_result=status,
        content_disposition_type="inline" if inline else "attachment",
    )


def _settle_range(request: Request, size: int) -> None:
    """Answer 416 as JSON if nothing that was asked for is there, and leave out what is not.

    A `Range` that makes no sense is passed over. Both as RFC 9110, 14.1.1 and 14.2, has it.
    `FileResponse` does the rest.
    """
    asked = request.headers.get("range")
    if asked is None:
        return
    ranges = re.findall(r"(\d*)-(\d*)", asked) if _RANGES.fullmatch(asked) else []
    if not ranges or any(first and last and int(first) > int(last) for first, last in ranges):
        _ask_again(request, None)
        return
    if "if-range" in request.headers:
        return
    there = [f"{first}-{last}" for first, last in ranges if (int(first) < size if first else int(last) > 0)]
    if not there:
        raise ApiError(
            416,
            "range",
            f"The file has {size:,} bytes; the range asked for is not in it.",
            headers={"Content-Range": f"bytes */{size}"},
        )
    if len(there) < len(ranges):
        _ask_again(request, f"bytes={','.join(there)}")


def _ask_again(request: Request, asked: str | None) -> None:
    headers = [(name, value) for name, value in request.scope["headers"] if name != b"range"]
    request.scope["headers"] = headers if asked is None else [*headers, (b"range", asked.encode())]


def item(record: MediaRecord) -> MediaItem:
    """What a client may know of a file."""
    return MediaItem(*(getattr(record, name) for name in MediaItem.__struct_fields__))
