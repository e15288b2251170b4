"""Computes the space that a leader keeps free in its log, because other members may have less space.

Members have the same new records, but may keep different older ones: the log is deleted from snapshot to snapshot, and
members take snapshots at different places. A full member accepts nothing, not even a trim after a batch that it cannot
store. So if a majority were full before the leader is, no record that frees space could be committed any more.

Each member regularly reports its free space and the end of its log to its leader (``digests.py``). Batches that the
leader admitted after that end are subtracted, each with the headers that it has if it is written alone: a busy leader
writes many batches under one header, while a follower may write each under its own. Space that the member has freed
since is in its next report.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from viewstamp.consensus import standing
from viewstamp.consensus.raft import Raft
from viewstamp.ids import Index, NodeId, Term
from viewstamp.wal.budget import cost_of

__all__ = ["Headroom"]

_REMEMBERED = 4096
"""Number of kept ends of batches. A member that is further behind is treated as if it were at the oldest of them."""


class Headroom:
    """The free space of members with a bounded log, by their reports. A member without a report has enough.

    Invariants:
      * while at least ``spared_bytes`` are free here, a majority of the reporting members has space for all admitted
        batches
    """

    def __init__(self, raft: Raft, left: Callable[[], int | None]) -> None:
        """Begin without reports; ``left`` returns this member's free bytes, None = its log is not bounded."""
        self.left = left
        self._raft = raft
        self._admitted: deque[tuple[Index, int]] = deque([(Index(0), 0)], maxlen=_REMEMBERED)
        """(end of a batch, most bytes that a log takes for all that had been admitted by then in this term), rising."""
        self._told: dict[NodeId, int] = {}
        """For each member the sum of its free bytes and the bytes admitted up to the end of its log."""
        self._term = Term(0)
        """The term of these values, because batches of an earlier term may have been truncated."""

    @property
    def end(self) -> Index:
        """Return the end of this member's log."""
        return self._raft.core.log.end

    @property
    def spared_bytes(self) -> int:
        """Return the bytes that a leader keeps free in addition to its own reserve."""
        core, left = self._raft.core, self.left()
        if left is None or not self._told or core.term != self._term:
            return 0
        admitted = self._admitted[-1][1]
        lefts = {core.me: left, **{member: told - admitted for member, told in self._told.items()}}
        membership = core.membership
        # The free space of a majority is computed by the rule for the commit index, in both halves of a joint
        # membership, because with one of them full the change could neither be completed nor undone.
        ends = {member: Index(max(0, min(left, lefts.get(member, left)))) for member in membership.electors}
        return left - standing.majority_end(membership, ends)

    def admit(self, size: int) -> None:
        """Count a batch of ``size`` bytes that has been admitted and is now the last of the log."""
        self._look_at_term()
        self._admitted.append((self.end, self._admitted[-1][1] + cost_of(size)))

    def heard(self, member: NodeId, left: int, end: Index) -> None:
        """Note the free bytes of another member at the time when its log ended at ``end``."""
        self._look_at_term()
        at = bisect_right(self._admitted, end, key=lambda each: each[0])
        self._told[member] = left + self._admitted[max(0, at - 1)][1]

    def _look_at_term(self) -> None:
        """Drop all values when the term has changed."""
        term = self._raft.core.term
        if term != self._term:
            self._term, self._told = term, {}
            self._admitted.clear()
            self._admitted.append((Index(0), 0))
