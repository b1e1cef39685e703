"""States of circuit breakers, and of gates, in a database, shared by all processes that use it.

What a state is made of, and when it changes, is the caller's: here it is a value that JSON can hold.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection, bindparam, select, update
from sqlalchemy.dialects import postgresql, sqlite

from playhead.encode import error_text, scrub
from playhead.ids import now_ms
from playhead.storage.engine import Database
from playhead.storage.tables import breaker_states, key_of
from playhead.storage.writer import Work

logger = logging.getLogger("playhead.storage")

S = TypeVar("S")
T = TypeVar("T")

_states = breaker_states.c
_READ = select(_states.state).where(_states.provider_key == bindparam("provider_key"))
_CHANGE = update(breaker_states).where(_states.provider_key == bindparam("of_provider"))
_BREAKERS = "circuit breakers"
_REST = 10.0  # seconds for which a database that failed is left alone


class _Known(NamedTuple, Generic[S]):
    """A state, and the moment at which it was so."""

    state: S
    at: float


class SQLBreakerStore(Generic[S]):
    """The states of providers in a database. A change is atomic, also between processes.

    A change that leaves the state as it is writes nothing; while a provider is well, its calls cost a
    read each `fresh` seconds. For so long this process may go by a state that another has changed
    since: it then makes a call more, or less. What changes a state, as taking the place of the one
    probe does, is always decided on the state in the database, which is locked meanwhile.

    A database that fails breaks no model call: it is logged, and for 10 s this process goes on by
    itself from what it last knew. A stored state that cannot be read counts as `default`.

    Args:
        database: what `open_database` returned. It is not closed with the store.
        kind: the type of a state, compared by value, such as `BreakerState`.
        default: the state of a provider of which nothing is known.
        fresh: seconds for which a state is taken to be the current one; 0 to read it each time.
        patience: seconds to wait for the database before it counts as failed.
        of: what the states are of, in the plural. Of one name, each has its own.
    """

    def __init__(
        self,
        database: Database,
        kind: type[S],
        default: S,
        *,
        fresh: float = 0.5,
        patience: float = 1.0,
        of: str = _BREAKERS,
    ) -> None:
        self._database = database
        self._decode = msgspec.json.Decoder(kind).decode
        self._encode = msgspec.json.Encoder().encode
        self._default = default
        self._fresh = fresh
        self._patience = patience
        self._of = of
        self._known: dict[str, _Known[S]] = {}
        self._resting_until = 0.0
        insert = sqlite.insert if database.dialect == "sqlite" else postgresql.insert
        self._insert = insert(breaker_states).on_conflict_do_nothing()

    async def update(self, provider: str, change: Callable[[S], tuple[S, T]]) -> T:
        """Apply `change` to the provider's state, keep what it returns first, return the second.

        `change` may be called more than once, and does nothing but compute.
        """
        state = await self._current(provider)
        changed, answer = change(state)
        if changed == state:
            return answer
        key = self._key(provider)
        written = await self._ask(lambda connection: self._change(connection, key, provider, change), key)
        if written is None:
            # Alone, but not by what was read before the wait: other calls of this process waited too.
            known = self._known.get(provider)
            written = change(self._default if known is None else known.state)
        changed, answer = written
        self._learn(provider, changed, time.monotonic())
        return answer

    async def _current(self, provider: str) -> S:
        """The state to go by: what was known a moment ago, or else what is stored."""
        begun = time.monotonic()
        known = self._known.get(provider)
        if known is not None and begun < max(known.at + self._fresh, self._resting_until):
            return known.state
        keys = {"provider_key": self._key(provider)}
        stored = await self._ask(lambda connection: (self._state(connection.execute(_READ, keys).scalar()),))
        if stored is None:
            return self._default if known is None else known.state
        return self._learn(provider, stored[0], begun)

    def _key(self, name: str) -> str:
        return key_of(name) if self._of == _BREAKERS else key_of(self._of, name)

    def _learn(self, provider: str, state: S, at: float) -> S:
        """Remember a state, unless a later one was learnt meanwhile; return the later one."""
        known = self._known.get(provider)
        if known is None or known.at <= at:
            known = self._known[provider] = _Known(state, at)
        return known.state

    def _change(
        self, connection: Connection, key: str, provider: str, change: Callable[[S], tuple[S, T]]
    ) -> tuple[S, T]:
        first = {
            "provider_key": key,
            "provider": scrub(provider),
            "state": self._text(self._default),
            "updated_at": now_ms(),
        }
        connection.execute(self._insert, first)
        # On SQLite the whole database is locked, and the compiler leaves the words out.
        state = self._state(connection.execute(_READ.with_for_update(), {"provider_key": key}).scalar())
        changed, answer = change(state)
        if changed != state:
            values = {"state": self._text(changed), "updated_at": now_ms()}
            connection.execute(_CHANGE.values(values), {"of_provider": key})
        return changed, answer

    def _state(self, stored: str | None) -> S:
        try:
            return self._default if stored is None else self._decode(stored)
        except msgspec.MsgspecError:
            return self._default

    def _text(self, state: S) -> str:
        return self._encode(state).decode()

    async def _ask(self, work: Work[T], order: str | None = None) -> T | None:
        """Read, or write in an `order`; None when the database fails, and while it is left alone."""
        if time.monotonic() < self._resting_until:
            return None
        try:
            async with asyncio.timeout(self._patience):
                if order is None:
                    return await self._database.read(work)
                return await self._database.write(work, order=order)
        except TimeoutError:
            self._rest(f"The database did not answer within {self._patience:g} s.")
        except Exception as error:
            self._rest(error_text(error))
        return None

    def _rest(self, why: str) -> None:
        begun = time.monotonic()
        if begun >= self._resting_until:  # of calls that waited together one tells
            logger.warning("The states of %s are not shared for the next %g s: %s", self._of, _REST, why)
        self._resting_until = begun + _REST
