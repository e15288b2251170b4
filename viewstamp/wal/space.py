"""How much may still be written: refuses before the disk does. Plain arithmetic, on the event loop.

A write inside a zero-filled segment cannot run out of space, one that lengthens a file can. So the log counts on
what is zero-filled; and on the disk's free space only as long as the last segment that it wanted could be made.
"""

from __future__ import annotations

from viewstamp.errors import StorageFullError
from viewstamp.wal.format import GROUP_HEADER_SIZE

__all__ = ["Space"]

_ROLL_BYTES = GROUP_HEADER_SIZE
"""What the seal of a segment takes."""


class Space:
    """The room of a log: in the open segment, in the prepared one, and on the disk.

    ``used`` are the bytes of all segments, zeros included. ``free`` is what the disk had when it was last asked.

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
        self.is_prepared = False
        """Whether the next segment is ready."""
        self.may_grow = True
        """Whether the disk had room when a segment was last made: then a file may be lengthened meanwhile."""
        self.used = 0
        self.free = 0

    @property
    def is_at_limit(self) -> bool:
        """Whether one more segment would go over ``bytes_max``."""
        return self._bytes_max > 0 and self.used + self._segment_bytes > self._bytes_max

    @property
    def left(self) -> int:
        """Bytes that may still be written."""
        left = self._made_ready
        growth = self.free - self._reserve_bytes
        if self._bytes_max:
            growth = min(growth, self._bytes_max - self.used)
        if self.may_grow:
            left += max(0, growth)
        return left

    @property
    def _made_ready(self) -> int:
        """Bytes that are there to be written to; rolling into the next segment takes a seal behind the open one."""
        can_roll = self.is_prepared and self.is_open_whole and max(self.open_room, self.free) >= _ROLL_BYTES
        return self.open_room + (self._segment_bytes if can_roll else 0)

    def check(self, size: int, *, urgent: bool) -> None:
        """Refuse ``size`` bytes (all that is queued included) for which there is no room.

        ``urgent`` may use the last ``margin_bytes`` and the disk's reserve: what a node must write although it is full.

        Raises:
          StorageFullError: says how much is left, and why.
        """
        left = self.left
        if urgent and not self.is_at_limit:
            left = max(left, self._made_ready + self.free)
        if size + (0 if urgent else self._margin_bytes) <= left:
            return
        if self.is_at_limit:
            reason = f"its segments have {self.used} bytes, [wal] bytes_max is {self._bytes_max}"
            remedy = "raise [wal] bytes_max, or trim topics"
        else:
            reason = (
                f"the disk has {self.free} bytes left, another segment takes {self._segment_bytes}"
                f" and {self._reserve_bytes} stay in reserve"
            )
            remedy = "free space on the disk; the log goes on by itself then"
        raise StorageFullError(
            f"the log is full: {max(0, left - self._margin_bytes)} bytes can still be written, {size} are asked for;"
            f" {reason}",
            remedy=remedy,
        )
