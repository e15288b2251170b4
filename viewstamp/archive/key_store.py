"""The objects of the runs of keys of one cluster: dumped from batches of the log, merged, checked and read.

An object has the name of its run, as those of archived records do, because both have ids that are indices of the log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from typing import BinaryIO, Final, cast

from viewstamp.archive.creation import ObjectSink, finish_object, name_in_use
from viewstamp.archive.identity import check_content, content
from viewstamp.archive.key_file import PARQUET_KEYS, KeyFormat
from viewstamp.archive.key_rows import GroupRows, KeyRunReader, KeyRunWriter, merge_rows, rows_between
from viewstamp.archive.run_file import run_name
from viewstamp.archive.store import ObjectCreation, ObjectFile, ObjectStore
from viewstamp.errors import FrameError
from viewstamp.ids import ClusterId, Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.keyed_archivist import WrittenKeys
from viewstamp.node.keyed_reads import RangeSlices
from viewstamp.node.keyed_rows import KeyRow, Lookup, ScannedRows, rows_of
from viewstamp.wire.batch import Batch, Buffer
from viewstamp.wire.keying import SPLIT_BYTES_MAX

__all__ = ["KeyCreation", "KeyMerge", "KeyObjects"]

_READERS_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the descriptions that readers keep, with their filters."""
_GROUPS_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the groups of rows that readers keep, of about 256 KiB each; or one group."""
_STEP_ROWS: Final = 4096
"""Rows that one step of a merge writes at most."""


class KeyObjects:
    """The runs of keys of one cluster. All calls block; reads are made by one thread at a time.

    It has the calls of ``node.keyed_archivist.KeyStore``, and those of ``node.keyed_reads.KeySource``.
    """

    def __init__(self, store: ObjectStore, cluster: ClusterId, keys: KeyFormat = PARQUET_KEYS) -> None:
        """Use the folder of ``cluster`` in ``store``; ``keys`` is the format of the objects."""
        self._store = store
        self._cluster = cluster
        self._keys = keys
        self._readers: OrderedDict[tuple[int, bytes], KeyRunReader] = OrderedDict()
        self._groups: OrderedDict[tuple[int, bytes, int], GroupRows] = OrderedDict()
        """The verified groups of rows that were read, the least recently used one first."""
        self._groups_bytes = 0

    # Writing.

    def begin_dump(self, run: RunId, topic: TopicId, first: Position, end: Position) -> KeyCreation:
        """Begin the object of a dump; as ``KeyStore``."""
        creation, sink = self._begin(run)
        return KeyCreation(self, creation, sink, run, topic, first, end)

    def begin_merge(
        self,
        run: ArchivedRun,
        slices: Sequence[ArchivedRun],
        *,
        start: bytes,
        end: bytes | None,
        is_oldest: bool,
        range_bytes: int,
    ) -> KeyMerge:
        """Begin the object of a merge; as ``KeyStore``."""
        readers = [self._open(each) for each in reversed(slices)]
        creation, sink = self._begin(run.id)
        rows = merge_rows([reader.rows(start, end) for reader in readers], drops_tombstones=is_oldest)
        counts = (reader.footer.groups[n].count for reader in readers for n in reader.groups_of(start, end))
        writer = self.writer(sink, run.id, run.topic, run.first, run.end, keys_max=sum(counts))
        return KeyMerge(creation, sink, writer, rows, run_name(self._cluster, run.id), start, range_bytes)

    def _begin(self, run: RunId) -> tuple[ObjectCreation, ObjectSink]:
        name = run_name(self._cluster, run)
        try:
            return self._store.begin(name), ObjectSink()
        except FileExistsError as error:
            raise name_in_use(self._store.where, name) from error

    def writer(
        self, sink: ObjectSink, run: RunId, topic: TopicId, first: Position, end: Position, *, keys_max: int
    ) -> KeyRunWriter:
        """Return a writer of rows into ``sink``."""
        groups = self._keys.begin(cast("BinaryIO", sink))
        return KeyRunWriter(groups, self._cluster, run, topic, first, end, keys_max=keys_max)

    @property
    def where(self) -> str:
        """The store, for messages."""
        return self._store.where

    # Reading.

    def check_keys(self, run: ArchivedRun) -> Generator[int, None, None]:
        """Read the object of a run and compare it with the catalogue, one group a step; as ``KeyStore``."""
        yield from self._open(run).verify()

    def lookup(self, runs: Sequence[ArchivedRun], key: bytes) -> Lookup:
        """Return the newest row of a key; as ``KeySource``."""
        asked = groups = 0
        for run in reversed(runs):
            asked += 1
            reader = self._reader(run)
            number = reader.group_of(key)
            if number is None:
                continue
            groups += 1
            group = self._group(run, reader, number)
            at = group.lower_bound(key)
            for row in group.rows(at, min(at + 1, group.count)):
                if row.key == key:
                    return Lookup(row, asked, groups)
        return Lookup(None, asked, groups)

    def scan(self, ranges: Sequence[RangeSlices], bytes_max: int) -> ScannedRows:
        """Return rows in the order of their keys; as ``KeySource``."""
        found: list[KeyRow] = []
        size = 0
        for each in ranges:
            rows = [self._rows(run, each.start, each.end) for run in reversed(each.runs)]
            for row in merge_rows(rows, drops_tombstones=True):
                if size >= bytes_max:
                    return ScannedRows(found, row.key)
                found.append(row)
                size += row.size
        return ScannedRows(found, None)

    def _rows(self, run: ArchivedRun, start: bytes, end: bytes | None) -> Iterator[KeyRow]:
        reader = self._reader(run)
        for number in reader.groups_of(start, end):
            yield from rows_between(self._group(run, reader, number), start, end)

    def _group(self, run: ArchivedRun, reader: KeyRunReader, number: int) -> GroupRows:
        at = int(run.id), run.digest, number
        group = self._groups.get(at)
        if group is None:
            group = self._groups[at] = reader.read_group(number)
            self._groups_bytes += group.size
            while self._groups_bytes > _GROUPS_BYTES and len(self._groups) > 1:
                _, dropped = self._groups.popitem(last=False)
                self._groups_bytes -= dropped.size
        self._groups.move_to_end(at)
        return group

    def _reader(self, run: ArchivedRun) -> KeyRunReader:
        at = int(run.id), run.digest
        reader = self._readers.get(at)
        if reader is None:
            reader = self._readers[at] = self._open(run)
            while len(self._readers) > 1 and sum(each.size for each in self._readers.values()) > _READERS_BYTES:
                self._readers.popitem(last=False)
        self._readers.move_to_end(at)
        return reader

    def _open(self, run: ArchivedRun) -> KeyRunReader:
        """Open the object of a run, and compare its description with the catalogue. Raises CorruptionError."""
        name = run_name(self._cluster, run.id)
        reader = KeyRunReader(lambda: self._keys.open(ObjectFile(self._store, name, run.size), name), name)
        reader.check_identity(self._cluster, run.id)
        footer = reader.footer
        found = content(footer.topic, footer.first, footer.end, footer.digest)
        check_content(name, f"keys of {found}", f"keys of {content(run.topic, run.first, run.end, run.digest.hex())}")
        return reader


class KeyCreation:
    """The object of a dump that is being written; as ``node.archivist.RunObject``."""

    def __init__(
        self,
        objects: KeyObjects,
        creation: ObjectCreation,
        sink: ObjectSink,
        run: RunId,
        topic: TopicId,
        first: Position,
        end: Position,
    ) -> None:
        self._objects = objects
        self._creation = creation
        self._sink = sink
        self._run = run
        self._topic = topic
        self._first = first
        self._end = end
        self._at = first
        self._rows: dict[bytes, KeyRow] = {}
        self._taken: list[Batch] = []

    def add(self, end: Position, buffers: Sequence[Buffer]) -> Position:
        """Add records before ``end``, as :meth:`take` and then :meth:`write`."""
        position = self.take(end, buffers)
        self.write()
        return position

    def take(self, end: Position, buffers: Sequence[Buffer]) -> Position:
        """Take records before ``end``, and return the next position. Raises FrameError: a batch is not the next one."""
        at = self._at
        for batch in Batch.decode_all(b"".join(buffers)):
            if at >= end:
                break
            if batch.topic != self._topic or not 0 <= at - batch.first_position < batch.count:
                raise FrameError(f"{batch!r} is not the batch of topic {self._topic} that holds position {at}")
            self._taken.append(batch)
            at = Position(min(batch.first_position + batch.count, end))
        self._at = at
        return at

    def write(self) -> None:
        """Keep the last row of each key of what was taken. Raises FrameError: a batch has no valid layout."""
        taken, self._taken = self._taken, []
        for row in rows_of(taken, self._first, self._end):
            self._rows[row.key] = row

    def finish(self) -> WrittenKeys:
        """Write the rows in the order of their keys, and make the object durable."""
        assert self._at == self._end, f"positions up to {self._at} of {self._end} were added"
        rows = [self._rows[key] for key in sorted(self._rows)]
        writer = self._objects.writer(self._sink, self._run, self._topic, self._first, self._end, keys_max=len(rows))
        for row in rows:
            if writer.add(row):
                self._sink.flush_into(self._creation)
        footer = writer.finish()
        self._sink.flush_into(self._creation)
        finish_object(self._creation, self._objects.where, run_name(footer.cluster, self._run))
        return WrittenKeys(self._sink.size, bytes.fromhex(footer.digest), footer.records, [])

    def abandon(self) -> None:
        """Remove what was written."""
        self._creation.abandon()


class KeyMerge:
    """The object of a merge that is being written; as ``node.keyed_archivist.MergeObject``."""

    def __init__(
        self,
        creation: ObjectCreation,
        sink: ObjectSink,
        writer: KeyRunWriter,
        rows: Iterator[KeyRow],
        name: str,
        start: bytes,
        range_bytes: int,
    ) -> None:
        self._creation = creation
        self._sink = sink
        self._writer = writer
        self._rows = rows
        self._name = name
        self._start = start
        self._range_bytes = range_bytes
        self._bytes = 0
        self._split_at = range_bytes
        self._splits: list[bytes] = []

    def step(self) -> bool:
        """Write further rows; return whether there are more."""
        for _ in range(_STEP_ROWS):
            row = next(self._rows, None)
            if row is None:
                return False
            if self._bytes >= self._split_at and self._start < row.key and len(row.key) <= SPLIT_BYTES_MAX:
                self._splits.append(row.key)
                self._split_at = self._bytes + self._range_bytes
            self._bytes += row.size
            if self._writer.add(row):
                self._sink.flush_into(self._creation)
        return True

    def finish(self) -> WrittenKeys:
        """Write the rest, and make the object durable."""
        footer = self._writer.finish()
        self._sink.flush_into(self._creation)
        finish_object(self._creation, "the store", self._name)
        # A last part of less than half a range stays with the one before it.
        if self._splits and self._bytes - (self._split_at - self._range_bytes) < self._range_bytes // 2:
            del self._splits[-1]
        return WrittenKeys(self._sink.size, bytes.fromhex(footer.digest), footer.records, self._splits)

    def abandon(self) -> None:
        """Remove what was written."""
        self._creation.abandon()
