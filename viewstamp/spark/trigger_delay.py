"""The options ``minRecordsPerTrigger`` and ``maxTriggerDelay``: when a micro-batch waits for more records. Pure.

| | effect |
| --- | --- |
| fewer records than the minimum wait | the end of the micro-batch is its start, so Spark starts none |
| they have waited for the delay | the micro-batch has them |
| the driver starts again | the delay begins again |
| ``Trigger.AvailableNow`` | the options have no effect, because Spark would end the query when a micro-batch waits |
"""

from __future__ import annotations

__all__ = ["TriggerDelay"]


class TriggerDelay:
    """Holds micro-batches back. Times are seconds of a clock that never jumps."""

    def __init__(self, least: int | None, delay: float) -> None:
        """Wait for ``least`` records, at most ``delay`` seconds; None = never wait."""
        self._least = least or 0
        self._delay = delay
        self._since: float | None = None
        """The time at which too few records were first seen; None = none wait."""

    def holds(self, waiting: int, now: float) -> bool:
        """Return whether the next micro-batch has to wait, if ``waiting`` records are there for it."""
        if waiting == 0 or waiting >= self._least:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since < self._delay:
            return True
        self._since = None
        return False
