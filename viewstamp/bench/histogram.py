"""Counts latencies in buckets, so that a run of any length takes 20 KB."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

__all__ = ["Histogram"]

_GROWTH = 1.01
"""Each bucket is 1 % wider than the one before it."""
_PER_E = 1 / math.log(_GROWTH)
_BUCKETS = 2200
"""From 1 us to 53 minutes."""


class Histogram:
    """Latencies in ms, with an error of 0.5 % at most; those below 1 us count as 1 us.

    Example::

        histogram = Histogram([1.0, 2.0, 400.0])
        histogram.at(50)   # about 2.0
    """

    __slots__ = ("_counts", "count", "longest")

    def __init__(self, milliseconds: Iterable[float] = ()) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.longest = 0.0
        """The longest latency in ms, exact; 0.0 if there are none."""
        for each in milliseconds:
            self.add(each)

    def add(self, milliseconds: float) -> None:
        """Count one latency."""
        self._counts[int(math.log(milliseconds * 1000) * _PER_E) if milliseconds > 0.001 else 0] += 1
        self.count += 1
        if milliseconds > self.longest:
            self.longest = milliseconds

    def at(self, percent: float) -> float:
        """Return the latency in ms that ``percent`` of the calls did not exceed, 100 = the longest; 0.0 if none."""
        wanted = max(1, math.ceil(round(self.count * percent / 100, 6)))
        seen = 0
        for milliseconds, count in self.buckets():
            seen += count
            if seen >= wanted:
                return self.longest if seen == self.count else milliseconds
        return 0.0

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Yield (ms in the middle of the bucket, calls) for each bucket that is not empty, the shortest first."""
        for number, count in enumerate(self._counts):
            if count:
                yield math.exp((number + 0.5) / _PER_E) / 1000, count
