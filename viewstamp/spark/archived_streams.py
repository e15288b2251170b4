"""Archived records of topics with streams: tasks read the files of runs, as ``archived.py`` for other topics.

The driver divides a range by streams first (``spread.py``), so it knows which records of each stream are in it. Then
the runs of the stream divide these (``client/archived_ranges.py``), and the file of a run has the position in the topic
of each of its records. What that module says about each event holds here, and the tables of ``archived.py`` too.

The driver asks each group with such a stream for its runs. If one has no leader, the plan fails with UnavailableError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from viewstamp.archive.committed_runs import RunFile, borders, open_run, stream_kept_behind
from viewstamp.archive.ordered_run import order_of, read_ordered
from viewstamp.client.aio import Client
from viewstamp.client.archived_ranges import divide_by_runs
from viewstamp.client.stream_archives import StreamRunInfo
from viewstamp.client.stream_ranges import DividedTopic
from viewstamp.errors import CorruptionError, PeerError
from viewstamp.spark.blocking_client import blocking_client
from viewstamp.spark.filters import EVERYTHING
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.records import from_run
from viewstamp.spark.remedies import remedies
from viewstamp.spark.run_files import store_at
from viewstamp.spark.spread import SpreadRange, describe_spread
from viewstamp.spark.topic_range import skip
from viewstamp.spark.typed_rows import as_rows

__all__ = ["StreamRunRange", "cut_stream", "divide_stream", "is_archived", "read_stream_run"]


@dataclass(frozen=True)
class StreamRunRange(SpreadRange):
    """The part of one task within the run of a stream: its records ``first`` to ``last_end`` of the stream.

    They are at positions of the topic from ``start`` on and before ``end``. Records of other streams are in between.
    """

    file: RunFile

    def between(self, first: int, end: int) -> Self:
        """Return the part from its record ``first`` on, counted from 0, up to ``end``, exclusive."""
        return replace(self, first=self.first + first, last_end=self.first + end)


def is_archived(topic: DividedTopic, part: SpreadRange) -> bool:
    """Return whether the first records of a part are known to be archived."""
    return part.first < topic.archived_ends[part.stream - 1]


def divide_stream(
    part: SpreadRange, runs: Sequence[StreamRunInfo], own: str
) -> tuple[list[StreamRunRange], list[SpreadRange]]:
    """Divide a part into pieces of runs, and the rest, as ``divide_by_runs``; ``own`` is the id of the cluster."""
    archived, rest = divide_by_runs(part.topic, part.stream_range, runs)
    pieces = [
        StreamRunRange(
            part.topic,
            each.start,
            each.end,
            each.stream,
            each.first,
            each.last_end,
            RunFile.of(run, own, run.group),
        )
        for each, run in archived
    ]
    return pieces, [SpreadRange.of(part.topic, each) for each in rest]


def cut_stream(options: SourceOptions, piece: StreamRunRange, groups: int) -> list[StreamRunRange]:
    """Cut a piece between row groups, of which each piece has about so many. Reads the description of its file.

    Raises: as :func:`read_stream_run`.
    """
    try:
        reader = open_run(store_at(options.archive), piece.file)
        order = order_of(reader, piece.stream_range, piece.file.name)
    except CorruptionError as error:
        _explain(options, piece, piece.start, error)
        return []
    inside = borders(reader.footer, piece.first, piece.last_end, groups)
    places = [(int(order.positions(at, 1)[0]), at) for at in inside]
    places = [(piece.start, piece.first), *places, (piece.end, piece.last_end)]
    return [
        replace(piece, start=start, end=end, first=first, last_end=last_end)
        for (start, first), (end, last_end) in pairwise(places)
    ]


def read_stream_run(options: SourceOptions, part: StreamRunRange, times: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a part, in order, verified. It never yields fewer without an error or a warning.

    Args:
      options: of the query.
      part: the part of this task.
      times: only records with a log time in this half-open range are yielded, in microseconds since 1970.

    Raises: as ``read_run``; FrameError: the value of a record is no row of the schema.
    """
    with remedies():
        position, first = part.start, part.first
        try:
            reader = open_run(store_at(options.archive), part.file)
            if reader.footer.first_time >= times[1] or reader.footer.last_time < times[0]:
                return
            for table in read_ordered(reader, part.stream_range, part.file.name):
                found = from_run(_at(table, times), part.topic, options.read_columns, stream=part.stream)
                yield from as_rows(options, found)
                first += table.num_rows
                position = table["position"][-1].as_py() + 1
        except CorruptionError as error:
            _explain(options, part, position, error)
            return
        if first != part.last_end:
            raise PeerError(
                f"run {part.file.run} of stream {part.stream} of {part.topic} ends at record {first}, but the plan"
                f" reads up to {part.last_end}"
            )


def _at(table: pa.Table, times: tuple[int, int]) -> pa.Table:
    """Return the records with a log time in a half-open range."""
    if times == EVERYTHING.times:
        return table
    found = table["timestamp"].cast(pa.int64())
    return table.filter(
        pc.and_(pc.greater_equal(found, pa.scalar(times[0])), pc.less_equal(found, pa.scalar(times[1] - 1)))
    )


def _explain(options: SourceOptions, part: StreamRunRange, position: int, error: CorruptionError) -> None:
    """Return if the run was dropped, because its records were deleted; raise if the file should be readable.

    Raises TrimmedError: they were deleted, and ``fail_on_data_loss`` is on.
    """
    link = blocking_client(options.cluster, options.tls, options.token_file)
    kept_from = link.run(_kept_from, link.client, part)
    if kept_from is None:
        raise error
    skip(part.topic, position, max(kept_from, position + 1), fail_on_data_loss=options.fail_on_data_loss)


async def _kept_from(client: Client, part: StreamRunRange) -> int | None:
    topic = await describe_spread(client, part.topic)
    return await stream_kept_behind(client, topic, part.stream, part.last_end)
