"""Checks the protocol's invariants over all nodes of a world, after every event and for every sent message.

The invariants are in ``viewstamp/consensus/invariants.py``, which the cores' own tests use, too. This module only
collects the living nodes' states, their disks and their messages. It adds one invariant:

DurableIsDurable: the part of the log that a core counts as durable is on its disk, in the log as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from viewstamp.consensus.invariants import OF_COMMITTED, BrokenInvariantError, Durable, Facts, check, check_sent
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import GROUP_0, Term
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.violation import Violation

if TYPE_CHECKING:
    from viewstamp.consensus.messages import Message
    from viewstamp.consensus.state import Core
    from viewstamp.ids import GroupId, NodeId
    from viewstamp.node.group import Group
    from viewstamp.node.replica import Replica
    from viewstamp.wal.control_file import ControlState

__all__ = ["ConsensusChecker"]


class ConsensusChecker:
    """Checks one group over every node of a world."""

    def __init__(self, cluster: Cluster, group: GroupId = GROUP_0) -> None:
        self._cluster = cluster
        self._group = group
        self._skipped = OF_COMMITTED if cluster.swarm.majority_loses_power else frozenset()
        self.facts = Facts()
        self._states: dict[str, tuple[object, ...]] = {}
        self._listening: dict[NodeId, Replica] = {}
        self._durables: dict[NodeId, tuple[ControlState, Durable]] = {}
        """The durable state of each member when it was last looked at, and the state that it was made from."""

    def after_event(self, touched: Iterable[Member]) -> bool:
        """Check the group if a core of the ``touched`` members has changed; return whether one has. Raises Violation.

        The first call looks at all members.
        """
        is_changed = False
        states = self._states
        for member in touched if states else self._cluster.members:
            if member.node is None:
                continue
            group = member.node.groups.get(self._group)
            # A group that restarts closes its log before its other parts.
            if group is None or group.parts is None or group.wal is None:
                continue
            core = group.parts.raft.core
            log = core.log
            state = (
                core,
                core.term,
                log.end,
                log.durable_end,
                log.commit_end,
                core.leader,
                core.installing,
                core.recovering_until,
            )
            if states.get(member.name) != state:
                states[member.name] = state
                member.note_id(self._group, core.me)
                is_changed = True
        if is_changed:
            nodes = [member.node for member in self._cluster.members if member.node is not None]
            groups = [node.groups[self._group] for node in nodes if self._group in node.groups]
            self._check([group for group in groups if group.parts is not None and group.wal is not None])
        return is_changed

    def _check(self, groups: list[Group]) -> None:
        for group in groups:
            core = _core(group)
            self._listen(group, core)
            wal = group.wal
            assert wal is not None, "a replica has a log"
            if core.log.durable_end > wal.durable_end:
                raise Violation(
                    "DurableIsDurable", f"{core.me} counts {core.log.durable_end}, its disk {wal.durable_end}"
                )
        try:
            disks = {_core(group).me: self._disk(group) for group in groups}
            check(self.facts, [_core(group) for group in groups], disks, skipped=self._skipped)
        except BrokenInvariantError as error:
            raise Violation(error.invariant, str(error)) from error

    def _listen(self, group: Group, core: Core) -> None:
        """Observe the messages of a member, from the first event on at which it has a replica."""
        replica = group.replica
        assert replica is not None, "only nodes with a replica are checked"
        if self._listening.get(core.me) is not replica:
            self._listening[core.me] = replica
            replica.send = self._checked(group, replica.send)

    def _checked(self, group: Group, send: Callable[[Message], None]) -> Callable[[Message], None]:
        def checked(message: Message) -> None:
            try:
                check_sent(self.facts, message, self._disk(group))
            except BrokenInvariantError as error:
                raise Violation(error.invariant, str(error)) from error
            send(message)

        return checked

    def _disk(self, group: Group) -> Durable:
        """Return the durable contents of the disk of a member."""
        wal, parts = group.wal, group.parts
        assert wal is not None, "a replica has a log"
        assert parts is not None, "a replica is a part"
        state, end = parts.log_store.durable_state, wal.durable_end
        assert state is not None, "the control file is written before a replica is made"
        me = parts.raft.core.me
        known = self._durables.get(me)
        if known is not None and known[0] is state and known[1].end == end:
            return known[1]
        durable = Durable(term=Term(state.term), vote=state.vote, history=_history(state.history), end=end)
        self._durables[me] = state, durable
        return durable


def _core(group: Group) -> Core:
    assert group.parts is not None, "only groups with a replica are checked"
    return group.parts.raft.core


@lru_cache(maxsize=64)
def _history(starts: tuple[tuple[int, int], ...]) -> TermHistory:
    return TermHistory(starts)
