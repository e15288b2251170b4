"""The queries about placed groups and spread topics in the state of group 0, and what their answers say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from viewstamp.ids import GlobalPosition, GroupId, Index, NodeId, Position
from viewstamp.node.state_machine import Query
from viewstamp.value_class import value_class
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import StreamReport
from viewstamp.wire.spreading import slot_ranges, stream_name

__all__ = [
    "CancelledGroupsQuery",
    "ClosedStream",
    "FreeGroupsQuery",
    "GroupsQuery",
    "PlacedGroup",
    "PlacementQuery",
    "RemovedGroupsQuery",
    "SealableQuery",
    "SealableStream",
    "SealedStreamQuery",
    "SpreadTopic",
    "SpreadTopicQuery",
    "SpreadTopicsQuery",
    "SpreadingQuery",
    "StreamArchive",
]

_FIRST = GlobalPosition(1)
_NONE = Position(0)
_NOT_LOST = GlobalPosition(0)


@value_class(kw_only=False)
class PlacedGroup:
    """A group as the state of group 0 has it.

    Attributes:
      id: the index of the record that placed it.
      members: its founders, by the names of their nodes, with their addresses at that time; {} = it was cancelled or
        removed.
      streams: the names of its streams.
      incarnations: the disks of those founders that have created their directory.
      added: the nodes that were added when the group was established, with their addresses at that time.
      leaving: those hosts that shall be no members of the group any more.
      left: the founders and added nodes that are no members any more, and are not added again.
    """

    id: GroupId
    members: Mapping[NodeId, str]
    streams: tuple[str, ...]
    incarnations: Mapping[NodeId, str]
    added: Mapping[NodeId, str] = field(default_factory=dict)
    leaving: tuple[NodeId, ...] = ()
    left: tuple[NodeId, ...] = ()

    @property
    def hosts(self) -> dict[NodeId, str]:
        """The nodes that have the group: founders and added ones, without those that have left; with addresses."""
        return {node: address for node, address in {**self.members, **self.added}.items() if node not in self.left}

    @property
    def has_moved(self) -> bool:
        """Whether its hosts are, or were, to be others than its founders."""
        return bool(self.added or self.leaving or self.left)

    @property
    def is_established(self) -> bool:
        """Whether the disks of all founders are recorded. Members vote only from then on."""
        return len(self.incarnations) == len(self.members) > 0

    def describe(self) -> dict[str, object]:
        """Return the group as plain values, without incarnations, because with one a process could pose as a member."""
        return {
            "id": self.id,
            "members": dict(self.members),
            "streams": list(self.streams),
            "hosted": list(self.incarnations),
            "is_established": self.is_established,
            **({"hosts": self.hosts, "leaving": [*self.leaving], "left": [*self.left]} if self.has_moved else {}),
        }


@value_class(kw_only=False)
class GroupsQuery(Query[list[PlacedGroup]]):
    """All placed groups, in the order of their ids."""


@value_class(kw_only=False)
class CancelledGroupsQuery(Query[list[GroupId]]):
    """The ids of the newest cancelled groups, in the order in which they were cancelled."""


@value_class(kw_only=False)
class RemovedGroupsQuery(Query[list[GroupId]]):
    """The ids of the newest removed groups, in the order in which they were removed."""


@value_class(kw_only=False)
class PlacementQuery(Query[PlacedGroup | None]):
    """The group of a record that would change nothing; None = it would. Raises RequestError if it would be refused."""

    record: Batch


@value_class(kw_only=False)
class ClosedStream:
    """The end of a stream of a spread topic.

    Attributes:
      stream: its number.
      into: the stream that gets its slots.
      end: the local position after its last record, since it is sealed; 0 = it is closing.
      lost_at: the next global position of the topic when the stream was given up as lost: all its records have lower
        ones; 0 = it is not lost.
      gone_at: a global position above those of all its records, since the stream is removed; 0 = it is not.
      gone: the index of the record that removed it; 0 = none has.
    """

    stream: int
    into: int
    end: Position = _NONE
    lost_at: GlobalPosition = _NOT_LOST
    gone_at: GlobalPosition = _NOT_LOST
    gone: Index = Index(0)


@value_class(kw_only=False)
class SealableStream:
    """A stream that is closing in the state of group 0, and of which a report says that its group has sealed it.

    Attributes:
      report: the report.
      topic, number: its spread topic, and its number there.
      is_ordered: whether all its records have their global positions.
    """

    report: StreamReport
    topic: str
    number: int
    is_ordered: bool


class StreamArchive(NamedTuple):
    """The archive settings of each stream of a topic; ``streams/archive_settings.py`` explains them."""

    is_on: bool
    after_seconds: float
    delay_seconds: float
    delete_seconds: float


@value_class(kw_only=False)
class SpreadTopic:
    """A topic whose records are spread over streams, as the state of group 0 has it.

    Stream *n*, from 1 on, is the topic ``stream_name(name, n)`` in the state of group ``groups[n - 1]``.

    Attributes:
      id: the index of the record that created it.
      name: its name; no topic of group 0 has the same one.
      retain_bytes, retain_seconds: the retention of each stream; 0 = everything.
      slots: the number of slots, into which the keys of its records fall.
      groups: the group of each stream, by its number.
      configured: the index of the record that has changed its retention last; 0 = none has.
      first_position: the first global position that no TRIM_SPREAD has trimmed.
      closed: the streams that were ended, or are about to be, in the order in which this began.
      schema: the text of the schema of its rows; "" = it has none.
      added: the number of streams, the last ones, that were added later. They were created without slots.
      lost_positions: global positions in [first, end) of which a recovery found that some belong to no record any more;
        (0, 0) = there are none.
      archive: the archive settings of each stream, as those of a plain topic; None = it never had an archive.
    """

    id: Index
    name: str
    retain_bytes: int
    retain_seconds: float
    slots: int
    groups: tuple[GroupId, ...]
    configured: Index = Index(0)
    first_position: GlobalPosition = _FIRST
    closed: tuple[ClosedStream, ...] = ()
    schema: str = ""
    added: int = 0
    lost_positions: tuple[int, int] = (0, 0)
    archive: StreamArchive | None = None

    def describe(self) -> dict[str, object]:
        """Return the topic as plain values, with its route: each range is (first slot, stream)."""
        lost = [[each.stream, each.lost_at] for each in self.closed if each.lost_at]
        gone = [[each.stream, each.gone_at] for each in self.closed if each.gone]
        return {
            "id": self.id,
            "name": self.name,
            "retain_bytes": self.retain_bytes,
            "retain_seconds": self.retain_seconds,
            "groups": list(self.groups),
            "slots": self.slots,
            "ranges": [[first, self.successor_of(stream)] for first, stream in self._ranges],
            "configured": self.configured,
            "first_position": self.first_position,
            **({"closed": [[each.stream, each.into, each.end] for each in self.closed]} if self.closed else {}),
            **({"lost": lost} if lost else {}),
            **({"gone": gone} if gone else {}),
            **({"schema": self.schema} if self.schema else {}),
            **({"lost_positions": list(self.lost_positions)} if any(self.lost_positions) else {}),
            **({"archive": self.archive._asdict()} if self.archive is not None and self.archive.is_on else {}),
        }

    @property
    def _ranges(self) -> list[tuple[int, int]]:
        """The ranges of slots as they were at the creation."""
        return slot_ranges(self.slots, self.created_streams)

    @property
    def created_streams(self) -> int:
        """The number of its streams at the creation."""
        return len(self.groups) - self.added

    def successor_of(self, stream: int) -> int:
        """Return the stream that has the slots with which a stream was created: itself, until it is sealed."""
        sealed = {each.stream: each.into for each in self.closed if each.end}
        while stream in sealed:  # A stream is given only to one that is open then, so this ends.
            stream = sealed[stream]
        return stream

    @property
    def kept_streams(self) -> int:
        """The number of its streams that are not removed."""
        return len(self.groups) - len(self.gone_streams)

    @property
    def gone_streams(self) -> list[ClosedStream]:
        """Its streams that are removed."""
        return [each for each in self.closed if each.gone]

    def closed_stream(self, stream: int) -> ClosedStream | None:
        """Return the end of a stream; None = it is open."""
        return next((each for each in self.closed if each.stream == stream), None)

    def number_of(self, name: str) -> int:
        """Return the number of its stream of this name."""
        return int(name.removeprefix(f"{self.name}."))

    def open_streams(self) -> list[int]:
        """Return the streams that are not ended, those with the fewest slots first."""
        heirs = {each.stream: each.into for each in self.closed}
        slots = dict.fromkeys((n for n in range(1, len(self.groups) + 1) if n not in heirs), 0)
        ends = [*(first for first, _ in self._ranges[1:]), self.slots]
        for (first, stream), end in zip(self._ranges, ends, strict=True):
            while stream in heirs:
                stream = heirs[stream]
            slots[stream] += end - first
        return sorted(slots, key=lambda stream: (slots[stream], stream))

    def has_change(self, kind: Kind) -> bool:
        """Return whether a record of this kind has changed the topic. Then all members can read such records."""
        if kind <= Kind.LOSE_STREAM and any(each.lost_at for each in self.closed):
            return True  # The probe before that record asked for the highest kind; nodes that are lost answer none.
        if (kind <= Kind.CONFIGURE_SPREAD_SCHEMA and self.schema) or (kind <= Kind.ADD_STREAM and self.added):
            return True  # For the first reason too.
        if kind <= Kind.DROP_STREAM and self.gone_streams:
            return True  # For the same reason.
        if kind <= Kind.CONFIGURE_SPREAD_ARCHIVE and self.archive is not None:
            return True
        match kind:
            case Kind.CLOSE_STREAM:
                return bool(self.closed)
            case Kind.TRIM_SPREAD:
                return self.first_position > 1
            case Kind.CONFIGURE_SPREAD:
                return self.configured > 0
        return False

    def streams_of(self, group: GroupId) -> list[str]:
        """Return the names of its streams in a group."""
        return [stream_name(self.name, number) for number, each in enumerate(self.groups, 1) if each == group]


@value_class(kw_only=False)
class SpreadTopicsQuery(Query[list[SpreadTopic]]):
    """All spread topics, in the order of their ids."""


@value_class(kw_only=False)
class SpreadTopicQuery(Query[SpreadTopic]):
    """The spread topic of a name. Raises UnknownTopicError."""

    name: str


@value_class(kw_only=False)
class FreeGroupsQuery(Query[list[GroupId]]):
    """The group for each stream of a new spread topic. Raises RequestError if no group is established."""

    streams: int


@value_class(kw_only=False)
class SpreadingQuery(Query[SpreadTopic | None]):
    """The topic if a record about a spread topic would change nothing; None = it would.

    Raises RequestError if it would be refused.
    """

    record: Batch


@value_class(kw_only=False)
class SealableQuery(Query[list[SealableStream]]):
    """Those of the reports that say that a stream is sealed which is closing in the state of group 0."""

    reports: Iterable[StreamReport]


@value_class(kw_only=False)
class SealedStreamQuery(Query[bool]):
    """Whether the stream of this name is sealed, in the state of its group."""

    stream: str
