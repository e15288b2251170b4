"""A digest of records that depends only on the records, not on their batches nor on the order in which parts are read.

The digest is the 16-byte blake2b, in hexadecimal, of the msgpack of a list with one item for each topic, sorted by
name: its name, its first position, its number of records, and six crc32c. Those cover, over all records of the topic,
the bytes and the lengths of the values, of the keys, and of the headers (in their stored msgpack form). A length has
four bytes, little-endian; the length of an absent key is 2^32 - 1.

Checksums are used because they run at the speed of memory, and because the checksum of a whole can be computed from
those of its parts: parts that were read in parallel give the same digest as one pass. They detect damage and mistakes,
not forgery.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from operator import sub

import msgpack

from viewstamp.errors import FrameError
from viewstamp.wire.batch import Buffer, Column, Columns
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.columns import offsets_of

__all__ = ["Digest", "TopicDigest", "combine"]

_POLYNOMIAL = 0x82F63B78
_NO_KEY = (1 << 32) - 1


@dataclass(slots=True)
class TopicDigest:
    """The records of one topic from ``first_position`` on; ``sums``: (checksum, covered bytes) of each column.

    The columns are, in this order: values, their lengths, keys, their lengths, headers, their lengths.
    """

    first_position: int
    count: int = 0
    sums: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * 6)

    def add(self, columns: Columns) -> None:
        """Add the next records. Raises FrameError if the offsets of a column decrease."""
        count = columns.count
        keys, headers = columns.keys, columns.headers
        parts: tuple[Buffer, ...] = (
            columns.values.data,
            _lengths(columns.values),
            b"" if keys is None else keys.data,
            b"\xff" * (4 * count) if keys is None else _key_lengths(keys, columns),
            b"" if headers is None else headers.data,
            bytes(4 * count) if headers is None else _lengths(headers),
        )
        self.sums = [
            (crc32c(part, checksum), size + len(part)) for (checksum, size), part in zip(self.sums, parts, strict=True)
        ]
        self.count += count

    def join(self, following: TopicDigest) -> None:
        """Add records that were digested separately and follow directly on these."""
        assert following.first_position == self.first_position + self.count, "parts follow on each other"
        self.sums = [
            (combine(checksum, after, after_size), size + after_size)
            for (checksum, size), (after, after_size) in zip(self.sums, following.sums, strict=True)
        ]
        self.count += following.count


class Digest:
    """The records of several topics, each in order of its positions, without a gap."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicDigest] = {}

    def add(self, topic: str, first_position: int, columns: Columns) -> None:
        """Add the next records of a topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicDigest(first_position)
        assert first_position == found.first_position + found.count, f"{topic} is at {found}, not at {first_position}"
        found.add(columns)

    def join(self, following: Digest) -> None:
        """Add a digest of records that follow on these."""
        for topic, part in following.topics.items():
            found = self.topics.get(topic)
            if found is None:
                self.topics[topic] = part
            else:
                found.join(part)

    def pack(self) -> bytes:
        """Return the digest's state as bytes, for :meth:`unpack` in another process."""
        packed: bytes = msgpack.packb(
            [[topic, each.first_position, each.count, each.sums] for topic, each in self.topics.items()]
        )
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> Digest:
        """Return the digest that :meth:`pack` made these bytes of."""
        digest = cls()
        for topic, first_position, count, sums in msgpack.unpackb(packed):
            digest.topics[topic] = TopicDigest(first_position, count, [(checksum, size) for checksum, size in sums])
        return digest

    def hexdigest(self) -> str:
        """Return the digest: 32 hexadecimal digits."""
        listed = [
            [name, each.first_position, each.count, [checksum for checksum, _ in each.sums]]
            for name, each in sorted(self.topics.items())
            if each.count
        ]
        return blake2b(msgpack.packb(listed), digest_size=16).hexdigest()


def _lengths(column: Column) -> bytes:
    offsets = offsets_of(column)
    try:
        return _pack(array("I", map(sub, islice(offsets, 1, None), offsets)))
    except OverflowError:
        raise FrameError("the offsets of a column decrease: the writer of that batch is faulty") from None


def _key_lengths(keys: Column, columns: Columns) -> bytes:
    assert columns.validity is not None, "keys and their validity bitmap belong together"
    bits = int.from_bytes(columns.validity, "little")
    all_valid = (1 << columns.count) - 1
    if bits & all_valid == all_valid:
        return _lengths(keys)
    offsets = offsets_of(keys)
    valid = bytes(columns.validity)
    lengths = map(sub, islice(offsets, 1, None), offsets)
    return _pack(array("I", [n if valid[i >> 3] >> (i & 7) & 1 else _NO_KEY for i, n in enumerate(lengths)]))


def _pack(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


# The checksum of two joined parts follows from theirs: a checksum is a polynomial modulo another polynomial, so the
# whole is the first times x^(8 n), where n is the length of the second in bytes, plus the second. The highest power is
# bit 0.


def combine(first: int, second: int, second_size: int) -> int:
    """Return the crc32c of two joined parts, from their checksums and the length of the second in bytes."""
    return _multiply(_power(8 * second_size), first) ^ second


def _multiply(a: int, b: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _squares(x: int) -> Iterable[int]:
    while True:
        yield x
        x = _multiply(x, x)


def _power(exponent: int) -> int:
    """Return x to the power of ``exponent``."""
    result = 1 << 31
    for square in _squares(1 << 30):
        if not exponent:
            break
        if exponent & 1:
            result = _multiply(square, result)
        exponent >>= 1
    return result
