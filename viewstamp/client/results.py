"""What a client hands to its caller: receipts, outcomes, topics, what actors did, snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from viewstamp.errors import CommandError, StaleSessionError
from viewstamp.ids import Index, Position, Term, Viewstamp
from viewstamp.wire.commands import decode_result

__all__ = [
    "DURABILITY",
    "ActorInfo",
    "BatchReceipt",
    "Change",
    "Decided",
    "Members",
    "Outcome",
    "Receipt",
    "SnapshotInfo",
    "TopicInfo",
    "actor_info",
    "members_of",
    "new_receipt",
    "receipts_of",
    "result_or_error",
    "snapshot_info",
    "topic_info",
]

DURABILITY = "majority, synced"
"""What a receipt promises where nodes say nothing else: on the disks of a majority, each synced before it answered."""


class Receipt(NamedTuple):
    """Where an acknowledged record stands. A tuple, because one is made for every record.

    ``position`` is 0 for a command, which stands in no topic. ``timestamp`` is the log time of the record's batch in
    microseconds since 1970. ``durability`` says how durable the record was when it was acknowledged: the mode of the
    node that did, in its own words.
    """

    position: Position
    term: Term
    index: Index  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a receipt
    timestamp: int
    durability: str = DURABILITY

    @property
    def viewstamp(self) -> Viewstamp:
        """The identity of the record: (term, index)."""
        return Viewstamp(self.term, self.index)


new_receipt = tuple.__new__
"""``new_receipt(Receipt, fields)``: half the cost of calling the named tuple, once per record."""


class BatchReceipt(NamedTuple):
    """The receipt of a batch, as the node sends it."""

    first_position: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of a receipt
    term: int
    first_index: int
    log_time: int


class Decided(NamedTuple):
    """What became of a whole batch, and how durable it is; no receipt = it was not applied, and is fenced."""

    receipt: BatchReceipt | None
    results: list[bytes] | None
    durability: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an append, or a command, whose caller was told that its outcome is unknown. Final.

    ``answer``: "applied"; "not applied": it never will be, because its sequence is fenced; "expired": nobody can tell
    any more, because its session was not used for too long, or has gone on too far. Only "applied" has ``receipts``.
    ``results`` is what each command returned, or the CommandError that it raised; None = it was an append, or the
    results are not kept any more.
    """

    answer: Literal["applied", "not applied", "expired"]
    receipts: list[Receipt] = field(default_factory=list)
    results: list[Any] | None = None

    @property
    def expired(self) -> bool:
        """Whether nobody can tell any more."""
        return self.answer == "expired"

    @property
    def applied(self) -> bool:
        """Whether it was applied.

        Raises:
          StaleSessionError: expired: neither yes nor no is known to be true.
        """
        if self.answer == "expired":
            raise StaleSessionError(
                "the session has ended, or gone on too far: nobody can tell any more what became of this",
                remedy="look at outcome.answer first; read the state to see what it holds",
            )
        return self.answer == "applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as a node described it. Positions are inclusive; ``last_position`` 0 = empty.

    ``retain_bytes`` and ``retain_seconds`` are its retention: the oldest records beyond go by themselves; 0 = none.
    ``age_seconds``: all that was committed so long ago is in this answer; 0 unless a stale one was asked for.
    """

    name: str
    first_position: Position
    last_position: Position
    bytes: int
    retain_bytes: int = 0
    retain_seconds: float = 0.0
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorInfo:
    """An actor as a node described it: a name, the class behind it with its version, and how many instances live.

    ``digest`` is a checksum of all their states, equal on members that have applied the same log; "" = not told.
    """

    name: str
    class_name: str
    version: int
    instances: int
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """A snapshot on one node's disk: it holds the whole state up to ``index``, inclusive.

    ``created`` is when, in seconds since 1970; ``seconds`` how long it took. 0 = not told.
    """

    index: Index
    term: Term
    bytes: int
    created: float = 0.0
    seconds: float = 0.0


class Change(NamedTuple):
    """A command that was applied, as one who watches sees it.

    ``timestamp`` is its log time in microseconds since 1970; ``error`` what it raised, None = it returned ``result``.
    """

    index: Index  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a change
    timestamp: int
    actor: str
    key: str
    command: str
    arguments: list[Any]
    named: dict[str, Any]
    result: Any
    error: CommandError | None


def receipts_of(receipt: BatchReceipt, offset: int, size: int, durability: str = DURABILITY) -> list[Receipt]:
    """Return the receipts of records ``offset`` to ``offset + size`` of a batch."""
    first = receipt.first_position
    return [
        Receipt(
            Position(first + at if first else 0),
            Term(receipt.term),
            Index(receipt.first_index + at),
            receipt.log_time,
            durability,
        )
        for at in range(offset, offset + size)
    ]


def result_or_error(packed: bytes, errors: Mapping[str, type[CommandError]] | None = None) -> Any:
    """Return what a command returned, or the error that it raised."""
    try:
        return decode_result(packed, errors)
    except CommandError as error:
        return error


def topic_info(topic: dict[str, Any], age: float = 0.0) -> TopicInfo:
    """Return what a node said of a topic, and how old that is."""
    return TopicInfo(
        name=topic["name"],
        first_position=Position(topic["first_position"]),
        last_position=Position(topic["last_position"]),
        bytes=topic["bytes"],
        retain_bytes=topic.get("retain_bytes", 0),
        retain_seconds=topic.get("retain_seconds", 0.0),
        age_seconds=age,
    )


def actor_info(actor: dict[str, Any]) -> ActorInfo:
    """Return what a node said of an actor."""
    return ActorInfo(
        name=actor["name"],
        class_name=actor["class"],
        version=actor["version"],
        instances=actor["instances"],
        digest=str(actor.get("digest", "")),
    )


def snapshot_info(snapshot: dict[str, Any]) -> SnapshotInfo:
    """Return what a node said of a snapshot."""
    return SnapshotInfo(
        index=Index(snapshot["index"]),
        term=Term(snapshot["term"]),
        bytes=snapshot["bytes"],
        created=snapshot.get("created", 0.0),
        seconds=snapshot.get("seconds", 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The members of a cluster: node to the address where it listens.

    ``outgoing`` are the voters of before while a change is half-way: then both sets need a majority; {} otherwise.
    ``joining`` are the learners that become voters by themselves when they have caught up, each with the voter whose
    place it takes ("" = beside the others). ``generation`` counts the changes.
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
        """Whether a change is not over yet: half-way, or with learners that are going to be voters."""
        return bool(self.outgoing or self.joining)


def members_of(told: Mapping[str, Any]) -> Members:
    """Read what a node says of the membership."""
    sets = {name: dict(told.get(name) or {}) for name in ("voters", "learners", "outgoing", "joining")}
    return Members(generation=int(told["generation"]), **sets)
