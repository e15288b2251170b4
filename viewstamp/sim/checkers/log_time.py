"""Log time: the clocks of a minority cannot move it, and it never stands still.

| invariant | sentence |
| --- | --- |
| LogTimeBounded | while the clocks of a majority of the voters have always been right, no record is stamped later \
than the true time plus the bound and an allowance for drift |
| LogTimeAdvances | in an idle group, the time that its leader would stamp advances at nearly half the rate of real \
time or faster, for any reading of the leader's clock |

A clock that was wrong once counts as wrong for the rest of the run, because a member may still hold its report.
"""

from __future__ import annotations

from typing import Final

from viewstamp.consensus import standing
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.violation import Violation

__all__ = ["LogTimeChecker", "check_advances"]

_RIGHT_US: Final = 1_000_000
"""A clock with a smaller error counts as right."""
_SLACK_US: Final = 10_000_000
"""The drift, of at most a tenth, of reports that are extrapolated for the length of a run."""
_WATCHED_SECONDS: Final = 2.0
_ADVANCE_MIN: Final = 0.4
"""Half the rate of real time, less a tenth of drift, and some ticks."""


class LogTimeChecker:
    """Checks every record that a leader stamps."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._wrong: set[str] = set()
        """The machines with clocks that have been wrong."""
        self._is_spoiled = False
        """Whether the clocks of a majority have been wrong; from then on any log time is allowed."""
        self._seen: dict[str, int] = {}
        self.checked = 0
        """Number of records that were found within the bound."""

    def look(self) -> None:
        """Check the newest records of all leaders. Raises Violation."""
        if self._is_spoiled:
            return
        true_us = self._cluster.true_us
        for member in self._cluster.members:
            if abs(member.clock.wall_us() - true_us) > _RIGHT_US:
                self._wrong.add(member.name)
        for member in self._cluster.members:
            node = member.node
            if node is None or node.replica is None or node.replica.raft.core.leader != node.me:
                continue
            core = node.replica.raft.core
            right = [each.id for each in self._cluster.members if each.name not in self._wrong]
            if not standing.is_majority(core.membership, right):
                self._is_spoiled = True
                return
            if core.log.end != self._seen.get(member.name):
                self._seen[member.name] = core.log.end
                self._check(member, core.log_time - true_us)

    def _check(self, member: Member, ahead_us: int) -> None:
        node = member.node
        assert node is not None, "it leads"
        if ahead_us > round(node.options.clock_bound_seconds * 1e6) + _SLACK_US:
            raise Violation("LogTimeBounded", f"{member.id} stamps a record {ahead_us / 1e6:.1f} s ahead of the time")
        self.checked += 1


def check_advances(cluster: Cluster) -> None:
    """Run an idle group for a moment, and check that its leader's log time advances. Raises Violation."""
    leader = cluster.leader
    assert leader is not None, "it has settled"
    assert leader.node is not None, "it leads"
    assert leader.node.replica is not None, "it has started"
    core = leader.node.replica.raft.core
    before, term = core.wall_us, core.term
    cluster.loop.run_until(lambda: False, seconds=_WATCHED_SECONDS)
    # If a leader's disk fails in these two seconds, the node has ended, and its core no longer changes.
    is_same = leader.node is not None and leader.node.replica is not None and leader.node.replica.raft.core is core
    if (
        is_same
        and (core.leader, core.term) == (leader.id, term)
        and core.wall_us - before < _ADVANCE_MIN * _WATCHED_SECONDS * 1e6
    ):
        raise Violation(
            "LogTimeAdvances",
            f"in {_WATCHED_SECONDS:g} s log time of {leader.id} went on by {(core.wall_us - before) / 1e6:.3f} s",
        )
