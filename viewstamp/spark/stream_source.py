"""The streaming source: the positions of topics, micro-batch after micro-batch, continued from a checkpoint.

The checkpoint holds ``{"v": 1, "<topic>": position, ...}``: the format's version, and for each topic the next position
to read, ordered by name, because Spark compares it as text. A topic named ``v`` is stored as ``/v``; no name has a
slash.

If ``topic`` names other topics than the checkpoint
  * A new one begins as in a new query, at ``startingPosition`` or ``startingTimestamp``. The first micro-batch with it
    has none of its records, so that the checkpoint has its starting position before they are read.
  * One that is not named any more is not read any more. Its position stays in the checkpoint, and if it is named again,
    it continues there.
  * A micro-batch that was already planned is run again as planned.

With ``topicPattern`` the same holds for topics that are found later (``topic_pattern.py``), except that they begin with
their first kept record.
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
from viewstamp.host.clock import RealClock
from viewstamp.spark.archived import pieces_of
from viewstamp.spark.blocking_client import BlockingClient, blocking_client
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.ranges import describe, reach, starting_position
from viewstamp.spark.remedies import remedies
from viewstamp.spark.source import read_part
from viewstamp.spark.topic_pattern import found_later, matching
from viewstamp.spark.topic_range import TopicRange, end_of, estimate, kept
from viewstamp.spark.trigger_delay import TriggerDelay

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamReader", "decode_positions", "encode_positions", "share", "stream_reader"]

_VERSION = 1
_VERSION_KEY = "v"


def stream_reader(options: SourceOptions, schema: StructType) -> StreamReader:
    """Return the reader of a streaming query. Sends no request yet."""
    return StreamReader(options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process for the whole run of a query; :meth:`read` runs in the tasks, on a copy.

    Invariants:
      * the end of a micro-batch is never before its start, for any topic
      * a topic that is in the end of a micro-batch but not in its start gives it no records
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._target: dict[str, int] | None = None
        """The end of the query by topic, under Trigger.AvailableNow; None = it has no end."""
        self._latest: dict[str, int] | None = None
        """The ends of the topics as of the last request."""
        self._delay = TriggerDelay(options.min_records_per_trigger, options.max_trigger_delay)

    def _link(self) -> BlockingClient:
        """Return the connection, once the cluster may be reachable."""
        link = blocking_client(self.options.cluster, self.options.tls, self.options.token_file)
        link.reach(self.options.connect_seconds)
        return link

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name, as all of them
        """Return the start of a query without a checkpoint.

        Raises:
          UnknownTopicError, TrimmedError, ConfigError: a requested topic or position does not exist.
        """
        with remedies():
            link = self._link()
            return encode_positions(link.run(_first_positions, link.client, self.options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set. If both are set, Spark gets one, and both are applied."""
        if self.options.max_records_per_trigger is not None:
            return ReadMaxRows(self.options.max_records_per_trigger)
        if self.options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the end of the query: the records that are committed now.

        Raises:
          UnknownTopicError: a topic does not exist.
        """
        with remedies():
            link = self._link()
            options = link.run(matching, link.client, self.options)
            topics = link.run(describe, link.client, options.topics)
            self._target = {name: end_of(topic) for name, topic in topics.items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end of the next micro-batch: the committed records, as far as the limit allows.

        Raises:
          UnknownTopicError, TrimmedError: a topic, or its next position, is gone.
          ConfigError: the checkpoint belongs to another cluster, or to a later version.
        """
        with remedies():
            link = self._link()
            options = found_later(link.run(matching, link.client, self.options))
            topics = link.run(describe, link.client, options.topics)
            self._latest = {name: end_of(topic) for name, topic in topics.items()}
            ends = self._latest if self._target is None else self._target
            positions = decode_positions(start)
            if self._target is None and self._holds(positions):
                return start
            # A topic that was found after the start of a query with an end is left to the next query.
            topics = {name: topic for name, topic in topics.items() if name in ends}
            return encode_positions(link.run(_advance, link.client, options, topics, positions, ends, limit))

    def _holds(self, positions: Mapping[str, int]) -> bool:
        """Return whether the micro-batch waits for more records. A topic without a position gets one at once."""
        assert self._latest is not None, "just set"
        if not self._latest.keys() <= positions.keys():
            return False
        waiting = sum(max(0, end - positions[name]) for name, end in self._latest.items())
        return self._delay.holds(waiting, RealClock.monotonic())

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Return the ends of the topics as of the last request, for Spark's progress reports."""
        return None if self._latest is None else encode_positions(self._latest)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[TopicRange]:
        """Return the parts of a micro-batch. The same positions always hold the same records.

        Raises:
          UnknownTopicError, TrimmedError: a topic, or some of its positions, are gone.
          ConfigError: the checkpoint belongs to another cluster, or to a later version.
        """
        with remedies():
            link = self._link()
            found = link.run(_ranges, link.client, self.options, decode_positions(start), decode_positions(end))
            return pieces_of(link, self.options, *found)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition."""
        assert isinstance(partition, TopicRange), f"{partition!r} is not of these partitions"
        return read_part(self.options, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing, because the topic's retention decides how long records are kept, not this query."""


async def _first_positions(client: Client, options: SourceOptions) -> dict[str, int]:
    options = await matching(client, options)
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
    """Return the end of a micro-batch that begins at ``positions`` and ends at ``ends`` or before."""
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
    """Divide ``limit`` in proportion to the waiting records; no topic gets more than it has waiting."""
    shares = {}
    left = sum(waiting.values())
    for name, size in waiting.items():
        shares[name] = min(size, -(-limit * size // left)) if left else 0
        limit -= shares[name]
        left -= size
    return shares


async def _ranges(
    client: Client, options: SourceOptions, start: Mapping[str, int], end: Mapping[str, int]
) -> tuple[dict[str, TopicInfo], list[TopicRange]]:
    topics = await describe(client, [name for name in end if name in start and start[name] < end[name]])
    ranges = []
    for name, topic in topics.items():
        _reached(options, topic, end[name])
        ranges.append(TopicRange(name, _reached(options, topic, start[name]), end[name]))
    return topics, ranges


def _reached(options: SourceOptions, topic: TopicInfo, position: int) -> int:
    """Return a position of the checkpoint, or the first retained one if ``fail_on_data_loss`` is off.

    Raises:
      TrimmedError: it was trimmed, and ``fail_on_data_loss`` is on.
      ConfigError: the topic never reached it.
    """
    if position > end_of(topic):
        raise ConfigError(
            f"the checkpoint is at position {position} of topic {topic.name}, whose last one is {topic.last_position}",
            remedy="name the cluster with which the checkpoint was made, or start anew with another checkpoint",
        )
    return kept(topic, position, fail_on_data_loss=options.fail_on_data_loss)


def encode_positions(positions: Mapping[str, int]) -> dict[str, int]:
    """Return positions in the form of the checkpoint."""
    return {_VERSION_KEY: _VERSION} | {_key(topic): positions[topic] for topic in sorted(positions)}


def decode_positions(stored: object) -> dict[str, int]:
    """Return the positions of a checkpoint, by topic.

    Raises:
      ConfigError: they have a later version, or were not written by this source.
    """
    if not isinstance(stored, dict) or not all(type(value) is int and value > 0 for value in stored.values()):
        raise ConfigError(
            f"the checkpoint holds {stored!r}, which are not positions of topics",
            remedy="give each query its own checkpoint; this one belongs to another source, or is damaged",
        )
    if stored.get(_VERSION_KEY) != _VERSION:
        raise ConfigError(
            f"the checkpoint has positions of version {stored.get(_VERSION_KEY)}, but this release reads {_VERSION}",
            remedy="continue with the release that wrote it, or a later one",
        )
    return {_topic(key): position for key, position in stored.items() if key != _VERSION_KEY}


def _key(topic: str) -> str:
    return f"/{topic}" if topic == _VERSION_KEY else topic


def _topic(key: str) -> str:
    return key.removeprefix("/")
