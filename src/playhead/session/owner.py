"""Which process carries out a run, and whether that process is surely over.

Nobody is asked and nothing expires: a process of this machine that is gone is seen to be gone, and of
one elsewhere nothing is said. https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
"""

import os
import socket
from pathlib import Path

DURABLE = "durable"
"""The owner of a run that any process may carry out."""


def this_process(part: str) -> str:
    """Return a name for a part of this process that no other has, now or later."""
    pid = os.getpid()
    return f"{_machine()}/{pid}/{_started(pid)}/{part}"


def is_over(owner: str) -> bool:
    """True when the process of this name ran on this machine and does not any more."""
    machine, pid, started, _ = ["", "", "", *owner.rsplit("/", 3)][-4:]
    if machine != _machine() or not pid.isdigit():
        return False
    return not _lives(int(pid)) or (bool(started) and _started(int(pid)) != started)


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
