"""The id of a node in its group: its name, or a new id after its disk was lost (protocol rule 18).

A node that comes back with an empty disk has lost its acknowledgements and votes. Its peers notice that, because they
store the incarnation of each disk, a random id from when it was new. They refuse the node, and it takes a new id: its
name and the fingerprint of its incarnation, ``n2~8c21f0aa``. The old id stays a voter, which sends nothing, until a
committed change removes it. The new id asks to be added, is a learner at first, and replaces the old one when it has
caught up.

So an id belongs to one disk for ever. This holds for learners too, because by a newer membership they may be voters.
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
    """Return the next change for a node that lost its disk and asks to be added; None = none, or it is refused.

    Only a node that replaces a member joins by itself; others are added by people. The node is refused while the leader
    still receives messages from a member of its name (``is_heard``). A node without its disk cannot send any. So either
    the asking node is another one, or the old directory has been put back.
    """
    if member in membership.addresses or member == name_of(member):
        return None
    others = [other for other in membership.addresses if name_of(other) == name_of(member)]
    if any(is_heard(other) for other in others):
        return None
    others.sort(key=lambda other: other in membership.voters)  # A learner is replaced first, because it was lost later.
    return AddMember(member, address, replaces=others[0]) if others else None


class Joiner(AsyncActor[None]):
    """Asks the members to be added, until its membership is committed, because uncommitted records may be truncated."""

    def __init__(self, raft: Raft, peers: PeerPool) -> None:
        self._raft = raft
        self._peers = peers

    async def run(self) -> None:
        """Ask regularly; return when this node is a member."""
        core = self._raft.core
        while core.me not in core.memberships[0].membership.addresses:
            self._peers.ask_to_join()
            await asyncio.sleep(_ASK_SECONDS)
