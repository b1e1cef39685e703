"""A thread as a page is given it: what was said, what goes on, what waits."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from playhead import ToolRegistry, tool
from playhead.testing import FakeProvider, ScriptedLLM, openai_sse, reply_json
from tests.server.support import STREAM, HeldModel, all_frames, ask, frames, process, served, settings

pytestmark = pytest.mark.anyio

THREAD = "/api/agent/threads/t1"


async def told(client: aiohttp.ClientSession, after: int, ends: int) -> list[tuple[str, Any]]:
    """The thread's events past one, up to so many ends of runs."""
    events: list[tuple[str, Any]] = []
    async with client.get(f"{THREAD}/events?after={after}", headers=STREAM) as response:
        async for event in frames(response):
            events.append(event)
            if sum(kind == "run_end" for kind, _ in events) == ends:
                return events
    raise AssertionError(events)


async def test_who_comes_late_is_told_why_the_last_run_failed(tmp_path: Path) -> None:
    """It is in no message: the events of that run are told again. Of one that ended well, none are."""
    fault = reply_json({}, 401)
    async with (
        FakeProvider(openai_sse("One"), fault, openai_sse("Three")) as provider,
        served(settings=settings(tmp_path, provider.url)) as client,
    ):
        for text in ("first", "second"):
            await all_frames(client, "POST", f"{THREAD}/runs", json={"message": text})
        _, view = await ask(client, "GET", THREAD)
        events = await told(client, view["seq"], 1)
        assert [kind for kind, _ in events][:2] == ["run_start", "user_message"]
        assert events[1][1]["message"] == view["messages"][-1]
        assert events[-1][1]["result"]["errorCode"] == "auth"
        last = (await all_frames(client, "POST", f"{THREAD}/runs", json={"message": "third"}))[-1]
        _, view = await ask(client, "GET", THREAD)
        assert view["seq"] == last[1]["seq"]


async def test_calls_that_wait_are_named_also_while_another_is_answered(tmp_path: Path) -> None:
    """A person goes through them without waiting for what each of them does."""
    model = HeldModel()

    @tool(approval=True)
    async def publish(title: str) -> str:
        """Publish a video."""
        model.called.set()
        await model.go.wait()
        return "done"

    llm = ScriptedLLM([("publish", {"title": "one"}), ("publish", {"title": "two"})], "Both are out.")
    async with served(llm=llm, registry=ToolRegistry([publish]), settings=settings(tmp_path)) as client:
        await all_frames(client, "POST", f"{THREAD}/runs", json={"message": "Publish"})
        _, view = await ask(client, "GET", THREAD)
        assert [one["call"]["args"]["title"] for one in view["pending"]] == ["one", "two"]
        for one in view["pending"]:
            answer = {"callId": one["call"]["id"], "argsHash": one["argsHash"], "approved": True}
            path = f"/api/agent/runs/{one['runId']}/tool-results"
            status, _ = await ask(client, "POST", path, json=answer)
            assert status == 202
            await model.called.wait()
            _, during = await ask(client, "GET", THREAD)
            assert "activeRun" in during
            left = [call["call"]["args"]["title"] for call in during.get("pending", [])]
            assert left == (["two"] if one is view["pending"][0] else [])
        model.go.set()
        events = await told(client, view["seq"], 1)
        assert events[-1][1]["result"]["text"] == "Both are out."


async def test_a_message_that_waited_when_its_server_died_is_told_and_kept(tmp_path: Path) -> None:
    """Q242, Q244: it is in the thread and among the events, as what is not answered."""
    async with process(tmp_path, "asked") as (server, url), aiohttp.ClientSession(url) as client:
        async with client.post(f"{THREAD}/runs", json={"message": "hold"}, headers=STREAM) as response:
            async for kind, _ in frames(response):
                if kind == "text_delta":
                    break
        await ask(client, "POST", f"{THREAD}/runs", json={"message": "later"})
        server.kill()
        await server.wait()
    async with served(llm=HeldModel(), settings=settings(tmp_path)) as client:
        _, view = await ask(client, "GET", THREAD)
        events = await told(client, 0, 2)
    assert [message["content"] for message in view["messages"]] == ["hold", "later"]
    said = [data["message"] for kind, data in events if kind == "user_message"]
    assert said == view["messages"]
    codes = [data["result"]["errorCode"] for kind, data in events if kind == "run_end"]
    assert codes == ["interrupted", "interrupted"]
