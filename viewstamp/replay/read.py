"""Pass 2: reads the batches of a plan in its order from the chosen replicas, and verifies them again.

Columns are cut and joined without decoding the records.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from viewstamp.errors import CorruptionError, FrameError
from viewstamp.host.interfaces import Disk, File
from viewstamp.ids import Position
from viewstamp.replay.headers import CHUNK_BYTES
from viewstamp.replay.visible import ReplayPlan
from viewstamp.wal.scan import Window
from viewstamp.wire.batch import Batch, Buffer, Column, Columns, Kind

__all__ = [
    "Block",
    "Extent",
    "ExtentReader",
    "RecordRun",
    "blocks",
    "extents",
    "join_columns",
    "offsets_of",
    "read_runs",
    "slice_columns",
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


def offsets_of(column: Column) -> array[int]:
    """Return a column's offsets, one more than it has items, in this machine's byte order."""
    offsets = array("i")
    offsets.frombytes(column.offsets)
    if sys.byteorder == "big":
        offsets.byteswap()
    return offsets


def slice_columns(columns: Columns, start: int, end: int) -> Columns:
    """Return the records ``[start, end)``. If these are all records, nothing is copied."""
    if (start, end) == (0, columns.count):
        return columns
    validity: bytes | None = None
    if columns.validity is not None:
        bits = int.from_bytes(columns.validity, "little") >> start & ((1 << end - start) - 1)
        validity = bits.to_bytes((end - start + 7) // 8, "little")
    return Columns(
        end - start,
        _slice(columns.values, start, end),
        validity,
        None if columns.keys is None else _slice(columns.keys, start, end),
        None if columns.headers is None else _slice(columns.headers, start, end),
    )


def join_columns(parts: Sequence[Columns]) -> Columns:
    """Return the records of all ``parts`` (at least one) in order. Parts without keys or headers get empty ones."""
    if len(parts) == 1:
        return parts[0]
    count = sum(part.count for part in parts)
    validity: bytes | None = None
    keys: Column | None = None
    headers: Column | None = None
    if any(part.keys is not None for part in parts):
        keys = _join([part.keys or _empty(part.count) for part in parts])
        bits = at = 0
        for part in parts:
            if part.validity is not None:
                bits |= (int.from_bytes(part.validity, "little") & ((1 << part.count) - 1)) << at
            at += part.count
        validity = bits.to_bytes((count + 7) // 8, "little")
    if any(part.headers is not None for part in parts):
        headers = _join([part.headers or _empty(part.count) for part in parts])
    return Columns(count, _join([part.values for part in parts]), validity, keys, headers)


def _empty(count: int) -> Column:
    return Column(bytes(4 * (count + 1)), b"")


def _slice(column: Column, start: int, end: int) -> Column:
    offsets = offsets_of(column)
    first = offsets[start]
    data = memoryview(column.data)[first : offsets[end]]
    return Column(_pack(array("i", [offset - first for offset in offsets[start : end + 1]])), data)


def _join(columns: Sequence[Column]) -> Column:
    joined = array("i", [0])
    data: list[Buffer] = []
    for column in columns:
        shift = joined[-1]
        offsets = offsets_of(column)
        joined.extend(offsets[1:] if shift == 0 else [offset + shift for offset in offsets[1:]])
        data.append(column.data)
    return Column(_pack(joined), b"".join(data))


def _pack(offsets: array[int]) -> bytes:
    if sys.byteorder == "big":
        offsets.byteswap()
    return offsets.tobytes()
