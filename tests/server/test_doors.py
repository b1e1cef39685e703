"""Who may ask, what is not there, and what never leaves."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from yarl import URL

from playhead.server import ServerOptions, create_app
from playhead.server.errors import CODES
from tests.server.support import CANARY, HELLO, address, ask, chat, served, settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/api/agent/chat/", "/api/agent", "/healthz/", "/static/nothing.js", "/static/../app.py"],
)
async def test_an_unknown_route_is_404(path: str, client: aiohttp.ClientSession) -> None:
    async with client.get(URL(path, encoded=True)) as response:
        answer = await response.json()
    assert (response.status, answer["code"]) == (404, "not_found")
    assert set(answer) == {"error", "code"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/agent/chat", {"POST"}),
        ("PUT", "/api/media", {"GET", "HEAD", "POST"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
        ("PATCH", "/api/media/x/content", {"GET", "HEAD"}),
        ("PUT", "/api/agent/threads/t1", {"DELETE", "GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_405_and_the_right_ones_are_named(
    method: str, path: str, allowed: set[str], client: aiohttp.ClientSession
) -> None:
    async with client.request(method, path) as response:
        answer = await response.json()
    assert (response.status, answer["code"]) == (405, "method_not_allowed")
    assert set(response.headers["Allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST", "[::1]:{port}", "localhost."]
)
async def test_loopback_names_are_served(host: str, client: aiohttp.ClientSession) -> None:
    named = host.format(port=URL(address(client)).port)
    assert (await ask(client, "GET", "/healthz", headers={"Host": named}))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "10.0.0.1", ""]
)
@pytest.mark.parametrize("path", ["/", "/api/media", "/healthz", "/static/app.js"])
async def test_a_foreign_name_for_this_machine_is_421(
    host: str, path: str, client: aiohttp.ClientSession
) -> None:
    """DNS rebinding: a page of elsewhere whose name was pointed here."""
    status, answer = await ask(client, "GET", path, headers={"Host": host})
    assert (status, answer["code"]) == (421, "bad_host")


async def test_hosts_that_the_application_names_are_served(tmp_path: Path) -> None:
    options = ServerOptions(hosts=["app.example"])
    async with served(settings=settings(tmp_path), options=options) as client:
        for host, expected in (("app.example", 200), ("APP.example:8000", 200), ("localhost", 421)):
            assert (await ask(client, "GET", "/healthz", headers={"Host": host}))[0] == expected


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "x", "http://[", "://"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/agent/chat"), ("POST", "/api/media?name=x"), ("DELETE", "/api/media/x")],
)
async def test_a_page_of_elsewhere_may_change_nothing(
    origin: str, method: str, path: str, client: aiohttp.ClientSession
) -> None:
    """403, before the body is read: a form of another site needs no permission to post."""
    status, answer = await ask(client, method, path, headers={"Origin": origin})
    assert (status, answer["code"]) == (403, "bad_origin")


async def test_our_own_page_and_programs_may(client: aiohttp.ClientSession) -> None:
    for headers in ({"Origin": address(client)}, {}):
        status, answer = await chat(client, {}, headers=headers)
        assert (status, answer["code"]) == (400, "invalid")


async def test_an_origin_that_the_application_names_may_and_reads_the_answer(tmp_path: Path) -> None:
    options = ServerOptions(origins=["http://localhost:5173"])
    async with served(settings=settings(tmp_path), options=options) as client:
        ours = {"Origin": "http://localhost:5173"}
        async with client.post("/api/agent/chat", json={}, headers=ours) as response:
            assert response.status == 400
            assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:5173"
        preflight = {**ours, "Access-Control-Request-Method": "POST"}
        async with client.options("/api/agent/chat", headers=preflight) as response:
            assert response.status == 200
        async with client.post("/api/agent/chat", json={}, headers={"Origin": "http://other"}) as response:
            assert response.status == 403
            assert "Access-Control-Allow-Origin" not in response.headers


async def test_a_bug_is_a_500_without_its_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No traceback, no path and no key in the answer; the log has the place, and not the key."""

    class Library:
        def list(self) -> Any:
            raise RuntimeError(f"api_key={CANARY} in {tmp_path}/secret/place.txt")

    async with served(library=Library(), settings=settings(tmp_path)) as client:
        status, answer = await ask(client, "GET", "/api/media")
        assert (await ask(client, "GET", "/healthz"))[0] == 200
    assert (status, answer["code"]) == (500, "internal")
    assert "Traceback" not in answer["error"]
    assert "RuntimeError" in caplog.text
    for secret in (CANARY, str(tmp_path)):
        assert secret not in str(answer) + caplog.text


async def test_every_code_that_is_answered_is_listed(client: aiohttp.ClientSession) -> None:
    asked = [
        ask(client, "GET", "/nothing"),
        ask(client, "PUT", "/api/media"),
        chat(client, {}),
        chat(client, HELLO),
        ask(client, "GET", "/api/media/x/content"),
    ]
    for status, answer in await asyncio.gather(*asked):
        assert status >= 400
        assert answer["code"] in CODES


async def test_the_health_is_told_whatever_the_configuration(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """`/healthz` says that the process serves, `/readyz` that a run could start."""
    assert await ask(client, "GET", "/healthz") == (200, {"status": "ok"})
    status, answer = await ask(client, "GET", "/readyz")
    assert (status, answer["code"]) == (503, "config")
    async with served(settings=settings(tmp_path, "http://127.0.0.1:9")) as configured:
        assert await ask(configured, "GET", "/readyz") == (200, {"status": "ok"})


@pytest.mark.parametrize("prefix", ["", "/agent", "/deep/er"])
async def test_the_app_lives_in_another_app(prefix: str, tmp_path: Path) -> None:
    """Under a prefix, without being told of start and stop, beside the other app's own routes."""

    async def own(request: Request) -> Response:
        return Response("theirs")

    ours = create_app(settings=settings(tmp_path, llm_provider="mock"))
    outer = Starlette(routes=[Route("/theirs", own)])
    outer.mount(prefix or "/", ours)
    outer.state.playhead = ours.state.playhead
    async with served(outer) as client:
        status, body = await ask(client, "POST", f"{prefix}/api/agent/chat", json=HELLO)
        assert (status, body["toolCalls"][0]["name"]) == (200, "echo_context")
        assert (await ask(client, "GET", f"{prefix}/healthz"))[0] == 200
        status, document = await ask(client, "GET", f"{prefix}/openapi.json")
        assert document["servers"] == [{"url": prefix or "/"}]
        async with client.get(f"{prefix}/") as response:
            assert response.content_type == "text/html"
        async with client.get(f"{prefix}/static/app.js") as response:
            assert response.status == 200
        async with client.get("/theirs") as response:
            assert await response.text() == "theirs"


async def test_two_apps_in_one_process_know_nothing_of_each_other(tmp_path: Path) -> None:
    async with (
        served(settings=settings(tmp_path / "a", llm_provider="mock")) as one,
        served(settings=settings(tmp_path / "b")) as two,
    ):
        assert (await chat(one))[0] == 200
        assert (await chat(two))[0] == 502
        run = await ask(one, "POST", "/api/agent/threads/t/runs", json={"message": "hi"})
        events = f"/api/agent/runs/{run[1]['runId']}/events"
        assert (await ask(two, "GET", events))[0] == 404
