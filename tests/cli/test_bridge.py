"""The way from a blocking command to async code and back, signals included."""

import asyncio
import os
import signal
import threading

import pytest

from playhead import ConfigError
from playhead.cli.bridge import Bridge


async def forever() -> None:
    await asyncio.Event().wait()


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_it_gives_back_what_the_work_gave() -> None:
    async def seven() -> int:
        return 7

    async def fails() -> None:
        raise ConfigError("no")

    with Bridge() as bridge:
        assert bridge.run(seven()) == 7
        with pytest.raises(ConfigError, match="no"):
            bridge.run(fails())
        assert bridge.run(seven()) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_work_however_close_it_comes_to_the_wait(number: signal.Signals) -> None:
    """A signal between the last look and the wait would be lost with a plain lock."""
    ended = 0

    async def interrupted() -> None:
        nonlocal ended
        try:
            send(number)
            await forever()
        finally:
            await asyncio.sleep(0)
            ended += 1

    with Bridge() as bridge:
        for count in range(1, 101):
            with pytest.raises(KeyboardInterrupt):
                bridge.run(interrupted())
            assert ended == count, "it was not waited for"


def test_the_first_interrupt_asks_and_the_second_cancels() -> None:
    asked = threading.Event()

    async def stops_when_asked() -> str:
        stop = asyncio.Event()
        stops.append(stop)
        send(signal.SIGINT)
        await stop.wait()
        return "stopped"

    async def does_not_listen() -> None:
        send(signal.SIGINT)
        await asyncio.to_thread(asked.wait)
        send(signal.SIGINT)
        await forever()

    stops: list[asyncio.Event] = []
    with Bridge() as bridge:
        assert bridge.run(stops_when_asked(), on_interrupt=lambda: stops[0].set()) == "stopped"
        with pytest.raises(KeyboardInterrupt):
            bridge.run(does_not_listen(), on_interrupt=asked.set)


def test_what_still_runs_ends_with_the_block_and_the_signals_are_as_before() -> None:
    ended = threading.Event()

    async def leave_one_behind() -> None:
        async def left() -> None:
            try:
                await forever()
            finally:
                ended.set()

        tasks.append(asyncio.create_task(left()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    before = signal.getsignal(signal.SIGTERM)
    with Bridge() as bridge:
        bridge.run(leave_one_behind())
        assert not ended.is_set()
    assert ended.is_set()
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(-1) == -1
