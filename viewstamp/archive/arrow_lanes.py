"""Reads pieces of a topic as Arrow tables: of files in threads, one row group each, and of the log through the nodes.

A *lane* is the records of a topic, or of one of its streams, as pieces by position. Its tables come in this order.
Threads read ahead in the files, by a bounded number of row groups. pyarrow and the checksum let other threads work.

| a piece of a file | effect |
| --- | --- |
| cannot be read, and its records were deleted since the plan | TrimmedError |
| is lost, damaged or replaced | CorruptionError |
| has fewer records than the catalogue | PeerError |
| the caller is cancelled, or stops | what a thread reads then is dropped; nothing waits for it |
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import pyarrow as arrow

from viewstamp.archive.columns import header_maps, number_array
from viewstamp.archive.committed_runs import RunFile, kept_behind, open_run, stream_kept_behind
from viewstamp.archive.exported_topic import STREAM, ExportedTopic
from viewstamp.archive.ordered_run import order_of, with_positions
from viewstamp.archive.run_file import RunPart, RunReader, join_parts
from viewstamp.archive.run_rows import ROW, row_structs
from viewstamp.archive.store import ObjectStore
from viewstamp.client.aio import Client
from viewstamp.client.spread_reader import StreamPart
from viewstamp.client.stream_ranges import StreamRange
from viewstamp.errors import CorruptionError, PeerError, TrimmedError
from viewstamp.wire.columns import slice_columns
from viewstamp.wire.row_schema import RowSchema
from viewstamp.wire.run_order import RunOrder

__all__ = ["ArrowLane", "NodePiece", "Projection", "RunPiece"]

_LOG_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the records of one table from the nodes."""


class RunPiece(NamedTuple):
    """Records of the file of a run: positions ``first`` to ``end`` in the file, half-open.

    ``part`` has the positions in the topic, if these are records of a stream.
    """

    file: RunFile
    first: int
    end: int
    part: StreamRange | None = None


class NodePiece(NamedTuple):
    """Records that the nodes have, at positions ``first`` to ``end``, half-open; ``part`` as of :class:`RunPiece`."""

    first: int
    end: int
    part: StreamRange | None = None


class Projection(NamedTuple):
    """The columns that a reader wants of the columns of a run.

    Attributes:
      topic: the name of the topic, for errors.
      columns: the names, in order.
      rows: the schema of the rows, for the column ``row``; None = it is not wanted.
    """

    topic: str
    columns: tuple[str, ...]
    rows: RowSchema | None = None

    def apply(self, table: Any, stream: int | None) -> Any:
        """Return the wanted columns, and ``position`` in any case, of records of a stream; None = there are no streams.

        Raises FrameError: the headers of a record are no map, so its writer is faulty.
        """
        arrays = {}
        for name in dict.fromkeys((*self.columns, "position")):
            if name == "headers":
                arrays[name] = header_maps(f"topic {self.topic}", table[name].combine_chunks())
            elif name == STREAM:
                numbers = array("i", [stream or 0]) * table.num_rows
                arrays[name] = number_array(arrow.int32(), table.num_rows, [numbers])
            elif name == ROW and self.rows is not None:
                arrays[name] = row_structs(self.rows, table["value"])
            else:
                arrays[name] = table[name]
        return arrow.table(arrays)


class ArrowLane:
    """The pieces of a topic, or of one of its streams, by position."""

    def __init__(
        self,
        client: Client,
        topic: ExportedTopic,
        store: ObjectStore | None,
        pool: ThreadPoolExecutor,
        pieces: Sequence[RunPiece | NodePiece],
        projection: Projection,
        *,
        ahead: int,
    ) -> None:
        """Read pieces; ``ahead`` row groups are read, or wait to be taken, at most."""
        self._client = client
        self._topic = topic
        self._store = store
        self._pool = pool
        self._pieces = pieces
        self._projection = projection
        self._ahead = ahead

    async def tables(self) -> AsyncGenerator[Any, None]:
        """Yield the records, as the projection has them.

        Raises: as the module's table; UnavailableError: the store, or no node, answers; StorageError: the store refuses
        this process.
        """
        loop = asyncio.get_running_loop()
        reading: deque[tuple[RunPiece, asyncio.Future[Any]]] = deque()
        for piece in self._pieces:
            if isinstance(piece, NodePiece):
                while reading:
                    yield await self._checked(*reading.popleft())
                stream = None if piece.part is None else piece.part.stream
                async with aclosing(self._of_log(piece)) as tables:
                    async for table in tables:
                        yield await loop.run_in_executor(self._pool, self._projection.apply, table, stream)
                continue
            run = _Run(self._store, piece, self._projection)
            opened = loop.run_in_executor(self._pool, run.groups)
            for low, high in await self._checked(piece, opened):
                reading.append((piece, loop.run_in_executor(self._pool, run.read, low, high)))
                if len(reading) >= self._ahead:
                    yield await self._checked(*reading.popleft())
        while reading:
            yield await self._checked(*reading.popleft())

    async def _checked(self, piece: RunPiece, found: asyncio.Future[Any]) -> Any:
        """Await what a thread reads from a file, and explain why it cannot be read."""
        try:
            return await found
        except CorruptionError as error:
            if piece.part is None:
                kept_from = await kept_behind(self._client, self._projection.topic, piece.end)
            else:
                topic = await self._topic.ranges.describe(self._projection.topic)
                kept_from = await stream_kept_behind(self._client, topic, piece.part.stream, piece.end)
            if kept_from is None:
                raise
            raise TrimmedError(
                f"records of run {piece.file.run} of topic {self._projection.topic} were deleted before they were read",
                first=kept_from,
                remedy=f"read from {kept_from}",
            ) from error

    def _of_log(self, piece: NodePiece) -> AsyncGenerator[Any, None]:
        if piece.part is None:
            return self._topic.tables(piece.first, piece.end, _LOG_BYTES, lambda _bytes: None)
        return self._of_stream(piece.part)

    async def _of_stream(self, part: StreamRange) -> AsyncGenerator[Any, None]:
        async with aclosing(self._topic.ranges.read(self._projection.topic, part)) as chunks:
            async for chunk in chunks:
                yield _table_of(chunk)


class _Run:
    """The file of a piece, opened once by each thread that reads it."""

    def __init__(self, store: ObjectStore | None, piece: RunPiece, projection: Projection) -> None:
        assert store is not None, "a plan without a store has no files"
        self._store = store
        self._piece = piece
        self._projection = projection
        self._free: list[RunReader] = []
        self._order: RunOrder | None = None

    def groups(self) -> list[tuple[int, int]]:
        """Open the file, and return the positions in it of the piece, divided by row groups. Blocking."""
        piece, reader = self._piece, open_run(self._store, self._piece.file)
        self._free.append(reader)
        if piece.part is not None:
            self._order = order_of(reader, piece.part, piece.file.name)
        shares = [
            (max(piece.first, group.first), min(piece.end, group.first + group.count)) for group in reader.footer.groups
        ]
        shares = [(low, high) for low, high in shares if low < high]
        if not shares or (shares[0][0], shares[-1][1]) != (piece.first, piece.end):
            raise PeerError(
                f"run file {piece.file.name} has the records {reader.footer.first} to {reader.footer.end - 1}, but the"
                f" catalogue has {piece.first} to {piece.end - 1}"
            )
        return shares

    def read(self, low: int, high: int) -> Any:
        """Return records of one row group, verified. Blocking; several threads may call it."""
        try:
            reader = self._free.pop()
        except IndexError:
            reader = open_run(self._store, self._piece.file)
        [table] = reader.read(low, high)
        self._free.append(reader)
        if self._order is not None:
            table = with_positions(table, self._order, low)
        return self._projection.apply(table, None if self._piece.part is None else self._piece.part.stream)


def _table_of(parts: Sequence[StreamPart]) -> Any:
    """Return parts of a stream as a table with the columns of a run; ``position`` is that in the topic."""
    runs = []
    for each in parts:
        columns = slice_columns(each.batch.columns(), each.first, each.first + each.length)
        runs.append(RunPart(each.batch.term, each.batch.first_index + each.first, each.batch.log_time, columns))
    count = sum(each.length for each in parts)
    table = join_parts(arrow, 0, count, runs)
    positions = (array("q", range(each.position, each.position + each.length)) for each in parts)
    at = table.schema.get_field_index("position")
    return table.set_column(at, "position", number_array(arrow.int64(), count, positions))
