"""Sends, reads and kills."""

import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

_TAKEN = "of a process that is gone"
ROOT = Path(__file__).parent.parent.parent


@dataclass
class Sent:
    """A message that was acknowledged."""

    id: str
    thread: str
    policy: str


@dataclass
class Run:
    """What a crash test did and saw."""

    sent: list[Sent] = field(default_factory=list)
    kills: int = 0
    both: int = 0
    reconnects: int = 0
    seen: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    takeovers: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Worker:
    """A server process that is killed and started again."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self.url, self.folder, self.name = url, folder, name
        self.address = ""
        self.killed: list[float] = []
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Return once it serves."""
        args = (self.url, str(self.folder / "effects"), str(self.folder / self.name))
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.chaos.worker", *args, cwd=ROOT, stdout=-1, stderr=log
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            line = await self._process.stdout.readline()
        if not line:
            raise AssertionError(f"a worker did not start: {self.log()[-2000:]}")
        self.address = line.decode().strip()

    async def end(self, number: int) -> None:
        """Send it a signal and wait for its end."""
        self.address = ""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            self.killed.append(time.time())
            await self._process.wait()

    def log(self) -> str:
        """What it wrote so far, over all its lives."""
        return (self.folder / f"{self.name}.log").read_text(errors="replace")


class Driver:
    """One crash test on one database.

    Args:
        url: an empty database.
        folder: an empty one.
        kills: how many.
        seed: of all that is random.
        threads: conversations at a time.
    """

    def __init__(self, url: str, folder: Path, *, kills: int, seed: int, threads: int = 6) -> None:
        self.run = Run()
        self.workers = [Worker(url, folder, name) for name in ("one", "two")]
        self._kills = kills
        self._random = random.Random(seed)
        self._threads = [f"thread-{n}" for n in range(threads)]
        self._over = asyncio.Event()
        self._quiet = asyncio.Event()

    async def go(self) -> Run:
        """Send, read and kill; then let everything come to rest."""
        await asyncio.gather(*(worker.start() for worker in self.workers))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=2, sock_read=30)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            readers = [asyncio.create_task(self._read(client, thread)) for thread in self._threads]
            senders = [asyncio.create_task(self._send(client, thread)) for thread in self._threads]
            try:
                for _ in range(self._kills):
                    await asyncio.sleep(self._random.uniform(0.2, 1.2))
                    await self._kill()
                self._over.set()
                await asyncio.gather(*senders)
                await self._rest(client)
                self._quiet.set()
                await asyncio.wait(readers, timeout=10)
            finally:
                for task in (*readers, *senders):
                    task.cancel()
                await asyncio.gather(*readers, *senders, return_exceptions=True)
                for worker in self.workers:
                    await worker.end(signal.SIGTERM)
        self.run.takeovers = list(self._takeovers())
        return self.run

    async def _kill(self) -> None:
        both = self._random.random() < 0.2
        chosen = self.workers if both else [self._random.choice(self.workers)]
        for worker in chosen:
            await worker.end(signal.SIGKILL)
        self.run.kills += 1
        self.run.both += both
        await asyncio.sleep(self._random.uniform(0.0, 0.8))
        await asyncio.gather(*(worker.start() for worker in chosen))

    def _address(self) -> str | None:
        living = [worker.address for worker in self.workers if worker.address]
        return self._random.choice(living) if living else None

    async def _send(self, client: aiohttp.ClientSession, thread: str) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            sent = Sent(f"{thread}.{number}", thread, self._random.choice(("queue", "queue", "steer")))
            body = {"message": {"id": sent.id, "content": sent.id}, "policy": sent.policy}
            while not await self._acknowledged(client, thread, body):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            self.run.sent.append(sent)
            await asyncio.sleep(self._random.uniform(0.0, 0.6))

    async def _acknowledged(self, client: aiohttp.ClientSession, thread: str, body: dict[str, Any]) -> bool:
        address = self._address()
        if address is None:
            return False
        try:
            async with client.post(f"{address}/api/agent/threads/{thread}/runs", json=body) as response:
                if response.status not in (202, 503):
                    self.run.faults.append(f"a send was answered {response.status}: {await response.text()}")
                return response.status == 202
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def _read(self, client: aiohttp.ClientSession, thread: str) -> None:
        seen = self.run.seen.setdefault(thread, [])
        last = "0"
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async for id, type, data in self._events(client, thread, last):
                    if id:
                        last = id
                    if type == "text_delta":
                        # As a client applies it: what is there already is not added again.
                        text = self.run.texts.get(data["runId"], "")
                        self.run.texts[data["runId"]] = text[: data.get("offset", 0)] + data["text"]
                    elif id:
                        seen.append((int(id.partition(".")[0]), type))
                    if type in ("attempt", "step_start"):
                        self.run.texts[data["runId"]] = ""
            self.run.reconnects += 1
            if self._quiet.is_set():
                return
            await asyncio.sleep(0.05)

    async def _events(
        self, client: aiohttp.ClientSession, thread: str, last: str
    ) -> AsyncIterator[tuple[str, str, Any]]:
        address = self._address()
        if address is None:
            return
        url = f"{address}/api/agent/threads/{thread}/events"
        async with client.get(url, headers={"Last-Event-ID": last}) as response:
            id = type = data = ""
            while not (self._quiet.is_set() and response.content.at_eof()):
                waiting = asyncio.ensure_future(response.content.readline())
                quiet = asyncio.ensure_future(self._quiet.wait())
                await asyncio.wait((waiting, quiet), return_when=asyncio.FIRST_COMPLETED, timeout=60)
                quiet.cancel()
                if not waiting.done():
                    # All is told by now: a last look, and then the end.
                    await asyncio.wait((waiting,), timeout=1.0)
                    if not waiting.done():
                        waiting.cancel()
                        return
                line = waiting.result().decode().rstrip("\n")
                if waiting.result() == b"":
                    return
                if line.startswith("id:"):
                    id = line[3:].strip()
                elif line.startswith("event:"):
                    type = line[6:].strip()
                elif line.startswith("data:"):
                    data = line[5:].strip()
                elif not line and type:
                    yield id, type, json.loads(data)
                    id = type = data = ""

    async def _rest(self, client: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(120):
            for thread in self._threads:
                while await self._is_at_work(client, thread):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    async def _is_at_work(self, client: aiohttp.ClientSession, thread: str) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with client.get(f"{self._address()}/api/agent/threads/{thread}") as response:
                view = json.loads(await response.text())
                return bool(view.get("activeRun"))
        return True

    def _takeovers(self) -> Iterator[float]:
        one, two = self.workers
        for worker, other in ((one, two), (two, one)):
            taken = [float(line.split()[0]) for line in other.log().splitlines() if _TAKEN in line]
            for at in worker.killed:
                later = [moment - at for moment in taken if 0 <= moment - at < 5]
                if later and not any(abs(at - mine) < 1.5 for mine in other.killed):
                    yield later[0]
