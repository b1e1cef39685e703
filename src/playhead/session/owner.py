"""Who carries out a run, and whether that is surely over: a process, or a part of this one.

Nobody is asked and nothing expires: a process of this machine that is gone is seen to be gone, and of
one elsewhere nothing is said. https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
"""

import asyncio
import os
import socket
from pathlib import Path
from weakref import WeakValueDictionary

from playhead.ids import new_id

_parts: "WeakValueDictionary[str, Part]" = WeakValueDictionary()

DURABLE = "durable"
"""The owner of a run that any process may carry out."""


class Part:
    """A part of this process: what carries out runs in the running event loop, until it is forgotten.

    `name` is one that no other part has, of this process or of another, now or later.
    """

    def __init__(self) -> None:
        pid, id = os.getpid(), new_id()
        self.name = f"{_machine()}/{pid}/{_started(pid)}/{id}"
        self._loop = asyncio.get_running_loop()
        self._over = False
        _parts[id] = self

    def end(self) -> None:
        """It carries out nothing any more."""
        self._over = True

    @property
    def is_over(self) -> bool:
        return self._over or self._loop.is_closed()


def is_over(name: str) -> bool:
    """True when the part of this name is over, or its process ran on this machine and does not any more."""
    machine, pid, started, id = ["", "", "", *name.rsplit("/", 3)][-4:]
    if machine != _machine() or not pid.isdigit():
        return False
    if not _lives(int(pid)) or (bool(started) and _started(int(pid)) != started):
        return True
    if int(pid) != os.getpid():
        return False
    part = _parts.get(id)
    return part is None or part.is_over


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"


def _started(pid: int) -> str:
    """When a process started, in ticks of this machine's clock; "" where that is not told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name of the program, in brackets, may hold anything.
    return stat.rpartition(")")[2].split()[19]


def _lives(pid: int) -> bool:
    if os.name != "posix":
        return True  # there, `os.kill` would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
