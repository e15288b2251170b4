"""A session: the last sequence that was decided, and what became of the latest ones."""

from __future__ import annotations

import struct
from typing import Any, cast

import msgpack

from viewstamp.errors import StaleSessionError
from viewstamp.ids import Index, Position, Sequence, SessionId, Term
from viewstamp.node.state_machine import CommandResults, Placement

__all__ = ["RECEIPTS_MAX", "RESULTS_MAX", "RESULT_BYTES_MAX", "SessionState"]

RECEIPTS_MAX = 256
"""Receipts kept per session. More than any client has unanswered, so a retry always finds its receipt."""

RESULTS_MAX = 64
"""The results of commands are kept for this many of the newest batches of a session ..."""
RESULT_BYTES_MAX = 1024 * 1024
"""... and as long as they take no more bytes than this; those of the newest batch always."""

_RECEIPT = struct.Struct("<QIQQq")
_SIZE = _RECEIPT.size
_NOT_APPLIED = bytes(_SIZE)
"""The slot of a fenced sequence: a receipt of no records. That of a refused one has a position: the topic's next."""
_pack_results = msgpack.Packer().pack
"""One packer for all batches: to make one takes longer than to pack the results of a small batch."""


class SessionState:
    """The applied state of one session.

    The receipts stand in one byte string, a ring of at most ``RECEIPTS_MAX`` slots that grows as it is used:
    ten thousand sessions of objects would be half a gigabyte. Results are kept packed for the same reason.

    Invariants:
      * every sequence up to ``last`` is decided: applied or fenced; none above it is
      * slot ``(n - 1) % RECEIPTS_MAX`` holds sequence n, for the latest ``RECEIPTS_MAX`` sequences n
      * results are kept for sequences in ``(last - RESULTS_MAX, last]`` only, in their order
    """

    __slots__ = ("_results", "_slots", "id", "last", "result_bytes", "used_at")

    def __init__(self, session_id: SessionId, used_at: int) -> None:
        self.id = session_id
        self.last = Sequence(0)
        self.used_at = used_at
        """The log time of the last batch of the session, or of its opening."""
        self._slots = bytearray()
        self._results: dict[int, bytes] = {}
        """Packed lists of results, by sequence."""
        self.result_bytes = 0
        """What the results take that are kept."""

    def applied(self, receipt: Placement, results: list[bytes] | None = None) -> bytes:
        """Decide the next sequence: it was applied; ``results`` are those of commands. Return the receipt's bytes."""
        slot = _RECEIPT.pack(receipt.first_position, receipt.count, receipt.term, receipt.first_index, receipt.log_time)
        at = self.last % RECEIPTS_MAX * _SIZE  # As `_put`, without a further call for each batch.
        self._slots[at : at + _SIZE] = slot
        self.last += 1  # type: ignore[assignment]
        if results is not None:
            packed = cast("bytes", _pack_results(results))
            self._results[self.last] = packed
            self.result_bytes += len(packed)
        if self._results:
            self._drop_results()
        return slot

    def fence(self, sequence: Sequence) -> None:
        """Decide all sequences up to ``sequence`` that are open: none of them was applied, none ever will be."""
        if sequence - self.last > RECEIPTS_MAX:
            # Only the latest slots are kept, and every one of them will be "not applied".
            self._slots = bytearray(RECEIPTS_MAX * _SIZE)
            self.last = sequence
        while self.last < sequence:
            self._put(_NOT_APPLIED)
        self._drop_results()

    def refuse(self, next_position: Position) -> None:
        """Decide the next sequence: not applied, because its topic went on at ``next_position``, not where expected."""
        self._put(_RECEIPT.pack(next_position, 0, 0, 0, 0))
        self._drop_results()

    def mismatch(self, sequence: Sequence) -> Position:
        """Return the next position for which a decided sequence was refused; 0 = it was not, or it is long ago."""
        if sequence <= self.last - RECEIPTS_MAX:
            return Position(0)
        position, count, *_ = _RECEIPT.unpack_from(self._slots, (sequence - 1) % RECEIPTS_MAX * _SIZE)
        return Position(0 if count else position)

    def result(self, sequence: Sequence) -> Placement | CommandResults | None:
        """Return what became of a decided sequence; None = it was fenced.

        Raises:
          StaleSessionError: it was decided so long ago that its receipt is not kept.
        """
        assert 0 < sequence <= self.last, f"sequence {sequence} is not decided, the last is {self.last}"
        if sequence <= self.last - RECEIPTS_MAX:
            raise StaleSessionError(
                f"session {self.id} is at sequence {self.last}; what became of {sequence} is not kept",
                remedy=f"ask within {RECEIPTS_MAX} batches; read the state to see what it holds",
            )
        at = (sequence - 1) % RECEIPTS_MAX * _SIZE
        position, count, term, index, log_time = _RECEIPT.unpack_from(self._slots, at)
        if count == 0:
            return None
        receipt = Placement(Position(position), count, Term(term), Index(index), log_time)
        if position:
            return receipt
        # Only commands have no position.
        packed = self._results.get(sequence)
        return CommandResults(receipt, None if packed is None else msgpack.unpackb(packed))

    def _put(self, slot: bytes) -> None:
        at = self.last % RECEIPTS_MAX * _SIZE
        self._slots[at : at + _SIZE] = slot
        self.last += 1  # type: ignore[assignment]  # as quick as can be

    def _drop_results(self) -> None:
        results = self._results
        while results:
            oldest = next(iter(results))
            if oldest > self.last - RESULTS_MAX and (self.result_bytes <= RESULT_BYTES_MAX or oldest == self.last):
                break
            self.result_bytes -= len(results.pop(oldest))

    def drop_results(self) -> None:
        """Let all results go; the receipts stay."""
        self._results = {}
        self.result_bytes = 0

    def called_at(self) -> int:
        """Return the index of the newest batch whose results are kept; there must be one."""
        at = (next(reversed(self._results)) - 1) % RECEIPTS_MAX * _SIZE
        return int(_RECEIPT.unpack_from(self._slots, at)[3])

    def image(self) -> list[object]:
        """Return the state as plain values."""
        return [self.id, self.last, bytes(self._slots), list(self._results.items()), self.used_at]

    @classmethod
    def from_image(cls, image: list[Any], used_at: int) -> SessionState:
        """Rebuild what :meth:`image` returned; ``used_at`` stands for what images of older versions do not say."""
        session = cls(SessionId(image[0]), image[4] if len(image) > 4 else used_at)
        session.last = Sequence(image[1])
        session._slots = bytearray(memoryview(image[2]))  # of a number, bytearray() would make so many zeros
        session._results = dict(image[3])
        session.result_bytes = sum(map(len, session._results.values()))
        return session
