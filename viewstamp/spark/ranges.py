"""Plans the positions to read, in pieces: for both sources, on the driver; a piece is passed to a task."""

from __future__ import annotations

import heapq
import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from viewstamp.client.aio import Client
from viewstamp.client.results import TopicInfo
from viewstamp.errors import ConfigError, TrimmedError
from viewstamp.spark.options import PARTITIONS_MAX, Bound, SourceOptions

__all__ = [
    "TopicRange",
    "cut",
    "describe",
    "end_of",
    "estimate",
    "find_time",
    "kept",
    "locate",
    "reach",
    "split",
    "starting_position",
    "task_bytes",
]

_log = logging.getLogger("viewstamp.spark")

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


@dataclass(frozen=True)
class TopicRange(InputPartition):
    """The part of one task: positions ``start`` to ``end`` of a topic, half-open."""

    topic: str
    start: int
    end: int


async def describe(client: Client, topics: Sequence[str]) -> dict[str, TopicInfo]:
    """Return the present ends of topics, all of one moment, so that a commit to several topics is in all or none.

    Raises:
      UnknownTopicError: a topic does not exist.
      UnavailableError: no node answers; sooner than for other calls, because the addresses may be wrong.
    """
    found: dict[str, TopicInfo] = {}
    if len(topics) > 1:
        found = {topic.name: topic for topic in await client.list_topics(timeout=_PLANNING_SECONDS)}
    return {
        topic: found.get(topic) or await client.describe_topic(topic, timeout=_PLANNING_SECONDS) for topic in topics
    }


def end_of(topic: TopicInfo) -> int:
    """Return the position after the last one."""
    return topic.last_position + 1


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


def locate(topic: TopicInfo, bound: Bound, option: str) -> int:
    """Return the position that an option's value means.

    Raises:
      ConfigError: it is after the end of the topic.
    """
    if bound == "earliest":
        return topic.first_position
    if bound == "latest":
        return end_of(topic)
    if bound > end_of(topic):
        raise ConfigError(
            f"{option} is {bound}, but the last position of topic {topic.name} is {topic.last_position}",
            remedy=f'write at most {end_of(topic)}, or "latest"',
        )
    return bound


def kept(topic: TopicInfo, position: int, *, fail_on_data_loss: bool) -> int:
    """Return ``position``, or the first retained one if it was trimmed and ``fail_on_data_loss`` is off.

    Raises:
      TrimmedError: it was trimmed, and ``fail_on_data_loss`` is on.
    """
    if position >= topic.first_position:
        return position
    return skip(topic.name, position, topic.first_position, fail_on_data_loss=fail_on_data_loss)


def skip(topic: str, position: int, first: int, *, fail_on_data_loss: bool) -> int:
    """Return ``first``, with a warning, if ``fail_on_data_loss`` is off; positions from ``position`` on were trimmed.

    Raises:
      TrimmedError: ``fail_on_data_loss`` is on.
    """
    message = f"position {position} of topic {topic} is to be read, but the first retained position is {first}"
    if fail_on_data_loss:
        raise TrimmedError(
            message,
            first=first,
            remedy="failOnDataLoss=false continues there, without those records; or start anew, with another checkpoint"
            " and startingPosition=earliest, and raise the topic's retention (viewstamp topic configure)",
        )
    _log.warning("%s: %d records are skipped", message, first - position)
    return first


async def find_time(client: Client, topic: TopicInfo, timestamp: int) -> int:
    """Return the first position with this log time (microseconds since 1970) or a later one; the end if there is none.

    The nodes have only a sparse map of times, so the records between two of its entries are read here.
    """
    start = max(await client.find_time(topic.name, timestamp), topic.first_position)
    if start < end_of(topic):
        async with aclosing(client.read_batches(topic.name, start, end=end_of(topic))) as batches:
            async for batch in batches:
                if batch.log_time >= timestamp:
                    return max(start, batch.first_position)
    return end_of(topic)


def estimate(topic: TopicInfo, count: int) -> int:
    """Return the approximate bytes of ``count`` records of a topic, by their mean; at least 1 for 1 record."""
    return -(-topic.bytes * count // max(1, end_of(topic) - topic.first_position))


async def reach(client: Client, topic: TopicInfo, start: int, end: int, size: int) -> int:
    """Return a position after ``start``, at most ``end``, so that there are about ``size`` bytes before it.

    It asks for a small part first, because cutting a long range costs the node much and has a long answer.
    """
    ahead = 16 * max(1, size // max(1, estimate(topic, 1)))
    while True:
        near = min(end, start + ahead)
        cuts = await client.split_topic(topic.name, start, near, size)
        if len(cuts) > 2 or near == end:
            return cuts[1]
        ahead *= 16


def task_bytes(topics: Mapping[str, TopicInfo], ranges: Sequence[TopicRange], options: SourceOptions) -> int:
    """Return the bytes of records that a task of a query over these ranges has, before records cut it further."""
    total = sum(estimate(topics[part.topic], max(0, part.end - part.start)) for part in ranges)
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

    Bytes decide the size of a piece; then ``max_records_per_partition`` and ``min_partitions`` cut further.
    """
    size = task_bytes(topics, [*ranges, *archived], options)
    pieces = [
        TopicRange(part.topic, start, end)
        for part in ranges
        if part.start < part.end
        for start, end in itertools.pairwise(await client.split_topic(part.topic, part.start, part.end, size))
    ]
    places = {topic: place for place, topic in enumerate(topics)}
    pieces = sorted([*archived, *pieces], key=lambda piece: (places[piece.topic], piece.start))
    return cut(pieces, options.min_partitions, options.max_records_per_partition)


def cut(pieces: Sequence[TopicRange], at_least: int, records_max: int | None) -> list[TopicRange]:
    """Return ``pieces`` cut until each has at most ``records_max`` records and there are ``at_least``, in order.

    The largest piece is cut first. There may be fewer if there are fewer records, because a piece has at least one.

    Raises:
      ConfigError: that would be more partitions than Spark can plan.
    """
    parts = [-(-(piece.end - piece.start) // (records_max or (piece.end - piece.start))) for piece in pieces]
    if sum(parts) > PARTITIONS_MAX:
        raise ConfigError(
            f"maxRecordsPerPartition={records_max} makes {sum(parts):,} partitions, but {PARTITIONS_MAX:,} are allowed",
            remedy=f"write at least {sum(piece.end - piece.start for piece in pieces) // PARTITIONS_MAX + 1}",
        )
    # By records for each part, the largest first; negative, because heapq returns the smallest.
    largest = [(-((piece.end - piece.start) / parts[i]), i) for i, piece in enumerate(pieces)]
    heapq.heapify(largest)
    for _ in range(at_least - sum(parts)):
        if not largest or largest[0][0] >= -1:
            break
        _, i = heapq.heappop(largest)
        parts[i] += 1
        heapq.heappush(largest, (-((pieces[i].end - pieces[i].start) / parts[i]), i))
    return [
        replace(piece, start=start, end=end)
        for piece, count in zip(pieces, parts, strict=True)
        for start, end in itertools.pairwise(
            piece.start + (piece.end - piece.start) * i // count for i in range(count + 1)
        )
    ]
