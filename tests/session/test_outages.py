"""Sessions whose database fails, and processes that die or share one."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import create_engine, text

from playhead.errors import StoreError
from playhead.events import EmitDelta, Event, RunEnd
from playhead.ids import now_ms
from playhead.session import journal
from playhead.session.sessions import Sessions
from playhead.storage.engine import Database, open_database
from playhead.storage.ledger import Entry, Recorded
from playhead.storage.sql_ledger import SQLLedger
from playhead.types import AgentRunResult, LLMRequest, LLMResult, UserMessage
from tests.session.clients import Client
from tests.session.models import CALLS, GateLLM, StrictLLM, loop_of
from tests.session.readers import all_of, text_of

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent

# Runs one turn whose model says a part and then waits for a line on stdin; tells what it does.
TALKER = """
import asyncio, sys
from playhead import AgentLoop
from playhead.events import TextDelta
from playhead.session.sessions import Sessions
from playhead.types import AssistantMessage, LLMResult

class Slow:
    provider = model = "slow"
    async def generate(self, request, emit=None):
        emit(TextDelta("Once upon "))
        await asyncio.sleep(0.1)
        print("said", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for piece in ("a ", "time", "."):
            emit(TextDelta(piece))
            await asyncio.sleep(0.01)
        return LLMResult(AssistantMessage("Once upon a time."), "stop")

async def main(url, *texts):
    async with Sessions(AgentLoop(Slow()), url, flush_seconds=0.02) as sessions:
        runs = [await sessions.start("t", text, message_id=text) for text in texts]
        print(*(run.run_id for run in runs), flush=True)
        for run in runs:
            async for event in sessions.events(run.run_id):
                pass
        print("over", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.contextmanager
def talker(url: str, *texts: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", TALKER, url, *texts],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


async def test_what_a_killed_process_left_is_ended_and_nothing_said_is_lost(url: str) -> None:
    """Q199, Q242: the message and the partial text are there; what waited was not dropped silently; the
    thread is usable. (To go on with such a run is the durable engine's work.)"""
    with talker(url, "one", "two") as process:
        first, second = line(process).split()
        assert line(process) == "said"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
    llm = StrictLLM()
    async with Sessions(loop_of(llm), url) as sessions:
        assert await sessions.open_runs("t") == []
        events = await all_of(sessions, first)
        assert text_of(events) == "Once upon "
        for run_id in (first, second):
            end = (await all_of(sessions, run_id))[-1]
            assert isinstance(end, RunEnd)
            assert (end.result.finish_reason, end.result.error_code) == ("error", "interrupted")
        assert [m.content for m in await sessions.history("t")] == ["one", "two"]
        again = await sessions.run("t", "one", message_id="one")
        assert (again.finish_reason, again.error_code) == ("error", "interrupted")
        assert llm.seen == []
        assert (await sessions.run("t", "three")).text == "done"
    assert [m.content for m in llm.seen[0]] == ["one", "two", "three"]


# Leaves a run to an event loop that is then closed; tells what is known of it in another, before and after.
LEAVER = """
import asyncio, sys
from playhead import AgentLoop, Sessions

class Stuck:
    provider = model = "stuck"
    async def generate(self, request, emit=None):
        await asyncio.Event().wait()

async def begin(url):
    sessions = Sessions(AgentLoop(Stuck()), url)
    return sessions, (await sessions.start("t", "one")).run_id

async def look(url, run_id):
    async with Sessions(AgentLoop(Stuck()), url) as sessions:
        print((await sessions.find(run_id)).state, len(await sessions.open_runs("t")), flush=True)

loop = asyncio.new_event_loop()
left, run_id = loop.run_until_complete(begin(sys.argv[1]))
asyncio.run(look(sys.argv[1], run_id))
loop.close()
asyncio.run(look(sys.argv[1], run_id))
"""


async def test_what_a_closed_event_loop_left_is_ended(url: str) -> None:
    """Q199: the process lives on, and nobody in it carries the run out any more."""
    work = [sys.executable, "-c", LEAVER, url]
    told = await asyncio.to_thread(subprocess.run, work, cwd=ROOT, stdout=subprocess.PIPE, timeout=30)
    assert told.stdout.decode().splitlines() == ["running 1", "ended 0"]


async def test_a_run_of_a_living_process_is_left_alone_and_followed(url: str) -> None:
    """Design 5, Q199: a reader on another process gets all of it, the text in pieces as they are written."""
    with talker(url, "one") as process:
        run_id = await asyncio.to_thread(line, process)
        assert await asyncio.to_thread(line, process) == "said"
        async with Sessions(loop_of(StrictLLM()), url) as sessions:
            (row,) = await sessions.open_runs("t")
            assert (row.run_id, row.state) == (run_id, "running")
            client = Client()
            stream = sessions.shown(run_id)
            while not client.texts:
                client.take(await anext(stream))
            with pytest.raises(StoreError, match="another process") as caught:
                await sessions.cancel(run_id)
            assert caught.value.code == "conflict"
            await asyncio.to_thread(go_on, process)
            async with asyncio.timeout(10):
                async for shown in stream:
                    client.take(shown)
            assert list(client.texts.values()) == ["Once upon a time."]
            assert client.over == {run_id}
            assert await asyncio.to_thread(line, process) == "over"


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_postgres_tells_a_reader_elsewhere_without_being_asked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design 5: LISTEN and NOTIFY, and not the look from time to time."""
    monkeypatch.setattr("playhead.session.opened.POLL_BESIDE_NEWS", 3_600.0)
    with talker(url, "one") as process:
        run_id = await asyncio.to_thread(line, process)
        assert await asyncio.to_thread(line, process) == "said"
        async with Sessions(loop_of(StrictLLM()), url) as sessions:
            reading = asyncio.create_task(all_of(sessions, run_id))
            await asyncio.sleep(0.5)
            await asyncio.to_thread(go_on, process)
            assert text_of(await reading) == "Once upon a time."


async def test_one_message_to_two_processes_is_one_run(url: str) -> None:
    """Q239: whichever accepts it first carries it out."""
    first, second = GateLLM(), GateLLM()
    async with Sessions(loop_of(first), url) as a, Sessions(loop_of(second), url) as b:
        started = await asyncio.gather(
            *(sessions.start("t", "pay", message_id="m") for sessions in (a, b, a, b))
        )
        assert len({run.run_id for run in started}) == 1
        first.gate.set()
        second.gate.set()
        for sessions in (a, b):
            assert text_of(await all_of(sessions, started[0].run_id)) == "done"
    assert len(first.seen) + len(second.seen) == 1


async def test_two_processes_that_write_one_thread_lose_neither_turn(url: str) -> None:
    """Q193, Q194: the sequence is the database's; no row and no event takes the place of another."""
    async with Sessions(loop_of(StrictLLM(*CALLS)), url) as a, Sessions(loop_of(StrictLLM(*CALLS)), url) as b:
        await asyncio.gather(*(s.run("t", f"m{n}") for n, s in enumerate((a, b, a, b))))
        history = await a.history("t")
        assert [str(m.content) for m in history].count("done") == 4
        assert len({m.id for m in history}) == len(history) == 20
        seqs = [row.seq for row in (await (await a._opened()).ledger.events.after("t", 0)).rows]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_what_another_process_deleted_is_not_shown_to_the_model(url: str) -> None:
    """Q193: what a process holds of a thread is no reason not to ask what the thread holds."""
    llm = StrictLLM()
    async with Sessions(loop_of(llm), url) as a, Sessions(loop_of(StrictLLM()), url) as b:
        await a.run("t", "my secret is 42")
        await b.delete("t")
        await b.run("t", "hello")
        await a.run("t", "and now?")
        await b.edit("t", (await b.history("t"))[2].id, "or now?")
    assert [m.content for m in llm.seen[-1]] == ["hello", "done", "and now?"]


async def test_what_is_too_old_is_not_shown_to_the_model(url: str) -> None:
    """Q206: forgotten by age is forgotten in memory too."""
    llm = StrictLLM()
    async with Sessions(loop_of(llm), url) as sessions:
        await sessions.run("t", "my secret is 42")
        await asyncio.sleep(0.01)
        border = now_ms()
        await sessions.run("t", "hello")
        await sessions.delete_before(border)
        await sessions.run("t", "and now?")
    assert [m.content for m in llm.seen[-1]] == ["hello", "done", "and now?"]


# ---------------------------------------------------------------- a database that fails


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (nothing tells it)
            await asyncio.sleep(0)


async def held(url: str) -> AsyncIterator[tuple[Sessions, GateLLM, str]]:
    llm = GateLLM("hello")
    async with Sessions(loop_of(llm), url) as sessions:
        run = await sessions.start("t", "go")
        await llm.waiting.wait()
        yield sessions, llm, run.run_id


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_database_that_goes_away_for_a_moment_costs_nothing(url: str) -> None:
    """Bad input: connections are cut in mid-run; what was to be written is, once."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    async for sessions, llm, run_id in held(url):
        with engine.connect() as connection:
            others = "FROM pg_stat_activity WHERE application_name = 'playhead' AND pid <> pg_backend_pid()"
            connection.execute(text(f"SELECT pg_terminate_backend(pid) {others}")).all()
        llm.gate.set()
        events = await all_of(sessions, run_id)
        assert (text_of(events), events[-1].type) == ("hello", "run_end")
        assert [m.content for m in await sessions.history("t")] == ["go", "hello"]
        assert (await sessions.run("t", "on")).finish_reason == "final"
    engine.dispose()


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_commit_that_nobody_heard_of_is_made_once(
    url: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q239: the connection breaks after a commit and before its answer, that of the run's end too."""
    async with await open_database(url) as database:
        ledger, written = SQLLedger(database), 0
        record = ledger.record

        async def unheard(entry: Entry) -> Recorded:
            nonlocal written
            recorded = await record(entry)
            written += 1
            if written == at:
                error = StoreError("The connection was lost.")
                error.passing = True
                raise error
            return recorded

        monkeypatch.setattr(ledger, "record", unheard)
        async with Sessions(loop_of(StrictLLM(*CALLS)), ledger, flush_seconds=0.01) as sessions:
            run = await sessions.start("t", "go", message_id="m")
            live = asyncio.create_task(all_of(sessions, run.run_id))
            result = await sessions.run("t", "go", message_id="m")
            assert (result.finish_reason, result.text) == ("final", "done")
            for events in (await live, await all_of(sessions, run.run_id)):
                assert isinstance(events[-1], RunEnd)
                assert (events[-1].result.finish_reason, events[-1].seq is None) == ("final", False)
                assert text_of(events) == "done"
        assert written > at


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_database_that_is_locked_for_a_moment_is_waited_for(url: str) -> None:
    """Q200: another program holds it."""
    engine = create_engine(url)
    async for sessions, llm, run_id in held(url):
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
            llm.gate.set()
            await asyncio.sleep(0.3)
            assert (await sessions.find(run_id)).state == "running"
            connection.exec_driver_sql("ROLLBACK")
        assert text_of(await all_of(sessions, run_id)) == "hello"
        assert [m.content for m in await sessions.history("t")] == ["go", "hello"]
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("begun", ["at the model", "at its end"])
async def test_closing_does_not_sit_out_a_lock(url: str, begun: str) -> None:
    """Q200: another program holds the database; closing ends within its bound, and so do the readers."""
    engine = create_engine(url)
    with engine.connect() as connection:
        async for sessions, llm, run_id in held(url):
            reading = asyncio.create_task(all_of(sessions, run_id))
            await sessions.last_seq("t")
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
            accepting = asyncio.create_task(sessions.start("u", "more"))
            opened = await sessions._opened()
            await until(opened._accepting.__len__)
            if begun == "at its end":
                port = opened.lines.runs[run_id].port
                assert port is not None
                llm.gate.set()
                await until(partial(getattr, port.journal, "_task"))
            began = monotonic()
            await sessions.aclose()
            assert monotonic() - began < 3
            with pytest.raises(StoreError, match="locked by others"):
                await accepting
            assert isinstance((await reading)[-1], RunEnd)
    engine.dispose()
    async with Sessions(loop_of(StrictLLM()), url) as again:
        assert await again.open_runs("t") == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_closing_does_not_sit_out_a_lock_of_a_database_that_others_use_too(url: str) -> None:
    """Q200: it is not closed with the sessions, and goes on waiting for its own time-out."""
    engine, llm = create_engine(url), GateLLM("hello")
    async with await open_database(url) as database:
        sessions = Sessions(loop_of(llm), database, stop_timeout=0.5)
        run = await sessions.start("t", "go")
        await llm.waiting.wait()
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
            accepting = asyncio.create_task(sessions.start("u", "more"))
            await until((await sessions._opened())._accepting.__len__)
            began = monotonic()
            await sessions.aclose()
            assert monotonic() - began < 4
        assert (await accepting).thread_id == "u"
        async with Sessions(loop_of(StrictLLM()), database) as again:
            assert (await again.find(run.run_id)).state == "ended"
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_full_disk_is_waited_for_and_then_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q206: the run ends once with what is wrong, for those who listen; with room again all goes on."""
    monkeypatch.setattr(journal, "PATIENCE", 0.3)
    async with await open_database(url) as database:
        llm = GateLLM("x" * 200_000)
        async with Sessions(loop_of(llm), database) as sessions:
            run = await sessions.start("t", "go")
            await llm.waiting.wait()
            await limit(database, 0)
            llm.gate.set()
            events = await all_of(sessions, run.run_id)
            end = events[-1]
            assert isinstance(end, RunEnd)
            assert (end.result.finish_reason, end.result.error_code) == ("error", "store")
            assert "no room left" in str(end.result.error_message)
            with pytest.raises(StoreError, match="no room left"):
                await sessions.start("t", "y" * 200_000)
            await limit(database, 1_000_000)
            # Nobody carries the run out any more, and now that can be written down.
            assert await sessions.open_runs("t") == []
            assert (await sessions.find(run.run_id)).state == "ended"
            assert (await sessions.run("t", "again")).finish_reason == "final"
            assert [m.content for m in await sessions.history("t") if isinstance(m, UserMessage)] == [
                "go",
                "again",
            ]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_file_that_is_deleted_in_mid_run_is_told(url: str) -> None:
    """Q206: the run ends once with what is wrong, and says nothing that is kept nowhere."""
    async for sessions, llm, run_id in held(url):
        reading = sessions.events(run_id)
        assert (await anext(reading)).type == "run_start"
        file_of(url).unlink()
        llm.gate.set()
        gone, end = "was deleted while it was open", None
        try:
            async with asyncio.timeout(30):
                end = [event async for event in reading][-1]
        except StoreError as error:  # something was written that the reader has to read there
            told = str(error)
        if end is not None:
            assert isinstance(end, RunEnd)
            assert (end.result.finish_reason, end.result.error_code) == ("error", "store")
            told = str(end.result.error_message)
        assert gone in told
        with pytest.raises(StoreError, match="was deleted while it was open"):
            await sessions.run("t", "more")
        assert not file_of(url).exists()


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


class SilentLLM(GateLLM):
    """Says nothing before its gate is open."""

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.waiting.set()
        await self.gate.wait()
        return await super().generate(request, emit)


@pytest.mark.parametrize("model", [GateLLM, SilentLLM])
async def test_an_end_that_is_told_in_an_outage_is_written_after_it_and_told_once(
    url: str, model: type[GateLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q200: the database is away for longer than it is waited for, at a run's end. Whoever reads on has one
    end; whoever comes later has the same one, and all that was said before it."""
    monkeypatch.setattr(journal, "PATIENCE", 0.3)
    # The start of the step is not written when the text comes: both wait for the database.
    monkeypatch.setattr(journal, "_COMPANY", 60 if model is SilentLLM else 0)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    async with await open_database(url, busy_timeout=0.05) as database:
        llm = model("hello")
        async with Sessions(loop_of(llm), database) as sessions:
            run = await sessions.start("t", "go")
            await llm.waiting.wait()
            reading = sessions.thread_events("t")
            seen = [await anext(reading)]
            with engine.connect() as connection:
                lock = (
                    "BEGIN EXCLUSIVE"
                    if database.dialect == "sqlite"
                    else "SELECT 1 FROM agent_threads FOR UPDATE"
                )
                connection.exec_driver_sql(lock)
                llm.gate.set()
                while not isinstance(seen[-1], RunEnd):
                    seen.append(await anext(reading))
                assert (seen[-1].seq, seen[-1].result.error_code) == (None, "store")
            assert await sessions.open_runs("t") == []
            again = await sessions.start("t", "again")
            while seen[-1].run_id != again.run_id or not isinstance(seen[-1], RunEnd):
                seen.append(await anext(reading))
            await reading.aclose()
            late = await all_of(sessions, run.run_id)
            assert isinstance(late[-1], RunEnd)
            assert (late[-1].seq is not None, late[-1].result) == (True, replace(seen_end(seen), messages=()))
            assert [text_of(late), text_of([e for e in seen if e.run_id == run.run_id])] == ["hello"] * 2
            assert [m.content for m in await sessions.history("t")] == ["go", "hello", "again", "hello"]
    engine.dispose()


def seen_end(seen: Sequence[Event]) -> AgentRunResult:
    """The result of the first run, whose end was told once, and nothing of it after that."""
    places = [n for n, event in enumerate(seen) if event.run_id == seen[0].run_id]
    ends = [event for event in seen if isinstance(event, RunEnd) and event.run_id == seen[0].run_id]
    assert len(ends) == 1
    assert seen[places[-1]] is ends[0]
    return ends[0].result


async def limit(database: Database, more: int) -> None:
    def work(connection: Any) -> None:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + more}").close()

    await database.write(work)


async def test_a_database_that_cannot_be_opened_is_told_and_tried_again(tmp_path: Path) -> None:
    """Bad input: an older or newer schema, no folder, no database: the same error until it is mended."""
    path = tmp_path / "db"
    path.write_bytes(b"this is no database, but it is long enough to be taken for one" * 50)
    sessions = Sessions(loop_of(StrictLLM()), f"sqlite:///{path}")
    for work in (sessions.check, lambda: sessions.run("t", "hi"), lambda: sessions.history("t")):
        with pytest.raises(StoreError, match="damaged, or no database"):
            await work()
    path.unlink()
    assert (await sessions.run("t", "hi")).finish_reason == "final"
    await sessions.aclose()
    with pytest.raises(StoreError):
        await sessions.start("t", "more")
