"""How much of its log a leader leaves free, since other members have less room.

Members hold the same records, and not the same beside them: what lies between two snapshots goes or stays as one, and
not at the same place on every member. One that is full takes nothing, not even a trim that stands behind what it cannot
take. So were a majority full before the leader is, nobody could make room any more.

Each tells its leader now and then what it has left (in its report, ``digests.py``). All of them get the same records,
so what one lacks beside the leader stays about the same until either drops a part of its log; then it is told again.
"""

from __future__ import annotations

from collections.abc import Callable

from viewstamp.consensus.quorum import majority
from viewstamp.consensus.raft import Raft
from viewstamp.ids import NodeId, Term

__all__ = ["Room"]


class Room:
    """What members with a bounded log have left, as far as the leader has heard; who has not told lacks nothing.

    Invariants:
      * with ``spared_bytes`` left free here, a majority had room for all that was admitted when they told
    """

    def __init__(self, raft: Raft, left: Callable[[], int | None]) -> None:
        """Know nothing of the others yet; ``left`` says what this member has left, None = its log is not bounded."""
        self.left = left
        self._raft = raft
        self._lacks: dict[NodeId, int] = {}
        """By how much a member has less left than this one."""
        self._term = Term(0)
        """In which this was heard."""

    @property
    def spared_bytes(self) -> int:
        """How much a leader leaves free beside what it has to."""
        core = self._raft.core
        if not self._lacks or core.term != self._term:
            return 0
        voters = core.membership.voters
        lacks = sorted(self._lacks.get(voter, 0) for voter in voters if voter != core.me)
        needed = majority(len(voters)) - (core.me in voters)
        return lacks[needed - 1] if needed else 0

    def heard(self, member: NodeId, left: int) -> None:
        """Take note of what another member has left."""
        term = self._raft.core.term
        if term != self._term:
            self._term, self._lacks = term, {}
        self._lacks[member] = max(0, (self.left() or 0) - left)
