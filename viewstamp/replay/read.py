"""Pass 2: reads the batches of a plan in its order from the chosen replicas, and verifies them again.

Columns are cut and joined without decoding the records.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from viewstamp.errors import CorruptionError, FrameError
from viewstamp.host.interfaces import Disk, File
from viewstamp.ids import Position
from viewstamp.replay.headers import CHUNK_BYTES
from viewstamp.replay.visible import ReplayPlan
from viewstamp.wal.scan import Window
from viewstamp.wire.batch import Batch, Columns, Kind
from viewstamp.wire.columns import join_columns, slice_columns

__all__ = [
    "Block",
    "Extent",
    "ExtentReader",
    "RecordRun",
    "blocks",
    "extents",
    "read_runs",
]

_FILES_MAX: Final = 8
"""Files that are kept open, each with one piece in memory: enough for RECORDS and STAGED batches of a few replicas."""


class Extent(NamedTuple):
    """One item of a plan with its place: all that is needed to read it, so that it can be pickled and sent.

    ``position`` is that of the first record to show; ``count`` records are shown, after the first ``skip`` of the
    batch. ``header`` is the batch's, as pass 1 read it.
    """

    topic: str
    position: int
    skip: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which an extent does not need
    log_time: int
    path: str
    location: int
    header: bytes


def extents(plan: ReplayPlan) -> Iterator[Extent]:
    """Yield the items of a plan with the places of their batches, in order."""
    chain = plan.chain
    for topic, position, skip, count, log_time, place in plan:
        number, row = chain.copy(place)
        replica = chain.replicas[number]
        rows = replica.rows
        path = replica.paths[rows.files[row]]
        header = rows.header(row)
        yield Extent(plan.topics[topic], position, skip, count, log_time, path, rows.locations[row], header)


class ExtentReader:
    """Reads extents; blocking. Use it as a context manager, or close it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._windows: OrderedDict[tuple[str, bool], tuple[File, Window]] = OrderedDict()

    def __enter__(self) -> ExtentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Safe to repeat."""
        while self._windows:
            self._windows.popitem()[1][0].close()

    def read(self, extent: Extent) -> Batch:
        """Return the batch of an extent, with the position and the log time under which it is visible.

        Its buffer is a view of the piece that was read, and keeps the piece in memory as long as it is held.

        Raises:
          CorruptionError: the batch has changed since pass 1.
          StorageError: the file cannot be read.
        """
        batch = self.read_at(extent.path, extent.location, extent.header)
        batch.first_position = Position(extent.position - extent.skip)
        batch.log_time = extent.log_time
        return batch

    def read_at(self, path: str, location: int, header: bytes) -> Batch:
        """Return the batch with this header, verified, as it is in the log; else as :meth:`read`."""
        size = Batch.measure(header)
        batch = Batch.decode_header(header)
        view = self._window(path, batch.kind is Kind.STAGED).peek(location, size)
        try:
            batch = Batch.decode(view)
            if view[: len(header)] != header:
                raise FrameError(f"it holds {batch!r} instead of the expected batch")
        except FrameError as error:
            raise CorruptionError(
                f"{path} has changed at byte {location} while it was read: {error.message}",
                path=path,
                location=location,
                expected="the batch that pass 1 read",
                found=error.message,
                remedy="stop the node if it runs, or copy its directory; then replay again",
            ) from error
        return batch

    def _window(self, path: str, staged: bool) -> Window:
        """Return the window of a file. Staged batches have their own, because they lie elsewhere than their COMMIT."""
        key = path, staged
        found = self._windows.get(key)
        if found is None:
            try:
                file = self._disk.open_read(path)
            except FileNotFoundError as error:
                raise CorruptionError(
                    f"{path} was deleted while the directory was read",
                    path=path,
                    expected="the segment",
                    found="no file",
                    remedy="stop the node if it runs, or copy its directory; then replay again",
                ) from error
            if len(self._windows) >= _FILES_MAX:
                self._windows.popitem(last=False)[1][0].close()
            found = self._windows[key] = file, Window(file, CHUNK_BYTES)
        self._windows.move_to_end(key)
        return found[1]


class RecordRun(NamedTuple):
    """Rows of a block that come from one batch, or its shown part; all have one term and one log time."""

    topic: str
    position: int
    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    log_time: int
    count: int  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive records of a plan: their values, keys and headers as joined columns, and their runs."""

    runs: list[RecordRun]
    columns: Columns

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return self.columns.size


def read_runs(reader: ExtentReader, items: Iterable[Extent]) -> Iterator[tuple[RecordRun, Columns]]:
    """Yield the records of each extent, as they are in its batch."""
    for extent in items:
        batch = reader.read(extent)
        columns = slice_columns(batch.columns(), extent.skip, extent.skip + extent.count)
        index = batch.first_index + extent.skip
        yield RecordRun(extent.topic, extent.position, batch.term, index, extent.log_time, extent.count), columns


def blocks(runs: Iterable[tuple[RecordRun, Columns]], bytes_max: int) -> Iterator[Block]:
    """Join runs into blocks of about ``bytes_max`` bytes, because every consumer has a fixed cost for each block."""
    held: list[RecordRun] = []
    parts: list[Columns] = []
    size = 0
    for run, columns in runs:
        if held and size + columns.size > bytes_max:
            yield Block(held, join_columns(parts))
            held, parts, size = [], [], 0
        held.append(run)
        parts.append(columns)
        size += columns.size
    if held:
        yield Block(held, join_columns(parts))
