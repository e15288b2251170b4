"""The queries about archived records: their runs, and the topics with archive settings."""

from __future__ import annotations

from typing import Any

from viewstamp.ids import GROUP_0, GlobalPosition, GroupId, Index, Position, RunId, TopicId
from viewstamp.node.state_machine import Query
from viewstamp.value_class import value_class

__all__ = [
    "ArchivableTopic",
    "ArchiveQuery",
    "ArchivedRun",
    "DueRun",
    "DueRunsQuery",
    "IsArchivingQuery",
    "NewestRunsQuery",
    "OrphansQuery",
    "ReleasedRunsQuery",
    "RunAtQuery",
    "RunQuery",
    "RunsQuery",
    "UnneededRunsQuery",
    "note_archived",
]


@value_class(kw_only=False)
class DueRun:
    """Records of a topic that its archive settings let the leader archive now.

    Attributes:
      topic: the name of the topic.
      end: the position before which they are.
      delay: the archive delay of the run, in microseconds of log time.
      is_urgent: whether the log is nearly full, so that the run is not written slowly.
    """

    topic: str
    end: Position
    delay: int
    is_urgent: bool


@value_class(kw_only=False)
class DueRunsQuery(Query[list[DueRun]]):
    """The runs that are due, at most one of each topic, in the order in which the topics were created.

    Attributes:
      now: the log time of a record that would be appended now, in microseconds.
      is_pressed: whether the log is nearly full, so that records of any age are archived.
      run_bytes: bytes of log for which a run is due without a wait.
      wait: microseconds for which records that are old enough wait for others at most; 24 times that if half of all
        possible runs exist.
    """

    now: int
    is_pressed: bool
    run_bytes: int
    wait: int


@value_class(kw_only=False)
class UnneededRunsQuery(Query[list[str]]):
    """The names of the topics with a run that is dropped, or whose records are all deleted."""


@value_class(kw_only=False)
class IsArchivingQuery(Query[bool]):
    """Whether any topic has its archive on, or has a run."""


@value_class(kw_only=False)
class ArchivedRun:
    """A run of archived records, as the state of its group has it. ``streams/runs.py`` describes the attributes.

    ``state`` is prepared, committed or dropped. ``size`` and ``digest`` are 0 and b"" until the run is committed. Its
    records are in the log at indices in ``[first_index, end_index)``, or were; 0 until the run is committed. ``group``
    is the group whose topic it is; the ids of two groups may be equal. The global positions of the records of a stream
    are in ``[first_global, end_global)``; 0 = it is no stream, or the run is not committed.
    """

    id: RunId
    topic: TopicId
    first: Position
    end: Position
    state: str
    origin: str
    size: int
    digest: bytes
    first_index: int = 0
    end_index: int = 0
    group: GroupId = GROUP_0
    first_global: GlobalPosition = GlobalPosition(0)
    end_global: GlobalPosition = GlobalPosition(0)


@value_class(kw_only=False)
class ArchivableTopic:
    """A topic and its runs.

    Attributes:
      id: the id of the topic.
      first_position: the first position that the topic keeps.
      next_position: the position of its next record.
      next_first: the position at which its next run begins.
      archived_end: committed runs hold all kept records before this position.
      runs: its runs in any state, by their ids.
      schema: the text of its schema; "" = it has none.
      delay: its archive delay, in microseconds.
      archivable_end: the position up to which it can be archived: the next one, of a stream the end of its map.
      is_archive_used: whether any topic has a run, or had a committed one, or this one has archive settings. So all
        members that go on can read records about runs.
    """

    id: TopicId
    first_position: Position
    next_position: Position
    next_first: Position
    archived_end: Position
    runs: tuple[ArchivedRun, ...]
    schema: str
    delay: int
    archivable_end: Position
    is_archive_used: bool


@value_class(kw_only=False)
class ArchiveQuery(Query[ArchivableTopic]):
    """A topic with its runs. Raises UnknownTopicError."""

    name: str


@value_class(kw_only=False)
class RunQuery(Query[ArchivedRun | None]):
    """The run with an id; None = it is unknown."""

    run: int


@value_class(kw_only=False)
class RunAtQuery(Query[ArchivedRun | None]):
    """The committed run that holds a position of a topic; None = none does."""

    topic: TopicId
    position: Position


@value_class(kw_only=False)
class ReleasedRunsQuery(Query[list[ArchivedRun]]):
    """The committed runs with kept records whose archive delay is over, if they had records from ``index`` on."""

    index: Index


@value_class(kw_only=False)
class NewestRunsQuery(Query[list[ArchivedRun]]):
    """The newest committed runs of this cluster with kept records, also of keys, at most ``count``; the newest first.

    The store has their objects, so it is the store of this group if it has one of them.
    """

    count: int


@value_class(kw_only=False)
class RunsQuery(Query[list[dict[str, object]]]):
    """All runs as maps, by their ids, with the name of the topic."""


@value_class(kw_only=False)
class OrphansQuery(Query[list[int]]):
    """Those of the ids of this cluster's objects that no run has, or will ever have; rising."""

    ids: tuple[int, ...]


def note_archived(topic: dict[str, Any], archived_end: Position) -> dict[str, Any]:
    """Return the map of a topic for a backup; with archived records also ``archived_last``, the last such position."""
    return {**topic, "archived_last": archived_end - 1} if archived_end > topic["first_position"] else topic
