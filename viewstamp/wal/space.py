"""How much may still be written: refuses before the disk does. Plain arithmetic, on the event loop.

Two bounds, and the lower one holds. The disk: a write inside a zero-filled segment cannot run out of space, one that
lengthens a file can; so the log counts on what is zero-filled, and on the disk's free space only as long as the last
segment that it wanted could be made. And ``bytes_max``: what is not written yet, and in no file that is being made
ready, can be written, if need be by giving up prepared files and growing the open one.

Everything here is what the loop has been told. The writer and the thread that prepares report what they have *done*,
so their news may come in either order, and a count may be below zero for a moment.
"""

from __future__ import annotations

from viewstamp.errors import StorageFullError
from viewstamp.wal.format import GROUP_HEADER_SIZE

__all__ = ["Space"]

_ROLL_BYTES = GROUP_HEADER_SIZE
"""What the seal of a segment takes."""


class Space:
    """The room of a log: in the open segment, in the prepared ones, and on the disk.

    Invariants:
      * :meth:`check` refuses what could only be written by using ``reserve_bytes``, or going over ``bytes_max``
    """

    def __init__(self, *, segment_bytes: int, bytes_max: int, reserve_bytes: int, margin_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._bytes_max = bytes_max
        self._reserve_bytes = reserve_bytes
        self._margin_bytes = margin_bytes
        self.open_room = 0
        """Bytes that the open segment takes without growing."""
        self.is_open_whole = True
        """Whether the open segment has its full length; one that a clean stop shortened, and for which the disk had no
        room again, grows with each append, and the next one is out of reach until it has grown."""
        self.prepared = 0
        """How many spares are ready."""
        self.dropped = 0
        """How many spares wait to be overwritten."""
        self.is_making = False
        """Whether a new spare is being made: nothing else may count on its bytes."""
        self.may_grow = True
        """Whether the disk had room when a segment was last made: then a file may be lengthened meanwhile."""
        self.used = 0
        """Bytes written in all segments."""
        self.free = 0
        """What the disk had when it was last asked."""

    @property
    def left(self) -> int:
        """Bytes that may still be written; what is queued already included."""
        growth = self.free - self._reserve_bytes if self.may_grow else 0
        left = self._made_ready + max(0, growth)
        return min(left, self._limit_left) if self._bytes_max else left

    def left_for(self, queued: int) -> int:
        """Bytes that may still be written, by what is not urgent, beside ``queued`` ones."""
        return max(0, self.left - self._margin_bytes - queued)

    def wants_another(self, queued: int) -> bool:
        """Say whether another spare should be made ready, beside the ``queued`` bytes that must find room.

        Without ``bytes_max`` one spare is kept; with it, as many as fit: the log is preallocated.
        """
        if self.dropped > 0:
            return True
        if not self._bytes_max:
            return self.prepared < 1
        in_files = self.open_room + max(0, self.prepared) * self._segment_bytes
        left = self._limit_left
        return left - in_files >= self._segment_bytes and left - self._segment_bytes >= queued

    def check(self, size: int, *, urgent: bool, spared: int = 0) -> None:
        """Refuse ``size`` bytes (all that is queued included) for which there is no room.

        ``urgent`` may use the last ``margin_bytes`` and the disk's reserve: what a node must write although it is full.
        All else leaves ``spared`` bytes of ``bytes_max`` too.

        Raises:
          StorageFullError: says how much is left, and why. The remedy begins with a verb and ends without a full stop:
            who knows what could be dropped puts that before it.
        """
        if size + self._margin_bytes <= self.open_room and not self._bytes_max:
            return  # Nearly always: the open segment has room enough, whatever else there is.
        left = self.left
        if urgent:
            left = max(left, self._made_ready + self.free)
            left = min(left, self._limit_left) if self._bytes_max else left
        kept = 0 if urgent else self._margin_bytes + spared
        if size + kept <= left:
            return
        if self._bytes_max and left == self._limit_left:
            reason = f"{self.used} are written, [wal] bytes_max is {self._bytes_max}"
            remedy = "raise [wal] bytes_max and restart this node"
            if self._pending_bytes:
                reason += f", {self._pending_bytes} are in files that are being made ready"
                remedy = f"try again in a moment, or {remedy}"
            if spared:
                reason += f", {spared} are left free, as other members have less"
        else:
            reason = (
                f"the disk has {self.free} bytes left, another segment takes {self._segment_bytes}"
                f" and {self._reserve_bytes} stay in reserve"
            )
            remedy = "free space on the disk; the log goes on by itself then"
        raise StorageFullError(
            f"the log is full: {max(0, left - kept)} bytes can still be written, {size} are asked for; {reason}",
            remedy=remedy,
        )

    @property
    def _made_ready(self) -> int:
        """Bytes that are there to be written to; rolling into the next segment takes a seal behind the open one."""
        can_roll = self.is_open_whole and max(self.open_room, self.free) >= _ROLL_BYTES
        return self.open_room + (max(0, self.prepared) * self._segment_bytes if can_roll else 0)

    @property
    def _limit_left(self) -> int:
        """Bytes of ``bytes_max`` that are neither written nor in a file that cannot be used yet."""
        return max(0, self._bytes_max - self.used - self._pending_bytes)

    @property
    def _pending_bytes(self) -> int:
        """Bytes of files that will be ready soon: dropped ones, and a new one."""
        return (max(0, self.dropped) + self.is_making) * self._segment_bytes
