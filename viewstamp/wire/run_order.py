"""The order of the records of an archived run of a stream: their global positions, as the file of the run holds them.

A trim of the map of a stream drops the runs of archived records (``streams/stream_map.py``), so the file has them.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from operator import add, eq, le, lt

from viewstamp.ids import GlobalPosition, Position
from viewstamp.wire.ordering import GlobalRun

__all__ = ["OrderBuilder", "RunOrder"]

_NUMBER_MAX = 1 << 63


class RunOrder:
    """The global positions of the records of one run, which are consecutive in their stream. It is never changed.

    Invariants:
      * the runs tile the local positions from ``first`` up to ``end``, and rise in version and in global position
    """

    __slots__ = ("_lengths", "_locals", "_positions", "_versions", "end", "first")

    def __init__(self, runs: Iterable[GlobalRun]) -> None:
        """Hold ``runs``, which tile local positions. Raises ValueError if they do not, or there is none."""
        columns = [array("Q"), array("Q"), array("Q"), array("Q")]
        for run in runs:
            for column, number in zip(columns, run, strict=True):
                column.append(number)
        self._set(columns)

    def _set(self, columns: Iterable[array[int]]) -> None:
        self._versions, self._positions, self._locals, self._lengths = columns
        self._check()

    def _check(self) -> None:
        versions, positions, locals_, lengths = self._versions, self._positions, self._locals, self._lengths
        if not len(versions) == len(positions) == len(locals_) == len(lengths) > 0:
            raise ValueError("an order of a run has columns of different lengths, or none")
        columns = (versions, positions, locals_, lengths)
        if not all(min(each) >= 1 and max(each) < _NUMBER_MAX for each in columns):
            raise ValueError("an order of a run has a number that is not in [1, 2^63)")
        if not all(map(eq, map(add, locals_, lengths), locals_[1:])):
            raise ValueError("the order of a run leaves a gap")
        if not (all(map(le, map(add, positions, lengths), positions[1:])) and all(map(lt, versions, versions[1:]))):
            raise ValueError("the order of a run does not rise")
        self.first = Position(locals_[0])
        self.end = Position(locals_[-1] + lengths[-1])

    def __len__(self) -> int:
        return len(self._locals)

    def _run(self, at: int) -> GlobalRun:
        local, position = Position(self._locals[at]), GlobalPosition(self._positions[at])
        return GlobalRun(self._versions[at], position, local, self._lengths[at])

    @property
    def position(self) -> GlobalPosition:
        """The global position of the first record."""
        return GlobalPosition(self._positions[0])

    @property
    def position_end(self) -> GlobalPosition:
        """The global position after that of the last record."""
        return GlobalPosition(self._positions[-1] + self._lengths[-1])

    @property
    def size(self) -> int:
        """The bytes in memory."""
        return 32 * len(self)

    def positions(self, first: int, count: int) -> array[int]:
        """Return the global positions of ``count`` records from the local position ``first`` on, all in this order."""
        found, at, end = array("q"), bisect_right(self._locals, first) - 1, first + count
        while first < end:
            following = min(self._locals[at] + self._lengths[at], end)
            start = self._positions[at] + first - self._locals[at]
            found.extend(range(start, start + following - first))
            first, at = following, at + 1
        return found

    def runs_from(self, position: int, count_max: int) -> list[GlobalRun]:
        """Return the first runs that end above a global position, rising."""
        at = max(0, bisect_right(self._positions, position) - 1)
        if self._positions[at] + self._lengths[at] <= position:
            at += 1
        return [self._run(each) for each in range(at, min(at + count_max, len(self)))]

    def runs_at(self, local: int, count_max: int) -> list[GlobalRun]:
        """Return the first ``count_max`` runs with the records from a local position on; [] = it is in none of them."""
        at = bisect_right(self._locals, local) - 1
        if at < 0 or local >= self.end:
            return []
        return [self._run(each) for each in range(at, min(at + count_max, len(self)))]

    # Bytes.

    def pack(self) -> bytes:
        """Return the columns of numbers of 8 bytes, little-endian, one after the other: versions, positions, ..."""
        columns = [self._versions, self._positions, self._locals, self._lengths]
        return b"".join(_little(column).tobytes() for column in columns)

    def deflate(self) -> bytes:
        """Return :meth:`pack`, compressed."""
        return zlib.compress(self.pack())

    @classmethod
    def inflate(cls, packed: bytes) -> RunOrder:
        """Rebuild an order from :meth:`deflate`. Raises ValueError."""
        try:
            data = zlib.decompress(packed)
        except zlib.error as error:
            raise ValueError(f"the order of a run cannot be read: {error}") from error
        if not data or len(data) % 32:
            raise ValueError(f"the order of a run has {len(data)} bytes")
        order, size = cls.__new__(cls), len(data) // 4
        columns = [array("Q", data[at : at + size]) for at in range(0, len(data), size)]
        order._set(map(_little, columns))
        return order


class OrderBuilder:
    """The order of a run that is being written; it grows with the records."""

    def __init__(self, first: Position) -> None:
        """Begin with the record at the local position ``first``."""
        self.end = first
        """The local position after the last record whose global position is known."""
        self._columns = (array("Q"), array("Q"), array("Q"), array("Q"))

    def extend(self, runs: Iterable[GlobalRun], end: int) -> None:
        """Add the parts of ``runs`` with the records from the end up to the local position ``end``, exclusive.

        Raises:
          ValueError: they do not hold all of these records.
        """
        versions, positions, _, lengths = self._columns
        for run in runs:
            low, high = self.end, min(run.end, end)
            if run.local <= low < high:
                position = run.position + low - run.local
                if versions and versions[-1] == run.version and positions[-1] + lengths[-1] == position:
                    lengths[-1] += high - low
                else:
                    for column, number in zip(self._columns, (run.version, position, low, high - low), strict=True):
                        column.append(number)
                self.end = Position(high)
        if self.end < end:
            raise ValueError(f"the global position of the record at position {self.end} of the stream is missing")

    @property
    def order(self) -> RunOrder:
        """What is known so far, as it is now. Raises ValueError if the runs are none."""
        order = RunOrder.__new__(RunOrder)
        order._set(self._columns)
        return order


def _little(column: array[int]) -> array[int]:
    """Return a column with the bytes of its numbers in little-endian order."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column
