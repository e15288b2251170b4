"""The admission view: the applied state as it will be once everything in the leader's log is applied."""

from __future__ import annotations

from collections.abc import Iterable

from viewstamp.errors import OverloadedError, PositionMismatchError, UnavailableError
from viewstamp.ids import Position, Sequence, SessionId, TopicId
from viewstamp.streams.session import SessionState
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.commands import Command

__all__ = ["AdmissionView", "Pending", "mismatch", "refusal"]

_KEPT_BYTES = 1024 * 1024
"""Limit of the batches from which decoded commands are kept, because these can take 80 times as much memory. The
commands of others are decoded again when they are applied."""


class Pending:
    """The batches of one session that are in the log and not applied.

    Invariants:
      * ``batches >= 1``: an entry without batches in the log is removed
      * ``last`` >= the session's applied ``last``
    """

    __slots__ = ("batches", "fenced", "last")

    def __init__(self, last: Sequence) -> None:
        self.last = last
        self.batches = 0
        """The session's RECORDS, COMMANDS and FENCE batches that are in the log and not applied."""
        self.fenced: list[range] = []
        """Sequences that a fence in the log will decide; no batch with one of them is in the log."""


class AdmissionView:
    """The differences between the applied state and the leader's whole log. One object for each leadership.

    Invariants:
      * ``pending`` is ordered by the latest use in the log
      * at most one batch in the log will forget sessions, an OPEN_SESSION or an EXPIRE_SESSIONS; ``victims`` are the
        sessions that it forgets
      * commands of an actor that a record in the log is about to spread are not admitted
      * topics of a COMMIT in the log that is not applied accept no records, because their next positions are unknown
      * topics of a SEAL_STREAM in the log that is not applied accept no records
      * commands are kept for batches that are in the log and not applied, of at most ``_KEPT_BYTES`` together
    """

    __slots__ = (
        "_commands",
        "_commands_bytes",
        "_opens",
        "_positions",
        "committing",
        "pending",
        "sealing",
        "spreading",
        "staged_bytes",
        "victims",
    )

    def __init__(self) -> None:
        self.pending: dict[SessionId, Pending] = {}
        self.victims: frozenset[SessionId] = frozenset()
        """The sessions that a batch in the log will forget."""
        self._positions: dict[TopicId, Position] = {}
        self._commands: dict[tuple[SessionId, Sequence], list[Command]] = {}
        self._commands_bytes = 0
        """The size of the batches whose commands are kept."""
        self.committing: dict[int, int] = {}
        """By topic, the number of COMMITs in the log that may assign positions of it."""
        self.staged_bytes = 0
        """The size of staged batches that are in the log and not applied."""
        self._opens = 0
        self.spreading: dict[str, int] = {}
        """By the name of an actor, the number of records in the log that spread it and are not applied."""

        self.sealing: dict[TopicId, int] = {}
        """By topic, the number of SEAL_STREAMs in the log that are not applied."""

    def seal(self, topic: TopicId) -> None:
        """Record that a SEAL_STREAM enters the log."""
        self.sealing[topic] = self.sealing.get(topic, 0) + 1

    def sealed(self, topic: TopicId) -> None:
        """Record that a SEAL_STREAM that was admitted here is applied."""
        left = self.sealing.pop(topic, 1) - 1
        if left:
            self.sealing[topic] = left

    def check_not_sealing(self, topic: TopicId) -> None:
        """Check that no record in the log is about to seal a stream.

        The refusal is no StreamSealedError, because the record may still be cut from the log.

        Raises:
          UnavailableError: one is; the batch is certainly not in the log.
        """
        if topic in self.sealing:
            raise UnavailableError(f"topic {topic} is being sealed; nothing was written", remedy="try again at once")

    def spread(self, actor: str) -> None:
        """Record that a SPREAD_ACTOR enters the log."""
        self.spreading[actor] = self.spreading.get(actor, 0) + 1

    def spread_applied(self, actor: str) -> None:
        """Record that a SPREAD_ACTOR that was admitted here is applied, with or without effect."""
        left = self.spreading.pop(actor, 1) - 1
        if left:
            self.spreading[actor] = left

    def check_not_spreading(self, commands: Iterable[Command]) -> None:
        """Check that no record in the log is about to spread an actor of these commands.

        Raises:
          UnavailableError: one is; the batch is certainly not in the log, and is refused or accepted a moment later.
        """
        for command in commands:
            if command.actor in self.spreading:
                raise UnavailableError(
                    f"actor {command.actor!r} is being spread over groups; nothing was written",
                    remedy="try again at once",
                )

    def keep_commands(self, batch: Batch, commands: list[Command]) -> None:
        """Keep the decoded commands of a batch that enters the log, until it is applied, if they are not too many."""
        if self._commands_bytes + batch.size <= _KEPT_BYTES:
            self._commands_bytes += batch.size
            self._commands[batch.session, batch.sequence] = commands

    def take_commands(self, batch: Batch) -> list[Command] | None:
        """Return the decoded commands of a batch that is being applied, once; None = they were not kept here."""
        commands = self._commands.pop((batch.session, batch.sequence), None)
        if commands is not None:
            self._commands_bytes -= batch.size
        return commands

    def commit(self, topics: Iterable[int]) -> None:
        """Record that a COMMIT enters the log that may assign positions of these topics."""
        for topic in topics:
            self.committing[topic] = self.committing.get(topic, 0) + 1

    def committed(self, topics: Iterable[int]) -> None:
        """Record that a COMMIT that was admitted here is applied, with or without effect."""
        for topic in topics:
            self.committing[topic] -= 1
            if not self.committing[topic]:
                del self.committing[topic]
            # Records after it take the positions that are next now; no record before it is left in the log.
            self._positions.pop(TopicId(topic), None)

    def check_settled(self, topic: TopicId) -> None:
        """Check that no COMMIT in the log is about to decide the topic's next position.

        Raises:
          UnavailableError: one is; the batch is certainly not in the log, and is accepted a moment later.
        """
        if topic in self.committing:
            raise UnavailableError(
                f"a sink's commit to topic {topic} is in the log, but not applied yet; nothing was written",
                remedy="try again at once",
            )

    def next_position(self, topic: TopicId, applied_next: Position) -> Position:
        """Return the topic's next position after everything in the log."""
        return self._positions.get(topic, applied_next)

    def take_positions(self, topic: TopicId, applied_next: Position, count: int) -> Position:
        """Assign ``count`` positions of a topic to the batch that enters the log next; return the first."""
        first = self._positions.get(topic, applied_next)
        self._positions[topic] = first + count  # type: ignore[assignment]  # without Position(...), a function call
        return first

    def last(self, session: SessionState) -> Sequence:
        """Return the session's last sequence, including batches in the log that are not applied."""
        pending = self.pending.get(session.id)
        return session.last if pending is None else pending.last

    def use(self, session: SessionState, sequence: Sequence, *, fence: bool) -> None:
        """Record that a batch of ``session`` with ``sequence`` enters the log."""
        pending = self.pending.pop(session.id, None) or Pending(session.last)
        if sequence > pending.last:
            if fence:
                pending.fenced.append(range(pending.last + 1, sequence + 1))
            pending.last = sequence
        pending.batches += 1
        self.pending[session.id] = pending

    def open_session(self, applied: dict[SessionId, SessionState], sessions_max: int) -> None:
        """Record that an OPEN_SESSION enters the log.

        Raises:
          OverloadedError: the session that it would forget is not known yet, because another batch that forgets
            sessions is in the log, or a session that is still being opened might be the oldest.
        """
        if len(applied) + self._opens >= sessions_max:
            victim = next((session for session in applied if session not in self.pending), None)
            if self.victims or (victim is None and self._opens):
                raise OverloadedError(
                    f"{sessions_max} sessions are open, and another one is being replaced; no session was opened",
                    remedy="try again at once",
                )
            self.victims = frozenset([next(iter(self.pending)) if victim is None else victim])
        self._opens += 1

    def expire(self, sessions: Iterable[SessionId]) -> None:
        """Record that an EXPIRE_SESSIONS enters the log.

        Raises:
          UnavailableError: another batch that forgets sessions is in the log, or one of these sessions is used there.
        """
        victims = frozenset(sessions)
        if self.victims or not victims.isdisjoint(self.pending):
            raise UnavailableError("another batch in the log ends or uses these sessions", remedy="try again at once")
        self.victims = victims

    def check_kept(self, session: SessionId) -> None:
        """Check that no batch in the log forgets the session.

        Raises:
          UnavailableError: one does; the batch is certainly not in the log. A retry finds the session kept or gone.
        """
        if session in self.victims:
            raise UnavailableError(f"session {session} is about to end; nothing was written", remedy="try again")

    def applied(self, batch: Batch) -> None:
        """Record that a batch with a session, admitted here, is applied."""
        pending = self.pending.get(batch.session)
        if pending is None:
            return
        pending.batches -= 1
        if pending.batches == 0:
            del self.pending[batch.session]
        elif pending.fenced and pending.fenced[0][-1] <= batch.sequence:
            del pending.fenced[0]

    def session_opened(self, *, forgot: bool) -> None:
        """Record that an OPEN_SESSION, admitted here, is applied."""
        self._opens -= 1
        if forgot:
            self.victims = frozenset()

    def expired(self) -> None:
        """Record that an EXPIRE_SESSIONS, admitted here, is applied."""
        self.victims = frozenset()


def refusal(batch: Batch) -> Batch:
    """Return the FENCE for an append whose expected position is not the next one; its value is that position."""
    return build_batch(
        [b"%d" % batch.first_position],
        kind=Kind.FENCE,
        topic=batch.topic,
        session=batch.session,
        sequence=batch.sequence,
    )


def mismatch(topic: str, expected: int, actual: Position) -> PositionMismatchError:
    """Return the error for an append that expected another position than the next one."""
    return PositionMismatchError(
        f"the next position of topic {topic!r} is {actual}, not {expected}: nothing was written",
        actual=actual,
        remedy=f"read the record at {expected}, then decide again, or append without an expected position"
        if actual > expected
        else f"expect position {actual}, or append without an expected position",
    )
