"""The command line as a user meets it: a process with an environment, a terminal or pipes."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import sys
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import jiwer

COMMAND = (sys.executable, "-m", "playhead")
SAMPLE_TEXT = (
    "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your "
    "country."
)
ESCAPES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
CANARY = "sk-canary-0123456789abcdef"


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def fault(self) -> list[str]:
        """The two lines of an error: what it is, and what to do."""
        lines = self.err.splitlines()
        assert "Traceback" not in self.err, self.err
        assert lines[-2].startswith("Error: "), self.err
        return lines[-2:]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The test's environment, in which no setting of ours is left; tests use the small speech model."""
    return {**os.environ, "PLAYHEAD_SPEECH_MODEL": "tiny.en", **(extra or {})}


async def playhead(
    *args: str,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = 60,
    command: tuple[str, ...] = (),
) -> Finished:
    """Run the command to its end, with pipes."""
    async with started(*args, env=env, command=command) as process:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def started(
    *args: str, env: Mapping[str, str] | None = None, command: tuple[str, ...] = ()
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command at work, in a process group of its own that does not outlive the block."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(command or COMMAND),
        *args,
        env=environment(env),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


async def line_with(text: str, stream: asyncio.StreamReader, timeout: float = 60) -> str:
    """Read lines until one holds the text, and return it."""
    read = []
    async with asyncio.timeout(timeout):
        while line := (await stream.readline()).decode():
            read.append(line)
            if text in line:
                return line
    raise AssertionError(f"{text!r} never came: {read}")


class Terminal:
    """The command on a terminal of its own: what is typed, and what is on the screen so far."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self.screen = ""
        self.everything = ""
        self._master = master
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(master, self._read)

    def type(self, text: str) -> None:
        """Press keys; `\\x03` is Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self._master, text.encode())

    async def press_until(self, key: str, text: str) -> None:
        """Press a key until it has its effect: readline misses a Ctrl-C while it is not waiting."""
        for _ in range(10):
            self.type(key)
            with contextlib.suppress(AssertionError):
                return await self.wait_for(text, timeout=1)
        raise AssertionError(f"{text!r} never came; the screen is:\n{self.screen}")

    async def wait_for(self, text: str, timeout: float = 30) -> None:
        """Return once the text is on the screen, from where the last wait ended."""
        try:
            async with asyncio.timeout(timeout):
                while text not in self.screen:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} never came; the screen is:\n{self.screen}") from None
        self.screen = self.screen.partition(text)[2]

    async def ended(self, timeout: float = 10) -> int:
        """Return the exit code."""
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    def close(self) -> None:
        self._loop.remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            self._loop.remove_reader(self._master)
            return
        text = data.decode(errors="replace")
        self.screen += text
        self.everything += text
        self._changed.set()


@asynccontextmanager
async def terminal(
    *args: str, env: Mapping[str, str] | None = None, command: tuple[str, ...] = ()
) -> AsyncIterator[Terminal]:
    """The command on a pseudo-terminal, where Ctrl-C is a key and not a signal that we send."""
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(command or COMMAND),
        *args,
        env={**environment(env), "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    held = Terminal(process, master)
    try:
        yield held
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        held.close()


def word_errors(text: str) -> float:
    """How many of the sample's words are wrong, as a fraction."""

    def plain(words: str) -> str:
        return " ".join(re.findall(r"[a-z']+", words.lower()))

    return float(jiwer.wer(plain(SAMPLE_TEXT), plain(text)))


def left_behind(home: str) -> list[str]:
    """The command lines of processes whose PLAYHEAD_HOME is that one: those that a command started."""
    mark = f"PLAYHEAD_HOME={home}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found
