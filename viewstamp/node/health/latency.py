"""Measures the lateness of a member's event loop and disk, for its status only."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["LatencyGauge"]

_WINDOW_SECONDS: Final = 5.0


class LatencyGauge:
    """The greatest lateness of the last 5 to 10 seconds.

    Times are those of the host's monotonic clock.
    """

    def __init__(self) -> None:
        self.writing: deque[float] = deque()
        """The start times of the writes that are not durable yet, the oldest first.

        The replica appends to it. Writes become durable in the order of their start.
        """
        self._started = 0.0
        """The start of this window."""
        self._lag = self._lag_before = 0.0
        """The greatest lateness of this window, and of the one before it."""
        self._write = self._write_before = 0.0

    def ticked(self, now: float, late: float) -> None:
        """Note that a timer of the event loop fired ``late`` seconds after its time."""
        self._turn(now)
        self._lag = max(self._lag, late)

    def ended_write(self, now: float) -> None:
        """Note that the oldest write is durable. It counts in the window of the last tick."""
        took = now - self.writing.popleft()
        if took > self._write:
            self._write = took

    def pending(self, now: float) -> float:
        """Return the seconds for which the oldest write has not been durable; 0 = none is pending."""
        return now - self.writing[0] if self.writing else 0.0

    def status(self, now: float) -> dict[str, object]:
        """Return the greatest lateness of the event loop, and the longest time until a write was durable."""
        self._turn(now)
        lag = max(self._lag, self._lag_before)
        write = max(self._write, self._write_before, self.pending(now))
        return {"loop_lag_ms": round(lag * 1000, 1), "write_ms": round(write * 1000, 1)}

    def _turn(self, now: float) -> None:
        age = now - self._started
        if age >= _WINDOW_SECONDS:
            is_next = age < 2 * _WINDOW_SECONDS
            self._lag_before, self._write_before = (self._lag, self._write) if is_next else (0.0, 0.0)
            self._lag, self._write, self._started = 0.0, 0.0, now
