"""The timers of all replicas of a node, on one timer of the event loop.

A replica that rests sets its timer later with each heartbeat, so that it never fires. With a timer of the event loop
for each replica, a node with many idle groups would set hundreds of them a second for nothing. Here this only changes a
number, and the timer of the event loop is moved once for all heartbeats of a frame.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable

__all__ = ["Alarm", "Alarms"]


class Alarm:
    """A timer that was set; it fires once, unless it is cancelled before."""

    __slots__ = ("_alarms", "ring")

    def __init__(self, alarms: Alarms, ring: Callable[[], object]) -> None:
        """Created by :meth:`Alarms.set` only."""
        self._alarms = alarms
        self.ring = ring

    def cancel(self) -> None:
        """Do not fire. Idempotent."""
        self._alarms.forget(self)


class Alarms:
    """Timers in the time of the event loop that runs when they are created.

    Invariants:
      * while an alarm is set, the timer of the event loop is set for the time of the first one or earlier
      * between two iterations of the event loop it is set for exactly that time, or not set if there is none
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # A context of its own, because an alarm must not ring in the context of the one that set another alarm.
        self._context = contextvars.copy_context()
        self._due: dict[Alarm, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        self._is_tidying = False
        """Whether a call of :meth:`_tidy` is planned."""

    def set(self, seconds: float, ring: Callable[[], object]) -> Alarm:
        """Call ``ring`` in ``seconds``. It must not raise."""
        alarm, due = Alarm(self, ring), self._loop.time() + seconds
        self._due[alarm] = due
        if due < self._timer_due:
            self._move(due)
        return alarm

    def forget(self, alarm: Alarm) -> None:
        """Do not let this alarm ring. Idempotent."""
        due = self._due.pop(alarm, math.inf)
        if due <= self._timer_due < math.inf and not self._is_tidying:
            self._is_tidying = True
            self._loop.call_soon(self._tidy, context=self._context)

    def _tidy(self) -> None:
        self._is_tidying = False
        first = min(self._due.values(), default=math.inf)
        if first != self._timer_due:
            self._move(first)

    def _move(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due < math.inf:
            self._timer = self._loop.call_at(due, self._on_time, context=self._context)

    def _on_time(self) -> None:
        # Compared with the time that was asked for, because a loop may call a little early.
        until = self._timer_due
        self._timer, self._timer_due = None, math.inf
        for alarm in [alarm for alarm, due in self._due.items() if due <= until]:
            del self._due[alarm]
            alarm.ring()
        self._tidy()
