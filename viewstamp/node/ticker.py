"""Counts the ticks of a member's time, and sleeps through those in which its core has nothing to do.

| state | the timer | on a message |
| --- | --- | --- |
| busy: the next tick may do something | at the next tick | nothing: the timer counts |
| resting: several ticks only count | at the last of them, or earlier | the ticks that have passed are counted first |

So every reader of the count finds the right one, and a member under load does not read the clock more often. A timer
that was set for an earlier tick than the present plan is not moved: it fires, counts, and the next plan follows. The
reason is that on a follower each append moves the plan, and moving the timer each time would cost more. Only a beat
moves it, because a group without work has no other turns.

A process that was suspended wakes up late. Ticks that it could not use do not count: a timer counts the ticks that it
was set for, however late it fires, and a message counts no further than the timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from viewstamp.host.interfaces import Clock

__all__ = ["Ticker"]


class _Timer(Protocol):
    def cancel(self) -> None: ...


class Ticker:
    """One member's count of ticks, and its timer.

    Invariants:
      * between two turns exactly one timer is set. It is for the tick ``_timer_count``, which is above ``count``
      * ``is_resting`` is True exactly if ``_timer_count`` is more than one tick above ``count``
    """

    def __init__(self, clock: Clock, tick_seconds: float, schedule: Callable[[float], _Timer]) -> None:
        """Begin at tick 0; :meth:`plan` sets the first timer.

        Args:
          clock: for the ticks that pass while the member rests.
          tick_seconds: the length of a tick.
          schedule: sets the timer, which calls :meth:`on_timer` in a turn after the given number of seconds.
        """
        self.count = 0
        """The ticks so far."""
        self.is_resting = False
        """Whether the timer skips ticks, so that :meth:`catch_up` must be called before the count is used."""
        self._clock = clock
        self.tick_seconds: Final = tick_seconds
        self._schedule = schedule
        self.counted_at = clock.monotonic()
        """The time at which tick ``count`` began."""
        self._timer: _Timer | None = None
        self._timer_count = 0
        self._timer_due = 0.0

    def catch_up(self) -> int:
        """Count the ticks that have passed since the last call of any method here. Returns their number."""
        elapsed = self._clock.monotonic() - self.counted_at
        ticks = min(int(elapsed / self.tick_seconds), self._timer_count - self.count)
        self.count += ticks
        self.counted_at += ticks * self.tick_seconds
        return ticks

    @property
    def is_due(self) -> bool:
        """Whether the time of the timer has come, or the tick before it: more than counting may be due."""
        return self._clock.monotonic() - self.counted_at >= (self._timer_count - self.count - 1) * self.tick_seconds

    def stop(self) -> None:
        """Set no timer any more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_timer(self, now: float) -> tuple[int, float]:
        """Count up to the tick that the timer was set for. Returns the number of ticks, and the timer's lateness."""
        ticks = self._timer_count - self.count
        self.count = self._timer_count
        self.counted_at = now
        self._timer = None
        return ticks, now - self._timer_due

    def plan(self, ticks: int, *, moves: bool = False) -> None:
        """Set the timer to fire at most ``ticks`` after ``count``. Called at the end of each turn that counted.

        With ``moves`` exactly then: a timer that was set for an earlier tick is moved as well.
        """
        count = self.count + ticks
        if self._timer is None or not self.count < self._timer_count <= count or (moves and self._timer_count < count):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_count = count
            self._timer_due = self.counted_at + ticks * self.tick_seconds
            self._timer = self._schedule(max(0.0, self._timer_due - self._clock.monotonic()))
        self.is_resting = self._timer_count > self.count + 1
