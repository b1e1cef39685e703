"""What a program says of how its runs survive."""

from typing import Literal, TypeAlias

import msgspec

Lock: TypeAlias = Literal["lock", "heartbeat"]


class Durable(msgspec.Struct, frozen=True, kw_only=True):
    """How `Sessions(durable=...)` takes part.

    Attributes:
        works: carry out runs here; without it they are only accepted and shown.
        takeover: how others see that this process is dead. `lock`: the kernel, or Postgres, lets go of a
            lock, within half a second and without a clock. `heartbeat`: a row was not renewed for 4 s; for
            a Postgres behind PgBouncer in transaction mode, where such a lock cannot be held. All
            processes on one database take the same.
    """

    works: bool = True
    takeover: Lock = "lock"
