"""The access token, and the cookie that stands for it in a browser."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from yarl import URL

from playhead import ConfigError
from playhead.config import load_settings
from playhead.server import ServerOptions, create_app, serve
from playhead.server.access import LINK_SECONDS, Access
from playhead.server.app import endpoints
from tests.server.support import address, ask, served, settings

pytestmark = pytest.mark.anyio

TOKEN = "canary-token-4f1d9c2b7a8e"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
OPEN = {("GET", "/"), ("GET", "/healthz"), ("GET", "/sign-in"), ("POST", "/sign-out")}
GENEROUS = ServerOptions(token=TOKEN, refusals_per_minute=None)


@pytest.fixture(scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[aiohttp.ClientSession]:
    """A server with a token. Its tests change nothing in it."""
    home = tmp_path_factory.mktemp("home")
    async with served(settings=settings(home, llm_provider="mock"), options=GENEROUS) as client:
        yield client


def filled(path: str) -> str:
    return re.sub(r"{form}", "vtt", re.sub(r"{\w+_id}", "x", path))


def access_of(token: str = TOKEN, **more: Any) -> Access:
    return Access(token, **more)


def cookie_of(access: Access) -> str:
    value = access.redeem(access.link_code())
    assert value
    return f"{access.cookie_name}={value}"


# ------------------------------------------------------------ the token


async def test_everything_but_few_doors_asks_for_the_token(guarded: aiohttp.ClientSession) -> None:
    """Those tell nothing of anybody: that it is alive, what pages are made of, and the ways in and out."""
    assert {(e.method, e.path) for e in endpoints() if e.open and not e.path.endswith(".js")} == OPEN
    for endpoint in endpoints():
        if endpoint.open:
            continue
        for method in {endpoint.method, "HEAD" if endpoint.method == "GET" else endpoint.method}:
            async with guarded.request(method, filled(endpoint.path)) as response:
                assert response.status == 401, (method, endpoint.path)
                assert response.headers["WWW-Authenticate"].startswith("Bearer")
                if method != "HEAD":
                    answer = await response.json()
                    assert set(answer) == {"error", "code"}
                    assert answer["code"] == "unauthorized"
                    assert "playhead link" in answer["error"]
        async with guarded.options(filled(endpoint.path)) as response:
            assert response.status == 405


async def test_the_token_opens_whatever_the_case_of_its_scheme(guarded: aiohttp.ClientSession) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        headers = {"Authorization": f"{scheme} {TOKEN}"}
        assert await ask(guarded, "GET", "/api/media", headers=headers) == (200, {"items": []})


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Bearer {TOKEN} {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}\u00e9"},
        {"X-Authorization": f"Bearer {TOKEN}"},
        {"Cookie": f"token={TOKEN}"},
        {"Cookie": f"{access_of().cookie_name}={TOKEN}"},
        {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "admin", "X-Original-URL": "/healthz"},
    ],
)
async def test_what_is_not_the_token_does_not_open(
    headers: dict[str, str], guarded: aiohttp.ClientSession
) -> None:
    status, answer = await ask(guarded, "GET", f"/api/media?token={TOKEN}", headers=headers)
    assert (status, answer["code"]) == (401, "unauthorized")


@pytest.mark.parametrize(
    "path",
    [
        "//api/media",
        "/api/media/",
        "/api//media",
        "/./api/media",
        "/healthz/../api/media",
        "/healthz/..%2fapi/media",
        "/static/..%2f..%2fapi/media",
        "/static/%2e%2e/api/media",
        "/api/%6dedia",
        "/API/media",
        "/api/media;/healthz",
        "/api/media%00",
        "/api/media?/healthz",
    ],
)
async def test_no_other_way_to_write_a_path_leads_round(path: str, guarded: aiohttp.ClientSession) -> None:
    async with guarded.get(URL(f"{address(guarded)}{path}", encoded=True)) as response:
        assert response.status in (401, 404)


async def test_a_wrong_token_is_not_made_good_by_a_cookie(guarded: aiohttp.ClientSession) -> None:
    headers = {"Authorization": "Bearer wrong", "Cookie": cookie_of(access_of())}
    assert (await ask(guarded, "GET", "/api/media", headers=headers))[0] == 401


async def test_the_token_is_in_no_answer_and_no_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    access = access_of()
    code, cookie = access.link_code(), cookie_of(access)
    secrets = (TOKEN, code, cookie.partition("=")[2])
    seen = []
    options = ServerOptions(token=TOKEN)
    async with served(settings=settings(tmp_path), options=options) as client:
        for headers in ({}, BEARER, {"Cookie": cookie}, {"Authorization": f"Bearer {TOKEN}x"}):
            for path in ("/", "/api/media", "/readyz", "/openapi.json", "/api/media/x/content"):
                async with client.get(path, headers=headers) as response:
                    seen.append(f"{response.headers} {await response.text()}")
        async with client.get(f"/sign-in?code={code}", allow_redirects=False) as response:
            seen.append(response.headers["Location"] + await response.text())
    told = f"{seen} {caplog.text} {options!r} {settings(tmp_path, token=TOKEN)!r}"
    assert [secret for secret in secrets if secret in told] == []


# ------------------------------------------------------------ the link and its cookie


async def test_a_link_signs_in_once_and_leads_to_a_clean_address(tmp_path: Path) -> None:
    app = create_app(settings=settings(tmp_path), options=GENEROUS)
    link = f"/sign-in?code={app.state.playhead.access.link_code()}"
    async with served(app) as client:
        async with client.head(link, allow_redirects=False) as look:
            assert "Set-Cookie" not in look.headers
        async with client.get(link, allow_redirects=False) as first:
            assert (first.status, first.headers["Location"]) == (303, "./")
            assert first.headers["Cache-Control"] == "no-store"
            assert first.headers["Referrer-Policy"] == "no-referrer"
            cookie = first.headers["Set-Cookie"]
        async with client.get(link, allow_redirects=False) as second:
            assert (second.status, second.headers["Location"]) == (303, "./")
            assert "Set-Cookie" not in second.headers
        value, *flags = cookie.split("; ")
        assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=1209600"} <= set(flags)
        assert "Secure" not in flags
        assert await ask(client, "GET", "/api/media", headers={"Cookie": value}) == (200, {"items": []})


def test_codes_and_cookies_end_and_are_good_for_one_thing() -> None:
    now = 1_000_000.0
    access = access_of(clock=lambda: now, session_seconds=3_600)
    late, code = access.link_code(), access.link_code()
    cookie = access.redeem(code)
    assert cookie is not None
    name = access.cookie_name
    assert access.signed_in({name: cookie})
    assert access.redeem(cookie) is None, "a cookie is no code"
    assert not access.signed_in({name: late}), "a code is no cookie"
    for wrong in ("", "x", "..", cookie[:-1], f"9{cookie}", cookie.replace(".", "..", 1), f"{cookie}\ud800"):
        assert not access.signed_in({name: wrong})
        assert access.redeem(wrong) is None
    now += LINK_SECONDS
    assert access.redeem(late) is None
    now += 3_600 - LINK_SECONDS - 1
    assert access.signed_in({name: cookie})
    now += 1
    assert not access.signed_in({name: cookie})


def test_another_token_ends_what_the_old_one_opened() -> None:
    old, new = access_of(), access_of("another-token-of-this-server")
    value = old.redeem(old.link_code())
    assert value is not None
    assert old.cookie_name != new.cookie_name, "two servers on one host do not undo each other's"
    assert not new.signed_in({new.cookie_name: value, old.cookie_name: value})
    assert new.redeem(old.link_code()) is None


def test_used_codes_are_forgotten_when_they_have_expired() -> None:
    now = 1_000_000.0
    access = access_of(clock=lambda: now)
    for _ in range(50):
        access.redeem(access.link_code())
        now += LINK_SECONDS
    assert len(access._used) <= 2


async def test_signing_out_takes_the_cookie_away(guarded: aiohttp.ClientSession) -> None:
    async with guarded.post("/sign-out") as response:
        assert response.status == 204
        assert "Max-Age=0" in response.headers["Set-Cookie"]


SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example", **SAME}, 403),
        (SAME, 404),
        ({"Origin": "{here}"}, 404),
        ({"Authorization": "Basic YTpi"}, 403),
        ({"Authorization": "Basic YTpi", **SAME}, 404),
        ({"Authorization": f"Bearer {TOKEN}"}, 404),
    ],
)
async def test_a_change_by_cookie_must_come_from_our_page(
    more: dict[str, str], status: int, guarded: aiohttp.ClientSession
) -> None:
    """A cookie comes along whoever made the browser ask; a token is only sent by who has it."""
    here = {name: value.format(here=address(guarded)) for name, value in more.items()}
    headers = {"Cookie": cookie_of(access_of()), **here}
    got, answer = await ask(guarded, "POST", "/api/agent/runs/x/cancel", headers=headers)
    assert (got, answer["code"]) == (status, "bad_origin" if status == 403 else "not_found")


# ------------------------------------------------------------ where it listens


async def test_a_token_lets_it_listen_where_others_reach_it(tmp_path: Path) -> None:
    """Design 6: and there it is asked for."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = create_app(settings=settings(tmp_path, token=TOKEN))
    serving = asyncio.create_task(serve(app, "0.0.0.0", 0, on_ready=ready.set_result))
    async with aiohttp.ClientSession(await ready) as client:
        assert (await ask(client, "GET", "/healthz"))[0] == 200
        assert (await ask(client, "GET", "/api/media"))[0] == 401
        assert (await ask(client, "GET", "/api/media", headers=BEARER))[0] == 200
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_the_token_is_read_from_the_environment(tmp_path: Path) -> None:
    held = load_settings({"PLAYHEAD_HOME": str(tmp_path), "PLAYHEAD_TOKEN": f" {TOKEN} "})
    assert create_app(settings=held).state.playhead.access.token == TOKEN
    assert not create_app(settings=settings(tmp_path)).state.playhead.access.required


@pytest.mark.parametrize(
    ("token", "said"),
    [("short", "5 characters"), ("a token with spaces", "space"), ("t\u00f6ken-of-this-server", "ASCII")],
)
def test_a_token_that_is_none_is_said_with_a_way_to_make_one(token: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        create_app(settings=settings(tmp_path, token=token))
    assert "secrets.token_urlsafe" in str(raised.value)
    assert token not in str(raised.value)


async def test_one_says_who_asks_not_two(tmp_path: Path) -> None:
    async def nobody(request: Any) -> None:
        return None

    with pytest.raises(ConfigError, match="either"):
        create_app(settings=settings(tmp_path), options=ServerOptions(token=TOKEN, identify=nobody))
    # The environment is the operator's; the application's own check comes before it.
    options = ServerOptions(identify=nobody)
    assert (
        create_app(settings=settings(tmp_path, token=TOKEN), options=options).state.playhead.access.token
        is None
    )


@pytest.mark.parametrize("origin", ["*", "https://*", "app.example", "https://app.example/", "null", ""])
def test_an_origin_that_would_let_anybody_in_is_refused(origin: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="origin"):
        create_app(settings=settings(tmp_path), options=ServerOptions(origins=[origin]))


# ------------------------------------------------------------ behind a proxy, in another app


@pytest.mark.parametrize(("proxies", "secure"), [(["127.0.0.1"], True), ([], False), (["10.0.0.1"], False)])
async def test_what_a_proxy_says_is_believed_of_those_that_are_named(
    proxies: list[str], secure: bool, tmp_path: Path
) -> None:
    options = ServerOptions(token=TOKEN, proxies=proxies, refusals_per_minute=2)
    app = create_app(settings=settings(tmp_path), options=options)
    async with served(app) as client:
        link = f"/sign-in?code={app.state.playhead.access.link_code()}"
        behind = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}
        async with client.get(link, headers=behind, allow_redirects=False) as response:
            assert ("Secure" in response.headers["Set-Cookie"]) is secure
        # A page that came without https is another one.
        origin = {"Origin": address(client), **behind}
        status, _ = await ask(client, "POST", "/api/agent/runs/x/cancel", headers={**BEARER, **origin})
        assert status == (403 if secure else 404)
        refused = [
            (await ask(client, "GET", "/api/media", headers={**behind, "X-Forwarded-For": f"203.0.113.{n}"}))[
                0
            ]
            for n in range(3)
        ]
        assert refused == ([401] * 3 if secure else [401, 401, 429])


async def test_under_a_prefix_the_cookie_is_for_the_prefix(tmp_path: Path) -> None:
    ours = create_app(settings=settings(tmp_path), options=GENEROUS)
    outer = Starlette()
    outer.mount("/deep/agent", ours)
    outer.state.playhead = ours.state.playhead
    async with served(outer) as client:
        link = f"/deep/agent/sign-in?code={ours.state.playhead.access.link_code()}"
        async with client.get(link, allow_redirects=False) as response:
            assert response.headers["Location"] == "./"
            assert "Path=/deep/agent;" in response.headers["Set-Cookie"]
        assert (await ask(client, "GET", "/deep/agent/api/media"))[0] == 401
        assert (await ask(client, "GET", "/deep/agent/api/media", headers=BEARER))[0] == 200


def test_every_route_is_an_endpoint(tmp_path: Path) -> None:
    """What is none is asked by nobody who is there: files of the page only."""
    app = create_app(settings=settings(tmp_path))
    known = {endpoint.path for endpoint in endpoints()}
    assert {route.path for route in app.routes if isinstance(route, Route)} == known
