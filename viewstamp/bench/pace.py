"""Wakes a task every 0.25 ms, because the timers of event loops have a resolution of 1 ms."""

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
    """Yield a function that returns an awaitable for the next beat; missed beats are skipped.

    On Linux the beat is 0.25 ms, because an event loop can wait for a timer descriptor there. Elsewhere it is 1 ms.
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
