"""Checks each second whether a node's replica still runs.

Usually a failure reaches the node through the ``System`` of its actors. The watchdog protects against a defect there,
because a node without a replica would keep its directory and its port, and still claim to lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from viewstamp.host.event_loop import seconds_to_look

__all__ = ["Watchdog"]

_LOOK_SECONDS = 1.0


class Watchdog:
    """Calls ``on_ended`` once, when ``has_ended()`` returns true. Never raises."""

    def __init__(self, has_ended: Callable[[], bool], on_ended: Callable[[], None]) -> None:
        self._has_ended = has_ended
        self._on_ended = on_ended
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check now, and each second from now on. Idempotent."""
        self.stop()
        if self._has_ended():
            self._on_ended()
        else:
            self._next = asyncio.get_running_loop().call_later(seconds_to_look(_LOOK_SECONDS), self.start)

    def stop(self) -> None:
        """Stop checking. Idempotent."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
