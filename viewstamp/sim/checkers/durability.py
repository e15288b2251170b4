"""Durable: what is committed is on the disks of a majority of the members in force, at every instant.

On a disk is what a power cut would leave there *for certain*: bytes that are synced, under a name that is synced, and
that no unsynced change could take back. So the property covers every subset of the machines losing power at any
moment. It is asked of the bytes themselves: they are read as recovery would read them, by headers and checksums, and
neither the log's word for what it has synced is taken, nor the core's.

| invariant | sentence |
| --- | --- |
| CommittedIsDurable | every record below the highest commit end that any member has known stands, in its \
term, on the disks of a majority of the voters of the newest committed membership |
| NeverTheLastCopy | ... and on one disk at least of those that nobody has damaged |

Whatever a client was told is committed, so the first says more than "what was acknowledged is durable". What a whole
snapshot covers, and the log has dropped, counts as held. A disk that was damaged on purpose counts as holding what it
held before, until it does so again (``viewstamp/sim/damage.py``): its member promises nothing meanwhile, and of those
there is a minority at most. While the membership is joint these are the incoming voters: nobody is elected without a
majority of them any more, and a leader that has left the joint membership in its own log commits with them alone.

In interval mode an acknowledgement promises less: the record is in the page caches of a majority, which survive every
death of a process. So there the bytes are looked at as a reader sees them, synced or not, and a power cut is damage of
that member, within the same budget (``Damages.lose_power``).

It is cheap because it is incremental: of a file only what was synced since the last look is read, and nothing is
looked at while no disk and no commit end has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from viewstamp.consensus.standing import majority
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.damage import Damages
from viewstamp.sim.disk_log import DiskLog, DiskLogs, Terms
from viewstamp.sim.violation import Violation

if TYPE_CHECKING:
    from viewstamp.consensus.invariants import Facts
    from viewstamp.consensus.membership import Membership
    from viewstamp.ids import NodeId

__all__ = ["DurabilityChecker", "check_durable"]


def agreed_end(log: DiskLog, committed: Terms, commit_end: int) -> int:
    """Return up to where a disk holds what is committed, in its terms; ``commit_end`` at most."""
    end = min(log.end, commit_end)
    mine = [run for run in log.terms if run[1] < end]
    if not mine or not committed:
        return end
    low = max(mine[0][1], committed[0][1])
    for index in sorted(
        {run[1] for run in (*mine, *committed) if low <= run[1] < end} | ({low} if low < end else set())
    ):
        if _term_at(mine, index) != _term_at(committed, index):
            return index
    return end


def _term_at(runs: Terms, index: int) -> int:
    return next((term for term, begin in reversed(runs) if begin <= index), 0)


def check_durable(
    membership: Membership,
    logs: Mapping[NodeId, DiskLog],
    committed: Terms,
    commit_end: int,
    is_damaged: Callable[[NodeId], bool],
) -> None:
    """Check one instant. Raises Violation.

    Args:
      membership: the newest that is committed.
      logs: what is on the disk of each member that has one, by its id.
      committed: the terms of the committed prefix; what was trimmed may be missing.
      commit_end: the highest that any member has known.
      is_damaged: says of a voter whether its disk was damaged and does not hold again what it held.
    """
    voters = membership.voters
    holders = [
        voter
        for voter in voters
        if voter in logs and not logs[voter].has_gap and agreed_end(logs[voter], committed, commit_end) >= commit_end
    ]
    counted = [voter for voter in voters if voter in holders or is_damaged(voter)]
    if len(counted) < majority(len(voters)):
        raise Violation("CommittedIsDurable", _complaint(voters, logs, committed, commit_end, counted))
    if not holders:
        raise Violation("NeverTheLastCopy", _complaint(voters, logs, committed, commit_end, counted))


def _complaint(
    voters: Iterable[NodeId], logs: Mapping[NodeId, DiskLog], committed: Terms, commit_end: int, counted: list[NodeId]
) -> str:
    held = ", ".join(
        f"{voter} {agreed_end(logs[voter], committed, commit_end) if voter in logs else 'none'}"
        for voter in sorted(voters)
    )
    return f"{commit_end} is committed, in terms {list(committed)}; on the disks: {held}; counted: {counted}"


class DurabilityChecker:
    """Watches the disks of a cluster."""

    def __init__(self, cluster: Cluster, facts: Facts, disks: DiskLogs, damages: Damages) -> None:
        self._cluster = cluster
        self._facts = facts
        self._disks = disks
        self._damages = damages

    def after_event(self, *, is_changed: bool) -> None:
        """Look at the disks that have changed, and check if anything is different. Raises Violation.

        ``is_changed``: a core has.
        """
        disks = self._disks
        if not disks.look() and not is_changed:
            return
        disks.learn_membership()
        membership = disks.membership
        if membership is None or self._cluster.swarm.majority_loses_power:
            return
        damages, facts = self._damages, self._facts
        if damages.present:
            damages.settle()
        damages.check_silence()
        logs = {member.id: disks.by_name[member.name] for member in self._cluster.members}
        check_durable(membership, logs, facts.committed, facts.committed_end, damages.__contains__)
