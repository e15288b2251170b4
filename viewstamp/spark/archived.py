"""Archived records for both sources: tasks read the files of runs in the store, and not from the nodes.

``archive/committed_runs.py`` has the rules: which runs count, and how they divide a range. Each position of a query is
in one piece, of a run or of the log:

| between plan and read | effect |
| --- | --- |
| records of the log are archived | the task reads them from the nodes, as planned |
| a run is dropped, because its records were deleted | TrimmedError; without ``fail_on_data_loss``, a warning |
| the object is lost, damaged, or replaced | CorruptionError, because the catalogue still has the run |
| the store is away | UnavailableError; Spark repeats the task |

A micro-batch that Spark runs again after a restart is planned again, with the catalogue of that time. Its positions are
those of the checkpoint, and a record is the same in a run and in the log, so the rows are the same.

If a file cannot be read, the task asks the nodes which records the topic has, to tell the second row from the third.
A task verifies the description of its file, and each row group that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from viewstamp.archive import committed_runs as rules
from viewstamp.archive.committed_runs import (
    RunFile,
    borders,
    committed_stream_runs,
    divide_by_positions,
    kept_behind,
    open_run,
    own_id,
)
from viewstamp.archive.run_file import GROUP_BYTES
from viewstamp.archive.run_rows import FieldCondition
from viewstamp.client.aio import Client
from viewstamp.client.results import TopicInfo
from viewstamp.client.stream_ranges import DividedTopic
from viewstamp.errors import CorruptionError, PeerError
from viewstamp.spark.archived_streams import StreamRunRange, cut_stream, divide_stream, is_archived
from viewstamp.spark.blocking_client import BlockingClient, blocking_client
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.ranges import split, task_bytes
from viewstamp.spark.records import from_run
from viewstamp.spark.remedies import remedies
from viewstamp.spark.run_files import store_at
from viewstamp.spark.spread import SpreadRange, by_streams
from viewstamp.spark.topic_range import TopicRange, skip
from viewstamp.spark.typed_rows import rows_of_run

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RunRange", "committed_runs", "cut_by_groups", "divide", "pieces_of", "read_run"]

_FOOTERS_MAX: Final = 64
"""Runs whose descriptions the driver reads, to cut them by row groups. If there are more, each is one piece."""
_READERS: Final = 8


@dataclass(frozen=True)
class RunRange(TopicRange):
    """The part of one task within one run: positions ``start`` to ``end``, half-open."""

    file: RunFile


Piece = RunRange | StreamRunRange


def pieces_of(
    link: BlockingClient, options: SourceOptions, topics: Mapping[str, TopicInfo], ranges: Sequence[TopicRange]
) -> list[TopicRange]:
    """Return ranges in pieces for tasks: of runs, as far as the positions are archived, and of the log.

    Without the option ``archive``, or if no range begins below the archived end of its topic or stream, no catalogue is
    asked. So a streaming query pays for it only until it has passed that end.

    Raises: as :func:`committed_runs`, ``committed_stream_runs``, ``by_streams`` and :func:`cut_by_groups`.
    """
    ranges = link.run(by_streams, link.client, topics, ranges, options)
    archived = [part for part in ranges if options.archive and _is_archived(topics[part.topic], part)]
    if not archived:
        return link.run(split, link.client, topics, ranges, options)
    # The catalogues are read last: their runs are those of then, and records are archived at most, not unarchived.
    pieces, rest = link.run(_divide, link.client, ranges, archived)
    pieces = cut_by_groups(options, pieces, task_bytes(topics, ranges, options))
    return link.run(split, link.client, topics, rest, options, pieces)


def _is_archived(topic: TopicInfo, part: TopicRange) -> bool:
    """Return whether the first records of a range are known to be archived."""
    if isinstance(part, SpreadRange):
        assert isinstance(topic, DividedTopic), f"{topic.name} was divided by streams"
        return is_archived(topic, part)
    return part.start < min(part.end, _archived_end(topic))


async def _divide(
    client: Client, ranges: Sequence[TopicRange], archived: Sequence[TopicRange]
) -> tuple[list[Piece], list[TopicRange]]:
    """Return ranges in pieces of runs, and the rest. Only the catalogues of topics of ``archived`` are asked."""
    own = await own_id(client)
    plain = {part.topic for part in archived if not isinstance(part, SpreadRange)}
    spread = {part.topic for part in archived if isinstance(part, SpreadRange)}
    runs = await committed_runs(client, sorted(plain), own) if plain else {}
    of_streams = {topic: await committed_stream_runs(client, topic) for topic in sorted(spread)}
    pieces: list[Piece] = []
    rest: list[TopicRange] = []
    for part in ranges:
        if isinstance(part, SpreadRange):
            found, others = divide_stream(part, of_streams.get(part.topic, {}).get(part.stream, ()), own)
            pieces += found
            rest += others
        else:
            whole, left = divide(part, runs.get(part.topic, ()))
            pieces += whole
            rest += left
    return pieces, rest


def _archived_end(topic: TopicInfo) -> int:
    """Return the position behind the last archived record; 1 = there is none."""
    return topic.archived.last_position + 1 if topic.archived is not None else 1


async def committed_runs(client: Client, topics: Sequence[str], own: str) -> dict[str, list[RunRange]]:
    """Return the runs of topics that may be read, by position; ``own`` is the id of the cluster.

    Raises as ``archive.committed_runs.committed_runs``.
    """
    found = await rules.committed_runs(client, topics)
    return {
        topic: [RunRange(topic, run.first_position, run.last_position + 1, RunFile.of(run, own)) for run in runs]
        for topic, runs in found.items()
    }


def divide(part: TopicRange, runs: Sequence[RunRange]) -> tuple[list[RunRange], list[TopicRange]]:
    """Divide a range into pieces of runs, and the rest, which only the nodes have. Each position is in one of them.

    Args:
      part: positions of one topic.
      runs: of this topic, by position.
    """
    shares, rest = divide_by_positions(part.start, part.end, [(run.start, run.end) for run in runs])
    archived = [replace(runs[each.run], start=each.start, end=each.end) for each in shares]
    return archived, [TopicRange(part.topic, start, end) for start, end in rest]


def cut_by_groups(options: SourceOptions, pieces: Sequence[Piece], task_bytes: int) -> list[Piece]:
    """Cut pieces between row groups, so that each has about ``task_bytes`` of records. Reads the files' descriptions.

    Raises:
      ConfigError: a package is missing.
      CorruptionError, UnavailableError, TrimmedError: as :func:`read_run`, for the first piece that cannot be read.
    """
    store_at(options.archive)
    if len(pieces) > _FOOTERS_MAX:
        return list(pieces)
    groups = max(1, task_bytes // GROUP_BYTES)

    def cut(piece: Piece) -> Sequence[Piece]:
        if isinstance(piece, StreamRunRange):
            return cut_stream(options, piece, groups)
        return _cut(options, piece, groups)

    with ThreadPoolExecutor(_READERS) as pool:
        return [part for parts in pool.map(cut, pieces) for part in parts]


def _cut(options: SourceOptions, piece: RunRange, groups: int) -> list[RunRange]:
    try:
        footer = open_run(store_at(options.archive), piece.file).footer
    except CorruptionError as error:
        first = _explain(options, piece, piece.start, error)
        return [piece] if first < piece.end else []
    inside = borders(footer, piece.start, piece.end, groups)
    return [replace(piece, start=start, end=end) for start, end in pairwise([piece.start, *inside, piece.end])]


def read_run(
    options: SourceOptions, part: RunRange, conditions: Sequence[FieldCondition] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a part of a run, in order, verified. It never yields fewer without an error or a warning.

    With the option ``rows`` they have the typed columns, and only a row group that has no row for the ``conditions`` is
    left out.

    Raises:
      CorruptionError: the file is not there, or is not that of the catalogue; the message names it.
      TrimmedError: the records were deleted since the plan, and ``fail_on_data_loss`` is on.
      UnavailableError: the store does not answer.
      StorageError: the store refuses this process.
    """
    with remedies():
        position = part.start
        try:
            reader = open_run(store_at(options.archive), part.file)
            if options.row_schema:
                for end, batches in rows_of_run(options, reader, part.start, part.end, conditions):
                    for batch in batches:
                        yield batch
                        position += batch.num_rows
                    position = end
            else:
                for table in reader.read(part.start, part.end):
                    for batch in from_run(table, part.topic, options.read_columns):
                        yield batch
                        position += batch.num_rows
        except CorruptionError as error:
            position = _explain(options, part, position, error)
        if position < part.end:
            raise PeerError(
                f"run {part.file.run} of {part.topic} ends at {position}, but the plan reads up to {part.end}"
            )


def _explain(options: SourceOptions, part: RunRange, position: int, error: CorruptionError) -> int:
    """Return the first position that can be read if the run was dropped; raise if it should be readable.

    The records of a dropped run are deleted, so the result is behind the run.
    """
    link = blocking_client(options.cluster, options.tls, options.token_file)
    first = link.run(kept_behind, link.client, part.topic, part.end)
    if first is None:
        raise error
    return skip(part.topic, position, first, fail_on_data_loss=options.fail_on_data_loss)
