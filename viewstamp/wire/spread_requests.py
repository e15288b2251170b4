"""The rows of the table of requests about spread topics; ``requests.py`` has the others."""

from __future__ import annotations

from typing import Annotated

from viewstamp.wire.access import Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import Range, RequestBody, request

__all__ = ["CreateSpreadTopic", "DescribeSpreadTopic", "ListSpreadTopics"]

_STREAMS = Range(1, 256, remedy="take 1 to 256 streams")


@request(FrameKind.SPREAD_TOPIC, needs=Need(Right.APPEND, topic="name"), record=Kind.SPREAD_TOPIC)
class CreateSpreadTopic(RequestBody):
    """Create a topic whose records are spread over streams of groups. A second copy of the request finds the topic.

    The leader of group 0 first asks every member of group 0 whether its release knows spread topics, and chooses the
    groups. The leaders of the groups create the streams afterwards.

    OK: ``topic`` = {id, name, retain_bytes, retain_seconds, groups (the group of each stream, from stream 1 on), slots
    (their number), ranges (a list of [first slot, stream], by the first slot)}. Stream *n* is the topic ``name.n`` on a
    connection to its group.
    """

    name: str
    streams: Annotated[int, _STREAMS]
    groups: list[int]
    """The groups of the streams, in turns, at most one for each stream; [] = those with the fewest streams."""
    retain_bytes: int | None = None
    retain_seconds: float | None = None


@request(FrameKind.DESCRIBE_SPREAD, needs=Need(Right.READ, Right.APPEND, topic="name"))
class DescribeSpreadTopic(RequestBody):
    """Describe a spread topic. OK: ``topic`` as CreateSpreadTopic, ``age`` and ``applied_index`` as DescribeTopic."""

    name: str
    stale: bool


@request(FrameKind.LIST_SPREADS, needs=Need(Right.READ, Right.APPEND, Right.CALL))
class ListSpreadTopics(RequestBody):
    """List all spread topics. OK: ``topics``, a list of the maps that CreateSpreadTopic returns; ``age``."""

    stale: bool
