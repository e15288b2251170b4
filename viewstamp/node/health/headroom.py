"""How much of its log a leader leaves free, since other members have less room.

Members hold the same records, and not the same beside them: what lies between two snapshots goes or stays as one, and
not at the same place on every member. One that is full takes nothing, not even a trim that stands behind what it cannot
take. So were a majority full before the leader is, nobody could make room any more.

Each tells its leader now and then what it has left, and where its log ended then (in its report, ``digests.py``).
Since then it has got, or will get, what the leader has admitted behind that; what it has dropped it tells next time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from viewstamp.consensus import standing
from viewstamp.consensus.raft import Raft
from viewstamp.ids import Index, NodeId, Term

__all__ = ["Headroom"]

_REMEMBERED = 4096
"""Batches whose ends are remembered: a member that is further behind is taken for one that is just so far behind."""


class Headroom:
    """What members with a bounded log have left, as far as the leader has heard; who has not told lacks nothing.

    Invariants:
      * with ``spared_bytes`` left free here, a majority has room for all that is admitted, among those who have told
    """

    def __init__(self, raft: Raft, left: Callable[[], int | None]) -> None:
        """Know nothing of the others yet; ``left`` says what this member has left, None = its log is not bounded."""
        self.left = left
        self._raft = raft
        self._admitted: deque[tuple[Index, int]] = deque([(Index(0), 0)], maxlen=_REMEMBERED)
        """(end of a batch, bytes that had been admitted by then in this term), rising."""
        self._told: dict[NodeId, int] = {}
        """What a member has left, and what had been admitted up to the end of its log, together."""
        self._term = Term(0)
        """In which this was admitted, and heard: what an earlier one admitted may have been cut."""

    @property
    def end(self) -> Index:
        """Where this member's log ends."""
        return self._raft.core.log.end

    @property
    def spared_bytes(self) -> int:
        """How much a leader leaves free beside what it has to."""
        core, left = self._raft.core, self.left()
        if left is None or not self._told or core.term != self._term:
            return 0
        admitted = self._admitted[-1][1]
        lefts = {core.me: left, **{member: told - admitted for member, told in self._told.items()}}
        membership = core.membership
        # "What a majority has left" is counted as for the log, in both halves of a joint membership: with one of them
        # full, the change could neither be finished nor taken back.
        ends = {member: Index(max(0, min(left, lefts.get(member, left)))) for member in membership.electors}
        return left - standing.majority_end(membership, ends)

    def admit(self, size: int) -> None:
        """Take note that a batch has been admitted, with which the log ends now."""
        self._look_at_term()
        self._admitted.append((self.end, self._admitted[-1][1] + size))

    def heard(self, member: NodeId, left: int, end: Index) -> None:
        """Take note of what another member had left when its log ended at ``end``."""
        self._look_at_term()
        at = bisect_right(self._admitted, end, key=lambda each: each[0])
        self._told[member] = left + self._admitted[max(0, at - 1)][1]

    def _look_at_term(self) -> None:
        """Begin anew with each term."""
        term = self._raft.core.term
        if term != self._term:
            self._term, self._told = term, {}
            self._admitted.clear()
            self._admitted.append((Index(0), 0))
