"""Keeps callers going for a while, and counts what they get done."""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

__all__ = ["Append", "Call", "Figures", "drive", "percentile", "repeat"]

Append = Callable[[bytes], Awaitable[object]]
"""Appends one record; returns once it is as durable as it is going to be."""

Call = Callable[[], Awaitable[object]]

WARM_UP_SECONDS: Final = 0.5


@dataclass(slots=True)
class Figures:
    """What was measured in a window of time.

    Invariants:
      * ``latencies`` rise
    """

    latencies: array[float]
    """Of each call that began and ended inside the window: milliseconds."""
    seconds: float
    """How long the window was."""
    client_cpu_seconds: float
    """What this process, all threads of it, used of the processors meanwhile."""

    def __post_init__(self) -> None:
        self.latencies = array("d", sorted(self.latencies))

    @property
    def count(self) -> int:
        """How many calls began and ended inside the window."""
        return len(self.latencies)

    @property
    def per_second(self) -> float:
        """Calls a second."""
        return self.count / self.seconds

    @property
    def client_cores(self) -> float:
        """How many processors this process was busy with, on average."""
        return self.client_cpu_seconds / self.seconds

    def percentile_ms(self, percent: float) -> float | None:
        """Return the time that ``percent`` of the calls did not exceed, 100 = the longest; None = there were none."""
        return round(percentile(self.latencies, percent), 3) if self.latencies else None


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the value that ``percent`` of the values do not exceed, 100 = the largest; 0.0 if there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0


async def drive(
    sessions: Sequence[Append], value: bytes, *, callers: int, seconds: float, warm_up: float = WARM_UP_SECONDS
) -> Figures:
    """Keep ``callers`` appending ``value``, dealt evenly over ``sessions``. As :func:`repeat`."""
    return await repeat([partial(append, value) for append in sessions], callers, seconds, warm_up=warm_up)


async def repeat(calls: Sequence[Call], callers: int, seconds: float, *, warm_up: float = WARM_UP_SECONDS) -> Figures:
    """Keep ``callers`` going, each of which awaits its call before the next; caller ``i`` makes call ``i % len``.

    They begin ``warm_up`` seconds, at most ``seconds``, before the window opens, and are waited for when it has closed.

    Raises:
      Exception: what the first call raised that did; the others have been cancelled.
    """
    latencies = array("d")
    clock = time.perf_counter
    opens, is_over = math.inf, False

    async def caller(call: Call) -> None:
        began = clock()
        while not is_over:
            await call()
            now = clock()
            if began >= opens and not is_over:
                latencies.append((now - began) * 1000)
            began = now

    tasks = [asyncio.create_task(caller(calls[number % len(calls)])) for number in range(callers)]
    try:
        await asyncio.wait(tasks, timeout=min(warm_up, seconds), return_when=asyncio.FIRST_EXCEPTION)
        opens, cpu = clock(), time.process_time()
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        is_over = True
        lasted, cpu = clock() - opens, time.process_time() - cpu
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Figures(latencies, lasted, cpu)
