"""Durability: committed records are on the disks of a majority of the current members at every instant.

A record counts as on a disk if a power cut would leave it there *for certain*: its bytes are synced, under a synced
name, and no unsynced change could undo that. So the property covers a loss of power on any subset of the machines at
any moment. The bytes are read as recovery would read them, by headers and checksums, because neither the log's nor the
core's own account of the synced end is trusted.

| invariant | sentence |
| --- | --- |
| CommittedIsDurable | every record below the highest commit end of any member is, in its term, on the disks of a \
majority of the voters of the newest committed membership |
| NeverTheLastCopy | ... and on at least one disk that was not damaged |

Every acknowledged record is committed, so the first invariant is stronger than "acknowledged records are durable".
Records that an intact snapshot covers, and the log has dropped, count as held. A disk that was damaged on purpose
counts as holding its former records until it does so again (``viewstamp/sim/damage.py``), because its member promises
nothing meanwhile, and only a minority is damaged. While the membership is joint, the incoming voters are checked: every
election needs their majority, and a leader that has left the joint membership in its own log commits with them alone.

In interval mode an acknowledgement promises less: the record is in the page caches of a majority, which survive the
death of any process. So there the bytes are checked as a reader sees them, synced or not, and a power cut is damage to
its member, within the same budget (``Damages.lose_power``).

The check is cheap because it is incremental: only bytes that were synced since the last check are read, and nothing is
checked while no disk and no commit end has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from viewstamp.consensus.standing import majority
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.damage import Damages
from viewstamp.sim.disk_log import DiskLog, DiskLogs, Terms
from viewstamp.sim.violation import Violation

if TYPE_CHECKING:
    from viewstamp.consensus.invariants import Facts
    from viewstamp.consensus.membership import Membership
    from viewstamp.ids import NodeId

__all__ = ["DurabilityChecker", "check_durable"]


def agreed_end(log: DiskLog, committed: Terms, commit_end: int) -> int:
    """Return the end of the prefix in which a disk holds the committed records, at most ``commit_end``."""
    end = min(log.end, commit_end)
    mine = [run for run in log.terms if run[1] < end]
    if not mine or not committed:
        return end
    low = max(mine[0][1], committed[0][1])
    if _from(mine, low, end) == _from(committed, low, end):
        return end
    for index in sorted(
        {run[1] for run in (*mine, *committed) if low <= run[1] < end} | ({low} if low < end else set())
    ):
        if _term_at(mine, index) != _term_at(committed, index):
            return index
    return end


def _from(runs: Terms, low: int, end: int) -> list[tuple[int, int]]:
    """Return the term and the begin of each run from ``low`` to ``end``; the first one begins at ``low``."""
    kept = [run for run in runs if low < run[1] < end]
    return [(_term_at(runs, low), low), *kept] if low < end else kept


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
      membership: the newest committed one.
      logs: the log on the disk of each member that has one, by member id.
      committed: the terms of the committed prefix; trimmed ones may be missing.
      commit_end: the highest that any member has known.
      is_damaged: returns whether a voter's disk was damaged and has not regained its former records.
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
    """Checks the disks of a cluster, for one group."""

    def __init__(
        self, cluster: Cluster, facts: Facts, disks: DiskLogs, damages: Damages, group: GroupId = GROUP_0
    ) -> None:
        self._group = group
        self._cluster = cluster
        self._facts = facts
        self._disks = disks
        self._damages = damages

    def after_event(self, written: Iterable[Member], *, is_changed: bool) -> None:
        """Read the disks that have changed, and check the invariants if anything is different. Raises Violation.

        Args:
          written: the members whose disks have changed since the last call.
          is_changed: whether a core has changed.
        """
        disks = self._disks
        if not disks.look(written) and not is_changed:
            return
        disks.learn_membership()
        membership = disks.membership
        if membership is None or self._cluster.swarm.majority_loses_power:
            return
        damages, facts = self._damages, self._facts
        if damages.present:
            damages.settle()
        damages.check_silence()
        logs = {member.id_in(self._group): disks.by_name[member.name] for member in self._cluster.members}
        check_durable(membership, logs, facts.committed, facts.committed_end, damages.__contains__)
