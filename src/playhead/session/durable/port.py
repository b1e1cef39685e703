"""The port of a run that another process can go on with: each effect is recorded, and replayed from there."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from playhead.encode import total_json
from playhead.errors import StoreError
from playhead.events import Attempt, Event, RunEnd, UserMessageEvent
from playhead.ids import now_ms
from playhead.port import Effect, ModelReply, OutcomeUnknown
from playhead.session.durable.engine import DurableEngine
from playhead.session.durable.records import LEFT, Claim, Step, by_of
from playhead.session.feed import Feed
from playhead.session.journal import Journal
from playhead.session.port import StoredPort
from playhead.storage.ledger import Entry, Ledger, RunRow, coded
from playhead.types import ChatMessage, UserMessage

T = TypeVar("T")
_START = ""
CUT = "The process that asked ended before the answer did."


class DurablePort(StoredPort):
    """A `StoredPort` whose steps are recorded with what they say, in the same transaction.

    A step is recorded at the latest before the next one begins, and every write is refused once another
    execution has the run. What has no record is done again, but for a `once`: it begins only where the
    model step that asked for it was made by this same attempt, or by one that let go of the run in order,
    with nothing under way. Otherwise it may have begun before the crash, and its outcome is unknown.

    Args:
        engine: keeps the steps.
        claim: the right to the run, with the steps so far.
        resumed: another attempt may have begun.
        owed: messages that an attempt took in, of which no step that it recorded tells: the next one does.
        more: as `StoredPort` takes it.
    """

    def __init__(
        self,
        engine: DurableEngine,
        claim: Claim,
        ledger: Ledger,
        run: RunRow,
        feed: Feed,
        *,
        resumed: bool,
        owed: Sequence[UserMessage] = (),
        **more: Any,
    ) -> None:
        # The engine waits for a database that is away without end, and so do its runs.
        journal = Journal(
            ledger,
            run,
            feed,
            more["flush_seconds"],
            patience=math.inf,
            resumed=resumed,
            guard=lambda steps: engine.write(claim, steps),
            on_deleted=more["on_deleted"],
        )
        super().__init__(ledger, run, feed, journal=journal, **more)
        self.claim = claim
        self.taken_in: set[str] = set()
        self._engine = engine
        self._by = by_of(claim.attempts)
        self._place = 0
        self._known = max(claim.steps, default=-1) + 1
        # Step 0 answers calls of an earlier run: who accepted this one asked for it.
        self._asked_by = {"0": _START}
        self._mine = {self._by, *claim.left} | (set() if resumed else {_START})
        self._owed = owed
        self._under_way: set[int] = set()
        self._leaving = self._left = False
        self._voided = not resumed or bool(claim.left)

    def leave(self) -> None:
        """Begin no further effect: somebody else shall go on."""
        self._leaving = True

    def opening(self) -> Entry:
        """See `StoredPort.opening`."""
        return replace(super().opening(), also=(self._engine.write(self.claim, ()),))

    def stopping(self) -> bool:
        """Steps that were made before a stop are replayed first: what they said is written already, and so
        is what was taken in before the step that was cut."""
        return self._place >= self._known and not self._owed and super().stopping()

    async def inbox(self, step: int) -> Sequence[UserMessage]:
        """See `Port.inbox`."""
        found = await super().inbox(step)
        self._owed = ()
        return found

    async def emit(self, key: str, event: Event, message: ChatMessage | None = None) -> None:
        """See `Port.emit`."""
        if isinstance(event, RunEnd) and event.result.finish_reason == "cancelled":
            self.close_cut()
        await super().emit(key, event, message)

    def close_cut(self) -> None:
        """Tell what came of a step that was cut, and is not made again: what it showed is void, and what it
        took in was said."""
        index = sum(step.name.endswith("/model") for step in self.claim.steps.values()) + 1
        self._void(f"{index}/model", CUT)
        stamp: dict[str, Any] = {"run_id": self.run_id, "step": index, "at": now_ms()}
        for n, message in enumerate(self._owed):
            self.journal.add(f"{index}/steer/{n}", UserMessageEvent(message=message, **stamp))
        self._owed = ()

    def step(self, name: str, type: type[T], fn: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """See `Port.step`. Raises `StoreError`, `version`, where another step was recorded at its place."""
        place = self._place
        self._place += 1
        found = self.claim.steps.get(place)
        if found is not None:
            return _value(self._replayed(found, name, type))

        async def begun() -> T:
            if self._leaving:
                await self._let_go()
                raise asyncio.CancelledError
            self._void(name)
            self._under_way.add(place)
            return await fn()

        effect = super().step(name, type, begun)

        async def recorded() -> T:
            value = await effect
            step = Step(name, self._by, msgspec.Raw(total_json(value)))
            self._took(step, value)
            self.journal.note((place, step))
            self._under_way.discard(place)
            return value

        return Effect(recorded)

    def once(self, name: str, type: type[T], fn: Callable[[], Awaitable[T]]) -> Awaitable[T | OutcomeUnknown]:
        """See `Port.once`."""
        if self._place in self.claim.steps or self._is_first(name):
            return self.step(name, type, fn)
        self._place += 1
        return _value(OutcomeUnknown())

    def _is_first(self, name: str) -> bool:
        return self._asked_by.get(name.partition("/")[0]) in self._mine

    async def _let_go(self) -> None:
        """Note that all which was begun is recorded, if it is: whoever goes on may then begin the rest."""
        if self._under_way or self._left:
            return
        self._left = True
        self.journal.note((LEFT, Step("left", self._by, msgspec.Raw(total_json(sorted(self._mine))))))
        with suppress(StoreError):  # without it, what was not begun has an unknown outcome
            await self.journal.barrier()

    def _replayed(self, found: Step, name: str, type: type[T]) -> T:
        if found.name != name:
            raise coded(
                "version",
                f"The run was begun by another version of the program: its step {found.name!r} is {name!r} in"
                " this one. Send the message anew.",
            )
        try:
            value = msgspec.json.decode(found.value, type=type)
        except msgspec.MsgspecError as error:
            raise coded("version", f"The step {name!r} was recorded in another form: {error}.") from None
        self._took(found, value)
        return value

    def _took(self, step: Step, value: Any) -> None:
        if isinstance(value, ModelReply):
            self._asked_by[step.name.partition("/")[0]] = step.by
            self.taken_in.update(message.id for message in value.steer)

    def _void(self, name: str, reason: str = f"{CUT} The model is asked again.") -> None:
        """Tell that a model call is made again: the first that has no record is the one that was cut."""
        if self._voided or not name.endswith("/model"):
            return
        self._voided = True
        index = int(name.partition("/")[0])
        stamp: dict[str, Any] = {"run_id": self.run_id, "step": index, "at": now_ms()}
        self.journal.void(Attempt(number=max(self.claim.attempts, 2), reason=reason, **stamp))


class _TookIn(msgspec.Struct):
    steer: Sequence[UserMessage] = ()


def taken_in(claim: Claim) -> Set[str]:
    """Return the ids of the messages that the recorded steps of a run took in."""
    found: set[str] = set()
    for step in claim.steps.values():
        if step.name.endswith("/model"):
            with suppress(msgspec.MsgspecError):  # of another version: that ends the run when it is replayed
                found.update(message.id for message in msgspec.json.decode(step.value, type=_TookIn).steer)
    return found


def _value(value: T) -> Awaitable[T]:
    async def known() -> T:
        return value

    return Effect(known)
