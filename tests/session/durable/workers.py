"""Durable processes of a test, and what must hold once all is over."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playhead.session.sessions import Sessions
from playhead.types import AssistantMessage, UserMessage
from tests.session.clients import Client
from tests.session.models import StrictLLM, assert_valid, loop_of

ROOT = Path(__file__).parent.parent.parent.parent


class Worker:
    """A process of `working.py`. `told` is what it said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told: list[dict[str, Any]] = []
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self._news:
                self.told.append(json.loads(line))
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()

    async def hears(self, within: float = 20.0, **what: Any) -> dict[str, Any]:
        """Wait until it tells something that holds these values; None stands for any."""

        def found() -> dict[str, Any] | None:
            for one in self.told:
                if all(k in one and (v is None or one[k] == v) for k, v in what.items()):
                    return one
            return None

        async with asyncio.timeout(within), self._news:
            while (one := found()) is None:
                assert not self._reading.done(), f"it ended, and told {self.told}"
                await self._news.wait()
            return one

    def do(self, do: str, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **command}).encode() + b"\n")

    async def say(self, text: str, thread: str = "t") -> str:
        """Have it say something that it has to accept; returns the run."""
        self.do("say", thread=thread, text=text, id=text)
        told = await self.hears(of=text)
        assert "run" in told, told
        return str(told["run"])

    async def read(self, run: str) -> Sequence[str]:
        """The texts that a reader in this process is shown of a run that ends."""
        told = await self.hears(read=run)
        assert told.get("ends") == 1, told
        texts: Sequence[str] = told["texts"]
        return texts

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        await self._reading


@asynccontextmanager
async def worker(url: str, folder: Path) -> AsyncIterator[Worker]:
    """A durable process on a database. It is killed at the end."""
    async with starting(url, folder) as one:
        await one.hears(at="ready")
        yield one


@asynccontextmanager
async def starting(url: str, folder: Path) -> AsyncIterator[Worker]:
    """The same, before it is ready."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with (folder / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.session.durable.working",
            url,
            str(folder),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    one = Worker(process)
    try:
        yield one
    finally:
        await one.close()


async def stopped(one: Worker) -> None:
    """Stop a process as a debugger or a sleeping machine does, and return once it stands."""
    one.signal(signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, one.process.pid, os.WSTOPPED)


def noted(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().split("\n")[:-1] if file.exists() else []


async def ends(url: str, *runs: str, within: float = 20.0) -> None:
    """Wait until runs have ended, as a reader in a process that carries nothing out sees it."""
    async with asyncio.timeout(within), Sessions(loop_of(StrictLLM()), url) as sessions:
        for run in runs:
            client = Client()
            async for shown in sessions.shown(run):
                client.take(shown)
            assert client.over == {run}


async def check(url: str, threads: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Hold what is in the database to it: each message of each thread is there once, in order, and has one
    answer; runs follow each other, with no gap, and tell what is stored. Returns the answers."""
    answers = {}
    async with Sessions(loop_of(StrictLLM()), url) as sessions:
        for thread, said in threads.items():
            history = await sessions.history(thread)
            assert_valid(history)
            assert [m.content for m in history if isinstance(m, UserMessage)] == list(said)
            texts = [m.content for m in history if isinstance(m, AssistantMessage) and m.content]
            assert [text.split(",")[0] for text in texts] == [f"answer to {one}" for one in said]
            assert not await sessions.open_runs(thread)
            client = Client()
            last = await sessions.last_seq(thread)
            async for shown in sessions.shown_in(thread):
                client.take(shown)
                if shown.seq == last:
                    break
            assert list(client.texts.values()) == texts
            kinds = [
                (e["runId"], e["type"]) for e in client.recorded if e["type"] in ("run_start", "run_end")
            ]
            assert [kind for _, kind in kinds] == ["run_start", "run_end"] * len(said)
            assert all(one[0] == two[0] for one, two in zip(kinds[::2], kinds[1::2], strict=True))
            answers[thread] = texts
    return answers
