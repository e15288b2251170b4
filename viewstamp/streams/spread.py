"""Spread topics: topics whose records are spread over streams of groups, as the state of group 0 has them. Pure.

A spread topic is created by one record, which assigns each of its streams to a group. A stream is a topic in the state
of its group, which the leader of that group creates (``node/stream_topics.py``); its name is ``stream_name``.

| record | fields | changes nothing if | refused if |
| --- | --- | --- | --- |
| SPREAD_TOPIC | name, retain_bytes, retain_seconds, slots, groups: [group of each stream], are_named: whether the \
caller has named the groups | the same topic exists | it has other settings, or other groups than those that were \
named; a topic of group 0 has the name; a group is not established; a stream of this name exists; there are too many |
| CONFIGURE_SPREAD | name, retain_bytes, retain_seconds: None = unchanged, since: index | the topic has this retention \
| there is no such topic; or it was configured after ``since`` |
| CONFIGURE_SPREAD_ARCHIVE | name; of retain_bytes, retain_seconds, is_on, after_seconds, delay_seconds, \
delete_seconds those that change; since: index | the topic has these settings | as CONFIGURE_ARCHIVE and as \
CONFIGURE_SPREAD |
| CONFIGURE_SPREAD_SCHEMA | name, schema | the topic has this schema | there is no such topic; it is no schema; rows \
of the one before are not rows of it |
| ADD_STREAM | name, stream: its number, group, is_named: whether the caller has named the group | the topic has a \
stream of this number | ... in another group than the caller has named; there is no such topic; the number is not the \
next one; the group is not established; a stream of this name exists; there are too many |
| TRIM_SPREAD | name, position: the first global position to keep | it was trimmed to this position or a higher one | \
there is no such topic; or the position is beyond the ordered end of the topic |

``sealing.py`` has the records that end a stream, and remove it.

The name identifies a request: a second copy finds the topic that the first one has created, whatever groups its leader
has chosen. There is no removal, so a copy that arrives late changes nothing. The group of a stream never changes.

A stream that is added has no slots, so the keys of all records stay in their streams. It gets slots only when another
stream ends into it. A second copy of ADD_STREAM finds the stream by its number. The limits count no removed streams,
but their numbers and names are never used again, so a topic can have ``NUMBERS_MAX`` streams in the course of time.

Retention is that of each stream, so a topic of *n* streams keeps up to *n* times ``retain_bytes``. If each stream had a
share of a total, records of a stream with many of them would be deleted while others are nearly empty. A
CONFIGURE_SPREAD names the index of the record that had configured the topic last, as its sender read it. So a copy that
arrives after another change is refused, and does not undo it. The leaders of the groups configure and trim the streams.

The archive settings are those of each stream, too. Group 0 does not know which streams have archived records. So a
topic that had the archive once, and has it no more, has no retention, which would delete these records.

A record with a field that this release does not know raises ``OutdatedCodeError``, as those of ``placement.py``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any, NoReturn

from viewstamp.errors import RequestError, TopicExistsError, UnknownTopicError
from viewstamp.ids import GlobalPosition, GroupId, Index, Position, Stream
from viewstamp.node.placement_queries import (
    FreeGroupsQuery,
    SealableStream,
    SpreadingQuery,
    SpreadTopic,
    SpreadTopicQuery,
    SpreadTopicsQuery,
    StreamArchive,
)
from viewstamp.node.state_machine import Query
from viewstamp.streams.archive_settings import OFF, ArchiveSettings, decode_archive
from viewstamp.streams.order import Order
from viewstamp.streams.placement import Placements, is_stream_name
from viewstamp.streams.sealing import (
    closed_image,
    closed_topic,
    decode_sealed,
    gone_topic,
    lost_sealed_topic,
    lost_topic,
    read_closed,
    sealed_topic,
)
from viewstamp.streams.settings import RETAIN_BYTES_MAX, RETAIN_SECONDS_MAX, decode_settings
from viewstamp.streams.topic_schema import decode_schema, successor
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.ordering import StreamReport
from viewstamp.wire.recovering import RecoveredOrder
from viewstamp.wire.row_schema import RowSchema
from viewstamp.wire.spreading import STREAM_NUMBERS_MAX, stream_name
from viewstamp.wire.staged import decode_fields, decode_known

__all__ = ["ALL_STREAMS_MAX", "NUMBERS_MAX", "SLOTS_MAX", "SPREAD_CHANGES", "SPREAD_STREAMS_MAX", "SpreadTopics"]

SPREAD_STREAMS_MAX = 256
"""The most streams of one spread topic. Like the other limits it is part of the replicated behaviour."""
ALL_STREAMS_MAX = 4096
"""The most streams of all spread topics. A group can have that many topics, so that each stream can be created."""
NUMBERS_MAX = STREAM_NUMBERS_MAX
"""The most streams of one spread topic, with the removed ones."""
SLOTS_MAX = 65_536
SPREAD_CHANGES = frozenset(
    {
        *(Kind.CONFIGURE_SPREAD, Kind.CONFIGURE_SPREAD_SCHEMA, Kind.TRIM_SPREAD, Kind.CONFIGURE_SPREAD_ARCHIVE),
        *(Kind.ADD_STREAM, Kind.CLOSE_STREAM, Kind.SEALED_STREAM, Kind.LOSE_STREAM, Kind.LOSE_SEALED_STREAM),
        Kind.GONE_STREAM,
    }
)
"""The records that change a spread topic, see :meth:`SpreadTopics.changed`."""
_ADDED = "added"
_ARCHIVE = "archive"
_CLOSED = "closed"
_CONFIGURED = "configured"
_FIRST_POSITION = "first_position"
_LOST_POSITIONS = "lost_positions"
_SCHEMA = "schema"
_CHANGES = frozenset({_CONFIGURED, _FIRST_POSITION, _CLOSED, _SCHEMA, _ADDED, _LOST_POSITIONS, _ARCHIVE})
_FIELDS = {
    Kind.SPREAD_TOPIC: frozenset({"name", "retain_bytes", "retain_seconds", "slots", "groups", "are_named", "by"}),
    Kind.CONFIGURE_SPREAD: frozenset({"name", "retain_bytes", "retain_seconds", "since", "by"}),
    Kind.TRIM_SPREAD: frozenset({"name", "position", "by"}),
    Kind.ADD_STREAM: frozenset({"name", "stream", "group", "is_named", "by"}),
}


class SpreadTopics:
    """The spread topics, by their names, in the order of their ids. Never awaits.

    Invariants:
      * a stream belongs to one group and never moves; the group is established, and stays until the stream is removed
      * no topic of group 0 has the name of a spread topic
      * ``by_stream`` has the streams of ``topics``
    """

    __slots__ = ("by_stream", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, SpreadTopic] = {}
        self.by_stream: dict[Stream, str] = {}
        """The topic of each stream, with the removed ones."""

    def streams_of(self, name: str) -> list[Stream]:
        """Return the streams of a topic, from stream 1 on. Raises UnknownTopicError."""
        topic = self._named(name)
        return [_stream(topic, number) for number in range(1, len(topic.groups) + 1)]

    def _named(self, name: str) -> SpreadTopic:
        if name not in self.topics:
            raise UnknownTopicError(
                f"no topic with streams is named {name!r}",
                remedy="leave the stream out if the topic has none, as `viewstamp topic list` shows; or create it with"
                " a number of streams",
            )
        return self.topics[name]

    def check_free(self, name: str) -> None:
        """Raise TopicExistsError if a spread topic has this name, because then no other topic may have it."""
        topic = self.topics.get(name)
        if topic is not None:
            raise TopicExistsError(
                f"topic {name!r} exists, and is spread over {len(topic.groups)} streams; it was not changed",
                remedy="take another name, or append to the topic that exists",
            )

    def check_topics(self, names: Container[str]) -> None:
        """Check, after a state was loaded, that no topic has the name of a spread topic. Raises ValueError."""
        for name in self.topics:
            if name in names:
                raise ValueError(f"topic {name!r} exists twice, with streams and without")

    @property
    def is_changed(self) -> bool:
        """Return whether any topic was configured or trimmed, which releases before cannot read."""
        return any(_changes_of(topic) for topic in self.topics.values())

    @property
    def has_schema(self) -> bool:
        """Return whether any topic has a schema, which releases before cannot read."""
        return any(topic.schema for topic in self.topics.values())

    @property
    def has_archive(self) -> bool:
        """Return whether any topic had an archive once, which releases before cannot read."""
        return any(topic.archive is not None for topic in self.topics.values())

    @property
    def has_added(self) -> bool:
        """Return whether any topic got a further stream, which releases before cannot read."""
        return any(topic.added for topic in self.topics.values())

    @property
    def has_lost_positions(self) -> bool:
        """Return whether positions of any topic were lost, which releases before cannot read."""
        return any(any(topic.lost_positions) for topic in self.topics.values())

    @property
    def has_closed(self) -> bool:
        """Return whether any stream is closing or sealed, which releases before cannot read."""
        return any(topic.closed for topic in self.topics.values())

    @property
    def has_gone(self) -> bool:
        """Return whether any stream is removed, which releases before cannot read."""
        return any(topic.gone_streams for topic in self.topics.values())

    def is_gone(self, stream: Stream) -> bool:
        """Return whether a stream of one of the topics is removed."""
        topic = self.topics.get(self.by_stream.get(stream, ""))
        closed = topic.closed_stream(topic.number_of(stream.name)) if topic is not None else None
        return closed is not None and closed.gone > 0

    @property
    def has_lost(self) -> bool:
        """Return whether any stream is lost, which releases before cannot read."""
        return any(each.lost_at for topic in self.topics.values() for each in topic.closed)

    def sealed_streams(self) -> dict[Stream, Position]:
        """Return the sealed streams, each with its end."""
        return {
            _stream(topic, each.stream): each.end for topic in self.topics.values() for each in topic.closed if each.end
        }

    def sealable(self, reports: Iterable[StreamReport], order: Order) -> list[SealableStream]:
        """Return the streams that are closing, and sealed in their groups by these reports."""
        found: list[SealableStream] = []
        for report in reports:
            topic = self.topics.get(self.by_stream.get(report.stream, "")) if report.is_sealed else None
            if topic is not None:
                number = topic.number_of(report.stream.name)
                closed = topic.closed_stream(number)
                if closed is not None and not closed.end:
                    is_ordered = order.ordered_end(report.stream) == report.end
                    found.append(SealableStream(report, topic.name, number, is_ordered))
        return found

    def check_sealed(self, order: Order) -> None:
        """Check, after a state was loaded, that each sealed stream is ordered up to its end. Raises ValueError."""
        for stream, end in self.sealed_streams().items():
            if order.ordered_end(stream) != end:
                raise ValueError(f"{stream!r} is sealed at {end}, and ordered up to {order.ordered_end(stream)}")
        for topic in self.topics.values():
            if any(each.lost_at > order.next_position(topic.name) for each in topic.closed):
                raise ValueError(f"topic {topic.name!r} has lost a stream beyond its order: {topic.closed}")

    def check_trimmed(self, order: Order) -> None:
        """Check, after a state was loaded, that no topic is trimmed beyond its order. Raises ValueError."""
        for topic in self.topics.values():
            if topic.first_position > order.next_position(topic.name):
                raise ValueError(f"topic {topic.name!r} is trimmed to {topic.first_position}, beyond its order")

    def find_settled(self, batch: Batch, placements: Placements, names: Container[str]) -> SpreadTopic | None:
        """Return the topic if a record would change nothing; None = it would be applied.

        Args:
          batch: the record.
          placements: the groups.
          names: the names of the topics of group 0.

        Raises:
          TopicExistsError: a topic of this name is another one.
          UnknownTopicError, RequestError: the record would be refused.
          OutdatedCodeError: it has a field that this release does not know.
        """
        wanted, are_named = _decode(batch)
        topic = self.topics.get(wanted.name)
        if topic is None:
            self._check_new(wanted, placements, names)
            return None
        for what, own, other in (
            ("streams", topic.created_streams, len(wanted.groups)),
            ("slots", topic.slots, wanted.slots),
            *([("groups", list(topic.groups[: topic.created_streams]), list(wanted.groups))] if are_named else []),
        ):
            if own != other:
                raise TopicExistsError(
                    f"topic {topic.name!r} exists with {own} {what}, not {other}; it was not changed"
                    if isinstance(own, int)
                    else f"topic {topic.name!r} exists with the {what} {own}, not {other}; it was not changed",
                    remedy="take another name, or create it as it is: `viewstamp topic list`",
                )
        retention = wanted.retain_bytes, wanted.retain_seconds
        if any(retention) and retention != (topic.retain_bytes, topic.retain_seconds):
            raise TopicExistsError(
                f"topic {topic.name!r} exists with retain_bytes {topic.retain_bytes} and retain_seconds"
                f" {topic.retain_seconds:g}, not {retention[0]} and {retention[1]:g}; it was not changed",
                remedy="take another name, or create it with the same retention",
            )
        return topic

    def apply(self, batch: Batch, placements: Placements, names: Container[str]) -> SpreadTopic:
        """Apply a committed record, and return the topic. Its streams belong to their groups in ``placements`` then.

        Raises: as :meth:`find_settled`; a RequestError is a replicated refusal.
        """
        topic = self.find_settled(batch, placements, names)
        if topic is not None:
            return topic
        topic, _ = _decode(batch)
        self._add(topic, placements)
        return topic

    def changed(self, batch: Batch, order: Order, placements: Placements) -> tuple[SpreadTopic, SpreadTopic | None]:
        """Return the topic of a record that changes one, and as it would be; None = unchanged.

        The kinds are ``SPREAD_CHANGES``. :meth:`change` takes the result.

        Raises:
          UnknownTopicError, RequestError: the record would be refused.
          OutdatedCodeError: it has a field that this release does not know.
        """
        match batch.kind:
            case Kind.CONFIGURE_SPREAD:
                return self._configured(batch)
            case Kind.CONFIGURE_SPREAD_ARCHIVE:
                return self._archived(batch)
            case Kind.TRIM_SPREAD:
                return self._trimmed(batch, order)
            case Kind.CONFIGURE_SPREAD_SCHEMA:
                name, schema = decode_schema(batch)
                topic = self._named(name)
                text = successor(topic.schema, schema)
                return topic, replace(topic, schema=text) if text != topic.schema else None
            case Kind.ADD_STREAM:
                return self._extended(batch, placements)
            case Kind.CLOSE_STREAM:
                topic = self._named(decode_fields(batch, name=str)[0])
                return topic, closed_topic(batch, topic)
            case Kind.LOSE_STREAM:
                topic = self._named(decode_fields(batch, name=str)[0])
                ends = list(map(order.ordered_end, self.streams_of(topic.name)))
                return topic, lost_topic(batch, topic, ends, order.next_position(topic.name))
            case Kind.LOSE_SEALED_STREAM:
                topic = self._named(decode_fields(batch, name=str)[0])
                return topic, lost_sealed_topic(batch, topic, order.next_position(topic.name))
            case Kind.GONE_STREAM:
                topic = self._named(decode_fields(batch, name=str)[0])
                return topic, gone_topic(batch, topic, order.next_position(topic.name))
        name, number, end = decode_sealed(batch)
        topic = self._named(name)
        streams = self.streams_of(name)
        ordered_end = order.ordered_end(streams[number - 1]) if 1 <= number <= len(streams) else Position(1)
        return topic, sealed_topic(topic, number, end, ordered_end)

    def change(self, topic: SpreadTopic, placements: Placements) -> None:
        """Replace a topic by what :meth:`changed` has returned. Streams that were added belong to their groups then."""
        known = len(self.topics[topic.name].groups)
        self.topics[topic.name] = topic
        self._add_streams(topic, placements, known)
        placements.retire(stream_name(topic.name, each.stream) for each in topic.gone_streams)

    def recover(self, found: RecoveredOrder, order: Order) -> None:
        """Note what a recovery has found (``recovering.py``); ``order``: the order as it is afterwards.

        A stream that was sealed, and has lost records with a position, is lost from now on.
        """
        for name, next_position, first, end in found.topics:
            topic = self._named(name)
            streams = self.streams_of(name)
            closed = tuple(
                replace(each, end=kept, lost_at=next_position)
                if each.end and not each.gone and each.end != (kept := order.ordered_end(streams[each.stream - 1]))
                else each
                for each in topic.closed
            )
            lost = topic.lost_positions
            if end:
                lost = (min(first, lost[0] or first), max(end, lost[1]))
            self.topics[name] = replace(topic, closed=closed, lost_positions=lost)

    def _extended(self, batch: Batch, placements: Placements) -> tuple[SpreadTopic, SpreadTopic | None]:
        """Return the topic of an ADD_STREAM, and as it would be; None = unchanged. Raises as the record."""
        name, number, group, is_named = decode_known(batch, _FIELDS, name=str, stream=int, group=int, is_named=bool)
        topic = self._named(name)
        if 1 <= number <= len(topic.groups):
            if is_named and topic.groups[number - 1] != group:
                raise RequestError(
                    f"stream {number} of topic {name!r} is in group {topic.groups[number - 1]}, not {group}; nothing"
                    " was changed",
                    remedy="another call has added it: look with `viewstamp topic describe`, and add another stream",
                )
            return topic, None
        streams = len(topic.groups) + 1
        if number != streams:
            raise RequestError(
                f"topic {name!r} has {streams - 1} streams, so the next one is {streams}, not {number}; no stream was"
                " added",
                remedy=f"add stream {streams}",
            )
        if topic.kept_streams >= min(SPREAD_STREAMS_MAX, topic.slots):
            raise RequestError(
                f"topic {name!r} has {topic.kept_streams} streams already, which is the limit; no stream was added",
                remedy="remove streams that are sealed and have no records: `viewstamp stream remove`",
            )
        if streams > NUMBERS_MAX or not is_stream_name(stream_name(name, streams)):
            raise RequestError(
                f"topic {name!r} had {streams - 1} streams, whose numbers are not used again; no stream was added",
                remedy="create another topic",
            )
        wanted = replace(topic, groups=(*topic.groups, GroupId(group)), added=topic.added + 1)
        self._check_streams(wanted, placements, known=streams - 1, failed="no stream was added")
        return topic, wanted

    def _trimmed(self, batch: Batch, order: Order) -> tuple[SpreadTopic, SpreadTopic | None]:
        name, position = decode_known(batch, _FIELDS, name=str, position=int)
        topic = self._named(name)
        if position <= topic.first_position:
            return topic, None
        end = order.next_position(name)
        if position > end:
            raise RequestError(
                f"the ordered records of topic {name!r} end at global position {end - 1}, so it cannot be trimmed to"
                f" {position}",
                remedy=f"trim it to {end} at most; records that were appended just now are ordered in a moment",
            )
        return topic, replace(topic, first_position=GlobalPosition(position))

    def _configured(self, batch: Batch) -> tuple[SpreadTopic, SpreadTopic | None]:
        """Return the topic of a CONFIGURE_SPREAD, and as it would be; None = unchanged. Raises as the record."""
        _, since = decode_known(batch, _FIELDS, name=str, since=int)
        name, retain_bytes, retain_seconds = decode_settings(batch)
        topic = self._named(name)
        wanted = replace(
            topic,
            retain_bytes=topic.retain_bytes if retain_bytes is None else retain_bytes,
            retain_seconds=topic.retain_seconds if retain_seconds is None else retain_seconds,
        )
        return topic, _reconfigured(batch, topic, wanted, since)

    def _archived(self, batch: Batch) -> tuple[SpreadTopic, SpreadTopic | None]:
        """Return the topic of a CONFIGURE_SPREAD_ARCHIVE, and as it would be; None = unchanged. Raises as it."""
        settings, change, _ = decode_archive(batch)
        (since,) = decode_fields(batch, since=int)
        topic = self._named(settings.name)
        before = OFF if topic.archive is None else ArchiveSettings(*topic.archive)
        archive = change.applied_to(topic.name, before)
        wanted = replace(
            topic,
            retain_bytes=topic.retain_bytes if settings.retain_bytes is None else settings.retain_bytes,
            retain_seconds=topic.retain_seconds if settings.retain_seconds is None else settings.retain_seconds,
            archive=topic.archive if archive == before else StreamArchive(*archive),
        )
        return topic, _reconfigured(batch, topic, wanted, since)

    def answer(self, query: Query[Any], placements: Placements, names: Container[str]) -> object:
        """Return the answer to a query about spread topics. Raises UnknownTopicError, RequestError."""
        match query:
            case SpreadTopicsQuery():
                return list(self.topics.values())
            case SpreadTopicQuery(name):
                return self._named(name)
            case FreeGroupsQuery(streams):
                return _free_groups(placements, streams)
            case SpreadingQuery(record):
                return self.find_settled(record, placements, names)
            case _:
                raise AssertionError(f"no spread topic answers {query!r}")

    def _check_new(self, topic: SpreadTopic, placements: Placements, names: Container[str]) -> None:
        """Check a topic that does not exist. Raises TopicExistsError, RequestError."""
        if topic.name in names:
            raise TopicExistsError(
                f"topic {topic.name!r} exists, and has no streams; it was not changed", remedy="take another name"
            )
        self._check_streams(topic, placements, known=0, failed="no topic was created")

    def _check_streams(self, topic: SpreadTopic, placements: Placements, *, known: int, failed: str) -> None:
        """Check the streams of a topic behind the first ``known``, which it has already. Raises RequestError."""
        gone = {each.stream for each in topic.gone_streams}  # In a state that is loaded: their groups may be removed.
        for number, group in enumerate(topic.groups[known:], known + 1):
            placed = placements.groups.get(group)
            if number in gone:
                continue
            if placed is None or not placed.is_established:
                raise RequestError(
                    f"group {group} {'was never placed' if placed is None else 'is not established yet'}, so it cannot"
                    f" have a stream of topic {topic.name!r}; {failed}",
                    remedy="name groups that are established: `viewstamp group list`",
                )
        for number in range(known + 1, len(topic.groups) + 1):
            stream = stream_name(topic.name, number)
            if (owner := placements.group_of(stream)) is not None:
                raise RequestError(
                    f"stream {stream!r} of topic {topic.name!r} belongs to group {owner} already; {failed}",
                    remedy="take another name for the topic",
                )
        if sum(each.kept_streams for each in self.topics.values()) + len(topic.groups) - known > ALL_STREAMS_MAX:
            raise RequestError(
                f"topic {topic.name!r} with {topic.kept_streams} streams would exceed the limit of {ALL_STREAMS_MAX}"
                f" streams; {failed}",
                remedy="use fewer streams: about as many as there are groups",
            )

    def _add(self, topic: SpreadTopic, placements: Placements) -> None:
        self.topics[topic.name] = topic
        placements.retire(stream_name(topic.name, each.stream) for each in topic.gone_streams)
        self._add_streams(topic, placements, 0)

    def _add_streams(self, topic: SpreadTopic, placements: Placements, known: int) -> None:
        for number, group in enumerate(topic.groups[known:], known + 1):
            stream = Stream(group, stream_name(topic.name, number))
            placements.add_stream(stream.name, group)
            self.by_stream[stream] = topic.name

    # Images.

    def image(self) -> list[object]:
        """Return the topics as plain values."""
        return [
            [
                *(each.id, each.name, each.retain_bytes, each.retain_seconds, each.slots),
                list(each.groups[: each.created_streams]),
                *([changes] if (changes := _changes_of(each)) else []),
            ]
            for each in self.topics.values()
        ]

    @classmethod
    def from_image(cls, image: list[Any], placements: Placements) -> SpreadTopics:
        """Rebuild the topics from :meth:`image`, and add their streams to ``placements``.

        Raises ValueError or TypeError if they break an invariant.
        """
        topics, last = cls(), 0
        for number, name, retain_bytes, retain_seconds, slots, groups, *changes in image:
            if type(number) is not int or number <= last:
                raise ValueError(f"spread topic {number!r} after {last}")
            last = number
            if type(name) is not str or type(retain_bytes) is not int or type(retain_seconds) is not float:
                raise TypeError(
                    f"spread topic {number} has the settings {name!r}, {retain_bytes!r}, {retain_seconds!r}"
                )
            if not (0 <= retain_bytes <= RETAIN_BYTES_MAX and 0 <= retain_seconds <= RETAIN_SECONDS_MAX):
                raise ValueError(f"spread topic {number} keeps {retain_bytes} bytes, {retain_seconds} seconds")
            topic = SpreadTopic(Index(number), name, retain_bytes, retain_seconds, slots, tuple(groups))
            topic = _read_changes(topic, *changes)
            if name in topics.topics:
                raise ValueError(f"spread topic {name!r} exists twice")
            try:
                _check_shape(topic)
                topics._check_new(topic, placements, ())
            except RequestError as error:
                raise ValueError(f"spread topic {number}: {error.message}") from error
            topics._add(topic, placements)
        return topics


def _stream(topic: SpreadTopic, number: int) -> Stream:
    """Return the stream of this number."""
    return Stream(topic.groups[number - 1], stream_name(topic.name, number))


def _reconfigured(batch: Batch, topic: SpreadTopic, wanted: SpreadTopic, since: int) -> SpreadTopic | None:
    """Return the topic with the settings that a record gives it; None = unchanged. Raises RequestError."""
    if wanted == topic:
        return None
    if topic.configured != since:
        raise RequestError(
            f"topic {topic.name!r} was configured at index {topic.configured}, after this request was made; it keeps"
            f" retain_bytes {topic.retain_bytes} and retain_seconds {topic.retain_seconds:g}",
            remedy="look with `viewstamp topic describe`, and give the command again if it is still wanted",
        )
    if wanted.archive is not None and not wanted.archive.is_on and (wanted.retain_bytes or wanted.retain_seconds):
        raise RequestError(
            f"without the archive the retention of topic {topic.name!r} would delete archived records; nothing was"
            " changed",
            remedy="clear the retention with the same command: --retain-bytes 0 --retain-age 0",
        )
    return replace(wanted, configured=Index(batch.first_index))


def _changes_of(topic: SpreadTopic) -> dict[str, object]:
    """Return what was changed since the creation and is not in the image of an unchanged topic; {} = nothing."""
    changes: dict[str, object] = {_CONFIGURED: int(topic.configured)} if topic.configured else {}
    if topic.first_position > 1:
        changes[_FIRST_POSITION] = int(topic.first_position)
    if topic.closed:
        changes[_CLOSED] = closed_image(topic)
    if topic.schema:
        changes[_SCHEMA] = topic.schema
    if topic.archive is not None:
        changes[_ARCHIVE] = list(topic.archive)
    if topic.added:
        changes[_ADDED] = list(topic.groups[topic.created_streams :])
    if any(topic.lost_positions):
        changes[_LOST_POSITIONS] = list(topic.lost_positions)
    return changes


def _read_changes(topic: SpreadTopic, changes: dict[str, Any] | None = None) -> SpreadTopic:
    """Return a topic with the changes of an image. Raises ValueError or TypeError."""
    if changes is None:
        return topic
    if type(changes) is not dict or not changes or not changes.keys() <= _CHANGES:
        raise ValueError(f"spread topic {topic.id} has the changes {brief_repr(changes)}")
    if _ADDED in changes:
        added = changes[_ADDED]
        if type(added) is not list or not added:
            raise ValueError(f"spread topic {topic.id} has the added streams {brief_repr(added)}")
        topic = replace(topic, groups=(*topic.groups, *added), added=len(added))
    if _CLOSED in changes:
        topic = read_closed(topic, changes[_CLOSED])
    if _SCHEMA in changes:
        topic = replace(topic, schema=RowSchema.parse(changes[_SCHEMA]).text)
    if _LOST_POSITIONS in changes:
        first, end = changes[_LOST_POSITIONS]
        if not type(first) is type(end) is int or not 0 < first < end < 1 << 63:
            raise ValueError(f"spread topic {topic.id} has lost the positions {brief_repr([first, end])}")
        topic = replace(topic, lost_positions=(first, end))
    if _ARCHIVE in changes:
        image = changes[_ARCHIVE]
        if type(image) is not list or len(image) != len(OFF):
            raise ValueError(f"spread topic {topic.id} has the archive settings {brief_repr(image)}")
        archive = OFF if image == list(OFF) else ArchiveSettings.from_image(image)
        topic = replace(topic, archive=StreamArchive(*archive))
    numbers = _CHANGES - {_ADDED, _ARCHIVE, _CLOSED, _LOST_POSITIONS, _SCHEMA}
    changes = {name: value for name, value in changes.items() if name in numbers}
    if not all(type(number) is int and number < 1 << 63 for number in changes.values()):
        raise ValueError(f"spread topic {topic.id} has the changes {brief_repr(changes)}")
    if changes.get(_CONFIGURED, topic.id + 1) <= topic.id or changes.get(_FIRST_POSITION, 2) <= 1:
        raise ValueError(f"spread topic {topic.id} was changed at {changes}")
    return replace(
        topic,
        configured=Index(changes.get(_CONFIGURED, 0)),
        first_position=GlobalPosition(changes.get(_FIRST_POSITION, 1)),
    )


def _free_groups(placements: Placements, streams: int) -> list[GroupId]:
    """Return a group for each stream: each time the one with the fewest streams, by its id where they are equal."""
    counts = placements.stream_counts
    if not counts:
        raise RequestError(
            "no group is established, so no topic can be spread over streams; no topic was created",
            remedy="place groups first: `viewstamp group place`; see them with `viewstamp group list`",
        )
    chosen = []
    for _ in range(streams):
        group = min(counts, key=lambda each: (counts[each], each))
        counts[group] += 1
        chosen.append(group)
    return chosen


def _decode(batch: Batch) -> tuple[SpreadTopic, bool]:
    """Return the topic of a record, and whether its groups are named. Raises RequestError, OutdatedCodeError."""
    _, slots, groups, are_named = decode_known(batch, _FIELDS, name=str, slots=int, groups=list, are_named=bool)
    name, retain_bytes, retain_seconds = decode_settings(batch)
    topic = SpreadTopic(Index(batch.first_index), name, retain_bytes or 0, retain_seconds or 0.0, slots, tuple(groups))
    _check_shape(topic)
    return topic, are_named


def _check_shape(topic: SpreadTopic) -> None:
    """Check the parts of a topic that do not depend on the state. Raises RequestError."""

    def refuse(why: str, remedy: str) -> NoReturn:
        raise RequestError(f"{why}; no topic was created", remedy=remedy)

    numbers, streams = len(topic.groups), topic.kept_streams
    if not 1 <= streams <= SPREAD_STREAMS_MAX or numbers > NUMBERS_MAX:
        refuse(f"a topic cannot have {streams} streams", f"take 1 to {SPREAD_STREAMS_MAX} streams")
    if type(topic.slots) is not int or not streams <= topic.slots <= SLOTS_MAX:
        refuse(
            f"a topic with {streams} streams cannot have {brief_repr(topic.slots)} slots",
            f"take a number from the streams up to {SLOTS_MAX}",
        )
    if not all(type(group) is int and group > 0 for group in topic.groups):
        refuse(
            f"a topic cannot have a stream in the groups {brief_repr(list(topic.groups))}",
            "take the ids of groups from `viewstamp group list`",
        )
    if not is_stream_name(stream_name(topic.name, numbers)):
        refuse(
            f"a topic with {streams} streams cannot be named {brief_repr(topic.name)}",
            "take 1 to 124 letters, digits, dots, underscores or hyphens; the first one a letter, a digit or an"
            " underscore",
        )
