"""The interface of the replicated state machine, and its queries about topics, sinks, sessions, tokens and actors.

``streams/`` implements it. The other files of queries import ``Query`` from here.

All calls are synchronous, deterministic and for a batch, never for a record. The node makes them on its event loop,
one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from viewstamp.ids import (
    GroupId,
    Index,
    Position,
    Sequence,
    SessionId,
    Term,
    TopicId,
)
from viewstamp.node.access import Credentials, Gate
from viewstamp.value_class import value_class
from viewstamp.wire.batch import Batch

__all__ = [
    "Accepted",
    "ActorChangesQuery",
    "ActorQuery",
    "ActorsQuery",
    "Admission",
    "AnswerT",
    "Answered",
    "AuditQuery",
    "CommandResults",
    "CommitEffectQuery",
    "FirstPositionQuery",
    "InterfaceQuery",
    "LastPositionQuery",
    "LocationQuery",
    "OutcomeQuery",
    "Placement",
    "Query",
    "Result",
    "SinkQuery",
    "SinksQuery",
    "SnapshotView",
    "SplitQuery",
    "StateMachine",
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

    def founders_in(self, piece: bytes) -> list[str]:
        """Return the incarnations of the founders of groups in the first piece of a cut; in any thread.

        Raises:
          CorruptionError: it is no piece of a state.
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
