"""The runs of simulated worlds as bytes: the batches as readers get them, because the simulator has no pyarrow.

It has what the rules of ``archive/run_store.py`` need: several verified parts, a description with a checksum, a digest
of all records. An object is, for each part, its length in 4 bytes and its batches; then the description, and its
length in 4 bytes. The description is that of the real file (:class:`RunFooter`).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from io import RawIOBase
from itertools import accumulate
from typing import BinaryIO

import msgpack

from viewstamp.archive.key_rows import GroupReader, GroupWriter
from viewstamp.archive.run_file import NewRun, RunFooter, RunGroup, damaged_run, ordered_digest, packed_order
from viewstamp.archive.run_store import ReadableRun, WritableRun
from viewstamp.archive.store import ObjectFile
from viewstamp.ids import GROUP_0, ClusterId, GroupId, Index, Position, RunId, Term
from viewstamp.node.archived import LoadedRecords
from viewstamp.node.keyed_rows import KeyRow
from viewstamp.wire.batch import Batch, Columns, build_columns
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.columns import slice_columns

__all__ = ["SimpleKeys", "SimpleRuns"]

_PART_RECORDS = 8
"""Records after which a part ends: few, so that most runs have several parts."""
_BATCH_RECORDS = 3
"""A batch ends at each multiple of this position."""
_LENGTH = struct.Struct("<I")


class SimpleRuns:
    """The format; it has the calls of ``archive.run_store.RunFormat``."""

    package = ""

    def check(self) -> None:
        """Do nothing, because nothing has to be loaded."""

    def begin(self, sink: BinaryIO, new: NewRun) -> WritableRun:
        """Begin to encode a run; it has no typed columns, because they need Arrow."""
        return _Writer(sink, new)

    def open(self, source: ObjectFile, name: str) -> ReadableRun:
        """Open an object. Raises CorruptionError, OutdatedCodeError."""
        return _Reader(source, name)


class SimpleKeys:
    """The format of runs of keys; it has the calls of ``archive.key_file.KeyFormat``."""

    def begin(self, sink: BinaryIO) -> GroupWriter:
        """Begin a file."""
        return _KeyWriter(sink)

    def open(self, source: BinaryIO | RawIOBase, name: str) -> GroupReader:
        """Open a file. Raises CorruptionError."""
        return _KeyReader(source, name)


class _KeyWriter:
    """Groups, each with its length in 4 bytes before it; then the description, and its length."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.size = 0

    def write(self, rows: Sequence[KeyRow]) -> Iterable[bytes]:
        data = msgpack.packb([list(row) for row in rows])
        self.size += _LENGTH.size + len(data)
        self._sink.write(_LENGTH.pack(len(data)) + data)
        return [data]

    def finish(self, description: bytes) -> None:
        self._sink.write(description + _LENGTH.pack(len(description)))


class _KeyReader:
    """It keeps the places of the groups from its opening, as pyarrow does, and no checksum protects them."""

    def __init__(self, source: BinaryIO | RawIOBase, name: str) -> None:
        self._name = name
        self._source = source
        data = source.read() or b""
        (size,) = _LENGTH.unpack(data[-_LENGTH.size :]) if len(data) >= _LENGTH.size else (0,)
        end = len(data) - _LENGTH.size - size
        self.description: bytes | None = data[end : -_LENGTH.size] if size and end >= 0 else None
        self._places: list[tuple[int, int]] = []
        at = _LENGTH.size
        while at <= end:
            (length,) = _LENGTH.unpack_from(data, at - _LENGTH.size)
            self._places.append((at, length))
            at += length + _LENGTH.size

    def read(self, number: int, begin: int, end: int) -> _KeyGroup:
        try:
            at, size = self._places[number]
            self._source.seek(at)
            data = self._source.read(size) or b""
            return _KeyGroup([KeyRow(*row) for row in msgpack.unpackb(data)], data)
        except (LookupError, ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise damaged_run(self._name, f"group {number} cannot be read: {error!r}") from error


class _KeyGroup:
    """The rows of a group, and its bytes; it has the calls of ``archive.key_rows.GroupRows``."""

    def __init__(self, rows: list[KeyRow], data: bytes) -> None:
        self.count = len(rows)
        self.size = len(data)
        self._rows = rows
        self._data = data

    def content(self) -> Iterable[bytes]:
        return [self._data]

    def lower_bound(self, key: bytes) -> int:
        return bisect_left(self._rows, key, key=lambda row: row.key)

    def rows(self, low: int, high: int) -> list[KeyRow]:
        return self._rows[low:high]


class _Writer:
    def __init__(self, sink: BinaryIO, new: NewRun) -> None:
        self._sink = sink
        self._new = new
        self.end: int = new.first
        self._held: list[Batch] = []
        self._groups: list[RunGroup] = []
        self._indices: list[int] = []
        self._times: list[int] = []
        self._digest = _new_digest()

    def add(self, term: Term, first_index: Index, log_time: int, columns: Columns) -> None:
        """Add records, as batches that begin at other positions than those of the log, as Parquet's do."""
        start = 0
        while start < columns.count:
            end = min(columns.count, start + _BATCH_RECORDS - (self.end - 1) % _BATCH_RECORDS)
            self._add(term, Index(first_index + start), log_time, slice_columns(columns, start, end))
            start = end

    def _add(self, term: Term, first_index: Index, log_time: int, columns: Columns) -> None:
        batch = build_columns(columns, topic=self._new.topic)
        batch.stamp(
            term=term,
            first_index=first_index,
            previous_term=Term(0),
            log_time=log_time,
            first_position=Position(self.end),
        )
        self._held.append(batch)
        self._indices += [first_index, first_index + columns.count]
        self._times.append(log_time)
        self.end += columns.count
        if sum(each.count for each in self._held) >= _PART_RECORDS:
            self._write_part()

    def finish(self) -> RunFooter:
        self._write_part()
        order = None if self._new.order is None else self._new.order.order
        footer = RunFooter(
            self._new.cluster,
            self._new.run,
            self._new.topic,
            self._new.first,
            Position(self.end),
            ordered_digest(self._digest.hexdigest(), order),
            Index(min(self._indices)),
            Index(max(self._indices)),
            min(self._times),
            max(self._times),
            tuple(self._groups),
            None,
            self._new.group,
            packed_order(order),
        )
        packed = footer.pack()
        self._sink.write(packed + _LENGTH.pack(len(packed)))
        return footer

    def _write_part(self) -> None:
        if not self._held:
            return
        data = b"".join(bytes(batch.buffer) for batch in self._held)
        count = sum(batch.count for batch in self._held)
        self._held = []
        self._groups.append(RunGroup(self.end - count, count, crc32c(data)))
        self._digest.update(data)
        self._sink.write(_LENGTH.pack(len(data)) + data)


class _Reader:
    def __init__(self, source: ObjectFile, name: str) -> None:
        self._name = name
        data = source.read()
        (size,) = _LENGTH.unpack(data[-_LENGTH.size :]) if len(data) >= _LENGTH.size else (0,)
        end = len(data) - _LENGTH.size - size
        if not size or end < 0:
            raise damaged_run(name, "it has no description")
        self.footer = RunFooter.unpack(data[end : -_LENGTH.size], name)
        self._data = data[:end]

    def check_identity(self, cluster: ClusterId, run: RunId, group: GroupId = GROUP_0) -> None:
        self.footer.check_identity(cluster, run, self._name, group)

    def verify(self) -> Iterator[int]:
        digest = _new_digest()
        for number in range(len(self.footer.groups)):
            data = self._part(number)
            digest.update(data)
            yield len(data)
        if ordered_digest(digest.hexdigest(), self.footer.read_order(self._name)) != self.footer.digest:
            raise damaged_run(self._name, "its records have another digest")

    def load(self, position: Position) -> LoadedRecords:
        groups = self.footer.groups
        number = bisect_right(groups, int(position), key=lambda group: group.first) - 1
        data, group = self._part(number), groups[number]
        batches = list(Batch.decode_all(data))
        starts = accumulate((len(batch.buffer) for batch in batches[:-1]), initial=0)
        return LoadedRecords(
            Position(group.first),
            Position(group.first + group.count),
            data,
            array("Q", [batch.first_position for batch in batches]),
            array("Q", starts),
        )

    def _part(self, number: int) -> bytes:
        """Return the verified batches of a part. Raises CorruptionError."""
        at = 0
        for _ in range(number):
            at += _LENGTH.size + self._length(at)
        data = self._data[at + _LENGTH.size : at + _LENGTH.size + self._length(at)]
        if crc32c(data) != self.footer.groups[number].checksum:
            raise damaged_run(self._name, f"part {number} has another checksum")
        return data

    def _length(self, at: int) -> int:
        (length,) = _LENGTH.unpack_from(self._data, at) if at + _LENGTH.size <= len(self._data) else (0,)
        if not length or at + _LENGTH.size + length > len(self._data):
            raise damaged_run(self._name, "it has fewer bytes than its description")
        return int(length)


def _new_digest() -> blake2b:
    return blake2b(digest_size=32)
