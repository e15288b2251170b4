"""What a client hands to its caller: receipts, outcomes, topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from viewstamp.client.draft import Receipt as BatchReceipt
from viewstamp.ids import Index, Position, Term, Viewstamp

__all__ = ["DURABILITY", "Outcome", "Receipt", "TopicInfo", "new_receipt", "receipts_of", "topic_info"]

DURABILITY = "majority, synced"
"""What every receipt promises: on the disks of a majority, each of them synced before it answered."""


class Receipt(NamedTuple):
    """Where an acknowledged record stands. A tuple, because one is made for every record.

    ``timestamp`` is the log time of the record's batch in microseconds since 1970.
    """

    position: Position
    term: Term
    index: Index  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a receipt
    timestamp: int

    @property
    def viewstamp(self) -> Viewstamp:
        """The identity of the record: (term, index)."""
        return Viewstamp(self.term, self.index)

    @property
    def durability(self) -> str:
        """How durable the record was when it was acknowledged."""
        return DURABILITY


new_receipt = tuple.__new__
"""``new_receipt(Receipt, fields)``: half the cost of calling the named tuple, once per record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an append whose caller was told that its outcome is unknown. Final either way.

    ``applied`` False: it did not happen and never will, because its sequence is fenced. Then ``receipts`` is empty.
    """

    applied: bool
    receipts: list[Receipt]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as a node described it. Positions are inclusive; ``last_position`` 0 = empty."""

    name: str
    first_position: Position
    last_position: Position
    bytes: int


def receipts_of(receipt: BatchReceipt, offset: int, size: int) -> list[Receipt]:
    """Return the receipts of records ``offset`` to ``offset + size`` of a batch."""
    return [
        Receipt(
            Position(receipt.first_position + at),
            Term(receipt.term),
            Index(receipt.first_index + at),
            receipt.log_time,
        )
        for at in range(offset, offset + size)
    ]


def topic_info(topic: dict[str, Any]) -> TopicInfo:
    """Return what a node said of a topic."""
    return TopicInfo(
        name=topic["name"],
        first_position=Position(topic["first_position"]),
        last_position=Position(topic["last_position"]),
        bytes=topic["bytes"],
    )
