"""What the replica, and the parts around it, ask of each neighbour: one Protocol per neighbour.

``parts`` builds the neighbours and hands them in; nothing is assigned to a part after it was made. In the other
direction every neighbour writes to the replica's :class:`~viewstamp.node.inbox.Inbox`.
"""

from __future__ import annotations

from typing import Protocol

from viewstamp.consensus.messages import Message, SnapshotOffer
from viewstamp.consensus.ready import Fetch
from viewstamp.errors import CorruptionError, LostDiskError, ViewstampError
from viewstamp.ids import NodeId

__all__ = ["LogFetchPort", "NodeControl", "PeerPort", "SnapshotOfferPort", "SnapshotPort"]


class NodeControl(Protocol):
    """The node, as its parts see it: they report what a part cannot deal with by itself."""

    def on_change(self) -> None:
        """Role, term, leader, lifecycle or membership has changed in the turn that ends."""
        ...

    def on_superseded(self, reason: str) -> None:
        """The group has gone on without records that are committed here: set the log aside and begin anew."""
        ...

    def on_lost_disk(self, error: LostDiskError) -> None:
        """Peers know this member by another disk."""
        ...

    def on_rot(self, error: CorruptionError) -> None:
        """Bytes of the log or of a snapshot are not what was written."""
        ...


class PeerPort(Protocol):
    """The other members, as the replica reaches them. Nothing here awaits; everything may be lost."""

    def send(self, message: Message) -> None:
        """Send a consensus message to its target."""
        ...

    def pass_on(self, leader: NodeId, member: NodeId, address: str) -> None:
        """Tell ``leader`` that ``member``, which listens at ``address``, asks to be added."""
        ...


class SnapshotPort(Protocol):
    """The member's own snapshots, as the replica uses them."""

    @property
    def is_behind(self) -> bool:
        """Whether a bounded log has to wait for a snapshot before it may grow."""
        ...

    @property
    def failure(self) -> ViewstampError | None:
        """Why the last snapshot could not be taken; None = it was."""
        ...

    def explain_full(self) -> str:
        """Return what would make room in a full log, for people; "" = nothing is known to."""
        ...

    def let_go(self) -> None:
        """Give up the snapshot that is being taken, because the state is about to be replaced."""
        ...


class SnapshotOfferPort(Protocol):
    """Where a leader's offer of a snapshot goes."""

    def offer(self, offer: SnapshotOffer) -> None:
        """Take an offer. Never awaits; what becomes of it comes as ``InstallSnapshot``."""
        ...


class LogFetchPort(Protocol):
    """Reads from disk what the core wants to send to a member that is far behind."""

    def begin(self, fetch: Fetch) -> None:
        """Begin to read. Never awaits; the answer comes as ``BatchesRead``, in a ``FromPeer``."""
        ...
