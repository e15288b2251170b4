"""The rows of a run of keys, its description and its filter, without the bytes of the file. Pure.

A *row* is the last record of a key at the positions of its run; its value None is a *tombstone*: the key was deleted.
Rows are in the order of their keys, and in groups of about 256 KiB. The description of the file has the first key of
each group, its number of rows and its checksum, and a Bloom filter of all keys: 10 bits a key, so that of a hundred
keys that the run does not hold one passes. It is the filter of this format and not Parquet's, because pyarrow writes
Parquet's filters, and cannot ask them. The description has a checksum of its own.

The checksum of a group is the crc32c of its *content*, and the digest of the run is the BLAKE2b of the content of all
groups. The content does not depend on encoding and compression. In format 2 it is that of the columns
(``key_columns.py``), because a reader that wants one row then makes no Python objects of the others. In format 1, which
is read only, it is the rows, each packed by msgpack.
"""

from __future__ import annotations

import heapq
import json
import struct
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

import msgpack

from viewstamp.archive.identity import check_origin
from viewstamp.archive.opened import OpenedFile
from viewstamp.archive.run_file import damaged_run
from viewstamp.errors import OutdatedCodeError
from viewstamp.ids import GROUP_0, ClusterId, Position, RunId, TopicId
from viewstamp.node.keyed_rows import KeyRow
from viewstamp.wire.batch import Buffer
from viewstamp.wire.checksum import crc32c

__all__ = [
    "GROUP_BYTES",
    "GroupReader",
    "GroupRows",
    "GroupWriter",
    "KeyFilter",
    "KeyFooter",
    "KeyRunReader",
    "KeyRunWriter",
    "merge_rows",
    "rows_between",
]

GROUP_BYTES: Final = 256 * 1024
GROUP_ROWS: Final = 4096
_FORMAT: Final = 2
_FORMAT_OF_ROWS: Final = 1
"""Its checksums are those of packed rows. Written by development versions of 0.1."""
_BITS: Final = 10
_HASHES: Final = 7
_TWO = struct.Struct("<QQ")
_DIGEST_SIZE: Final = 32
_STEP_ROWS: Final = 256
"""Rows of which Python objects are made at once."""


class GroupWriter(Protocol):
    """The bytes of a file of rows that is being written."""

    @property
    def size(self) -> int:
        """The bytes of all groups so far."""
        ...

    def write(self, rows: Sequence[KeyRow]) -> Iterable[Buffer]:
        """Write a group, and return its content."""
        ...

    def finish(self, description: bytes) -> None:
        """Write the rest, with the description."""
        ...


class GroupRows(Protocol):
    """A group that was read. ``count``: its number of rows."""

    count: int

    @property
    def size(self) -> int:
        """The bytes in memory."""
        ...

    def content(self) -> Iterable[Buffer]:
        """Return the bytes of which the description has the checksum."""
        ...

    def lower_bound(self, key: bytes) -> int:
        """Return the number of the first row whose key is not lower; ``count`` = there is none."""
        ...

    def rows(self, low: int, high: int) -> list[KeyRow]:
        """Return the rows ``[low, high)``."""
        ...


class GroupReader(Protocol):
    """The bytes of a file of rows. Calls raise CorruptionError.

    ``description`` is None if the file has none.
    """

    description: bytes | None

    def read(self, number: int, begin: int, end: int) -> GroupRows:
        """Read a group, which has the bytes ``[begin, end)`` of the file; 0 and 0 = they are not known."""
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
    """A group of rows: its first key, its number of rows, its checksum, and its bytes ``[begin, end)`` of the file.

    ``begin`` and ``end`` are 0 in a file of format 1, which does not have them.
    """

    start: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller uses
    checksum: int
    begin: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class KeyFooter:
    """The description of a run of keys in its file. ``last`` is its last key, b"" if it has no rows.

    ``format``: that of the file, which says what the checksums are of.
    """

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
    format: int = _FORMAT

    def pack(self) -> bytes:
        """Return the description as bytes."""
        fields = {
            "format": self.format,
            "kind": "keys",
            "ids": [self.cluster, self.run, self.topic, self.first, self.end],
            "records": self.records,
            "digest": self.digest,
            "last": _text(self.last),
            "groups": [[_text(group.start), *group[1:]] for group in self.groups],
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
            if version in (_FORMAT, _FORMAT_OF_ROWS):
                cluster, run, topic, first, end = found["ids"]
                groups = tuple(KeyGroup(b64decode(start), *rest) for start, *rest in found["groups"])
                bits = KeyFilter(bytearray(b64decode(found["filter"])))
                last, records, digest = b64decode(found["last"]), found["records"], found["digest"]
                return cls(cluster, run, topic, first, end, records, digest, last, groups, bits, version)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise damaged_run(name, f"its description cannot be read: {error!r}") from error
        raise OutdatedCodeError(
            f"the run of keys {name} has format {version!r}, but this release reads formats up to {_FORMAT}",
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
            checksum, begin = 0, self._groups.size
            for piece in self._groups.write(rows):
                checksum = crc32c(piece, checksum)
                self._digest.update(piece)
            self._written.append(KeyGroup(rows[0].key, len(rows), checksum, begin, self._groups.size))


class KeyRunReader:
    """Reads the file of a run of keys, group by group. Blocking."""

    def __init__(self, open_file: Callable[[], GroupReader], name: str) -> None:
        """Open the file and read its description. Raises CorruptionError, OutdatedCodeError."""

        def opened() -> tuple[GroupReader, KeyFooter]:
            groups = open_file()
            if groups.description is None:
                raise damaged_run(name, "it has no description of a run of keys")
            return groups, KeyFooter.unpack(groups.description, name)

        self._file = OpenedFile(opened)
        self.footer = self._file.footer
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

    def read_group(self, number: int) -> GroupRows:
        """Return a verified group. Raises CorruptionError."""
        return self._file.read(lambda groups: self._verified(groups, number))

    def _verified(self, groups: GroupReader, number: int) -> GroupRows:
        group = self.footer.groups[number]
        rows = groups.read(number, group.begin, group.end)
        checksum = 0
        for piece in self._content(rows):
            checksum = crc32c(piece, checksum)
        if rows.count != group.count or checksum != group.checksum:
            raise damaged_run(self._name, f"its group {number} has another checksum")
        return rows

    def _content(self, group: GroupRows) -> Iterable[Buffer]:
        """Return the bytes of which the description has the checksum."""
        return group.content() if self.footer.format == _FORMAT else [_pack(group.rows(0, group.count))]

    def rows(self, start: bytes, end: bytes | None) -> Iterator[KeyRow]:
        """Yield the rows with keys in ``[start, end)``, one group in memory at a time. Raises CorruptionError."""
        for number in self.groups_of(start, end):
            yield from rows_between(self.read_group(number), start, end)

    def verify(self) -> Iterator[int]:
        """Read all groups, one a step, and compare them with the digest; yields bytes. Raises CorruptionError."""
        digest = blake2b(digest_size=_DIGEST_SIZE)
        count, last = 0, b""
        for number in range(len(self._starts)):
            group = self.read_group(number)
            size = 0
            for piece in self._content(group):
                digest.update(piece)
                size += len(piece)
            for row in group.rows(0, group.count):
                if (count and row.key <= last) or not self.footer.filter.passes(row.key):
                    raise damaged_run(self._name, f"its key {row.key[:40]!r} is in no order, or not in its filter")
                count, last = count + 1, row.key
            yield size
        if digest.hexdigest() != self.footer.digest or count != self.footer.records:
            raise damaged_run(self._name, f"its {count} rows have another digest or number")

    def check_identity(self, cluster: ClusterId, run: RunId) -> None:
        """Check that the file is that of a run of a cluster. Raises CorruptionError."""
        check_origin(self._name, (self.footer.cluster, GROUP_0, self.footer.run), (cluster, GROUP_0, run))


def rows_between(group: GroupRows, start: bytes, end: bytes | None) -> Iterator[KeyRow]:
    """Yield the rows of a group with keys in ``[start, end)``; only a few more than are taken become Python objects."""
    low = group.lower_bound(start)
    high = group.count if end is None else group.lower_bound(end)
    for at in range(low, high, _STEP_ROWS):
        yield from group.rows(at, min(at + _STEP_ROWS, high))


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
