"""The queries about the order of streams, and for a read of one stream by global position, with their answers.

``streams/order.py`` and ``streams/stream_map.py`` answer about the order, ``streams/cover.py`` about a read. For a read
both states have to be asked, because group 0 forgets runs that the group of the stream has: first the state of group 0,
then that of the group, which gets the answer of the first.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewstamp.ids import GlobalPosition, GroupId, Index, Position, Stream, TopicId
from viewstamp.node.state_machine import Query
from viewstamp.value_class import value_class
from viewstamp.wire.ordering import GlobalRun, StreamReport

__all__ = [
    "Cover",
    "CoverQuery",
    "FirstFromQuery",
    "GlobalPositionQuery",
    "GlobalRecordQuery",
    "HomeCut",
    "HomeCutQuery",
    "MissingRunsQuery",
    "MovedStreamsQuery",
    "OrderStatusQuery",
    "OrderTail",
    "OrderTailQuery",
    "OrderedRunsQuery",
    "StreamReportsQuery",
    "TopicOrderQuery",
]


@value_class(kw_only=False)
class OrderTail:
    """What the state of group 0 has of a stream's order, from a global position on.

    Attributes:
      next_position: the next global position of the topic.
      end: the ordered end of the stream.
      forgotten: the local position below which only the stream itself has the runs.
      runs: the first runs that end above the position, rising, without those that were forgotten.
    """

    next_position: GlobalPosition
    end: Position
    forgotten: Position
    runs: tuple[GlobalRun, ...]


@value_class(kw_only=False)
class TopicOrderQuery(Query[tuple[GlobalPosition, list[Position]]]):
    """The next global position of a spread topic, and the ordered end of each of its streams, in group 0.

    Raises UnknownTopicError.
    """

    name: str


@value_class(kw_only=False)
class OrderTailQuery(Query[OrderTail]):
    """The order of a stream of ``topic`` from a global position on, in group 0; at most ``runs_max`` runs."""

    stream: Stream
    topic: str
    position: GlobalPosition
    runs_max: int


@value_class(kw_only=False)
class Cover:
    """The records of a stream that a node can send to a reader, from a global position on.

    Attributes:
      topic: the id of the stream in the state of its group.
      start: the local position of the first record; the end if there is none.
      end: the local position after the last one.
      runs: runs that hold the records from ``start`` up to ``end``.
      known_to: all records of the stream from the position on and below this one are in ``[start, end)``, or were
        trimmed.
      kept_from: of the records from the position on, those below this one were trimmed; the position = none was.
    """

    topic: TopicId
    start: Position
    end: Position
    runs: tuple[GlobalRun, ...]
    known_to: GlobalPosition
    kept_from: GlobalPosition

    def known_at(self, end: Position) -> GlobalPosition:
        """Return ``known_to`` of an answer that has only the records below the local position ``end``."""
        if end >= self.end:
            return self.known_to
        return next(GlobalPosition(run.position + max(0, end - run.local)) for run in self.runs if end < run.end)

    def runs_to(self, end: Position) -> list[list[int]]:
        """Return [global position, local position, length] of the runs, cut to the records below ``end``."""
        cut: list[list[int]] = []
        for run in self.runs:
            first, last = max(run.local, self.start), min(run.end, end)
            if first < last:
                cut.append([run.position + first - run.local, first, last - first])
        return cut


@value_class(kw_only=False)
class CoverQuery(Query[Cover | None]):
    """What the state of a stream's group can send; None = it lags: it lacks runs that group 0 has forgotten.

    Raises UnknownTopicError if the group has not created the stream yet.
    """

    name: str
    position: GlobalPosition
    tail: OrderTail
    runs_max: int


@value_class(kw_only=False)
class OrderedRunsQuery(Query[list[GlobalRun]]):
    """The first ``count_max`` known runs with the records of a stream from ``local`` on, in any group's state.

    [] = the record at ``local`` has no global position that is known there.
    """

    stream: Stream
    local: int
    count_max: int


@value_class(kw_only=False)
class StreamReportsQuery(Query[list[StreamReport]]):
    """The ends of the streams that have records; ``group`` is the id of the group whose state is asked."""

    group: GroupId


@value_class(kw_only=False)
class MovedStreamsQuery(Query[list[StreamReport]]):
    """Those of the reports, rising by stream, that would change the order in the state of group 0."""

    reports: Iterable[StreamReport]


@value_class
class HomeCut:
    """The state of group 0 where a backup cuts its log, as far as the cuts of the other logs depend on it.

    Attributes:
      end: the index after its last record.
      version: that of the order.
      open_attempts: the attempts of sinks that are not committed and not over.
      pending_attempts: those that are committed and not released.
    """

    end: Index
    version: int
    open_attempts: frozenset[int]
    pending_attempts: frozenset[int]


@value_class(kw_only=False)
class HomeCutQuery(Query[HomeCut]):
    """What the cuts of the logs of other groups depend on, in the state of group 0."""


@value_class(kw_only=False)
class OrderStatusQuery(Query[list[StreamReport]]):
    """All ordered streams, each with its ordered end, and the end of the runs that group 0 has forgotten."""


@value_class(kw_only=False)
class GlobalPositionQuery(Query[int | None]):
    """The global position of a record of a stream, in the state of group 0 or of its group; None = not known there."""

    stream: Stream
    local: int


@value_class(kw_only=False)
class GlobalRecordQuery(Query[tuple[Stream, Position] | None]):
    """The stream and the local position of a global one of the spread topic ``topic``.

    ``group`` is the id of the group whose state is asked. None = not known there.
    """

    group: GroupId
    topic: str
    position: int


@value_class(kw_only=False)
class FirstFromQuery(Query[Position]):
    """The local position of the first record of a stream of this group with a global one from ``position`` on.

    If the map of the group has no such record, the end of the map.
    """

    stream: str
    position: int


@value_class(kw_only=False)
class MissingRunsQuery(Query[list[GlobalRun]]):
    """The first ``count_max`` runs in the state of group 0 that a stream lacks whose map ends at ``mapped``."""

    stream: Stream
    mapped: Position
    count_max: int
