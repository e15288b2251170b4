"""The interfaces through which the replica and the parts around it call their neighbours: one Protocol for each.

``ArchivingService`` is that of the requests about the archive.

``parts`` creates the neighbours and passes them in; nothing is assigned to a part after it was created. In the other
direction every neighbour writes to the replica's :class:`~viewstamp.node.inbox.Inbox`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from viewstamp.actors import Failure
from viewstamp.consensus.messages import Message, SnapshotOffer
from viewstamp.consensus.ready import Fetch
from viewstamp.errors import CorruptionError, LostDiskError, ViewstampError
from viewstamp.ids import GroupId, NodeId, Position
from viewstamp.node.archived import ArchivedReads
from viewstamp.node.beats import Beats
from viewstamp.node.inbox import Join
from viewstamp.wire.batch import Kind
from viewstamp.wire.ordering import PlacedPart, StreamReport

__all__ = [
    "ArchivingService",
    "GroupControl",
    "LogFetchPort",
    "NodeControl",
    "PeerPort",
    "SnapshotOfferPort",
    "SnapshotPort",
]


class NodeControl(Protocol):
    """Receives the reports of a group about events that concern the whole node, and has the state of the node."""

    @property
    def address(self) -> str:
        """Return the address at which other members reach this node."""
        ...

    @property
    def beats(self) -> Beats:
        """Return what sends the heartbeats of all groups of the node but group 0."""
        ...

    @property
    def archived(self) -> ArchivedReads:
        """Return what reads archived records for all groups of the node."""
        ...

    @property
    def group_count(self) -> int:
        """Return the number of groups that the node hosts; they share its memory."""
        ...

    @property
    def hands_over(self) -> bool:
        """Return whether a leader hands over before it stops."""
        ...

    def address_of(self, member: NodeId) -> str | None:
        """Return the address of the node of a member, by the membership of group 0; None = unknown."""
        ...

    def on_change(self, group: GroupId) -> None:
        """Report a change of role, term, leader, lifecycle or membership in a group."""
        ...

    def take_streams(
        self, source: NodeId, reports: Sequence[StreamReport], parts: Sequence[PlacedPart], *, is_awaited: bool
    ) -> None:
        """Take reports about streams of one group, which the node ``source`` has sent, if this node leads group 0.

        ``is_awaited``: a caller waits for the global positions.
        """
        ...

    def on_placement(self) -> None:
        """Report that the applied state of group 0 may have another placement of groups than before."""
        ...

    def on_order(self, group: GroupId) -> None:
        """Report that the applied state of a group may know more global positions than before."""
        ...

    def on_decision(self) -> None:
        """Report that the applied state of group 0 may have a batch over several groups that it had not before."""
        ...

    def on_join(self, group: GroupId, join: Join) -> None:
        """Report that a node asks the leader of a group, on this node, to be added."""
        ...

    def on_found(self, group: GroupId) -> None:
        """Report that this node has found records of a group committed before their leader said so."""
        ...

    def on_failed(self, group: GroupId, failure: Failure) -> None:
        """Report that a part of a group has failed; its other parts are being stopped."""
        ...

    def end_connections(self, group: GroupId) -> None:
        """Close every connection of a group, because the parts that answer are stopping, or its member has a new id."""
        ...


class GroupControl(Protocol):
    """Receives the reports of the parts about events that concern their whole group."""

    def address_of(self, member: NodeId) -> str | None:
        """Return the address that counts instead of the one that the group has on record; None = there is none."""
        ...

    def on_change(self) -> None:
        """Report the end of a turn that changed the role, term, leader, lifecycle or membership."""
        ...

    def on_placement(self) -> None:
        """Report that a record about groups, or a snapshot, was applied."""
        ...

    def on_join(self, join: Join) -> None:
        """Report that a node asks this leader to be added, which takes the place of no member."""
        ...

    def on_order(self) -> None:
        """Report that a record about global positions, or a snapshot, was applied."""
        ...

    def on_decision(self) -> None:
        """Report that a COMMIT_PARTS, or a snapshot, was applied."""
        ...

    def on_found(self) -> None:
        """Report that the core has found records committed before their leader said so; they may be applied now."""
        ...

    def on_superseded(self, reason: str) -> None:
        """Set the log aside and begin without one, because the group lost records that are committed here."""
        ...

    def on_lost_disk(self, error: LostDiskError) -> None:
        """React to peers that have another incarnation, and so another disk, of this member on record."""
        ...

    def on_rot(self, error: CorruptionError) -> None:
        """Repair the log or a snapshot, because bytes of it are damaged."""
        ...


class PeerPort(Protocol):
    """Sends messages to the other members. No call awaits, and every message may be lost."""

    def send(self, message: Message) -> None:
        """Send a consensus message to its target."""
        ...

    def pass_on(self, leader: NodeId, member: NodeId, address: str) -> None:
        """Send to ``leader`` that ``member``, which listens at ``address``, asks to be added."""
        ...


class SnapshotPort(Protocol):
    """The snapshots of this member."""

    wanted_bytes: int
    """The size of the largest batch for which the log had no room: so much is freed."""

    @property
    def is_behind(self) -> bool:
        """Return whether a bounded log has to wait for a snapshot before it may grow."""
        ...

    @property
    def failure(self) -> ViewstampError | None:
        """Return why the last snapshot could not be taken; None = it was taken."""
        ...

    def explain_full(self) -> str:
        """Return how to free space in a full log, as text; "" = unknown."""
        ...

    def let_go(self) -> None:
        """Cancel the snapshot that is being taken, because the state is about to be replaced."""
        ...


class SnapshotOfferPort(Protocol):
    """Fetches a snapshot that the leader offers."""

    def offer(self, offer: SnapshotOffer) -> None:
        """Take an offer. Never awaits; the fetched snapshot arrives as ``InstallSnapshot``."""
        ...


class LogFetchPort(Protocol):
    """Reads batches from disk that the core sends to a member that is far behind."""

    def begin(self, fetch: Fetch) -> None:
        """Begin to read. Never awaits; the answer comes as ``BatchesRead``, in a ``FromPeer``."""
        ...


class ArchivingService(Protocol):
    """The archiving of topics by the leader of their group. The calls raise as those of ``Archivist``."""

    async def archive(self, name: str, end: int, delay: int | None) -> tuple[Position, bool]:
        """Archive the records of a topic before ``end``; return the archived end, and whether it goes on."""
        ...

    def is_begun(self, name: str, end: int, delay: int | None) -> bool:
        """Return whether this is being done already. Raises UnavailableError in the pause behind a failure."""
        ...

    async def probe_settings(self, kind: Kind = Kind.CONFIGURE_ARCHIVE) -> None:
        """Check that all members can read the settings of a topic that a kind of record has."""
        ...

    async def check_usable(self) -> None:
        """Check that this node leads, and can use the store."""
        ...

    async def check(self, run: int) -> str | None:
        """Check the object of a run; return its damage, "" = none, None = it is being read."""
        ...

    async def find_orphans(self, *, remove: bool) -> dict[int, int] | None:
        """Return the sizes of objects that belong to no run, by id; None = not done yet."""
        ...
