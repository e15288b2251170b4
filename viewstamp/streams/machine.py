"""``Streams``: the state machine that a node runs, one synchronous call per batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, cast

from crc32c import crc32c

from viewstamp.actors.replicated import ActorHost, ReplicatedActor
from viewstamp.actors.replicated.host import Prepared
from viewstamp.errors import CorruptionError, FrameError, OutdatedCodeError, RequestError, UnavailableError
from viewstamp.ids import Index, Position, Sequence, SessionId, TopicId
from viewstamp.node.state_machine import Accepted, Admission, Answered, CommandResults, Cut, Receipt, Result, Waiting
from viewstamp.streams.admission import AdmissionView
from viewstamp.streams.cut import StateCut, StreamsCut, load_actors, load_state
from viewstamp.streams.session import Session
from viewstamp.streams.settings import decode_settings, decode_trim
from viewstamp.streams.state import State
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.commands import Command

__all__ = ["SESSIONS_MAX", "TOPICS_MAX", "Streams"]

SESSIONS_MAX = 10_000
TOPICS_MAX = 10_000
_DIGEST_PIECE = 1024 * 1024
_SPREAD = 0x9E37_79B9_7F4A_7C15
_MASK = (1 << 64) - 1
_WAITING = Waiting()
_NO_POSITION = Accepted(Position(0))


class Streams:
    """Topics, sessions and actors behind ``node.state_machine.StateMachine``; the package's docstring specifies it.

    The limits are part of the replicated behaviour: they must be equal on all members. Never awaits.
    """

    def __init__(
        self,
        classes: Mapping[str, type[ReplicatedActor]] | None = None,
        *,
        sessions_max: int = SESSIONS_MAX,
        topics_max: int = TOPICS_MAX,
    ) -> None:
        """Take the classes of actors by the names that callers use. Raises as ``ActorHost`` does."""
        assert sessions_max >= 1
        self._actors = ActorHost(classes or {})
        self._sessions_max = sessions_max
        self._topics_max = topics_max
        self._state = State()
        self._view: AdmissionView | None = None
        self._cut: StreamsCut | None = None
        """The cut that is being handed out; it is told of every change before it happens."""

    # Leading.

    def begin_leading(self) -> None:
        """Start admitting from the applied state."""
        self._view = AdmissionView()

    def stop_leading(self) -> None:
        """Forget what was admitted and not applied. Idempotent."""
        self._view = None

    def admit(self, batch: Batch) -> Admission:
        """Decide what becomes of a client's batch; an ``Accepted`` one must be the next to enter the log.

        Raises:
          RequestError: wrong, and always will be: unknown topic, actor or session, no session, a forbidden name.
          UnavailableError: certainly not in the log, and the same batch may be accepted later.
        """
        view = self._view
        assert view is not None, "only a leader admits"
        match batch.kind:
            case Kind.RECORDS | Kind.COMMANDS:
                return self._admit_next(view, batch)
            case Kind.FENCE:
                return self._admit_fence(view, batch)
            case Kind.OPEN_SESSION:
                view.open_session(self._state.sessions, self._sessions_max)
            case Kind.CREATE_TOPIC:
                self._state.creatable(decode_settings(batch), self._topics_max)
            case Kind.CONFIGURE_TOPIC:
                self._state.named(decode_settings(batch).name)
            case Kind.TRIM_TOPIC:
                self._state.trimmable(*decode_trim(batch))
            case _:
                pass
        return _NO_POSITION

    def _admit_next(self, view: AdmissionView, batch: Batch) -> Admission:
        session = self._state.session(batch.session)
        sequence = batch.sequence
        if sequence <= session.last:
            return _answered(session, sequence)
        last = view.last(session)
        if sequence <= last:
            if any(sequence in fenced for fenced in view.pending[session.id].fenced):
                raise UnavailableError(
                    f"sequence {sequence} of session {session.id} is being fenced", remedy="ask for its outcome"
                )
            return _WAITING
        if sequence != last + 1:
            raise UnavailableError(
                f"session {session.id} is at sequence {last}, so {sequence} is out of order",
                remedy=f"send again from sequence {last + 1} on",
            )
        if batch.kind is Kind.COMMANDS:
            commands = self._actors.decode(batch)
            self._actors.check(commands)
            view.check_kept(session.id)
            view.use(session, sequence, fence=False)
            view.keep_commands(batch, commands)
            return _NO_POSITION
        topic = self._state.topic(batch.topic)
        view.check_kept(session.id)
        view.use(session, sequence, fence=False)
        return Accepted(view.take_positions(topic.id, topic.next_position, batch.count))

    def _admit_fence(self, view: AdmissionView, batch: Batch) -> Admission:
        session = self._state.session(batch.session)
        if batch.sequence <= session.last:
            return _answered(session, batch.sequence)
        view.check_kept(session.id)
        view.use(session, batch.sequence, fence=True)
        return _NO_POSITION

    # Applying.

    def apply(self, batch: Batch) -> Result:
        """Apply a committed batch.

        Raises:
          RequestError: a replicated refusal.
          CorruptionError: the batch contradicts the state: members have diverged. The node must stop.
          OutdatedCodeError: a command that this member's code does not know. The node must stop.
          BaseException: a command failed for a reason of this process (``ActorHost.apply``). The node must stop.
        """
        state = self._state
        log_bytes = state.log_bytes
        state.log_bytes = log_bytes + batch.size
        # A NewType is a call at run time: too dear for what every batch does, here and below.
        state.end = batch.first_index + batch.count  # type: ignore[assignment]
        if batch.log_time >= state.next_second:
            for topic in state.aging(batch.log_time):
                self._trim(topic, topic.retained_from(batch.log_time))
        kind = batch.kind
        if kind is Kind.RECORDS:
            return self._apply_records(batch, log_bytes)
        match kind:
            case Kind.COMMANDS:
                return self._apply_commands(batch)
            case Kind.FENCE:
                return self._apply_fence(batch)
            case Kind.OPEN_SESSION:
                return self._apply_open_session(batch)
            case Kind.CREATE_TOPIC:
                return self._apply_create_topic(batch)
            case Kind.CONFIGURE_TOPIC:
                return self._apply_configure_topic(batch)
            case Kind.TRIM_TOPIC:
                return self._apply_trim_topic(batch)
            case _:
                return None

    def _apply_records(self, batch: Batch, log_bytes: int) -> Receipt:
        state = self._state
        session = self._use(batch)
        if batch.sequence != session.last + 1:
            raise _diverged(batch, "sequence", session.last + 1, batch.sequence)
        topic = state.topics.get(batch.topic)
        if topic is None:
            raise _diverged(batch, "a topic id up to", len(state.topics), batch.topic)
        if batch.first_position != topic.next_position:
            raise _diverged(batch, "position", topic.next_position, batch.first_position)
        if self._cut is not None:
            self._cut.state.before_topic(topic)
        topic.extend(batch, log_bytes)
        receipt = Receipt(batch.first_position, batch.count, batch.term, batch.first_index, batch.log_time)
        state.chain = crc32c(session.applied(receipt), state.chain)
        if topic.retain_bytes and topic.has_surplus:
            self._trim(topic, topic.retained_from(batch.log_time))
        if self._view is not None:
            self._view.applied(batch)
        return receipt

    def _apply_commands(self, batch: Batch) -> CommandResults:
        session = self._use(batch)
        if batch.sequence != session.last + 1:
            raise _diverged(batch, "sequence", session.last + 1, batch.sequence)
        view = self._view
        commands = view.take_commands(batch) if view is not None else None
        results = self._actors.apply(batch, self._decode(batch) if commands is None else commands)
        receipt = Receipt(Position(0), batch.count, batch.term, batch.first_index, batch.log_time)
        self._state.chain = crc32c(session.applied(receipt, results), self._state.chain)
        if view is not None:
            view.applied(batch)
        return CommandResults(receipt, results)

    def _decode(self, batch: Batch) -> list[Command]:
        try:
            return self._actors.decode(batch)
        except (RequestError, FrameError) as error:
            # Its leader could read it, or it would not be in the log: no refusal that the others would share.
            raise OutdatedCodeError(
                f"{batch!r} holds commands that this node can not read: {error}",
                remedy="upgrade this node and start it again",
            ) from error

    def _apply_fence(self, batch: Batch) -> Result:
        session = self._use(batch)
        if self._view is not None:
            self._view.applied(batch)
        session.fence(batch.sequence)
        self._state.note(session.id, session.last)
        return session.result(batch.sequence)

    def _apply_open_session(self, batch: Batch) -> Result:
        sessions = self._state.sessions
        forgotten = next(iter(sessions)) if len(sessions) >= self._sessions_max else SessionId(0)
        if forgotten:
            del sessions[forgotten]
        session = Session(SessionId(batch.first_index))
        sessions[session.id] = session
        self._state.note(session.id, forgotten)
        if self._view is not None:
            self._view.session_opened(forgot=bool(forgotten))
        return {"session": session.id}

    def _apply_create_topic(self, batch: Batch) -> Result:
        settings = decode_settings(batch)
        topic = self._state.creatable(settings, self._topics_max)
        if topic is None:
            topic = Topic(TopicId(len(self._state.topics) + 1), settings.name)
            topic.configure(settings.retain_bytes or 0, settings.retain_seconds or 0.0)
            self._state.add_topic(topic)
        self._state.note(topic.id, len(self._state.topics))
        return {"topic": topic.describe()}

    def _apply_configure_topic(self, batch: Batch) -> Result:
        name, retain_bytes, retain_seconds = decode_settings(batch)
        topic = self._state.named(name)
        if self._cut is not None:
            self._cut.state.before_topic(topic)
        self._state.configure(
            topic,
            topic.retain_bytes if retain_bytes is None else retain_bytes,
            topic.retain_seconds if retain_seconds is None else retain_seconds,
        )
        self._state.note(topic.id, topic.retain_bytes, round(topic.retain_seconds * 1e6))
        self._trim(topic, topic.retained_from(batch.log_time))
        return {"topic": topic.describe()}

    def _apply_trim_topic(self, batch: Batch) -> Result:
        name, position = decode_trim(batch)
        topic = self._state.trimmable(name, position)
        self._trim(topic, position)
        return {"topic": topic.describe()}

    def _trim(self, topic: Topic, position: Position) -> None:
        if position > topic.first_position:
            if self._cut is not None:
                self._cut.state.before_topic(topic)
            topic.trim(position)
            self._state.note(topic.id, position)

    def _use(self, batch: Batch) -> Session:
        """Return the batch's session, now the most recently used, and about to change."""
        sessions = self._state.sessions
        session = sessions.pop(batch.session, None)
        if session is None:
            raise _diverged(batch, "a known session, one of", len(sessions), batch.session)
        sessions[batch.session] = session
        if self._cut is not None:
            self._cut.state.before_session(session)
        return session

    # Asking.

    def query(self, name: str, /, **arguments: object) -> object:
        """Read the applied state.

        | name | arguments | answer |
        | --- | --- | --- |
        | list_topics | | a list of topic maps, in order of creation |
        | describe_topic | name | the topic's map: id, name, first_position, last_position, bytes, retain_bytes, ... |
        | first_position | topic (id) | the first position that is kept; one above the last = there is none |
        | last_position | topic (id) | the topic's last position, 0 = never had a record |
        | locate | topic (id), position | the index from which a forward scan finds the position |
        | outcome | session, sequence | a Receipt or CommandResults; None = fenced |
        | list_actors | | a list of maps: name, class, version, instances, digest |
        | describe_actor | name | the actor's interface, ``Interface.to_wire()`` |
        | call_query | actor, key, method, arguments (packed) | the query's result, packed |
        | changes | actor, key (None = all), index (0 = from now on) | (list of changes, index to ask from next) |

        Raises:
          UnknownTopicError, UnknownActorError, StaleSessionError: there is no such topic, actor or session here.
          TrimmedError: the position or the changes are gone; ``first`` is the first position or index that is left.
          UnavailableError: the outcome of a sequence that is not decided yet.
          RequestError: no such question.
        """
        state = self._state
        match name:
            case "list_topics":
                return [topic.describe() for topic in state.topics.values()]
            case "describe_topic":
                return state.named(str(arguments["name"])).describe()
            case "first_position":
                return state.topic(cast("int", arguments["topic"])).first_position
            case "last_position":
                return state.topic(cast("int", arguments["topic"])).next_position - 1
            case "locate":
                topic, position = state.topic(cast("int", arguments["topic"])), cast("int", arguments["position"])
                # A position that does not exist yet will stand behind all that has been applied.
                return topic.locate(position) if position < topic.next_position else state.end
            case "outcome":
                return self._outcome(cast("SessionId", arguments["session"]), cast("Sequence", arguments["sequence"]))
            case "list_actors":
                return self._actors.list()
            case "describe_actor":
                return self._actors.describe(str(arguments["name"]))
            case "call_query":
                return self._actors.query(**cast("dict[str, Any]", {"name": arguments.pop("actor"), **arguments}))
            case "changes":
                return self._actors.changes(**cast("dict[str, Any]", {"name": arguments.pop("actor"), **arguments}))
            case _:
                raise RequestError(f"no query is named {name!r}")

    def _outcome(self, session_id: SessionId, sequence: Sequence) -> Result:
        session = self._state.session(session_id)
        if sequence > session.last:
            raise UnavailableError(f"sequence {sequence} of session {session_id} is not decided", remedy="fence it")
        return _answered(session, sequence).result

    def status(self) -> dict[str, object]:
        """Return {"actors": {name: {class, version, instances, digest}}, "sessions", "topics"}: how many there are."""
        return {
            "actors": self._actors.status(),
            "sessions": len(self._state.sessions),
            "topics": len(self._state.topics),
        }

    # What the log is kept for.

    def keep_from(self) -> Index | None:
        """Return the index of the oldest batch of records that a topic keeps; None = no topic holds records."""
        return min(filter(None, [topic.first_index for topic in self._state.topics.values()]), default=None)

    def explain_kept(self) -> str:
        """Say which topic's records hold the log at ``keep_from``, and how to let them go; "" = none does."""
        holding = [topic for topic in self._state.topics.values() if topic.first_index]
        if not holding:
            return ""
        topic = min(holding, key=lambda each: each.first_index or 0)
        since = datetime.fromtimestamp(topic.first_time / 1e6, UTC)
        return (
            f"topic {topic.name!r} keeps {topic.next_position - topic.first_position:,} records"
            f" ({topic.bytes:,} bytes) since {since:%Y-%m-%d %H:%M:%S} UTC; let go of those below a position, at most"
            f" {topic.next_position}: viewstamp topic trim {topic.name} POSITION, or have old ones go by themselves:"
            f" viewstamp topic configure {topic.name} --retain-bytes N"
        )

    # Snapshots.

    def begin_snapshot(self) -> Cut:
        """Fix the present applied state; what was only admitted is no part of it. One cut at a time.

        Takes time by the number of topics and sessions, not by what they hold: 10,000 sessions 0.2 ms.
        """
        assert self._cut is None, "a cut of this state is being handed out already"
        self._cut = StreamsCut(StateCut(self._state), self._actors.begin_cut(), self._let_go)
        return self._cut

    def _let_go(self, cut: StreamsCut) -> None:
        assert self._cut is cut, "only the open cut closes"
        self._cut = None

    def prepare(self, pieces: Iterable[bytes]) -> object:
        """Build a state from the pieces of a cut, in their order; may run in any thread, touches nothing here.

        Raises:
          CorruptionError: the pieces are no state.
          OutdatedCodeError: they are of newer code than this.
        """
        pieces = iter(pieces)
        state = load_state(pieces)
        return state, self._actors.prepare(load_actors(pieces))

    def adopt(self, prepared: object) -> None:
        """Replace the applied state by what :meth:`prepare` returned. A cut that is open is closed."""
        assert self._view is None, "a leader does not adopt a state"
        if self._cut is not None:
            self._cut.close()
        self._state, actors = cast("tuple[State, Prepared]", prepared)
        self._actors.adopt(actors)

    # Comparing members.

    @property
    def chain(self) -> int:
        """64 bits over all that was applied and what came of it; comparable between members of equal ``lineage``."""
        return self._actors.chain ^ (self._state.chain * _SPREAD & _MASK)

    @property
    def lineage(self) -> int:
        """Which code of actors has been in use, and since when."""
        return self._actors.lineage

    def trail(self) -> list[tuple[int, int]]:
        """Return (index, checksum after it) of the newest commands, oldest first.

        Where chains differ and trails do not, it is topics or sessions that differ, or a command of long ago.
        """
        return list(self._actors.trail)

    def describe_index(self, index: int) -> str:
        """Say which command has ``index``, if it is among the newest ones; else ""."""
        return self._actors.describe_index(index)

    def digest(self) -> bytes:
        """Return 16 bytes that are equal on all members that have applied the same prefix."""
        digest = blake2b(digest_size=16)
        cut = StateCut(self._state)
        while (piece := cut.next_piece(_DIGEST_PIECE)) is not None:
            digest.update(piece)
        digest.update(self._actors.digest())
        return digest.digest()


def _answered(session: Session, sequence: Sequence) -> Answered:
    if sequence < 1:
        raise RequestError(f"a batch of session {session.id} needs a sequence from 1 on, not {sequence}")
    return Answered(session.result(sequence))


def _diverged(batch: Batch, what: str, expected: int, found: int) -> CorruptionError:
    return CorruptionError(
        f"{batch!r} contradicts the state of this member: {what} {expected} expected, {found} found",
        expected=f"{what} {expected}",
        found=str(found),
        remedy="stop the node, keep its files, and compare its log with the other members': viewstamp wal inspect",
    )
