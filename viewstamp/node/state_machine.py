"""The interface of the replicated state machine, and its queries. ``streams/`` implements it.

All calls are synchronous, deterministic and for a batch, never for a record. The node makes them on its event loop,
one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from viewstamp.ids import (
    GlobalPosition,
    GroupId,
    Index,
    NodeId,
    Position,
    RunId,
    Sequence,
    SessionId,
    Stream,
    Term,
    TopicId,
)
from viewstamp.node.access import Credentials, Gate
from viewstamp.value_class import value_class
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.ordering import GlobalRun, StreamReport
from viewstamp.wire.spreading import slot_ranges, stream_name

__all__ = [
    "Accepted",
    "ActorChangesQuery",
    "ActorQuery",
    "ActorsQuery",
    "Admission",
    "AnswerT",
    "Answered",
    "ArchivableTopic",
    "ArchiveQuery",
    "ArchivedRun",
    "AuditQuery",
    "CancelledGroupsQuery",
    "CommandResults",
    "CommitEffectQuery",
    "FirstFromQuery",
    "FirstPositionQuery",
    "FreeGroupsQuery",
    "GlobalPositionQuery",
    "GlobalRecordQuery",
    "GroupsQuery",
    "InterfaceQuery",
    "LastPositionQuery",
    "LocationQuery",
    "MissingRunsQuery",
    "MovedStreamsQuery",
    "OrderStatusQuery",
    "OrphansQuery",
    "OutcomeQuery",
    "PlacedGroup",
    "Placement",
    "PlacementQuery",
    "Query",
    "ReleasedRunsQuery",
    "Result",
    "RunAtQuery",
    "RunQuery",
    "RunsQuery",
    "SinkQuery",
    "SinksQuery",
    "SnapshotView",
    "SplitQuery",
    "SpreadTopic",
    "SpreadTopicQuery",
    "SpreadTopicsQuery",
    "SpreadingQuery",
    "StateMachine",
    "StreamReportsQuery",
    "TimeQuery",
    "TokensQuery",
    "TopicQuery",
    "TopicsQuery",
    "Waiting",
]


@dataclass(slots=True)
class Placement:
    """The receipt of a batch of records: its place in its topic and in the log.

    It must not be changed. Neither it nor ``Accepted`` is frozen, because creating a frozen one takes three times as
    long, and each batch needs both.
    """

    first_position: Position
    count: int
    term: Term
    first_index: Index
    log_time: int


@value_class(kw_only=False)
class CommandResults:
    """The outcome of a batch of actor commands: its receipt (position 0), and a packed result for each command.

    ``results`` None = applied, but the results are no longer kept.
    """

    receipt: Placement
    results: list[bytes] | None


Result = Placement | CommandResults | dict[str, object] | None
"""The result of applying a batch: a receipt for records, results for actors' commands, a map for another command, None
for "not applied, and fenced"."""


@dataclass(slots=True)
class Accepted:
    """Append the batch to the log with ``first_position`` in its header.

    For a batch of commands it is the limit of each result in bytes; 0 for batches that have neither commands nor a
    topic's records.

    ``instead``: append this batch and not the proposed one; the caller gets its result.
    """

    first_position: Position
    instead: Batch | None = None


@value_class(kw_only=False)
class Answered:
    """A retry of a batch that has been applied: answer ``result``, append nothing."""

    result: Result


@value_class(kw_only=False)
class Waiting:
    """A retry of a batch that is in the log but not applied yet: answer when that one is applied, append nothing."""


Admission = Accepted | Answered | Waiting


AnswerT = TypeVar("AnswerT", covariant=True)
_FIRST = GlobalPosition(1)


class Query(Generic[AnswerT]):
    """A read of the applied state, whose answer is an ``AnswerT``."""

    __slots__ = ()


@value_class(kw_only=False)
class TopicsQuery(Query[list[dict[str, Any]]]):
    """All topics as maps, in the order of their creation."""


@value_class(kw_only=False)
class TopicQuery(Query[dict[str, Any]]):
    """The map of a topic: id, name, first_position, last_position, bytes, retain_bytes, retain_seconds."""

    name: str


@value_class(kw_only=False)
class FirstPositionQuery(Query[Position]):
    """The first position that is kept; one above the last if the topic holds no record."""

    topic: TopicId


@value_class(kw_only=False)
class LastPositionQuery(Query[Position]):
    """The last position of a topic; 0 = it never had a record."""

    topic: TopicId


@value_class(kw_only=False)
class LocationQuery(Query[tuple[Index, Position]]):
    """The index from which a forward scan finds a position, and the first position visible there.

    Raises TrimmedError if the position is gone.
    """

    topic: TopicId
    position: Position


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


@value_class(kw_only=False)
class StreamReportsQuery(Query[list[StreamReport]]):
    """The ends of the streams that have records; ``group`` is the id of the group whose state is asked."""

    group: GroupId


@value_class(kw_only=False)
class MovedStreamsQuery(Query[list[StreamReport]]):
    """Those of the reports, rising by stream, that would change the order in the state of group 0."""

    reports: Iterable[StreamReport]


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


@value_class(kw_only=False)
class ArchivedRun:
    """A run of archived records, as the state of group 0 has it. ``streams/runs.py`` describes the attributes.

    ``state`` is prepared, committed or dropped. ``size`` and ``digest`` are 0 and b"" until the run is committed. Its
    records are in the log at indices in ``[first_index, end_index)``, or were; 0 until the run is committed.
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
      is_archive_used: whether any topic has a run, or had a committed one, or this one has archive settings. So all
        members that go on can read records about runs.
    """

    id: TopicId
    first_position: Position
    next_position: Position
    next_first: Position
    archived_end: Position
    runs: tuple[ArchivedRun, ...]
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
class RunsQuery(Query[list[dict[str, object]]]):
    """All runs as maps, by their ids, with the name of the topic."""


@value_class(kw_only=False)
class OrphansQuery(Query[list[int]]):
    """Those of the ids of this cluster's objects that no run has, or will ever have; rising."""

    ids: tuple[int, ...]


@value_class(kw_only=False)
class CommitEffectQuery(Query[bool]):
    """Whether the COMMIT at an index, which has been applied, had an effect."""

    index: Index


@value_class(kw_only=False)
class SplitQuery(Query[list[int]]):
    """Rising positions from ``start`` to ``end`` with about ``bytes`` bytes between two of them."""

    name: str
    start: int
    end: int
    bytes: int


@value_class(kw_only=False)
class TimeQuery(Query[int]):
    """A position at or before the first record whose log time is at least a given one, in microseconds."""

    name: str
    timestamp: int


@value_class(kw_only=False)
class SinksQuery(Query[list[dict[str, object]]]):
    """All sinks as maps."""


@value_class(kw_only=False)
class SinkQuery(Query[dict[str, object]]):
    """The map of a sink."""

    name: str


@value_class(kw_only=False)
class OutcomeQuery(Query[Result]):
    """The result of a sequence of a session; None = it was fenced. Raises UnavailableError if it is not decided yet.

    With the ``expected`` position of an append to ``topic`` it raises PositionMismatchError if that was the refusal.
    """

    session: SessionId
    sequence: Sequence
    topic: TopicId = TopicId(0)
    expected: Position = Position(0)


@value_class(kw_only=False)
class TokensQuery(Query[list[dict[str, object]]]):
    """All tokens as maps, without their hashes."""


@value_class(kw_only=False)
class AuditQuery(Query[list[list[object]]]):
    """The entries of the audit log from a log time on: [log time, index, caller, action, subject]."""

    since: int


@value_class(kw_only=False)
class ActorsQuery(Query[list[dict[str, object]]]):
    """All actors as maps: name, class, version, instances, digest."""


@value_class(kw_only=False)
class InterfaceQuery(Query[dict[str, Any]]):
    """The interface of an actor: ``Interface.to_wire()``."""

    name: str


@value_class(kw_only=False)
class ActorQuery(Query[bytes]):
    """The packed result of a query of an actor; ``arguments`` are packed."""

    actor: str
    key: str
    method: str
    arguments: bytes


@value_class(kw_only=False)
class ActorChangesQuery(Query[tuple[list[list[object]], int]]):
    """Changes of an actor, and the index to ask from next. Raises TrimmedError if they are gone.

    ``key`` None = of all instances; ``index`` 0 = from now on.
    """

    actor: str
    key: str | None
    index: int


class StateMachine(Protocol):
    """A deterministic state machine that follows the log.

    Invariants:
      * ``apply`` is called once for each committed batch, in log order, on every member
      * ``admit`` is called on the leader only, between ``begin_leading`` and ``stop_leading``, and sees
        every batch that enters the log in that time
    """

    def follow(self, group: GroupId, group_0: StateMachine) -> None:
        """Become the state machine of another group than 0; that of group 0 on this node knows the owners of actors."""
        ...

    def begin_leading(self) -> None:
        """Start admitting. All records of earlier terms have been applied."""
        ...

    def stop_leading(self) -> None:
        """Stop admitting. Admitted batches that are not applied may or may not be committed. Idempotent."""
        ...

    @property
    def gate(self) -> Gate:
        """Decides by the applied state about the rights of callers."""
        ...

    def admit(self, batch: Batch, caller: Credentials | None = None) -> Admission:
        """Decide whether a client's batch enters the log, or is the retry of another one.

        ``caller`` sent it; None = this node itself. The ``first_position`` of a batch of records is the one that its
        client expects, 0 = any.

        Raises:
          RequestError: the batch is wrong and will always be refused (unknown topic or session).
          UnavailableError: not now, and certainly not in the log (a gap in the session's sequence).
        """
        ...

    def upkeep(self, log_time: int, now: int) -> Batch | None:
        """Return a batch that the leader should propose by itself; None = no batch. Cheap.

        ``log_time`` is that of the newest record, ``now`` that of a new one, both in microseconds. Decisions that
        depend on time, or on one member's settings, become records in this way, so that all members make the same.
        """
        ...

    def apply(self, batch: Batch) -> Result:
        """Apply a committed batch and return the result for its caller.

        A deterministic refusal is raised as RequestError: it *is* the replicated result.

        Raises:
          CorruptionError: the batch contradicts the state. The node stops.
        """
        ...

    def query(self, query: Query[AnswerT], /) -> AnswerT:
        """Read the applied state. Raises RequestError if the query has no answer."""
        ...

    def begin_snapshot(self) -> SnapshotView:
        """Return a view of the present state, which later batches do not change. Quick."""
        ...

    def prepare(self, pieces: Iterable[bytes]) -> object:
        """Build a state from the pieces of a cut, in their order; off the event loop, without touching this one.

        Raises:
          CorruptionError: the pieces are no state.
          OutdatedCodeError: a newer release wrote them.
        """
        ...

    def adopt(self, prepared: object) -> None:
        """Replace the state by the one that :meth:`prepare` built; quick. Not while leading."""
        ...

    def keep_from(self) -> Index | None:
        """Return the lowest index whose batch the state still refers to (a topic's first record); None = no such.

        The log is never dropped beyond it, even if a snapshot covers more.
        """
        ...

    def explain_kept(self) -> str:
        """Return as text which user of the log causes ``keep_from``, and how to release it; "" = none."""
        ...

    @property
    def chain(self) -> int:
        """A checksum of all applied batches and their results, equal on members that agree. Cheap.

        Comparable only between members of equal :attr:`lineage`, because other code has its state in other forms.
        """
        ...

    @property
    def lineage(self) -> int:
        """A checksum over the versions of the code that computes the chain; during an upgrade members differ in it."""
        ...

    def trail(self) -> list[tuple[int, int]]:
        """Return (index, checksum after it) of the newest commands, oldest first, to find the first that differed.

        If chains differ and no checksum does, the difference is not in a command, or is older.
        """
        ...

    def describe_index(self, index: int) -> str:
        """Return the command at ``index`` as text, if it is among the newest ones; else ""."""
        ...

    def status(self) -> dict[str, object]:
        """Return the fields of ``viewstamp status``: {"actors": {name: {instances, digest, ...}}, ...}."""
        ...

    def digest(self) -> bytes:
        """Return a digest of the whole state: equal on all members that have applied the same prefix. Slow."""
        ...


class SnapshotView(Protocol):
    """The state at one index, returned in pieces while the machine goes on."""

    def next_piece(self, bytes_max: int) -> bytes | None:
        """Return the next piece, about ``bytes_max`` bytes long if the state can be divided; None = the end.

        It packs only the returned piece, so that the caller limits the time of a call.
        """
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether pieces are kept in memory, because their part of the state changed before it was returned."""
        ...

    def close(self) -> None:
        """Release the pieces that were not returned. Idempotent."""
        ...
