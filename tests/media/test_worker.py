"""The worker process: it queues, stops when it is told to, and neither outlives nor takes down anyone."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from playhead.errors import MediaError
from playhead.ids import new_id
from playhead.media import worker
from playhead.media.messages import Job
from playhead.media.types import EngineSpec
from playhead.media.worker import Transcriber
from tests.media import build
from tests.support.until import until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shared() -> Iterator[Transcriber]:
    """One for the tests that leave it as it was: a process takes half a second to start."""
    transcriber = Transcriber()
    yield transcriber
    asyncio.run(transcriber.aclose())


@pytest.fixture
async def transcriber() -> AsyncIterator[Transcriber]:
    transcriber = Transcriber(grace=0.3)
    yield transcriber
    await transcriber.aclose()


def job(*texts: str, path: Path = build.JFK, seconds: float = 0.0) -> Job:
    options = {"texts": list(texts), "seconds": seconds}
    return Job(new_id(), os.fsencode(path), EngineSpec("fake", options))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def test_one_process_serves_many_jobs(transcriber: Transcriber) -> None:
    """R32: it is spawned at first use and keeps its engine; jobs are done in the order asked."""
    assert transcriber.pid is None
    done: list[str] = []

    async def one(text: str) -> int | None:
        done.append((await transcriber.transcribe(job(text))).text)
        return transcriber.pid

    pids = await asyncio.gather(*(one(text) for text in ("a", "b", "c", "d")))
    assert done == ["a", "b", "c", "d"]
    assert len(set(pids)) == 1
    assert pids[0] not in (None, os.getpid())


async def test_the_worker_lets_others_go_first(shared: Transcriber) -> None:
    """R32: the server answers others while it works: the worker is niced, in a session of its own."""
    await shared.transcribe(job("a"))
    pid = shared.pid
    assert pid is not None
    assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
    assert os.getsid(pid) != os.getsid(0)


async def test_progress_and_windows_arrive_while_it_works(shared: Transcriber) -> None:
    """R32: progress is told in the caller's event loop."""
    told: list[tuple[float | None, str]] = []
    windows: list[float] = []
    loop = asyncio.get_running_loop()

    def listen(fraction: float | None, text: str) -> None:
        assert asyncio.get_running_loop() is loop
        told.append((fraction, text))

    await shared.transcribe(
        job("a"), on_progress=listen, on_window=lambda until, segments: windows.append(until)
    )
    assert told
    assert windows == pytest.approx([10.7], abs=0.2)


async def test_a_listener_that_raises_does_not_end_the_work(shared: Transcriber) -> None:
    """R32: a fault of the page is no fault of the transcript."""

    def broken(*args: object) -> None:
        raise RuntimeError("broken listener")

    transcript = await shared.transcribe(job("a"), on_progress=broken, on_window=broken)
    assert transcript.text == "a"


@pytest.mark.parametrize("code", ["no_audio", "not_found", "unreadable"])
async def test_an_error_of_the_file_arrives_with_its_code(
    shared: Transcriber, tmp_path: Path, code: str
) -> None:
    """R32: distinct errors, through the process border, without a path."""
    (tmp_path / "text.mp4").write_text("a letter\n" * 500)
    path = {"no_audio": build.NO_AUDIO, "not_found": tmp_path / "x.mp4", "unreadable": tmp_path / "text.mp4"}
    with pytest.raises(MediaError) as caught:
        await shared.transcribe(job("a", path=path[code]))
    assert caught.value.code == code
    assert str(tmp_path) not in str(caught.value)
    assert (await shared.transcribe(job("b"))).text == "b"


async def test_a_name_that_is_no_text_is_no_trouble(shared: Transcriber, tmp_path: Path) -> None:
    """R32: file systems hold names that are not UTF-8."""
    path = tmp_path / os.fsdecode(b"caf\xe9 \xff.mp4")
    path.write_bytes(build.JFK.read_bytes())
    assert (await shared.transcribe(job("a", path=path))).text == "a"


async def test_what_an_engine_raises_is_logged_without_paths(capfd: pytest.CaptureFixture[str]) -> None:
    """Issue 2, bad input: where it came from is said, though not where that lies on this machine."""
    transcriber = Transcriber()
    try:
        with pytest.raises(MediaError):
            await transcriber.transcribe(
                Job(new_id(), os.fsencode(build.JFK), EngineSpec("fake", {"texts": [7]}))
            )
    finally:
        await transcriber.aclose()
    said = capfd.readouterr().err
    assert "AttributeError" in said
    assert 'File "worker_main.py"' in said


async def test_an_engine_that_raises_is_an_engine_failure(shared: Transcriber) -> None:
    """R32: the engine's own fault ends the job, not the worker."""
    broken = Job(new_id(), os.fsencode(build.JFK), EngineSpec("fake", {"texts": [7]}))
    with pytest.raises(MediaError, match="AttributeError") as caught:
        await shared.transcribe(broken)
    assert caught.value.code == "engine_failed"
    pid = shared.pid
    assert (await shared.transcribe(job("b"))).text == "b"
    assert shared.pid == pid


@pytest.mark.parametrize("busy", [0.1, 30.0], ids=["it stops by itself", "it has to be killed"])
async def test_cancelling_the_await_stops_the_work(
    transcriber: Transcriber, tmp_path: Path, busy: float
) -> None:
    """R32: cancellable, within a second, also in the middle of a window; the next job is served."""
    piece = np.concatenate([build.speech(), build.silence(3.0)])
    path = build.wav(tmp_path / "long.wav", np.concatenate([piece] * 3))
    mark = tmp_path / "mark"
    engine = EngineSpec("tests.media.engines:MarkedEngine", {"mark": str(mark), "busy": busy})
    task = asyncio.create_task(transcriber.transcribe(Job(new_id(), os.fsencode(path), engine)))
    await until(mark.exists)
    pid = transcriber.pid
    assert pid is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if busy > 1:
        await until(lambda: not alive(pid), within=1.0)
    mark.unlink()
    assert (await transcriber.transcribe(job("next"))).text == "next"
    assert (transcriber.pid == pid) == (busy < 1)
    assert not mark.exists()


async def test_a_waiting_job_can_be_cancelled(shared: Transcriber) -> None:
    """R32: it is taken out of the queue; those around it are not touched."""
    first = asyncio.create_task(shared.transcribe(job("first", seconds=0.5)))
    second = asyncio.create_task(shared.transcribe(job("second", seconds=30.0)))
    third = asyncio.create_task(shared.transcribe(job("third")))
    second.cancel()
    assert [(await first).text, (await third).text] == ["first", "third"]
    assert second.cancelled()


async def test_a_crash_fails_its_job_and_no_other(transcriber: Transcriber) -> None:
    """R32: a crash of the child is engine_failed; who waits is served by a new one."""
    begun = asyncio.Event()
    task = asyncio.create_task(
        transcriber.transcribe(job("a", seconds=30.0), on_progress=lambda *args: begun.set())
    )
    waiting = asyncio.create_task(transcriber.transcribe(job("b")))
    await begun.wait()
    pid = transcriber.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(MediaError, match="ended unexpectedly") as caught:
        await task
    assert caught.value.code == "engine_failed"
    assert (await waiting).text == "b"
    assert transcriber.pid not in (None, pid)


async def test_a_worker_that_died_in_its_sleep_is_replaced(transcriber: Transcriber) -> None:
    """R32: nobody is told of a crash between two jobs."""
    await transcriber.transcribe(job("a"))
    pid = transcriber.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not alive(pid))
    assert (await transcriber.transcribe(job("b"))).text == "b"


async def test_a_worker_that_cannot_start_is_told_and_not_tried_for_ever(
    transcriber: Transcriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: a broken installation is an engine failure."""
    monkeypatch.setattr(worker, "_BOOT", "raise SystemExit(3)")
    with pytest.raises(MediaError, match="could not be started") as caught:
        await transcriber.transcribe(job("a"))
    assert caught.value.code == "engine_failed"


async def test_an_idle_worker_is_stopped_and_comes_back() -> None:
    """R32: a model that nobody uses takes no memory."""
    transcriber = Transcriber(idle=0.05)
    await transcriber.transcribe(job("a"))
    pid = transcriber.pid
    assert pid is not None
    await until(lambda: not alive(pid))
    assert (await transcriber.transcribe(job("b"))).text == "b"
    await transcriber.aclose()


async def test_closing_ends_everything() -> None:
    """R32: what runs and what waits is told so; the process is gone."""
    transcriber = Transcriber()
    tasks = [asyncio.create_task(transcriber.transcribe(job("a", seconds=30.0))) for _ in range(3)]
    await until(lambda: transcriber.pid)
    pid = transcriber.pid
    assert pid is not None
    await transcriber.aclose()
    for task in tasks:
        with pytest.raises(MediaError) as caught:
            await task
        assert caught.value.code == "cancelled"
    await until(lambda: not alive(pid))
    with pytest.raises(MediaError, match="closed"):
        await transcriber.transcribe(job("b"))
    await transcriber.aclose()


def test_it_serves_several_event_loops_one_after_the_other() -> None:
    """R32: a script that calls asyncio.run twice."""
    transcriber = Transcriber()

    async def once() -> str:
        return (await transcriber.transcribe(job("a"))).text

    assert [asyncio.run(once()), asyncio.run(once())] == ["a", "a"]
    asyncio.run(transcriber.aclose())


PARENT = """
import asyncio, os, sys
sys.path[:] = {path!r}
from playhead.media.messages import Job
from playhead.media.types import EngineSpec
from playhead.media.worker import Transcriber

async def main():
    transcriber = Transcriber()
    spec = EngineSpec("tests.media.engines:MarkedEngine", {{"mark": {mark!r}, "busy": 60.0}})
    task = asyncio.create_task(transcriber.transcribe(Job("1", os.fsencode({file!r}), spec)))
    while not os.path.exists({mark!r}):
        await asyncio.sleep(0.01)
    print(transcriber.pid, flush=True)
    if {leave!r}:
        task.cancel()
        return
    await task

asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["killed", "returns"])
async def test_the_worker_ends_with_its_parent(end: str, tmp_path: Path) -> None:
    """R32: also when the parent is killed with -9 in the middle of a window."""
    mark = str(tmp_path / "mark")
    script = PARENT.format(path=sys.path, file=str(build.JFK), mark=mark, leave=end == "returns")
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    assert parent.stdout
    pid = int(await parent.stdout.readline())
    if end == "killed":
        parent.kill()
    async with asyncio.timeout(10):
        assert await parent.wait() == (-signal.SIGKILL if end == "killed" else 0)
    await until(lambda: not alive(pid))
