"""Issue 2, item 10: every file in examples/ runs as it stands, and does what it says."""

import asyncio
import os
import re
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import webvtt

from playhead.testing import FakeProvider, Reply, openai_calls, openai_sse, openai_text

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SAMPLE = ROOT / "src" / "playhead" / "media" / "samples" / "jfk.mp4"


async def _started(name: str, *args: str, env: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(ROOT / "examples" / f"{name}.py"),
        *args,
        env={**os.environ, "PLAYHEAD_SPEECH_MODEL": "tiny.en", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _run(name: str, *args: str, env: dict[str, str] | None = None) -> tuple[int | None, str, str]:
    process = await _started(name, *args, env=env or {})
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), err.decode()


async def _with_provider(name: str, *script: Reply) -> tuple[str, list[Any]]:
    """Run an example against a scripted provider. Returns what it printed, and what it asked."""
    async with FakeProvider(*script) as provider:
        env = {"LLM_PROVIDER": "openai-compatible", "LLM_MODEL": "m", "LLM_API_KEY": "k"}
        code, out, err = await _run(name, env={**env, "LLM_BASE_URL": f"{provider.url}/v1"})
        assert (code, err) == (0, "")
        assert provider.unused == 0
        return out, [request.json for request in provider.requests]


async def quickstart() -> None:
    script = (openai_calls([("add", {"a": 2, "b": 3})]), openai_text("5"))
    out, (first, second) = await _with_provider("quickstart", *script)
    assert out == "5\n"
    assert first["tools"][0]["function"]["name"] == "add"
    assert second["messages"][-1]["content"] == "5"


async def stream() -> None:
    script = (openai_sse(calls=[("today", {})]), openai_sse("Mon", "day."))
    out, (_, second) = await _with_provider("stream", *script)
    day = second["messages"][-1]["content"]
    assert out.splitlines() == [
        "[calls today with {}]",
        f"[it answers {day}]",
        "Monday.",
        "[final, 14 tokens]",
    ]


async def custom_tool() -> None:
    calls = [
        ("celsius", {"fahrenheit": 98.6}),
        ("distance", {"start": "Paris", "end": "Rome"}),
        ("greet", {"name": "Ada"}),
        ("greet", {}),
    ]
    out, (first, _) = await _with_provider("custom_tool", openai_calls(calls), openai_text("Done."))
    assert out.splitlines()[:3] == [
        "celsius: 37.0",
        'distance: {"from":"Paris","to":"Rome","km":1106}',
        "greet: Hello, Ada!",
    ]
    refusal = out.partition("Hello, Ada!\n")[2]
    assert refusal.startswith("greet: `greet` was not run")
    assert "name" in refusal
    assert refusal.endswith("\nDone.\n")
    assert [tool["function"]["name"] for tool in first["tools"]] == ["celsius", "distance", "greet"]


async def orchestrator() -> None:
    code, out, err = await _run("orchestrator")
    assert (code, err) == (0, "")
    for line in ("[sending]", "[processing echo_context]", "[responding]", "[idle]"):
        assert line in out.splitlines()
    roles = [line.partition(":")[0] for line in out.splitlines() if not line.startswith("[")]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert "talk.mp4" in out.splitlines()[-1]


async def sessions() -> None:
    env = {"LLM_PROVIDER": "openai-compatible", "LLM_MODEL": "m", "LLM_API_KEY": "k"}
    with tempfile.TemporaryDirectory() as folder:
        async with FakeProvider(openai_sse("On", "ce."), openai_sse("Twice.")) as provider:
            env["LLM_BASE_URL"] = f"{provider.url}/v1"
            shown = [await _run("sessions", f"sqlite:///{folder}/t.db", env=env) for _ in range(2)]
            asked = [len(request.json["messages"]) for request in provider.requests]
    assert shown == [
        (0, "Once.\n2 messages in the thread\n", ""),
        (0, "Twice.\n4 messages in the thread\n", ""),
    ]
    assert asked == [2, 4], "the second run knows what was said in the first"


async def durable() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{folder}/t.db"
        killed = await _started("durable", database, env={})
        assert killed.stdout is not None
        async with asyncio.timeout(30):
            before = [await killed.stdout.readline() for _ in range(2)]
        killed.kill()
        await killed.wait()
        code, out, err = await _run("durable", database)
    counted = [line.decode().strip() for line in before] + out.split()
    assert (code, counted) == (0, ["1", "2", "3", "4", "5", "counted"]), err


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in free]


@asynccontextmanager
async def serving(
    name: str, *ports: int, line: bytes = b"running on"
) -> AsyncIterator[aiohttp.ClientSession]:
    """An example that serves, until it is told to end: then it does so without a word of a failure."""
    process = await _started(name, *map(str, ports), env={"LLM_PROVIDER": "mock"})
    told = process.stderr if line == b"running on" else process.stdout
    try:
        async with asyncio.timeout(30), aiohttp.ClientSession(f"http://127.0.0.1:{ports[0]}") as client:
            assert told is not None
            while line not in (said := await told.readline()):
                assert said, f"it ended without serving: {await process.stderr.read()!r}"  # type: ignore[union-attr]
            yield client
            process.terminate()
            _, err = await process.communicate()
        assert b"Traceback" not in err
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def mount_in_starlette() -> None:
    async with serving("mount_in_starlette", *free_ports(1)) as client:
        async with client.get("/") as home, client.get("/agent/") as page:
            assert "/agent/" in await home.text()
            assert "text/html" in page.headers["Content-Type"]
        body = {"messages": [{"role": "user", "content": "hi"}]}
        async with client.post("/agent/api/agent/chat", json=body) as chat:
            assert (await chat.json())["toolCalls"][0]["name"] == "echo_context"


async def mount_in_fastapi() -> None:
    async with serving("mount_in_fastapi", *free_ports(1)) as client:
        await _panel_for_its_own_users(client)
        async with client.get("/openapi.json") as document:
            assert set((await document.json())["paths"]) == {"/", "/login"}


async def mount_in_django() -> None:
    async with serving("mount_in_django", *free_ports(1)) as client:
        await _panel_for_its_own_users(client)


async def _panel_for_its_own_users(client: aiohttp.ClientSession) -> None:
    """The panel is on the page, and each user has, by the app's own cookie, a thread of their own."""
    async with client.get("/") as home:
        assert re.findall(r'src="(.*?)"', await home.text()) == ["/agent/panel.js"]
        assert '<playhead-panel server="/agent/"' in await home.text()
    assert (await client.get("/agent/api/agent/threads/help")).status == 401
    runs: dict[str, str] = {}
    for name in ("ada", "bob"):
        async with client.get(f"/login?name={name}", allow_redirects=False) as login:
            cookie = login.headers["Set-Cookie"].partition(";")[0]
        page = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
        async with client.get("/agent/api/agent/threads/help", headers=page) as thread:
            assert (await thread.json())["messages"] == []
        for other in runs.values():
            assert (await client.get(f"/agent/api/agent/runs/{other}/events", headers=page)).status == 404
        said = {"message": f"I am {name}"}
        threads = "/agent/api/agent/threads"
        async with client.post(f"{threads}/help/runs", json=said, headers={"Cookie": cookie}) as forged:
            assert forged.status == 403
        async with client.post(f"{threads}/help/runs", json=said, headers=page) as started:
            runs[name] = (await started.json())["runId"]
        async with client.get(f"/agent/api/agent/runs/{runs[name]}/events", headers=page) as events:
            assert "run_end" in await events.text()


async def beside_a_page() -> None:
    ports = free_ports(2)
    async with serving("beside_a_page", *ports, line=b"http://") as client:
        agent, origin = f"http://127.0.0.1:{ports[1]}", {"Origin": f"http://127.0.0.1:{ports[0]}"}
        async with client.get("/") as page:
            text = await page.text()
        assert f'import "{agent}/panel.js"' in text
        assert 'document.createElement("playhead-panel")' in text
        token = re.findall('Bearer ([^"]+)', text)[0]
        asked = {**origin, "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "authorization,content-type,last-event-id"
        runs = f"{agent}/api/agent/threads/help/runs"
        async with client.options(runs, headers=asked) as preflight:
            assert preflight.status == 200
            assert "authorization" in preflight.headers["Access-Control-Allow-Headers"]
        for bearer, status in ((token, 202), ("another", 401)):
            headers = {**origin, "Authorization": f"Bearer {bearer}"}
            async with client.post(runs, json={"message": "hi"}, headers=headers) as answer:
                assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (
                    status,
                    origin["Origin"],
                )
        headers = {"Origin": "http://evil.example", "Authorization": f"Bearer {token}"}
        async with client.post(runs, json={"message": "hi"}, headers=headers) as refused:
            assert (refused.status, refused.headers.get("Access-Control-Allow-Origin")) == (403, None)


async def transcribe_file() -> None:
    code, out, err = await _run("transcribe_file", str(SAMPLE))
    assert code == 0, err
    assert "transcribed" in err
    words = " ".join(caption.text for caption in webvtt.from_string(out).captions)
    assert "ask not what your country can do for you" in words.replace("\n", " ")
    code, out, err = await _run("transcribe_file", str(SAMPLE.with_name("none.mp4")))
    assert (code, out) == (1, "")
    assert "(not_found)" in err


async def test_an_example_without_its_file_says_how_it_is_used() -> None:
    assert await _run("transcribe_file") == (1, "", "Usage: python transcribe_file.py FILE\n")


async def test_an_example_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("raise ModuleNotFoundError('No module', name='pydantic')")
    code, out, err = await _run("custom_tool", env={"PYTHONPATH": str(tmp_path)})
    assert (code, out) == (1, "")
    assert err.startswith("This example needs pydantic: pip install")
    assert len(err.splitlines()) == 1


SHOWN: dict[str, Callable[[], Awaitable[None]]] = {
    check.__name__: check
    for check in (
        quickstart,
        stream,
        custom_tool,
        orchestrator,
        sessions,
        durable,
        mount_in_starlette,
        mount_in_fastapi,
        mount_in_django,
        beside_a_page,
        transcribe_file,
    )
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_an_example_runs_as_it_stands(path: Path) -> None:
    assert path.stem in SHOWN, f"nothing here runs {path.name}"
    await SHOWN[path.stem]()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 55
    assert text.startswith('"""')


def test_every_example_that_is_checked_is_there() -> None:
    assert set(SHOWN) == {path.stem for path in EXAMPLES}
