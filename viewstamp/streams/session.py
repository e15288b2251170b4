"""A session: its last decided sequence, and the outcomes of the latest ones."""

from __future__ import annotations

import struct
from typing import Any, cast

import msgpack

from viewstamp.errors import StaleSessionError
from viewstamp.ids import Index, Position, Sequence, SessionId, Term
from viewstamp.node.state_machine import CommandResults, Placement

__all__ = ["RECEIPTS_MAX", "RESULTS_MAX", "RESULT_BYTES_MAX", "SessionState"]

RECEIPTS_MAX = 256
"""Receipts kept per session. No client has more unanswered batches, so a retry always finds its receipt."""

RESULTS_MAX = 64
"""Results of commands are kept for this many of the newest batches of a session ..."""
RESULT_BYTES_MAX = 1024 * 1024
"""... and only up to this many bytes; those of the newest batch always."""

_RECEIPT = struct.Struct("<QIQQq")
_SIZE = _RECEIPT.size
_NOT_APPLIED = bytes(_SIZE)
"""The stored receipt of a sequence that was fenced: zeros, because no batch of it was applied and none will be.

If a batch was refused because of its expected position, its receipt has the topic's next position instead of zeros.
"""
_pack_results = msgpack.Packer().pack
"""One packer for all batches, because creating one takes longer than packing the results of a small batch."""


class SessionState:
    """The applied state of one session.

    The receipts are in one byte string, a ring of at most ``RECEIPTS_MAX`` slots that grows as it is used, because
    10,000 sessions of Python objects would take 500 MB. Results are kept packed for the same reason.

    Invariants:
      * every sequence up to ``last`` is decided: applied or fenced; none above it is
      * slot ``(n - 1) % RECEIPTS_MAX`` holds sequence n, for the latest ``RECEIPTS_MAX`` sequences n
      * results are kept for sequences in ``(last - RESULTS_MAX, last]`` only, in their order
    """

    __slots__ = ("_results", "_slots", "id", "last", "owner", "result_bytes", "used_at")

    def __init__(self, session_id: SessionId, used_at: int, owner: str = "") -> None:
        self.id = session_id
        self.owner = owner
        """The id of the token that opened it; "" = it was opened without one."""
        self.last = Sequence(0)
        self.used_at = used_at
        """The log time of the session's last batch, or of its opening."""
        self._slots = bytearray()
        self._results: dict[int, bytes] = {}
        """Packed lists of results, by sequence."""
        self.result_bytes = 0
        """The size of the kept results."""

    def applied(self, receipt: Placement, results: list[bytes] | None = None) -> bytes:
        """Record the next sequence as applied, with the results of its commands. Return the receipt's bytes."""
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
        """Record all open sequences up to ``sequence`` as not applied; they never will be."""
        if sequence - self.last > RECEIPTS_MAX:
            # Only the latest slots are kept, and every one of them will be "not applied".
            self._slots = bytearray(RECEIPTS_MAX * _SIZE)
            self.last = sequence
        while self.last < sequence:
            self._put(_NOT_APPLIED)
        self._drop_results()

    def refuse(self, next_position: Position) -> None:
        """Record the next sequence as not applied, because its topic's next position was not the expected one."""
        self._put(_RECEIPT.pack(next_position, 0, 0, 0, 0))
        self._drop_results()

    def mismatch(self, sequence: Sequence) -> Position:
        """Return the next position for which a decided sequence was refused; 0 = not refused, or no longer kept."""
        if sequence <= self.last - RECEIPTS_MAX:
            return Position(0)
        position, count, *_ = _RECEIPT.unpack_from(self._slots, (sequence - 1) % RECEIPTS_MAX * _SIZE)
        return Position(0 if count else position)

    def result(self, sequence: Sequence) -> Placement | CommandResults | None:
        """Return the outcome of a decided sequence; None = it was fenced.

        Raises:
          StaleSessionError: its receipt is no longer kept.
        """
        assert 0 < sequence <= self.last, f"sequence {sequence} is not decided, the last is {self.last}"
        if sequence <= self.last - RECEIPTS_MAX:
            raise StaleSessionError(
                f"session {self.id} is at sequence {self.last}; the outcome of {sequence} is no longer kept",
                remedy=f"ask within {RECEIPTS_MAX} batches; read the topic, or query the actor, to find out",
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
        self.last += 1  # type: ignore[assignment]  # without Sequence(...), which is a function call

    def _drop_results(self) -> None:
        results = self._results
        while results:
            oldest = next(iter(results))
            if oldest > self.last - RESULTS_MAX and (self.result_bytes <= RESULT_BYTES_MAX or oldest == self.last):
                break
            self.result_bytes -= len(results.pop(oldest))

    def drop_results(self) -> None:
        """Drop all results; the receipts stay."""
        self._results = {}
        self.result_bytes = 0

    def called_at(self) -> int:
        """Return the index of the newest batch whose results are kept; there must be one."""
        at = (next(reversed(self._results)) - 1) % RECEIPTS_MAX * _SIZE
        return int(_RECEIPT.unpack_from(self._slots, at)[3])

    def image(self) -> list[object]:
        """Return the state as plain values."""
        owner = [self.owner] if self.owner else []
        return [self.id, self.last, bytes(self._slots), list(self._results.items()), self.used_at, *owner]

    @classmethod
    def from_image(cls, image: list[Any], used_at: int) -> SessionState:
        """Rebuild a session from :meth:`image`; ``used_at`` is for images of older versions, which lack it."""
        session = cls(SessionId(image[0]), *(image[4:6] or [used_at]))
        session.last = Sequence(image[1])
        session._slots = bytearray(memoryview(image[2]))  # memoryview, because bytearray(5) would be five zero bytes
        session._results = dict(image[3])
        session.result_bytes = sum(map(len, session._results.values()))
        return session
