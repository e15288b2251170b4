"""A group of rows of keys as Arrow columns: the bytes of its checksum, and those of its rows that a reader wants.

A read by key wants one row of a group of about 2,000. So the checksum is that of the buffers of the columns, as Arrow
has them in memory, and no Python object is made of the other rows. Needs pyarrow, for the arrays only.

The *content* of a column is: the number of its rows and the number of its nulls, both as uint64; the validity bitmap,
if there are nulls, with zeros behind the last row; of numbers their int64, of byte strings their int32 offsets from 0
on, and their bytes. All are little-endian. Arrow leaves open what is behind these bytes in a buffer, so it is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from viewstamp.node.keyed_rows import KeyRow
from viewstamp.wire.batch import Buffer

__all__ = ["KeyColumns"]

_COUNTS: Final = struct.Struct("<QQ")


class KeyColumns:
    """The columns of a group, in the order of :class:`KeyRow`. It has the calls of ``key_rows.GroupRows``."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        """Take Arrow arrays of one length, of byte strings or of 64 bits without nulls. Nothing is copied.

        Raises:
          ValueError: they have other lengths, or nulls in place of numbers.
        """
        self.count = len(arrays[0])
        self._columns = [_Column(array) for array in arrays]
        if any(each.count != self.count for each in self._columns):
            raise ValueError("its columns have different lengths")

    @property
    def size(self) -> int:
        """The bytes in memory."""
        return sum(each.size for each in self._columns)

    def content(self) -> Iterator[Buffer]:
        """Yield the bytes of the checksum."""
        for each in self._columns:
            yield from each.content()

    def lower_bound(self, key: bytes) -> int:
        """Return the number of the first row whose key is not lower; ``count`` = there is none."""
        keys = self._columns[0]
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if keys.at(middle) < key else (low, middle)
        return low

    def rows(self, low: int, high: int) -> list[KeyRow]:
        """Return the rows ``[low, high)``."""
        return list(map(KeyRow._make, zip(*(each.items(low, high) for each in self._columns), strict=True)))


class _Column:
    """The buffers of one array. ``offsets`` is None for numbers."""

    def __init__(self, array: Any) -> None:
        validity, *_, data = array.buffers()
        is_binary = len(array.buffers()) == 3
        self.count = len(array)
        self.nulls = array.null_count
        self.validity = bytearray(validity)[: (self.count + 7) // 8] if self.nulls else bytearray()
        if self.count % 8 and self.nulls:
            self.validity[-1] &= (1 << self.count % 8) - 1
        if array.offset or (self.nulls and not is_binary):
            raise ValueError("a column is a part of another one, or has nulls in place of numbers")
        self.offsets = memoryview(array.buffers()[1]).cast("i")[: self.count + 1] if is_binary else None
        end = 8 * self.count if self.offsets is None else self.offsets[-1]
        self.data = memoryview(data if data is not None else b"").cast("B")[:end]
        if len(self.data) != end or (self.offsets is not None and self.offsets[0]):
            raise ValueError("a column has other bytes than its offsets say")

    @property
    def size(self) -> int:
        return len(self.data) + len(self.validity) + (4 * len(self.offsets) if self.offsets is not None else 0)

    def content(self) -> Iterator[Buffer]:
        yield _COUNTS.pack(self.count, self.nulls)
        yield self.validity
        if self.offsets is not None:
            yield self.offsets.cast("B")
        yield self.data

    def at(self, number: int) -> bytes:
        assert self.offsets is not None, "only byte strings are compared"
        return bytes(self.data[self.offsets[number] : self.offsets[number + 1]])

    def items(self, low: int, high: int) -> Sequence[Any]:
        if self.offsets is None:
            return self.data.cast("q")[low:high].tolist()
        first = self.offsets[low]
        data = bytes(self.data[first : self.offsets[high]])
        found: list[bytes | None] = [data[a - first : b - first] for a, b in pairwise(self.offsets[low : high + 1])]
        if self.nulls:
            for number in range(low, high):
                if not self.validity[number >> 3] >> (number & 7) & 1:
                    found[number - low] = None
        return found
