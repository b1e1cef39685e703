"""`playhead serve`: it starts without a model, and ends when it is told to."""

import asyncio
import signal
import socket
from pathlib import Path

import aiohttp
import pytest

from playhead.cli.commands import run
from tests.cli.support import CANARY, left_behind, line_with, playhead, started

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_serves_without_a_model_and_a_signal_ends_it(number: signal.Signals, tmp_path: Path) -> None:
    """Design 6: `serve` starts without any LLM_*, says so, and is gone within five seconds, exit code 0."""
    home = str(tmp_path / "home")
    async with started("serve", "--port", "0", env={"PLAYHEAD_HOME": home}) as process:
        assert process.stdout
        url = (await line_with("Serving http", process.stdout)).split()[1]
        async with (
            aiohttp.ClientSession(url) as client,
            client.get("/healthz") as health,
            client.post("/api/agent/chat", json={"messages": [{"role": "user", "content": "x"}]}) as chat,
        ):
            assert health.status == 200
            assert chat.status == 502
            assert "LLM_PROVIDER" in (await chat.json())["error"]
            process.send_signal(number)
            async with asyncio.timeout(5):
                _, err = await process.communicate()
    assert process.returncode == 0
    assert b"Missing configuration: LLM_PROVIDER" in err
    assert b"Traceback" not in err
    assert left_behind(home) == []


async def test_with_a_model_nothing_is_missing() -> None:
    async with started("serve", "--port", "0", env={"LLM_PROVIDER": "mock"}) as process:
        assert process.stdout
        await line_with("Serving http", process.stdout)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert err == b"Ctrl-C ends it.\n"


async def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = await playhead("serve", "--port", str(taken.getsockname()[1]))
    assert done.code == 2
    assert "Cannot listen on 127.0.0.1" in done.fault[0]


async def test_an_address_that_others_reach_is_refused_without_a_token() -> None:
    """Design 6, issue 7: and it is said how to make one."""
    done = await playhead("serve", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "loopback" in done.fault[0]
    assert "PLAYHEAD_TOKEN" in done.fault[0]
    assert "secrets.token_urlsafe" in done.fault[0]


async def test_with_a_token_a_link_is_printed_that_signs_in() -> None:
    """Issue 7: the server's own, and those that `playhead link` makes; the token is in no line."""
    token = {"PLAYHEAD_TOKEN": CANARY, "LLM_PROVIDER": "mock"}
    arguments = ("--host", "0.0.0.0", "--port", "0", "--allow-host", "film.example", "--proxy", "127.0.0.1")
    async with started("serve", *arguments, env=token) as process:
        assert process.stdout
        url = (await line_with("Serving http", process.stdout)).split()[1]
        link = (await line_with("Sign in http", process.stdout)).split()[-1]
        assert "another machine" in await line_with("another machine", process.stdout)
        again = await playhead("link", "--url", f"{url}/", env=token)
        https = {"Host": "film.example", "X-Forwarded-Proto": "https"}
        async with aiohttp.ClientSession(url) as client:
            for place in (link, again.out.strip()):
                async with client.get(place, headers=https, allow_redirects=False) as response:
                    cookie = response.headers["Set-Cookie"]
                assert "Secure" in cookie
                async with client.get("/api/media", headers={"Cookie": cookie.split(";")[0]}) as media:
                    assert media.status == 200
            async with client.get("/api/media") as media:
                assert media.status == 401
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert (again.code, "once" in again.err) == (0, True)
    assert CANARY not in f"{link}{again}{out!r}{err!r}"


def test_a_token_that_is_none_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["link"]) == 2
    assert "PLAYHEAD_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("PLAYHEAD_TOKEN", "short")
    for command in ("link", "serve"):
        assert run([command]) == 2
        assert "16 or more" in capsys.readouterr().err


async def test_a_wrong_provider_is_said_and_the_rest_is_served() -> None:
    """R45, design 6: the page and the media work whatever the configuration."""
    env = {"LLM_PROVIDER": "unknown-provider", "LLM_API_KEY": CANARY, "LLM_MODEL": "m"}
    async with started("serve", "--port", "0", env=env) as process:
        assert process.stdout
        url = (await line_with("Serving http", process.stdout)).split()[1]
        async with aiohttp.ClientSession(url) as client, client.get("/api/media") as media:
            assert media.status == 200
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert b"Unknown LLM provider: unknown-provider" in err
    assert CANARY.encode() not in err
