"""`serve`: where it listens, and how it ends."""

import asyncio
import os
import signal
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import aiohttp
import pytest

from playhead import ConfigError
from playhead.server import create_app, serve
from tests.server.support import HELLO, STREAM, ask, frames, process, served, settings

pytestmark = pytest.mark.anyio


async def test_sigterm_ends_open_streams_with_their_last_event(tmp_path: Path) -> None:
    """Within five seconds: runs are stopped, each stream says how it ended, half an upload is gone."""
    async with process(tmp_path, "held") as (server, url), aiohttp.ClientSession(url) as client:
        run = await client.post("/api/agent/threads/t/runs", json={"message": "x"}, headers=STREAM)
        call = await client.post("/api/agent/chat", json=HELLO, headers=STREAM)
        streams = [frames(run), frames(call)]
        for stream in streams:
            while (await anext(stream))[0] != "text_delta":
                pass
        plain = asyncio.create_task(ask(client, "POST", "/api/agent/chat", json=HELLO))
        sending = asyncio.Event()
        upload = asyncio.create_task(client.post("/api/media?name=x", data=_endless(sending)))
        await sending.wait()
        began = monotonic()
        server.send_signal(signal.SIGTERM)
        ended, failed = [[event async for event in stream][-1] for stream in streams]
        code = await server.wait()
        took = monotonic() - began
        assert (await plain)[0] == 503
        await asyncio.gather(upload, return_exceptions=True)
        assert server.stderr is not None
        log = (await server.stderr.read()).decode()
    assert ended[0] == "run_end"
    assert ended[1]["result"]["finishReason"] == "cancelled"
    assert (failed[0], failed[1]["code"]) == ("error", "stopping")
    assert took < 5
    assert code == -signal.SIGTERM
    assert "Traceback" not in log
    assert os.listdir(tmp_path / "media") == []


async def test_sigterm_does_not_wait_for_what_will_not_stop(tmp_path: Path) -> None:
    """A model that swallows its cancellation: the streams end all the same."""
    async with process(tmp_path, "stubborn") as (server, url), aiohttp.ClientSession(url) as client:
        run = await client.post("/api/agent/threads/t/runs", json={"message": "x"}, headers=STREAM)
        call = await client.post("/api/agent/chat", json=HELLO, headers=STREAM)
        for stream in (run, call):
            await stream.content.readline()
        began = monotonic()
        server.send_signal(signal.SIGTERM)
        await server.wait()
        assert monotonic() - began < 5


async def test_sigterm_does_not_wait_for_who_holds_the_database(tmp_path: Path) -> None:
    """Q200: another program has it locked; the server ends within five seconds, its streams with it."""
    async with process(tmp_path, "held") as (server, url), aiohttp.ClientSession(url) as client:
        run = await client.post("/api/agent/threads/t/runs", json={"message": "x"}, headers=STREAM)
        stream = frames(run)
        while (await anext(stream))[0] != "text_delta":
            pass
        with closing(sqlite3.connect(tmp_path / "playhead.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            began = monotonic()
            server.send_signal(signal.SIGTERM)
            assert [event async for event in stream][-1][0] == "run_end"
            await server.wait()
            assert monotonic() - began < 5


async def _endless(sending: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"x" * 2_000_000
    sending.set()
    await asyncio.Event().wait()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "", "127.0.0.1.nip.io"])
async def test_other_addresses_than_loopback_are_refused(host: str, tmp_path: Path) -> None:
    """Whoever reaches it could use it, without an access token."""
    with pytest.raises(ConfigError, match="loopback"):
        await serve(create_app(settings=settings(tmp_path)), host, 0)


async def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}.*another port"):
            await serve(create_app(settings=settings(tmp_path)), "127.0.0.1", port)


async def test_an_answer_is_not_held_back(tmp_path: Path) -> None:
    """Nagle's algorithm would add 40 ms to every answer that goes out as head and body."""
    async with served(settings=settings(tmp_path)) as client:
        took = []
        for _ in range(20):
            began = monotonic()
            assert (await ask(client, "GET", "/healthz"))[0] == 200
            took.append(monotonic() - began)
    assert sorted(took)[10] < 0.03


async def test_nothing_is_done_before_a_request(tmp_path: Path) -> None:
    """`create_app` opens nothing, starts nothing and writes nothing."""
    tasks = asyncio.all_tasks()
    create_app(settings=settings(tmp_path / "home"))
    assert asyncio.all_tasks() == tasks
    assert not os.listdir(tmp_path)
