"""Measures for how long a member's disk thread has not answered, for its health checks."""

from __future__ import annotations

from contextlib import suppress

from viewstamp.errors import ViewstampError
from viewstamp.host.interfaces import Clock
from viewstamp.wal.log import Wal

__all__ = ["DiskProbe"]


class DiskProbe:
    """Puts an empty job into the queue of the log's writer, and measures how long it waits there.

    An idle node writes nothing for hours, so its last write does not show whether its disk works.

    Invariants:
      * at most one job waits
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wal: Wal | None = None
        self._since = 0.0
        """When the waiting job was queued."""
        self._waits = False

    def queue(self, wal: Wal | None) -> None:
        """Queue a job, unless one waits. ``wal`` None = the log is not open."""
        if wal is not self._wal:  # The node has restarted within the process: the old job may never be reported.
            self._wal, self._waits = wal, False
        if wal is not None and not self._waits:
            with suppress(ViewstampError):  # The log is closing or has failed; the node reports that itself.
                wal.run(_nothing, lambda _: self._on_answer(wal))
                self._since, self._waits = self._clock.monotonic(), True

    @property
    def seconds(self) -> float:
        """Return the seconds that the job has waited; 0 = none waits."""
        return self._clock.monotonic() - self._since if self._waits else 0.0

    def _on_answer(self, wal: Wal) -> None:
        if wal is self._wal:
            self._waits = False


def _nothing() -> None:
    """Do nothing; the job only marks its place in the queue."""
