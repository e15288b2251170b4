"""How late a member is: its event loop and its disk, for those who look at its status. Decides nothing."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["LatencyGauge"]

_WINDOW_SECONDS: Final = 5.0


class LatencyGauge:
    """The worst of the last moments: between 5 and 10 seconds of them.

    Times are the host's monotonic clock's.
    """

    def __init__(self) -> None:
        self._lag = _Worst()
        self._write = _Worst()
        self._writing: deque[float] = deque()
        """When each write was handed to the disk that is not durable yet, the oldest first."""

    def ticked(self, now: float, late: float) -> None:
        """A timer of the event loop came ``late`` seconds after its time."""
        self._lag.note(now, late)

    def began_write(self, now: float) -> None:
        """Writes were handed to the disk. They become durable in the order in which they were handed over."""
        self._writing.append(now)

    def ended_write(self, now: float) -> None:
        """The oldest writes that were handed over are durable."""
        self._write.note(now, now - self._writing.popleft())

    def status(self, now: float) -> dict[str, object]:
        """Return the worst lateness of the event loop, and the longest that writes took to be durable."""
        write = max(self._write.worst(now), now - self._writing[0] if self._writing else 0.0)
        return {"loop_lag_ms": round(self._lag.worst(now) * 1000, 1), "write_ms": round(write * 1000, 1)}


class _Worst:
    """The greatest of the values noted in this window and the one before it."""

    def __init__(self) -> None:
        self._started = 0.0
        self._now = 0.0
        self._before = 0.0

    def note(self, now: float, value: float) -> None:
        self._turn(now)
        self._now = max(self._now, value)

    def worst(self, now: float) -> float:
        self._turn(now)
        return max(self._now, self._before)

    def _turn(self, now: float) -> None:
        age = now - self._started
        if age >= _WINDOW_SECONDS:
            self._before = self._now if age < 2 * _WINDOW_SECONDS else 0.0
            self._now, self._started = 0.0, now
