"""A simulated world: a cluster, its damage, and the checkers that run after every event."""

from __future__ import annotations

from collections.abc import Callable

from viewstamp.ids import GROUP_0, GroupId, NodeId
from viewstamp.node.state_machine import StateMachine
from viewstamp.sim.checkers.consensus import ConsensusChecker
from viewstamp.sim.checkers.durability import DurabilityChecker
from viewstamp.sim.checkers.log_time import LogTimeChecker
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.damage import Damages
from viewstamp.sim.disk_log import DiskLogs
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.trace import Trace

__all__ = ["World"]


class World(Cluster):
    """A cluster with checkers: an event after which a property does not hold raises Violation."""

    def __init__(
        self,
        seed: int | str,
        swarm: Swarm,
        *,
        machine: Callable[[NodeId], StateMachine] | None = None,
        trace: Trace | None = None,
    ) -> None:
        """Make a world in which nothing runs yet; see :class:`Cluster`."""
        super().__init__(seed, swarm, machine=machine, trace=trace)
        self.checker = ConsensusChecker(self)
        self.disks = DiskLogs(self, self.checker.facts)
        self.damages = Damages(self, self.checker.facts, self.disks)
        self.durability = DurabilityChecker(self, self.checker.facts, self.disks, self.damages)
        self.others: dict[GroupId, tuple[ConsensusChecker, DurabilityChecker]] = {}
        """The checkers of the other groups."""
        self.damages_of: dict[GroupId, Damages] = {GROUP_0: self.damages}
        """The damage to the copies of each group."""
        for group in self.groups[1:]:
            self.watch(group)
        self.log_times = LogTimeChecker(self)
        self._seen: dict[str, int] = {}
        """By name of each member, the changes of its disk at the last event that can have changed it."""
        self.loop.after_event = self._after_event

    def watch(self, group: GroupId, founders: frozenset[NodeId] = frozenset()) -> None:
        """Check another group from now on, and count its copies in the budget of damage; no founders = all members."""
        checker = ConsensusChecker(self, group)
        disks = DiskLogs(self, checker.facts, group)
        disks.look()
        damages = Damages(self, checker.facts, disks, group, founders)
        self.damages.others.append(damages)
        self.damages_of[group] = damages
        self.others[group] = checker, DurabilityChecker(self, checker.facts, disks, damages, group)

    def forget(self, group: GroupId) -> None:
        """Check a group no more, because it was cancelled. Does nothing if it is not watched."""
        if self.others.pop(group, None) is not None:
            self.damages.others.remove(self.damages_of.pop(group))

    def _after_event(self) -> None:
        touched = self.touched()
        if not touched:
            return
        written = []
        for member in touched:
            changes = member.disk.changes
            if self._seen.get(member.name) != changes:
                self._seen[member.name] = changes
                written.append(member)
        for checker, durability in self.others.values():
            is_changed = checker.after_event(touched)
            if is_changed or written:
                durability.after_event(written, is_changed=is_changed)
        is_changed = self.checker.after_event(touched)
        if is_changed or written:
            self.durability.after_event(written, is_changed=is_changed)
        if is_changed:
            self.log_times.look()

    def may_refuse(self, member: Member) -> bool:
        """Return whether a machine may refuse to start for good."""
        return self.damages.may_refuse(member)

    @property
    def has_settled(self) -> bool:
        """Whether every member is RUNNING with the same log, all of it committed and applied, and none is damaged."""
        return not self._damaged and super().has_settled

    @property
    def _damaged(self) -> list[NodeId]:
        """The damaged members of all groups."""
        return [member for damages in self.damages_of.values() for member in damages.present]

    def describe(self) -> str:
        """Describe the state of each member, for people."""
        damaged = f"; damaged: {', '.join(self._damaged)}" if self._damaged else ""
        return super().describe() + damaged
