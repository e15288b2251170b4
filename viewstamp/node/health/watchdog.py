"""Looks now and then whether a node's replica still lives.

Ordinarily a failure reaches the node through the ``System`` of its actors. This is the answer to a defect on that way:
half a node would hold its directory and its port, and would go on saying that it leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Watchdog"]

_LOOK_SECONDS = 1.0


class Watchdog:
    """Calls ``on_ended`` once, when it finds that ``has_ended()`` is true. Never raises."""

    def __init__(self, has_ended: Callable[[], bool], on_ended: Callable[[], None]) -> None:
        self._has_ended = has_ended
        self._on_ended = on_ended
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look now, and from now on each second. Idempotent."""
        self.stop()
        if self._has_ended():
            self._on_ended()
        else:
            self._next = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self.start)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
