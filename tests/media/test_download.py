"""Fetching a model: told beforehand, taken up after a break, checked to the byte."""

import asyncio
import os
from pathlib import Path

import pytest

from playhead.errors import MediaError
from playhead.media.catalogue import KnownModel
from playhead.media.download import download_model
from playhead.media.models import models_lock, verify_model
from playhead.testing import FakeProvider, Reply, Request, hang, reply_bytes, reply_json
from tests.media import weights
from tests.media.weights import SMALL_FILES, told

pytestmark = pytest.mark.anyio


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    return weights.known("small", monkeypatch)


def whole(data: bytes, cut: int | None = None) -> Reply:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    return reply_bytes(head, data[:cut])


def hub(request: Request) -> Reply:
    """A hub as the real one: files by repository and revision, byte ranges, redirects."""
    parts = request.path.split("/")
    if parts[1:5] == ["maker", "small", "resolve", "0123abcd"]:
        return reply_bytes(
            f"HTTP/1.1 302 Found\r\nLocation: /cdn/{parts[5]}\r\nContent-Length: 0\r\n\r\n".encode()
        )
    data = SMALL_FILES[parts[2]]
    asked = request.headers.get("range")
    if asked is None:
        return whole(data)
    first = int(asked.removeprefix("bytes=").rstrip("-"))
    head = (
        f"HTTP/1.1 206 Partial Content\r\nContent-Length: {len(data) - first}\r\n"
        f"Content-Range: bytes {first}-{len(data) - 1}/{len(data)}\r\n\r\n"
    )
    return reply_bytes(head.encode(), data[first:])


async def test_a_model_is_fetched_and_checked(tmp_path: Path, model: KnownModel) -> None:
    """R32: with its size and progress, from the revision that is pinned."""
    said: list[tuple[float | None, str]] = []
    async with FakeProvider(default=hub) as provider:
        folder = await download_model(model, tmp_path, lambda f, t: said.append((f, t)), hub=provider.url)
    assert folder == tmp_path / "small"
    verify_model(model, folder)
    fractions = [fraction for fraction, _ in said]
    assert fractions == sorted(fractions, key=float)  # type: ignore[arg-type]  # none is None here
    assert said[-1] == (1.0, "downloading small: 0 of 0 MB")
    assert sorted(os.listdir(tmp_path)) == [".lock", "small"]


async def test_a_broken_download_goes_on_where_it_broke(tmp_path: Path, model: KnownModel) -> None:
    """R32: resume, by byte range; what is complete is not asked for again."""
    data = SMALL_FILES["model.bin"]
    async with FakeProvider(whole(SMALL_FILES["config.json"]), whole(data, cut=1000)) as provider:
        with pytest.raises(MediaError, match="run it again to go on") as caught:
            await download_model(model, tmp_path, told, hub=provider.url)
        assert caught.value.code == "weights_missing"
    assert not (tmp_path / "small").exists()
    async with FakeProvider(default=hub) as provider:
        verify_model(model, await download_model(model, tmp_path, told, hub=provider.url))
        asked = [
            (r.path.split("/")[-1], r.headers.get("range")) for r in provider.requests if "cdn" in r.path
        ]
    assert asked == [("model.bin", "bytes=1000-"), ("tokenizer.json", None), ("vocabulary.txt", None)]


async def test_a_hub_without_ranges_sends_the_whole_again(tmp_path: Path, model: KnownModel) -> None:
    """R32: a mirror that ignores Range gives a right file, not one joined wrongly."""
    part = tmp_path / ".small.download" / "model.bin.part"
    part.parent.mkdir()
    part.write_bytes(SMALL_FILES["model.bin"][:500])

    def mirror(request: Request) -> Reply:
        return whole(SMALL_FILES[request.path.split("/")[-1]])

    async with FakeProvider(default=mirror) as provider:
        verify_model(model, await download_model(model, tmp_path, told, hub=f"{provider.url}/"))


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (reply_json({"error": "no such repository"}, 404), "weights_missing"),
        (reply_json({"error": "secret words of the hub"}, 503), "weights_missing"),
        (whole(b"<html>please log in</html>"), "weights_damaged"),
        (whole(SMALL_FILES["config.json"][::-1]), "weights_damaged"),
        (reply_bytes(b"nonsense\r\n\r\n"), "weights_missing"),
        (reply_bytes(end="rst"), "weights_missing"),
    ],
    ids=["missing", "down", "too much", "other bytes", "no http", "reset"],
)
async def test_what_a_hub_does_wrong_is_told(
    tmp_path: Path, model: KnownModel, reply: Reply, code: str
) -> None:
    """R32: nothing wrong is ever put in place, and nobody's words are passed on."""
    async with FakeProvider(default=reply) as provider:
        with pytest.raises(MediaError) as caught:
            await download_model(model, tmp_path, told, hub=provider.url)
    assert caught.value.code == code
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "small").exists()


async def test_nobody_at_the_address_is_told(tmp_path: Path, model: KnownModel) -> None:
    """R32: offline."""
    for address in ("http://127.0.0.1:9", "not a url"):
        with pytest.raises(MediaError) as caught:
            await download_model(model, tmp_path, told, hub=address)
        assert caught.value.code == "weights_missing"


async def test_a_cancelled_download_keeps_what_it_has_and_frees_the_folder(
    tmp_path: Path, model: KnownModel
) -> None:
    """R32: Ctrl-C in the middle."""
    async with FakeProvider(whole(SMALL_FILES["config.json"]), hang()) as provider:
        task = asyncio.create_task(download_model(model, tmp_path, told, hub=provider.url))
        await provider.wait_for_requests(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (tmp_path / ".small.download" / "config.json").read_bytes() == SMALL_FILES["config.json"]
    models_lock(tmp_path).acquire(timeout=0).lock.release()


async def test_a_folder_of_models_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """R32: not as a fault of the engine."""
    (tmp_path / "home").write_bytes(b"a file where the folder should be")
    with pytest.raises(MediaError, match="folder of models cannot be made") as caught:
        models_lock(tmp_path / "home" / "models")
    assert (caught.value.code, str(tmp_path) in str(caught.value)) == ("media", False)


async def test_a_damaged_model_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R32: prepare mends what is damaged."""
    folder = weights.install(tmp_path, "small", monkeypatch)
    (folder / "model.bin").write_bytes(b"half")
    model = weights.known("small", monkeypatch)
    async with FakeProvider(default=hub) as provider:
        verify_model(model, await download_model(model, tmp_path, told, hub=provider.url))


async def test_a_second_process_waits_its_turn(tmp_path: Path, model: KnownModel) -> None:
    """R32: two that prepare at once fetch the model once, and both have it."""
    said: list[str] = []
    held = models_lock(tmp_path)
    held.acquire()

    def listen(fraction: float | None, text: str) -> None:
        said.append(text)
        if "waiting" in text:
            held.release()

    async with FakeProvider(default=hub) as provider:
        verify_model(model, await download_model(model, tmp_path, listen, hub=provider.url))
    assert said[0].startswith("waiting for another process")
