"""The batch source: the positions of topics at the time when a query is planned."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from viewstamp.client.aio import Client
from viewstamp.client.results import TopicInfo
from viewstamp.client.stream_ranges import DividedTopic
from viewstamp.errors import PeerError, TrimmedError
from viewstamp.spark.archived import RunRange, pieces_of, read_run
from viewstamp.spark.archived_streams import StreamRunRange, read_stream_run
from viewstamp.spark.blocking_client import blocking_client
from viewstamp.spark.filters import EVERYTHING, Cut, before, push
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.ranges import describe, find_time, starting_position
from viewstamp.spark.records import join, to_record_batch
from viewstamp.spark.remedies import remedies
from viewstamp.spark.spread import SpreadRange, read_spread
from viewstamp.spark.topic_pattern import matching
from viewstamp.spark.topic_range import TopicRange, locate, skip
from viewstamp.spark.typed_rows import as_rows
from viewstamp.spark.worker_objects import freeze_once
from viewstamp.wire.batch import Batch
from viewstamp.wire.row_schema import RowSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchReader", "FilteringBatchReader", "batch_reader", "read_part", "read_range"]

_CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes of one request to the client's loop."""
_SMALL_BYTES = 128 * 1024
"""Smaller batches are joined, because the copy costs less than Spark's fixed cost for each batch."""


def batch_reader(options: SourceOptions, schema: StructType) -> DataSourceReader:
    """Return the reader of a batch query. Sends no request before it plans.

    Spark rejects a reader that can push filters unless its own setting allows it, so only a user who asks gets one.
    """
    return FilteringBatchReader(options) if options.push_filters else BatchReader(options)


class BatchReader(DataSourceReader):
    """Reads the records that are committed when it plans, or those within the options' bounds.

    Spark pickles it to every task.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.cut = before(options.ending_timestamp)

    def partitions(self) -> list[TopicRange]:
        """Ask for the ends of the topics, and return the part of each task.

        Raises:
          UnknownTopicError, TrimmedError, ConfigError: a requested topic or position does not exist.
        """
        with remedies():
            options = self.options
            link = blocking_client(options.cluster, options.tls, options.token_file)
            link.reach(options.connect_seconds)
            topics, ranges = link.run(_bounds, link.client, options, self.cut)
            return pieces_of(link, options, topics, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition. If there is nothing to read, Spark passes one without a range."""
        if isinstance(partition, TopicRange):
            yield from read_part(self.options, partition, self.cut)


class FilteringBatchReader(BatchReader):
    """A batch reader that reduces the ranges by the conditions of the query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Keep the conditions that reduce ranges; return those that Spark has to apply."""
        options = self.options
        fields = [field.name for field in RowSchema.parse(options.row_schema).fields] if options.row_schema else ()
        self.cut, rest = push(filters, before(options.ending_timestamp), options.columns, fields)
        return rest


async def _bounds(client: Client, options: SourceOptions, cut: Cut) -> tuple[dict[str, TopicInfo], list[TopicRange]]:
    """Return the topics, and the positions of each that the query reads; a range may be empty."""
    options = await matching(client, options)
    topics = await describe(client, options.topics)
    ranges = []
    for topic in topics.values():
        start = await starting_position(client, options, topic)
        end = locate(topic, options.ending_position[topic.name], "endingPosition")
        if cut.topics is not None and topic.name not in cut.topics:
            continue
        start, end = max(start, cut.positions[0]), min(end, cut.positions[1])
        since, until = cut.times
        if since > EVERYTHING.times[0]:
            start = max(start, await find_time(client, topic, since))
        if until < EVERYTHING.times[1] and not isinstance(topic, DividedTopic):
            end = min(end, await find_time(client, topic, until))
        ranges.append(TopicRange(topic.name, start, end))
    return topics, ranges


def read_part(options: SourceOptions, part: TopicRange, cut: Cut = EVERYTHING) -> Iterator[pa.RecordBatch]:
    """Yield the records of the part of a task, from a run or from the nodes, in order. Raises as these do.

    With the option ``rows`` the fields of the rows are columns.

    ``cut``: the conditions that were pushed. Only of a topic with streams they may leave less than the part, because
    its log times do not only rise.
    """
    freeze_once()
    if isinstance(part, RunRange):
        return read_run(options, part, cut.fields)
    if isinstance(part, StreamRunRange):
        return read_stream_run(options, part, cut.times)
    if isinstance(part, SpreadRange):
        return as_rows(options, join(read_spread(options, part, cut.times), bytes=_SMALL_BYTES))
    return as_rows(options, read_range(options, part))


def read_range(options: SourceOptions, part: TopicRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order. The next ones are fetched while the caller handles these.

    Raises:
      TrimmedError: some of them were trimmed since the plan, and ``fail_on_data_loss`` is on.
      UnavailableError: no node answers.
    """
    return join(_read(options, part), bytes=_SMALL_BYTES)


def _read(options: SourceOptions, part: TopicRange) -> Iterator[pa.RecordBatch]:
    """Yield the records in the batches in which they were appended."""
    link = blocking_client(options.cluster, options.tls, options.token_file)
    position = part.start
    with remedies():
        while position < part.end:
            batches = link.run(_open, link.client, part, position)
            try:
                while chunk := link.run(_next_chunk, batches):
                    for batch in chunk:
                        yield to_record_batch(batch, position, part.end, part.topic, options.read_columns)
                        position = batch.first_position + batch.count
            except TrimmedError as error:
                position = skip(part.topic, position, error.first, fail_on_data_loss=options.fail_on_data_loss)
            else:
                if position < part.end:
                    raise PeerError(f"topic {part.topic} ends at {position}, but the plan reads up to {part.end}")
            finally:
                link.run(batches.aclose)


async def _open(client: Client, part: TopicRange, start: int) -> AsyncGenerator[Batch, None]:
    """Begin to read. Must run on the client's loop."""
    return client.read_batches(part.topic, start, end=part.end)


async def _next_chunk(batches: AsyncGenerator[Batch, None]) -> list[Batch]:
    """Return the next batches, about ``_CHUNK_BYTES``; [] = there are no more."""
    chunk: list[Batch] = []
    size = 0
    async for batch in batches:
        chunk.append(batch)
        size += batch.size
        if size >= _CHUNK_BYTES:
            break
    return chunk
