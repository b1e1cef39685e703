"""A thread as a page is given it: what was said, what goes on, what waits."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.server.support import STREAM, HeldModel, ask, frames, process, served, settings

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
