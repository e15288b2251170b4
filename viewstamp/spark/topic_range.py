"""Ranges of positions of a topic, and the bounds that the options name. Sends no requests."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Self

from pyspark.sql.datasource import InputPartition

from viewstamp.client.results import TopicInfo
from viewstamp.errors import ConfigError, TrimmedError
from viewstamp.spark.option_values import PARTITIONS_MAX, Bound

__all__ = ["TopicRange", "check_partitions", "end_of", "estimate", "kept", "locate", "skip"]

_log = logging.getLogger("viewstamp.spark")


@dataclass(frozen=True)
class TopicRange(InputPartition):
    """The part of one task: positions ``start`` to ``end`` of a topic, half-open."""

    topic: str
    start: int
    end: int

    @property
    def records(self) -> int:
        """The number of its records."""
        return self.end - self.start

    def between(self, first: int, end: int) -> Self:
        """Return the part from its record ``first`` on, counted from 0, up to ``end``, exclusive."""
        return replace(self, start=self.start + first, end=self.start + end)


def end_of(topic: TopicInfo) -> int:
    """Return the position after the last one."""
    return topic.last_position + 1


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


def estimate(topic: TopicInfo, count: int) -> int:
    """Return the approximate bytes of ``count`` records of a topic, by their mean; at least 1 for 1 record."""
    return -(-topic.bytes * count // max(1, end_of(topic) - topic.first_position))


def check_partitions(partitions: int, records: int, records_max: int | None) -> None:
    """Check that ``records`` may be divided into so many partitions because of ``maxRecordsPerPartition``.

    Raises:
      ConfigError: that would be more partitions than Spark can plan.
    """
    if partitions > PARTITIONS_MAX:
        raise ConfigError(
            f"maxRecordsPerPartition={records_max} makes {partitions:,} partitions, but {PARTITIONS_MAX:,} are allowed",
            remedy=f"write at least {records // PARTITIONS_MAX + 1}",
        )
