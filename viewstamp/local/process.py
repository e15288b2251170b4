"""Identifies processes. A process number alone is never enough, because the system reuses numbers.

On Linux it reads /proc; elsewhere it runs ``ps``, which is untested there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

__all__ = [
    "command_line",
    "cpu_seconds",
    "end_with_parent",
    "is_paused",
    "nodes_end_with_this_process",
    "processes_of_session",
    "start_mark",
    "working_directory",
]

_PARENT: Final = "VIEWSTAMP_PARENT"
"""The environment variable with the number of the process whose end also ends the node."""
_PR_SET_PDEATHSIG: Final = 1
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def start_mark(pid: int) -> str | None:
    """Return a text that no other process of this number will ever have; None = there is no such process.

    A process that has ended and is not yet reaped by its parent, a zombie, counts as ended.
    """
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return _start_mark_by_ps(pid) if not os.path.exists("/proc/self/stat") else None
    return None if _has_ended(fields) else f"{_boot()}-{fields[19]}"


def is_paused(pid: int) -> bool:
    """Return whether a process is stopped by SIGSTOP. Always False on systems other than Linux."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return _stat(pid)[0] == "T"
    return False


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process; [] = they cannot be read."""
    for folder in _threads(pid):
        with contextlib.suppress(OSError), open(f"{folder}/cmdline", "rb") as stream:
            if found := [os.fsdecode(part) for part in stream.read().split(b"\0")[:-1]]:
                return found
    return []


def working_directory(pid: int) -> str:
    """Return the directory in which a process runs; "" = it cannot be read."""
    for folder in _threads(pid):
        with contextlib.suppress(OSError):
            return os.readlink(f"{folder}/cwd")
    return ""


def cpu_seconds(pid: int) -> tuple[float, float]:
    """Return the seconds that a process has used in user mode and in the kernel; 0.0 if the system has no /proc."""
    with contextlib.suppress(OSError):
        fields = _stat(pid)
        return int(fields[11]) / _TICKS_PER_SECOND, int(fields[12]) / _TICKS_PER_SECOND
    return 0.0, 0.0


def processes_of_session(session: int) -> Iterator[int]:
    """Yield the numbers of the live processes of a session; none if the system has no /proc."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            with contextlib.suppress(ValueError, OSError):
                fields = _stat(int(name))
                if int(fields[3]) == session and not _has_ended(fields):
                    yield int(name)


def _threads(pid: int) -> Iterator[str]:
    """Yield the folders in /proc of a process and of its threads. That of a thread that has ended has no content."""
    yield f"/proc/{pid}"
    with contextlib.suppress(OSError):
        yield from (f"/proc/{pid}/task/{each}" for each in os.listdir(f"/proc/{pid}/task"))


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the process's state on."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
        # The name in brackets may itself contain spaces and brackets.
        return stream.read().rpartition(")")[2].split()


def _has_ended(fields: list[str]) -> bool:
    """Return whether all threads of a process have ended.

    The state is that of the first thread only. While another thread still waits for its disk, it keeps the files of
    the process open and locked.
    """
    state, threads = fields[0], int(fields[17])
    return state == "X" or (state == "Z" and threads <= 1)


def _boot() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        return stream.read().strip()
    return "boot"


def _start_mark_by_ps(pid: int) -> str | None:
    found = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split()
    return None if not found or found[0].startswith("Z") else " ".join(found[1:])


@contextlib.contextmanager
def nodes_end_with_this_process() -> Iterator[None]:
    """Make the nodes that are started in this context end with this process, even if it ends by SIGKILL.

    Only on Linux; elsewhere nodes survive the SIGKILL of their parent.
    """
    os.environ[_PARENT] = str(os.getpid())
    try:
        yield
    finally:
        os.environ.pop(_PARENT, None)


def end_with_parent() -> None:
    """Make Linux kill this process when its parent ends, if the parent has requested that."""
    parent = os.environ.get(_PARENT)
    if parent is None or sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if str(os.getppid()) != parent:  # The parent ended before the call.
        os.kill(os.getpid(), signal.SIGKILL)
