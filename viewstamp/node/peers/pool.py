"""The links to the other members, their addresses, and the accepted sources of messages.

Consensus messages are accepted from four kinds of sources (``docs/design/0008-messages-from-members-only.md``):

1. A member by any membership in this log, from the committed one on, with its known disk, because any of these
   memberships may be in force, and of a joint one both halves are.
2. The leader that this member follows in this term, because it still leads while its own removal is being committed.
3. A peer that proves that it knows this member's incarnation. It holds a record that names this disk, so it is a member
   by a newer record than this log holds, and may need this member's vote (protocol rules 14, 15).
4. Any node, while no membership in this log names this member, because a new member has acknowledged nothing that
   counts, and does not have the membership yet.

Every other node may connect only to ask for admission (JOIN). It may not read, is sent nothing, and the address that it
names is never dialed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple, cast

from viewstamp.actors import System
from viewstamp.consensus.messages import DurableNotice, HeartbeatRequest, HeartbeatResponse, Message
from viewstamp.consensus.quiet import is_in_step
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.roles import Lifecycle
from viewstamp.errors import LostDiskError, WrongClusterError
from viewstamp.host.interfaces import Buffer, Network
from viewstamp.host.logger import Logger
from viewstamp.ids import GROUP_0, ClusterId, GroupId, NodeId, name_of
from viewstamp.node.beats import Beats, Heartbeat
from viewstamp.node.inbox import Inbox, LostPeer, RememberPeer
from viewstamp.node.peers.codec import encode_message
from viewstamp.node.peers.connection import PeerConnection
from viewstamp.node.peers.moved import MovedPeers
from viewstamp.node.ports import GroupControl
from viewstamp.wire.frame import FrameKind, encode_frame
from viewstamp.wire.handshake import Hello
from viewstamp.wire.identity_proof import fingerprint, hello_proof
from viewstamp.wire.ordering import PlacedPart, StreamReport
from viewstamp.wire.peer_requests import AskToJoin, ReportHosted, ReportLeft, ReportStreams

__all__ = ["PeerPool"]

_STRANGERS_MAX = 64
"""Number of kept peers that opened a connection and are no members by this node's log."""


class _Met(NamedTuple):
    """The HELLO of a peer that is no member by this log; ``is_proven``: it has shown this node's incarnation."""

    address: str
    incarnation: str
    is_proven: bool


class PeerPool:
    """The links to the other members.

    Invariants:
      * one link to each member, and to each other receiver of messages that has named its address
    """

    def __init__(
        self,
        raft: Raft,
        system: System,
        *,
        hello: dict[str, object],
        greeting: Callable[[], dict[str, object]],
        beats: Beats,
        inbox: Inbox,
        group: GroupControl,
        network: Network,
        entropy: Random,
        unsent_bytes_max: int,
        log: Logger,
    ) -> None:
        """Begin with no links.

        Args:
          raft: the member's core; only read.
          system: runs the links.
          hello: returns the HELLO of this member.
          greeting: returns the first report of this member on each connection.
          beats: sends heartbeats, if this is not group 0.
          inbox: receives the disk of a peer that connects for the first time, and peers whose process seems dead.
          group: receives the report that peers have another disk of this member on record.
          network: for connections.
          entropy: spreads retries.
          unsent_bytes_max: limit of unsent bytes of each link.
          log: the logger of the links.
        """
        self._raft = raft
        self._system = system
        self._hello = hello
        self._greeting = greeting
        self._beats = beats
        self._group_id = GroupId(cast(int, hello.get("group", GROUP_0)))
        self._incarnation = str(hello["incarnation"])
        self._inbox = inbox
        self._group = group
        self.trusted: Mapping[NodeId, str] = {}
        """Members with their disks by the newest membership. Their messages need no other check."""
        self._network = network
        self._entropy = entropy
        self._unsent_bytes_max = unsent_bytes_max
        self._logger = log
        self._links: dict[NodeId, PeerConnection] = {}
        self._numbers = itertools.count(1)
        self._noted: dict[NodeId, str] = {}
        """Incarnations that were put into the inbox, because the core has them only a turn later."""
        self._moved = MovedPeers(raft, ClusterId(str(hello["cluster"])), self._group_id, network)
        self._met: dict[NodeId, _Met] = {}
        """Peers that have connected and are no members by this log, at most ``_STRANGERS_MAX``."""

    # -- Sending ---------------------------------------------------------------------------------------------

    def connect_all(self) -> None:
        """Begin to connect to every member, and store the disks of peers that connected before they were members.

        Called after each turn of the replica that has changed the membership, and at the start.
        """
        self.trusted = self._raft.core.membership.incarnations
        for peer in self._raft.core.membership.addresses:
            if name_of(peer) == name_of(self._raft.core.me):
                continue  # This node, or its id from before it lost its disk.
            met = self._met.pop(peer, None)
            if met is not None and peer not in self._raft.core.incarnations:
                self._note(peer, met.incarnation)
            self._link(peer)

    def limit_unsent(self, unsent_bytes_max: int) -> None:
        """Set the limit of unsent bytes of each link; links that hold more drop messages until they hold less."""
        self._unsent_bytes_max = unsent_bytes_max
        for link in self._links.values():
            link.unsent_bytes_max = unsent_bytes_max

    def send(self, message: Message) -> None:
        """Send a message to its target; it is dropped if the address is unknown.

        A removed member gets messages while its link lasts, because a leader that removes itself needs the others'
        acknowledgements.
        """
        link = self._links.get(message.target)
        if (link is None or link.is_over) and self.address(message.target) is not None:
            link = self._link(message.target)
        connection = link.connection if link is not None else None
        if link is not None and connection is not None and connection.unsent_bytes <= link.unsent_bytes_max:
            is_heartbeat = link.takes_beats and isinstance(message, HeartbeatRequest | HeartbeatResponse)
            if is_heartbeat and is_in_step(self._raft.core, beat := cast("Heartbeat", message)):
                self._beats.send(name_of(message.target), link, (self._group_id, self._incarnation, beat))
            elif link.takes_notices or message.__class__ is not DurableNotice:  # An older release cannot read it.
                connection.send(encode_message(message))

    def send_digest(self, peer: NodeId, body: dict[str, object]) -> None:
        """Send a report on this member's state."""
        self._send_frame(peer, encode_frame(FrameKind.DIGEST, body))

    def ask_to_join(self) -> None:
        """Ask every member to replace this node's old id by the new one; the leader makes the change.

        Peers that have connected here are asked too, because none of the members in the settings may be left.
        """
        for peer in {**self._raft.core.membership.addresses, **self._met}:
            self._send_frame(
                peer, encode_frame(AskToJoin.kind, AskToJoin(address=str(self._hello["address"])).to_map())
            )

    def pass_on(self, leader: NodeId, member: NodeId, address: str) -> None:
        """Send to the leader that ``member`` asks to be added."""
        ask = AskToJoin(address=address, member=member)
        self._send_frame(leader, encode_frame(ask.kind, ask.to_map()))

    def report_hosted(self, leader: NodeId, group: GroupId, incarnation: str) -> None:
        """Send to the leader the disk of this node in a group that was placed on it."""
        report = ReportHosted(group=group, incarnation=incarnation)
        self._send_frame(leader, encode_frame(report.kind, report.to_map()))

    def report_left(self, leader: NodeId, group: GroupId, node: NodeId) -> None:
        """Send to the leader that a node is no member of a group any more."""
        report = ReportLeft(group=group, node=node)
        self._send_frame(leader, encode_frame(report.kind, report.to_map()))

    def report_streams(
        self,
        leader: NodeId,
        group: GroupId,
        reports: Sequence[StreamReport],
        parts: Sequence[PlacedPart],
        *,
        is_awaited: bool,
    ) -> None:
        """Send to the leader the committed ends of streams of a group, and the placed parts of batches."""
        ends: list[object] = [
            [report.stream.name, report.end, report.mapped, *[True] * report.is_sealed] for report in reports
        ]
        placed: list[object] = [[part.stream.name, part.commit, part.end] for part in parts]
        asked = ReportStreams(group=group, ends=ends, is_awaited=is_awaited, parts=placed or None)
        self._send_frame(leader, encode_frame(asked.kind, asked.to_map()))

    def _send_frame(self, peer: NodeId, frame: list[Buffer]) -> None:
        if name_of(peer) != name_of(self._raft.core.me) and self.address(peer) is not None:
            self._link(peer).send(frame)

    def address(self, peer: NodeId) -> str | None:
        """Return the address of a peer; None = unknown, or no member any more.

        The address that a peer names itself is used only if its messages are accepted; that of a member, only if a
        newer record has it (``moved.py``).
        """
        core = self._raft.core
        for entry in reversed(core.memberships):
            if peer in entry.membership.addresses:
                newer = self._group.address_of(peer) or self._moved.address(peer)
                return newer or entry.membership.addresses[peer]
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
                on_lost_disk=self._group.on_lost_disk,
                on_unreached=lambda tried: self._moved.look(peer, tried),
                greeting=lambda: encode_frame(FrameKind.DIGEST, self._greeting()),
                log=self._logger,
            )
            self._links[peer] = link
            # Numbered, because an ended link keeps its name for the rest of the turn, in which its peer may come back.
            self._system.spawn(link, name=f"link-{peer}-{next(self._numbers)}")
        return link

    def _hello_to(self, peer: NodeId) -> dict[str, object]:
        """Return the HELLO to ``peer``, with the proof that this member has that member's incarnation."""
        known = self._known(peer)
        return self._hello if known is None else {**self._hello, "proof": hello_proof(known, self._hello)}

    def _is_meant(self, peer: NodeId, found: object) -> bool:
        """Return whether the node that answers is the intended peer of a link.

        A node that lost its disk has only the members in its settings. Any of them may have lost its disk too, and have
        a new id by now. It is accepted and asked to add this node all the same.
        """
        core = self._raft.core
        is_hint = core.me != name_of(core.me) and core.log.end == 1
        return found == peer or (is_hint and name_of(str(found)) == peer)

    # -- Receiving -------------------------------------------------------------------------------------------

    def meet(self, peer: NodeId, hello: Hello) -> bool:
        """Check the opener of a peer connection, by its HELLO. Returns whether its messages are accepted.

        Only such a peer may read this member's log and snapshots, because they hold the incarnations of all members.

        A peer that is no member by this log may lead by a membership that this log does not hold yet. It is refused if
        this member has a leader and is RUNNING, because then it lacks nothing; or if it cannot prove that it belongs
        to the group. (The generation as a gate deadlocks: protocol rule 15.) A node that lost its disk may join.

        Raises:
          WrongClusterError: no member of the group.
          LostDiskError: it has another disk than before. Its acknowledgements and votes may be lost, so it is no
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
            self._moved.note(peer, address)
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
        """Check for each consensus message whether it is accepted from ``peer``; see the list of this module.

        It is checked for each message, because the membership may have changed since the connection began.

        Raises:
          LostDiskError: the peer has another disk than it had.
          WrongClusterError: messages of the peer are not accepted.
        """
        if self._raft.core.membership.incarnations.get(peer) == incarnation:
            return  # The usual case.
        self.check_disk(peer, incarnation)
        if not self._is_taken(peer, self._met.get(peer)):
            raise self._refusal(peer)

    def takes_reports(self, peer: NodeId, incarnation: str) -> bool:
        """Return whether reports of ``peer`` on its state are accepted, by the same rule as its messages.

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

        Learners are checked too, because by a newer membership they may be voters, and the connection stays open.

        Raises:
          LostDiskError: it is another one.
        """
        known = self._known(peer)
        if known is not None and known != incarnation:
            raise LostDiskError(
                f"{peer} came back with another disk (fingerprint {fingerprint(incarnation)}, known"
                f" {fingerprint(known)}): its votes are lost",
                remedy=f"if the data directory of {peer} was moved, put it back; otherwise it joins again by itself,"
                " under another id",
            )

    def _known(self, peer: NodeId) -> str | None:
        core = self._raft.core
        return core.membership.incarnations.get(peer) or self._noted.get(peer) or core.incarnations.get(peer)

    def _may_join(self, peer: NodeId) -> bool:
        """Return whether a node that is no member is one that has lost its disk."""
        return "~" in peer

    def _note(self, peer: NodeId, incarnation: str) -> None:
        self._noted[peer] = incarnation
        self._inbox.put(RememberPeer(peer, incarnation))

    # -- Reading ---------------------------------------------------------------------------------------------

    @property
    def connected(self) -> list[NodeId]:
        """Return the peers to which a link is open."""
        return [peer for peer, link in self._links.items() if link.is_connected]

    @property
    def missing(self) -> tuple[set[NodeId], str]:
        """Return the other voters without an open link, and the reasons of those that refuse this member."""
        core, refusals = self._raft.core, self.refusals
        away = set(core.membership.electors) - {core.me, *self.connected, *refusals}
        return away, "; ".join(f"{peer} refuses {core.me}: {refusal}" for peer, refusal in refusals.items())

    @property
    def refusals(self) -> dict[NodeId, str]:
        """Return for each peer that refuses this member its reason."""
        return {peer: link.refusal for peer, link in self._links.items() if link.refusal and not link.is_over}
