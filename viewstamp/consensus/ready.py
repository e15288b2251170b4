"""The one output of a turn: the work that the owner of the core has to carry out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from viewstamp.consensus.messages import BatchesRead, Message, SnapshotOffer
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Term, Viewstamp
from viewstamp.value_class import value_class
from viewstamp.wire.batch import Batch

__all__ = [
    "AppendLog",
    "EndRecovery",
    "Fetch",
    "Ready",
    "ResetLog",
    "TruncateLog",
    "Write",
    "WriteHistory",
    "WriteTerm",
]


@value_class(kw_only=False)
class WriteTerm:
    """Store term and vote ("" = none) as one durable write."""

    term: Term
    vote: str


@value_class(kw_only=False)
class WriteHistory:
    """Store the term history."""

    history: TermHistory


@value_class(kw_only=False)
class EndRecovery:
    """Clear the pair that this member had to regain, because its log has reached that pair (protocol rule 17)."""


@value_class(kw_only=False)
class TruncateLog:
    """Cut the log to ``end`` and sync it."""

    end: Index


@value_class(kw_only=False)
class ResetLog:
    """Drop the whole log, because an installed snapshot holds all before ``end``. Its last record is of ``term``."""

    end: Index
    term: Term


@value_class(kw_only=False)
class AppendLog:
    """Append ``batches`` and sync them."""

    batches: list[Batch]


Write = WriteTerm | WriteHistory | EndRecovery | TruncateLog | ResetLog | AppendLog


@value_class(kw_only=False)
class Fetch:
    """Read batches from disk for a member that is far behind; the answer has the same numbers."""

    member: NodeId
    term: Term
    number: int
    start: Index
    bytes_max: int

    def answer(self, me: NodeId, batches: Sequence[Batch]) -> BatchesRead:
        """Return the answer to the core of ``me``, the member that asked."""
        return BatchesRead(
            source=me,
            target=me,
            term=self.term,
            member=self.member,
            number=self.number,
            start=self.start,
            batches=tuple(batches),
        )


@dataclass(slots=True, eq=False, kw_only=True)
class Ready:
    """One turn's work, to be done in the order of the fields.

    * ``messages`` promise only state that is already durable, so they are sent immediately, before the writes. So the
      followers write at the same time as the leader (Raft thesis 10.2.1).
    * ``writes`` are made durable in exactly this order, behind all earlier ones.
    * ``durable`` is passed to ``Raft.durable()`` when all writes handed out so far are durable, those of earlier turns
      too; None = there are neither writes nor messages that wait.
    * ``messages_after_durable`` are sent then, also if this turn has no writes, because the vote that they repeat may
      still be on its way to the disk. Those addressed to the node itself are stepped.
    * ``committed`` are applied in order; they may not be durable *here* yet.
    * ``reads`` may be answered once everything up to their index has been applied.
    * ``fetches`` are read from disk in the background.
    * ``offer`` is a leader's snapshot that this member needs: to be fetched in the background and installed
      (``Raft.install``); None = none, or one that was handed out before.
    * ``superseded`` gives, in interval mode, the reason why this log has to be set aside and begun anew: the group lost
      records that are committed here, and went on without them. "" = there is no such reason.
    """

    messages: list[Message] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    durable: Viewstamp | None = None
    messages_after_durable: list[Message] = field(default_factory=list)
    committed: list[Batch] = field(default_factory=list)
    reads: list[tuple[int, Index]] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)
    offer: SnapshotOffer | None = None
    superseded: str = ""
