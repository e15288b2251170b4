"""The messages that other parts put into the replica's mailbox, and an address that exists before the replica does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from viewstamp.actors import Ref
from viewstamp.consensus.messages import Message
from viewstamp.consensus.state import SnapshotPoint
from viewstamp.errors import ViewstampError
from viewstamp.ids import Index, NodeId, Term
from viewstamp.node.access import Credentials
from viewstamp.node.applier import Answer
from viewstamp.node.changes import ChangeMembers, Transfer
from viewstamp.node.read_index import Barrier
from viewstamp.value_class import value_class
from viewstamp.wire.batch import Batch

__all__ = [
    "FromPeer",
    "Inbox",
    "InstallSnapshot",
    "Item",
    "Join",
    "LogTrimmed",
    "LostPeer",
    "Proposal",
    "RememberPeer",
    "WaitForIndex",
]


@dataclass(slots=True, eq=False)
class FromPeer:
    """A consensus message has arrived; ``refuse`` ends its connection, None = it has none.

    ``is_beat``: it is a heartbeat between members without work, and the next one follows soon (``beats.py``).
    """

    message: Message
    refuse: Callable[[ViewstampError], None] | None = None
    is_beat: bool = False


@dataclass(slots=True, eq=False)
class Proposal:
    """A client's batch, checked; ``answer`` is called once with its outcome. ``caller`` None = this node itself."""

    batch: Batch
    answer: Answer
    caller: Credentials | None = None


@value_class(kw_only=False)
class WaitForIndex:
    """Linearizable reads: ``barrier`` is released when all that was committed before them has been applied here."""

    barrier: Barrier


@value_class(kw_only=False)
class RememberPeer:
    """A peer has connected for the first time; from now on it must have this incarnation."""

    peer: NodeId
    incarnation: str


@value_class(kw_only=False)
class LostPeer:
    """The process of a peer seems to be dead: its connection has ended, and no process listens at its address."""

    peer: NodeId


@value_class(kw_only=False)
class InstallSnapshot:
    """A leader's snapshot is a durable file, and ``prepared`` was built from it. It replaces the log before its end."""

    point: SnapshotPoint
    prepared: object


@value_class(kw_only=False)
class LogTrimmed:
    """The log on disk begins at ``first_index`` now; ``base`` is (end, last term) of the snapshot before it."""

    first_index: Index
    base: tuple[Index, Term]


@value_class(kw_only=False)
class Join:
    """A node that lost its disk asks to be added; ``is_direct``: not through a member, so a follower forwards it."""

    member: NodeId
    address: str
    is_direct: bool = True


Item = (
    FromPeer
    | Proposal
    | WaitForIndex
    | RememberPeer
    | LostPeer
    | Join
    | ChangeMembers
    | Transfer
    | InstallSnapshot
    | LogTrimmed
)
"""Every message that another part of the node sends to the replica."""


class Inbox:
    """The address of a replica that is created after the parts that write to it.

    Invariants:
      * an item that is put before :meth:`open`, or after :meth:`close`, is dropped, because the replica does not run
    """

    def __init__(self) -> None:
        self._ref: Ref[Item] | None = None

    def open(self, ref: Ref[Item]) -> None:
        """Deliver to ``ref`` from now on."""
        self._ref = ref

    def close(self) -> None:
        """Drop everything from now on."""
        self._ref = None

    def put(self, item: Item) -> None:
        """Put an item into the mailbox, which never refuses it. Never awaits."""
        if self._ref is not None:
            self._ref.put(item)
