"""The processes of the crash test: started, killed, started again."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from playhead.session.durable.options import Lock

ROOT = Path(__file__).parent.parent.parent
# A worker that does not come up within this is a fault, in seconds.
_START = 60.0
_END = 15.0


class Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.pid = process.pid
        self.url = ""
        self.killed = self.asked = False
        self._said = asyncio.Event()
        self._life = asyncio.create_task(self._live())

    @property
    def lives(self) -> bool:
        return not (self.killed or self._life.done())

    async def wait_ready(self) -> bool:
        """Return whether it works; False when it ended before."""
        async with asyncio.timeout(_START):
            await self._said.wait()
        return bool(self.url)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self.lives:
            self.killed = True
            self.process.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        if self.lives and not self.asked:
            self.asked = True
            self.process.terminate()

    def pause(self) -> None:
        """Have it stand still."""
        if self.lives:
            self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Have it go on."""
        if self.lives:
            self.process.send_signal(signal.SIGCONT)

    async def gone(self) -> None:
        """Wait for its end."""
        await self._life

    async def _live(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self.url = (await self.process.stdout.readline()).decode().strip()
        self._said.set()
        await self.process.stdout.read()
        await self.process.wait()
        self.process.stdin.close()


class Fleet:
    """Workers on one database, each in a place of its own that is filled again after its death.

    Args:
        url: the database.
        folder: for their home, the file of their effects and what they log.
        size: how many.
        takeover: as `Durable` takes it.
    """

    def __init__(self, url: str, folder: Path, size: int = 2, takeover: Lock = "lock") -> None:
        self.size = size
        self.effects = folder / "effects.jsonl"
        self.log = folder / "workers.log"
        self.starts = 0
        self.failures: list[str] = []
        self._url = url
        self._folder = folder
        self._takeover = takeover
        self._workers: dict[int, Worker] = {}
        self._ready = asyncio.Condition()
        self._starting: set[asyncio.Task[None]] = set()

    @property
    def living(self) -> Sequence[Worker]:
        """The workers that were started, ready or not."""
        return [worker for worker in self._workers.values() if worker.lives]

    @property
    def ready(self) -> Sequence[Worker]:
        """The workers that take requests."""
        return [worker for worker in self.living if worker.url and not worker.asked]

    def start(self, place: int) -> None:
        """Begin to fill a place."""
        task = asyncio.create_task(self._start(place))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def wait_ready(self, many: int = 1) -> Sequence[Worker]:
        """Return those that are ready, once so many are."""
        async with self._ready:
            async with asyncio.timeout(_START):
                await self._ready.wait_for(lambda: len(self.ready) >= many)
            return self.ready

    async def any_url(self, chance: random.Random) -> str:
        """Return where one is that lives, or seemed to a moment ago."""
        return chance.choice(await self.wait_ready()).url

    async def kill(self, victims: Sequence[Worker], *, gently: bool = False) -> None:
        """Kill some at once, or ask them to end, and begin to start others in their places."""
        for worker in victims:
            if gently:
                worker.terminate()
            else:
                worker.kill()
        for worker in victims:
            await self._gone(worker)
        for place, worker in list(self._workers.items()):
            if worker in victims:
                self.start(place)

    async def aclose(self) -> None:
        """End all that was started."""
        if self._starting:
            await asyncio.wait(self._starting)
        workers = list(self._workers.values())
        for worker in workers:
            worker.terminate()
        for worker in workers:
            await self._gone(worker)

    async def _gone(self, worker: Worker) -> None:
        try:
            async with asyncio.timeout(_END):
                await asyncio.shield(worker.gone())
        except TimeoutError:
            self.failures.append("a worker did not end when it was asked to")
        finally:
            worker.kill()
            await worker.gone()

    async def _start(self, place: int) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.chaos.worker"),
                *(self._url, str(self._folder / "home"), str(self.effects), self._takeover),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        self.starts += 1
        worker = self._workers[place] = Worker(process)
        try:
            if not await worker.wait_ready() and not (worker.killed or worker.asked):
                self.failures.append("a worker ended before it was ready")
        except TimeoutError:
            self.failures.append("a worker did not come up")
        async with self._ready:
            self._ready.notify_all()
