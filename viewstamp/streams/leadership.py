"""The decisions of a leader about batches, before they enter the log. The package's docstring has their table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from viewstamp.actors.replicated import ActorHost
from viewstamp.errors import OverloadedError, RequestError, UnavailableError
from viewstamp.ids import Position
from viewstamp.node.access import Credentials
from viewstamp.node.state_machine import Accepted, Admission, Answered, Waiting
from viewstamp.streams.admission import AdmissionView, mismatch, refusal
from viewstamp.streams.answers import answered
from viewstamp.streams.gate import StateGate, not_owned
from viewstamp.streams.sealing import decode_seal
from viewstamp.streams.sessions import EXPIRED_MAX, decode_expiry, encode_expiry
from viewstamp.streams.settings import decode_settings, decode_trim
from viewstamp.streams.state import State
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.commands import check_containers
from viewstamp.wire.names import check_new_sink, check_new_topic
from viewstamp.wire.sink_parts import decode_commit_parts
from viewstamp.wire.staged import CommitRequest, decode_commit, decode_fields, entries_of

__all__ = ["ATTEMPTS_MAX", "Leadership", "StreamLimits", "topics_of"]

ATTEMPTS_MAX = 10_000
_WAITING = Waiting()
_NO_POSITION = Accepted(Position(0))


@dataclass(slots=True)
class StreamLimits:
    """The settings of a machine that decide about its batches.

    Attributes:
      sessions_max: the largest number of sessions.
      session_us: a leader ends a session that was unused for so many microseconds.
      topics_max: the largest number of topics.
      staged_bytes_max: the quota for the staged records of all sinks, in bytes.
      staged_quota: the name of the setting ``staged_bytes_max``, for error messages.
      call_result_bytes_max: the limit of one command's result, in bytes.
    """

    sessions_max: int
    session_us: int
    topics_max: int
    staged_bytes_max: int
    staged_quota: str
    call_result_bytes_max: int


class Leadership:
    """Decides for a leader which batches enter its log. One object for each leadership.

    The state is not replaced meanwhile, because a leader does not adopt a state.

    Args:
      state: the applied state.
      actors: the instances of actors in it.
      gate: decides about the rights of callers.
      limits: the settings.
      check_owned: checks that this group owns the instances of calls.
    """

    def __init__(
        self,
        state: State,
        actors: ActorHost,
        gate: StateGate,
        limits: StreamLimits,
        check_owned: Callable[[Iterable[tuple[str, str | None]]], None],
    ) -> None:
        self.view = AdmissionView()
        self._state = state
        self._actors = actors
        self._gate = gate
        self._limits = limits
        self._check_owned = check_owned
        self._commands_accepted = Accepted(Position(limits.call_result_bytes_max))

    def admit(self, batch: Batch, caller: Credentials | None = None) -> Admission:
        """Decide about a client's batch; as :meth:`Streams.admit`."""
        view = self.view
        if not self._gate.access.is_on:
            caller = None
        match batch.kind:
            case Kind.RECORDS | Kind.COMMANDS | Kind.STAGED:
                return self._admit_next(batch, caller)
            case Kind.FENCE:
                return self._admit_fence(batch, caller)
            case _:
                if caller is not None:
                    self._gate.check_batch(caller, batch)
        match batch.kind:
            case Kind.OPEN_SESSION:
                view.open_session(self._state.sessions.by_id, self._limits.sessions_max)
            case Kind.EXPIRE_SESSIONS:
                view.expire(decode_expiry(batch))
            case Kind.CREATE_TOPIC:
                settings = decode_settings(batch)
                if self._state.creatable(settings, self._limits.topics_max) is None:
                    check_new_topic(settings.name)
            case Kind.CONFIGURE_TOPIC:
                self._state.named(decode_settings(batch).name)
            case Kind.CONFIGURE_ARCHIVE:
                topic, settings, _ = self._state.archivable(batch, self._limits.topics_max)
                if topic is None:
                    check_new_topic(settings.name)
            case Kind.CONFIGURE_SCHEMA:
                self._state.schemable(batch)
            case Kind.TRIM_TOPIC:
                self._check_trim(*decode_trim(batch))
            case Kind.BEGIN_ATTEMPT:
                return self._admit_attempt(batch)
            case Kind.BEGIN_PART:
                self._check_attempts()
            case Kind.COMMIT:
                return self._admit_commit(batch)
            case Kind.COMMIT_PARTS:
                return self._admit_commit_parts(batch)
            case (
                Kind.PLACE_GROUP
                | Kind.HOSTED
                | Kind.CANCEL_GROUP
                | Kind.REMOVE_GROUP
                | Kind.HOST_GROUP
                | Kind.UNHOST_GROUP
                | Kind.LEFT_GROUP
                | Kind.SPREAD_TOPIC
                | Kind.CONFIGURE_SPREAD
                | Kind.CONFIGURE_SPREAD_SCHEMA
                | Kind.CONFIGURE_SPREAD_ARCHIVE
                | Kind.TRIM_SPREAD
                | Kind.ADD_STREAM
                | Kind.CLOSE_STREAM
                | Kind.SEALED_STREAM
                | Kind.LOSE_STREAM
                | Kind.LOSE_SEALED_STREAM
                | Kind.GONE_STREAM
                | Kind.DROP_STREAM
                | Kind.ORDER
                | Kind.CONTEXT
            ):
                settled = self._state.find_settled(batch)
                if settled is not None:
                    return Answered(settled)
            case Kind.SEAL_STREAM:
                self._state.check_sealable(batch)
                if self._state.sealed.is_settled(batch, self._state.names):
                    return Answered({})
                view.seal(self._state.names[decode_seal(batch, self._state.names)].id)
            case Kind.SPREAD_ACTOR:
                return self._admit_spread_actor(batch)
            case Kind.PREPARE_RUN | Kind.COMMIT_RUN | Kind.DROP_RUN | Kind.FORGET_RUN:
                self._state.runs.check(batch, self._state.topics, self._state.maps)
            case Kind.CONFIGURE_KEYED:
                self._state.keys.configure(batch, self._state.names, apply=False)
            case Kind.PREPARE_KEYS | Kind.COMMIT_KEYS | Kind.DROP_KEYS | Kind.FORGET_KEYS:
                self._state.keys.check(batch, self._state.topics)
        return _NO_POSITION

    def upkeep(self, log_time: int, now: int) -> Batch | None:
        """Return the batch that a leader proposes by itself; None = none is needed; as :meth:`Streams.upkeep`."""
        view = self.view
        if view.victims:
            return None
        idle = self._state.sessions.idle(now - self._limits.session_us)
        expired = list(islice((each for each in idle if each not in view.pending), EXPIRED_MAX))
        is_due = any(
            not each.is_due(log_time) and each.is_due(now) for each in (self._state.staging, self._state.access)
        )
        return encode_expiry(expired) if expired or is_due or self._state.has_ended(log_time, now) else None

    def _check_trim(self, name: str, position: Position) -> None:
        """Check a trim by the whole log, because its caller may have read a record of it that is applied elsewhere."""
        topic = self._state.named(name)
        end = self.view.next_position(topic.id, topic.next_position)
        if position > end:
            self.view.check_settled(topic.id)
        self._state.trimmable(name, position, end)

    def _admit_spread_actor(self, batch: Batch) -> Admission:
        view = self.view
        state = self._state
        actor = state.spread_actors.find_settled(batch, state.placements, self._actors.count_instances)
        if actor is not None:
            return Answered({"actor": actor.describe()})
        view.spread(decode_fields(batch, name=str)[0])
        return _NO_POSITION

    def _admit_attempt(self, batch: Batch) -> Admission:
        staging = self._state.staging
        committed = staging.check_begin(batch)
        if committed is not None:
            return Answered({"attempt": 0, "commit": committed})
        (sink,) = decode_fields(batch, sink=str)
        if sink not in staging.sinks:
            check_new_sink(sink)
        self._check_attempts()
        return _NO_POSITION

    def _check_attempts(self) -> None:
        attempts = len(self._state.staging.attempts)
        if attempts >= ATTEMPTS_MAX:
            raise OverloadedError(
                f"{attempts} attempts are being staged, which is the limit; none was begun", remedy="try again later"
            )

    def _admit_commit_parts(self, batch: Batch) -> Admission:
        state = self._state
        commit = decode_commit_parts(batch)
        sink = state.staging.check_commit(commit.attempts)
        if commit.batch <= sink.batch:
            return Answered({"commit": sink.committed(commit.batch, duplicate=True)})
        state.commits.check(commit, state.spread.by_stream, state.order.sealed)
        state.commits.check_room()
        return _NO_POSITION

    def _admit_commit(self, batch: Batch) -> Admission:
        view = self.view
        request = decode_commit(batch)
        sink = self._state.staging.check_commit(request)
        if request.batch <= sink.batch:
            return Answered({"commit": sink.committed(request.batch, duplicate=True)})
        self._state.check_unsealed(request)
        view.commit(topics_of(request))
        return _NO_POSITION

    def _check_staged(self, batch: Batch) -> None:
        """Refuse a staged batch whose attempt is not open, or that exceeds the quota."""
        staging = self._state.staging
        attempt = staging.open_attempt(batch.attempt)
        limit = self._limits.staged_bytes_max
        if staging.bytes + self.view.staged_bytes + batch.size <= limit:
            return
        own = sum(a.bytes for a in staging.attempts.values() if (a.sink, a.batch) == (attempt.sink, attempt.batch))
        if own + batch.size > limit:
            raise RequestError(
                f"batch {attempt.batch} of sink {attempt.sink!r} holds {own} staged bytes, including attempts that were"
                f" given up; the staging quota is {limit} bytes for all sinks together ({self._limits.staged_quota})",
                remedy="write smaller batches (of a stream: fewer files or records a trigger; of a batch write: pieces"
                " with a name each, because one write becomes visible at one moment), or raise"
                f" {self._limits.staged_quota}; if most of it was given up, abort the batch and write it again",
            )
        raise OverloadedError(
            f"{staging.bytes} bytes are staged and not committed; the staging quota is {limit} bytes for all sinks"
            f" together ({self._limits.staged_quota})",
            remedy=f"try again when other sinks have committed, or raise {self._limits.staged_quota}",
        )

    def _admit_next(self, batch: Batch, caller: Credentials | None) -> Admission:
        view = self.view
        sessions = self._state.sessions
        session = sessions.by_id.get(batch.session) or sessions.find(batch.session)
        sequence = batch.sequence
        if caller is not None:
            if caller.version != self._gate.access.version:
                self._gate.refresh(caller)
            if caller.owner != session.owner:
                raise not_owned(session.id)
        if sequence <= session.last:
            if batch.first_position and (actual := session.mismatch(sequence)):
                raise mismatch(self._state.name_of(batch.topic), batch.first_position, actual)
            return answered(session, sequence, is_alive=caller is None or caller.is_alive)
        last = view.last(session)
        if sequence <= last:
            if any(sequence in fenced for fenced in view.pending[session.id].fenced):
                raise UnavailableError(
                    f"sequence {sequence} of session {session.id} is being fenced, because its outcome was requested",
                    remedy="ask for its outcome",
                )
            return _WAITING
        if caller is not None:
            self._gate.check_known()
            if not caller.is_alive:
                self._gate.check_alive(caller)  # Before the order, because an ended token cannot fill a gap any more.
        state = self._state
        if state.sealed.names and batch.kind is not Kind.COMMANDS:
            # Before the order, so that a client gets one answer for all its batches, not first one for the gap.
            state.sealed.check(state.topic(batch.topic).name)
        if sequence != last + 1:
            raise UnavailableError(
                f"session {session.id} is at sequence {last}, so {sequence} is out of order",
                remedy=f"send again from sequence {last + 1} on",
            )
        if batch.kind is Kind.COMMANDS:
            check_containers(batch.column()[1])
            commands = self._actors.decode(batch)
            if caller is not None:
                self._gate.check_commands(caller, commands)
            self._actors.check(commands)
            if view.spreading:
                view.check_not_spreading(commands)
            self._check_owned((command.actor, command.key) for command in commands)
            view.check_kept(session.id)
            view.use(session, sequence, fence=False)
            view.keep_commands(batch, commands)
            return self._commands_accepted
        topic = state.topics.get(batch.topic) or state.topic(batch.topic)
        if caller is not None and topic.id not in caller.granted:
            self._gate.check_topic(caller, topic.id)
        if batch.kind is Kind.STAGED:
            if caller is not None:
                self._gate.check_attempt(caller, batch.attempt)
            self._check_staged(batch)
            view.check_kept(session.id)
            view.use(session, sequence, fence=False)
            view.staged_bytes += batch.size
            return _NO_POSITION
        if view.committing:
            view.check_settled(topic.id)
        if view.sealing:
            view.check_not_sealing(topic.id)
        if view.victims:
            view.check_kept(session.id)
        expected = batch.first_position
        if expected and expected != view.next_position(topic.id, topic.next_position):
            # The record at that position may still be truncated. The refusal stands after it in the log, so if the
            # refusal is committed, the record is committed too.
            view.use(session, sequence, fence=True)
            return Accepted(Position(0), instead=refusal(batch))
        view.use(session, sequence, fence=False)
        return Accepted(view.take_positions(topic.id, topic.next_position, batch.count))

    def _admit_fence(self, batch: Batch, caller: Credentials | None) -> Admission:
        view = self.view
        session = self._state.sessions.find(batch.session)
        is_alive = True
        if caller is not None:
            self._gate.refresh(caller)
            is_alive = caller.is_alive
            if caller.owner != session.owner and not caller.is_administrator:
                raise not_owned(session.id)
        if batch.sequence <= session.last:
            return answered(session, batch.sequence, is_alive=is_alive)
        if not is_alive:
            if batch.sequence <= view.last(session):
                raise UnavailableError(f"sequence {batch.sequence} is in the log, but not applied", remedy="try again")
            if self._gate.ends_everywhere:  # No leader will ever admit it, so no fence is needed.
                return Answered(None)
        view.check_kept(session.id)
        view.use(session, batch.sequence, fence=True)
        return _NO_POSITION


def topics_of(request: CommitRequest) -> set[int]:
    """Return the ids of the topics that a COMMIT names."""
    return {entry.topic for _, entries in request.parts for entry in entries_of(entries)}
