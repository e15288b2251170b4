"""Wakes a task every quarter of a millisecond; the timers of event loops are no finer than a millisecond."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

__all__ = ["PACE_SECONDS", "paced"]

PACE_SECONDS: Final = 0.00025
_COARSE_SECONDS: Final = 0.001
_CLOCK_MONOTONIC: Final = 1
_NON_BLOCKING: Final = 0o4000


@asynccontextmanager
async def paced() -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Yield a function whose result is awaited until the next beat; beats that were missed are not made up for.

    Linux has a timer that an event loop can wait for as for a socket. Elsewhere the beat is a millisecond.
    """
    if sys.platform != "linux":
        yield lambda: asyncio.sleep(_COARSE_SECONDS)
        return
    loop = asyncio.get_running_loop()
    descriptor = _timer(PACE_SECONDS)
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
    """Return a descriptor that becomes readable every ``seconds``. Python has a function for it from 3.13 on."""
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
