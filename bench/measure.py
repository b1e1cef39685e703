"""One agent, one measure, one process: prints its figures as a line of JSON. `bench.run` calls it.

CPU is user and system time of this process, so neither the fake provider nor waiting counts.
"""

import asyncio
import gc
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.task import Agent

Figures = dict[str, float]
Streamed = Callable[[str], Awaitable[str]]
BUDGET = 0.3  # CPU seconds for each figure that is an average over calls
IN_FLIGHT = 200


async def cold(agent: Agent) -> Figures:
    """From the start of the process to the end of a first run with one tool call."""
    await run(agent, "fk-k1")
    return {"cpu_ms": time.process_time() * 1e3, "rss_mb": memory("VmRSS") / 1024}


async def steps(agent: Agent) -> Figures:
    """A run of eight steps and seven tool calls."""
    return {"step_ms": await timed(lambda: run(agent, "fk-k7")) / 8}


async def stream(agent: Agent) -> Figures:
    """What a chunk costs when a thousand arrive at once."""
    few = await timed(lambda: streamed(agent.stream, "fk-n100"))
    many = await timed(lambda: streamed(agent.stream, "fk-n1100"))
    # Milliseconds for a thousand chunks more: microseconds for one.
    return {"chunk_us": many - few}


async def paced(agent: Agent) -> Figures:
    """What a chunk costs when each arrives by itself: ten streams, four milliseconds between events."""
    count, streams, few = 300, 10, 5

    async def together(call: Streamed, chunks: int) -> float:
        before = time.process_time()
        await asyncio.gather(*(streamed(call, f"fk-n{chunks}-d4000") for _ in range(streams)))
        return time.process_time() - before

    async def chunk_us(call: Streamed) -> float:
        await together(call, few)
        base = await together(call, few)
        return (await together(call, few + count) - base) * 1e6 / (count * streams)

    # An agent that knows one way to hand text over is measured by it twice.
    listen = getattr(agent, "listen", agent.stream)
    return {"chunk_us": await chunk_us(agent.stream), "listen_us": await chunk_us(listen)}


async def growth(agent: Agent) -> Figures:
    """One turn on top of a long history, and the first one: messages that nobody has encoded yet."""
    await timed(lambda: run(agent, "fk"))
    spent, times = 0.0, 20
    for _ in range(times):
        long = agent.history(1000)
        gc.collect()
        started = time.process_time()
        await run(agent, "fk", long)
        spent += time.process_time() - started
    return {"turn_ms": await timed(lambda: run(agent, "fk", long)), "cold_ms": spent * 1e3 / times}


async def growrun(agent: Agent) -> Figures:
    """A step of a run that is itself long, and how it compares with a step of a short one."""
    short = await timed(lambda: run(agent, "fk-k7")) / 8
    long = await timed(lambda: run(agent, "fk-k127"), at_least=1, warm=1) / 128
    longest = await timed(lambda: run(agent, "fk-k511"), at_least=1, warm=1) / 512
    return {"step_ms": long, "by_short": longest / short}


async def conc(agent: Agent) -> Figures:
    """Runs of three steps, two hundred in flight; the first byte of each answer takes 150 ms."""

    async def wave(model: str) -> None:
        await asyncio.gather(*(run(agent, model) for _ in range(IN_FLIGHT)))

    await asyncio.gather(*(run(agent, "fk-k2") for _ in range(4)))
    gc.collect()
    before = memory("VmRSS")
    await wave("fk-k2-l150")
    peak = memory("VmHWM") - before
    started = time.process_time()
    await wave("fk-k2-l150")
    return {
        "run_ms": (time.process_time() - started) * 1e3 / IN_FLIGHT,
        "session_kb": peak / IN_FLIGHT,
    }


async def router(agent: Agent) -> Figures:
    """A call through a router of three healthy providers, by one of the first of them alone.

    One of each in turn, so that both meet the same noise. An agent without a router is one call twice.
    """
    same = (lambda: run(agent, "fk"),) * 2
    bare, routed = agent.calls("fk") if hasattr(agent, "calls") else same
    spent = [0.0, 0.0]
    for _ in range(50):
        await bare()
        await routed()
    gc.collect()
    for _ in range(1500):
        for n, call in enumerate((bare, routed)):
            started = time.process_time()
            await call()
            spent[n] += time.process_time() - started
    return {"by_bare": spent[1] / spent[0]}


MEASURES: dict[str, Callable[[Agent], Awaitable[Figures]]] = {
    f.__name__: f for f in (cold, steps, stream, paced, growth, growrun, conc, router)
}


async def run(agent: Agent, model: str, history: Any = None) -> None:
    """A run that must give the whole text."""
    _expect(await agent.run(model, history), model)


async def streamed(call: Streamed, model: str) -> None:
    """A streamed run that must give the whole text."""
    _expect(await call(model), model)


def _expect(text: str, model: str) -> None:
    if not text.startswith("the cat sat"):
        raise RuntimeError(f"{model} gave {text[:80]!r}")


async def timed(call: Callable[[], Awaitable[None]], *, at_least: int = 5, warm: int = 3) -> float:
    """CPU milliseconds a call, averaged over as many as the budget allows."""
    for _ in range(warm):
        await call()
    gc.collect()
    started, count = time.process_time(), 0
    while count < at_least or time.process_time() - started < BUDGET:
        await call()
        count += 1
    return (time.process_time() - started) * 1e3 / count


def memory(key: str) -> float:
    """KB of this process now (`VmRSS`) or at most so far (`VmHWM`); Linux only."""
    with open("/proc/self/status") as status:
        return next(float(line.split()[1]) for line in status if line.startswith(key))


async def main() -> None:
    name, measure, base_url = sys.argv[1:]
    agent: Agent = importlib.import_module(f"bench.agents.{name}").Agent(base_url)
    print(json.dumps(await MEASURES[measure](agent)), flush=True)
    await agent.close()


if __name__ == "__main__":
    asyncio.run(main())
