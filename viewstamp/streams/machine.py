"""``Streams``: the state machine that a node runs, one synchronous call per batch."""

from __future__ import annotations

from hashlib import blake2b
from typing import cast

import msgpack

from viewstamp.errors import (
    CorruptionError,
    RequestError,
    StaleSessionError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.ids import Position, Sequence, SessionId, TopicId
from viewstamp.node.state_machine import Accepted, Admission, Answered, Receipt, Result, Waiting
from viewstamp.streams.admission import AdmissionView
from viewstamp.streams.session import Session
from viewstamp.streams.topic import Topic, check_name
from viewstamp.wire.batch import Batch, Kind

__all__ = ["SESSIONS_MAX", "TOPICS_MAX", "Streams"]

SESSIONS_MAX = 10_000
TOPICS_MAX = 10_000
_IMAGE_VERSION = 1
_WAITING = Waiting()
_NO_POSITION = Accepted(Position(0))


class Streams:
    """Topics and sessions behind ``node.state_machine.StateMachine``; the package's docstring is its specification.

    The limits are part of the replicated behaviour: they must be equal on all members. Never awaits.
    """

    def __init__(self, *, sessions_max: int = SESSIONS_MAX, topics_max: int = TOPICS_MAX) -> None:
        assert sessions_max >= 1
        self._sessions_max = sessions_max
        self._topics_max = topics_max
        self._topics: list[Topic] = []
        self._names: dict[str, Topic] = {}
        self._sessions: dict[SessionId, Session] = {}
        """Least recently used first: a use takes a session out and puts it in again."""
        self._log_bytes = 0
        self._view: AdmissionView | None = None

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
          RequestError: wrong, and always will be: unknown topic or session, no session, a forbidden name.
          UnavailableError: certainly not in the log, and the same batch may be accepted later.
        """
        view = self._view
        assert view is not None, "only a leader admits"
        kind = batch.kind
        if kind is Kind.RECORDS:
            return self._admit_records(view, batch)
        if kind is Kind.FENCE:
            return self._admit_fence(view, batch)
        if kind is Kind.CREATE_TOPIC:
            self._check_room(_topic_name(batch))
        elif kind is Kind.OPEN_SESSION:
            view.open_session(self._sessions, self._sessions_max)
        return _NO_POSITION

    def _admit_records(self, view: AdmissionView, batch: Batch) -> Admission:
        session = self._session(batch.session)
        sequence = batch.sequence
        if sequence <= session.last:
            return self._answered(session, sequence)
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
        topic = self._topic(batch.topic)
        view.check_kept(session.id)
        view.use(session, sequence, fence=False)
        return Accepted(view.take_positions(topic.id, topic.next_position, batch.count))

    def _admit_fence(self, view: AdmissionView, batch: Batch) -> Admission:
        session = self._session(batch.session)
        if batch.sequence <= session.last:
            return self._answered(session, batch.sequence)
        view.check_kept(session.id)
        view.use(session, batch.sequence, fence=True)
        return _NO_POSITION

    @staticmethod
    def _answered(session: Session, sequence: Sequence) -> Answered:
        if sequence < 1:
            raise RequestError(f"a batch of session {session.id} needs a sequence from 1 on, not {sequence}")
        return Answered(session.receipt(sequence))

    # Applying.

    def apply(self, batch: Batch) -> Result:
        """Apply a committed batch.

        Raises:
          RequestError: a replicated refusal.
          CorruptionError: the batch contradicts the state: members have diverged. The node must stop.
        """
        kind = batch.kind
        if kind is Kind.RECORDS:
            result: Result = self._apply_records(batch)
        elif kind is Kind.FENCE:
            result = self._apply_fence(batch)
        elif kind is Kind.OPEN_SESSION:
            result = self._apply_open_session(batch)
        elif kind is Kind.CREATE_TOPIC:
            result = self._apply_create_topic(batch)
        else:
            result = None
        self._log_bytes += batch.size
        return result

    def _apply_records(self, batch: Batch) -> Receipt:
        session = self._use(batch)
        if batch.sequence != session.last + 1:
            raise _diverged(batch, "sequence", session.last + 1, batch.sequence)
        if not 0 < batch.topic <= len(self._topics):
            raise _diverged(batch, "a topic id up to", len(self._topics), batch.topic)
        topic = self._topics[batch.topic - 1]
        if batch.first_position != topic.next_position:
            raise _diverged(batch, "position", topic.next_position, batch.first_position)
        topic.extend(batch, self._log_bytes)
        receipt = Receipt(batch.first_position, batch.count, batch.term, batch.first_index, batch.log_time)
        session.applied(receipt)
        if self._view is not None:
            self._view.applied(batch)
        return receipt

    def _apply_fence(self, batch: Batch) -> Receipt | None:
        session = self._use(batch)
        if self._view is not None:
            self._view.applied(batch)
        session.fence(batch.sequence)
        return session.receipt(batch.sequence)

    def _apply_open_session(self, batch: Batch) -> Result:
        forgot = len(self._sessions) >= self._sessions_max
        if forgot:
            del self._sessions[next(iter(self._sessions))]
        session = Session(SessionId(batch.first_index))
        self._sessions[session.id] = session
        if self._view is not None:
            self._view.session_opened(forgot=forgot)
        return {"session": session.id}

    def _apply_create_topic(self, batch: Batch) -> Result:
        name = _topic_name(batch)
        topic = self._names.get(name)
        if topic is None:
            self._check_room(name)
            topic = Topic(TopicId(len(self._topics) + 1), name)
            self._topics.append(topic)
            self._names[name] = topic
        return {"topic": topic.describe()}

    def _use(self, batch: Batch) -> Session:
        """Return the batch's session, now the most recently used."""
        session = self._sessions.pop(batch.session, None)
        if session is None:
            raise _diverged(batch, "a known session, one of", len(self._sessions), batch.session)
        self._sessions[batch.session] = session
        return session

    def _session(self, session_id: SessionId) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise StaleSessionError(
                f"session {session_id} is not known" if session_id else "a batch of records needs a session",
                remedy="open a new session; what the old one had not heard of stays unknown",
            )
        return session

    def _topic(self, topic_id: int) -> Topic:
        if not 0 < topic_id <= len(self._topics):
            raise UnknownTopicError(f"no topic has the id {topic_id}", remedy="create the topic first")
        return self._topics[topic_id - 1]

    def _check_room(self, name: str) -> None:
        if name not in self._names and len(self._topics) >= self._topics_max:
            raise RequestError(
                f"topic {name!r} would be one more than {self._topics_max}",
                remedy="use fewer topics; tell their records apart by key or header",
            )

    # Asking.

    def query(self, name: str, /, **arguments: object) -> object:
        """Read the applied state.

        | name | arguments | answer |
        | --- | --- | --- |
        | list_topics | | a list of topic maps, in order of creation |
        | describe_topic | name | the topic's map: id, name, first_position, last_position, bytes |
        | last_position | topic (id) | the topic's last position, 0 = empty |
        | locate | topic (id), position | the index from which a forward scan finds the position |
        | outcome | session, sequence | a Receipt; None = fenced |

        Raises:
          UnknownTopicError, StaleSessionError: there is no such topic or session here.
          UnavailableError: the outcome of a sequence that is not decided yet.
          RequestError: no such question.
        """
        if name == "list_topics":
            return [topic.describe() for topic in self._topics]
        if name == "describe_topic":
            topic = self._names.get(str(arguments["name"]))
            if topic is None:
                raise UnknownTopicError(
                    f"no topic is named {arguments['name']!r}", remedy="create it: viewstamp topic create NAME"
                )
            return topic.describe()
        if name == "last_position":
            return self._topic(cast("int", arguments["topic"])).next_position - 1
        if name == "locate":
            return self._topic(cast("int", arguments["topic"])).locate(cast("int", arguments["position"]))
        if name == "outcome":
            return self._outcome(cast("SessionId", arguments["session"]), cast("Sequence", arguments["sequence"]))
        raise RequestError(f"no query is named {name!r}")

    def _outcome(self, session_id: SessionId, sequence: Sequence) -> Receipt | None:
        session = self._session(session_id)
        if sequence > session.last:
            raise UnavailableError(f"sequence {sequence} of session {session_id} is not decided", remedy="fence it")
        return cast("Receipt | None", self._answered(session, sequence).result)

    # Images.

    def snapshot(self) -> bytes:
        """Return the applied state as one msgpack value; what was only admitted is no part of it."""
        image = [
            _IMAGE_VERSION,
            self._log_bytes,
            [topic.image() for topic in self._topics],
            [session.image() for session in self._sessions.values()],
        ]
        return cast("bytes", msgpack.packb(image))

    def restore(self, image: bytes) -> None:
        """Replace the applied state; the machine must not be leading.

        Raises:
          CorruptionError: not an image of this version. Nothing was changed.
        """
        assert self._view is None, "a leader does not restore an image"
        try:
            version, log_bytes, topics, sessions = msgpack.unpackb(image)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise CorruptionError(f"an image of topics and sessions cannot be read: {error}") from error
        if version != _IMAGE_VERSION:
            raise CorruptionError(
                f"an image of topics and sessions has version {version}",
                expected=str(_IMAGE_VERSION),
                found=str(version),
                remedy="start this node with the release that wrote the image, or a newer one",
            )
        self._log_bytes = log_bytes
        self._topics = [Topic.from_image(topic) for topic in topics]
        self._names = {topic.name: topic for topic in self._topics}
        restored = [Session.from_image(session) for session in sessions]
        self._sessions = {session.id: session for session in restored}

    def digest(self) -> bytes:
        """Return 16 bytes that are equal on all members that have applied the same prefix."""
        return blake2b(self.snapshot(), digest_size=16).digest()


def _topic_name(batch: Batch) -> str:
    """Return the name in a CREATE_TOPIC batch.

    Raises:
      RequestError: the record is no map with a name that a topic may have.
    """
    try:
        settings = msgpack.unpackb(batch.values()[0])
        name = settings["name"]
    except (ValueError, TypeError, KeyError, msgpack.exceptions.UnpackException) as error:
        raise RequestError(f"a topic's settings cannot be read: {error!r}", remedy="send {'name': ...}") from error
    return check_name(name)


def _diverged(batch: Batch, what: str, expected: int, found: int) -> CorruptionError:
    return CorruptionError(
        f"{batch!r} contradicts the state of this member: {what} {expected} expected, {found} found",
        expected=f"{what} {expected}",
        found=str(found),
        remedy="stop the node, keep its files, and compare its log with the other members': viewstamp wal inspect",
    )
