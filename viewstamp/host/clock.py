"""The real clock. The simulated one stands in ``viewstamp.sim.loop``."""

from __future__ import annotations

import time

from viewstamp.host.interfaces import Clock

__all__ = ["RealClock"]

_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class RealClock(Clock):
    """The operating system's clocks. Durations come from the monotonic one only: the other may jump."""

    monotonic = staticmethod(time.monotonic)
    """The same scale as the event loop's ``time()``. It is not a method, because each round asks some ten times."""

    def uptime(self) -> float:
        """Return seconds since the machine was started, suspended or not, where the system counts them (Linux)."""
        return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)

    def wall_us(self) -> int:
        """Return microseconds since 1970, UTC, as the machine has it."""
        return time.time_ns() // 1000
