"""Projects over HTTP, and which tools the runs in them are offered."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from playhead import ConfigError, tool
from playhead.server import create_app
from playhead.testing import ScriptedLLM
from playhead.tools.builtin import default_registry
from tests.server.support import SAMPLE, HeldModel, all_frames, ask, served, settings

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    async with served(llm=HeldModel(), settings=settings(tmp_path)) as client:
        yield client


async def add(client: aiohttp.ClientSession, name: str = "talk.mp4", **where: str) -> str:
    params = {"name": name, **where}
    status, item = await ask(client, "POST", "/api/media", params=params, data=SAMPLE.read_bytes())
    assert status == 201, item
    return str(item["id"])


async def make(client: aiohttp.ClientSession, name: str) -> Any:
    status, project = await ask(client, "POST", "/api/projects", json={"name": name})
    assert status == 201, project
    return project


async def media_of(client: aiohttp.ClientSession, project_id: str) -> list[str]:
    status, view = await ask(client, "GET", f"/api/projects/{project_id}")
    assert status == 200
    return [item["id"] for item in view["media"]]


async def test_there_is_always_a_project_and_more_can_be_made_renamed_and_deleted(tmp_path: Path) -> None:
    """Issue 7, 2: several projects, kept over a restart."""
    async with served(settings=settings(tmp_path)) as client:
        _, listed = await ask(client, "GET", "/api/projects")
        assert [project["id"] for project in listed["items"]] == ["first"]
        film = await make(client, "  My \n film ")
        assert film["name"] == "My film"
        assert film["threadId"] not in (film["id"], "first")
        changed = {"name": "Film, second cut", "threadId": "another"}
        assert (await ask(client, "PATCH", f"/api/projects/{film['id']}", json=changed))[0] == 200
        await ask(client, "PATCH", "/api/projects/first", json={"name": "Inbox"})
    async with served(settings=settings(tmp_path)) as client:
        _, listed = await ask(client, "GET", "/api/projects")
        assert [(p["name"], p["threadId"]) for p in listed["items"]] == [
            ("Inbox", "first"),
            ("Film, second cut", "another"),
        ]
        async with client.delete(f"/api/projects/{film['id']}") as response:
            assert response.status == 204
        assert (await ask(client, "GET", f"/api/projects/{film['id']}"))[0] == 404
        status, answer = await ask(client, "DELETE", "/api/projects/first")
        assert (status, answer["code"]) == (409, "conflict")


async def test_media_belong_to_their_project(client: aiohttp.ClientSession) -> None:
    """Issue 7, 2: what is in no project is in the first; a file leaves the folder with its last project."""
    loose = await add(client, "loose.mp4")
    film, cut = await make(client, "Film"), await make(client, "Cut")
    mine = await add(client, project=film["id"])
    assert await add(client, project=cut["id"]) == mine, "the same file is stored once"
    assert await media_of(client, "first") == [loose]
    assert await media_of(client, film["id"]) == await media_of(client, cut["id"]) == [mine]
    async with client.delete(f"/api/projects/{film['id']}/media/{mine}") as response:
        assert response.status == 204
    assert await media_of(client, film["id"]) == []
    assert await media_of(client, cut["id"]) == [mine]
    assert (await ask(client, "DELETE", f"/api/projects/{film['id']}/media/{loose}"))[0] == 404
    async with client.delete(f"/api/projects/{cut['id']}") as response:
        assert response.status == 204
    _, listed = await ask(client, "GET", "/api/media")
    assert [item["id"] for item in listed["items"]] == [loose]


async def test_a_file_that_comes_again_stays_where_it_was(client: aiohttp.ClientSession) -> None:
    """Issue 7, 2: what came in without a project is not lost with another that has it."""
    talk, sample = await add(client), await add(client, "jfk.mp4")
    other = (await make(client, "Other"))["id"]
    assert await add(client, project=other) == talk
    status, item = await ask(client, "POST", f"/api/projects/{other}/sample")
    assert (status, item["id"]) == (201, sample)
    fresh = await add(client, "fresh.mp4", project=other)
    assert await media_of(client, "first") == [talk, sample]
    assert await media_of(client, other) == [talk, sample, fresh]
    async with client.delete(f"/api/projects/{other}") as response:
        assert response.status == 204
    assert await media_of(client, "first") == [talk, sample]
    _, listed = await ask(client, "GET", "/api/media")
    assert sorted(item["id"] for item in listed["items"]) == sorted([talk, sample])


async def test_the_sample_is_one_request_away(client: aiohttp.ClientSession) -> None:
    """Issue 7, 2: a newcomer needs no file of his own."""
    film = await make(client, "Film")
    status, item = await ask(client, "POST", f"/api/projects/{film['id']}/sample")
    assert (status, item["name"]) == (201, "jfk.mp4")
    assert await media_of(client, film["id"]) == [item["id"]]
    assert (await ask(client, "POST", "/api/projects/nope/sample"))[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/api/projects", {"name": "  "}, 400, "name"),
        ("POST", "/api/projects", {"name": "x" * 201}, 400, "name"),
        ("POST", "/api/projects", {"name": "\0\u200b"}, 400, "name"),
        ("PATCH", "/api/projects/first", {"threadId": "a\0b"}, 400, "threadId"),
        ("POST", "/api/projects", {}, 400, "name"),
        ("POST", "/api/projects", {"name": "x", "id": "y"}, 400, "id"),
        ("PATCH", "/api/projects/first", {"name": 7}, 400, "name"),
        ("PATCH", "/api/projects/nope", {"name": "x"}, 404, "'nope'"),
        ("DELETE", "/api/projects/nope", None, 404, "'nope'"),
        ("GET", "/api/projects/nope", None, 404, "'nope'"),
        ("DELETE", "/api/projects/nope/media/x", None, 404, "'nope'"),
        ("POST", "/api/media?name=a.mp4&project=nope", None, 404, "'nope'"),
    ],
)
async def test_bad_input_gets_a_clear_error(
    method: str, path: str, body: Any, status: int, said: str, client: aiohttp.ClientSession
) -> None:
    """Issue 7, 2: the fault is named, and nothing is made."""
    found, answer = await ask(client, method, path, json=body)
    assert found == status
    assert said in answer["error"]
    _, listed = await ask(client, "GET", "/api/projects")
    assert len(listed["items"]) == 1


async def test_tools_of_ones_own_are_offered_beside_ours(tmp_path: Path) -> None:
    """Issue 7, 5: in every run and in the chat route; what cannot be is said with what to do."""

    @tool(approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    llm = ScriptedLLM("Hello.", "Hello again.")
    async with served(llm=llm, settings=settings(tmp_path), tools=[pay]) as client:
        await all_frames(client, "POST", "/api/agent/threads/t/runs", json={"message": "Hello"})
        body = {"messages": [{"role": "user", "content": "Hello"}]}
        assert (await ask(client, "POST", "/api/agent/chat", json=body))[0] == 200
    for request in llm.requests:
        assert [schema.name for schema in request.tools] == ["transcribe_video", "pay"]
    wrong: Any = [pay]
    with pytest.raises(ConfigError, match=r"registry: It is a list.*tools=\[\.\.\.\]"):
        create_app(registry=wrong)
    ours = default_registry().get("transcribe_video")
    with pytest.raises(ConfigError, match="'transcribe_video' already"):
        create_app(tools=[ours])


@pytest.mark.parametrize(
    ("context", "more"),
    [
        ({"projectId": "first"}, ["search_transcript", "make_captions", "correct_transcript", "seek"]),
        ({"projectId": "somewhere else"}, []),
        ({}, []),
        (None, []),
    ],
)
async def test_the_tools_of_the_page_are_offered_to_its_projects_only(
    context: Any, more: list[str], tmp_path: Path
) -> None:
    """Issue 7, 3, R31, R59: the default registry holds transcribe_video alone, also in the chat route."""
    llm = ScriptedLLM("Here it is.", "And here.")
    async with served(llm=llm, settings=settings(tmp_path)) as client:
        body = {"message": "Hello", "context": context}
        await all_frames(client, "POST", "/api/agent/threads/t/runs", json=body)
        chat = {"messages": [{"role": "user", "content": "Hello"}], "context": context}
        assert (await ask(client, "POST", "/api/agent/chat", json=chat))[0] == 200
    offered = [[schema.name for schema in request.tools] for request in llm.requests]
    assert offered == [["transcribe_video", *more], ["transcribe_video"]]
