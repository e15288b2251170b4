"""Who this member talks to: the links to the others, where they listen, and whose messages it takes.

Consensus messages are taken from four kinds of sources (``docs/design/0008-messages-from-members-only.md``):

1. A member by any membership in this log, from the committed one on, with the disk that is known for it: any of these
   memberships may be in force, and of a joint one both halves are.
2. The leader that this member follows in this term: it leads on while the record of its own removal is committed.
3. A peer that proves that it knows this member's incarnation. It holds a record that names this disk, so it is a member
   by a newer record than this log holds, and may need this member's vote (protocol rules 14, 15).
4. Anybody, while no membership in this log names this member: a newcomer has acknowledged nothing that counts, and
   cannot know its group yet.

Everybody else may connect to ask for admission (JOIN), no more: it reads nothing, is sent nothing, and the address that
it names is never dialed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import NamedTuple

from viewstamp.actors import System
from viewstamp.consensus.messages import Message
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.roles import Lifecycle
from viewstamp.errors import LostDiskError, WrongClusterError
from viewstamp.host.interfaces import Buffer, Network
from viewstamp.host.logger import Logger
from viewstamp.ids import NodeId, name_of
from viewstamp.node.inbox import Inbox, LostPeer, RememberPeer
from viewstamp.node.peers.codec import encode_message
from viewstamp.node.peers.connection import PeerConnection
from viewstamp.node.ports import NodeControl
from viewstamp.wire.frame import FrameKind, encode_frame
from viewstamp.wire.handshake import Hello
from viewstamp.wire.identity_proof import fingerprint, hello_proof
from viewstamp.wire.requests import AskToJoin

__all__ = ["PeerPool"]

_STRANGERS_MAX = 64
"""How many are remembered that opened a connection and are no members as far as this node knows."""


class _Met(NamedTuple):
    """What a peer says of itself that is no member as far as known here; ``is_proven``: it knows this disk."""

    address: str
    incarnation: str
    is_proven: bool


class PeerPool:
    """The other members, as this one reaches them.

    Invariants:
      * one link to each member, and to whoever else messages are for and has said where it listens
    """

    def __init__(
        self,
        raft: Raft,
        system: System,
        *,
        hello: dict[str, object],
        greeting: Callable[[], dict[str, object]],
        inbox: Inbox,
        node: NodeControl,
        network: Network,
        entropy: Random,
        unsent_bytes_max: int,
        log: Logger,
    ) -> None:
        """Begin with no links.

        Args:
          raft: the member's core; only looked at.
          system: where links live.
          hello: what this member says of itself when it connects.
          greeting: what this member says of its state first on each connection.
          inbox: takes which disk a peer had when it was first met, and whose process seems to be dead.
          node: is told that peers know this member with another disk.
          network: where to connect.
          entropy: spreads retries.
          unsent_bytes_max: the bound of each link.
          log: where links report.
        """
        self._raft = raft
        self._system = system
        self._hello = hello
        self._greeting = greeting
        self._inbox = inbox
        self._node = node
        self.trusted: Mapping[NodeId, str] = {}
        """Members by the disk that the newest membership gives them: their messages need no other check."""
        self._network = network
        self._entropy = entropy
        self._unsent_bytes_max = unsent_bytes_max
        self._logger = log
        self._links: dict[NodeId, PeerConnection] = {}
        self._numbers = itertools.count(1)
        self._noted: dict[NodeId, str] = {}
        """Incarnations that ``remember`` was told; it may take a moment until the core knows them."""
        self._met: dict[NodeId, _Met] = {}
        """Those who have connected and are no members as far as known here, at most ``_STRANGERS_MAX``."""

    # -- Speaking --------------------------------------------------------------------------------------------

    def connect_all(self) -> None:
        """Begin to connect to every member; who came before it was one is known by its disk from now on.

        Called after each turn of the replica that has changed the membership, and at the start.
        """
        self.trusted = self._raft.core.membership.incarnations
        for peer in self._raft.core.membership.addresses:
            if name_of(peer) == name_of(self._raft.core.me):
                continue  # This node, or who it was before it lost its disk.
            met = self._met.pop(peer, None)
            if met is not None and peer not in self._raft.core.incarnations:
                self._note(peer, met.incarnation)
            self._link(peer)

    def send(self, message: Message) -> None:
        """Send a message to its target; dropped where nobody knows where that listens.

        To one that has left as long as its link lasts: a leader that removes itself is acknowledged by the others.
        """
        link = self._links.get(message.target)
        if (link is None or link.is_over) and self.address(message.target) is not None:
            link = self._link(message.target)
        connection = link.connection if link is not None else None
        if link is not None and connection is not None and connection.unsent_bytes <= link.unsent_bytes_max:
            connection.send(encode_message(message))

    def send_digest(self, peer: NodeId, body: dict[str, object]) -> None:
        """Send what this member says of its state."""
        self._send_frame(peer, encode_frame(FrameKind.DIGEST, body))

    def ask_to_join(self) -> None:
        """Ask every member to be added, in the place of who this node was; the leader will do it.

        And everybody who has looked for it here: of those whom the settings name none may be left.
        """
        for peer in {**self._raft.core.membership.addresses, **self._met}:
            self._send_frame(
                peer, encode_frame(AskToJoin.kind, AskToJoin(address=str(self._hello["address"])).to_map())
            )

    def pass_on(self, leader: NodeId, member: NodeId, address: str) -> None:
        """Tell the leader that ``member`` asks to be added."""
        ask = AskToJoin(address=address, member=member)
        self._send_frame(leader, encode_frame(ask.kind, ask.to_map()))

    def _send_frame(self, peer: NodeId, frame: list[Buffer]) -> None:
        if name_of(peer) != name_of(self._raft.core.me) and self.address(peer) is not None:
            self._link(peer).send(frame)

    def address(self, peer: NodeId) -> str | None:
        """Return where a peer listens; None = not known, or no member any more.

        The address that a peer names itself is believed only where its messages are taken.
        """
        core = self._raft.core
        for entry in reversed(core.memberships):
            if peer in entry.membership.addresses:
                return entry.membership.addresses[peer]
        met = self._met.get(peer)
        return met.address or None if met is not None and (met.is_proven or core.is_newcomer) else None

    def _link(self, peer: NodeId) -> PeerConnection:
        link = self._links.get(peer)
        if link is None or link.is_over:
            link = PeerConnection(
                peer,
                lambda: self.address(peer),
                is_meant=lambda found: self._is_meant(peer, found),
                hello=lambda: self._hello_to(peer),
                network=self._network,
                entropy=self._entropy,
                unsent_bytes_max=self._unsent_bytes_max,
                on_lost=lambda lost: self._inbox.put(LostPeer(lost)),
                on_lost_disk=self._node.on_lost_disk,
                greeting=lambda: encode_frame(FrameKind.DIGEST, self._greeting()),
                log=self._logger,
            )
            self._links[peer] = link
            # Numbered: a link that is over keeps its name for the rest of the turn, and its peer may be back by then.
            self._system.spawn(link, name=f"link-{peer}-{next(self._numbers)}")
        return link

    def _hello_to(self, peer: NodeId) -> dict[str, object]:
        """Return what this member says of itself to ``peer``, with the proof that it knows that member's disk."""
        known = self._known(peer)
        return self._hello if known is None else {**self._hello, "proof": hello_proof(known, self._hello)}

    def _is_meant(self, peer: NodeId, found: object) -> bool:
        """Say whether who answers is whom a link is for.

        A reborn node that holds nothing knows the members by its settings only. Any of them may have lost its disk as
        well, and be called otherwise by now: it is asked to add this one all the same.
        """
        core = self._raft.core
        is_hint = core.me != name_of(core.me) and core.log.end == 1
        return found == peer or (is_hint and name_of(str(found)) == peer)

    # -- Listening -------------------------------------------------------------------------------------------

    def meet(self, peer: NodeId, hello: Hello) -> bool:
        """Check who opens a peer connection, by its checked HELLO; return whether its messages are taken.

        Only such a peer may read this member's log and snapshots, because they hold the incarnations of all members.

        A peer that is no member by this log may lead by a membership that this log does not hold yet. It is refused if
        this member hears a leader and is RUNNING, because then it lacks nothing; or if it cannot prove that it belongs
        to the group. (The generation as a gate deadlocks: protocol rule 15.) A node that lost its disk may join.

        Raises:
          WrongClusterError: no member of the group.
          LostDiskError: its disk is not the one it had: what it had acknowledged and voted may be gone, so it is no
            member any more under this id (protocol rule 18).
        """
        core = self._raft.core
        incarnation, address, proof = hello.incarnation, hello.address or "", hello.proof
        if peer == core.me:
            raise WrongClusterError(
                f"this is {peer} itself: another node has its id, or an address in [cluster] members is this node's",
                remedy="correct [node] id, or the address of the member that is meant",
            )
        self.check_disk(peer, incarnation)
        known = self._known(peer)
        if peer in core.membership.addresses:
            if known is None:
                self._note(peer, incarnation)
            self._met.pop(peer, None)
            return True
        is_proven = proof is not None and proof == hello_proof(str(self._hello["incarnation"]), hello.to_map())
        met = _Met(address, incarnation, is_proven)
        is_taken = self._is_taken(peer, met)
        is_sure = core.lifecycle is Lifecycle.RUNNING and core.has_live_leader
        if not self._may_join(peer) and (is_sure or not is_taken):
            raise self._refusal(peer)
        self._met.pop(peer, None)
        self._met[peer] = met
        while len(self._met) > _STRANGERS_MAX:
            unproven = (other for other, each in self._met.items() if not each.is_proven)
            del self._met[next(unproven, next(iter(self._met)))]
        return is_taken

    def check_source(self, peer: NodeId, incarnation: str) -> None:
        """Check with each consensus message whether it is taken from ``peer``: see the table of this module.

        With each, and not only as it connects, since a membership record may have come or gone meanwhile.

        Raises:
          LostDiskError: the peer has another disk than it had.
          WrongClusterError: it is nobody whose messages are taken.
        """
        if self._raft.core.membership.incarnations.get(peer) == incarnation:
            return  # As almost always.
        self.check_disk(peer, incarnation)
        if not self._is_taken(peer, self._met.get(peer)):
            raise self._refusal(peer)

    def takes_reports(self, peer: NodeId, incarnation: str) -> bool:
        """Return whether what ``peer`` reports of its state is taken, by the same rule as its messages.

        Reports of others are dropped and their connection goes on, because a node that asks to join reports as well.

        Raises:
          LostDiskError: the peer has another disk than it had.
        """
        with suppress(WrongClusterError):
            self.check_source(peer, incarnation)
            return True
        return False

    def _is_taken(self, peer: NodeId, met: _Met | None) -> bool:
        core = self._raft.core
        is_proven = met is not None and met.is_proven
        return core.is_known(peer) or peer == core.leader or is_proven or core.is_newcomer

    def _refusal(self, peer: NodeId) -> WrongClusterError:
        return WrongClusterError(
            f"{peer} is no member of this group: {', '.join(self._raft.core.membership.addresses)}",
            remedy=f"correct [node] id; or `viewstamp members add {peer}` first",
        )

    def check_disk(self, peer: NodeId, incarnation: str) -> None:
        """Check the disk of a peer.

        Learners too: here a learner may be a voter elsewhere already, and its connection outlasts its promotion.

        Raises:
          LostDiskError: it is another one.
        """
        known = self._known(peer)
        if known is not None and known != incarnation:
            raise LostDiskError(
                f"{peer} came back with another disk (fingerprint {fingerprint(incarnation)}, known"
                f" {fingerprint(known)}): its votes are lost",
                remedy=f"if the data directory of {peer} was moved, put it back; else it joins anew by itself, under"
                " another id",
            )

    def _known(self, peer: NodeId) -> str | None:
        core = self._raft.core
        return core.membership.incarnations.get(peer) or self._noted.get(peer) or core.incarnations.get(peer)

    def _may_join(self, peer: NodeId) -> bool:
        """Say whether a stranger is a member that has lost its disk."""
        return "~" in peer

    def _note(self, peer: NodeId, incarnation: str) -> None:
        self._noted[peer] = incarnation
        self._inbox.put(RememberPeer(peer, incarnation))

    # -- Looking ---------------------------------------------------------------------------------------------

    @property
    def connected(self) -> list[NodeId]:
        """Those to whom messages flow."""
        return [peer for peer, link in self._links.items() if link.is_connected]

    @property
    def missing(self) -> tuple[set[NodeId], str]:
        """Which other voters are not connected, and why those that answer refuse this member ("" = they do not)."""
        core, refusals = self._raft.core, self.refusals
        away = set(core.membership.electors) - {core.me, *self.connected, *refusals}
        return away, "; ".join(f"{peer} refuses {core.me}: {refusal}" for peer, refusal in refusals.items())

    @property
    def refusals(self) -> dict[NodeId, str]:
        """Why peers refuse this member, by who does."""
        return {peer: link.refusal for peer, link in self._links.items() if link.refusal and not link.is_over}
