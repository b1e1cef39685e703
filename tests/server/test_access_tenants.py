"""The application's own authentication: threads, runs, approvals and media of one unknown to another."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException
from starlette.requests import Request

from playhead import AgentLoop, ConfigError, Sessions, tool
from playhead.config import create_library, create_registry, create_speech
from playhead.server import Identity, ServerOptions, create_app
from playhead.server.app import endpoints
from playhead.server.tenants import sessions_of
from playhead.testing import ScriptedLLM
from tests.server.support import (
    HELLO,
    SAMPLE,
    SPOKEN,
    STREAM,
    Event,
    all_frames,
    ask,
    frames,
    served,
    settings,
    speech_endpoint,
)

pytestmark = pytest.mark.anyio

RUNS = "/api/agent/threads/t/runs"


async def by_header(request: Request) -> Identity | None:
    """As an application does by its session, or a token of its own."""
    who = request.headers.get("x-who")
    if who is None:
        return None
    if who == "banned":
        raise HTTPException(403)
    tenant, _, user = who.partition(":")
    return Identity(tenant or None, user or None)


def who(name: str, **more: str) -> dict[str, Any]:
    return {"headers": {"X-Who": name, **more}}


async def told_in_pieces(
    client: aiohttp.ClientSession, path: str, message: str, **more: Any
) -> Sequence[Event]:
    """Say something where streams end early, and come back for the events until all of them are there."""
    _, started = await ask(client, "POST", path, json={"message": message}, **more)
    events: list[Event] = []
    while not events or events[-1][0] not in ("run_end", "run_paused"):
        after = [event["seq"] for _, event in events if "seq" in event][-1:]
        # What is not recorded yet has no number, and comes again.
        events = [(kind, event) for kind, event in events if "seq" in event]
        where = f"/api/agent/runs/{started['runId']}/events"
        events += await all_frames(client, "GET", where, params={"after": after[0]} if after else {}, **more)
    return events


@tool(approval=True)
async def wipe() -> str:
    """Wipe it."""
    return "wiped"


@asynccontextmanager
async def shared(home: Path, *script: Any, **more: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """A server that many use, each as who they say they are."""
    async with speech_endpoint() as endpoint:
        held = settings(home, speech_base_url=f"{endpoint.url}/v1")
        library, speech = create_library(held), create_speech(held)
        registry = create_registry(held, library, speech)
        registry.register(wipe)
        llm = ScriptedLLM(*script, default="ok")
        options = ServerOptions(identify=by_header, **more)
        parts: dict[str, Any] = {"llm": llm, "library": library, "speech": speech, "registry": registry}
        async with served(create_app(settings=held, options=options, **parts)) as client:
            yield client


async def test_who_the_application_does_not_know_is_401(tmp_path: Path) -> None:
    async with shared(tmp_path) as client:
        status, answer = await ask(client, "GET", "/api/media")
        assert (status, answer["code"]) == (401, "unauthorized")
        status, answer = await ask(client, "GET", "/api/media", **who("banned"))
        assert (status, answer["code"]) == (403, "forbidden")
        assert (await ask(client, "GET", "/api/media", **who("a")))[0] == 200
        # Its cookie would come along with what another site's page asks for.
        status, answer = await ask(
            client, "POST", RUNS, json={"message": "x"}, **who("a", Cookie="session=1")
        )
        assert (status, answer["code"]) == (403, "bad_origin")


# Each is somebody else than "a:b", though their names are made to look alike.
OTHERS = ["a", "a:c", "c:b", ":b", ":a/b", "a/b", "a%2Fb", "a/b:", "A:b", ":"]


async def test_what_is_anothers_is_not_there(tmp_path: Path) -> None:
    """404 and not 403: that it exists is theirs to know as well."""
    async with shared(tmp_path, ("wipe", {})) as client:
        owner = who("a:b")
        async with client.post("/api/media?name=own.mp4", data=SAMPLE.read_bytes(), **owner) as response:
            media = (await response.json())["id"]
        events = await all_frames(client, "POST", RUNS, json={"message": "secret words"}, **owner)
        assert events[-1][0] == "run_paused"
        run = events[-1][1]["runId"]
        _, view = await ask(client, "GET", "/api/agent/threads/t", **owner)
        call = view["pending"][0]
        answer = {"callId": call["call"]["id"], "argsHash": call["argsHash"], "approved": True}
        _, made = await ask(client, "POST", "/api/projects", json={"name": "Secret"}, **owner)
        project = made["id"]

        def without(text: str) -> str:
            for id in (run, media, project):
                text = text.replace(id, "0")
            return text

        for other in OTHERS:
            them = who(other)
            unknown = [
                ("GET", f"/api/agent/runs/{run}/events", None),
                ("POST", f"/api/agent/runs/{run}/cancel", None),
                ("POST", f"/api/agent/runs/{run}/tool-results", answer),
                ("GET", f"/api/media/{media}/content", None),
                ("GET", f"/api/media/{media}/transcript", None),
                ("GET", f"/api/media/{media}/captions.vtt", None),
                ("GET", f"/api/media/{media}/waveform", None),
                ("GET", f"/api/media/{media}/thumbnails", None),
                ("PUT", f"/api/media/{media}/transcript/lines/0", {"said": "x", "text": "y"}),
                ("DELETE", f"/api/media/{media}", None),
                ("GET", f"/api/projects/{project}", None),
                ("PATCH", f"/api/projects/{project}", {"name": "mine"}),
                ("POST", f"/api/projects/{project}/sample", None),
                ("DELETE", f"/api/projects/{project}/media/{media}", None),
                ("DELETE", f"/api/projects/{project}", None),
            ]
            for method, path, body in unknown:
                status, told = await ask(client, method, path, json=body, **them)
                assert (status, told["code"]) == (404, "not_found"), (other, method, path)
                nothing = without(path)
                _, of_none = await ask(client, method, nothing, json=body, **them)
                assert without(told["error"]) == of_none["error"]
            assert await ask(client, "GET", "/api/media", **them) == (200, {"items": []})
            _, listed = await ask(client, "GET", "/api/projects", **them)
            assert [one["id"] for one in listed["items"]] == ["first"]
            empty = (200, {"messages": [], "seq": 0})
            assert await ask(client, "GET", "/api/agent/threads/t", **them) == empty
            assert (await client.delete("/api/agent/threads/t", **them)).status == 204
        assert (await ask(client, "POST", f"/api/agent/runs/{run}/tool-results", json=answer, **owner))[
            0
        ] == 202
        assert len((await ask(client, "GET", "/api/media", **owner))[1]["items"]) == 1


async def test_no_route_tells_what_is_anothers_from_what_never_was(tmp_path: Path) -> None:
    """Every route there is, with the ids of another user and with ids of nobody."""
    async with shared(tmp_path, stream_seconds=0.02) as client:
        owner, them = who("a:b"), who("a:c", **STREAM)
        async with client.post("/api/media?name=own.mp4", data=SAMPLE.read_bytes(), **owner) as response:
            ids = {"media_id": (await response.json())["id"], "thread_id": "film-of-b"}
        thread = "/api/agent/threads/film-of-b"
        events = await told_in_pieces(client, f"{thread}/runs", "secret words", **owner)
        ids["run_id"] = events[-1][1]["runId"]
        _, project = await ask(client, "POST", "/api/projects", json={"name": "secret"}, **owner)
        ids["project_id"] = project["id"]
        before = [await ask(client, "GET", path, **owner) for path in ("/api/media", thread)]
        for endpoint in endpoints():
            names = re.findall(r"{(\w+)}", endpoint.path)
            if not names:
                continue
            told = []
            for known in (ids, {}):
                path = endpoint.path.format(**{name: known.get(name, "0") for name in names})
                async with client.request(endpoint.method, path, json={"message": "x"}, **them) as answer:
                    text = re.sub("|".join(map(re.escape, ids.values())), "0", await answer.text())
                told.append((answer.status, "" if answer.status < 400 else text))
                assert "secret" not in text
            assert told[0] == told[1], endpoint.path
        assert before == [await ask(client, "GET", path, **owner) for path in ("/api/media", thread)]


async def test_a_thread_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    async with shared(tmp_path) as client:
        said: dict[str, list[str]] = {}
        for name in ("a:b", "a:c", "a"):
            body = {"message": {"content": f"I am {name}", "id": "m1"}}
            await all_frames(client, "POST", RUNS, json=body, **who(name))
        for name in ("a:b", "a:c", "a"):
            _, view = await ask(client, "GET", "/api/agent/threads/t", **who(name))
            said[name] = [m["content"] for m in view["messages"] if m["role"] == "user"]
            async with client.get("/api/agent/threads/t/events", **who(name)) as stream:
                told = frames(stream)
                while (event := await anext(told))[0] != "user_message":
                    pass
                assert event[1]["message"]["content"] == f"I am {name}"
        assert said == {name: [f"I am {name}"] for name in said}


async def test_a_tool_opens_the_media_of_whose_run_it_is_only(tmp_path: Path) -> None:
    """What a client puts into the context proves nothing."""
    names = ("a:b", "a:c", "c")
    async with shared(tmp_path, *[("transcribe_video", {}), "done"] * len(names)) as client:
        async with client.post("/api/media?name=own.mp4", data=SAMPLE.read_bytes(), **who("a:b")) as response:
            media = (await response.json())["id"]
        context = {"mediaAssets": [{"id": media, "name": "own.mp4", "type": "video"}]}
        body = {"message": "Transcribe", "context": context}
        told = {}
        for name in names:
            events = await all_frames(client, "POST", RUNS, json=body, **who(name))
            told[name] = next(event["result"] for kind, event in events if kind == "tool_result")
        assert SPOKEN in told["a:b"]["result"]["text"]
        for name in names[1:]:
            assert "not in the media library" in told[name]["error"]
        assert (await ask(client, "GET", f"/api/media/{media}/transcript", **who("a:b")))[0] == 200
        assert (await ask(client, "GET", f"/api/media/{media}/transcript", **who("c")))[0] == 404


async def test_the_pages_tools_are_offered_in_the_projects_of_whose_run_it_is_only(tmp_path: Path) -> None:
    """What a client puts into the context proves nothing."""
    llm = ScriptedLLM(default="ok")
    options = ServerOptions(identify=by_header)
    async with served(llm=llm, settings=settings(tmp_path), options=options) as client:
        _, project = await ask(client, "POST", "/api/projects", json={"name": "Mine"}, **who("a"))
        body = {"message": "hi", "context": {"projectId": project["id"]}}
        for name in ("a", "b", "a:u"):
            await all_frames(client, "POST", RUNS, json=body, **who(name))
    offered = [{tool.name for tool in request.tools} & {"search_transcript"} for request in llm.requests]
    assert offered == [{"search_transcript"}, set(), set()]


async def test_a_model_call_says_whose_it_is(tmp_path: Path) -> None:
    """To a `prepare_step` or a router, which may give one tenant other tools or another model."""
    llm = ScriptedLLM(default="ok")
    async with served(
        llm=llm, settings=settings(tmp_path), options=ServerOptions(identify=by_header)
    ) as client:
        for name in ("a:b", "c"):
            await all_frames(client, "POST", RUNS, json={"message": "x"}, **who(name))
            await ask(client, "POST", "/api/agent/chat", json=HELLO, **who(name))
    assert [request.tenant for request in llm.requests] == ["a/b", "a/b", "c", "c"]


async def test_a_stream_does_not_outlive_for_long_who_may_read_it(tmp_path: Path) -> None:
    """It ends where it stands, and goes on from there for who still may."""
    allowed = True

    async def while_allowed(request: Request) -> Identity | None:
        return Identity("a") if allowed else None

    options = ServerOptions(identify=while_allowed, stream_seconds=0.05, heartbeat=60)
    async with served(llm=ScriptedLLM("one"), settings=settings(tmp_path), options=options) as client:
        events = await told_in_pieces(client, RUNS, "x")
        assert [kind for kind, _ in events if kind in ("run_start", "run_end")] == ["run_start", "run_end"]
        assert "".join(event["text"] for kind, event in events if kind == "text_delta") == "one"
        path, last = "/api/agent/threads/t/events", events[-1][1]["seq"]
        assert await all_frames(client, "GET", path, params={"after": last}) == []
        allowed = False
        status, answer = await ask(client, "GET", path, params={"after": last}, headers=STREAM)
        assert (status, answer["code"]) == (401, "unauthorized")


async def test_what_is_about_more_than_one_tenant_is_out_of_reach() -> None:
    async with Sessions(AgentLoop(ScriptedLLM("ok"))) as sessions:
        theirs = sessions_of(sessions, "a")
        await theirs.run("t", "hi")
        assert len(await theirs.history("t", tenant="b")) == 2, "no tenant can be named in it"
        assert await sessions.history("t") == ()
        for name in ("delete_tenant", "delete_before", "calls", "aclose", "_opened", "breakers"):
            with pytest.raises(AttributeError):
                getattr(theirs, name)


NAMES = st.none() | st.text("ab/%2F:", min_size=1, max_size=6)


@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
def test_two_that_are_not_the_same_are_never_taken_for_one(one: Any, other: Any) -> None:
    same = Identity(*one).scope == Identity(*other).scope
    assert same is (one == other)


def test_a_hook_that_names_nobody_is_wrong() -> None:
    wrongs: list[dict[str, Any]] = [{"tenant": ""}, {"user": ""}, {"tenant": 7}]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="Identity"):
            Identity(**wrong)


async def test_a_hook_that_returns_something_else_lets_nobody_in(tmp_path: Path) -> None:
    async def wrong(request: Request) -> Any:
        return {"user": "a"}

    async with served(settings=settings(tmp_path), options=ServerOptions(identify=wrong)) as client:
        status, answer = await ask(client, "GET", "/api/media")
        assert (status, answer["code"]) == (500, "internal")
