"""What a node is called in its group: by its name, or, since its disk was lost, by another one (protocol rule 18).

A node that comes back with an empty disk has forgotten what it acknowledged and whom it voted for. Its peers know: they
remember the incarnation that each disk drew when it was new. They refuse it, and it sets itself up under a new id,
its name and the fingerprint of its incarnation, ``n2~8c21f0aa``. The old id stays a voter, which is silent, until a
committed change removes it; the new one asks to be added, learns, and takes the old one's place when it has caught up.
So an id belongs to one disk for ever. A learner's too: where it counts as one it may be a voter elsewhere already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from viewstamp.actors import AsyncActor
from viewstamp.consensus.membership import AddMember, Change, Membership
from viewstamp.consensus.raft import Raft
from viewstamp.ids import NodeId, name_of
from viewstamp.node.peers.pool import PeerPool
from viewstamp.wire.identity_proof import fingerprint

__all__ = ["Joiner", "joining_change", "name_of", "reborn"]

_ASK_SECONDS = 0.5


def reborn(name: NodeId, incarnation: str) -> NodeId:
    """Return the id under which a node that has lost its disk joins its group."""
    return NodeId(f"{name}~{fingerprint(incarnation)}")


def joining_change(
    membership: Membership, member: NodeId, address: str, *, is_heard: Callable[[NodeId], bool]
) -> Change | None:
    """Return the next step for a reborn node that asks to be added; None = nothing to do, or not to be added.

    Only a node that takes the place of a member joins by itself; others are added by people. And only while no member
    of its name ``is_heard`` by the leader, that is with the disk known for it: a node whose disk is lost has stopped,
    so where that disk still answers, the node that asks is another one, or an old directory has been put back.
    """
    if member in membership.addresses or member == name_of(member):
        return None
    others = [other for other in membership.addresses if name_of(other) == name_of(member)]
    if any(is_heard(other) for other in others):
        return None
    others.sort(key=lambda other: other in membership.voters)  # A learner goes first: it was lost later.
    return AddMember(member, address, replaces=others[0]) if others else None


class Joiner(AsyncActor[None]):
    """Asks the members to be added, until it is known to be committed that it is one: what is not may be cut again."""

    def __init__(self, raft: Raft, peers: PeerPool) -> None:
        self._raft = raft
        self._peers = peers

    async def run(self) -> None:
        """Ask now and then; return when it is a member."""
        core = self._raft.core
        while core.me not in core.memberships[0].membership.addresses:
            self._peers.ask_to_join()
            await asyncio.sleep(_ASK_SECONDS)
