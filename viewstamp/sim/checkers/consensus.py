"""Checks the protocol's invariants over all nodes of a world, after every event and for every sent message.

The invariants are in ``viewstamp/consensus/invariants.py``, which the cores' own tests use, too. This module only
collects the living nodes' states, their disks and their messages. It adds one invariant:

DurableIsDurable: the part of the log that a core counts as durable is on its disk, in the log as it is now.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from viewstamp.consensus.invariants import OF_COMMITTED, BrokenInvariantError, Durable, Facts, check, check_sent
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Term
from viewstamp.sim.cluster import Cluster
from viewstamp.sim.violation import Violation

if TYPE_CHECKING:
    from viewstamp.consensus.messages import Message
    from viewstamp.consensus.state import Core
    from viewstamp.ids import NodeId
    from viewstamp.node.node import Node
    from viewstamp.node.replica import Replica

__all__ = ["ConsensusChecker"]


class ConsensusChecker:
    """Checks every node of a world."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._skipped = OF_COMMITTED if cluster.swarm.majority_loses_power else frozenset()
        self.facts = Facts()
        self._states: dict[str, tuple[object, ...]] = {}
        self._listening: dict[NodeId, Replica] = {}

    def after_event(self) -> bool:
        """Check the group if a core has changed; return whether one has. Raises Violation."""
        is_changed = False
        states = self._states
        for member in self._cluster.members:
            node = member.node
            # A node that restarts its parts closes its log before the other parts.
            if node is None or node.replica is None or node.group.wal is None:
                continue
            core = node.replica.raft.core
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
                member.id = core.me
                is_changed = True
        if is_changed:
            nodes = [member.node for member in self._cluster.members if member.node is not None]
            self._check([node for node in nodes if node.replica is not None and node.group.wal is not None])
        return is_changed

    def _check(self, nodes: list[Node]) -> None:
        for node in nodes:
            core = _core(node)
            self._listen(node, core)
            assert node.group.wal is not None, "a replica has a log"
            if core.log.durable_end > node.group.wal.durable_end:
                raise Violation(
                    "DurableIsDurable",
                    f"{core.me} counts {core.log.durable_end}, its disk {node.group.wal.durable_end}",
                )
        try:
            disks = {_core(node).me: _disk(node) for node in nodes}
            check(self.facts, [_core(node) for node in nodes], disks, skipped=self._skipped)
        except BrokenInvariantError as error:
            raise Violation(error.invariant, str(error)) from error

    def _listen(self, node: Node, core: Core) -> None:
        """Observe the messages of a node, from the first event on at which it has a replica."""
        replica = node.replica
        assert replica is not None, "only nodes with a replica are checked"
        if self._listening.get(core.me) is not replica:
            self._listening[core.me] = replica
            replica.send = self._checked(node, replica.send)

    def _checked(self, node: Node, send: Callable[[Message], None]) -> Callable[[Message], None]:
        def checked(message: Message) -> None:
            try:
                check_sent(self.facts, message, _disk(node))
            except BrokenInvariantError as error:
                raise Violation(error.invariant, str(error)) from error
            send(message)

        return checked


def _core(node: Node) -> Core:
    assert node.replica is not None, "only nodes with a replica are checked"
    return node.replica.raft.core


def _disk(node: Node) -> Durable:
    """Return the durable contents of the node's disk."""
    wal, parts = node.group.wal, node.group.parts
    assert wal is not None, "a replica has a log"
    assert parts is not None, "a replica is a part"
    state = parts.log_store.durable_state
    assert state is not None, "the control file is written before a replica is made"
    return Durable(term=Term(state.term), vote=state.vote, history=_history(state.history), end=wal.durable_end)


@lru_cache(maxsize=64)
def _history(starts: tuple[tuple[int, int], ...]) -> TermHistory:
    return TermHistory(starts)
