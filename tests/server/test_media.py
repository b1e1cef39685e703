"""`/api/media` over real HTTP, with real files."""

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
import pytest
from yarl import URL

from playhead.media.library import MediaLibrary
from playhead.server import ServerOptions
from tests.server.support import SAMPLE, ask, served, settings

pytestmark = pytest.mark.anyio

BYTES = SAMPLE.read_bytes()
SIZE = len(BYTES)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
async def client(home: Path) -> AsyncIterator[aiohttp.ClientSession]:
    async with served(settings=settings(home)) as client:
        yield client


async def upload(client: aiohttp.ClientSession, data: Any = BYTES, name: str = "talk.mp4") -> Any:
    status, item = await ask(client, "POST", "/api/media", params={"name": name}, data=data)
    assert status == 201, item
    return item


def form(data: bytes = BYTES, name: str = "talk.mp4") -> aiohttp.FormData:
    made = aiohttp.FormData(quote_fields=False)
    made.add_field("note", "a field that comes first")
    made.add_field("file", data, filename=name, content_type="video/mp4")
    made.add_field("after", "and one that follows")
    return made


async def pieces(data: bytes, size: int = 10_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]
        await asyncio.sleep(0)


# ---------------------------------------------------------------- upload and list


@pytest.mark.parametrize("way", ["body", "chunked body", "form"])
async def test_a_file_is_taken_and_listed(way: str, client: aiohttp.ClientSession, home: Path) -> None:
    """The file as the body, with or without a length, or in a form; the same bytes lie on disk."""
    data = {"body": BYTES, "chunked body": pieces(BYTES), "form": form()}[way]
    item = await upload(client, data)
    assert item["name"] == "talk.mp4"
    assert (item["type"], item["contentType"], item["size"]) == ("video", "video/mp4", SIZE)
    assert item["duration"] == pytest.approx(11, abs=0.5)
    assert item["hasAudio"]
    assert await ask(client, "GET", "/api/media") == (200, {"items": [item]})
    (stored,) = [name for name in os.listdir(home / "media") if name.endswith(".mp4")]
    assert (home / "media" / stored).read_bytes() == BYTES


async def test_a_name_of_any_script_is_kept_and_its_folders_are_not(client: aiohttp.ClientSession) -> None:
    assert (await upload(client, name="Über 講演.mp4"))["name"] == "Über 講演.mp4"
    assert (await upload(client, name="../../etc/passwd.mp4"))["name"] == "passwd.mp4"
    assert (await upload(client, form(name="Über 講演.mp4")))["name"] == "Über 講演.mp4"


async def test_the_content_decides_whatever_the_name_says(client: aiohttp.ClientSession) -> None:
    item = await upload(client, name="page.html")
    assert item["contentType"] == "video/mp4"


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"", 400, "empty"),
        (b"just some text, renamed", 415, "unreadable"),
        (b"<html><script>alert(1)</script></html>", 415, "unreadable"),
        (BYTES[:32], 415, "unreadable"),
        (b"\0" * 50_000, 415, "unreadable"),
    ],
)
@pytest.mark.parametrize("way", ["body", "form"])
async def test_a_bad_file_has_an_error_of_its_own(
    data: bytes, status: int, code: str, way: str, client: aiohttp.ClientSession, home: Path
) -> None:
    """Bad input, media: nothing of it stays, and no path of this machine is told."""
    body = data if way == "body" else form(data)
    found, answer = await ask(client, "POST", "/api/media", params={"name": "talk.mp4"}, data=body)
    assert (found, answer["code"]) == (status, code)
    assert str(home) not in answer["error"]
    assert os.listdir(home / "media") == []
    assert await ask(client, "GET", "/api/media") == (200, {"items": []})


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
async def test_a_full_disk_is_told_to_a_client_that_sends_all_before_it_reads(
    client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 2, bad input: it reads why, instead of finding its connection broken."""

    def full(library: MediaLibrary, part: Path) -> BinaryIO:
        return Path("/dev/full").open("wb")

    monkeypatch.setattr(MediaLibrary, "_open_part", full)
    url = URL(str(client._base_url))
    size = 12_000_000
    head = "POST /api/media?name=talk.mp4 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"

    def send() -> bytes:
        with socket.create_connection((url.host, url.port), timeout=10) as connection:
            connection.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode() + b"\0" * size)
            return b"".join(iter(lambda: connection.recv(10_000), b""))

    answer = await asyncio.to_thread(send)
    assert answer.startswith(b"HTTP/1.1 507 ")
    assert b"'talk.mp4' could not be stored: No space left on device." in answer
    assert b'"code":"disk_full"' in answer


@pytest.mark.parametrize("way", ["body", "chunked body", "form"])
async def test_a_file_beyond_the_limit_is_413(way: str, home: Path) -> None:
    big = BYTES + b"\0" * 400_000
    data = {"body": big, "chunked body": pieces(big), "form": form(big)}[way]
    async with served(settings=settings(home), options=ServerOptions(max_upload=SIZE)) as client:
        found, answer = await ask(client, "POST", "/api/media", params={"name": "talk.mp4"}, data=data)
        assert (found, answer["code"]) == (413, "too_large")
        assert not (home / "media").exists() or os.listdir(home / "media") == []
        assert (await upload(client))["size"] == SIZE


@pytest.mark.parametrize(
    ("content_type", "body", "path"),
    [
        (None, BYTES, "name"),
        ("multipart/form-data", b"--x\r\n\r\n--x--\r\n", "$"),
        ("multipart/form-data; boundary=x", b"nothing of a form", "$"),
        ("multipart/form-data; boundary=x", b"", "file"),
        ("multipart/form-data; boundary=" + "x" * 5_000, b"", "$"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nno file\r\n--x--\r\n',
            "file",
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.mp4"\r\n\r\n' + BYTES,
            "$",
        ),
    ],
    ids=["no name", "no boundary", "no form", "nothing", "long boundary", "no file", "cut"],
)
async def test_a_malformed_upload_is_400(
    content_type: str | None, body: bytes, path: str, client: aiohttp.ClientSession, home: Path
) -> None:
    headers = {"Content-Type": content_type or "video/mp4"}
    status, answer = await ask(client, "POST", "/api/media", data=body, headers=headers)
    assert (status, answer["code"], answer["path"]) == (400, "invalid", path)
    assert not (home / "media").exists() or os.listdir(home / "media") == []


async def test_an_upload_that_breaks_off_leaves_nothing(client: aiohttp.ClientSession, home: Path) -> None:
    reached = asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield BYTES[: SIZE // 2]
        reached.set()
        await asyncio.Event().wait()

    sending = asyncio.create_task(client.post("/api/media?name=talk.mp4", data=half()))
    await reached.wait()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    async with asyncio.timeout(5):
        while not (home / "media").exists() or os.listdir(home / "media"):
            await ask(client, "GET", "/healthz")
    assert await ask(client, "GET", "/api/media") == (200, {"items": []})


async def test_a_deleted_file_is_gone(client: aiohttp.ClientSession, home: Path) -> None:
    item = await upload(client)
    path = f"/api/media/{item['id']}"
    async with client.delete(path) as response:
        assert (response.status, await response.read()) == (204, b"")
    for method, what in (("GET", "/content"), ("DELETE", "")):
        status, answer = await ask(client, method, path + what)
        assert (status, answer["code"]) == (404, "not_found")
    assert os.listdir(home / "media") == []


# ---------------------------------------------------------------- playback


@pytest.fixture
async def content(client: aiohttp.ClientSession) -> str:
    return f"/api/media/{(await upload(client))['id']}/content"


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-", 0, SIZE),
        ("bytes=0-0", 0, 1),
        ("bytes=100-299", 100, 300),
        ("bytes=-50", SIZE - 50, SIZE),
        (f"bytes=-{SIZE * 2}", 0, SIZE),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE),
        (f"bytes=10-{SIZE * 2}", 10, SIZE),
        ("BYTES = 5-9 ", 5, 10),
    ],
)
async def test_a_range_is_206(
    asked: str, start: int, stop: int, content: str, client: aiohttp.ClientSession
) -> None:
    async with client.get(content, headers={"Range": asked}) as response:
        assert response.status == 206
        assert response.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{SIZE}"
        assert await response.read() == BYTES[start:stop]


async def test_several_ranges_come_in_parts(content: str, client: aiohttp.ClientSession) -> None:
    async with client.get(content, headers={"Range": "bytes=0-9, 100-109"}) as response:
        assert response.status == 206
        assert response.content_type == "multipart/byteranges"
        body = await response.read()
    assert BYTES[:10] in body
    assert BYTES[100:110] in body


@pytest.mark.parametrize("asked", [f"bytes=0-9,{SIZE}-", f"bytes=-0, {SIZE + 5}-{SIZE + 9}, 0-9"])
async def test_of_several_ranges_those_that_are_there_are_sent(
    asked: str, content: str, client: aiohttp.ClientSession
) -> None:
    """RFC 9110, 14.1.1: a set of ranges can be satisfied if one of them can."""
    async with client.get(content, headers={"Range": asked}) as response:
        assert response.status == 206
        assert response.headers["Content-Range"] == f"bytes 0-9/{SIZE}"
        assert await response.read() == BYTES[:10]


@pytest.mark.parametrize(
    "asked", [f"bytes={SIZE}-", f"bytes={SIZE + 5}-{SIZE + 9}", "bytes=-0", f"bytes=-0,{SIZE}-"]
)
async def test_a_range_outside_the_file_is_416(
    asked: str, content: str, client: aiohttp.ClientSession
) -> None:
    async with client.get(content, headers={"Range": asked}) as response:
        answer = await response.json()
    assert (response.status, answer["code"]) == (416, "range")
    assert response.headers["Content-Range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=9-5",
        "seconds=0-5",
        "bytes=0-1;2-3",
        "bytes=1" + "0" * 5_000 + "-",
    ],
)
async def test_a_range_that_makes_no_sense_is_passed_over(
    asked: str, content: str, client: aiohttp.ClientSession
) -> None:
    """RFC 9110, 14.2."""
    async with client.get(content, headers={"Range": asked}) as response:
        assert response.status == 200
        assert await response.read() == BYTES


async def test_head_tells_the_size_and_that_ranges_are_taken(
    content: str, client: aiohttp.ClientSession
) -> None:
    async with client.head(content) as response:
        assert response.status == 200
        assert response.headers["Content-Length"] == str(SIZE)
        assert response.headers["Accept-Ranges"] == "bytes"
        assert await response.read() == b""
    async with client.head(content, headers={"Range": "bytes=0-9"}) as response:
        assert (response.status, response.headers["Content-Length"]) == (206, "10")


async def test_a_range_holds_only_for_the_version_it_was_asked_of(
    content: str, client: aiohttp.ClientSession
) -> None:
    async with client.head(content) as response:
        etag = response.headers["ETag"]
    assert etag == f'"{hashlib.sha256(BYTES).hexdigest()}"'
    for version, status in ((etag, 206), ('"another"', 200), (f"W/{etag}", 200)):
        async with client.get(content, headers={"Range": "bytes=0-9", "If-Range": version}) as response:
            assert response.status == status
    async with client.get(content, headers={"If-None-Match": etag}) as response:
        assert (response.status, await response.read()) == (304, b"")
        assert response.headers["ETag"] == etag


async def test_an_upload_is_served_as_a_file_and_never_as_a_page(
    content: str, client: aiohttp.ClientSession
) -> None:
    async with client.get(content) as response:
        headers = response.headers
        assert response.content_type == "video/mp4"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in headers["Content-Security-Policy"]
    assert headers["Content-Disposition"] == 'inline; filename="talk.mp4"'
    async with client.get(f"{content}?download") as response:
        assert response.headers["Content-Disposition"] == 'attachment; filename="talk.mp4"'


async def test_what_a_browser_does_not_play_is_only_saved(
    content: str, client: aiohttp.ClientSession, home: Path
) -> None:
    """A record that somebody wrote by hand: its type does not make a page of the file."""
    media_id = content.split("/")[3]
    record = home / "media" / f"{media_id}.json"
    record.write_bytes(record.read_bytes().replace(b"video/mp4", b"text/html"))
    async with served(settings=settings(home)) as other, other.get(content) as response:
        assert response.content_type == "application/octet-stream"
        assert response.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize("media_id", ["nothing", "..%2F..%2Fetc%2Fpasswd", "%00", ".hidden", "x" * 3_000])
async def test_an_unknown_file_is_404(media_id: str, client: aiohttp.ClientSession) -> None:
    async with client.get(URL(f"/api/media/{media_id}/content", encoded=True)) as response:
        answer = await response.json()
    assert (response.status, answer["code"]) == (404, "not_found")


async def test_the_server_answers_while_an_upload_goes_on(client: aiohttp.ClientSession) -> None:
    go = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield BYTES[:1_000]
        await go.wait()
        yield BYTES[1_000:]

    sending = asyncio.create_task(upload(client, slow()))
    assert (await ask(client, "GET", "/healthz"))[0] == 200
    go.set()
    assert (await sending)["size"] == SIZE
