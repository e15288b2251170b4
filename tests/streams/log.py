"""A log for tests: gives batches their index and drives state machines like a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgpack
from crc32c import crc32c

from viewstamp.actors.replicated import ReplicatedActor
from viewstamp.ids import Index, Position, Sequence, SessionId, Term, TopicId
from viewstamp.node.state_machine import Accepted, Admission, Placement, Result, SinkQuery, SnapshotView, TopicQuery
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.staged import ENTRY_SIZE, pack_entry


def records(topic: int, session: int, sequence: int, count: int = 1, size: int = 8, expected: int = 0) -> Batch:
    values = [b"x" * size for _ in range(count)]
    batch = build_batch(values, topic=TopicId(topic), session=SessionId(session), sequence=Sequence(sequence))
    batch.first_position = Position(expected)
    return batch


def fence(session: int, sequence: int) -> Batch:
    return build_batch([b""], kind=Kind.FENCE, session=SessionId(session), sequence=Sequence(sequence))


def create_topic(name: object, **settings: object) -> Batch:
    return build_batch([msgpack.packb({"name": name, **settings})], kind=Kind.CREATE_TOPIC)


def configure_topic(name: object, **settings: object) -> Batch:
    return build_batch([msgpack.packb({"name": name, **settings})], kind=Kind.CONFIGURE_TOPIC)


def trim_topic(name: object, position: object) -> Batch:
    return build_batch([msgpack.packb({"name": name, "position": position})], kind=Kind.TRIM_TOPIC)


def open_session() -> Batch:
    return build_batch([b""], kind=Kind.OPEN_SESSION)


class Log:
    """One leader's log over one machine: batches are admitted at its end and applied from its front."""

    def __init__(self, machine: Streams, *, first_index: int = 1, term: int = 1) -> None:
        self.machine = machine
        self.next_index = first_index
        self.term = term
        self.seconds = 0
        """The log's time; each index adds a microsecond."""
        self.unapplied: list[Batch] = []
        self.applied: list[Batch] = []
        machine.begin_leading()

    def propose(self, batch: Batch) -> Admission:
        admission = self.machine.admit(batch)
        if isinstance(admission, Accepted):
            self._append(admission.instead or batch, admission.first_position)
        return admission

    def _append(self, batch: Batch, position: Position) -> None:
        batch.stamp(
            term=Term(self.term),
            first_index=Index(self.next_index),
            previous_term=Term(self.term),
            log_time=self.seconds * 1_000_000 + 1000 + self.next_index,
            first_position=position,
        )
        self.next_index += batch.count
        self.unapplied.append(batch)

    def enter(self, batch: Batch) -> Result:
        """Append a batch like a leader of an earlier version, and apply everything."""
        self._append(batch, Position(0))
        while len(self.unapplied) > 1:
            self.apply()
        return self.apply()

    def apply(self) -> Result:
        batch = self.unapplied.pop(0)
        self.applied.append(batch)
        return self.machine.apply(batch)

    def run(self, batch: Batch) -> Result:
        """Propose a batch that must be accepted, apply everything, and return its result."""
        admission = self.propose(batch)
        assert isinstance(admission, Accepted), admission
        while len(self.unapplied) > 1:
            self.apply()
        return self.apply()

    def session(self) -> int:
        result = self.run(open_session())
        assert isinstance(result, dict)
        session = result["session"]
        assert isinstance(session, int)
        return session

    def topic(self, name: str = "orders", **settings: object) -> int:
        result = self.run(create_topic(name, **settings))
        assert isinstance(result, dict)
        topic = result["topic"]
        assert isinstance(topic, dict)
        return int(topic["id"])

    def describe(self, name: str = "orders") -> dict[str, Any]:
        described = self.machine.query(TopicQuery(name=name))
        assert isinstance(described, dict)
        return described

    def append(self, topic: int, session: int, sequence: int, count: int = 1, size: int = 8) -> Placement:
        result = self.run(records(topic, session, sequence, count, size))
        assert isinstance(result, Placement)
        return result


def first_position(admission: Admission) -> Position:
    assert isinstance(admission, Accepted)
    return admission.first_position


def pieces(cut: SnapshotView, bytes_max: int = 1000) -> Iterator[bytes]:
    """Hand out the rest of a cut."""
    while (piece := cut.next_piece(bytes_max)) is not None:
        yield piece


def restored(
    machine: Streams,
    classes: Mapping[str, type[ReplicatedActor]] | None = None,
    **limits: Any,
) -> Streams:
    """Return a new machine with the present state of ``machine``, passed on in a cut."""
    other = Streams(classes, **limits)
    other.adopt(other.prepare(list(pieces(machine.begin_snapshot()))))
    return other


# Sinks.


def staged(attempt: int, topic: int, session: int, sequence: int, count: int = 1, size: int = 8) -> Batch:
    return build_batch(
        [b"x" * size for _ in range(count)],
        kind=Kind.STAGED,
        topic=TopicId(topic),
        session=SessionId(session),
        sequence=Sequence(sequence),
        attempt=attempt,
    )


def command(kind: Kind, **fields: object) -> Batch:
    return build_batch([msgpack.packb(fields)], kind=kind)


def begin(sink: str = "s", batch: int = 0, name: str = "p0", **fields: object) -> Batch:
    wanted: dict[str, object] = {"owner": "q", "run": "r", "reset": False, "keep_seconds": 3600, "keep_bytes": 0}
    return command(Kind.BEGIN_ATTEMPT, sink=sink, batch=batch, name=name, **(wanted | fields))


def seal(attempt: int, entries: bytes) -> Batch:
    return command(Kind.SEAL_ATTEMPT, attempt=attempt, batches=len(entries) // ENTRY_SIZE, checksum=crc32c(entries))


def abort(sink: str = "s", batch: int = 0, run: str = "r", attempt: int = 0) -> Batch:
    return command(Kind.ABORT_ATTEMPTS, sink=sink, run=run, batch=batch, attempt=attempt)


def commit(*parts: tuple[int, bytes], sink: str = "s", batch: int = 0, owner: str = "q", run: str = "r") -> Batch:
    return command(Kind.COMMIT, sink=sink, owner=owner, run=run, batch=batch, parts=parts)


def forget(name: str = "s") -> Batch:
    return command(Kind.FORGET_SINK, name=name)


def entries(*batches: Batch) -> bytes:
    return b"".join(pack_entry(b.first_index, b.topic, b.count, b.size) for b in batches)


class Stager:
    """Stages into a log like one client, in its own session."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.session = log.session()
        self.sequence = 0

    def begin(self, sink: str = "s", batch: int = 0, name: str = "p0", **fields: object) -> int:
        result = self.log.run(begin(sink, batch, name, **fields))
        assert isinstance(result, dict)
        attempt = result["attempt"]
        assert isinstance(attempt, int)
        return attempt

    def stage(self, attempt: int, topic: int, count: int = 1, size: int = 8) -> Batch:
        self.sequence += 1
        batch = staged(attempt, topic, self.session, self.sequence, count, size)
        receipt = self.log.run(batch)
        assert isinstance(receipt, Placement)
        assert receipt.first_position == 0
        return batch

    def sealed(
        self, *blocks: tuple[int, int], sink: str = "s", batch: int = 0, name: str = "p0", **fields: object
    ) -> tuple[int, bytes]:
        """Stage (topic, count) blocks into a new attempt and seal it; return its part of a COMMIT."""
        attempt = self.begin(sink, batch, name, **fields)
        held = entries(*[self.stage(attempt, topic, count) for topic, count in blocks])
        assert self.log.run(seal(attempt, held)) == {}
        return attempt, held

    def commit(self, *parts: tuple[int, bytes], **fields: Any) -> dict[str, Any]:
        result = self.log.run(commit(*parts, **fields))
        assert isinstance(result, dict)
        committed = result["commit"]
        assert isinstance(committed, dict)
        return committed

    def sink(self, name: str = "s") -> dict[str, Any]:
        described = self.log.machine.query(SinkQuery(name=name))
        assert isinstance(described, dict)
        return described
