"""Fetching the files of a known model: told beforehand, resumable, and checked to the byte.

It happens only when somebody asks for it, never inside a transcription.
"""

import asyncio
import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from playhead.errors import MediaError
from playhead.media.catalogue import KnownModel, ModelFile
from playhead.media.files import sync_folder
from playhead.media.models import models_lock
from playhead.media.types import OnProgress

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from filelock import FileLock

HUB = "https://huggingface.co"
_BLOCK = 256 * 1024
_CONNECT, _SILENCE = 15.0, 60.0
_AGAIN = "What has arrived is kept: run it again to go on."


async def download_model(model: KnownModel, models: Path, on_progress: OnProgress, *, hub: str = HUB) -> Path:
    """Fetch a model into the folder `models` and return where it is.

    Each file arrives as `<name>.part` and is taken up there after an interruption; the model appears
    only when every file has the size and the hash of the catalogue.
    Raises `MediaError`: `weights_missing` when the hub cannot be reached or has no such file,
    `weights_damaged` when what it sends is something else, `media` for a full disk.
    """
    import aiohttp

    lock = models_lock(models)
    while not _taken(lock):
        on_progress(None, "waiting for another process that prepares a model")
        await asyncio.sleep(0.5)
    part = models / f".{model.name}.download"
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_SILENCE)
    try:
        part.mkdir(exist_ok=True)
        shown = _Shown(model, on_progress)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for file in model.files:
                url = f"{hub.rstrip('/')}/{model.repository}/resolve/{model.revision}/{file.name}"
                await _fetch(session, url, part / file.name, file, shown)
        return await asyncio.to_thread(_publish, part, models / model.name)
    except aiohttp.InvalidURL:
        raise MediaError("The address of the model hub is not a URL.", code="weights_missing") from None
    except (aiohttp.ClientError, TimeoutError):
        raise MediaError(
            f"The download of the model {model.name} broke off. {_AGAIN}", code="weights_missing"
        ) from None
    except OSError as error:
        raise MediaError(
            f"The model could not be written: {error.strerror}. {_AGAIN}", code="media"
        ) from None
    finally:
        lock.release()


class _Shown:
    """How much of a model is there, told a few times a second."""

    def __init__(self, model: KnownModel, on_progress: OnProgress) -> None:
        self._model = model
        self._on_progress = on_progress
        self._done = 0
        self._last = 0.0

    def add(self, size: int) -> None:
        self._done += size
        now = asyncio.get_running_loop().time()
        if now - self._last >= 0.2 or self._done == self._model.size:
            self._last = now
            done, total = self._done // 1_000_000, self._model.size // 1_000_000
            self._on_progress(
                self._done / self._model.size, f"downloading {self._model.name}: {done} of {total} MB"
            )


async def _fetch(session: "ClientSession", url: str, path: Path, file: ModelFile, shown: _Shown) -> None:
    """Bring one file to its place, unless an earlier run did."""
    if _size(path) == file.size:
        shown.add(file.size)
        return
    part = path.with_name(f"{path.name}.part")
    have = _size(part)
    shown.add(min(have, file.size))
    if have < file.size:
        await _receive(session, url, part, file, shown)
    if not await asyncio.to_thread(_is_right, part, file):
        part.unlink()
        raise MediaError(
            f"What the model hub sent for {file.name} is not what it should be; it was thrown away.",
            code="weights_damaged",
        )
    part.replace(path)


async def _receive(session: "ClientSession", url: str, part: Path, file: ModelFile, shown: _Shown) -> None:
    have = _size(part)
    # identity: a compressed answer has no meaningful range
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    async with session.get(url, headers=headers) as answer:
        if answer.status not in (200, 206):
            raise MediaError(
                f"The model hub has no {file.name} to give (HTTP {answer.status}).", code="weights_missing"
            )
        if answer.status == 200:
            shown.add(-have)
            have = 0  # the whole file again
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise MediaError(f"The model hub sends another part of {file.name}.", code="weights_damaged")
        with part.open("ab" if have else "wb") as target:
            async for block in answer.content.iter_chunked(_BLOCK):
                have += len(block)
                if have > file.size:
                    raise MediaError(
                        f"The model hub sends more for {file.name} than it has.", code="weights_damaged"
                    )
                await asyncio.to_thread(target.write, block)
                shown.add(len(block))
    if have < file.size:
        raise MediaError(f"The download of {file.name} broke off. {_AGAIN}", code="weights_missing")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _is_right(path: Path, file: ModelFile) -> bool:
    with path.open("rb") as data:
        return (
            path.stat().st_size == file.size
            and hashlib.file_digest(data, "sha256").hexdigest() == file.sha256
        )


def _publish(part: Path, folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)  # the damaged one that this replaces
    part.rename(folder)
    sync_folder(folder.parent)
    return folder


def _taken(lock: "FileLock") -> bool:
    from filelock import Timeout

    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True
