"""Simulated machines with processors: real code in simulated time, charged with the time that it really took.

The simulator's loop lets code take no time. This one measures the processor time of each event of a process on a
machine, and lets the event take that long:

* a process has one thread that runs Python. An event waits until the one before it has ended, and for a core;
* the time that simulated files and connections take to be simulated is not charged. The measured cost of the system
  call is charged instead;
* events of processes without a machine take no time.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from benchmarks.scale.costs import Costs
from viewstamp.sim.loop import SimulatedLoop, SimulatedProcess, current_process
from viewstamp.sim.trace import Trace

__all__ = ["Machine", "MachineLoop", "Seat"]

OUTSIDE = contextvars.Context()
"""The context of code that belongs to no process."""
_EVENTS_PER_COLLECTION = 500_000


class Machine:
    """A computer with some cores. ``busy`` counts the seconds of processor time that it has used."""

    def __init__(self, cores: int) -> None:
        self.busy = 0.0
        self.waiting: list[Seat] = []
        """The processes with events that are due."""
        self.again_at: float | None = None
        """When the loop looks again for one that can run."""
        self._free_at = [0.0] * cores

    @property
    def free_at(self) -> float:
        """The time from which on a core is free."""
        return min(self._free_at)

    def take(self, at: float, seconds: float) -> float:
        """Use the first free core for ``seconds``, from ``at`` on or later; return the end."""
        core = self._free_at.index(min(self._free_at))
        end = self._free_at[core] = max(at, self._free_at[core]) + seconds
        self.busy += seconds
        return end


class Seat:
    """The thread of a process that runs Python, on a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.busy = 0.0
        """Seconds of processor time of this thread."""
        self.turns = 0
        """Turns of the event loop."""
        self.free_at = 0.0
        self.queue: deque[Any] = deque()
        self.is_due = False
        self.left_of_turn = 0
        self.flushes: list[Callable[[], None]] = []
        """Called at the end of the turn of the event loop: what it has gathered to send."""


class _Silent(Trace):
    """Keeps nothing, because a line for each message takes longer than the message."""

    def note(self, seconds: float, who: str, glyph: str, text: str) -> None:
        """Do nothing."""


class MachineLoop(SimulatedLoop):
    """A simulated loop whose processes need processors. Use :meth:`seat`, and set ``is_charging``."""

    def __init__(self, costs: Costs, seed: int = 0) -> None:
        super().__init__(seed, trace=_Silent())
        self.costs = costs
        self.is_charging = False
        """While it is false, code takes no time: for the preparation of a measurement."""
        self._seats: dict[SimulatedProcess, Seat] = {}
        self._current: Seat | None = None
        self._began = 0
        self._excluded = 0
        self._charged = 0.0
        self._paused_at = 0
        self._clock_ns = _clock_ns()

    def seat(self, process: SimulatedProcess, machine: Machine) -> Seat:
        """Let a process run on a machine; return its thread."""
        seat = self._seats[process] = Seat(machine)
        return seat

    # -- For simulated files and connections -------------------------------------------------------------------

    def pause(self) -> None:
        """Charge nothing from now on, because the simulation itself works. Not nested."""
        if self._current is not None:
            self._paused_at = time.thread_time_ns()

    def resume(self, seconds: float = 0.0) -> None:
        """Charge again, and charge ``seconds`` for what was simulated."""
        if self._current is not None:
            self._excluded += time.thread_time_ns() - self._paused_at + self._clock_ns
            self._charged += seconds

    def at_end_of_turn(self, flush: Callable[[], None]) -> bool:
        """Call ``flush`` when the turn of the calling process ends; return False if there is no such turn."""
        process = current_process()
        seat = self._seats.get(process) if process is not None else None
        if seat is None:
            return False
        if self._current is seat:
            seat.flushes.append(flush)
            return True
        return False

    def run_in_kernel(self, seconds: float) -> float:
        """Use another core of the current machine for ``seconds`` from now on; return the time when it is done."""
        seat, now = self._current, self.time()
        return seat.machine.take(now, seconds) if seat is not None else now

    # -- Events ------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the simulated seconds, with those that the current event has taken."""
        if self._current is None:
            return self._now
        spent = time.thread_time_ns() - self._began - self._excluded
        self._excluded += self._clock_ns
        return self._now + max(0, spent) * 1e-9 + self._charged

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Queue ``callback`` in ``delay`` seconds from the present moment of the current event."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _run_one(self, end: float) -> bool:
        ready = self._ready
        while True:
            if not ready and not self._advance(end):
                return False
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.run(current_process)
            seat = self._seats.get(process) if self.is_charging else None
            if seat is not None:
                seat.queue.append(handle)
                if seat.is_due:
                    continue
                seat.is_due = True
                seat.machine.waiting.append(seat)
                self._dispatch(seat.machine)
            else:
                handle._run()
            self.events += 1
            if self.events % _EVENTS_PER_COLLECTION == 0:
                gc.collect()
            if self._failures:
                self.check()
            return True

    def _dispatch(self, machine: Machine) -> None:
        """Run an event of the waiting process that has used least, if a core is free; and again when one is."""
        ready = [seat for seat in machine.waiting if seat.free_at <= self._now]
        if ready and machine.free_at <= self._now:
            seat = min(ready, key=lambda each: each.busy)
            machine.waiting.remove(seat)
            self._run_of(seat)
        if machine.waiting:
            at = max(self._now, machine.free_at, min(seat.free_at for seat in machine.waiting))
            if machine.again_at is None or at < machine.again_at:
                machine.again_at = at
                self._numbers += 1
                handle = asyncio.TimerHandle(at, self._again, (machine,), self, OUTSIDE)
                handle._scheduled = True  # type: ignore[attr-defined]
                heapq.heappush(self._timers, (at, self._numbers, handle))

    def _again(self, machine: Machine) -> None:
        machine.again_at = None
        self._dispatch(machine)

    def _run_of(self, seat: Seat) -> None:
        """Run one event of a process, and at the end of a turn what it has to send."""
        costs = self.costs
        began_idle = seat.free_at < self._now and not seat.left_of_turn
        if not seat.left_of_turn:
            seat.left_of_turn = len(seat.queue)
            seat.turns += 1
            self._charged = costs.turn_seconds + (costs.wake_seconds if began_idle else 0.0)
        else:
            self._charged = 0.0
        handle = seat.queue.popleft()
        seat.left_of_turn -= 1
        self._excluded = self._clock_ns
        self._current = seat
        self._began = time.thread_time_ns()
        try:
            if not handle._cancelled:
                handle._run()
            if not seat.left_of_turn and seat.flushes:
                flushes, seat.flushes = seat.flushes, []
                for flush in flushes:
                    flush()
            took = self.time() - self._now
        finally:
            self._current = None
        seat.busy += took
        seat.free_at = seat.machine.take(self._now, took)
        if seat.queue:
            seat.machine.waiting.append(seat)
        else:
            seat.is_due = False


def _clock_ns() -> int:
    """Return the processor time of one call of the clock, because each event makes some."""
    best = math.inf
    for _ in range(200):
        began = time.thread_time_ns()
        best = min(best, time.thread_time_ns() - began)
    return int(best)
