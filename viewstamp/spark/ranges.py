"""Plans the positions to read, in pieces: for both sources, on the driver; a piece is passed to a task."""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing

from viewstamp.client.aio import Client
from viewstamp.client.results import TopicInfo
from viewstamp.client.stream_ranges import DividedTopic
from viewstamp.errors import UnknownTopicError
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.spread import SpreadRange, describe_spread, find_spread_time, is_spread, split_spread
from viewstamp.spark.topic_range import TopicRange, check_partitions, end_of, estimate, kept, locate

__all__ = [
    "cut",
    "describe",
    "find_time",
    "reach",
    "split",
    "starting_position",
    "task_bytes",
]

_PLANNING_SECONDS = 60.0
_TASKS_A_CORE = 2
"""Tasks for each core of the driver, because a source in Python cannot ask Spark for the executors' cores: the planning
process has no session. So bytes limit the tasks, and ``minPartitions`` raises their number."""
_TASK_BYTES_MIN = 16 * 1024 * 1024
"""The least bytes of a task, because each task costs Spark some ten milliseconds to start."""
_TASK_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of a task. So a gigabyte is at least 16 tasks even if the driver has few cores, and a failed task
repeats little work."""
_CUT_BYTES_MIN = 1024 * 1024
"""The least size of a range that is cut by bytes. If ``minPartitions`` asks for smaller ranges, they are cut by the
number of records, because the nodes name no cuts by bytes below this size."""


async def describe(client: Client, topics: Sequence[str]) -> dict[str, TopicInfo]:
    """Return the present ends of topics, all of one moment, so that a commit to several topics is in all or none.

    Each topic with streams is a :class:`DividedTopic`, and has a moment of its own.

    Raises:
      UnknownTopicError: a topic does not exist.
      UnavailableError: no node answers; sooner than for other calls, because the addresses may be wrong.
    """
    found: dict[str, TopicInfo] = {}
    if len(topics) > 1:
        found = {topic.name: topic for topic in await client.list_topics(timeout=_PLANNING_SECONDS)}
    return {topic: found.get(topic) or await _describe(client, topic) for topic in topics}


async def _describe(client: Client, topic: str) -> TopicInfo:
    if not is_spread(client, topic):
        try:
            return await client.describe_topic(topic, timeout=_PLANNING_SECONDS)
        except UnknownTopicError as error:
            try:
                return await describe_spread(client, topic, timeout=_PLANNING_SECONDS)
            except UnknownTopicError:
                raise error from None  # Its remedy is that of most users.
    return await describe_spread(client, topic, timeout=_PLANNING_SECONDS)


async def starting_position(client: Client, options: SourceOptions, topic: TopicInfo) -> int:
    """Return the position at which the options begin a topic; its end if no record is as late as the options require.

    Raises:
      TrimmedError: that position has been trimmed.
      ConfigError: that position does not exist yet.
    """
    if options.starting_timestamp is not None:
        return await find_time(client, topic, options.starting_timestamp)
    position = locate(topic, options.starting_position[topic.name], "startingPosition")
    return kept(topic, position, fail_on_data_loss=options.fail_on_data_loss)


async def find_time(client: Client, topic: TopicInfo, timestamp: int) -> int:
    """Return the first position with this log time (microseconds since 1970) or a later one; the end if there is none.

    Of a topic with streams: a position from which on all of these come, because its log times do not only rise.

    The nodes have only a sparse map of times, so the records between two of its entries are read here.
    """
    if isinstance(topic, DividedTopic):
        return await find_spread_time(client, topic, timestamp)
    start = max(await client.find_time(topic.name, timestamp), topic.first_position)
    if start < end_of(topic):
        async with aclosing(client.read_batches(topic.name, start, end=end_of(topic))) as batches:
            async for batch in batches:
                if batch.log_time >= timestamp:
                    return max(start, batch.first_position)
    return end_of(topic)


async def reach(client: Client, topic: TopicInfo, start: int, end: int, size: int) -> int:
    """Return a position after ``start``, at most ``end``, so that there are about ``size`` bytes before it.

    It asks for a small part first, because cutting a long range costs the node much and has a long answer.
    """
    records = max(1, size // max(1, estimate(topic, 1)))
    if isinstance(topic, DividedTopic):
        return min(end, start + records)
    ahead = 16 * records
    while True:
        near = min(end, start + ahead)
        cuts = await client.split_topic(topic.name, start, near, size)
        if len(cuts) > 2 or near == end:
            return cuts[1]
        ahead *= 16


def task_bytes(topics: Mapping[str, TopicInfo], ranges: Sequence[TopicRange], options: SourceOptions) -> int:
    """Return the bytes of records that a task of a query over these ranges has, before records cut it further."""
    total = sum(estimate(topics[part.topic], max(0, part.records)) for part in ranges)
    wanted = max(_TASKS_A_CORE * (os.cpu_count() or 1), options.min_partitions)
    size = max(total // wanted, _TASK_BYTES_MIN if options.min_partitions == 1 else _CUT_BYTES_MIN)
    return min(size, _TASK_BYTES_MAX)


async def split(
    client: Client,
    topics: Mapping[str, TopicInfo],
    ranges: Sequence[TopicRange],
    options: SourceOptions,
    archived: Sequence[TopicRange] = (),
) -> list[TopicRange]:
    """Return ``ranges`` in pieces for tasks, and the pieces ``archived``, by position; empty ranges give none.

    Bytes decide the size of a piece; then ``max_records_per_partition`` and ``min_partitions`` cut further. Ranges of
    topics with streams are divided by streams (``by_streams``).
    """
    size = task_bytes(topics, [*ranges, *archived], options)
    everything = sum(max(0, part.records) for part in [*ranges, *archived])
    records_max = max(1, everything // options.min_partitions)
    pieces: list[TopicRange] = [*archived]
    streams: dict[str, list[SpreadRange]] = {}
    for part in ranges:
        if isinstance(part, SpreadRange):
            streams.setdefault(part.topic, []).append(part)
        elif part.start < part.end:
            cuts = await client.split_topic(part.topic, part.start, part.end, size)
            pieces += [TopicRange(part.topic, start, end) for start, end in itertools.pairwise(cuts)]
    spread: list[SpreadRange] = []
    for name, parts in streams.items():
        topic = topics[name]
        assert isinstance(topic, DividedTopic), f"{name} was divided by streams"
        spread += await split_spread(client, topic, parts, options, size, records_max)
    places = {topic: place for place, topic in enumerate(topics)}
    pieces.sort(key=lambda piece: (places[piece.topic], piece.start))
    return [*cut(pieces, options.min_partitions - len(spread), options.max_records_per_partition), *spread]


def cut(pieces: Sequence[TopicRange], at_least: int, records_max: int | None) -> list[TopicRange]:
    """Return ``pieces`` cut until each has at most ``records_max`` records and there are ``at_least``, in order.

    The largest piece is cut first. There may be fewer if there are fewer records, because a piece has at least one.

    Raises:
      ConfigError: that would be more partitions than Spark can plan.
    """
    parts = [-(-piece.records // (records_max or piece.records)) for piece in pieces]
    check_partitions(sum(parts), sum(piece.records for piece in pieces), records_max)
    # By records for each part, the largest first; negative, because heapq returns the smallest.
    largest = [(-(piece.records / parts[i]), i) for i, piece in enumerate(pieces)]
    heapq.heapify(largest)
    for _ in range(at_least - sum(parts)):
        if not largest or largest[0][0] >= -1:
            break
        _, i = heapq.heappop(largest)
        parts[i] += 1
        heapq.heappush(largest, (-(pieces[i].records / parts[i]), i))
    return [
        piece.between(first, end)
        for piece, count in zip(pieces, parts, strict=True)
        for first, end in itertools.pairwise(piece.records * i // count for i in range(count + 1))
    ]
