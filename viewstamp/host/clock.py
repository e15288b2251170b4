"""The real clocks, and the id of the machine's boot, after which they begin anew. Simulated: ``viewstamp.sim``."""

from __future__ import annotations

import time

from viewstamp.host.interfaces import Clock

__all__ = ["UNKNOWN_BOOT", "RealClock", "read_boot_id"]

_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class RealClock(Clock):
    """The operating system's clocks. Durations are measured with the monotonic one only, because the other may jump."""

    monotonic = staticmethod(time.monotonic)
    """Same scale as the event loop's ``time()``. Not a method, because each round of a node calls it some ten times."""

    def uptime(self) -> float:
        """Return seconds since the start of the machine. On Linux they include the time while it was suspended."""
        return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)

    def wall_us(self) -> int:
        """Return microseconds since 1970, UTC, by the clock of the machine."""
        return time.time_ns() // 1000


UNKNOWN_BOOT = ""
"""The machine gives no boot id. Callers must then assume that the machine has restarted, and lost unsynced bytes."""

_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"


def read_boot_id() -> str:
    """Return an id that changes each time the machine starts; :data:`UNKNOWN_BOOT` on systems other than Linux.

    Bytes that were written and not synced survive the death of every process, because the kernel holds them, but not
    the end of that kernel: a power cut, a reset, a panic. All containers of a machine share its kernel, and its boot
    id. Blocks for one read of ``/proc``.
    """
    try:
        with open(_BOOT_ID_PATH, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return UNKNOWN_BOOT
