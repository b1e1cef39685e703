"""How much one of those who ask may ask, so that others still can."""

import asyncio
from pathlib import Path

import pytest

from playhead.server import ServerOptions, create_app
from playhead.server.errors import ApiError
from playhead.server.limits import Buckets, address_of_client
from tests.server.support import HELLO, SAMPLE, STREAM, HeldModel, ask, frames, served, settings
from tests.server.test_access_tenants import RUNS, by_header, who
from tests.support.until import until

pytestmark = pytest.mark.anyio


def test_a_minute_has_so_many_and_who_waits_gets_more() -> None:
    now = 0.0
    buckets = Buckets(60, clock=lambda: now)
    for _ in range(60):
        buckets.take("a")
    with pytest.raises(ApiError) as refused:
        buckets.take("a")
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    buckets.take("b")
    now += 1
    buckets.take("a")
    with pytest.raises(ApiError):
        buckets.take("a")
    now += 3600
    for _ in range(60):
        buckets.take("a")
    with pytest.raises(ApiError):
        buckets.take("a")


def test_as_many_are_remembered_as_there_is_room_for() -> None:
    buckets = Buckets(1, known=100)
    for n in range(1_000):
        buckets.take(f"10.0.{n // 256}.{n % 256}")
    assert len(buckets) == 100
    with pytest.raises(ApiError):
        buckets.take("10.0.3.231")


def test_a_client_is_its_address_or_its_network() -> None:
    keys = [
        address_of_client({"client": client})
        for client in (
            ("203.0.113.7", 1),
            ("::ffff:203.0.113.7", 2),
            ("2001:db8::1", 1),
            ("2001:db8::ffff:2", 1),
            ("2001:db8:0:1::1", 1),
            None,
            ("testclient", 5),
        )
    ]
    assert keys[0] == keys[1]
    assert keys[2] == keys[3] != keys[4]
    assert keys[5:] == ["", "testclient"]


async def test_requests_are_counted_by_who_asks(tmp_path: Path) -> None:
    options = ServerOptions(identify=by_header, requests_per_minute=3, refusals_per_minute=2)
    async with served(settings=settings(tmp_path), options=options) as client:
        for name in ("a:b", "a:c"):
            told = [await ask(client, "GET", "/api/media", **who(name)) for _ in range(4)]
            assert [status for status, _ in told] == [200, 200, 200, 429]
            assert told[-1][1]["code"] == "too_many_requests"
        async with client.get("/api/media", **who("a:b")) as response:
            assert 1 <= int(response.headers["Retry-After"]) <= 20
        unknown = [(await ask(client, "GET", "/api/media"))[0] for _ in range(4)]
        assert unknown == [401, 401, 429, 429]
        # Who is known is not kept out by others of the same address who are not.
        assert (await ask(client, "GET", "/api/media", **who("c")))[0] == 200
        assert [(await ask(client, "GET", "/healthz"))[0] for _ in range(5)] == [200] * 5


async def test_without_anybody_to_know_requests_are_counted_by_address(tmp_path: Path) -> None:
    async with served(settings=settings(tmp_path), options=ServerOptions(requests_per_minute=3)) as client:
        assert [(await ask(client, "GET", "/api/media"))[0] for _ in range(4)] == [200, 200, 200, 429]


async def test_links_are_not_tried_out_for_long(tmp_path: Path) -> None:
    options = ServerOptions(token="x" * 20, refusals_per_minute=2)
    async with served(settings=settings(tmp_path), options=options) as client:
        tried = []
        for n in range(3):
            async with client.get(f"/sign-in?code={n}", allow_redirects=False) as response:
                tried.append(response.status)
        assert tried == [303, 303, 429]
        # Nor is the token at the page, which tells by its answer as well.
        status, _ = await ask(client, "GET", "/", headers={"Authorization": "Bearer guess"})
        assert status == 429


async def test_streams_at_a_time_are_bounded(tmp_path: Path) -> None:
    """Of a run that is not begun for it, too; and each gives its place back."""
    model = HeldModel()
    options = ServerOptions(identify=by_header, max_streams=2, heartbeat=60)
    async with served(llm=model, settings=settings(tmp_path), options=options) as client:
        path, mine = "/api/agent/threads/t/events", who("a", **STREAM)
        held = [await client.get(path, **mine) for _ in range(2)]
        assert [stream.status for stream in held] == [200, 200]
        for method, where, body in (
            ("GET", path, None),
            ("POST", RUNS, {"message": "x"}),
            ("POST", "/api/agent/chat", HELLO),
        ):
            async with client.request(method, where, json=body, **mine) as refused:
                assert refused.status == 429
                assert int(refused.headers["Retry-After"]) >= 1
        assert (await ask(client, "GET", "/api/agent/threads/t", **who("a")))[1]["messages"] == []
        other = await client.get(path, **who("b", **STREAM))
        assert other.status == 200
        other.close()
        held[0].close()
        async with asyncio.timeout(10):
            while (again := await client.get(path, **mine)).status == 429:
                again.close()
        assert again.status == 200
        again.close()
        held[1].close()


async def test_runs_at_a_time_are_bounded_and_none_is_half_begun(tmp_path: Path) -> None:
    model = HeldModel()
    options = ServerOptions(identify=by_header, max_runs=2)
    async with served(llm=model, settings=settings(tmp_path), options=options) as client:
        begun = [await ask(client, "POST", RUNS, json={"message": f"m{n}"}, **who("a")) for n in range(3)]
        assert [status for status, _ in begun] == [202, 202, 429]
        _, view = await ask(client, "GET", "/api/agent/threads/t", **who("a"))
        assert [waiting["message"]["content"] for waiting in view["waiting"]] == ["m1"]
        status, _ = await ask(client, "POST", RUNS, json={"message": "x"}, **who("b"))
        assert status == 202
        model.go.set()
        for _, started in begun[:2]:
            stream = await client.get(f"/api/agent/runs/{started['runId']}/events", **who("a", **STREAM))
            assert [event async for event in frames(stream)][-1][0] == "run_end"
        assert (await ask(client, "POST", RUNS, json={"message": "m3"}, **who("a")))[0] == 202


async def test_the_media_of_one_do_not_fill_the_disk(tmp_path: Path) -> None:
    data = SAMPLE.read_bytes()
    options = ServerOptions(identify=by_header, max_stored=len(data) + 10)
    async with served(settings=settings(tmp_path), options=options) as client:

        async def upload(name: str, title: str) -> int:
            async with client.post(f"/api/media?name={title}", data=data, **who(name)) as response:
                return response.status

        assert [await upload("a", "1.mp4"), await upload("a", "2.mp4"), await upload("b", "1.mp4")] == [
            201,
            413,
            201,
        ]


async def test_a_place_is_given_back_whatever_ends_the_stream(tmp_path: Path) -> None:
    app = create_app(llm=HeldModel(), settings=settings(tmp_path))
    places, path = app.state.playhead.streams, "/api/agent/threads/t/events"
    async with served(app) as client:
        await client.head(path)
        assert (await ask(client, "GET", path, params={"after": "x"}, headers=STREAM))[0] == 400
        stream = await client.get(path, headers=STREAM)
        assert len(places) == 1
        stream.close()
        await until(lambda: len(places) == 0)
