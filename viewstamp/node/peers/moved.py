"""The addresses of members that have moved by a record that this log does not have yet.

A member that was down while another one moved has the old address on record, and sends its answers there. If the leader
ends before it has sent the record, these two may be the only members that run, and neither could elect the other. So a
member that cannot be reached at its recorded address is looked for at the address in its latest HELLO.

| the node at that address | the link uses it |
| --- | --- |
| is the member, and names a newer record that has the member at this address | yes, until this log has that record |
| names no newer record, or one with another address: it may be a copy of the member's directory | no |
| is another node, or does not answer | no |

A copy has the identity of the member, so its HELLO alone must not redirect answers to it: two disks would count as one
voter (``node/address_check.py``). A record that is newer than this log's was written by a leader. If it is never
committed, the member is reached at the address that it listens at, and its votes are its own.

Nothing of this is stored: after a restart the member is looked for again. A lost or late HELLO delays the search, and
a repeated one changes nothing. If the address cannot be reached either, both are tried in turn.
"""

from __future__ import annotations

import asyncio

from viewstamp.consensus.raft import Raft
from viewstamp.errors import PeerError
from viewstamp.host.interfaces import Network
from viewstamp.ids import ClusterId, GroupId, NodeId
from viewstamp.node.peers.question import answer_to
from viewstamp.wire.handshake import Hello, Welcome, read_members

__all__ = ["MovedPeers"]

_SECONDS = 1.5
"""Limit of one search. The link waits for it before it tries the recorded address again."""


class MovedPeers:
    """The members that are reached at another address than the recorded one."""

    def __init__(self, raft: Raft, cluster: ClusterId, group: GroupId, network: Network) -> None:
        """Begin with none.

        Args:
          raft: the core of this member; only read.
          cluster: the cluster.
          group: the group of the core.
          network: for the questions.
        """
        self._raft = raft
        self._hello = Hello(cluster=cluster, group=group)
        self._network = network
        self._named: dict[NodeId, str] = {}
        """The address in the latest HELLO of each member, whose disk was the known one."""
        self._found: dict[NodeId, tuple[str, int]] = {}
        """The address of a member that has moved, and the generation of the record that has it."""

    def note(self, peer: NodeId, address: str) -> None:
        """Note the address in the HELLO of a member, whose disk has been checked."""
        self._named[peer] = address

    def address(self, peer: NodeId) -> str | None:
        """Return the newer address of a member; None = the recorded one counts."""
        address, generation = self._found.get(peer, (None, 0))
        return address if generation > self._raft.core.membership.generation else None

    async def look(self, peer: NodeId, tried: str) -> None:
        """Look for a member that was not reached at ``tried``, for at most 1.5 s; cancellable."""
        self._found.pop(peer, None)
        named = self._named.get(peer)
        if not named or named == tried:
            return
        try:
            async with asyncio.timeout(_SECONDS):
                welcome = await answer_to(self._network, named, self._hello)
            if not isinstance(welcome, Welcome) or welcome.node != peer or welcome.members is None:
                return
            members, generation = read_members(welcome.members)
        except (TimeoutError, PeerError):
            return
        if generation > self._raft.core.membership.generation and members.get(peer) == named:
            self._found[peer] = named, generation
