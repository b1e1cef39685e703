"""Results too long for a model: shown shortened, kept whole, read on by page."""

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from playhead import AgentLoop, Sessions, tool
from playhead.errors import ConfigError, StoreError
from playhead.events import ToolResultEvent
from playhead.storage.memory_ledger import MemoryLedger
from playhead.storage.results import MemoryResultStore
from playhead.testing import ScriptedLLM
from playhead.tools.aside import KEPT_LIMIT
from playhead.tools.registry import ToolRegistry
from playhead.types import ToolMessage
from tests.session.readers import all_of, terminals

pytestmark = pytest.mark.anyio

LONG = "".join(f"line {n:06}\n" for n in range(30_000))  # 360,000 characters


@tool
async def fetch(size: int = len(LONG)) -> str:
    """Fetch a text."""
    return LONG[:size]


@tool
async def rows(count: int) -> list[dict[str, int]]:
    """Fetch rows."""
    return [{"n": n} for n in range(count)]


def loop_of(*script: Any) -> tuple[AgentLoop, ScriptedLLM]:
    llm = ScriptedLLM(*script, default="done")
    return AgentLoop(llm, tools=[fetch, rows]), llm


def told(llm: ScriptedLLM, n: int = -1) -> str:
    """The result that a request ends with."""
    message = llm.requests[n].messages[-1]
    assert isinstance(message, ToolMessage)
    return message.content


def id_in(text: str) -> str:
    found = re.search(r'read_result\(id="(\w+)", offset=(\d+)\)', text)
    assert found, text
    return found[1]


def reading(llm_request: Any) -> Any:
    """Read on where the last result was left."""
    content = llm_request.messages[-1].content
    return ("read_result", {"id": id_in(content), "offset": 3_334})


async def test_a_long_result_is_shown_by_its_beginning_and_its_end(store_url: str | None) -> None:
    """Rule 10, 11: event, store and model have the same text, which says what is missing and where it is."""
    loop, llm = loop_of(("fetch", {}), "read")
    async with Sessions(loop, store_url, keep_aside_above=20_000) as sessions:
        run = await sessions.start("t", "go")
        events = await all_of(sessions, run.run_id)
        history = await sessions.history("t")
    shown = told(llm)
    assert len(shown) < 5_200
    assert shown.startswith(LONG[:3_000])
    assert shown.endswith(LONG[-1_600:])
    assert "[... 355000 characters were left out here. All 360000 are kept: read on" in shown
    (event,) = [event for event in events if isinstance(event, ToolResultEvent)]
    assert event.result.text == event.result.result == shown
    assert [m.content for m in history if isinstance(m, ToolMessage)] == [shown]


async def test_what_was_left_out_is_read_by_page_in_any_later_run(url: str) -> None:
    """Q206: whole, once; over several runs and after a restart; beyond the limit of other results too."""
    loop, llm = loop_of(("fetch", {}), "read")
    async with Sessions(loop, url, keep_aside_above=20_000) as sessions:
        await sessions.run("t", "go")
    id = id_in(told(llm))
    pages, offset = [], 0
    while offset < len(LONG):
        loop, llm = loop_of(("read_result", {"id": id, "offset": offset, "limit": 90_000}))
        async with Sessions(loop, url, keep_aside_above=20_000) as sessions:
            await sessions.run("t", "and then?")
        head, _, page = told(llm).partition("\n\n")
        pages.append(page)
        offset += len(page)
        last = offset == len(LONG)
        rest = "This is its end." if last else f"Go on with offset={offset}."
        assert head == f"[Characters {offset - len(page)} to {offset} of 360000 of the result {id}. {rest}]"
    assert "".join(pages) == LONG
    assert len(pages[0]) == 19_700


async def test_a_model_reads_on_in_the_same_run() -> None:
    """The id stands where the result was shortened."""
    loop, llm = loop_of(("fetch", {}), reading, "done")
    async with Sessions(loop, keep_aside_above=20_000) as sessions:
        result = await sessions.run("t", "go")
    assert result.text == "done"
    assert told(llm).split("\n\n")[1].startswith(LONG[3_334:3_400])


@pytest.mark.parametrize(
    ("size", "kept"), [(1_000, False), (1_001, True), (200_001, True)], ids=["just fits", "one more", "huge"]
)
async def test_only_what_is_too_long_is_kept(size: int, kept: bool) -> None:
    """Rule 11: what is shown whole is not touched."""
    loop, llm = loop_of(("fetch", {"size": size}))
    async with Sessions(loop, keep_aside_above=1_000) as sessions:
        await sessions.run("t", "go")
    assert (told(llm) == LONG[:size]) is not kept
    assert len(told(llm)) <= 1_000


async def test_json_is_kept_as_the_model_would_have_read_it() -> None:
    """Rule 10: the one encoder decides what the text is."""
    loop, llm = loop_of(("rows", {"count": 1_000}))
    ledger = MemoryLedger()
    async with Sessions(loop, ledger, keep_aside_above=1_000) as sessions:
        result = await sessions.run("t", "go")
    page = await ledger.results.page("t", id_in(told(llm)), 0, 10**9)
    assert page is not None
    assert msgspec.json.decode(page.text) == [{"n": n} for n in range(1_000)]
    assert result.steps[0].tool_results[0].content == told(llm)


async def test_another_thread_and_another_tenant_read_nothing() -> None:
    """S19: an id is good in its own thread only; the error says what to do."""
    loop, llm = loop_of(("fetch", {}))
    async with Sessions(loop, keep_aside_above=20_000) as sessions:
        await sessions.run("t", "go", tenant="acme")
        id = id_in(told(llm))
        for thread, tenant in (("u", "acme"), ("t", None), ("t", "other")):
            llm.add(("read_result", {"id": id}))
            await sessions.run(thread, "read it", tenant=tenant)
            assert told(llm) == (
                f"No result '{id}' is kept in this conversation. Use an id as it stands in a result"
                " that was shortened."
            )


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ({"offset": 400_000}, "has 360000 characters; offset 400000 is past its end"),
        ({"offset": -1}, "offset"),
        ({"limit": 0}, "limit"),
        ({"offset": 360_000}, "past its end"),
    ],
    ids=str,
)
async def test_reading_where_nothing_is_says_so(args: dict[str, int], error: str) -> None:
    """The model reads what was wrong with its call."""
    loop, llm = loop_of(
        ("fetch", {}),
        lambda request: ("read_result", {"id": id_in(request.messages[-1].content), **args}),
    )
    async with Sessions(loop, keep_aside_above=20_000) as sessions:
        await sessions.run("t", "go")
    assert error in told(llm)


async def test_runs_at_the_same_time_keep_their_own() -> None:
    """S19: the tools are shared, the threads are not; also for calls side by side."""
    ledger = MemoryLedger()
    script = lambda request: (  # noqa: E731
        "done"
        if isinstance(request.messages[-1], ToolMessage)
        else [("fetch", {"size": 30_000}), ("fetch", {"size": 40_000})]
    )
    llm = ScriptedLLM(default=script)
    async with Sessions(AgentLoop(llm, tools=[fetch]), ledger, keep_aside_above=20_000) as sessions:
        await asyncio.gather(*(sessions.run(f"t{n}", "go") for n in range(5)))
        for n in range(5):
            results = [m for m in await sessions.history(f"t{n}") if isinstance(m, ToolMessage)]
            pages = [await ledger.results.page(f"t{n}", id_in(m.content), 0, 1) for m in results]
            assert [page.total for page in pages if page] == [30_000, 40_000]


async def test_a_fork_reads_what_its_messages_name() -> None:
    """Q206: also when the first thread is deleted."""
    loop, llm = loop_of(("fetch", {}))
    async with Sessions(loop, keep_aside_above=20_000) as sessions:
        await sessions.run("t", "go")
        id = id_in(told(llm))
        copy = await sessions.fork("t")
        await sessions.delete("t")
        for thread, there in ((copy, True), ("t", False)):
            llm.add(("read_result", {"id": id}))
            await sessions.run(thread, "read it")
            assert told(llm).startswith("[Characters 0 to 19700") is there


async def test_the_result_of_a_client_is_kept_too(store_url: str | None) -> None:
    """Rule 10: whoever executed the call."""

    @tool(client=True)
    async def page_text() -> str:
        """Read the page that is open."""
        raise AssertionError("the front end executes it")

    llm = ScriptedLLM(("page_text", {}), reading, default="done")
    async with Sessions(AgentLoop(llm, tools=[page_text]), store_url, keep_aside_above=20_000) as sessions:
        run = await sessions.start("t", "go")
        assert terminals(await all_of(sessions, run.run_id)) == ["run_paused"]
        (call,) = await sessions.waiting(run.run_id)
        answered = await sessions.answer(run.run_id, call.call.id, result=LONG)
        assert terminals(await all_of(sessions, answered.run_id)) == ["run_end"]
    assert len(told(llm, 1)) < 5_200
    assert told(llm).split("\n\n")[1].startswith(LONG[3_334:3_400])


async def test_a_store_that_fails_costs_the_middle_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule 11: what could not be kept is said to be left out, and nothing else is promised."""

    async def fail(*args: Any, **named: Any) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(MemoryResultStore, "put", fail)
    loop, llm = loop_of(("fetch", {}))
    with caplog.at_level(logging.WARNING, "playhead"):
        async with Sessions(loop, keep_aside_above=20_000) as sessions:
            assert (await sessions.run("t", "go")).finish_reason == "final"
    assert "read_result" not in told(llm)
    assert "the middle was left out: the whole is 360,000 characters long" in told(llm)
    assert "was not kept" in caplog.text


async def test_what_is_more_than_can_be_kept_says_so() -> None:
    """Rule 11: there is a bound, and the text that is kept tells of it."""

    @tool
    async def flood() -> str:
        """Return too much."""
        return "x" * (KEPT_LIMIT + 5)

    ledger, llm = MemoryLedger(), ScriptedLLM(("flood", {}), default="done")
    async with Sessions(AgentLoop(llm, tools=[flood]), ledger, keep_aside_above=20_000) as sessions:
        await sessions.run("t", "go")
    page = await ledger.results.page("t", id_in(told(llm)), 0, 10**9)
    assert page is not None
    assert page.total == KEPT_LIMIT
    assert "the whole is 10,000,005 characters long" in page.text


async def test_the_tools_are_those_of_the_loop_and_one_more() -> None:
    """What a model is offered is the same in every step; what is registered later is there too."""
    registry = ToolRegistry([fetch])
    llm = ScriptedLLM(default="done")
    async with Sessions(AgentLoop(llm, tools=registry), keep_aside_above=20_000) as sessions:
        await sessions.run("t", "go")
        await sessions.run("t", "go")
        registry.register(rows)
        await sessions.run("t", "go")
    offered = [request.tools for request in llm.requests]
    assert [[schema.name for schema in tools] for tools in offered] == [
        ["fetch", "read_result"],
        ["fetch", "read_result"],
        ["fetch", "rows", "read_result"],
    ]
    assert offered[0] is offered[1]
    assert not registry.has("read_result")
    llm = ScriptedLLM(default="done")
    async with Sessions(AgentLoop(llm, tools=registry)) as sessions:
        await sessions.run("t", "go")
    assert [schema.name for schema in llm.requests[0].tools] == ["fetch", "rows"]


def test_what_cannot_be_kept_aside_is_refused(tmp_path: Path) -> None:
    """Misuse says what is wrong, before anything is opened."""

    @tool
    async def read_result() -> str:
        """Another."""
        return ""

    with pytest.raises(ConfigError, match="999"):
        Sessions(loop_of()[0], keep_aside_above=999)
    with pytest.raises(ConfigError, match="read_result"):
        Sessions(AgentLoop(ScriptedLLM(), tools=[read_result]), keep_aside_above=1_000)
