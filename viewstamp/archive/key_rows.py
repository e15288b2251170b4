"""The rows of a run of keys, its description and its filter, without the bytes of the file. Pure.

A *row* is the last record of a key at the positions of its run; its value None is a *tombstone*: the key was deleted.
Rows are in the order of their keys, and in groups of about 256 KiB. The description of the file has the first key of
each group, its number of rows and its checksum, and a Bloom filter of all keys: 10 bits a key, so that of a hundred
keys that the run does not hold one passes. It is the filter of this format and not Parquet's, because pyarrow writes
Parquet's filters, and cannot ask them. The description has a checksum of its own.

The checksum of a group is the crc32c of its rows, each packed by msgpack; the digest of the run is their BLAKE2b. So
neither depends on encoding, compression or groups.
"""

from __future__ import annotations

import heapq
import json
import struct
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

import msgpack

from viewstamp.archive.run_file import damaged_run
from viewstamp.errors import CorruptionError, OutdatedCodeError
from viewstamp.ids import ClusterId, Position, RunId, TopicId
from viewstamp.node.keyed_rows import KeyRow
from viewstamp.wire.checksum import crc32c

__all__ = [
    "GROUP_BYTES",
    "GroupReader",
    "GroupWriter",
    "KeyFilter",
    "KeyFooter",
    "KeyRunReader",
    "KeyRunWriter",
    "merge_rows",
]

GROUP_BYTES: Final = 256 * 1024
GROUP_ROWS: Final = 4096
_FORMAT: Final = 1
_BITS: Final = 10
_HASHES: Final = 7
_TWO = struct.Struct("<QQ")
_DIGEST_SIZE: Final = 32


class GroupWriter(Protocol):
    """The bytes of a file of rows that is being written."""

    def write(self, rows: Sequence[KeyRow]) -> None:
        """Write a group."""
        ...

    def finish(self, description: bytes) -> None:
        """Write the rest, with the description."""
        ...


class GroupReader(Protocol):
    """The bytes of a file of rows. Calls raise CorruptionError.

    ``description`` is None if the file has none.
    """

    description: bytes | None

    def read(self, number: int) -> list[KeyRow]:
        """Read a group."""
        ...


class KeyFilter:
    """A Bloom filter: it passes each key that was added, and one of a hundred others."""

    def __init__(self, bits: bytearray) -> None:
        self.bits = bits

    @classmethod
    def sized(cls, keys: int) -> KeyFilter:
        """Return an empty filter for so many keys."""
        return cls(bytearray(max(keys * _BITS + 7, 64) // 8))

    def add(self, key: bytes) -> None:
        """Add a key."""
        for bit in self._places(key):
            self.bits[bit >> 3] |= 1 << (bit & 7)

    def passes(self, key: bytes) -> bool:
        """Return whether the key may have been added."""
        return all(self.bits[bit >> 3] >> (bit & 7) & 1 for bit in self._places(key))

    def _places(self, key: bytes) -> Iterator[int]:
        first, step = _TWO.unpack(blake2b(key, digest_size=16).digest())
        size = len(self.bits) * 8
        return ((first + number * step) % size for number in range(_HASHES))


class KeyGroup(NamedTuple):
    """A group of rows: its first key, its number of rows, its checksum."""

    start: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller uses
    checksum: int


@dataclass(frozen=True, slots=True)
class KeyFooter:
    """The description of a run of keys in its file. ``last`` is its last key, b"" if it has no rows."""

    cluster: ClusterId
    run: RunId
    topic: TopicId
    first: Position
    end: Position
    records: int
    digest: str
    last: bytes
    groups: tuple[KeyGroup, ...]
    filter: KeyFilter

    def pack(self) -> bytes:
        """Return the description as bytes."""
        fields = {
            "format": _FORMAT,
            "kind": "keys",
            "ids": [self.cluster, self.run, self.topic, self.first, self.end],
            "records": self.records,
            "digest": self.digest,
            "last": _text(self.last),
            "groups": [[_text(group.start), group.count, group.checksum] for group in self.groups],
            "filter": _text(bytes(self.filter.bits)),
        }
        text = json.dumps(fields).encode()
        return b"%08x%b" % (crc32c(text), text)

    @classmethod
    def unpack(cls, packed: bytes, name: str) -> KeyFooter:
        """Read the description of the file ``name``. Raises CorruptionError, OutdatedCodeError."""
        text = packed[8:]
        if packed[:8] != b"%08x" % crc32c(text):
            raise damaged_run(name, "its description has another checksum")
        try:
            found = json.loads(text)
            version = found["format"]
            if version == _FORMAT:
                cluster, run, topic, first, end = found["ids"]
                groups = tuple(KeyGroup(b64decode(start), count, crc) for start, count, crc in found["groups"])
                bits = KeyFilter(bytearray(b64decode(found["filter"])))
                last, records, digest = b64decode(found["last"]), found["records"], found["digest"]
                return cls(cluster, run, topic, first, end, records, digest, last, groups, bits)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise damaged_run(name, f"its description cannot be read: {error!r}") from error
        raise OutdatedCodeError(
            f"the run of keys {name} has format {version!r}, but this release reads format {_FORMAT}",
            remedy="read it with the release that wrote it, or a newer one",
        )


class KeyRunWriter:
    """Writes the rows of one run, in the order of their keys.

    Invariants:
      * the keys rise
    """

    def __init__(
        self,
        groups: GroupWriter,
        cluster: ClusterId,
        run: RunId,
        topic: TopicId,
        first: Position,
        end: Position,
        *,
        keys_max: int,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        """Begin. ``keys_max``: at most this number of rows will be added."""
        self._groups = groups
        self._ids = cluster, run, topic, first, end
        self._group_bytes = group_bytes
        self._filter = KeyFilter.sized(keys_max)
        self._held: list[KeyRow] = []
        self._held_bytes = 0
        self._written: list[KeyGroup] = []
        self._digest = blake2b(digest_size=_DIGEST_SIZE)
        self._last = b""
        self.records = 0

    def add(self, row: KeyRow) -> bool:
        """Add the next row; return whether that has completed a group."""
        assert not self.records or row.key > self._last, f"key {row.key!r} after {self._last!r}"
        self._last = row.key
        self.records += 1
        self._filter.add(row.key)
        self._held.append(row)
        self._held_bytes += row.size
        if self._held_bytes < self._group_bytes and len(self._held) < GROUP_ROWS:
            return False
        self._write_group()
        return True

    def finish(self) -> KeyFooter:
        """Write the rest and the description, and return it."""
        self._write_group()
        footer = KeyFooter(
            *self._ids, self.records, self._digest.hexdigest(), self._last, tuple(self._written), self._filter
        )
        self._groups.finish(footer.pack())
        return footer

    def _write_group(self) -> None:
        if self._held:
            rows, self._held, self._held_bytes = self._held, [], 0
            packed = _pack(rows)
            self._digest.update(packed)
            self._written.append(KeyGroup(rows[0].key, len(rows), crc32c(packed)))
            self._groups.write(rows)


class KeyRunReader:
    """Reads the file of a run of keys, group by group. Blocking."""

    def __init__(self, groups: GroupReader, name: str) -> None:
        """Read the description. Raises CorruptionError, OutdatedCodeError."""
        if groups.description is None:
            raise damaged_run(name, "it has no description of a run of keys")
        self.footer = KeyFooter.unpack(groups.description, name)
        self._groups = groups
        self._name = name
        self._starts = [group.start for group in self.footer.groups]

    @property
    def size(self) -> int:
        """About the bytes of memory that the description takes."""
        return len(self.footer.filter.bits) + sum(len(start) + 200 for start in self._starts)

    def group_of(self, key: bytes) -> int | None:
        """Return the number of the only group that can hold a key; None = the run does not hold it."""
        footer = self.footer
        if not self._starts or not self._starts[0] <= key <= footer.last or not footer.filter.passes(key):
            return None
        return bisect_right(self._starts, key) - 1

    def groups_of(self, start: bytes, end: bytes | None) -> range:
        """Return the numbers of the groups that can hold keys in ``[start, end)``."""
        low = max(bisect_right(self._starts, start) - 1, 0)
        return range(low, len(self._starts) if end is None else bisect_left(self._starts, end))

    def read_group(self, number: int) -> list[KeyRow]:
        """Return the verified rows of a group. Raises CorruptionError."""
        rows, group = self._groups.read(number), self.footer.groups[number]
        if len(rows) != group.count or crc32c(_pack(rows)) != group.checksum:
            raise damaged_run(self._name, f"its group {number} has another checksum")
        return rows

    def rows(self, start: bytes, end: bytes | None) -> Iterator[KeyRow]:
        """Yield the rows with keys in ``[start, end)``, one group in memory at a time. Raises CorruptionError."""
        for number in self.groups_of(start, end):
            for row in self.read_group(number):
                if row.key >= start and (end is None or row.key < end):
                    yield row

    def verify(self) -> Iterator[int]:
        """Read all groups, one a step, and compare them with the digest; yields bytes. Raises CorruptionError."""
        digest = blake2b(digest_size=_DIGEST_SIZE)
        count, last = 0, b""
        for number in range(len(self._starts)):
            rows = self.read_group(number)
            packed = _pack(rows)
            digest.update(packed)
            for row in rows:
                if (count and row.key <= last) or not self.footer.filter.passes(row.key):
                    raise damaged_run(self._name, f"its key {row.key[:40]!r} is in no order, or not in its filter")
                count, last = count + 1, row.key
            yield len(packed)
        if digest.hexdigest() != self.footer.digest or count != self.footer.records:
            raise damaged_run(self._name, f"its {count} rows have another digest or number")

    def check_identity(self, cluster: ClusterId, run: RunId) -> None:
        """Check that the file is that of a run of a cluster. Raises CorruptionError."""
        footer = self.footer
        if (footer.cluster, footer.run) != (cluster, run):
            found, expected = f"run {footer.run} of cluster {footer.cluster}", f"run {run} of cluster {cluster}"
            raise CorruptionError(
                f"run file {self._name} is that of {found}, not of {expected}",
                path=self._name,
                expected=expected,
                found=found,
                remedy="put the right object back; another cluster may use the same folder of the store",
            )


def merge_rows(newest_first: Sequence[Iterable[KeyRow]], *, drops_tombstones: bool) -> Iterator[KeyRow]:
    """Yield the newest row of each key, in the order of the keys.

    Args:
      newest_first: rows in the order of their keys; those of an earlier one are newer.
      drops_tombstones: leave deleted keys out. Only right if no older rows of these keys exist elsewhere.
    """
    ranked = [_ranked(rank, rows) for rank, rows in enumerate(newest_first)]
    last: bytes | None = None
    for key, _, row in heapq.merge(*ranked):
        if key != last:
            last = key
            if row.value is not None or not drops_tombstones:
                yield row


def _ranked(rank: int, rows: Iterable[KeyRow]) -> Iterator[tuple[bytes, int, KeyRow]]:
    for row in rows:
        yield row.key, rank, row


def _pack(rows: Sequence[KeyRow]) -> bytes:
    return b"".join(map(msgpack.Packer().pack, rows))  # packb() would create a packer for each row.


def _text(data: bytes) -> str:
    return b64encode(data).decode()
