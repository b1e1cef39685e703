"""Ids and clocks of the edges: a user message as it arrives, a model reply inside its step."""

import itertools
import os
import time

_process = ""
_count = itertools.count()


def new_id() -> str:
    """Return a new id of 23 hex characters, ordered by time within a process.

    Milliseconds since 1970, six random digits drawn once for each process, and a counter.
    """
    if not _process:
        _set_process(os.urandom(3).hex())
    return f"{time.time_ns() // 1_000_000:011x}{_process}{next(_count) & 0xFFFFFF:06x}"


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _set_process(digits: str = "") -> None:
    global _process
    _process = digits


if hasattr(os, "register_at_fork"):
    # Two children of one parent must not draw the same ids.
    os.register_at_fork(after_in_child=_set_process)
