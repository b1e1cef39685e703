"""A folder of media files: an upload is there whole or not at all, and is what its content says.

Beside each `<id><suffix>` lies `<id>.json` with its name and facts. The record is written first and
the file renamed into place last, so a crash between them leaves a record that is passed over.
"""

import asyncio
import errno
import hashlib
import os
import re
import threading
import time
import unicodedata
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

import msgspec

from playhead.errors import MediaError
from playhead.ids import new_id, now_ms
from playhead.media.adopt import Adoption
from playhead.media.files import set_aside, sync_folder, write_atomically
from playhead.media.probe import probe
from playhead.media.types import MediaKind, Probe
from playhead.types import MediaAsset

MAX_BYTES = 4 * 1024**3
_CHUNK = 1024 * 1024
# An upload writes all the time; a part this old belongs to a process that died.
_STALE_SECONDS = 3600.0
_NAME_BYTES = 200
# Its dot keeps it from being taken for a file.
_OF_TENANTS = ".tenants"
# An index that is not at hand is read again.
_KNOWN_TENANTS = 1_000
# Of an id that is not there, no more than this is said again.
_SHOWN = 100


class MediaRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A file of the library. `duration` is in seconds, `size` in bytes, `created_at` in epoch ms.

    `name` is for people; `suffix` and `content_type` come from the content, never from the name.
    """

    id: str
    name: str
    type: MediaKind
    suffix: str
    content_type: str
    size: int
    sha256: str
    duration: float | None = None
    has_audio: bool = False
    width: int | None = None
    height: int | None = None
    created_at: int = 0


# Named here because `MediaLibrary.list` hides the built-in one inside the class.
_Records: TypeAlias = list[MediaRecord]
_Assets: TypeAlias = list[MediaAsset]


class MediaLibrary:
    """The media of a project, in a folder that several processes may share.

    `get`, `assets`, `list` and `path` are plain functions: they read an index in memory, brought up to
    date when the folder changed. `add` and `delete` do their work off the event loop. A file whose
    record is torn or lost is examined in a thread, and is there once that is done; where no event loop
    runs, the plain functions wait for it.

    Args:
        folder: where the files lie; made when the first one arrives.
        max_bytes: the largest upload taken.
    """

    def __init__(self, folder: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._records: dict[str, MediaRecord] = {}
        self._seen: tuple[int, ...] | None = None
        # Between the look for the same file and its being in place, no other may come in.
        self._placing = threading.Lock()
        self._adoption = Adoption(_adopted)
        self._tenants: dict[str, MediaLibrary] = {}

    def of_tenant(self, tenant: str | None) -> "MediaLibrary":
        """Return the media of a tenant: a library of its own, in a folder within this one's.

        None is this library itself, which has none of theirs.
        """
        if tenant is None:
            return self
        # By its hash: any text names a tenant, and not every text names a folder.
        name = hashlib.sha256(tenant.encode(errors="surrogatepass")).hexdigest()[:32]
        if name not in self._tenants and len(self._tenants) >= _KNOWN_TENANTS:
            self._tenants.pop(next(iter(self._tenants)))
        made = MediaLibrary(self._folder / _OF_TENANTS / name, max_bytes=self._max_bytes)
        return self._tenants.setdefault(name, made)

    async def add(
        self, name: str, chunks: AsyncIterator[bytes], *, max_bytes: int | None = None
    ) -> MediaRecord:
        """Store a stream of bytes and return its record; the same content under the same name is
        stored once.

        Whatever interrupts it (an error of the stream, a cancellation, a full disk) leaves nothing.
        Raises `MediaError`: `too_large`, `empty`, `unreadable`, `unsupported`, `needs_package`,
        `disk_full`.
        """
        media_id = new_id()
        part = self._folder / f".{media_id}.part"
        limit = min(self._max_bytes, max_bytes or self._max_bytes)
        display = safe_name(name)
        try:
            file = await self._opened(part)
            with file:
                size, sha256 = await _save(file, chunks, limit, display)
            return await asyncio.to_thread(self._take, media_id, part, display, size, sha256)
        finally:
            # Not awaited: a cancelled upload must be gone too.
            part.unlink(missing_ok=True)

    async def add_file(self, path: Path, name: str | None = None) -> MediaRecord:
        """Copy a file of this machine into the library. Raises as `add`, and `not_found`."""
        if not await asyncio.to_thread(path.is_file):
            raise MediaError(f"There is no file {path.name!r}.", code="not_found")
        return await self.add(name or path.name, _chunks_of(path))

    def list(self) -> _Records:
        """Return every record, oldest first."""
        self._refresh()
        return sorted(self._records.values(), key=lambda record: record.id)

    def assets(self) -> _Assets:
        """Return the records as the model and the tools see them."""
        return [MediaAsset(r.id, r.name, r.type, r.duration) for r in self.list()]

    def get(self, asset_id: str) -> MediaRecord | None:
        """Return the record of an id, or None."""
        self._refresh()
        return self._records.get(asset_id)

    def path(self, asset_id: str) -> Path:
        """Return where the file of an id lies. Raises `MediaError` `not_found`."""
        record = self.get(asset_id)
        if record is None:
            raise no_such_media(asset_id)
        return self._folder / (record.id + record.suffix)

    async def delete(self, asset_id: str) -> None:
        """Remove a file and its record. Raises `MediaError` `not_found`."""
        path = self.path(asset_id)
        await asyncio.to_thread(self._remove, path, asset_id)

    async def _opened(self, part: Path) -> BinaryIO:
        """Open a part. A cancellation waits for the thread, whose file nobody would close."""
        opening = asyncio.ensure_future(asyncio.to_thread(self._open_part, part))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])
            if opening.exception() is None:
                opening.result().close()
            raise

    def _open_part(self, part: Path) -> BinaryIO:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for old in self._folder.glob(".*.part"):
                with suppress(FileNotFoundError):  # another upload's, which just ended
                    if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                        old.unlink()
            return part.open("xb")
        except OSError as error:
            raise _unwritten("The media folder cannot be written", error) from None

    def _take(self, media_id: str, part: Path, name: str, size: int, sha256: str) -> MediaRecord:
        """Judge the complete part by its content and move it into place."""
        try:
            facts = probe(part)
        except MediaError as error:
            # The text names the part; say it of the file as the person knows it.
            raise MediaError(str(error).replace(repr(part.name), repr(name)), code=error.code) from None
        with self._placing:
            self._look()
            for known in self._records.values():
                if known.sha256 == sha256 and known.name == name:
                    return known
            return self._place(part, _record(media_id, name, size, sha256, facts))

    def _place(self, part: Path, record: MediaRecord) -> MediaRecord:
        place = self._folder / f"{record.id}.json"
        try:
            write_atomically(place, msgspec.json.encode(record))
            part.replace(self._folder / (record.id + record.suffix))
        except OSError as error:
            place.unlink(missing_ok=True)
            raise _unwritten(f"{record.name!r} could not be stored", error) from None
        sync_folder(self._folder)
        return record

    def _remove(self, path: Path, asset_id: str) -> None:
        path.unlink(missing_ok=True)
        (self._folder / f"{asset_id}.json").unlink(missing_ok=True)

    def _refresh(self) -> None:
        """Bring the index up to date. Only off an event loop is a file without a record waited for."""
        self._look()
        if not self._adoption.busy:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._adoption.finish()
            self._look()
        else:
            self._adoption.start()

    def _look(self) -> None:
        """Read the folder again if it changed since the last look."""
        try:
            status = self._folder.stat()
        except OSError:
            self._records, self._seen = {}, None
            return
        seen = (status.st_mtime_ns, status.st_ino)
        # A folder that changed just now may change again within the clock's resolution.
        settled = time.time_ns() - status.st_mtime_ns > 1_000_000_000
        if seen == self._seen and settled and not self._adoption.take_news():
            return
        files = {p.stem: p for p in self._folder.iterdir() if p.suffix != ".json" and p.name[0] != "."}
        found: dict[str, MediaRecord] = {}
        for media_id, path in files.items():
            record = self._records.get(media_id) or self._read(media_id, path)
            if record is not None:
                found[media_id] = record
        self._records, self._seen = found, seen

    def _read(self, media_id: str, path: Path) -> MediaRecord | None:
        """Read a record; one that is torn or lost is made anew from the file itself, in its time."""
        place = self._folder / f"{media_id}.json"
        try:
            record = msgspec.json.decode(place.read_bytes(), type=MediaRecord)
            if record.id == media_id and record.suffix == path.suffix:
                return record
            set_aside(place)
        except FileNotFoundError:
            pass
        except (OSError, ValueError):
            set_aside(place)
        return self._adoption.record(path)


def no_such_media(asset_id: str) -> MediaError:
    """Return the error of an id that is not there. Whoever asked may have sent any text as one."""
    shown = asset_id if len(asset_id) <= _SHOWN else f"{asset_id[:_SHOWN]}…"
    return MediaError(f"There is no media with the id {shown!r}.", code="not_found")


def _unwritten(what: str, error: OSError) -> MediaError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return MediaError(f"{what}: {error.strerror}.", code="disk_full" if full else "media")


def safe_name(name: str) -> str:
    """Return a name that is safe to show: no folders, no control or direction characters, not long."""
    last = re.split(r"[/\\]", name)[-1]
    shown = "".join(c for c in unicodedata.normalize("NFC", last) if unicodedata.category(c)[0] != "C")
    shown = " ".join(shown.split()).strip(".")
    stem, dot, suffix = shown.rpartition(".")
    if len(shown.encode()) > _NAME_BYTES and dot and len(suffix) <= 8:
        room = _NAME_BYTES - len(suffix.encode()) - 1
        return f"{stem.encode()[:room].decode(errors='ignore')}.{suffix}"
    return shown.encode()[:_NAME_BYTES].decode(errors="ignore") or "untitled"


def _record(media_id: str, name: str, size: int, sha256: str, facts: Probe) -> MediaRecord:
    return MediaRecord(
        id=media_id,
        name=name,
        type=facts.kind,
        suffix=facts.suffix,
        content_type=facts.content_type,
        size=size,
        sha256=sha256,
        duration=facts.duration,
        has_audio=facts.has_audio,
        width=facts.width,
        height=facts.height,
        created_at=now_ms(),
    )


def _adopted(media_id: str, name: str, size: int, sha256: str, facts: Probe) -> MediaRecord:
    return _record(media_id, safe_name(name), size, sha256, facts)


async def _save(file: BinaryIO, chunks: AsyncIterator[bytes], limit: int, name: str) -> tuple[int, str]:
    """Write a stream to disk and return its size and hash, in pieces of about a megabyte."""
    digest = hashlib.sha256()
    size = 0
    waiting: list[bytes] = []
    held = 0

    def flush() -> None:
        block = b"".join(waiting)
        digest.update(block)
        file.write(block)

    try:
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                raise MediaError(f"{name!r} is larger than the limit of {limit} bytes.", code="too_large")
            waiting.append(chunk)
            held += len(chunk)
            if held >= _CHUNK:
                await asyncio.to_thread(flush)
                waiting, held = [], 0
        await asyncio.to_thread(flush)
        await asyncio.to_thread(_sync, file)
    except OSError as error:
        raise _unwritten(f"{name!r} could not be stored", error) from None
    return size, digest.hexdigest()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


async def _chunks_of(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk
