"""The seam upwards: what a node replicates. ``streams/`` implements it; the node knows nothing of topics.

Everything here is synchronous, deterministic and per batch, never per record. The node calls from its
event loop, one call at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from viewstamp.ids import Index, Position, Term
from viewstamp.wire.batch import Batch

__all__ = ["Accepted", "Admission", "Answered", "Receipt", "Result", "StateMachine", "Waiting"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a batch of records got: where it stands, in its topic and in the log."""

    first_position: Position
    count: int
    term: Term
    first_index: Index
    log_time: int


Result = Receipt | dict[str, object] | None
"""What applying a batch answers: a receipt for records, a map for a command, None for "not applied, and fenced"."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Append the batch to the log; ``first_position`` goes into its header (0 where it holds no topic's records)."""

    first_position: Position


@dataclass(frozen=True, slots=True)
class Answered:
    """A retry of a batch that has been applied: answer ``result``, append nothing."""

    result: Result


@dataclass(frozen=True, slots=True)
class Waiting:
    """A retry of a batch that is in the log but not applied yet: answer when that one is applied, append nothing."""


Admission = Accepted | Answered | Waiting


class StateMachine(Protocol):
    """A deterministic state machine that follows the log.

    Invariants:
      * ``apply`` is called once for each committed batch, in log order, on every member
      * ``admit`` is called on the leader only, between ``begin_leading`` and ``stop_leading``, and sees
        every batch that enters the log in that time
    """

    def begin_leading(self) -> None:
        """Start admitting: all that earlier terms left in the log has been applied."""
        ...

    def stop_leading(self) -> None:
        """Stop admitting; what was admitted and not applied may or may not come. Idempotent."""
        ...

    def admit(self, batch: Batch) -> Admission:
        """Decide what becomes of a client's batch before it enters the log.

        Raises:
          RequestError: the batch is wrong and will always be refused (unknown topic or session).
          UnavailableError: not now, and certainly not in the log (a gap in the session's sequence).
        """
        ...

    def apply(self, batch: Batch) -> Result:
        """Apply a committed batch and return what its caller is told.

        A deterministic refusal is raised as RequestError: it *is* the replicated result.

        Raises:
          CorruptionError: the batch contradicts the state. The node stops.
        """
        ...

    def query(self, name: str, /, **arguments: object) -> object:
        """Read the state. Raises RequestError where the question has no answer."""
        ...

    def snapshot(self) -> bytes:
        """Return an image of the whole state."""
        ...

    def restore(self, image: bytes) -> None:
        """Replace the state by an image."""
        ...

    def digest(self) -> bytes:
        """Return a digest of the state: equal on all members that have applied the same prefix."""
        ...
