"""The objects of the runs of one cluster in a store: written from batches of the log, checked, listed and removed.

The object of a run is ``CLUSTER/ID.parquet``, with the id in 20 digits, so that a list is in the order of the ids. That
of a stream is ``CLUSTER@GROUP/ID.parquet``, because the ids of two groups may be equal. So each list is that of one
group, and the leader of a group never sees an object of another one as an orphan.

The bytes of an object are those of a :class:`RunFormat`: Parquet, except in the simulator, which has no pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from importlib.util import find_spec
from typing import BinaryIO, Protocol, cast

from viewstamp.archive.columns import load_arrow
from viewstamp.archive.creation import ObjectSink, finish_object, name_in_use
from viewstamp.archive.identity import check_content, content
from viewstamp.archive.key_file import PARQUET_KEYS, KeyFormat
from viewstamp.archive.key_store import KeyObjects
from viewstamp.archive.run_batches import encode_records
from viewstamp.archive.run_file import NewRun, RunFooter, RunReader, RunWriter, run_folder, run_name
from viewstamp.archive.store import ObjectCreation, ObjectFile, ObjectStore
from viewstamp.errors import ConfigError, CorruptionError, FrameError, StorageError
from viewstamp.ids import GROUP_0, ClusterId, GroupId, Index, Position, RunId, Term, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.archived import LoadedRecords
from viewstamp.node.run_objects import WrittenRun
from viewstamp.wire.batch import Batch, Buffer, Columns
from viewstamp.wire.columns import slice_columns
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.run_order import OrderBuilder, RunOrder

__all__ = ["PARQUET", "ReadableRun", "RunCreation", "RunFormat", "RunObjects", "WritableRun"]

_NAME = re.compile(r"(\d{20})\.parquet")


class WritableRun(Protocol):
    """A run that is being encoded; ``end`` is the position after its last record so far."""

    end: int

    def add(self, term: Term, first_index: Index, log_time: int, columns: Columns) -> None:
        """Add the next records. Raises FrameError if their layout is invalid."""
        ...

    def finish(self) -> RunFooter:
        """Write the rest and the description, and return it."""
        ...


class ReadableRun(Protocol):
    """The object of a run that was opened; ``footer`` is its description."""

    footer: RunFooter

    def check_identity(self, cluster: ClusterId, run: RunId, group: GroupId = GROUP_0) -> None:
        """Check that the object is that of a run of a group of a cluster. Raises CorruptionError."""
        ...

    def verify(self) -> Iterator[int]:
        """Read all of it, and compare the records with the digest; yields the bytes of each step.

        Raises:
          CorruptionError: it has changed.
        """
        ...

    def load(self, position: Position) -> LoadedRecords:
        """Return the verified part of the run that holds a position. Raises CorruptionError."""
        ...


class RunFormat(Protocol):
    """How the records of a run are bytes.

    ``package``: a package that is needed for it; "" = none.
    """

    package: str

    def check(self) -> None:
        """Load what is needed. Raises ConfigError."""
        ...

    def begin(self, sink: BinaryIO, new: NewRun) -> WritableRun:
        """Begin to encode a run; ``sink`` gets the bytes in order."""
        ...

    def open(self, source: ObjectFile, name: str) -> ReadableRun:
        """Open an object. Raises CorruptionError, OutdatedCodeError."""
        ...


class _Parquet:
    """The format of all stores; it has the calls of :class:`RunFormat`."""

    package = "pyarrow"

    def check(self) -> None:
        load_arrow()

    def begin(self, sink: BinaryIO, new: NewRun) -> WritableRun:
        return RunWriter(sink, new)

    def open(self, source: ObjectFile, name: str) -> ReadableRun:
        return _ParquetRun(source, name)


class _ParquetRun(RunReader):
    def load(self, position: Position) -> LoadedRecords:
        first, table = self.read_group(position)
        return encode_records(table, first, self.footer.topic)


PARQUET: RunFormat = _Parquet()


class RunObjects:
    """The objects of one cluster. All calls block.

    It has the calls of ``node.archivist.RunStore``, and those of ``node.archived.RunSource`` for readers.
    """

    def __init__(
        self,
        store: ObjectStore,
        cluster: ClusterId,
        runs: RunFormat = PARQUET,
        keys: KeyFormat = PARQUET_KEYS,
        group: GroupId = GROUP_0,
    ) -> None:
        """Use the folder of a group of a cluster in ``store``; ``runs`` and ``keys`` are the formats of the objects."""
        self.keys = KeyObjects(store, cluster, keys)
        """The runs of keyed topics."""
        self.where = store.where
        self._store = store
        self._runs = runs
        self._keys = keys
        self._group = group
        self.cluster = cluster

    def of_group(self, group: GroupId) -> RunObjects:
        """Return the objects of another group; as ``RunStore``."""
        return RunObjects(self._store, self.cluster, self._runs, self._keys, group)

    @property
    def problem(self) -> str:
        """Return why this process can read and write no run; "" = it can."""
        package = self._runs.package
        return "" if not package or find_spec(package) is not None else f"{package} is not installed"

    def check_usable(self) -> None:
        """Check that the format and the store can be used; returns within a second.

        Raises:
          ConfigError: a package is missing, or the store refuses what an archive needs.
          UnavailableError: the store does not answer, or has not answered yet.
        """
        self._runs.check()
        self.check_store()

    def check_store(self) -> None:
        """Check as :meth:`check_usable`, but not whether a package is missing."""
        try:
            self._store.check_usable()
        except StorageError as error:
            raise ConfigError(error.message, remedy=error.remedy) from error

    def status(self) -> dict[str, object]:
        """Return what is wrong with the store; as :meth:`ObjectStore.status`."""
        return self._store.status()

    def recognise(self, runs: Sequence[ArchivedRun]) -> bool:
        """Return whether the store has one of these runs; as ``RunStore``."""
        if runs and not any(self._has(run) for run in runs):
            return False
        if all(run.group != self._group for run in runs):
            self._store.prepare(run_folder(self.cluster, self._group))
        return True

    def _has(self, run: ArchivedRun) -> bool:
        try:
            self._store.read_part(run_name(self._cluster_of(run), run.id, run.group), 0, 1)
        except FileNotFoundError:
            return False
        return True

    def begin(self, run: RunId, topic: TopicId, first: Position, schema: str = "") -> RunCreation:
        """Begin to write the object of a run; as ``RunStore``."""
        name = run_name(self.cluster, run, self._group)
        try:
            creation = self._store.begin(name)
        except FileExistsError as error:
            raise name_in_use(self.where, name) from error
        sink, order = ObjectSink(), None if self._group == GROUP_0 else OrderBuilder(first)
        new = NewRun(self.cluster, run, topic, first, schema, self._group, order)
        writer = self._runs.begin(cast("BinaryIO", sink), new)
        return RunCreation(creation, sink, writer, topic, self.where, name, order)

    def check(self, run: ArchivedRun) -> Generator[int, None, None]:
        """Read the object of a run and compare it with the catalogue, one row group a step; as ``RunStore``."""
        yield from self._open(run).verify()

    def load(self, run: ArchivedRun, position: Position) -> LoadedRecords:
        """Read the row group of a run that holds a position, verify it, and return its records as batches.

        The object is opened anew each time, because it may have been replaced by an intact one, or by another one.
        """
        return self._open(run).load(position)

    def order(self, run: ArchivedRun) -> RunOrder:
        """Return the order of the records of a stream's run. Raises as :meth:`check`."""
        footer, name = self._open(run).footer, run_name(self._cluster_of(run), run.id, run.group)
        order = footer.read_order(name)
        found = None if order is None else (order.position, order.position_end)
        if order is None or found != (run.first_global, run.end_global):
            raise CorruptionError(
                f"run file {name} has the global positions {found}, and the catalogue has"
                f" {(run.first_global, run.end_global)}",
                path=name,
                expected=f"global positions in [{run.first_global}, {run.end_global})",
                found=str(found),
                remedy="keep the object, and put an intact copy in its place",
            )
        return order

    def _cluster_of(self, run: ArchivedRun) -> ClusterId:
        return ClusterId(run.origin) if run.origin else self.cluster

    def _open(self, run: ArchivedRun) -> ReadableRun:
        """Open the object of a run, and compare its description with the catalogue. Raises as :meth:`check`."""
        cluster = self._cluster_of(run)
        name = run_name(cluster, run.id, run.group)
        reader = self._runs.open(ObjectFile(self._store, name, run.size), name)
        reader.check_identity(cluster, run.id, run.group)
        footer = reader.footer
        found = content(footer.topic, footer.first, footer.end, footer.digest)
        check_content(name, found, content(run.topic, run.first, run.end, run.digest.hex()))
        return reader

    def remove(self, run: RunId) -> None:
        """Remove the object of a run of this cluster; as ``RunStore``."""
        self._store.remove(run_name(self.cluster, run, self._group))

    def list_sizes(self) -> dict[int, int]:
        """Return the size of each object of this cluster, by the id of its run; as ``RunStore``."""
        folder = run_folder(self.cluster, self._group)
        sizes = self._store.list_sizes(folder).items()
        found = ((_NAME.fullmatch(name.removeprefix(folder)), size) for name, size in sizes)
        return {int(match[1]): size for match, size in found if match is not None}

    def rest(self) -> None:
        """Do nothing, because the calls keep nothing."""

    def close(self) -> None:
        """Do nothing, as :meth:`rest`."""


class RunCreation:
    """The object of a run that is being written; as ``node.archivist.RunObject``."""

    def __init__(
        self,
        creation: ObjectCreation,
        sink: ObjectSink,
        writer: WritableRun,
        topic: TopicId,
        where: str,
        name: str,
        order: OrderBuilder | None = None,
    ) -> None:
        self._order = order
        self._creation = creation
        self._sink = sink
        self._writer = writer
        self._topic = topic
        self._where = where
        self._name = name
        self._taken: list[tuple[Batch, int]] = []
        """Batches that :meth:`write` has to write, each with the position before which it is cut."""

    def add(self, end: Position, buffers: Sequence[Buffer], order: Sequence[GlobalRun] = ()) -> Position:
        """Add records before ``end``, as :meth:`take` and then :meth:`write`."""
        position = self.take(end, buffers, order)
        self.write()
        return position

    def take(self, end: Position, buffers: Sequence[Buffer], order: Sequence[GlobalRun] = ()) -> Position:
        """Take records before ``end``, which :meth:`write` writes, and return the next position.

        The batches are verified again, because they may have been in memory for long. ``order``: the runs that hold
        these records, if the topic is a stream.

        Raises:
          FrameError: a batch is not the next one, or the order lacks a record.
        """
        assert not self._taken, "each piece is written before the next one is taken"
        at = self._writer.end
        for batch in Batch.decode_all(b"".join(buffers)):
            if at >= end:
                break
            if batch.topic != self._topic or not 0 <= at - batch.first_position < batch.count:
                raise FrameError(f"{batch!r} is not the batch of topic {self._topic} that holds position {at}")
            self._taken.append((batch, end))
            at = Position(min(batch.first_position + batch.count, end))
        if self._order is not None:
            try:
                self._order.extend(order, at)
            except ValueError as error:
                raise FrameError(str(error)) from error
        return Position(at)

    def write(self) -> None:
        """Write what was taken. Raises FrameError, if a batch has no valid layout, and the errors of the store."""
        taken, self._taken = self._taken, []
        for batch, end in taken:
            self._add(batch, end)
        self._flush()

    def _add(self, batch: Batch, end: int) -> None:
        skip = self._writer.end - batch.first_position
        try:
            columns = slice_columns(batch.columns(), skip, min(batch.count, end - batch.first_position))
        except (ValueError, IndexError, OverflowError) as error:
            raise FrameError(f"{batch!r} has an invalid layout: {error}") from error
        self._writer.add(batch.term, Index(batch.first_index + skip), batch.log_time, columns)

    def finish(self) -> WrittenRun:
        """Complete the file, and make the object durable."""
        footer = self._writer.finish()
        self._flush()
        finish_object(self._creation, self._where, self._name)
        return WrittenRun(
            self._sink.size,
            bytes.fromhex(footer.digest),
            footer.first_index,
            footer.end_index,
            footer.first_time,
            footer.last_time,
            *((0, 0) if self._order is None else (self._order.order.position, self._order.order.position_end)),
        )

    def abandon(self) -> None:
        """Remove what was written."""
        self._creation.abandon()

    def _flush(self) -> None:
        self._sink.flush_into(self._creation)
