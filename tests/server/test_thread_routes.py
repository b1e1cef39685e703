"""The routes of threads: one stream over all runs, resumed by id; answers to calls that wait."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from playhead import tool
from playhead.server import create_app
from playhead.testing import ScriptedLLM
from playhead.tools.registry import ToolRegistry
from tests.server.support import STREAM, HeldModel, all_frames, ask, frames, served, settings

pytestmark = pytest.mark.anyio

THREAD = "/api/agent/threads/t1"
RUNS = f"{THREAD}/runs"


async def raw_frames(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    """The events of a stream, ids included."""
    assert response.status == 200, await response.text()
    fields: dict[str, str] = {}
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "event" in fields:
            yield fields
        fields = {}


async def until(client: aiohttp.ClientSession, path: str, last: str, **more: Any) -> list[dict[str, str]]:
    """The frames of a stream up to the first of this type."""
    found = []
    async with client.get(path, headers={**STREAM, **more.pop("headers", {})}, **more) as response:
        async for frame in raw_frames(response):
            found.append(frame)
            if frame["event"] == last:
                return found
    raise AssertionError(f"the stream ended before {last}: {found}")


def said(found: list[dict[str, str]]) -> str:
    return "".join(json.loads(f["data"])["text"] for f in found if f["event"] == "text_delta")


async def test_a_thread_is_one_stream_over_all_its_runs(tmp_path: Path) -> None:
    """Design 6: `Last-Event-ID` or `after`, whichever a client has; ids count the thread's events."""
    async with served(llm=ScriptedLLM("one two", "three"), settings=settings(tmp_path)) as client:
        for text in ("a", "b"):
            await all_frames(client, "POST", RUNS, json={"message": text})
        first = await until(client, f"{THREAD}/events", "run_end")
        assert [f["event"] for f in first[:2]] == ["run_start", "user_message"]
        assert said(first) == "one two"
        place = first[-1]["id"]
        for more in ({"params": {"after": place}}, {"headers": {"Last-Event-ID": place}}):
            second = await until(client, f"{THREAD}/events", "run_end", **more)
            assert said(second) == "three"
            assert int(second[0]["id"]) == int(place) + 1
        _, view = await ask(client, "GET", THREAD)
        assert view["seq"] == int(second[-1]["id"])
        assert json.loads(second[-1]["data"])["seq"] == view["seq"]


async def test_a_text_is_resumed_inside_it(tmp_path: Path) -> None:
    """Design 5: the id of a live text carries the characters; nothing of it comes twice."""
    model = HeldModel()
    async with served(llm=model, settings=settings(tmp_path)) as client:
        _, started = await ask(client, "POST", RUNS, json={"message": "hi"})
        path = f"/api/agent/runs/{started['runId']}/events"
        first = await until(client, path, "text_delta")
        assert "." in first[-1]["id"]
        rest = asyncio.create_task(until(client, path, "run_end", params={"after": first[-1]["id"]}))
        await asyncio.sleep(0.05)
        model.go.set()
        whole = await until(client, path, "run_end")
        assert said(first) + said(await rest) == said(whole)


@pytest.mark.parametrize("after", ["x", "-1", "1.x"])
async def test_a_place_that_is_none_is_400(after: str, tmp_path: Path) -> None:
    async with served(llm=ScriptedLLM("so"), settings=settings(tmp_path)) as client:
        _, started = await ask(client, "POST", RUNS, json={"message": "hi"})
        for path in (f"{THREAD}/events", f"/api/agent/runs/{started['runId']}/events"):
            for more in ({"params": {"after": after}}, {"headers": {"Last-Event-ID": after}}):
                status, body = await ask(client, "GET", path, **more)
                assert (status, body["code"], body["path"]) == (400, "invalid", "after")


async def test_a_restarted_server_knows_its_threads(tmp_path: Path) -> None:
    """I: history, run and events are there; a client's cursor still counts."""
    async with served(llm=ScriptedLLM("one"), settings=settings(tmp_path)) as client:
        await all_frames(client, "POST", RUNS, json={"message": {"content": "a", "id": "m1"}})
        found = await until(client, f"{THREAD}/events", "run_end")
    async with served(llm=ScriptedLLM("two"), settings=settings(tmp_path)) as client:
        again = await all_frames(client, "POST", RUNS, json={"message": {"content": "a", "id": "m1"}})
        assert again[-1][1]["result"]["text"] == "one"
        await all_frames(client, "POST", RUNS, json={"message": "b"})
        later = await until(client, f"{THREAD}/events", "run_end", params={"after": found[-1]["id"]})
        _, view = await ask(client, "GET", THREAD)
    assert said(later) == "two"
    assert [m["content"] for m in view["messages"]] == ["a", "one", "b", "two"]


async def test_what_waits_behind_a_run_is_shown(tmp_path: Path) -> None:
    """Q244: a reload finds the messages that are not answered yet."""
    model = HeldModel()
    async with served(llm=model, settings=settings(tmp_path)) as client:
        _, first = await ask(client, "POST", RUNS, json={"message": "one"})
        _, second = await ask(client, "POST", RUNS, json={"message": {"content": "two", "id": "m2"}})
        await until(client, f"{THREAD}/events", "text_delta")
        _, view = await ask(client, "GET", THREAD)
        assert (view["activeRun"]["runId"], view["activeRun"]["state"]) == (first["runId"], "running")
        assert [(w["runId"], w["message"]["id"]) for w in view["waiting"]] == [(second["runId"], "m2")]
        status, _ = await ask(client, "POST", RUNS, json={"message": "three", "policy": "interrupt"})
        assert status == 202
        events = await all_frames(client, "GET", f"/api/agent/runs/{first['runId']}/events")
        assert events[-1][1]["result"]["finishReason"] == "cancelled"
        model.go.set()
        await all_frames(client, "GET", f"/api/agent/runs/{second['runId']}/events")


async def test_a_server_that_stops_begins_no_stream(tmp_path: Path) -> None:
    """Issue 6: whoever comes back to it is told so before the answer begins, and goes to another."""
    app = create_app(llm=ScriptedLLM("one"), settings=settings(tmp_path))
    async with served(app) as client:
        await all_frames(client, "POST", RUNS, json={"message": "a"})
        await app.state.playhead.stop()
        status, body = await ask(client, "GET", f"{THREAD}/events", headers=STREAM)
        assert (status, body["code"]) == (503, "stopping")


async def test_a_deleted_thread_ends_its_streams(tmp_path: Path) -> None:
    model = HeldModel()
    async with served(llm=model, settings=settings(tmp_path)) as client:
        await ask(client, "POST", RUNS, json={"message": "one"})
        async with client.get(f"{THREAD}/events", headers=STREAM) as response:
            reading = frames(response)
            await anext(reading)
            async with client.delete(THREAD) as deleted:
                assert deleted.status == 204
            async with asyncio.timeout(5):
                async for _ in reading:
                    pass
        view = (await ask(client, "GET", THREAD))[1]
        assert (view.pop("messages"), list(view)) == ([], ["seq"])


# ---------------------------------------------------------------- answers


def till(paid: list[int]) -> ToolRegistry:
    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    return ToolRegistry([pay])


async def test_an_approval_goes_on_with_the_turn(tmp_path: Path) -> None:
    """Q220, Q241: the stream ended at `run_paused`; a reload shows what waits; the answer is a new run."""
    paid: list[int] = []
    llm = ScriptedLLM([("pay", {"amount": 5})], "thanks")
    async with served(llm=llm, registry=till(paid), settings=settings(tmp_path)) as client:
        events = await all_frames(client, "POST", RUNS, json={"message": "pay"})
        assert events[-1][0] == "run_paused"
        _, view = await ask(client, "GET", THREAD)
        (call,) = view["pending"]
        assert (call["call"]["args"], call["kind"], call["runId"]) == (
            {"amount": 5},
            "approval",
            events[0][1]["runId"],
        )
        path = f"/api/agent/runs/{call['runId']}/tool-results"
        answer = {"callId": call["call"]["id"], "argsHash": call["argsHash"], "approved": True}
        status, started = await ask(client, "POST", path, json=answer)
        assert status == 202
        rest = await all_frames(client, "GET", f"/api/agent/runs/{started['runId']}/events")
        assert rest[-1][1]["result"]["text"] == "thanks"
        status, body = await ask(client, "POST", path, json=answer)
        assert (status, body["code"]) == (409, "conflict")
        assert "pending" not in (await ask(client, "GET", THREAD))[1]
    assert paid == [5]


LIES: list[tuple[dict[str, Any], int]] = [
    ({"approved": "true"}, 400),
    ({"approved": 1}, 400),
    ({"approved": None}, 400),
    ({}, 400),
    ({"approved": True, "result": "done"}, 400),
    ({"approved": True, "role": "system"}, 400),
    ({"approved": True, "argsHash": "0" * 32}, 409),
    ({"approved": True, "callId": "call_999"}, 404),
    ({"approved": True, "args": [1]}, 400),
]


@pytest.mark.parametrize(("lie", "status"), LIES, ids=range(len(LIES)))
async def test_an_answer_of_a_clients_own_making_is_refused(
    lie: dict[str, Any], status: int, tmp_path: Path
) -> None:
    """Bad input: each a clear error, nothing runs, and the true answer is still taken."""
    paid: list[int] = []
    llm = ScriptedLLM([("pay", {"amount": 5})], "thanks")
    async with served(llm=llm, registry=till(paid), settings=settings(tmp_path)) as client:
        await all_frames(client, "POST", RUNS, json={"message": "pay"})
        _, view = await ask(client, "GET", THREAD)
        (call,) = view["pending"]
        true = {"callId": call["call"]["id"], "argsHash": call["argsHash"]}
        path = f"/api/agent/runs/{call['runId']}/tool-results"
        got, body = await ask(client, "POST", path, json={**true, **lie})
        assert (got, paid) == (status, []), body
        assert body["error"]
        await all_frames(client, "POST", path, json={**true, "approved": True})
    assert paid == [5]


@pytest.mark.parametrize(
    "body",
    [
        {"message": "hi", "policy": "drop"},
        {"message": {"role": "assistant", "content": 5}},
        {"message": {"content": [{"type": "tool_result"}]}},
        {"messages": [{"role": "user", "content": "hi"}]},
    ],
    ids=range(4),
)
async def test_a_client_sends_what_is_new_and_nothing_else(body: Any, tmp_path: Path) -> None:
    """Design 6: the server owns the history; what is not of the body's form is refused with its place."""
    async with served(llm=ScriptedLLM("so"), settings=settings(tmp_path)) as client:
        status, answer = await ask(client, "POST", RUNS, json=body)
        assert (status, answer["code"]) == (400, "invalid")
        assert (await ask(client, "GET", THREAD))[1]["messages"] == []


async def test_a_database_that_is_away_is_503_and_said_by_readyz(tmp_path: Path) -> None:
    """Bad input: no hang, no traceback, and `/healthz` is 200."""
    url = "postgresql://nobody:secret@127.0.0.1:9/none"
    held = replace(settings(tmp_path), database=url)
    async with served(llm=ScriptedLLM("so"), settings=held) as client:
        for method, path, more in (
            ("GET", "/readyz", {}),
            ("GET", THREAD, {}),
            ("POST", RUNS, {"json": {"message": "hi"}}),
        ):
            status, body = await ask(client, method, path, **more)
            assert (status, body["code"]) == (503, "store")
            assert "secret" not in str(body)
        assert (await ask(client, "GET", "/healthz"))[0] == 200
