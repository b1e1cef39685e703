"""How much one of those who ask may ask: requests in a minute, streams and runs at a time.

All of it is kept in memory, of this process, and bounded: who has not asked for the longest time is
forgotten first, and with a full allowance, which is what they would have by then.
"""

import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Scope

from playhead.server.errors import ApiError

_KNOWN = 10_000
# Whoever is told that a thing is at its limit may come back so many seconds later.
_LATER = 5


class Buckets:
    """So many in a minute for each key, and as many at once.

    Args:
        per_minute: how many; None for no bound.
        known: how many keys are remembered.
        clock: seconds, of any beginning.
    """

    def __init__(
        self, per_minute: int | None, *, known: int = _KNOWN, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = per_minute
        self._known = known
        self._clock = clock
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def take(self, key: str) -> None:
        """Count one. Raises `ApiError` 429, which says when there is another."""
        if self._most is None:
            return
        now, rate = self._clock(), self._most / 60
        level, at = self._held.pop(key, (float(self._most), now))
        level = min(self._most, level + (now - at) * rate)
        if level < 1:
            self._held[key] = (level, now)
            wait = math.ceil((1 - level) / rate) if rate else 60
            raise too_many(f"at most {self._most} requests in a minute are taken", wait)
        self._held[key] = (level - 1, now)
        if len(self._held) > self._known:
            self._held.popitem(last=False)


class Places:
    """So many at a time for each key; None for no bound."""

    def __init__(self, most: int | None, what: str) -> None:
        self._most = most
        self._what = what
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._taken)

    @contextmanager
    def taken(self, key: str) -> Iterator[None]:
        """Hold a place. Raises `ApiError` 429 where all are taken."""
        check_room(self._taken[key], self._most, self._what)
        self._taken[key] += 1
        try:
            yield
        finally:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


def check_room(taken: int, most: int | None, what: str) -> None:
    """Raise `ApiError` 429 if as many are taken as may be."""
    if most is not None and taken >= most:
        raise too_many(f"at most {most} {what} at a time are taken", _LATER)


def too_many(what: str, wait: int) -> ApiError:
    """The answer to who asks too much; `wait` is in seconds."""
    text = f"Too many requests: {what}. Try again in {wait} s."
    return ApiError(429, "too_many_requests", text, headers={"Retry-After": str(wait)})


def address_of_client(scope: Scope) -> str:
    """What stands for a client of whom nothing else is known: its address.

    Of IPv6 the network, of which one client has as many addresses as it likes.
    """
    client = scope.get("client")
    host = str(client[0]) if client else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)
