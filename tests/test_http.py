"""The outgoing client: how long it waits, over a real socket."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from playhead import http
from playhead.errors import LLMTimeoutError

pytestmark = pytest.mark.anyio

SILENCE = 0.4
OPEN_END = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
TOLD_END = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"


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
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
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
