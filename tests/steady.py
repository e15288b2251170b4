"""An event loop with a time that stands still while the process is suspended, and a clock that shows the same time.

The members of an in-process group share the event loop of their test. If a busy machine suspends the process for half a
second, the timers of all members expire at once, also the followers' election timeouts, although the leader had no
chance to send a heartbeat. Members in processes of their own do not have that problem, because a socket keeps the
messages that arrive meanwhile.

So the time of this loop advances by the waits that the loop has asked for, and by at most ``TURN_SECONDS`` for the
callbacks of one turn. On a machine that is not busy it is the real time.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from typing import Final

from viewstamp.host.clock import RealClock
from viewstamp.host.interfaces import Clock

__all__ = ["SteadyLoop", "clock_of_the_loop"]

TURN_SECONDS: Final = 0.01
"""The longest time that the callbacks of one turn take, and by which a wait is too long: a tick of a member."""


class _SteadySelector(selectors.DefaultSelector):
    """Waits, and keeps the time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = self._woke_at = time.monotonic()
        """The time of the loop at the end of the last wait, and the real time then."""

    @property
    def now(self) -> float:
        """The time of the loop, in seconds."""
        return self._now + min(time.monotonic() - self._woke_at, TURN_SECONDS)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._now, began = self.now, time.monotonic()
        self._woke_at = began
        events = super().select(timeout)
        self._woke_at = time.monotonic()
        waited = self._woke_at - began
        self._now += waited if timeout is None else min(waited, max(timeout, 0.0) + TURN_SECONDS)
        return events


class SteadyLoop(asyncio.SelectorEventLoop):
    """A selector event loop. Its time leaves out the moments in which its process did not run."""

    def __init__(self) -> None:
        self._watch = _SteadySelector()
        super().__init__(self._watch)

    def time(self) -> float:
        """Return the time of the loop, in seconds."""
        return self._watch.now


class _LoopClock(Clock):
    """The time of a steady loop; on other threads, which only measure how long something takes, the real time."""

    def __init__(self, loop: SteadyLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._offset_us = time.time_ns() // 1000 - round(loop.time() * 1e6)

    def monotonic(self) -> float:
        return self._loop.time() if threading.get_ident() == self._thread else time.monotonic()

    def wall_us(self) -> int:
        return self._offset_us + round(self._loop.time() * 1e6)


def clock_of_the_loop() -> Clock:
    """Return the clock for nodes on the running event loop: the loop's own time if it is steady, else the real one."""
    loop = asyncio.get_running_loop()
    return _LoopClock(loop) if isinstance(loop, SteadyLoop) else RealClock()
