"""A key goes to the provider, and nowhere else."""

import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from playhead import LoopOptions
from playhead.server import ServerOptions
from playhead.testing import FakeProvider, Reply, reply_bytes, reply_json, stream
from tests.server.support import CANARY, HELLO, STREAM, served, settings

pytestmark = pytest.mark.anyio

# Each kind of text in which a careless provider repeats what it was sent.
ECHOES: dict[str, Reply] = {
    "refused": reply_json(
        {"error": {"message": f"Incorrect API key provided: {CANARY}", "code": CANARY}}, 401
    ),
    "not found": reply_json({"error": {"message": f"no model for {CANARY}"}}, 404),
    "broken": reply_bytes(f"HTTP/1.1 500 {CANARY}\r\nContent-Length: 20\r\n\r\n{CANARY}".encode()),
    "no HTTP": reply_bytes(f"Authorization: Bearer {CANARY}\r\n\r\n".encode()),
    "a page": reply_bytes(
        f"HTTP/1.1 200 OK\r\nX-Key: {CANARY}\r\nContent-Type: text/html\r\n\r\n<p>{CANARY}</p>".encode()
    ),
    "moved": reply_bytes(
        f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/{CANARY}\r\nContent-Length: 0\r\n\r\n".encode()
    ),
    "in mid stream": stream([f'data: {{"error": {{"message": "{CANARY}", "code": 400}}}}\n\n'.encode()]),
    "nonsense": stream([f"data: {CANARY}\n\n".encode()]),
    "limited": reply_json({"error": {"message": CANARY}}, 429, {"Retry-After": CANARY}),
}
ASKED: list[tuple[str, str, Any]] = [
    ("POST", "/api/agent/chat", HELLO),
    ("POST", "/api/agent/threads/t/runs", {"message": "Hello"}),
]
READ = (
    "/",
    "/api/agent/threads/t",
    "/api/media",
    "/healthz",
    "/openapi.json",
    "/readyz",
    "/static/app.js",
    "/nothing",
)


@pytest.mark.parametrize("echo", ECHOES.values(), ids=list(ECHOES))
async def test_a_key_is_in_no_answer_stream_or_log(
    echo: Reply, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R16, R43: whatever the provider does with it, and however much is logged."""
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []

    async def read(client: aiohttp.ClientSession, method: str, path: str, **more: Any) -> None:
        async with client.request(method, path, **more) as response:
            seen.append(f"{path} {response.headers} {await response.text()}")

    options = ServerOptions(loop=LoopOptions(call_timeout=0.5, retries=0))
    async with (
        FakeProvider(default=echo) as provider,
        served(settings=settings(tmp_path, provider.url), options=options) as client,
    ):
        for method, path, body in ASKED:
            for headers in ({}, STREAM):
                await read(client, method, path, json=body, headers=headers)
        for path in READ:
            await read(client, "GET", path)
    assert provider.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    assert len(seen) == 4 + len(READ)
    assert CANARY not in "\n".join(seen)
    assert CANARY not in caplog.text
