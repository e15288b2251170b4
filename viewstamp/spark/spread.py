"""Topics with streams, for both sources: planned by the order over all streams, and read stream by stream.

``viewstamp/client/stream_ranges.py`` has the rules: which records of each stream are at a range of positions of the
topic, and whether it is complete, was trimmed, or contradicts the order. This module divides the records among tasks,
and turns them into rows. A row has the position in the topic, and the term and the index in the log of its stream's
group.

Log times are those of the groups, so along the positions of the topic they fall now and then. A search for a time
returns a position from which on all later records come; some of those behind it may be earlier.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from viewstamp.client.aio import Client
from viewstamp.client.results import Receipt, TopicInfo
from viewstamp.client.spread_reader import StreamPart
from viewstamp.client.stream_ranges import DividedTopic, StreamRange, StreamRanges
from viewstamp.errors import TrimmedError
from viewstamp.ids import Index, Position, Term
from viewstamp.spark.blocking_client import blocking_client
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.records import to_record_batch
from viewstamp.spark.remedies import remedies
from viewstamp.spark.topic_range import TopicRange, check_partitions, estimate, skip

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SpreadRange",
    "by_streams",
    "describe_spread",
    "find_spread_time",
    "is_spread",
    "read_spread",
    "split_spread",
]

_ranges: WeakKeyDictionary[Client, StreamRanges] = WeakKeyDictionary()


@dataclass(frozen=True)
class SpreadRange(TopicRange):
    """The part of one task: the records of one stream at positions ``start`` to ``end`` of its topic, half-open.

    ``first`` and ``last_end`` are as those of ``StreamRange``.
    """

    stream: int
    first: int
    last_end: int

    @classmethod
    def of(cls, topic: str, part: StreamRange) -> SpreadRange:
        """Return the records of a stream of a topic."""
        return SpreadRange(topic, part.start, part.end, part.stream, part.first, part.last_end)

    @property
    def stream_range(self) -> StreamRange:
        """The records without the name of the topic."""
        return StreamRange(self.stream, self.start, self.end, self.first, self.last_end)

    @property
    def records(self) -> int:
        """The number of its records."""
        return self.last_end - self.first


def ranges_of(client: Client) -> StreamRanges:
    """Return the calls of a client for ranges of topics with streams."""
    found = _ranges.get(client)
    if found is None:
        found = _ranges[client] = StreamRanges(client)
    return found


def is_spread(client: Client, topic: str) -> bool:
    """Return whether a topic is known to have streams, because this process has described it."""
    return topic in ranges_of(client).known


async def describe_spread(client: Client, topic: str, *, timeout: float | None = None) -> DividedTopic:
    """Return a topic with streams. Raises as ``StreamRanges.describe``."""
    return await ranges_of(client).describe(topic, timeout=timeout)


async def find_spread_time(client: Client, topic: DividedTopic, timestamp: int) -> int:
    """Return a position from which on all records with this log time (microseconds since 1970) or a later one come."""
    streams = topic.found.kept_streams
    found = await asyncio.gather(*(_find_time(client, topic, stream, timestamp) for stream in streams))
    return max(topic.first_position, min(found))


async def _find_time(client: Client, topic: DividedTopic, stream: int, timestamp: int) -> int:
    """Return the position in the topic of the first record of a stream with this log time or a later one."""
    start = await ranges_of(client).find_time(topic, stream, timestamp)
    first = (await client.describe_stream(topic.name, stream)).first_position
    end = topic.found.ordered_ends[stream - 1]
    start = max(start, first)
    if start < end:
        async with aclosing(client.read_batches(topic.name, start, end=end, stream=stream)) as batches:
            async for batch in batches:
                if batch.log_time >= timestamp:
                    local = Position(max(start, batch.first_position))
                    receipt = Receipt(local, Term(0), Index(0), batch.log_time, stream=stream)
                    place = await client.find_global_position(topic.name, receipt)
                    assert place.global_position is not None, f"record {local} of stream {stream} is below {end}"
                    return place.global_position
    return topic.found.next_position


async def by_streams(
    client: Client, topics: Mapping[str, TopicInfo], ranges: Sequence[TopicRange], options: SourceOptions
) -> list[TopicRange]:
    """Return ranges of positions, those of a topic with streams divided by streams: one for each that has records.

    Args:
      client: a client of the cluster.
      topics: the topics, by name.
      ranges: the positions; they exist.
      options: of the query.

    Raises:
      TrimmedError: positions were trimmed, and ``fail_on_data_loss`` is on.
      PeerError: the nodes contradict each other about the order.
    """
    found: list[TopicRange] = []
    for part in ranges:
        topic = topics[part.topic]
        if isinstance(topic, DividedTopic):
            found += await _divide(client, topic, part, options)
        else:
            found.append(part)
    return found


async def _divide(client: Client, topic: DividedTopic, part: TopicRange, options: SourceOptions) -> list[SpreadRange]:
    ranges, start = ranges_of(client), part.start
    while True:
        try:
            return [SpreadRange.of(topic.name, each) for each in await ranges.divide(topic, start, part.end)]
        except TrimmedError as error:
            first = skip(topic.name, start, error.first, fail_on_data_loss=options.fail_on_data_loss)
            start = min(part.end, first)


async def split_spread(
    client: Client,
    topic: DividedTopic,
    parts: Sequence[SpreadRange],
    options: SourceOptions,
    size: int,
    records_max: int,
) -> list[SpreadRange]:
    """Return parts of a topic in pieces for tasks, by position.

    Args:
      client: a client of the cluster.
      topic: the topic.
      parts: the records of its streams.
      options: of the query.
      size: the bytes of one task.
      records_max: the most records of one task, because of ``minPartitions``.

    Raises:
      PeerError: the nodes contradict each other about the order.
      ConfigError: that would be more partitions than Spark can plan.
    """
    limit = max(
        1, min(records_max, options.max_records_per_partition or records_max, size // max(1, estimate(topic, 1)))
    )
    check_partitions(sum(-(-part.records // limit) for part in parts), sum(part.records for part in parts), limit)
    cut = await ranges_of(client).cut(topic, [part.stream_range for part in parts], limit)
    return [SpreadRange.of(topic.name, each) for each in cut]


def read_spread(options: SourceOptions, part: SpreadRange, times: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a part, in order.

    Args:
      options: of the query.
      part: the part of this task.
      times: only records with a log time in this half-open range are yielded, in microseconds since 1970.

    Raises:
      TrimmedError: some of them were trimmed since the plan, and ``fail_on_data_loss`` is on.
      PeerError: a node sends other records than those of the plan.
      UnavailableError: no node of the stream's group answers.
    """
    link = blocking_client(options.cluster, options.tls, options.token_file)
    wanted = part.stream_range
    with remedies():
        while wanted.first < wanted.last_end:
            chunks = link.run(_open, link.client, part.topic, wanted)
            try:
                while chunk := link.run(_next_chunk, chunks):
                    for each in chunk:
                        local = each.batch.first_position + each.first
                        if times[0] <= each.batch.log_time < times[1]:
                            shift = each.position - local
                            yield to_record_batch(
                                each.batch,
                                local,
                                local + each.length,
                                part.topic,
                                options.read_columns,
                                shift=shift,
                                stream=part.stream,
                            )
                        wanted = replace(wanted, start=each.position + each.length, first=local + each.length)
            except TrimmedError as error:
                skip(part.topic, wanted.start, error.first, fail_on_data_loss=options.fail_on_data_loss)
                wanted = link.run(_behind, link.client, part.topic, wanted, error.first)
            finally:
                link.run(chunks.aclose)


async def _open(client: Client, topic: str, part: StreamRange) -> AsyncGenerator[Sequence[StreamPart], None]:
    """Begin to read. Must run on the client's loop."""
    return ranges_of(client).read(topic, part)


async def _next_chunk(chunks: AsyncGenerator[Sequence[StreamPart], None]) -> Sequence[StreamPart]:
    """Return the next records; () = there are no more."""
    async for chunk in chunks:
        return chunk
    return ()


async def _behind(client: Client, topic: str, part: StreamRange, first: int) -> StreamRange:
    """Return what is left of a part whose records below the global position ``first`` were trimmed."""
    start = min(first, part.end)
    ranges = ranges_of(client)
    found = await ranges.describe(topic)
    while start < part.end:
        place = await ranges.place(found, part.stream, start)
        if place.local is not None:
            return replace(part, start=start, first=min(place.local, part.last_end))
        start = min(place.kept_from, part.end)
    return replace(part, start=part.end, first=part.last_end)
