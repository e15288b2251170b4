"""The values that a client returns: receipts, outcomes, topics, actors, changes, snapshots, members and groups."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from viewstamp.client.ended_stream import EndedStream, StreamEnds, ended_streams
from viewstamp.errors import CommandError, RequestError, StaleSessionError, StreamSealedError
from viewstamp.ids import GroupId, Index, Position, Term, Viewstamp
from viewstamp.wire.batch import Record
from viewstamp.wire.commands import decode_result
from viewstamp.wire.spreading import stream_name

__all__ = [
    "DURABILITY",
    "ActorInfo",
    "ArchiveInfo",
    "ArchivedInfo",
    "AuditEntry",
    "BatchReceipt",
    "Change",
    "Decided",
    "GroupInfo",
    "GroupLeader",
    "Members",
    "Outcome",
    "Receipt",
    "SnapshotInfo",
    "SpreadRecord",
    "SpreadTopicInfo",
    "TokenInfo",
    "TopicInfo",
    "actor_info",
    "group_info",
    "members_of",
    "new_tuple",
    "receipts_of",
    "result_or_error",
    "snapshot_info",
    "spread_topic_info",
    "token_info",
    "topic_info",
]

DURABILITY = "majority, synced"
"""The durability in a receipt if the node states none: on the disks of a majority, each synced before it answered."""


class Receipt(NamedTuple):
    """Proof that a record is committed, and its place.

    A receipt is a tuple, because one is created for every record.

    Example::

        receipt = await client.append("orders", b"one")
        print(receipt.position, receipt.viewstamp)

    Attributes:
      position: the record's place in its topic, or in its stream, from 1; 0 for a command, which belongs to no topic.
      term: the term in which the record was appended.
      index: the record's place in the log, from 1.
      timestamp: the log time of the record's batch, in microseconds since 1970.
      durability: how durable the record was when it was acknowledged: the mode of the node that acknowledged it, for
        example "majority, synced".
      stream: the stream of a spread topic, from 1; 0 = the topic has no streams. Terms and indices of different streams
        may be equal.
      global_position: the record's place in its topic over all streams, from 1, without gaps; None = the append was not
        ordered. For a topic without streams it is ``position``.
    """

    position: Position
    term: Term
    index: Index  # type: ignore[assignment]  # replaces tuple.index(), which is of no use for a receipt
    timestamp: int
    durability: str = DURABILITY
    stream: int = 0
    global_position: int | None = None

    @property
    def viewstamp(self) -> Viewstamp:
        """The identity of the record: (term, index)."""
        return Viewstamp(self.term, self.index)


new_tuple = tuple.__new__
"""``new_tuple(Receipt, fields)`` costs half of ``Receipt(*fields)``, because that is a function in Python."""


class BatchReceipt(NamedTuple):
    """The receipt of a batch, as the node sends it."""

    first_position: int
    count: int  # type: ignore[assignment]  # replaces tuple.count(), which is of no use for a receipt
    term: int
    first_index: int
    log_time: int


class Decided(NamedTuple):
    """The outcome of a whole batch, and its durability. ``receipt`` None = not applied, and fenced to stay so."""

    receipt: BatchReceipt | None
    results: list[bytes] | None
    durability: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The final outcome of an append or a command after an OutcomeUnknownError.

    Example::

        try:
            receipt = await client.append("orders", b"one", timeout=5.0)
        except viewstamp.OutcomeUnknownError as error:
            outcome = await client.outcome(error.token)
            if outcome.answer == "not applied":
                receipt = await client.append("orders", b"one")

    Attributes:
      answer: "applied"; "not applied", and it never will be, because its sequence is fenced; or "expired": it can no
        longer be found out, because its session was unused for too long or has sent too many batches since.
      receipts: the receipts of the records, if the answer is "applied"; else empty.
      results: the result of each command, or the CommandError that it raised. None = it was an append, or the results
        are no longer kept.
    """

    answer: Literal["applied", "not applied", "expired"]
    receipts: list[Receipt] = field(default_factory=list)
    results: list[Any] | None = None

    @property
    def expired(self) -> bool:
        """Whether the outcome can no longer be found out."""
        return self.answer == "expired"

    @property
    def applied(self) -> bool:
        """Whether it was applied.

        Raises:
          StaleSessionError: the answer is "expired". Read the topic, or query the actor, to find out.
        """
        if self.answer == "expired":
            raise StaleSessionError(
                "the session has ended or has sent too many batches since, so it is unknown whether this was applied",
                remedy="check outcome.answer for 'expired' first; then read the topic, or query the actor",
            )
        return self.answer == "applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveInfo:
    """The archive settings of a topic, in seconds of log time.

    Attributes:
      after_seconds: records are archived when they are older than this; 0 = at any age.
      delay_seconds: for so long the log keeps its copy of archived records too, from the commit of their run on.
      delete_seconds: archived records older than this are deleted, in whole runs; 0 = never.
    """

    after_seconds: float
    delay_seconds: float
    delete_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedInfo:
    """The kept records of a topic that are in committed runs. Times are microseconds of log time since 1970.

    Attributes:
      first_position: the position of the first one; one above ``last_position`` if there is none.
      last_position: the position of the last one, inclusive.
      runs: the number of their runs.
      bytes: the size of the files of these runs.
      first_time, last_time: the log times of the first and the last one; 0 = there is none.
      waiting_since: a log time at or before that of the first record that is in no run; 0 = all records are in runs.
      waiting_bytes: the bytes of log of the records that are in no run.
      wait_factor: these records wait for others this many times as long as usual, because there are many runs.
    """

    first_position: int
    last_position: int
    runs: int
    bytes: int
    first_time: int
    last_time: int
    waiting_since: int
    waiting_bytes: int = 0
    wait_factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as a node described it.

    Attributes:
      name: the topic's name.
      first_position: the first position that is kept; one above ``last_position`` if the topic is empty.
      last_position: the last position, inclusive; 0 = nothing was ever appended.
      bytes: the size of the kept records.
      retain_bytes: the oldest records are trimmed when the topic is larger than this; 0 = never.
      retain_seconds: records older than this are trimmed; 0 = never.
      age_seconds: the answer contains everything that was committed this many seconds before it; 0 unless a stale
        answer was requested.
      archive: the archive settings; None = it is archived on request only. With them the retention deletes nothing.
      archived: its archived records; None = it has neither archive settings nor archived records.
      schema: the text of the schema of its rows; "" = it has none.
      keyed: its view by key as numbers: ``first``, the first position of the view; ``dumped_end``, before which its
        records are in files; ``ranges``, ``runs``, ``records`` and ``bytes`` of these; ``undumped_bytes``, those of
        the log behind. None = it is not keyed.
    """

    name: str
    first_position: Position
    last_position: Position
    bytes: int
    retain_bytes: int = 0
    retain_seconds: float = 0.0
    age_seconds: float = 0.0
    archive: ArchiveInfo | None = None
    archived: ArchivedInfo | None = None
    schema: str = ""
    keyed: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """A token as the cluster knows it; its secret is not in it. Times are log times in microseconds since 1970.

    Attributes:
      id: its public id, which is a part of its text.
      name: its name, for people.
      roles: what it may do, for example ``("append:orders*",)``.
      created: when it was created.
      expires: when it ends by itself; 0 = never.
      ended: when it was revoked or expired; 0 = it is valid.
      old_until: until when the secret before the newest one is valid; 0 = there is none.
      rotation: how many times it has been rotated.
      is_on: whether access control is on.
    """

    id: str
    name: str
    roles: tuple[str, ...]
    created: int
    expires: int
    ended: int
    old_until: int
    rotation: int
    is_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group that was placed on nodes of the cluster. Group 0, which every cluster has, is not among them.

    Attributes:
      id: its id, which is never used again.
      streams: the names of its streams.
      founders: its founders, by the names of their nodes, with the addresses that they had when it was placed.
      hosted: the founders that have created their directory.
      is_established: whether all founders have. From then on the group elects a leader, and cannot be cancelled.
      hosts: the nodes that have it: the founders, and the nodes that were added, without those that have left.
      leaving: the hosts that shall leave, and have not left yet.
    """

    id: GroupId
    streams: tuple[str, ...]
    founders: Mapping[str, str]
    hosted: tuple[str, ...]
    is_established: bool
    hosts: Mapping[str, str]
    leaving: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The founders that have not created their directory yet."""
        return tuple(name for name in self.founders if name not in self.hosted)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLeader:
    """The leader of a group before and after its leaders were balanced.

    Attributes:
      group: the id of the group.
      before: the name of the node that led it at the beginning; "" = none did.
      leader: the name of the node that leads it now; "" = none does, as far as the nodes that answer know.
      reason: why it is not where an even spread would have it; "" = it may stay there.
    """

    group: GroupId
    before: str
    leader: str
    reason: str

    @property
    def is_moved(self) -> bool:
        """Whether another node leads it now."""
        return self.before != self.leader


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadTopicInfo(StreamEnds):
    """A topic whose records are spread over streams: each stream is a topic of one group, with positions of its own.

    Attributes:
      id: its id, which is never used again.
      name: its name.
      groups: the group of each stream, from stream 1 on.
      slots: the number of slots, into which the keys of its records fall.
      ranges: (first slot, stream), by the first slot: a range ends where the next one begins.
      retain_bytes: the oldest records of a stream are trimmed when it is larger than this; 0 = never.
      retain_seconds: records older than this are trimmed; 0 = never.
      configured: the index of the record that has changed its retention last; 0 = none has.
      first_position: the global position of the first record that was not trimmed by :meth:`trim_spread_topic`.
      closed: the streams that were ended by :meth:`seal_stream` or :meth:`lose_stream`, in the order in which it began;
        also those that :meth:`remove_stream` has removed.
      age_seconds: the answer contains everything that was committed this many seconds ago; 0 = linearizable.
      next_position: the position in the topic of the next record that gets one; 0 = not in the answer.
      ordered_ends: for each stream, from stream 1 on, the position in it of its first record without a position in the
        topic; () = not in the answer.
      schema: the text of the schema of its rows; "" = it has none.
      lost_positions: positions in [first, end) that no stream has were lost with a majority of the nodes, as
        ``viewstamp recover`` has reported; (0, 0) = none was.
      archive: the archive settings of each stream; None = they are archived on request only.
    """

    id: Index
    name: str
    groups: tuple[GroupId, ...]
    slots: int
    ranges: tuple[tuple[int, int], ...]
    retain_bytes: int
    retain_seconds: float
    configured: Index = Index(0)
    first_position: int = 1
    closed: tuple[EndedStream, ...] = ()
    age_seconds: float = 0.0
    next_position: int = 0
    ordered_ends: tuple[int, ...] = ()
    schema: str = ""
    lost_positions: tuple[int, int] = (0, 0)
    archive: ArchiveInfo | None = None

    @property
    def streams(self) -> int:
        """The number of its streams, with the removed ones: the highest number of a stream."""
        return len(self.groups)

    @property
    def kept_streams(self) -> list[int]:
        """The numbers of the streams that were not removed."""
        removed = self.removed_streams
        return [stream for stream in range(1, len(self.groups) + 1) if stream not in removed]

    @property
    def open_streams(self) -> list[int]:
        """The numbers of the streams that were not ended."""
        ended = {each.stream for each in self.closed}
        return [stream for stream in range(1, len(self.groups) + 1) if stream not in ended]

    def group_of(self, stream: int) -> GroupId:
        """Return the group of a stream. Raises RequestError if there is no stream of this number."""
        if not 1 <= stream <= len(self.groups):
            raise RequestError(
                f"topic {self.name!r} has no stream {stream!r}", remedy=f"take a stream from 1 to {len(self.groups)}"
            )
        return self.groups[stream - 1]

    def check_kept(self, stream: int) -> None:
        """Check that a stream was not removed. Raises StreamSealedError, and as :meth:`group_of`."""
        self.group_of(stream)
        if gone_at := self.gone_at(stream):
            raise StreamSealedError(
                f"stream {stream} of topic {self.name!r} was removed, after all its records, which were below position"
                f" {gone_at} of the topic, had been trimmed",
                remedy="read the topic without a stream, or another stream: `viewstamp topic describe`",
            )

    def topic_of(self, stream: int) -> str:
        """Return the name of a stream as a topic of its group. Raises as :meth:`group_of`."""
        self.group_of(stream)
        return stream_name(self.name, stream)

    def stream_of(self, slot: int) -> int:
        """Return the stream to which a slot, from 0 on, belongs."""
        assert 0 <= slot < self.slots, f"slot {slot} of {self.slots}"
        return self.ranges[bisect_right(self.ranges, slot, key=itemgetter(0)) - 1][1]


class SpreadRecord(Record):
    """One record of a topic with streams, as ``client.read`` yields it without ``stream``.

    It is a :class:`Record`. ``position`` is its place among all records of the topic; ``term`` and ``index`` belong to
    the log of the group of its stream.

    Attributes:
      stream: the number of its stream, from 1.
      stream_position: its place in the stream, from 1, as its receipt has it.

    Example::

        async for record in client.read("parcels"):
            print(record.position, record.stream, record.stream_position, record.value)
    """

    stream: int
    stream_position: Position

    @classmethod
    def of(cls, record: Record, position: Position, stream: int) -> SpreadRecord:
        """Return a record of a stream with its position in the topic."""
        made = new_tuple(cls, (position, *record[1:]))
        made.stream, made.stream_position = stream, record.position
        return made

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, stream={self.stream}, stream_position={self.stream_position})"


class AuditEntry(NamedTuple):
    """An administrative action.

    Attributes:
      log_time: the log time of its record, in microseconds since 1970.
      log_index: the index of its record in the log.
      by: the caller: a token, a certificate or a data directory; "" = access control was off.
      action: the name of the request, for example ``topic trim``.
      subject: the object of the action, with the values of the request.
    """

    log_time: int
    log_index: int
    by: str
    action: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorInfo:
    """An actor as a node described it.

    Attributes:
      name: the name under which the nodes run the actor.
      class_name: the name of its class.
      version: the version of that class on the node.
      instances: the number of its instances (keys).
      digest: a checksum of all their states, equal on members that have applied the same log; "" = unknown, or the
        actor is spread over groups, whose logs are different ones.
      groups: the groups over which its instances are spread; () = all are in group 0.
      missing: those of the groups that did not answer, so that their instances are not counted.
    """

    name: str
    class_name: str
    version: int
    instances: int
    digest: str = ""
    groups: tuple[GroupId, ...] = ()
    missing: tuple[GroupId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """A snapshot on one node's disk.

    Attributes:
      index: the snapshot holds the whole state up to this index, inclusive.
      term: the term of the record at ``index``.
      bytes: the size of its file.
      created: when it was taken, in seconds since 1970; 0 = unknown.
      seconds: how long taking it took; 0 = unknown.
    """

    index: Index
    term: Term
    bytes: int
    created: float = 0.0
    seconds: float = 0.0


class Change(NamedTuple):
    """A command that was applied to an actor, as ``client.watch`` yields it.

    Attributes:
      index: the command's place in the log. To continue after it, watch from ``index + 1``.
      timestamp: its log time in microseconds since 1970.
      actor: the actor's name.
      key: the key of the instance.
      command: the name of the command.
      arguments: its positional arguments.
      named: its keyword arguments.
      result: its result; None if it raised ``error``.
      error: the error that it raised; None = it returned ``result``.
    """

    index: Index  # type: ignore[assignment]  # replaces tuple.index(), which is of no use for a change
    timestamp: int
    actor: str
    key: str
    command: str
    arguments: list[Any]
    named: dict[str, Any]
    result: Any
    error: CommandError | None


def receipts_of(
    receipt: BatchReceipt, offset: int, size: int, durability: str = DURABILITY, stream: int = 0
) -> list[Receipt]:
    """Return the receipts of records ``offset`` to ``offset + size`` of a batch of a topic, or of a ``stream``."""
    first = receipt.first_position
    return [
        Receipt(
            Position(first + at if first else 0),
            Term(receipt.term),
            Index(receipt.first_index + at),
            receipt.log_time,
            durability,
            stream,
        )
        for at in range(offset, offset + size)
    ]


def result_or_error(packed: bytes, errors: Mapping[str, type[CommandError]] | None = None) -> Any:
    """Return the result of a command; if it raised an error, return the error."""
    try:
        return decode_result(packed, errors)
    except CommandError as error:
        return error


def topic_info(topic: dict[str, Any], age: float = 0.0) -> TopicInfo:
    """Read a node's description of a topic; ``age`` is its age in seconds."""
    return TopicInfo(
        name=topic["name"],
        first_position=Position(topic["first_position"]),
        last_position=Position(topic["last_position"]),
        bytes=topic["bytes"],
        retain_bytes=topic.get("retain_bytes", 0),
        retain_seconds=topic.get("retain_seconds", 0.0),
        age_seconds=age,
        archive=_archive_info(topic.get("archive")),
        archived=_archived_info(topic.get("archived")),
        schema=str(topic.get("schema", "")),
        keyed=_keyed_info(topic.get("keyed")),
    )


def _keyed_info(part: Mapping[str, Any] | None) -> Mapping[str, int] | None:
    if part is None:
        return None
    names = ("first", "dumped_end", "ranges", "runs", "records", "bytes", "undumped_bytes")
    return {name: int(part.get(name, 0)) for name in names}


def _archive_info(settings: Mapping[str, Any] | None) -> ArchiveInfo | None:
    if settings is None:
        return None
    return ArchiveInfo(**{name: float(settings[name]) for name in ("after_seconds", "delay_seconds", "delete_seconds")})


def _archived_info(part: Mapping[str, Any] | None) -> ArchivedInfo | None:
    if part is None:
        return None
    numbers = {name: int(part[name]) for name in ("runs", "bytes", "first_time", "last_time", "waiting_since")}
    numbers |= {name: int(part[name]) for name in ("waiting_bytes", "wait_factor") if name in part}
    return ArchivedInfo(first_position=int(part["first"]), last_position=int(part["end"]) - 1, **numbers)


def actor_info(actor: dict[str, Any]) -> ActorInfo:
    """Read a node's description of an actor."""
    return ActorInfo(
        name=actor["name"],
        class_name=actor["class"],
        version=actor["version"],
        instances=actor["instances"],
        digest=str(actor.get("digest", "")),
        groups=tuple(map(GroupId, actor.get("groups", ()))),
    )


def snapshot_info(snapshot: dict[str, Any]) -> SnapshotInfo:
    """Read a node's description of a snapshot."""
    return SnapshotInfo(
        index=Index(snapshot["index"]),
        term=Term(snapshot["term"]),
        bytes=snapshot["bytes"],
        created=snapshot.get("created", 0.0),
        seconds=snapshot.get("seconds", 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The members of a cluster. All maps are from the node's name to its address.

    Attributes:
      voters: the members with a vote.
      learners: the members without a vote.
      outgoing: during a change, the previous voters; then both sets of voters need a majority. {} = no change.
      joining: learners that become voters when they have caught up, each with the voter that it replaces ("" = none).
      generation: the number of changes so far.
    """

    voters: Mapping[str, str]
    learners: Mapping[str, str] = field(default_factory=dict)
    outgoing: Mapping[str, str] = field(default_factory=dict)
    joining: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0

    @property
    def addresses(self) -> dict[str, str]:
        """Every member's address."""
        return {**self.outgoing, **self.voters, **self.learners}

    @property
    def is_changing(self) -> bool:
        """Whether a change has begun and is not complete, or a learner is about to become a voter."""
        return bool(self.outgoing or self.joining)


def members_of(told: Mapping[str, Any]) -> Members:
    """Read a node's description of the membership."""
    sets = {name: dict(told.get(name) or {}) for name in ("voters", "learners", "outgoing", "joining")}
    return Members(generation=int(told["generation"]), **sets)


def token_info(token: Mapping[str, Any]) -> TokenInfo:
    """Return a token from its map in an answer."""
    numbers = {name: int(token[name]) for name in ("created", "expires", "ended", "old_until", "rotation")}
    return TokenInfo(
        id=token["id"], name=token["name"], roles=tuple(token["roles"]), is_on=bool(token["is_on"]), **numbers
    )


def spread_topic_info(
    topic: Mapping[str, Any], age: float = 0.0, *, order: Mapping[str, Any] | None = None
) -> SpreadTopicInfo:
    """Return a spread topic from its map in an answer; ``order``: the answer, if it may have the order as well."""
    return SpreadTopicInfo(
        id=Index(topic["id"]),
        name=topic["name"],
        groups=tuple(map(GroupId, topic["groups"])),
        slots=topic["slots"],
        ranges=tuple((first, stream) for first, stream in topic["ranges"]),
        retain_bytes=topic["retain_bytes"],
        retain_seconds=topic["retain_seconds"],
        configured=Index(topic.get("configured", 0)),  # A release before sends neither.
        first_position=topic.get("first_position", 1),
        closed=ended_streams(topic),
        age_seconds=age,
        next_position=(order or {}).get("next_position", 0),
        ordered_ends=tuple((order or {}).get("ordered_ends", ())),
        schema=topic.get("schema", ""),
        lost_positions=tuple(topic.get("lost_positions", (0, 0))),
        archive=_archive_info(topic.get("archive")),
    )


def group_info(group: Mapping[str, Any]) -> GroupInfo:
    """Return a group from its map in an answer."""
    return GroupInfo(
        id=GroupId(group["id"]),
        streams=tuple(group["streams"]),
        founders=dict(group["members"]),
        hosted=tuple(group["hosted"]),
        is_established=group["is_established"],
        hosts=dict(group.get("hosts", group["members"])),
        leaving=tuple(group.get("leaving", ())),
    )
