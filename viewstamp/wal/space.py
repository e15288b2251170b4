"""How much may still be written: refuses before the disk does. Plain arithmetic, on the event loop.

A write inside a zero-filled segment cannot run out of space, one that lengthens a file can. So the log counts on
what is zero-filled; and on the disk's free space only as long as the last segment that it wanted could be made.
"""

from __future__ import annotations

from viewstamp.errors import StorageFullError

__all__ = ["Space"]


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
        left = self.open_room
        growth = self.free - self._reserve_bytes
        if self.is_prepared:
            left += self._segment_bytes
        if self._bytes_max:
            growth = min(growth, self._bytes_max - self.used)
        if self.may_grow:
            left += max(0, growth)
        return left

    def check(self, size: int, *, urgent: bool) -> None:
        """Refuse ``size`` bytes (all that is queued included) for which there is no room.

        ``urgent`` may use the last ``margin_bytes``: what a node must write although it is full.

        Raises:
          StorageFullError: says how much is left, and why.
        """
        left = self.left
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
