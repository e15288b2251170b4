"""A session: the last sequence that was decided, and the receipts of the latest ones."""

from __future__ import annotations

import struct
from typing import Any

from viewstamp.errors import StaleSessionError
from viewstamp.ids import Index, Position, Sequence, SessionId, Term
from viewstamp.node.state_machine import Receipt

__all__ = ["RECEIPTS_MAX", "Session"]

RECEIPTS_MAX = 256
"""Receipts kept per session. More than any client has unanswered, so a retry always finds its receipt."""

_RECEIPT = struct.Struct("<QIQQq")
_SIZE = _RECEIPT.size
_NOT_APPLIED = bytes(_SIZE)
"""The slot of a fenced sequence: a receipt of no records."""


class Session:
    """The applied state of one session.

    The receipts stand in one byte string, a ring of at most ``RECEIPTS_MAX`` slots that grows as it is used:
    ten thousand sessions of objects would be half a gigabyte.

    Invariants:
      * every sequence up to ``last`` is decided: applied or fenced; none above it is
      * slot ``(n - 1) % RECEIPTS_MAX`` holds sequence n, for the latest ``RECEIPTS_MAX`` sequences n
    """

    __slots__ = ("_slots", "id", "last")

    def __init__(self, session_id: SessionId) -> None:
        self.id = session_id
        self.last = Sequence(0)
        self._slots = bytearray()

    def applied(self, receipt: Receipt) -> None:
        """Decide the next sequence: it was applied."""
        self._put(
            _RECEIPT.pack(receipt.first_position, receipt.count, receipt.term, receipt.first_index, receipt.log_time)
        )

    def fence(self, sequence: Sequence) -> None:
        """Decide all sequences up to ``sequence`` that are open: none of them was applied, none ever will be."""
        if sequence - self.last > RECEIPTS_MAX:
            # Only the latest slots are kept, and every one of them will be "not applied".
            self._slots = bytearray(RECEIPTS_MAX * _SIZE)
            self.last = sequence
        while self.last < sequence:
            self._put(_NOT_APPLIED)

    def receipt(self, sequence: Sequence) -> Receipt | None:
        """Return what became of a decided sequence; None = it was fenced.

        Raises:
          StaleSessionError: it was decided so long ago that its receipt is not kept.
        """
        assert 0 < sequence <= self.last, f"sequence {sequence} is not decided, the last is {self.last}"
        if sequence <= self.last - RECEIPTS_MAX:
            raise StaleSessionError(
                f"session {self.id} is at sequence {self.last}; what became of {sequence} is not kept",
                remedy=f"ask within {RECEIPTS_MAX} batches; read the topic to see what it holds",
            )
        at = (sequence - 1) % RECEIPTS_MAX * _SIZE
        position, count, term, index, log_time = _RECEIPT.unpack_from(self._slots, at)
        if count == 0:
            return None
        return Receipt(Position(position), count, Term(term), Index(index), log_time)

    def _put(self, slot: bytes) -> None:
        at = self.last % RECEIPTS_MAX * _SIZE
        self._slots[at : at + _SIZE] = slot
        self.last = Sequence(self.last + 1)

    def image(self) -> list[object]:
        """Return the state as plain values."""
        return [self.id, self.last, bytes(self._slots)]

    @classmethod
    def from_image(cls, image: list[Any]) -> Session:
        """Rebuild what :meth:`image` returned."""
        session = cls(SessionId(image[0]))
        session.last = Sequence(image[1])
        session._slots = bytearray(image[2])
        return session
