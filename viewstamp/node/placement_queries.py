"""The queries about placed groups and spread topics in the state of group 0, and what their answers say."""

from __future__ import annotations

from collections.abc import Mapping

from viewstamp.ids import GlobalPosition, GroupId, Index, NodeId
from viewstamp.node.state_machine import Query
from viewstamp.value_class import value_class
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.spreading import slot_ranges, stream_name

__all__ = [
    "CancelledGroupsQuery",
    "FreeGroupsQuery",
    "GroupsQuery",
    "PlacedGroup",
    "PlacementQuery",
    "SpreadTopic",
    "SpreadTopicQuery",
    "SpreadTopicsQuery",
    "SpreadingQuery",
]

_FIRST = GlobalPosition(1)


@value_class(kw_only=False)
class PlacedGroup:
    """A group as the state of group 0 has it.

    Attributes:
      id: the index of the record that placed it.
      members: its founders, by the names of their nodes, with their addresses at that time; {} = it was cancelled.
      streams: the names of its streams.
      incarnations: the disks of those founders that have created their directory.
    """

    id: GroupId
    members: Mapping[NodeId, str]
    streams: tuple[str, ...]
    incarnations: Mapping[NodeId, str]

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
        }


@value_class(kw_only=False)
class GroupsQuery(Query[list[PlacedGroup]]):
    """All placed groups, in the order of their ids."""


@value_class(kw_only=False)
class CancelledGroupsQuery(Query[list[GroupId]]):
    """The ids of the newest cancelled groups, in the order in which they were cancelled."""


@value_class(kw_only=False)
class PlacementQuery(Query[PlacedGroup | None]):
    """The group that a PLACE_GROUP finds; None = it would place one. Raises RequestError if it would be refused."""

    record: Batch


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
    """

    id: Index
    name: str
    retain_bytes: int
    retain_seconds: float
    slots: int
    groups: tuple[GroupId, ...]
    configured: Index = Index(0)
    first_position: GlobalPosition = _FIRST

    def describe(self) -> dict[str, object]:
        """Return the topic as plain values, with its route: each range is (first slot, stream)."""
        return {
            "id": self.id,
            "name": self.name,
            "retain_bytes": self.retain_bytes,
            "retain_seconds": self.retain_seconds,
            "groups": list(self.groups),
            "slots": self.slots,
            "ranges": [list(each) for each in slot_ranges(self.slots, len(self.groups))],
            "configured": self.configured,
            "first_position": self.first_position,
        }

    def has_change(self, kind: Kind) -> bool:
        """Return whether a record of this kind has changed the topic. Then all members can read such records."""
        return self.first_position > 1 if kind is Kind.TRIM_SPREAD else self.configured > 0

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
