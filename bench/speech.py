"""Transcription through the server, as a user meets it: how fast, how much memory, and is it still there.

The sample that ships in the package is looped into one recording, uploaded, and transcribed by a run
with the mock model. Linux only: memory is read from /proc.
"""

import asyncio
import os
import socket
import statistics
import sys
import tempfile
import time
import wave
from collections.abc import Iterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp

RATE = 16_000
SAMPLE = "jfk.mp4"
PAUSE = 1.0  # seconds of silence between two copies


def main(seconds: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder), seconds))


async def _measure(home: Path, seconds: int) -> None:
    recording = home / "recording.wav"
    write_loop(recording, seconds)
    async with _server(home) as (url, server), aiohttp.ClientSession(url) as client:
        # The weights are joined and loaded once; that is not what is measured.
        await _transcribe(client, Path(str(files("playhead.media") / "samples" / SAMPLE)))
        asset = await _upload(client, recording)
        latencies: list[float] = []
        memory: list[float] = []
        watchers = [
            asyncio.create_task(_watch_health(client, latencies)),
            asyncio.create_task(_watch_memory(server.pid, memory)),
        ]
        started, worked = time.perf_counter(), _cpu_seconds(server.pid)
        await _run(client, asset)
        took, worked = time.perf_counter() - started, _cpu_seconds(server.pid) - worked
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
    print(
        f"{seconds // 60} minutes of speech: {took:.0f} s, of which the worker computed {worked:.0f} s of CPU"
    )
    print(f"{len(latencies)} other requests meanwhile\n")
    print(*_table(seconds / took, latencies, memory), sep="\n")


def _table(speed: float, latencies: list[float], memory: list[float]) -> Iterator[str]:
    quarter = max(len(memory) // 4, 1)
    early, late = statistics.median(memory[:quarter]), statistics.median(memory[-quarter:])
    p95 = statistics.quantiles(latencies, n=20)[-1] * 1e3
    yield "| | measured | goal |"
    yield "|---|---|---|"
    yield f"| times real time | {speed:.1f} | 8: {'met' if speed >= 8 else 'MISSED'} |"
    yield f"| /healthz, 95th percentile, ms | {p95:.1f} | 50: {'met' if p95 <= 50 else 'MISSED'} |"
    yield f"| worker memory, first quarter, MB | {early:.0f} | |"
    flat = "met" if late <= early * 1.1 else "MISSED"
    yield f"| worker memory, last quarter, MB | {late:.0f} | at most a tenth more: {flat} |"
    yield f"| worker memory, most, MB | {max(memory):.0f} | |"


def write_loop(path: Path, seconds: int) -> None:
    """Write the sample again and again, with pauses, until the recording is `seconds` long."""
    import av

    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    with av.open(str(files("playhead.media") / "samples" / SAMPLE)) as container:
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
    one = b"".join(frame.to_ndarray().tobytes() for frame in frames) + bytes(int(PAUSE * RATE) * 2)
    left = seconds * RATE * 2
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        while left > 0:
            out.writeframes(one[:left])
            left -= len(one)


@asynccontextmanager
async def _server(home: Path) -> Any:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LLM_", "PLAYHEAD_"))}
    environment |= {"LLM_PROVIDER": "mock", "PLAYHEAD_HOME": str(home / "playhead")}
    arguments = ["-m", "playhead", "serve", "--host", "127.0.0.1", "--port", str(port)]
    server = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        await _until_healthy(url)
        yield url, server
    finally:
        server.terminate()
        await server.wait()


async def _until_healthy(url: str) -> None:
    async with asyncio.timeout(30), aiohttp.ClientSession() as client:
        while True:
            try:
                async with client.get(f"{url}/healthz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)


async def _transcribe(client: aiohttp.ClientSession, path: Path) -> None:
    await _run(client, await _upload(client, path))


async def _upload(client: aiohttp.ClientSession, path: Path) -> dict[str, Any]:
    with path.open("rb") as body:
        async with client.post("/api/media", params={"name": path.name}, data=body) as response:
            response.raise_for_status()
            asset: dict[str, Any] = await response.json()
            return asset


async def _run(client: aiohttp.ClientSession, asset: dict[str, Any]) -> None:
    body = {"message": "Please transcribe this.", "context": {"mediaAssets": [asset]}}
    thread = f"/api/agent/threads/{asset['id']}/runs"
    no_limit = aiohttp.ClientTimeout(total=None)
    accept = {"Accept": "text/event-stream"}
    async with client.post(thread, json=body, headers=accept, timeout=no_limit) as response:
        response.raise_for_status()
        events = await response.text()
    if '"finishReason":"final"' not in events or '"segmentCount"' not in events:
        sys.exit(f"the run did not give a transcript: {events[-2000:]}")


async def _watch_health(client: aiohttp.ClientSession, latencies: list[float]) -> None:
    while True:
        started = time.perf_counter()
        async with client.get("/healthz") as response:
            await response.read()
        latencies.append(time.perf_counter() - started)
        await asyncio.sleep(0.05)


async def _watch_memory(pid: int, memory: list[float]) -> None:
    while True:
        memory.append(sum(map(_resident_mb, _descendants(pid))))
        await asyncio.sleep(0.5)


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from _descendants(int(child))


def _cpu_seconds(pid: int) -> float:
    ticks = 0
    for child in _descendants(pid):
        # User and system time are fields 14 and 15; the name before them may hold spaces.
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0  # It ended meanwhile.
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)
