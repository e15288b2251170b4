"""``Streams``: the state machine that a node runs, with one synchronous call per batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import blake2b
from typing import cast

from viewstamp.actors.replicated import ActorHost, ReplicatedActor
from viewstamp.actors.replicated.cut import read_pieces
from viewstamp.actors.replicated.host import RESULT_BYTES_MAX as CALL_RESULT_BYTES_MAX
from viewstamp.actors.replicated.host import Prepared
from viewstamp.errors import (
    FrameError,
    OutdatedCodeError,
    RequestError,
)
from viewstamp.ids import GROUP_0, GroupId, Index, Position, SessionId
from viewstamp.node.access import Credentials
from viewstamp.node.actor_owners import OwnedQuery
from viewstamp.node.state_machine import (
    ActorChangesQuery,
    ActorQuery,
    Admission,
    AnswerT,
    CommandResults,
    Placement,
    Query,
    Result,
    SnapshotView,
    StateMachine,
)
from viewstamp.streams.admission import AdmissionView, mismatch
from viewstamp.streams.answers import answer_to
from viewstamp.streams.cut import StateCut, StreamsCut, founders_in, load_actors, load_state
from viewstamp.streams.gate import StateGate
from viewstamp.streams.leadership import Leadership, StreamLimits, topics_of
from viewstamp.streams.ledger import TOPICS_MAX, Ledger, diverged
from viewstamp.streams.resharding import HeldInstances, apply_resharding
from viewstamp.streams.sealing import decode_seal
from viewstamp.streams.session import SessionState
from viewstamp.streams.sessions import decode_expiry
from viewstamp.streams.state import State
from viewstamp.wire.access import owner_of
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.commands import Command
from viewstamp.wire.resharding import PackedInstance
from viewstamp.wire.staged import decode_commit, decode_fields

__all__ = [
    "RESULT_BYTES_MAX",
    "SESSIONS_MAX",
    "SESSION_SECONDS",
    "STAGED_BYTES_MAX",
    "TOPICS_MAX",
    "Streams",
]

SESSIONS_MAX = 10_000
SESSION_SECONDS = 7 * 24 * 3600.0
RESULT_BYTES_MAX = 256 * 1024 * 1024
"""The limit for the results of all sessions together, without those of the session that called last."""
STAGED_BYTES_MAX = 1024 * 1024 * 1024
_DIGEST_PIECE = 1024 * 1024
_SPREAD = 0x9E37_79B9_7F4A_7C15
_MASK = (1 << 64) - 1
_OF_INSTANCES = (ActorQuery, ActorChangesQuery)
"""The queries about instances, each of which has one owner."""


class Streams:
    """Topics, sessions and actors as a ``node.state_machine.StateMachine``. The package's docstring specifies it.

    Never awaits. ``sessions_max``, ``result_bytes_max`` and ``topics_max`` are part of the replicated behaviour, so
    they must be equal on all members.

    Args:
      classes: the actors: name to class.
      sessions_max: the largest number of sessions.
      session_seconds: a leader ends a session that was unused for this long.
      result_bytes_max: the limit for the kept results of all sessions, in bytes.
      topics_max: the largest number of topics.
      staged_bytes_max: the quota for the staged records of all sinks, in bytes; applied by the leader.
      call_result_bytes_max: the limit of one command's or query's result, in bytes. The leader's value counts; it
        travels with each batch of commands.
      staged_quota: the name of the setting ``staged_bytes_max``, for error messages.
    """

    def __init__(
        self,
        classes: Mapping[str, type[ReplicatedActor]] | None = None,
        *,
        sessions_max: int = SESSIONS_MAX,
        session_seconds: float = SESSION_SECONDS,
        result_bytes_max: int = RESULT_BYTES_MAX,
        topics_max: int = TOPICS_MAX,
        staged_bytes_max: int = STAGED_BYTES_MAX,
        call_result_bytes_max: int = CALL_RESULT_BYTES_MAX,
        staged_quota: str = "[limits] staged_bytes_max",
    ) -> None:
        """Create a state machine without topics, sessions and instances. Raises as ``ActorHost`` does."""
        assert sessions_max >= 1
        self._actors = ActorHost(classes or {}, result_bytes_max=call_result_bytes_max)
        self._limits = StreamLimits(
            sessions_max,
            round(session_seconds * 1e6),
            topics_max,
            staged_bytes_max,
            staged_quota,
            call_result_bytes_max,
        )
        self._result_bytes_max = result_bytes_max
        self._ledger = Ledger(State(), topics_max=topics_max)
        self.gate = StateGate(self._ledger.state)
        """Decides about the rights of callers, always by the applied state."""
        self._group = GROUP_0
        self._group_0: StateMachine = self
        self._leadership: Leadership | None = None
        self._view: AdmissionView | None = None
        """That of the leadership."""
        self._cut: StreamsCut | None = None
        """The open cut. It is called before each change."""

    @property
    def _state(self) -> State:
        return self._ledger.state

    def follow(self, group: GroupId, group_0: StateMachine) -> None:
        """Become the state machine of another group than 0; see :class:`StateMachine`."""
        self._group, self._group_0 = group, group_0
        self._actors.enter(group)
        self._state.runs.group = group

    def _check_owned(self, calls: Iterable[tuple[str, str | None]]) -> None:
        """Check that this group owns the instances of calls. Raises UnknownActorError, UnavailableError.

        An instance that another group than 0 has was created because the group owns it, which never changes. So calls
        of such instances go on while this node lags behind group 0, for example after a restart without its majority.
        After a reshard the group has the owners from its own log, because group 0 of this node may have older ones.
        """
        own = self._state.spread_actors
        if self._group == GROUP_0:
            if own.actors:
                own.check(calls, GROUP_0)
            return
        new = [(name, key) for name, key in calls if key is None or not self._actors.has_instance(name, key)]
        own.check([call for call in new if call[0] in own.actors], self._group)
        asked = [call for call in new if call[0] not in own.actors]
        if asked:
            self._group_0.query(OwnedQuery(asked, self._group))

    # Leading.

    def begin_leading(self) -> None:
        """Start admitting batches, from the applied state."""
        self._leadership = Leadership(self._state, self._actors, self.gate, self._limits, self._check_owned)
        self._view = self._leadership.view

    def stop_leading(self) -> None:
        """Forget the batches that were admitted and not applied. Idempotent."""
        self._leadership = self._view = None

    def admit(self, batch: Batch, caller: Credentials | None = None) -> Admission:
        """Decide about a client's batch. An ``Accepted`` batch must be the next to enter the log.

        ``caller``: the sender; None = this node itself, which needs no right.

        Raises:
          AccessDeniedError: the caller lacks the right; neither this batch nor an earlier copy of it is in the log.
          RequestError: the batch will always be refused: unknown topic, actor or session, no session, a forbidden name.
          UnavailableError: the batch is certainly not in the log, and may be accepted later.
        """
        assert self._leadership is not None, "only a leader admits"
        return self._leadership.admit(batch, caller)

    def upkeep(self, log_time: int, now: int) -> Batch | None:
        """Return the batch that a leader proposes by itself; None = none is needed. See :class:`StateMachine`.

        The batch ends the sessions that have been unused for too long. It may name none: if staged records or tokens
        expire by log time, or an age or a delay of archived records ends, it is proposed to advance log time, because a
        full log may accept nothing else before that, and an idle one gets nothing else.
        """
        assert self._leadership is not None, "only a leader proposes"
        return self._leadership.upkeep(log_time, now)

    # Applying.

    def apply(self, batch: Batch) -> Result:
        """Apply a committed batch.

        Raises:
          RequestError: a replicated refusal.
          CorruptionError: the batch contradicts the state, so the members have diverged. The node must stop.
          OutdatedCodeError: this member's code does not know a command. The node must stop.
          BaseException: a command failed because of this process (``ActorHost.apply``). The node must stop.
        """
        match batch.kind:
            case Kind.RECORDS | Kind.STAGED:
                return self._apply_records(batch)
            case Kind.COMMIT:
                return self._apply_commit(batch)
            case Kind.COMMANDS:
                self._ledger.apply(batch)
                return self._apply_commands(batch)
            case Kind.FENCE:
                self._ledger.apply(batch)
                return self._apply_fence(batch)
            case Kind.OPEN_SESSION:
                self._ledger.apply(batch)
                return self._apply_open_session(batch)
            case Kind.EXPIRE_SESSIONS:
                self._ledger.apply(batch)
                return self._apply_expire_sessions(batch)
            case Kind.SEAL_STREAM:
                answer = self._ledger.apply(batch)
                if self._view is not None:
                    self._view.sealed(self._state.names[decode_seal(batch, self._state.names)].id)
                return answer
            case Kind.SPREAD_ACTOR:
                self._ledger.apply(batch)
                return self._apply_spread_actor(batch)
            case Kind.FORK | Kind.FORK_GROUPS:
                owners = self._state.spread_actors
                self._ledger.apply(batch)
                if self._group != GROUP_0:
                    self._state.spread_actors = owners  # From a reshard; a fork gives no slot to another group.
                return self._apply_fork(batch)
            case Kind.RESHARD_ACTOR | Kind.INSTANCES:
                self._ledger.apply(batch)
                if self._cut is not None:
                    self._cut.close()
                apply_resharding(batch, self._state, self._actors, self._group)
                return {}
            case _:
                return self._ledger.apply(batch)

    def _apply_records(self, batch: Batch) -> Placement:
        by_id = self._ledger.state.sessions.by_id  # As `_use`, without a further call for each batch.
        session = by_id.pop(batch.session, None)
        if session is None:
            raise diverged(batch, "a known session, one of", len(by_id), batch.session)
        by_id[batch.session] = session
        if self._cut is not None:
            self._cut.state.before_session(session)
        session.used_at = batch.log_time
        if batch.sequence != session.last + 1:
            raise diverged(batch, "sequence", session.last + 1, batch.sequence)
        self._ledger.apply(batch)
        receipt = Placement(batch.first_position, batch.count, batch.term, batch.first_index, batch.log_time)
        state = self._ledger.state
        state.chain = crc32c(session.applied(receipt), state.chain)
        view = self._view
        if view is not None:
            view.applied(batch)
            if batch.kind is Kind.STAGED:
                view.staged_bytes -= batch.size
        return receipt

    def _apply_commit(self, batch: Batch) -> Result:
        try:
            return self._ledger.apply(batch)
        finally:
            if self._view is not None:
                self._view.committed(topics_of(decode_commit(batch)))

    def _apply_commands(self, batch: Batch) -> CommandResults:
        session = self._use(batch)
        if batch.sequence != session.last + 1:
            raise diverged(batch, "sequence", session.last + 1, batch.sequence)
        view = self._view
        commands = view.take_commands(batch) if view is not None else None
        if commands is None:
            commands = self._decode(batch)
        if self._state.spread_actors.actors and self._group == GROUP_0:
            self._check_unspread(batch, commands)
        results = self._actors.apply(batch, commands)
        receipt = Placement(Position(0), batch.count, batch.term, batch.first_index, batch.log_time)
        held = session.result_bytes
        self._state.chain = crc32c(session.applied(receipt, results), self._state.chain)
        self._count_results(session, held, is_newest=True)
        if view is not None:
            view.applied(batch)
        return CommandResults(receipt, results)

    def _decode(self, batch: Batch) -> list[Command]:
        try:
            return self._actors.decode(batch)
        except (RequestError, FrameError) as error:
            # The leader could decode it, or it would not be in the log. So this is no refusal that all members share.
            raise OutdatedCodeError(
                f"{batch!r} holds commands that this node cannot decode: {error}",
                remedy="upgrade this node and start it again",
            ) from error

    def _apply_fence(self, batch: Batch) -> Result:
        session = self._use(batch)
        if self._view is not None:
            self._view.applied(batch)
        held = session.result_bytes
        topic = self._state.topics.get(batch.topic)
        if topic is None:
            session.fence(batch.sequence)
        elif batch.sequence != session.last + 1:
            raise diverged(batch, "sequence", session.last + 1, batch.sequence)
        else:
            session.refuse(topic.next_position)
        if held:
            self._count_results(session, held, is_newest=False)
        if topic is not None:
            self._state.note(session.id, session.last, topic.next_position)
            raise mismatch(topic.name, int(batch.values()[0]), topic.next_position)
        self._state.note(session.id, session.last)
        return session.result(batch.sequence)

    def _apply_open_session(self, batch: Batch) -> Result:
        sessions = self._state.sessions
        forgotten = next(iter(sessions.by_id)) if len(sessions.by_id) >= self._limits.sessions_max else SessionId(0)
        sessions.forget(forgotten)
        session = SessionState(SessionId(batch.first_index), batch.log_time, owner_of(batch.values()[0]))
        sessions.add(session)
        self._state.note(session.id, forgotten)
        if self._view is not None:
            self._view.session_opened(forgot=bool(forgotten))
        return {"session": session.id}

    def _apply_expire_sessions(self, batch: Batch) -> Result:
        expired = decode_expiry(batch)
        for session in expired:
            self._state.sessions.forget(session)
        self._state.note(*expired)
        if self._view is not None:
            self._view.expired()
        return {}

    def _apply_spread_actor(self, batch: Batch) -> Result:
        """Spread an actor that has no instance. Not in the ledger, because that does not know the instances."""
        state = self._state
        (name,) = decode_fields(batch, name=str)
        if self._view is not None:
            self._view.spread_applied(name)
        is_new = name not in state.spread_actors.actors
        actor = state.spread_actors.apply(batch, state.placements, self._actors.count_instances)
        state.note(batch.kind, actor.id, *actor.groups)
        if is_new:
            state.access.note(batch, "actor spread", f"{actor.name}: groups {', '.join(map(str, actor.groups))}")
        return {"actor": actor.describe()}

    def _check_unspread(self, batch: Batch, commands: Iterable[Command]) -> None:
        """Check that no command of a committed batch is for a spread actor: no leader of group 0 admits such a one."""
        spread = self._state.spread_actors.actors
        for command in commands:
            if command.actor in spread:
                raise diverged(batch, f"instances of {command.actor!r}", 0, 1)

    def _apply_fork(self, batch: Batch) -> Result:
        """End all sessions, because their clients belong to the cluster from which this one was forked."""
        ended = self._state.sessions.clear()
        self._state.note(Kind.FORK, ended)
        return {}

    def _use(self, batch: Batch) -> SessionState:
        """Return the batch's session as the most recently used one, and prepare it for a change."""
        by_id = self._ledger.state.sessions.by_id
        session = by_id.pop(batch.session, None)
        if session is None:
            raise diverged(batch, "a known session, one of", len(by_id), batch.session)
        by_id[batch.session] = session
        if self._cut is not None:
            self._cut.state.before_session(session)
        session.used_at = batch.log_time
        return session

    def _before_session(self, session: SessionState) -> None:
        if self._cut is not None:
            self._cut.state.before_session(session)

    def _count_results(self, session: SessionState, held_before: int, *, is_newest: bool) -> None:
        sessions = self._state.sessions
        sessions.count_results(session, held_before, is_newest=is_newest)
        if sessions.result_bytes > self._result_bytes_max:
            sessions.bound_results(self._result_bytes_max, self._before_session)

    def query(self, query: Query[AnswerT], /) -> AnswerT:
        """Read the applied state. Raises as :func:`viewstamp.streams.answers.answer_to`, and for another's instance."""
        if isinstance(query, _OF_INSTANCES):
            self._check_owned([(query.actor, query.key)])
        return cast("AnswerT", answer_to(query, self._ledger.state, self._actors))

    def status(self) -> dict[str, object]:
        """Return the status: {"actors": {name: {class, version, instances, digest}}, "staged_bytes", ...}.

        A spread actor has ``groups`` too, which have its instances.
        """
        rows = self._actors.status()
        for name, spread in self._state.spread_actors.actors.items():
            if name in rows:
                rows[name]["groups"] = list(spread.groups)
        return {
            "actors": rows,
            "sessions": len(self._state.sessions.by_id),
            "session_result_bytes": self._state.sessions.result_bytes,
            "topics": len(self._state.topics),
            "sinks": len(self._state.staging.sinks),
            "archived_runs": len(self._state.runs.runs),
            "archived_topics": len(self._state.archiving),
            "keyed_topics": len(self._state.keys.topics),
            "staged_bytes": self._state.staging.bytes,
        }

    # The records that hold the log.

    def keep_from(self) -> Index | None:
        """Return the index of the oldest batch of records that a topic keeps; None = no topic holds records."""
        return self._state.keep_from

    def explain_kept(self) -> str:
        """Explain which records hold the log at ``keep_from``, and how to release them; "" = none do."""
        return self._state.explain_kept()

    # Snapshots.

    def begin_snapshot(self) -> SnapshotView:
        """Begin a cut of the present applied state, without batches that were only admitted. One cut at a time.

        Takes time by the number of topics and sessions, not by their size: 0.2 ms for 10,000 sessions.
        """
        assert self._cut is None, "a cut of this state is open already"
        self._cut = StreamsCut(StateCut(self._state), self._actors.begin_cut(), self._let_go)
        self._ledger.before_topic = self._cut.state.before_topic
        return self._cut

    def _let_go(self, cut: StreamsCut) -> None:
        assert self._cut is cut, "only the open cut closes"
        self._cut = None
        self._ledger.before_topic = None

    def prepare(self, pieces: Iterable[bytes]) -> object:
        """Build a state from the pieces of a cut, in their order. May run in any thread; changes nothing here.

        Raises:
          CorruptionError: the pieces are not a state.
          OutdatedCodeError: they are of newer code than this.
        """
        pieces = iter(pieces)
        state = load_state(pieces)
        return state, self._actors.prepare(load_actors(pieces))

    def founders_in(self, piece: bytes) -> list[str]:
        """Return the incarnations of the founders of groups in the first piece of a cut; in any thread."""
        return founders_in(piece)

    def adopt(self, prepared: object) -> None:
        """Replace the applied state by one that :meth:`prepare` built. Closes an open cut."""
        assert self._view is None, "a leader does not adopt a state"
        if self._cut is not None:
            self._cut.close()
        state, actors = cast("tuple[State, Prepared]", prepared)
        state.runs.group = self._group
        self._ledger = Ledger(state, topics_max=self._limits.topics_max)
        self.gate.adopt(state)
        self._actors.adopt(actors)

    def held(self) -> dict[str, HeldInstances]:
        """Return the instances of each actor that has some, packed. Slow; for files of a stopped cluster.

        Raises:
          RequestError: a state cannot be packed; the message names the instance.
          OutdatedCodeError: the code cannot read a state.
        """
        cut = self.begin_snapshot()
        try:
            pieces = iter(partial(cut.next_piece, _DIGEST_PIECE), None)
            load_state(pieces)
            image = read_pieces(load_actors(pieces))
        finally:
            cut.close()
        sums = {name: int.from_bytes(self._actors.state_sum(name), "little") for name in image.instances}
        versions = {name: row[0] for name, row in image.head["actors"].items()}
        return {
            name: HeldInstances(versions[name], [PackedInstance(*each.stored) for each in instances], sums[name])
            for name, instances in image.instances.items()
            if instances
        }

    # Comparing members.

    @property
    def chain(self) -> int:
        """A 64-bit checksum of all applied batches and results; comparable between members of equal ``lineage``."""
        return self._actors.chain ^ (self._ledger.state.chain * _SPREAD & _MASK)

    @property
    def lineage(self) -> int:
        """A checksum of the code of actors in use, and of the index since which it is in use."""
        return self._actors.lineage

    def trail(self) -> list[tuple[int, int]]:
        """Return (index, checksum after it) of the newest commands, oldest first.

        If chains differ and trails do not, then topics or sessions differ, or a command that is no longer in the trail.
        """
        return list(self._actors.trail)

    def describe_index(self, index: int) -> str:
        """Return the command at ``index`` as text, if it is among the newest ones; else ""."""
        return self._actors.describe_index(index)

    def digest(self) -> bytes:
        """Return 16 bytes that are equal on all members that have applied the same prefix."""
        digest = blake2b(digest_size=16)
        cut = StateCut(self._state)
        while (piece := cut.next_piece(_DIGEST_PIECE)) is not None:
            digest.update(piece)
        digest.update(self._actors.digest())
        return digest.digest()
