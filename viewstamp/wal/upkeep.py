"""The work of a log by the clock, beside its appends: close the last group when it is idle, and store the commit hint.

A last group that is damaged looks like one that a power cut tore, and a lost end looks like a log that never was
longer. So a log that has been idle for ``idle_seconds`` writes an empty group, and then its owner stores durably, in
another file, how much of it is committed and synced (the commit hint). A log that is never idle has it stored every
``HINT_SECONDS``, and with each new segment.

Everything here only enqueues: the writes are done on the writer thread, in order with all others. Nothing is done for
an append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["HINT_SECONDS", "Upkeep"]

HINT_SECONDS = 2.0
"""Seconds between two writes of the commit hint of a log that is never idle."""


class Upkeep:
    """The idle timer of one log; belongs on the event loop.

    Invariants:
      * at most one timer is set
    """

    def __init__(
        self,
        idle_seconds: float,
        *,
        groups: Callable[[], int],
        is_busy: Callable[[], bool],
        is_settled: Callable[[], bool],
        close_group: Callable[[], None],
        store_hint: Callable[[], None],
    ) -> None:
        """Look after a log.

        Args:
          idle_seconds: the time without a write after which the last group is closed.
          groups: returns the number of groups written so far.
          is_busy: returns whether anything waits to be written.
          is_settled: returns whether the last group is closed, and all records are known to be committed. Then there is
            no work until the next write.
          close_group: enqueues the empty group.
          store_hint: enqueues the write of the commit hint, if it has advanced.
        """
        self._idle_seconds = idle_seconds
        self._groups = groups
        self._is_busy = is_busy
        self._is_settled = is_settled
        self._close_group = close_group
        self._store_hint = store_hint
        self._groups_before = 0
        self._passes_left = 0
        self.timer: asyncio.TimerHandle | None = None
        """The timer of the next check; None = nothing has been written since a check found the log idle."""

    def watch(self) -> None:
        """Set the timer, unless it is set already, or there is no work."""
        if self.timer is None and (self._is_busy() or not self._is_settled()):
            self._groups_before = self._groups()
            self.timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._on_time)

    def stop(self) -> None:
        """Cancel the timer. Idempotent."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _on_time(self) -> None:
        self.timer = None
        if self._groups() != self._groups_before or self._is_busy():
            self._passes_left -= 1
            if self._passes_left < 0:
                self._passes_left = int(HINT_SECONDS / self._idle_seconds)
                self._store_hint()
            self.watch()
            return
        self._passes_left = int(HINT_SECONDS / self._idle_seconds)
        self._close_group()
        self._store_hint()
