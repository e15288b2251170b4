"""Who a process is: its number alone is never enough, because the system gives numbers out again.

Linux has /proc; elsewhere ``ps`` is asked, which is untested there.
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
]

_PARENT: Final = "VIEWSTAMP_PARENT"
"""The number of the process with which a node ends."""
_PR_SET_PDEATHSIG: Final = 1
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def start_mark(pid: int) -> str | None:
    """Return a text that no other process of this number will ever have; None where there is no such process.

    A process that has ended and was not waited for yet counts as gone.
    """
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return _start_mark_by_ps(pid) if not os.path.exists("/proc/self/stat") else None
    state, started = fields[0], fields[19]
    return None if state in "ZX" else f"{_boot()}-{started}"


def is_paused(pid: int) -> bool:
    """Say whether a process was stopped by SIGSTOP, and not continued yet. Elsewhere than on Linux: no."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return _stat(pid)[0] == "T"
    return False


def command_line(pid: int) -> list[str]:
    """Return the arguments that a process was started with; [] where they cannot be seen."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as stream:
        return [os.fsdecode(part) for part in stream.read().split(b"\0")[:-1]]
    return []


def cpu_seconds(pid: int) -> tuple[float, float]:
    """Return the processor seconds of a process in its own code, and in the kernel; 0.0 where the system has none."""
    with contextlib.suppress(OSError):
        fields = _stat(pid)
        return int(fields[11]) / _TICKS_PER_SECOND, int(fields[12]) / _TICKS_PER_SECOND
    return 0.0, 0.0


def processes_of_session(session: int) -> Iterator[int]:
    """Yield the numbers of the processes of a session that live; none where there is no /proc."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            with contextlib.suppress(ValueError, OSError):
                fields = _stat(int(name))
                if int(fields[3]) == session and fields[0] not in "ZX":
                    yield int(name)


def _stat(pid: int) -> list[str]:
    """Return what Linux tells of a process, from its state on."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
        # The name in brackets may hold spaces and brackets of its own.
        return stream.read().rpartition(")")[2].split()


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
    """Have nodes that are spawned in here end when this process does, even by SIGKILL, which no handler can catch.

    Linux only; elsewhere nodes outlive a parent that is killed.
    """
    os.environ[_PARENT] = str(os.getpid())
    try:
        yield
    finally:
        os.environ.pop(_PARENT, None)


def end_with_parent() -> None:
    """Ask Linux to kill this process when the one that spawned it ends, where that one wants it so."""
    parent = os.environ.get(_PARENT)
    if parent is None or sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if str(os.getppid()) != parent:  # It ended before the call.
        os.kill(os.getpid(), signal.SIGKILL)
