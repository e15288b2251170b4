"""The event loop of a process: uvloop's if it is installed."""

from __future__ import annotations

import asyncio

__all__ = ["new_event_loop", "seconds_to_look"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop if uvloop is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def seconds_to_look(interval: float) -> float:
    """Return the seconds until work that is done each ``interval`` is due: the next time that is a multiple of it.

    So the groups of a node do it in one iteration of the event loop, instead of each at a time of its own. At least
    half an interval, because a loop may call a little early.
    """
    seconds = interval - asyncio.get_running_loop().time() % interval
    return seconds if seconds >= interval / 2 else seconds + interval
