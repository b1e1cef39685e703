"""The outgoing client: how long it waits, over a real socket."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar

import pytest

from playhead import http
from playhead.errors import LLMConnectionError, LLMTimeoutError

pytestmark = pytest.mark.anyio

SILENCE = 0.4
OPEN_END = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
TOLD_END = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"


@asynccontextmanager
async def serving(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server whose connections are closed with it."""
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError, OSError):
            await answer(reader, writer)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@asynccontextmanager
async def server(head: bytes, pieces: Sequence[bytes], pause: float) -> AsyncIterator[str]:
    """Sends the head and the pieces, a pause before each, and then nothing more."""
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(head)
        for piece in pieces:
            await asyncio.sleep(pause)
            writer.write(piece)
        await over.wait()

    async with serving(answer) as url:
        yield url
        over.set()


async def exchange(url: str, got: list[bytes]) -> None:
    response = await http.post(http.HttpRequest(url, {}, b"{}", timeout=SILENCE))
    try:
        await response.each(got.append)
    finally:
        response.close()


async def test_each_silence_is_bounded_and_not_the_whole() -> None:
    """Pieces that keep coming may take longer; the time runs from the last one."""
    got: list[bytes] = []
    async with server(OPEN_END, [b"1\r\na\r\n"] * 5, SILENCE / 2) as url:
        started = time.monotonic()
        with pytest.raises(LLMTimeoutError):
            await exchange(url, got)
        passed = time.monotonic() - started
    assert b"".join(got) == b"aaaaa"
    assert 3.4 * SILENCE < passed < 6 * SILENCE


@pytest.mark.parametrize("head", [OPEN_END, TOLD_END])
@pytest.mark.parametrize("pieces", [[], [b"1\r\na\r\n"]])
async def test_a_body_that_never_ends_is_given_up(head: bytes, pieces: list[bytes]) -> None:
    async with server(head, pieces, 0) as url:
        response = await http.post(http.HttpRequest(url, {}, b"{}", timeout=SILENCE))
        with pytest.raises(LLMTimeoutError):
            await response.read()
        response.close()


async def test_nothing_at_all_is_given_up() -> None:
    async with server(b"", [], 0) as url:
        with pytest.raises(LLMTimeoutError):
            await exchange(url, [])


async def test_no_bound_is_no_bound() -> None:
    got: list[bytes] = []
    async with server(OPEN_END, [b"1\r\na\r\n", b"0\r\n\r\n"], 0.1) as url:
        response = await http.post(http.HttpRequest(url, {}, b"{}"))
        await response.each(got.append)
        response.close()
    assert got == [b"a"]


@asynccontextmanager
async def echo(pause: float = 0) -> AsyncIterator[str]:
    """Answers each request, on a connection that stays open, with the beginning and length of its body."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(pause)
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            told = b"%b %d" % ((await reader.readexactly(size))[:8], size)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(told), told))

    async with serving(answer) as url:
        yield url


def in_flight() -> int:
    return http._sessions[asyncio.get_running_loop()].connector.in_flight


async def told(url: str, body: bytes, timeout: float | None = None) -> bytes:
    response = await http.post(http.HttpRequest(url, {}, body, timeout=timeout))
    try:
        return await response.read()
    finally:
        response.close()


@pytest.mark.parametrize("size", [8, 1_000, 100_000, 1_000_000, 3_000_000])
async def test_a_body_of_any_length_arrives(size: int) -> None:
    """Alone and among others, on a new connection and on one that is used again."""
    async with echo() as url:
        for n in (1, 5, 1, 5):
            bodies = [b"%08d" % number + b"x" * (size - 8) for number in range(n)]
            answers = await asyncio.gather(*(told(url, body) for body in bodies))
            assert answers == [b"%08d %d" % (number, size) for number in range(n)]
    assert in_flight() == 0


@pytest.mark.parametrize("size", [8, 3_000_000])
async def test_every_request_among_others_is_bounded(size: int) -> None:
    async with server(b"", [], 0) as url:
        many = (told(url, b"{}" + b"x" * size, SILENCE) for _ in range(3))
        outcomes = await asyncio.gather(*many, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [LLMTimeoutError] * 3
    assert in_flight() == 0


@pytest.mark.parametrize("size", [8, 900_000])
async def test_a_body_that_is_taken_slowly_is_not_given_up(size: int) -> None:
    async with echo(pause=SILENCE / 2) as url:
        assert await told(url, b"x" * size, SILENCE) == b"xxxxxxxx %d" % size


async def test_requests_that_are_given_up_disturb_no_other() -> None:
    """Given up at once, so that some of them are not written yet."""
    async with echo() as url:
        for n in range(20):
            tasks = [asyncio.create_task(told(url, b"%08d" % number)) for number in range(4)]
            for _ in range(n % 5):
                await asyncio.sleep(0)
            tasks[1].cancel()
            tasks[2].cancel()
            first, *_, last = await asyncio.gather(*tasks, return_exceptions=True)
            assert (first, last) == (b"00000000 8", b"00000003 8")
    assert in_flight() == 0


@pytest.mark.parametrize("total", [None, 5.0])
async def test_what_takes_a_piece_may_fail(total: float | None) -> None:
    """It fails as it did, whatever it is, and takes nothing more; the connection is not used again."""
    got: list[bytes] = []

    def take(piece: bytes) -> None:
        got.append(piece)
        if len(got) == 2:
            raise ValueError("enough")

    async with server(OPEN_END, [b"1\r\na\r\n"] * 4, 0.05) as url:
        response = await http.post(http.HttpRequest(url, {}, b"{}", SILENCE, total))
        with pytest.raises(ValueError, match="enough"):
            await response.each(take)
        await asyncio.sleep(0.15)
        response.close()
    assert got == [b"a", b"a"]


@pytest.mark.parametrize("total", [None, 5.0])
async def test_a_piece_is_taken_where_the_body_was_asked_for(total: float | None) -> None:
    """The context variables are those of whoever reads, on a connection that others used before."""
    name = ContextVar("name", default="")
    seen: list[str] = []

    async def read(url: str, who: str) -> None:
        name.set(who)
        response = await http.post(http.HttpRequest(url, {}, b"{}", SILENCE, total))
        await response.each(lambda _: seen.append(name.get()))
        response.close()

    async with echo(0.01) as url:
        for who in ("a", "b"):
            await asyncio.create_task(read(url, who))
    pieces = [b"1\r\na\r\n", b"1\r\nb\r\n", b"0\r\n\r\n"]
    async with server(OPEN_END, pieces, 0.05) as url:
        await asyncio.create_task(read(url, "c"))
    assert seen == ["a", "b", "c", "c"]


async def test_a_compressed_body_arrives_whole_and_in_order() -> None:
    """Far more than is unpacked at once."""
    text = b"".join(b"%08d" % n for n in range(500_000))
    packed = gzip.compress(text)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    got: list[bytes] = []
    async with server(head, [packed[:50_000], packed[50_000:]], 0.05) as url:
        await exchange(url, got)
    assert b"".join(got) == text


async def test_a_connection_that_breaks_says_so_at_once() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(TOLD_END + b"half")
        writer.close()

    got: list[bytes] = []
    async with serving(answer) as url:
        with pytest.raises(LLMConnectionError):
            await exchange(url, got)
        response = await http.post(http.HttpRequest(url, {}, b"{}", timeout=SILENCE))
        await asyncio.sleep(0.05)  # it breaks before anybody reads
        with pytest.raises(LLMConnectionError):
            await response.each(got.append)
        response.close()


async def test_the_whole_may_be_bounded() -> None:
    got: list[bytes] = []
    async with server(OPEN_END, [b"1\r\na\r\n"] * 20, 0.1) as url:
        response = await http.post(http.HttpRequest(url, {}, b"{}", None, SILENCE))
        with pytest.raises(LLMTimeoutError):
            await response.each(got.append)
        response.close()
    assert 1 < len(got) < 6
