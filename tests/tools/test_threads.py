"""Blocking tools leave the event loop free, and cannot hold up anything when they hang."""

import asyncio
import contextvars
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from playhead.tools import ToolRegistry, tool
from playhead.types import ToolCall, ToolContext

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")


@pytest.mark.anyio
async def test_a_blocking_tool_runs_beside_the_event_loop() -> None:
    """S6: it waits for something that only the loop can do."""
    released = threading.Event()

    @tool
    def wait() -> str:
        assert released.wait(10)
        return threading.current_thread().name

    running = asyncio.ensure_future(ToolRegistry([wait]).execute(ToolCall("c1", "wait", {}), timeout=10))
    asyncio.get_running_loop().call_soon(released.set)
    assert (await running).text == "playhead-tool"


@pytest.mark.anyio
async def test_a_generator_is_read_beside_the_event_loop() -> None:
    """S6, S8: it is slow as the tool is; what it says, and where it breaks off, is the result."""
    released = threading.Event()

    def lines() -> Iterator[str]:
        yield threading.current_thread().name
        assert released.wait(10)
        yield variable.get()
        raise ValueError("bad")

    @tool
    def read() -> Iterator[str]:
        return lines()

    variable.set("here")
    running = asyncio.ensure_future(ToolRegistry([read]).execute(ToolCall("c1", "read", {}), timeout=10))
    asyncio.get_running_loop().call_soon(released.set)
    assert (await running).result == ["playhead-tool", "here", "(reading stopped here: bad)"]


@pytest.mark.anyio
async def test_a_generator_without_an_end_is_stopped_when_its_time_is_up() -> None:
    """S8: the run goes on, and so does the thread, to its end."""
    ended = threading.Event()

    def drops() -> Iterator[str]:
        try:
            while True:
                threading.Event().wait(0.001)
                yield ""
        finally:
            ended.set()

    @tool
    def drip() -> Iterator[str]:
        return drops()

    result = await ToolRegistry([drip]).execute(ToolCall("c1", "drip", {}), timeout=0.05)
    assert result.error == "`drip` was stopped: it did not finish within 0.05 seconds."
    assert await asyncio.get_running_loop().run_in_executor(None, ended.wait, 10)


@pytest.mark.anyio
async def test_it_sees_the_context_variables_of_its_caller() -> None:
    """S5: request-scoped state of the application is there."""
    variable.set("here")

    @tool
    def read() -> str:
        return variable.get()

    assert (await ToolRegistry([read]).execute(ToolCall("c1", "read", {}))).text == "here"


@pytest.mark.anyio
async def test_a_time_out_turns_cancelled_true_and_drops_what_comes_late() -> None:
    """S8: the thread learns of it; its progress and its result are nobody's."""
    told: list[Any] = []
    finished = threading.Event()

    @tool
    def work(context: ToolContext) -> str:
        context.progress(0.1, "begun")
        while not context.cancelled:
            threading.Event().wait(0.001)
        context.progress(0.9, "late")
        finished.set()
        return "late"

    context = ToolContext(progress=lambda *args: told.append(args))
    result = await ToolRegistry([work]).execute(ToolCall("c1", "work", {}), context, timeout=0.05)
    assert result.error == "`work` was stopped: it did not finish within 0.05 seconds."
    assert await asyncio.get_running_loop().run_in_executor(None, finished.wait, 10)
    assert told == [(0.1, "begun")]


@pytest.mark.anyio
async def test_a_stop_of_the_run_is_seen_too() -> None:
    """Q170: the loop's own word on cancellation passes through."""

    @tool
    def look(context: ToolContext) -> bool:
        return context.cancelled

    result = await ToolRegistry([look]).execute(
        ToolCall("c1", "look", {}), ToolContext(is_cancelled=lambda: True)
    )
    assert result.result is True


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "bad"),
        (StopIteration(), "The tool ended with StopIteration."),
        (SystemExit(2), "The tool ended with SystemExit: 2."),
        (KeyboardInterrupt(), "The tool ended with KeyboardInterrupt."),
        (asyncio.CancelledError(), "`fail` was cancelled from within; it has no result."),
    ],
)
async def test_whatever_it_raises_is_a_result(error: BaseException, text: str) -> None:
    """S8: also what a future cannot carry, and what would end the process."""

    @tool
    def fail() -> None:
        raise error

    result = await ToolRegistry([fail]).execute(ToolCall("c1", "fail", {}), timeout=10)
    assert result.error == text


@pytest.mark.anyio
async def test_threads_are_used_again_and_keep_nothing_alive() -> None:
    """Issue 2, numbers: memory stays flat."""

    class Big:
        pass

    kept: list[weakref.ref[Big]] = []

    @tool
    def make() -> int:
        big = Big()
        kept.append(weakref.ref(big))
        return threading.get_ident()

    registry = ToolRegistry([make])
    threads = {(await registry.execute(ToolCall("c1", "make", {}))).result for _ in range(50)}
    assert len(threads) < 10
    assert kept[-1]() is None


HANGS = """
import asyncio, threading
from playhead.tools import ToolRegistry, tool
from playhead.types import ToolCall

@tool
def hang() -> None:
    threading.Event().wait()

print(asyncio.run(ToolRegistry([hang]).execute(ToolCall("c1", "hang", {}), timeout=0.05)).text)
"""


def test_a_tool_that_hangs_does_not_keep_the_process() -> None:
    """Design 6: the process ends although a tool never returns."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "`hang` was stopped: it did not finish within 0.05 seconds."
    assert done.stderr == ""
