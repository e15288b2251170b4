"""Makes calls for a given time, and measures their number, their latencies and the processor time.

Three kinds of load:

| function | a call begins |
| --- | --- |
| :func:`repeat`, :func:`drive` | when the previous call of the same caller has ended |
| :func:`keep_going` | when any call has ended, so that a fixed number is outstanding; without a task for each |
| :func:`offer` | at a fixed rate, however long the calls before it take |

Only :func:`offer` measures the latency of a system at a given load. In the other two a slow response delays the calls
that follow, and this delay is not part of their latencies (coordinated omission).
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from viewstamp.bench.histogram import Histogram

__all__ = [
    "Append",
    "Call",
    "Cpu",
    "Figures",
    "drive",
    "keep_going",
    "offer",
    "percentile",
    "repeat",
]

Append = Callable[[bytes], Awaitable[object]]
"""Appends one record; returns once the record is as durable as the receipt states."""

Call = Callable[[], Awaitable[object]]

Cpu = Callable[[], float]
"""Returns the processor seconds that the measured servers have used so far."""

WARM_UP_SECONDS: Final = 0.5


def _no_servers() -> float:
    return 0.0


@dataclass(slots=True)
class Figures:
    """The calls of one measured window of time."""

    latencies: Histogram
    """One for each call of the window."""
    seconds: float
    """Length of the window."""
    client_cpu_seconds: float
    """Processor time of this process, all of its threads, during the window."""
    server_cpu_seconds: float = 0.0
    """Processor time of the servers during the window; 0.0 if it was not measured."""
    late: int = 0
    """Number of counted calls that ended after the window; 0 except for :func:`offer`."""

    @property
    def count(self) -> int:
        """Number of counted calls; each function below states which calls count."""
        return self.latencies.count

    @property
    def per_second(self) -> float:
        """Calls a second that ended inside the window."""
        return (self.count - self.late) / self.seconds if self.count else 0.0

    @property
    def client_cores(self) -> float:
        """Processor seconds of this process for each second of the window."""
        return self.client_cpu_seconds / self.seconds

    @property
    def cpu_us(self) -> float | None:
        """Microseconds of processor for each call, in this process and the servers; None if there were no calls."""
        return (self.client_cpu_seconds + self.server_cpu_seconds) / self.count * 1e6 if self.count else None

    def percentile_ms(self, percent: float) -> float | None:
        """Return the time that ``percent`` of the calls did not exceed, 100 = the longest; None if there were none."""
        return round(self.latencies.at(percent), 3) if self.count else None


class _Window:
    """The measured part of a run: from the end of the warm-up until the time is over."""

    def __init__(self, servers: Cpu) -> None:
        self.latencies = Histogram()
        self.opens = math.inf
        self.is_over = False
        self._servers = servers
        self._used = (0.0, 0.0, 0.0)

    @property
    def is_open(self) -> bool:
        return self.opens < math.inf

    def open(self) -> None:
        self._used = self._now()
        self.opens = self._used[0]

    def close(self) -> None:
        if not self.is_open:
            self.open()
        if not self.is_over:
            self.is_over = True
            now = self._now()
            self._used = (now[0] - self._used[0], now[1] - self._used[1], now[2] - self._used[2])

    def figures(self) -> Figures:
        return Figures(self.latencies, *self._used)

    def _now(self) -> tuple[float, float, float]:
        servers = self._servers()
        return time.perf_counter(), time.process_time(), servers


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the value that ``percent`` of the values do not exceed, 100 = the largest; 0.0 if there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0


async def drive(
    sessions: Sequence[Append],
    value: bytes,
    *,
    callers: int,
    seconds: float,
    warm_up: float = WARM_UP_SECONDS,
    servers: Cpu = _no_servers,
) -> Figures:
    """Append ``value`` by ``callers`` that are divided evenly over ``sessions``. Otherwise as :func:`repeat`."""
    calls = [partial(append, value) for append in sessions]
    return await repeat(calls, callers, seconds, warm_up=warm_up, servers=servers)


async def repeat(
    calls: Sequence[Call],
    callers: int,
    seconds: float,
    *,
    warm_up: float = WARM_UP_SECONDS,
    servers: Cpu = _no_servers,
) -> Figures:
    """Run ``callers`` that each await a call before they make the next; caller ``i`` makes ``calls[i % len(calls)]``.

    The callers begin ``warm_up`` seconds, at most ``seconds``, before the window opens. Calls that are outstanding
    when the window closes are awaited and do not count.

    Raises:
      Exception: the first error of a call. The other callers have been cancelled, so their calls may have succeeded.
    """
    window = _Window(servers)
    latencies = window.latencies
    clock = time.perf_counter

    async def caller(call: Call) -> None:
        began = clock()
        while not window.is_over:
            await call()
            now = clock()
            if began >= window.opens and not window.is_over:
                latencies.add((now - began) * 1000)
            began = now

    tasks = [asyncio.create_task(caller(calls[number % len(calls)])) for number in range(callers)]
    try:
        await asyncio.wait(tasks, timeout=min(warm_up, seconds), return_when=asyncio.FIRST_EXCEPTION)
        window.open()
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        window.close()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return window.figures()


async def keep_going(
    call: Call, outstanding: int, *, seconds: float = 0.0, count: int = 0, servers: Cpu = _no_servers
) -> Figures:
    """Keep ``outstanding`` calls unanswered: for ``seconds`` after a warm-up, or until ``count`` calls have ended.

    Calls that end inside the window count, also those that began before it, because a call in a long queue may take a
    large part of the window. Calls that are outstanding at the end are awaited.

    Raises:
      Exception: the first error of a call.
    """
    loop = asyncio.get_running_loop()
    clock = time.perf_counter
    window = _Window(servers)
    left = outstanding
    begun = 0
    ended: asyncio.Future[None] = loop.create_future()

    def begin() -> None:
        nonlocal left, begun
        if window.is_over or (count and begun >= count) or ended.done():
            left -= 1
            if not left and not ended.done():
                ended.set_result(None)
            return
        begun += 1
        began = clock()

        def done(answer: asyncio.Future[object]) -> None:
            if error := asyncio.CancelledError() if answer.cancelled() else answer.exception():
                if not ended.done():
                    ended.set_exception(error)
                return
            if window.is_open and not window.is_over:
                window.latencies.add((clock() - began) * 1000)
            begin()

        asyncio.ensure_future(call()).add_done_callback(done)

    watches = []
    if seconds:
        watches.append(loop.call_later(WARM_UP_SECONDS, window.open))
        watches.append(loop.call_later(WARM_UP_SECONDS + seconds, window.close))
    else:
        window.open()
    try:
        for _ in range(outstanding):
            begin()
        await ended
    finally:
        for watch in watches:
            watch.cancel()
    window.close()
    return window.figures()


async def offer(
    call: Call,
    per_second: float,
    seconds: float,
    *,
    warm_up: float = WARM_UP_SECONDS,
    outstanding_max: int = 100_000,
    servers: Cpu = _no_servers,
) -> Figures:
    """Begin ``per_second`` calls a second at evenly spaced times, whether or not earlier calls have ended.

    A latency is measured from the time at which the call was due and not from the time at which it was made, because a
    stall of the system delays calls, and each of them must count as slow. Calls that were due inside the window count.
    Those that end after it are ``late``. So ``per_second`` of the result is close to the offered rate unless the
    system did not keep up.

    Args:
      call: begins a call immediately and returns its awaitable result.
      per_second: the offered rate.
      seconds: length of the window.
      warm_up: seconds at the same rate before the window opens.
      outstanding_max: the run ends early at this number of outstanding calls, because the system is overloaded.
      servers: returns the processor seconds that the servers have used so far.

    Raises:
      Exception: the first error of a call.
    """
    clock = time.perf_counter
    window = _Window(servers)
    outstanding = late = 0
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(due: float) -> None:
        nonlocal outstanding
        outstanding += 1
        is_counted = window.opens <= due and not window.is_over

        def done(answer: asyncio.Future[object]) -> None:
            nonlocal outstanding, late
            outstanding -= 1
            if error := asyncio.CancelledError() if answer.cancelled() else answer.exception():
                if not failed.done():
                    failed.set_exception(error)
            elif is_counted:
                window.latencies.add((clock() - due) * 1000)
                late += window.is_over

        asyncio.ensure_future(call()).add_done_callback(done)

    async with paced() as next_beat:
        began = clock()
        made = 0
        while (now := clock()) < began + warm_up + seconds and outstanding < outstanding_max and not failed.done():
            if now >= began + warm_up and not window.is_open:
                window.open()
            while made <= (now - began) * per_second:
                begin(began + made / per_second)
                made += 1
            await next_beat()
        window.close()
        while outstanding and not failed.done():
            await next_beat()
    if failed.done():
        await failed
    return replace(window.figures(), late=late)


_PACE_SECONDS: Final = 0.00025
_COARSE_SECONDS: Final = 0.001
_CLOCK_MONOTONIC: Final = 1
_NON_BLOCKING: Final = 0o4000


@asynccontextmanager
async def paced() -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Yield a function that returns an awaitable for the next beat; missed beats are skipped.

    On Linux the beat is 0.25 ms, because an event loop can wait for a timer descriptor there. Elsewhere it is 1 ms.
    """
    if sys.platform != "linux":
        yield lambda: asyncio.sleep(_COARSE_SECONDS)
        return
    loop = asyncio.get_running_loop()
    descriptor = _timer(_PACE_SECONDS)
    beat = asyncio.Event()

    def on_beat() -> None:
        os.read(descriptor, 8)
        beat.set()

    async def next_beat() -> None:
        beat.clear()
        await beat.wait()

    loop.add_reader(descriptor, on_beat)
    try:
        yield next_beat
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _timer(seconds: float) -> int:
    """Return a descriptor that becomes readable every ``seconds``. Called by ctypes because Python < 3.13 lacks it."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.timerfd_create(_CLOCK_MONOTONIC, _NON_BLOCKING)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    nanoseconds = round(seconds * 1e9)
    period = (ctypes.c_long * 4)(0, nanoseconds, 0, nanoseconds)
    if libc.timerfd_settime(descriptor, 0, ctypes.byref(period), None) < 0:
        os.close(descriptor)
        raise OSError(ctypes.get_errno(), "timerfd_settime")
    return descriptor
