"""The streaming source: positions of topics, micro-batch after micro-batch, on from a checkpoint.

What a checkpoint holds of it is ``{"v": 1, "<topic>": position, ...}``: the format's version, and for each topic the
next position to read, in the order of their names, because Spark compares it as text. A topic whose name is ``v``
stands there as ``/v``; no name has a slash.

When ``topic`` names others than the checkpoint does
  * One that is new begins as in a new query, where ``startingPosition`` or ``startingTimestamp`` says. The micro-batch
    that it first appears in holds none of its records: the checkpoint then says where it began, before they are read.
  * One that is not named any more is not read any more. Its position stays in the checkpoint; named again, it goes
    on there.
  * A micro-batch that was planned before is run again as it was planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from viewstamp.client.aio import Client
from viewstamp.client.results import TopicInfo
from viewstamp.errors import ConfigError
from viewstamp.spark.blocking_client import BlockingClient, blocking_client
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.ranges import TopicRange, describe, end_of, estimate, kept, reach, split, starting_position
from viewstamp.spark.remedies import remedies
from viewstamp.spark.source import read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamReader", "decode_positions", "encode_positions", "share", "stream_reader"]

_VERSION = 1
_VERSION_KEY = "v"


def stream_reader(options: SourceOptions, schema: StructType) -> StreamReader:
    """Return the reader of a streaming query; nothing is asked of the cluster yet."""
    return StreamReader(options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process for the whole run of a query; :meth:`read` runs in the tasks, on a copy.

    Invariants:
      * the end of a micro-batch is never before its start, for any topic
      * a topic that is in the end of a micro-batch and not in its start gives it no records
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._target: dict[str, int] | None = None
        """Where reading ends, by topic, under Trigger.AvailableNow; None = it goes on."""
        self._latest: dict[str, int] | None = None
        """The ends, by topic, as they were last asked for."""

    def _link(self) -> BlockingClient:
        """Return the connection, once the cluster may be reached."""
        link = blocking_client(self.options.cluster)
        link.reach(self.options.connect_seconds)
        return link

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name, as all of them
        """Return where a query without a checkpoint begins.

        Raises:
          UnknownTopicError, TrimmedError, ConfigError: a topic, or a position, that was asked for does not exist.
        """
        with remedies():
            link = self._link()
            return encode_positions(link.run(_first_positions, link.client, self.options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set. Where both are set, Spark hears of one, and both hold."""
        if self.options.max_records_per_trigger is not None:
            return ReadMaxRows(self.options.max_records_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end: what is committed by now.

        Raises:
          UnknownTopicError: a topic does not exist.
        """
        with remedies():
            link = self._link()
            topics = link.run(describe, link.client, self.options.topics)
            self._target = {name: end_of(topic) for name, topic in topics.items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return where the next micro-batch ends: as far as is committed, and the limit allows.

        Raises:
          UnknownTopicError, TrimmedError: a topic, or its next position, is gone.
          ConfigError: the checkpoint belongs to another cluster, or to a later version.
        """
        with remedies():
            link = self._link()
            topics = link.run(describe, link.client, self.options.topics)
            self._latest = {name: end_of(topic) for name, topic in topics.items()}
            ends = self._target or self._latest
            return encode_positions(
                link.run(_advance, link.client, self.options, topics, decode_positions(start), ends, limit)
            )

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Return the ends of the topics, for Spark's progress reports, as they were last asked for."""
        return None if self._latest is None else encode_positions(self._latest)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[TopicRange]:
        """Return what the tasks of a micro-batch read; the same positions hold the same records whenever it is run.

        Raises:
          UnknownTopicError, TrimmedError: a topic, or positions of it, are gone.
          ConfigError: the checkpoint belongs to another cluster, or to a later version.
        """
        with remedies():
            link = self._link()
            return link.run(_plan, link.client, self.options, decode_positions(start), decode_positions(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition."""
        assert isinstance(partition, TopicRange), f"{partition!r} is not of these partitions"
        return read_range(self.options, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: what is read is kept as long as the topic's retention says, not as this query does."""


async def _first_positions(client: Client, options: SourceOptions) -> dict[str, int]:
    topics = await describe(client, options.topics)
    return {name: await starting_position(client, options, topic) for name, topic in topics.items()}


async def _advance(
    client: Client,
    options: SourceOptions,
    topics: Mapping[str, TopicInfo],
    positions: Mapping[str, int],
    ends: Mapping[str, int],
    limit: ReadLimit,
) -> dict[str, int]:
    """Return the positions after a micro-batch that begins at ``positions`` and reaches at most to ``ends``."""
    following = dict(positions)
    waiting: dict[str, tuple[int, int]] = {}
    for name, topic in topics.items():
        if name not in positions:
            following[name] = min(await starting_position(client, options, topic), ends[name])
            continue
        following[name] = max(positions[name], ends[name])
        start = _reached(options, topic, positions[name])
        if start < ends[name]:
            waiting[name] = start, ends[name]
    rows, size = None, None
    match limit:
        case ReadMaxRows():
            rows, size = limit.max_rows, options.max_bytes_per_trigger
        case ReadMaxBytes():
            size = limit.max_bytes
    if rows is not None:
        shares = share(rows, {name: end - start for name, (start, end) in waiting.items()})
        waiting = {name: (start, start + shares[name]) for name, (start, _) in waiting.items()}
    if size is not None:
        shares = share(size, {name: estimate(topics[name], end - start) for name, (start, end) in waiting.items()})
        for name, (start, end) in waiting.items():
            if start < end:
                waiting[name] = start, await reach(client, topics[name], start, end, max(1, shares[name]))
    return following | {name: end for name, (_, end) in waiting.items()}


def share(limit: int, waiting: Mapping[str, int]) -> dict[str, int]:
    """Divide ``limit`` in proportion to what waits; together they get all of it, and none more than waits for it."""
    shares = {}
    left = sum(waiting.values())
    for name, size in waiting.items():
        shares[name] = min(size, -(-limit * size // left)) if left else 0
        limit -= shares[name]
        left -= size
    return shares


async def _plan(
    client: Client, options: SourceOptions, start: Mapping[str, int], end: Mapping[str, int]
) -> list[TopicRange]:
    topics = await describe(client, [name for name in end if name in start and start[name] < end[name]])
    ranges = []
    for name, topic in topics.items():
        _reached(options, topic, end[name])
        ranges.append(TopicRange(name, _reached(options, topic, start[name]), end[name]))
    return await split(client, topics, ranges, options)


def _reached(options: SourceOptions, topic: TopicInfo, position: int) -> int:
    """Return a position of the checkpoint, or the first one that is kept where that is as good.

    Raises:
      TrimmedError: it was trimmed, and that matters.
      ConfigError: the topic never came so far.
    """
    if position > end_of(topic):
        raise ConfigError(
            f"the checkpoint stands at position {position} of topic {topic.name}, whose last one is"
            f" {topic.last_position}",
            remedy="name the cluster that the checkpoint was made with, or start anew with another checkpoint",
        )
    return kept(topic, position, fail_on_data_loss=options.fail_on_data_loss)


def encode_positions(positions: Mapping[str, int]) -> dict[str, int]:
    """Return positions as the checkpoint holds them."""
    return {_VERSION_KEY: _VERSION} | {_key(topic): positions[topic] for topic in sorted(positions)}


def decode_positions(stored: object) -> dict[str, int]:
    """Return the positions of a checkpoint, by topic.

    Raises:
      ConfigError: they are of a later version, or were not written by this source.
    """
    if not isinstance(stored, dict) or not all(type(value) is int and value > 0 for value in stored.values()):
        raise ConfigError(
            f"the checkpoint holds {stored!r}, which are no positions of topics",
            remedy="give each query a checkpoint of its own; this one belongs to another source, or is damaged",
        )
    if stored.get(_VERSION_KEY) != _VERSION:
        raise ConfigError(
            f"the checkpoint holds positions of version {stored.get(_VERSION_KEY)}, this release knows {_VERSION}",
            remedy="go on with the release that wrote it, or a later one",
        )
    return {_topic(key): position for key, position in stored.items() if key != _VERSION_KEY}


def _key(topic: str) -> str:
    return f"/{topic}" if topic == _VERSION_KEY else topic


def _topic(key: str) -> str:
    return key.removeprefix("/")
