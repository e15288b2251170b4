"""The core's view of its log: its end, its durable end, its commit end, and the batches in memory.

All bytes are in the WAL. The newest batches are also kept here, because followers and the applier will soon need them.
The node reads evicted batches back from the WAL (``Fetch``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from viewstamp.ids import Index
from viewstamp.wire.batch import Batch

__all__ = ["RaftLog"]

_COMPACT_AT = 32
"""Evicted batches that are removed from the lists together, because each deletion moves all remaining items. They are
removed earlier if they are more than half of the lists, because an evicted batch stays in memory until then."""


class RaftLog:
    """The log of one member.

    Invariants:
      * ``durable_end <= end`` and ``handed_end <= commit_end <= end``; ``commit_end <= durable_end`` is *not* an
        invariant of one member, because a quorum may commit without its disk
      * every end is a batch boundary
      * the batches in memory are a contiguous run up to ``end``; all from ``handed_end`` on are in memory
    """

    def __init__(self, *, end: Index, commit_end: Index, tail: list[Batch], cache_bytes_max: int) -> None:
        self.end = end
        """The first index that this log does not hold, in memory or on disk."""
        self.durable_end = end
        """The first index that this log does not hold durably."""
        self.commit_end = commit_end
        """The first index that is not known to be committed."""
        self.handed_end = commit_end
        """The first index that has not been handed out for applying."""
        self.cache_bytes = sum(batch.size for batch in tail)
        self.cache_bytes_max = cache_bytes_max
        self._batches = list(tail)
        self._starts = [batch.first_index for batch in tail]
        self._evicted = 0
        assert tail == [] or tail[-1].end == end, f"the tail ends at {tail[-1].end}, the log at {end}"
        assert (tail[0].first_index if tail else end) <= commit_end <= end, "uncommitted batches are not in memory"

    def append(self, *batches: Batch) -> None:
        """Add ``batches`` in their order; the first starts exactly at the end."""
        end, size, starts = self.end, 0, self._starts
        for batch in batches:
            assert batch.first_index == end, f"{batch!r} does not start at the end {end}"
            starts.append(end)
            size += batch.size
            end = batch.end
        self._batches += batches
        self.cache_bytes += size
        self.end = end

    def truncate(self, end: Index) -> None:
        """Forget everything from ``end`` on, a batch boundary; the durable end is at most ``end`` afterwards."""
        assert self.commit_end <= end <= self.end, f"cut to {end}: committed {self.commit_end}, end {self.end}"
        while self._starts and self._starts[-1] >= end:
            self.cache_bytes -= self._batches.pop().size
            self._starts.pop()
        assert not self._batches or self._batches[-1].end == end, f"{end} is inside {self._batches[-1]!r}"
        self.end = end
        self.durable_end = min(self.durable_end, end)

    def reset(self, end: Index) -> None:
        """Drop every batch, because a snapshot replaces all records before ``end``, which then count as applied."""
        assert end > self.commit_end, f"a snapshot up to {end} for a log committed up to {self.commit_end}"
        self._batches = []
        self._starts = []
        self._evicted = 0
        self.cache_bytes = 0
        self.end = self.commit_end = self.handed_end = end
        self.durable_end = Index(1)  # Until the reset is durable, nothing is. Meanwhile this member answers nothing.

    def is_boundary(self, end: Index) -> bool:
        """Return whether a batch ends at ``end``; True also below the oldest batch in memory, where it is unknown."""
        if end >= self.end:
            return end == self.end
        at = bisect_left(self._starts, end)
        return at == 0 or (at < len(self._starts) and self._starts[at] == end)

    def slice(self, start: Index, bytes_max: int) -> tuple[Batch, ...] | None:
        """Return batches from ``start`` (a boundary below the end) on, at least one, then up to ``bytes_max``.

        None: ``start`` is not in memory any more.
        """
        at = bisect_right(self._starts, start, self._evicted) - 1
        if at < self._evicted or self._starts[at] != start:
            return None
        stop = at + 1
        size = self._batches[at].size
        while stop < len(self._batches) and size + self._batches[stop].size <= bytes_max:
            size += self._batches[stop].size
            stop += 1
        return tuple(self._batches[at:stop])

    def since(self, start: Index) -> list[Batch]:
        """Return the batches in memory that end after ``start``, in order. For checkers."""
        at = max(self._evicted, bisect_right(self._starts, start, self._evicted) - 1)
        if at < len(self._batches) and self._batches[at].end <= start:
            at += 1
        return self._batches[at:]

    def hand_out(self) -> list[Batch]:
        """Return the batches that were committed since the last call, in order."""
        if self.handed_end == self.commit_end:
            return []
        at = bisect_right(self._starts, self.handed_end, self._evicted) - 1
        stop = bisect_right(self._starts, self.commit_end - 1, self._evicted)
        batches = self._batches[at:stop]
        assert batches[0].first_index == self.handed_end, f"{self.handed_end} is not in memory"
        assert batches[-1].end == self.commit_end, f"{self.commit_end} is inside {batches[-1]!r}"
        self.handed_end = self.commit_end
        return batches

    def evict(self) -> None:
        """Drop the oldest batches that are applied and durable, while the cache is above ``cache_bytes_max``."""
        safe_end = min(self.handed_end, self.durable_end)
        while self.cache_bytes > self.cache_bytes_max and self._evicted < len(self._batches):
            batch = self._batches[self._evicted]
            if batch.end > safe_end:
                break
            self.cache_bytes -= batch.size
            self._evicted += 1
        if self._evicted >= _COMPACT_AT or 2 * self._evicted > len(self._batches):
            del self._batches[: self._evicted]
            del self._starts[: self._evicted]
            self._evicted = 0
