"""A topic as Arrow batches, for pandas, DuckDB and other programs: archived records from the files, others from nodes.

``committed_runs.py`` and ``client/archived_ranges.py`` have the rules, ``arrow_lanes.py`` reads. Here a read is
planned. The topic is described first, and the catalogues of runs are read last: their runs are those of then, and a
record may become archived in between, but never the reverse. So each position is in one piece, of a run or of the log.

A reader of all streams merges them by position, and compares what it yields with the positions of the plan. So a record
that is missing, doubled or out of order is an error, whoever is at fault.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from viewstamp.archive.columns import load_arrow
from viewstamp.archive.committed_runs import (
    RunFile,
    committed_runs,
    committed_stream_runs,
    divide_by_positions,
    own_id,
)
from viewstamp.archive.exported_topic import STREAM, ExportedTopic
from viewstamp.archive.location import open_store
from viewstamp.archive.run_file import BASE_COLUMNS
from viewstamp.archive.run_rows import ROW, row_type
from viewstamp.client.aio import Client
from viewstamp.client.archived_ranges import divide_by_runs
from viewstamp.client.results import TopicInfo
from viewstamp.client.stream_ranges import DividedTopic
from viewstamp.errors import PeerError, RequestError, TrimmedError
from viewstamp.wire.row_schema import RowSchema

if TYPE_CHECKING:
    import pyarrow

    from viewstamp.archive.arrow_lanes import NodePiece, Projection, RunPiece
    from viewstamp.archive.store import ObjectStore

__all__ = ["ArrowFile", "ArrowReader", "open_arrow"]

_THREADS_MAX: Final = 4
_BATCH_BYTES: Final = 2 * 1024 * 1024
"""About so many bytes has a batch at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowFile:
    """A file of the archive with records that an :class:`ArrowReader` reads.

    Attributes:
      name: of the object, below the directory or the URL of the store.
      first_position: the first position in the topic that is read from it, or one before it.
      last_position: the last one, or one behind it. Records of other streams may be in between.
      records: the number of the records that are read from it.
      bytes: the size of the file.
      stream: the number of the stream; None = the topic has no streams.
    """

    name: str
    first_position: int
    last_position: int
    records: int
    bytes: int
    stream: int | None


async def open_arrow(
    client: Client,
    topic: str,
    *,
    archive: str | None = None,
    start: int | None = None,
    end: int | Literal["committed", "archived"] = "committed",
    columns: Sequence[str] | None = None,
    stream: int | None = None,
    threads: int | None = None,
) -> ArrowReader:
    """Plan to read the records of a topic as Arrow batches, by position. No record is read yet.

    With ``archive`` this process takes archived records straight from the files, verified, in threads, and the others
    from the nodes. Without it all come from the nodes. The records are the same. Needs ``viewstamp[archive]``.

    Example::

        records = await viewstamp.open_arrow(client, "orders", columns=["position", "value"])
        async for batch in records.batches():
            print(batch.num_rows)
        table = await records.to_table()

    Args:
      client: of the cluster, used in this event loop.
      topic: its name. A topic with streams is read in the order of the topic.
      archive: the store as the nodes have it in ``[archive]``: a directory, or the URL of a bucket.
      start: the first position; None = the first kept one.
      end: ``"committed"``: read all records that are committed now. ``"archived"``: those before the first one that is
        not archived. A number: those before this position, of the committed ones.
      columns: some of ``position``, ``term``, ``index``, ``timestamp``, ``key``, ``value``, ``headers``, for a topic
        with streams ``stream``, and for one with a schema ``row``, which is null for a record that is no row;
        None = all but ``row``.
      stream: read this stream of the topic only; positions are those in the topic, and have gaps.
      threads: the threads that read files; None = one for each processor, four at most.

    Raises:
      ConfigError: pyarrow, or a package for the store, is missing.
      RequestError: no column has one of the names; the topic has no such stream, position, or archived record.
      TrimmedError: ``start`` was deleted; the attribute ``first`` has the first kept position.
      UnknownTopicError: there is no such topic.
      AccessDeniedError: access control is on, and the token may not read it.
      UnavailableError: no node answers in time.
    """
    load_arrow()
    source = ExportedTopic(client, topic)
    info = await source.describe()
    projection = _projection(info, columns)
    streams = info.found.streams if isinstance(info, DividedTopic) else 0
    if stream is not None and not 1 <= stream <= streams:
        raise RequestError(
            f"topic {topic} has no stream {stream}",
            remedy=f"name one of 1 to {streams}" if streams else "leave out the stream, because it has none",
        )
    first = info.first_position if start is None else start
    if first < info.first_position:
        raise TrimmedError(
            f"position {first} of topic {topic} was deleted; the first kept position is {info.first_position}",
            first=info.first_position,
            remedy=f"read from {info.first_position}",
        )
    if first > info.last_position + 1:
        raise RequestError(
            f"position {first} of topic {topic} does not exist; its last one is {info.last_position}",
            remedy=f"begin at {info.last_position + 1} at most",
        )
    behind = max(first, await source.end(info, end))
    lanes = await _plan(client, source, info, first, behind, reads_files=archive is not None)
    if stream is not None:
        lanes = {stream: lanes[stream]} if stream in lanes else {}
    return ArrowReader(
        client,
        source,
        None if archive is None else open_store(archive),
        projection,
        lanes,
        (first, behind),
        _schema(projection),
        is_whole=stream is None,
        threads=threads or min(_THREADS_MAX, os.cpu_count() or 1),
    )


def _projection(info: TopicInfo, columns: Sequence[str] | None) -> Projection:
    """Return the wanted columns of a topic. Raises RequestError."""
    from viewstamp.archive.arrow_lanes import Projection

    known = (*BASE_COLUMNS, *([STREAM] if isinstance(info, DividedTopic) else []))
    allowed = (*known, *([ROW] if info.schema else []))
    for name in columns or ():
        if name not in allowed:
            raise RequestError(
                f"the records of topic {info.name} have no column {name!r}", remedy=f"there are {', '.join(allowed)}"
            )
    wanted = known if columns is None else tuple(dict.fromkeys(columns))
    return Projection(info.name, wanted, RowSchema.parse(info.schema) if ROW in wanted else None)


def _schema(projection: Projection) -> Any:
    arrow = load_arrow()
    kinds = {
        **dict.fromkeys(("position", "term", "index"), arrow.int64()),
        "timestamp": arrow.timestamp("us", tz="UTC"),
        **dict.fromkeys(("key", "value"), arrow.binary()),
        "headers": arrow.map_(arrow.string(), arrow.binary()),
        STREAM: arrow.int32(),
    }
    if projection.rows is not None:
        kinds[ROW] = row_type(projection.rows)
    return arrow.schema([(name, kinds[name]) for name in projection.columns])


async def _plan(
    client: Client, source: ExportedTopic, info: TopicInfo, first: int, end: int, *, reads_files: bool
) -> dict[int, list[RunPiece | NodePiece]]:
    """Return the pieces of a range by position, by stream; 0 = the topic has no streams."""
    from viewstamp.archive.arrow_lanes import NodePiece, RunPiece

    own = await own_id(client) if reads_files else ""
    lanes: dict[int, list[RunPiece | NodePiece]] = {}
    if not isinstance(info, DividedTopic):
        runs = (await committed_runs(client, [info.name]))[info.name] if reads_files else []
        bounds = [(run.first_position, run.last_position + 1) for run in runs]
        shares, rest = divide_by_positions(first, end, bounds)
        pieces = [RunPiece(RunFile.of(runs[each.run], own), each.start, each.end) for each in shares]
        lanes[0] = sorted([*pieces, *(NodePiece(*each) for each in rest)], key=lambda piece: piece.first)
        return lanes
    parts = await source.ranges.divide(info, first, end)
    of_streams = await committed_stream_runs(client, info.name) if reads_files else {}
    for part in parts:
        archived, others = divide_by_runs(info.name, part, of_streams.get(part.stream, ()))
        found = [RunPiece(RunFile.of(run, own, run.group), each.first, each.last_end, each) for each, run in archived]
        logs = [NodePiece(each.first, each.last_end, each) for each in others]
        lanes[part.stream] = sorted([*found, *logs], key=lambda piece: piece.first)
    return lanes


class ArrowReader:
    """A range of a topic as Arrow batches, which :func:`open_arrow` has planned. Each read begins anew.

    Memory: one row group (16 MiB of records) for each thread and one more; of a topic with streams about three for each
    stream.

    Attributes:
      start: the first position.
      end: the position after the last one.
      schema: the ``pyarrow.Schema`` of the batches.
      files: the files of the archive that are read, by stream and position; () without ``archive``.
    """

    def __init__(
        self,
        client: Client,
        source: ExportedTopic,
        store: ObjectStore | None,
        projection: Projection,
        lanes: dict[int, list[RunPiece | NodePiece]],
        bounds: tuple[int, int],
        schema: pyarrow.Schema,
        *,
        is_whole: bool,
        threads: int,
    ) -> None:
        """Use :func:`open_arrow` instead."""
        self.start, self.end = bounds
        self.schema = schema
        self.files = tuple(_files(lanes))
        self._client = client
        self._source = source
        self._store = store
        self._projection = projection
        self._lanes = lanes
        self._is_whole = is_whole
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def batches(self) -> AsyncGenerator[pyarrow.RecordBatch, None]:
        """Yield the records by position, in batches of about 2 MiB at most, verified.

        Cancelled or closed: what threads read then is dropped. Batches that were yielded stay valid.

        Raises:
          CorruptionError: a file is missing, truncated, changed, or of another run or cluster; the message names it.
          TrimmedError: records were deleted since the plan; the attribute ``first`` has the first kept position.
          FrameError: the headers of a record are no map, so its writer is faulty.
          PeerError: the nodes, or a file, contradict the plan.
          UnavailableError: the store, or no node, answers.
          StorageError: the store refuses this process.
        """
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="viewstamp-arrow")
        at = self.start
        try:
            async with aclosing(self._tables(pool)) as tables:
                async for table in tables:
                    at = self._checked_end(table, at)
                    wanted = table.select(self.schema.names)
                    rows = max(1, table.num_rows * _BATCH_BYTES // max(1, wanted.nbytes))
                    for batch in wanted.to_batches(max_chunksize=rows):
                        yield batch
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        if self._is_whole and at != self.end:
            raise self._contradiction(f"they end at {at}")

    async def to_table(self) -> pyarrow.Table:
        """Return all records as one table, for example for ``to_pandas()``. Raises as :meth:`batches`."""
        found = [batch async for batch in self.batches()]
        return load_arrow().Table.from_batches(found, self.schema)

    def reader(self) -> pyarrow.RecordBatchReader:
        """Return the batches for a program that does not await, such as DuckDB, in another thread than the event loop.

        For example, with ``def count(orders): return duckdb.sql("select count(*) from orders").fetchone()``, await
        ``asyncio.to_thread(count, records.reader())``. The event loop has to run meanwhile, because it asks the nodes.

        Raises: nothing; reading raises as :meth:`batches`, and RequestError in the thread of the event loop, or when
        that has ended.
        """
        return load_arrow().RecordBatchReader.from_batches(self.schema, self._blocking_batches())

    def _blocking_batches(self) -> Iterator[pyarrow.RecordBatch]:
        batches = self.batches()
        try:
            while (batch := self._wait(anext(batches, None))) is not None:
                yield batch
        finally:
            closing = batches.aclose()
            if not self._loop.is_running() or threading.get_ident() == self._thread:
                closing.close()  # The event loop, or its end, closes the batches.
            else:
                self._wait(closing)

    def _wait(self, step: Any) -> Any:
        """Run a step on the event loop, and wait for its result in another thread."""
        if not self._loop.is_running():
            raise RequestError(
                "this reader waits for the event loop, which does not run any more",
                remedy="read it before the event loop ends",
            )
        if threading.get_ident() == self._thread:
            raise RequestError(
                "this reader waits for the event loop, and was read in the event loop's own thread",
                remedy="read it in another thread: await asyncio.to_thread(...); or use batches() or to_table()",
            )

        async def run() -> Any:
            return await step

        coroutine: Coroutine[Any, Any, Any] = run()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _tables(self, pool: ThreadPoolExecutor) -> AsyncGenerator[Any, None]:
        """Yield the records of all lanes, by position."""
        from viewstamp.archive.arrow_lanes import ArrowLane
        from viewstamp.archive.ordered_merge import OrderedMerge

        ahead = self._threads + 1 if len(self._lanes) == 1 else 2
        lanes = [
            ArrowLane(self._client, self._source, self._store, pool, pieces, self._projection, ahead=ahead).tables()
            for pieces in self._lanes.values()
        ]
        merge = OrderedMerge(len(lanes))
        try:
            while True:
                while merge.wanted:
                    wanted = sorted(merge.wanted)
                    found = await _together([asyncio.ensure_future(_next(lanes[lane])) for lane in wanted])
                    for lane, table in zip(wanted, found, strict=True):
                        merge.add(lane, table)
                if (table := merge.take()) is None:
                    return
                yield table
        finally:
            for each in lanes:
                await each.aclose()

    def _checked_end(self, table: Any, at: int) -> int:
        """Return the position behind a table that begins at position ``at``. Raises PeerError: it does not."""
        arrow = load_arrow()
        count: int = table.num_rows
        if not self._is_whole:
            return at + count
        if not table["position"].equals(arrow.chunked_array([arrow.arange(at, at + count)])):
            raise self._contradiction(f"they are not {at} to {at + count - 1} where these follow")
        return at + count

    def _contradiction(self, why: str) -> PeerError:
        return PeerError(
            f"the positions {self.start} to {self.end - 1} of topic {self._projection.topic} were read, and {why}",
            remedy="compare the nodes: viewstamp doctor; and the files: viewstamp archive check",
        )


def _files(lanes: dict[int, list[RunPiece | NodePiece]]) -> Iterator[ArrowFile]:
    from viewstamp.archive.arrow_lanes import RunPiece

    for stream, pieces in lanes.items():
        for piece in pieces:
            if isinstance(piece, RunPiece):
                first, end = (piece.first, piece.end) if piece.part is None else (piece.part.start, piece.part.end)
                yield ArrowFile(
                    name=piece.file.name,
                    first_position=first,
                    last_position=end - 1,
                    records=piece.end - piece.first,
                    bytes=piece.file.size,
                    stream=stream or None,
                )


async def _next(tables: AsyncGenerator[Any, None]) -> Any:
    """Return the next table; None = there is none."""
    return await anext(tables, None)


async def _together(steps: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Return the results of steps; if one fails, or the caller is cancelled, the others have ended too."""
    try:
        return await asyncio.gather(*steps)
    except BaseException:
        for step in steps:
            step.cancel()
        await asyncio.gather(*steps, return_exceptions=True)
        raise
