"""The queries about keyed topics; ``state_machine.py`` has the others."""

from __future__ import annotations

from dataclasses import dataclass

from viewstamp.ids import Position, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.state_machine import Query

__all__ = [
    "DueKeys",
    "DueKeysQuery",
    "IsKeyedUsedQuery",
    "KeyRunQuery",
    "KeyRunsQuery",
    "KeyedRange",
    "KeyedView",
    "KeyedViewQuery",
    "UnneededKeysQuery",
]


@dataclass(frozen=True, slots=True)
class KeyedRange:
    """The keys from ``start`` up to the start of the next range, and the runs of its slices, the oldest one first."""

    start: bytes
    runs: tuple[ArchivedRun, ...]


@dataclass(frozen=True, slots=True)
class KeyedView:
    """The view of a keyed topic at one index of the log.

    Attributes:
      topic: the id of the topic.
      name: its name.
      first: the first position whose record counts.
      dumped_end: the runs hold the records before this position, the log those from there on.
      next_position: the position of the next record.
      ranges: all ranges, by their starts.
    """

    topic: TopicId
    name: str
    first: Position
    dumped_end: Position
    next_position: Position
    ranges: tuple[KeyedRange, ...]


@dataclass(frozen=True, slots=True)
class KeyedViewQuery(Query[KeyedView]):
    """The view of the topic of a name. Raises UnknownTopicError; RequestError: the topic is not keyed."""

    name: str


@dataclass(frozen=True, slots=True)
class KeyRunQuery(Query[ArchivedRun | None]):
    """The run of keys with an id; None = it is unknown."""

    run: int


@dataclass(frozen=True, slots=True)
class KeyRunsQuery(Query[list[dict[str, object]]]):
    """All runs of keys as maps, by their ids, with the name of the topic."""


@dataclass(frozen=True, slots=True)
class UnneededKeysQuery(Query[dict[str, list[ArchivedRun]]]):
    """The runs of keys that are prepared or dropped, by the names of their topics."""


@dataclass(frozen=True, slots=True)
class IsKeyedUsedQuery(Query[bool]):
    """Whether any topic is keyed, or has a run of keys."""


@dataclass(frozen=True, slots=True)
class DueKeys:
    """A run of keys that is due: of the positions ``[first, end)`` of a topic.

    ``merged``: the start of the range whose slices are merged; None = a dump.
    """

    topic: str
    first: Position
    end: Position
    merged: bytes | None = None


@dataclass(frozen=True, slots=True)
class DueKeysQuery(Query[list[DueKeys]]):
    """The runs of keys that are due, at most one of each topic.

    Attributes:
      now: the log time of a record that would be appended now, in microseconds.
      dump_bytes: bytes of log behind the dumped end of a topic for which a dump is due.
      is_pressed: whether the log is nearly full, so that a dump of fewer bytes is due.
    """

    now: int
    dump_bytes: int
    is_pressed: bool
