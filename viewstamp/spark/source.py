"""The batch source: positions of topics as they stand when a query is planned."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from viewstamp.client.aio import Client
from viewstamp.errors import PeerError, TrimmedError
from viewstamp.spark.blocking_client import blocking_client
from viewstamp.spark.filters import EVERYTHING, Cut, push
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.ranges import TopicRange, describe, find_time, locate, skip, split, starting_position
from viewstamp.spark.records import join, to_record_batch
from viewstamp.spark.remedies import remedies
from viewstamp.wire.batch import Batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchReader", "FilteringBatchReader", "batch_reader", "read_range"]

_CHUNK_BYTES = 4 * 1024 * 1024
"""What is asked of the client's loop in one go."""
_SMALL_BYTES = 128 * 1024
"""Batches that have less are joined, which costs a copy: it is less than what each costs Spark."""


def batch_reader(options: SourceOptions, schema: StructType) -> DataSourceReader:
    """Return the reader of a batch query; nothing is asked of the cluster before it plans.

    Spark refuses any reader that can push filters unless its own setting allows that, so only one who asks gets it.
    """
    return FilteringBatchReader(options) if options.push_filters else BatchReader(options)


class BatchReader(DataSourceReader):
    """Reads what is committed when it plans, or what the options bound.

    Spark pickles it to every task.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.cut: Cut = EVERYTHING

    def partitions(self) -> list[TopicRange]:
        """Ask for the ends, and return what each task reads.

        Raises:
          UnknownTopicError, TrimmedError, ConfigError: a topic, or a position, that was asked for does not exist.
        """
        with remedies():
            link = blocking_client(self.options.cluster)
            link.reach(self.options.connect_seconds)
            return link.run(_plan, link.client, self.options, self.cut)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition. Spark asks for one without a range where there is nothing to read."""
        if isinstance(partition, TopicRange):
            yield from read_range(self.options, partition)


class FilteringBatchReader(BatchReader):
    """One that cuts the ranges by what the query asks for."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Keep what cuts; return what Spark has to look at."""
        self.cut, rest = push(filters)
        return rest


async def _plan(client: Client, options: SourceOptions, cut: Cut) -> list[TopicRange]:
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
        if until < EVERYTHING.times[1]:
            end = min(end, await find_time(client, topic, until))
        ranges.append(TopicRange(topic.name, start, end))
    return await split(client, topics, ranges, options)


def read_range(options: SourceOptions, part: TopicRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order. What is next comes from the cluster while the caller has this.

    Raises:
      TrimmedError: some of them were trimmed since this was planned, and that matters.
      UnavailableError: nobody answers.
    """
    return join(_read(options, part), bytes=_SMALL_BYTES)


def _read(options: SourceOptions, part: TopicRange) -> Iterator[pa.RecordBatch]:
    """Yield them as they were appended, batch by batch."""
    link = blocking_client(options.cluster)
    position = part.start
    with remedies():
        while position < part.end:
            batches = link.run(_open, link.client, part, position)
            try:
                while chunk := link.run(_next_chunk, batches):
                    for batch in chunk:
                        yield to_record_batch(batch, position, part.end, part.topic, options.columns)
                        position = batch.first_position + batch.count
            except TrimmedError as error:
                position = skip(part.topic, position, error.first, fail_on_data_loss=options.fail_on_data_loss)
            else:
                if position < part.end:
                    raise PeerError(f"topic {part.topic} ends at {position}, and was to be read up to {part.end}")
            finally:
                link.run(batches.aclose)


async def _open(client: Client, part: TopicRange, start: int) -> AsyncGenerator[Batch, None]:
    """Begin to read; to be called on the client's loop."""
    return client.read_batches(part.topic, start, end=part.end)


async def _next_chunk(batches: AsyncGenerator[Batch, None]) -> list[Batch]:
    """Return the next batches, of about ``_CHUNK_BYTES``; [] = there are no more."""
    chunk: list[Batch] = []
    size = 0
    async for batch in batches:
        chunk.append(batch)
        size += batch.size
        if size >= _CHUNK_BYTES:
            break
    return chunk
