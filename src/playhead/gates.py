"""How much of something may go on at once, and how often it may begin: over all processes on one database.

A gate stands before a model or a tool. Who passes holds a place, which is renewed while it is held and
lapses when its process dies; clocks of machines that share a gate should agree to within some seconds.
"""

import asyncio
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from playhead.errors import ConfigError
from playhead.events import EmitDelta
from playhead.ids import new_id
from playhead.llm.base import AgentLLM
from playhead.llm.wrapper import Wrapper
from playhead.types import LLMRequest, LLMResult, ToolContext, ToolDefinition

T = TypeVar("T")

# A place lapses after so many seconds unless it is renewed; who waits looks again after one of these.
LAPSE = 15.0
_SOON, _LATE = 0.05, 0.5


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate lets through.

    Attributes:
        at_once: how many may go on at the same time; None for any number.
        rate: how many may begin within `per` seconds; None for any number.
        per: seconds.

    Raises `ConfigError` for a value out of range.
    """

    at_once: int | None = None
    rate: int | None = None
    per: float = 60.0

    def __post_init__(self) -> None:
        for name in ("at_once", "rate"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"Limit.{name} is {value!r}; it must be 1 or more, or None.")
        if not self.per > 0:
            raise ConfigError(f"Limit.per is {self.per!r}; it must be more than 0 s.")


class GateState(msgspec.Struct, frozen=True):
    """Who holds a place and until when, and when places were taken, in seconds since 1970."""

    holders: Mapping[str, float] = {}
    begun: Sequence[float] = ()


OPEN = GateState()


class GateStore(Protocol):
    """Where states are kept, by name. A change is atomic, also between processes."""

    async def update(self, name: str, change: Callable[[GateState], tuple[GateState, T]], /) -> T:
        """Apply `change` to the gate's state, keep what it returns first, return the second."""
        ...


class MemoryGateStore:
    """The states of one process."""

    def __init__(self) -> None:
        self._states: dict[str, GateState] = {}

    async def update(self, name: str, change: Callable[[GateState], tuple[GateState, T]], /) -> T:
        """See `GateStore`."""
        self._states[name], answer = change(self._states.get(name, OPEN))
        return answer


class Gate:
    """`async with gate.place(): ...` waits until the limit allows it.

    Args:
        name: the gate's own; all who use it name the same limit.
        limit: what it lets through.
        store: `Sessions.gates`, to share it with all processes on a database; by default this process's.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        name: str,
        limit: Limit,
        store: GateStore | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.limit = limit
        self.store: GateStore = store or MemoryGateStore()
        self._clock = clock

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place. Being cancelled gives it back."""
        holder = new_id()
        try:
            delay = _SOON
            while not await self.store.update(self.name, lambda state: self._taken(state, holder)):
                # Who waits looks at other moments than the others do.
                await asyncio.sleep(delay * random.uniform(0.75, 1.25))  # noqa: S311
                delay = min(delay * 1.5, _LATE)
            renewing = asyncio.create_task(self._renew(holder), name=f"gate {self.name}")
            try:
                yield
            finally:
                renewing.cancel()
        finally:
            await asyncio.shield(self.store.update(self.name, lambda state: (_without(state, holder), None)))

    def _taken(self, state: GateState, holder: str) -> tuple[GateState, bool]:
        now, limit = self._clock(), self.limit
        holders = {name: until for name, until in state.holders.items() if until > now}
        begun = [at for at in state.begun if now - limit.per < at <= now] if limit.rate is not None else []
        full = limit.at_once is not None and len(holders) >= limit.at_once
        if full or (limit.rate is not None and len(begun) >= limit.rate):
            return state, False
        if limit.at_once is not None:
            holders[holder] = now + LAPSE
        return GateState(holders, [*begun, now] if limit.rate is not None else ()), True

    async def _renew(self, holder: str) -> None:
        if self.limit.at_once is None:
            return
        while True:
            await asyncio.sleep(LAPSE / 3)
            await self.store.update(self.name, lambda state: (self._renewed(state, holder), None))

    def _renewed(self, state: GateState, holder: str) -> GateState:
        return replace(state, holders={**state.holders, holder: self._clock() + LAPSE})


def _without(state: GateState, holder: str) -> GateState:
    if holder not in state.holders:
        return state
    return replace(state, holders={name: until for name, until in state.holders.items() if name != holder})


class Gated(Wrapper):
    """A model behind a gate. Put it around the model itself, so that each attempt counts."""

    def __init__(self, llm: AgentLLM, gate: Gate) -> None:
        super().__init__(llm)
        self._gate = gate

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        """See `AgentLLM`. The wait is part of the call: `total_timeout` counts it."""
        async with self._gate.place():
            return await self._llm.generate(request, emit)


def gated(tool: ToolDefinition[..., Any], gate: Gate) -> ToolDefinition[..., Any]:
    """Return a tool behind a gate. The wait is part of the call: its time-out counts it."""

    async def run(prepared: Any, context: ToolContext) -> Any:
        async with gate.place():
            return await tool.run(prepared, context)

    return dataclasses.replace(tool, run=run)
