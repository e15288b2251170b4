"""Pass 2: the batches of a plan, read in its order from the replicas that were chosen, and verified again.

Their columns are cut and joined without looking at the records.
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
"""Files that are kept open, each with a piece of it: RECORDS and STAGED batches of a few replicas."""


class Extent(NamedTuple):
    """One item of a plan and where it is: all that reading it takes, so it may be pickled and sent.

    ``position`` is that of the first record shown, ``count`` how many of the batch are, after its first ``skip``.
    ``header`` is the batch's, as it was in pass 1.
    """

    topic: str
    position: int
    skip: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of an extent
    log_time: int
    path: str
    location: int
    header: bytes


def extents(plan: ReplayPlan) -> Iterator[Extent]:
    """Yield the plan with the places of its batches, in order."""
    chain = plan.chain
    for topic, position, skip, count, log_time, place in plan:
        number, row = chain.copy(place)
        replica = chain.replicas[number]
        rows = replica.rows
        path = replica.paths[rows.files[row]]
        header = rows.header(row)
        yield Extent(plan.topics[topic], position, skip, count, log_time, path, rows.locations[row], header)


class ExtentReader:
    """Reads extents; blocking. Use it as a context, or close it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._windows: OrderedDict[tuple[str, bool], tuple[File, Window]] = OrderedDict()

    def __enter__(self) -> ExtentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Idempotent."""
        while self._windows:
            self._windows.popitem()[1][0].close()

    def read(self, extent: Extent) -> Batch:
        """Return the batch of an extent, with the position and the log time under which it is visible.

        Its buffer is a view of a piece that was read: valid as long as it is held, and it keeps the piece alive.

        Raises:
          CorruptionError: it is not what it was in pass 1.
          StorageError: it cannot be read.
        """
        size = Batch.measure(extent.header)
        batch = Batch.decode_header(extent.header)
        view = self._window(extent.path, batch.kind is Kind.STAGED).peek(extent.location, size)
        try:
            batch = Batch.decode(view)
            if view[: len(extent.header)] != extent.header:
                raise FrameError(f"{batch!r}, which is another one")
        except FrameError as error:
            raise CorruptionError(
                f"{extent.path} at byte {extent.location} is not what it was a moment ago: {error.message}",
                path=extent.path,
                location=extent.location,
                expected="the batch that was there",
                found=error.message,
                remedy="stop the node if it runs, or copy its directory; then replay again",
            ) from error
        batch.first_position = Position(extent.position - extent.skip)
        batch.log_time = extent.log_time
        return batch

    def _window(self, path: str, staged: bool) -> Window:
        """Return the piece of a file where reading goes on: staged batches lie elsewhere in it than what is around."""
        key = path, staged
        found = self._windows.get(key)
        if found is None:
            try:
                file = self._disk.open_read(path)
            except FileNotFoundError as error:
                raise CorruptionError(
                    f"{path} is gone since it was read",
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
    """Rows of a block that were one batch, or the part of it that is shown; all with one term and log time."""

    topic: str
    position: int
    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    log_time: int
    count: int  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Block:
    """Records of a plan that follow on each other: their values, keys and headers as joined columns, and the rest."""

    runs: list[RecordRun]
    columns: Columns

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        return self.columns.size


def read_runs(reader: ExtentReader, items: Iterable[Extent]) -> Iterator[tuple[RecordRun, Columns]]:
    """Yield each extent's records, as they stand in its batch."""
    for extent in items:
        batch = reader.read(extent)
        columns = slice_columns(batch.columns(), extent.skip, extent.skip + extent.count)
        index = batch.first_index + extent.skip
        yield RecordRun(extent.topic, extent.position, batch.term, index, extent.log_time, extent.count), columns


def blocks(runs: Iterable[tuple[RecordRun, Columns]], bytes_max: int) -> Iterator[Block]:
    """Join runs to blocks of about ``bytes_max`` bytes: what is small is dear one by one, whoever takes it."""
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
    """Return a column's offsets, one more than it has items, as numbers of this machine."""
    offsets = array("i")
    offsets.frombytes(column.offsets)
    if sys.byteorder == "big":
        offsets.byteswap()
    return offsets


def slice_columns(columns: Columns, start: int, end: int) -> Columns:
    """Return the records ``[start, end)``; all of them as they are, without a copy."""
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
    """Return the records of all ``parts``, at least one, in their order. What has no keys or headers gets none."""
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
