"""The real clock. The simulated one is in ``viewstamp.sim.loop``."""

from __future__ import annotations

import time

from viewstamp.host.interfaces import Clock

__all__ = ["RealClock"]

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
