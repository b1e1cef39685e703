"""The library holds whole files, known by their content, under names that are safe to show."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import pytest

from playhead.errors import MediaError
from playhead.media import adopt
from playhead.media.library import MediaLibrary, MediaRecord, safe_name
from playhead.media.probe import probe
from playhead.media.types import Probe
from playhead.types import MediaAsset
from tests.media import build
from tests.media.build import tone

JFK = build.JFK.read_bytes()


async def chunks(data: bytes, size: int = 10_000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def library(tmp_path: Path) -> MediaLibrary:
    return MediaLibrary(tmp_path / "media")


@pytest.mark.anyio
async def test_an_upload_is_stored_whole_and_described(library: MediaLibrary) -> None:
    """R32: an asset has an id, a name, a type and a length; the file is byte for byte the same."""
    record = await library.add("Inaugural address.mp4", chunks(JFK))
    assert library.path(record.id).read_bytes() == JFK
    assert library.get(record.id) == record
    assert library.list() == [record]
    assert library.assets() == [MediaAsset(record.id, "Inaugural address.mp4", "video", 11.1)]
    assert (record.size, record.content_type, record.has_audio) == (len(JFK), "video/mp4", True)
    assert (record.width, record.height) == (320, 180)


@pytest.mark.anyio
async def test_a_restart_finds_everything_again(library: MediaLibrary, tmp_path: Path) -> None:
    """R32: the folder is the truth; several processes may share it."""
    first = await library.add("a.mp4", chunks(JFK))
    other = MediaLibrary(tmp_path / "media")
    assert other.list() == [first]
    second = await other.add_file(build.LIBRIVOX)
    assert library.list() == [first, second]
    await library.delete(first.id)
    assert other.list() == [second]


@pytest.mark.anyio
async def test_each_tenant_has_a_library_within_the_folder(library: MediaLibrary, tmp_path: Path) -> None:
    """Whatever text names it; and who belongs to none has nothing of theirs."""
    tenants = ["a", "A", "a/b", "..", "../../a", "", "\0", "x" * 5_000, "\ud800", ".tenants"]
    records = [await library.of_tenant(tenant).add("own.mp4", chunks(JFK)) for tenant in tenants]
    assert len({record.id for record in records}) == len(tenants)
    again = MediaLibrary(tmp_path / "media")
    for tenant, record in zip(tenants, records, strict=True):
        assert again.of_tenant(tenant).list() == [record]
        assert (tmp_path / "media").resolve() in again.of_tenant(tenant).path(record.id).resolve().parents
    assert library.list() == again.list() == []
    assert library.of_tenant(None) is library


@pytest.mark.anyio
async def test_the_same_file_is_stored_once(library: MediaLibrary) -> None:
    """R32: a demo that is run twice has one playable asset, not two."""
    first = await library.add("a.mp4", chunks(JFK))
    assert await library.add("a.mp4", chunks(JFK, 777)) == first
    assert (await library.add("b.mp4", chunks(JFK))).id != first.id
    assert len(library.list()) == 2


@pytest.mark.anyio
async def test_the_content_counts_and_not_the_name(library: MediaLibrary, tmp_path: Path) -> None:
    """R32: the suffix and the content type come from what the file is."""
    record = await library.add("holiday.exe", chunks(build.LIBRIVOX.read_bytes()))
    assert (record.name, record.suffix, record.content_type) == ("holiday.exe", ".webm", "video/webm")
    assert library.path(record.id).suffix == ".webm"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty"),
        (b"just a letter" * 300, "unreadable"),
        (b"ffconcat version 1.0\nfile a.mp4\n", "unsupported"),
    ],
)
async def test_what_is_no_media_is_refused_and_gone(
    library: MediaLibrary, tmp_path: Path, data: bytes, code: str
) -> None:
    """R32: judged by content, told under the name that the person gave it."""
    with pytest.raises(MediaError, match=r"holiday\.mp4") as caught:
        await library.add("holiday.mp4", chunks(data))
    assert caught.value.code == code
    assert str(tmp_path) not in str(caught.value)
    assert left(tmp_path / "media") == []


@pytest.mark.anyio
async def test_an_upload_that_is_too_large_stops_early(library: MediaLibrary, tmp_path: Path) -> None:
    """R32: too_large is found while it arrives, not after."""
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 10_000
            yield bytes(10_000)

    with pytest.raises(MediaError) as caught:
        await library.add("a.mp4", endless(), max_bytes=55_000)
    assert (caught.value.code, taken) == ("too_large", 60_000)
    assert left(tmp_path / "media") == []


@pytest.mark.anyio
async def test_an_upload_that_breaks_off_leaves_nothing(library: MediaLibrary, tmp_path: Path) -> None:
    """R32: a lost connection in the middle."""

    async def broken() -> AsyncIterator[bytes]:
        yield JFK[:50_000]
        raise ConnectionResetError

    with pytest.raises((ConnectionResetError, MediaError)):
        await library.add("a.mp4", broken())
    assert left(tmp_path / "media") == []
    assert library.list() == []


@pytest.mark.anyio
async def test_an_upload_that_is_cancelled_leaves_nothing(library: MediaLibrary, tmp_path: Path) -> None:
    """R32: a server that stops in the middle of one."""
    waiting = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield JFK[:50_000]
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(library.add("a.mp4", stuck()))
    await waiting.wait()
    assert len(left(tmp_path / "media")) == 1
    assert library.list() == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left(tmp_path / "media") == []


@pytest.mark.anyio
async def test_what_a_killed_process_left_is_swept(library: MediaLibrary, tmp_path: Path) -> None:
    """R32: the part of an upload that nobody writes any more goes; a fresh one stays."""
    folder = tmp_path / "media"
    folder.mkdir()
    for name, age in ((".old.part", 7200), (".fresh.part", 10)):
        (folder / name).write_bytes(b"half")
        then = os.stat(folder / name).st_mtime - age
        os.utime(folder / name, (then, then))
    await library.add("a.mp4", chunks(JFK))
    assert [name for name in left(folder) if name.endswith(".part")] == [".fresh.part"]


@pytest.mark.anyio
@pytest.mark.parametrize("torn", [b"", b'{"id": "x"', b"\x00\xff", b"[]", None])
async def test_a_torn_record_is_made_anew_from_the_file(
    library: MediaLibrary, tmp_path: Path, torn: bytes | None
) -> None:
    """R32: media is never lost with its record; the torn one is set aside."""
    record = await library.add("a.mp4", chunks(JFK))
    place = tmp_path / "media" / f"{record.id}.json"
    place.unlink() if torn is None else place.write_bytes(torn)
    found = await asyncio.to_thread(MediaLibrary(tmp_path / "media").list)
    assert [(r.id, r.type, r.duration, r.sha256) for r in found] == [
        (record.id, "video", 11.1, record.sha256)
    ]
    assert json.loads(place.read_bytes())["id"] == record.id
    damaged = [name for name in left(tmp_path / "media") if name.endswith(".damaged")]
    assert len(damaged) == (0 if torn is None else 1)


@pytest.mark.anyio
async def test_a_name_that_can_be_read_in_a_torn_record_is_kept(
    library: MediaLibrary, tmp_path: Path
) -> None:
    """R32: half a record still says what people called the file."""
    record = await library.add('the "best" über.mp4', chunks(JFK))
    place = tmp_path / "media" / f"{record.id}.json"
    place.write_bytes(place.read_bytes()[:-40])
    (found,) = await asyncio.to_thread(MediaLibrary(tmp_path / "media").list)
    assert found.name == record.name
    assert json.loads(place.read_bytes())["name"] == record.name


@pytest.mark.anyio
async def test_a_file_without_a_record_holds_up_nobody(
    library: MediaLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32, bad input: it is probed and hashed in a thread, and is there once that is done."""
    known = await library.add("a.mp4", chunks(JFK))
    lost = await library.add("b.mp4", chunks(JFK))
    (tmp_path / "media" / f"{lost.id}.json").unlink()
    asked, go_on = threading.Event(), threading.Event()

    def slow(path: Path) -> Probe:
        asked.set()
        assert go_on.wait(20)
        return probe(path)

    monkeypatch.setattr(adopt, "probe", slow)
    other = MediaLibrary(tmp_path / "media")
    try:
        assert [r.id for r in other.list()] == [known.id]
        assert await asyncio.to_thread(asked.wait, 20)
        assert other.get(lost.id) is None
        assert (await other.add("c.mp4", chunks(JFK))).name == "c.mp4"
    finally:
        go_on.set()
    assert [r.id for r in await asyncio.to_thread(other.list)][:2] == [known.id, lost.id]
    assert other.path(lost.id).read_bytes() == JFK


@pytest.mark.anyio
async def test_a_file_that_is_no_media_is_probed_once(
    library: MediaLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input: looked at again when it has changed, and not at every request."""
    await library.add("a.mp4", chunks(JFK))
    stray = tmp_path / "media" / "stray.mp4"
    stray.write_bytes(b"nothing")
    seen: list[str] = []

    def noted(path: Path) -> Probe:
        seen.append(path.name)
        return probe(path)

    monkeypatch.setattr(adopt, "probe", noted)
    for _ in range(3):
        assert len(await asyncio.to_thread(library.list)) == 1
        assert len(library.list()) == 1
    assert seen == ["stray.mp4"]
    stray.write_bytes(JFK)
    assert {r.name for r in await asyncio.to_thread(library.list)} == {"a.mp4", "stray.mp4"}


@pytest.mark.anyio
async def test_an_upload_that_is_cancelled_while_its_part_is_opened_leaves_nothing(
    library: MediaLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: neither a part on disk nor an open file."""
    asked, go_on = threading.Event(), threading.Event()
    opened: list[BinaryIO] = []
    real = MediaLibrary._open_part

    def slow(self: MediaLibrary, part: Path) -> BinaryIO:
        asked.set()
        assert go_on.wait(20)
        opened.append(real(self, part))
        return opened[0]

    monkeypatch.setattr(MediaLibrary, "_open_part", slow)
    adding = asyncio.create_task(library.add("a.mp4", chunks(JFK)))
    assert await asyncio.to_thread(asked.wait, 20)
    adding.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert [file.closed for file in opened] == [True]
    assert left(tmp_path / "media") == []


@pytest.mark.anyio
async def test_a_record_without_its_file_is_passed_over(library: MediaLibrary, tmp_path: Path) -> None:
    """R32: what a crash between the two writes leaves."""
    record = await library.add("a.mp4", chunks(JFK))
    (tmp_path / "media" / f"{record.id}.mp4").unlink()
    assert library.list() == []
    with pytest.raises(MediaError) as caught:
        library.path(record.id)
    assert caught.value.code == "not_found"


@pytest.mark.anyio
@pytest.mark.parametrize("asset_id", ["", "nothing", "../secret", "..", "a/b", ".old", "\0"])
async def test_an_id_is_looked_up_and_never_a_path(library: MediaLibrary, asset_id: str) -> None:
    """R32: an id comes from a model or a client."""
    await library.add("a.mp4", chunks(JFK))
    assert library.get(asset_id) is None
    with pytest.raises(MediaError) as caught:
        library.path(asset_id)
    assert caught.value.code == "not_found"


@pytest.mark.anyio
async def test_many_uploads_at_once_do_not_mix(library: MediaLibrary, tmp_path: Path) -> None:
    """R32: each has its own id and its own bytes."""
    files = [build.wav(tmp_path / f"{n}.wav", tone(0.1 + n / 10)) for n in range(8)]
    records = await asyncio.gather(*(library.add(f.name, chunks(f.read_bytes(), 999)) for f in files))
    assert len({record.id for record in records}) == 8
    for file, record in zip(files, records, strict=True):
        assert library.path(record.id).read_bytes() == file.read_bytes()


@pytest.mark.anyio
async def test_the_same_file_sent_many_times_at_once_is_stored_once(library: MediaLibrary) -> None:
    """R32: no upload trips over another that ends beside it, and none is stored beside its like."""
    records = await asyncio.gather(*(library.add("a.mp4", chunks(JFK)) for _ in range(50)))
    assert {record.id for record in records} == {library.list()[0].id}


@pytest.mark.anyio
async def test_an_upload_does_not_mind_that_another_one_ends(
    library: MediaLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: the part of another may be gone between its being seen and its being looked at."""
    monkeypatch.setattr(Path, "glob", lambda folder, _: [folder / ".gone.part"])
    assert (await library.add("a.mp4", chunks(JFK))).name == "a.mp4"


def test_of_an_id_that_is_not_there_not_much_is_said_again(library: MediaLibrary) -> None:
    """Issue 2, bad input: the error stays readable whatever was sent as an id."""
    with pytest.raises(MediaError) as caught:
        library.path("x" * 60_000)
    assert str(caught.value) == f"There is no media with the id '{'x' * 100}…'."


@pytest.mark.anyio
async def test_the_event_loop_stays_free_while_a_file_arrives(library: MediaLibrary) -> None:
    """R32: writing, syncing and probing happen off the loop."""
    adding = asyncio.create_task(library.add("a.mp4", chunks(JFK * 40, 1_000_000)))
    turns = 0
    while not adding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert isinstance(await adding, MediaRecord)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("talk.mp4", "talk.mp4"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("../", "untitled"),
        ("", "untitled"),
        ("a\0b\nc\x1b[31m.mp4", "abc[31m.mp4"),
        ("report\u202egpj.mp4", "reportgpj.mp4"),
        ("  two   spaces .mp4 ", "two spaces .mp4"),
        (".hidden", "hidden"),
        ("Übung №1.mp4", "Übung №1.mp4"),
    ],
)
def test_a_name_is_safe_to_show(given: str, shown: str) -> None:
    """R32: no folders, no control characters, nothing that turns the reading direction."""
    assert safe_name(given) == shown


def test_a_long_name_is_cut_and_keeps_its_suffix() -> None:
    """R32: 200 bytes, and never half a character."""
    name = safe_name("ü" * 500 + ".mp4")
    assert len(name.encode()) <= 200
    assert name.endswith("ü.mp4")
