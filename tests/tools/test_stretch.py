"""A coroutine run up to its first wait, and on from there, is the same coroutine."""

import asyncio
import contextvars
from typing import Any

import pytest

from playhead.stretch import FirstStretch

pytestmark = pytest.mark.anyio


async def test_what_never_waits_is_done_at_once() -> None:
    async def work() -> int:
        return 7

    stretch = FirstStretch(work())
    assert (stretch.done, stretch.value) == (True, 7)


async def test_what_waits_goes_on_in_the_same_task_and_context() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    tasks: list[Any] = []

    async def work() -> str:
        tasks.append(asyncio.current_task())
        variable.set(1)
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        tasks.append(asyncio.current_task())
        return f"done {variable.get()}"

    stretch = FirstStretch(work())
    assert not stretch.done
    await stretch
    assert stretch.value == "done 1"
    assert tasks == [asyncio.current_task()] * 2


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_errors_come_out_wherever_they_arise(turns: int) -> None:
    async def work() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise ValueError("no")

    async def both() -> None:
        stretch = FirstStretch(work())
        await stretch

    with pytest.raises(ValueError, match="no"):
        await both()


async def test_a_cancellation_reaches_what_waits_and_may_be_survived() -> None:
    seen: list[str] = []

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
        await asyncio.sleep(0)
        return "survived"

    async def run() -> str:
        stretch = FirstStretch(stubborn())
        await stretch
        return str(stretch.value)

    task = asyncio.ensure_future(run())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "survived"
    assert seen == ["cancelled"]


async def test_a_time_limit_set_later_still_holds() -> None:
    closed: list[str] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append("closed")

    stretch = FirstStretch(hangs())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await stretch
    assert closed == ["closed"]
