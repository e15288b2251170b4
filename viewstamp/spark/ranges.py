"""Which positions are read, and in which pieces: what both sources plan on the driver, and what a task is told."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from viewstamp.client.aio import Client
from viewstamp.client.results import TopicInfo
from viewstamp.errors import ConfigError, TrimmedError
from viewstamp.spark.options import Bound, SourceOptions

__all__ = [
    "TopicRange",
    "describe",
    "end_of",
    "estimate",
    "find_time",
    "kept",
    "locate",
    "reach",
    "split",
    "starting_position",
]

_log = logging.getLogger("viewstamp.spark")

_PLANNING_SECONDS = 60.0
_TASKS_A_CORE = 2
"""Into so many tasks a core a range is cut, because each costs Spark some ten milliseconds to start ..."""
_TASK_BYTES_MIN = 16 * 1024 * 1024
"""... into fewer where they would be smaller than this, which does not pay ..."""
_TASK_BYTES_MAX = 256 * 1024 * 1024
"""... and into more where they would be larger: the cores of the driver are counted, which does not know how many the
executors have, and what a task had read is lost with it."""


@dataclass(frozen=True)
class TopicRange(InputPartition):
    """What one task reads: positions ``start`` to ``end`` of a topic, half-open."""

    topic: str
    start: int
    end: int


async def describe(client: Client, topics: Sequence[str]) -> dict[str, TopicInfo]:
    """Ask what topics have committed by now: at one moment, so that what is committed to several is there or is not.

    Raises:
      UnknownTopicError: one of them does not exist.
      UnavailableError: nobody answers; sooner than elsewhere, because the addresses may be wrong.
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
    """Return where the options say that a topic is begun; its end where it has nothing as late as they say.

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
      ConfigError: it is further than one behind the last.
    """
    if bound == "earliest":
        return topic.first_position
    if bound == "latest":
        return end_of(topic)
    if bound > end_of(topic):
        raise ConfigError(
            f"{option} is {bound}, and the last position of topic {topic.name} is {topic.last_position}",
            remedy=f'name at most {end_of(topic)}, or "latest"',
        )
    return bound


def kept(topic: TopicInfo, position: int, *, fail_on_data_loss: bool) -> int:
    """Return ``position``, or the first one that is kept where it is gone and that is no matter.

    Raises:
      TrimmedError: it is gone, and that does matter.
    """
    if position >= topic.first_position:
        return position
    return skip(topic.name, position, topic.first_position, fail_on_data_loss=fail_on_data_loss)


def skip(topic: str, position: int, first: int, *, fail_on_data_loss: bool) -> int:
    """Return ``first``, with a warning, where positions from ``position`` on are gone and that is no matter.

    Raises:
      TrimmedError: it does matter.
    """
    message = f"position {position} of topic {topic} was to be read, but the first one that is kept is {first}"
    if fail_on_data_loss:
        raise TrimmedError(
            message,
            first=first,
            remedy="failOnDataLoss=false reads on from there, without those records; else start anew, with another"
            " checkpoint and startingPosition=earliest, and have the topic keep more (viewstamp topic configure)",
        )
    _log.warning("%s: %d records are skipped", message, first - position)
    return first


async def find_time(client: Client, topic: TopicInfo, timestamp: int) -> int:
    """Return the first position of this log time (microseconds since 1970) or a later one; the end where none has it.

    The nodes know times by the sparse map only, so what lies between two of its entries is looked at here.
    """
    start = max(await client.find_time(topic.name, timestamp), topic.first_position)
    if start < end_of(topic):
        async with aclosing(client.read_batches(topic.name, start, end=end_of(topic))) as batches:
            async for batch in batches:
                if batch.log_time >= timestamp:
                    return max(start, batch.first_position)
    return end_of(topic)


def estimate(topic: TopicInfo, count: int) -> int:
    """Return about how many bytes so many records of a topic have, by the mean; at least 1 unless there are none."""
    return -(-topic.bytes * count // max(1, end_of(topic) - topic.first_position))


async def reach(client: Client, topic: TopicInfo, start: int, end: int, size: int) -> int:
    """Return a position after ``start``, up to ``end``, until which there are about ``size`` bytes.

    A little is asked for first: to cut all of a long range would cost the node much, and its answer would be long.
    """
    ahead = 16 * max(1, size // max(1, estimate(topic, 1)))
    while True:
        near = min(end, start + ahead)
        cuts = await client.split_topic(topic.name, start, near, size)
        if len(cuts) > 2 or near == end:
            return cuts[1]
        ahead *= 16


async def split(client: Client, topics: Mapping[str, TopicInfo], ranges: Sequence[TopicRange]) -> list[TopicRange]:
    """Return ``ranges`` in the pieces that tasks get, in order; nothing for empty ones."""
    total = sum(estimate(topics[part.topic], max(0, part.end - part.start)) for part in ranges)
    size = min(max(total // (_TASKS_A_CORE * (os.cpu_count() or 1)), _TASK_BYTES_MIN), _TASK_BYTES_MAX)
    return [
        TopicRange(part.topic, start, end)
        for part in ranges
        if part.start < part.end
        for start, end in itertools.pairwise(await client.split_topic(part.topic, part.start, part.end, size))
    ]
