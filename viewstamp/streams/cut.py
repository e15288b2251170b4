"""Cuts: the state at one index, in pieces that are packed while batches are applied.

A piece is the msgpack of [section, content]: first one "state" (version, sinks and counts), then as many as needed of
"sessions" and "topics" (lists of images, in the state's order) and of "actors" (bytes of ``ActorHost``), last "end".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgpack

from viewstamp.actors.replicated import ActorCut
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError, UnavailableError
from viewstamp.ids import SessionId, TopicId
from viewstamp.streams.placement import Placements
from viewstamp.streams.session import SessionState
from viewstamp.streams.state import State
from viewstamp.streams.topic import Topic

__all__ = ["StateCut", "StreamsCut", "founders_in", "load_actors", "load_state"]

_VERSION = 25
_VERSION_WITHOUT_HOSTS = 24
_VERSION_WITHOUT_REMOVED_GROUPS = 23
_VERSION_WITHOUT_LOST_POSITIONS = 22
_VERSION_WITHOUT_STREAM_ARCHIVES = 21
_VERSION_WITHOUT_GONE_STREAMS = 20
_VERSION_WITHOUT_ADDED_STREAMS = 19
_VERSION_WITHOUT_SPREAD_SCHEMAS = 16
_VERSION_WITHOUT_PARTS = 15
_VERSION_WITHOUT_LOST = 14
_VERSION_WITHOUT_KEYS = 13
_VERSION_WITHOUT_SCHEMAS = 12
_VERSION_WITHOUT_SEALS = 11
_VERSION_WITHOUT_CHANGES = 10
_VERSION_WITHOUT_SPREAD_ACTORS = 9
_VERSION_WITHOUT_ARCHIVE_SETTINGS = 8
_VERSION_WITHOUT_ORDER = 7
_VERSION_WITHOUT_SPREAD = 6
_VERSION_WITHOUT_RUNS = 5
_VERSION_WITHOUT_GROUPS = 4
_VERSION_WITHOUT_TOKENS = 3
_READABLE = range(1, _VERSION + 1)
"""Version 1 has no sinks; version 2 lacks the time of the last use of sessions; version 3 has no tokens; version 4 has
no groups; version 5 has no runs; version 6 has no spread topics; version 7 has no order of streams; version 8 has no
archive settings of topics; version 9 has no spread actors; in version 10 no spread topic was configured or trimmed; in
version 11 no stream was ended; until version 12 no topic has a schema; until
version 13 no topic is keyed; until version 14 no stream was lost; until version 15 no batch of a sink has parts in
several groups; until version 16 no topic with streams has a schema; until version 19 no stream was added; until version
20 none was removed; until version 21 no topic with streams has an archive, and no run is that of a stream; until
version 22 no positions of a topic with streams were lost; until version 23 no group was removed; until version 24 no
host of a group was changed. There is no version 17 or 18.

A state is written in the oldest version that can hold it, because nodes of the release before must read it during an
upgrade.
"""


class StateCut:
    """Topics and sessions at one index. Until the cut is closed, it must be called before each change of one of them.

    Copy on write: an item is packed when its turn comes, or just before it changes for the first time.

    Invariants:
      * an item of ``_sessions`` and ``_topics`` is the object until it is packed, then its bytes, then None: handed out
    """

    def __init__(self, state: State) -> None:
        self._header: list[object] | None = [_version_of(state), *state.image()]
        # Sessions first, because they change the most.
        self._sessions: dict[SessionId, SessionState | bytes | None] = dict(state.sessions.by_id)
        self._topics: dict[TopicId, Topic | bytes | None] = dict(state.topics)
        self._sections: list[tuple[str, dict[Any, Any], Iterator[Any]]] = [
            ("sessions", self._sessions, iter(self._sessions)),
            ("topics", self._topics, iter(self._topics)),
        ]
        self._captured = 0
        """The number of items that are held packed, because they changed before their turn."""

    @property
    def is_waiting(self) -> bool:
        """Whether items are held packed, because they changed before their turn."""
        return self._captured > 0

    def before_session(self, session: SessionState) -> None:
        """Pack ``session`` unless it is packed already, because it is about to change."""
        if type(self._sessions.get(session.id)) is SessionState:
            self._sessions[session.id] = _pack(session.image())
            self._captured += 1

    def before_topic(self, topic: Topic) -> None:
        """Pack ``topic`` unless it is packed already, because it is about to change."""
        if type(self._topics.get(topic.id)) is Topic:
            self._topics[topic.id] = _pack(topic.image())
            self._captured += 1

    def next_piece(self, bytes_max: int) -> bytes | None:
        """Return the next piece; None = there are no more. A piece ends with the item that fills ``bytes_max``."""
        if self._header is not None:
            header, self._header = self._header, None
            return _pack(["state", header])
        while self._sections:
            name, items, keys = self._sections[0]
            images: list[bytes] = []
            size = 0
            for key in keys:
                item = items[key]
                items[key] = None
                if type(item) is bytes:
                    self._captured -= 1
                else:
                    item = _pack(item.image())
                images.append(item)
                size += len(item)
                if size >= bytes_max:
                    break
            if images:
                return b"".join([b"\x92", _pack(name), msgpack.Packer().pack_array_header(len(images)), *images])
            del self._sections[0]
        return None

    def close(self) -> None:
        """Release everything that was not handed out; changes need not be reported any more. Idempotent."""
        self._header = None
        self._sections = []
        self._sessions = {}
        self._topics = {}
        self._captured = 0


def _version_of(state: State) -> int:
    if state.placements.have_moved:
        return _VERSION
    if state.placements.removed:
        return _VERSION_WITHOUT_HOSTS
    if state.spread.has_lost_positions:
        return _VERSION_WITHOUT_REMOVED_GROUPS
    if state.spread.has_archive or state.runs.has_streams:
        return _VERSION_WITHOUT_LOST_POSITIONS
    if state.spread.has_gone or state.sealed.dropped:
        return _VERSION_WITHOUT_STREAM_ARCHIVES
    if state.spread.has_added:
        return _VERSION_WITHOUT_GONE_STREAMS
    if state.spread.has_schema:
        return _VERSION_WITHOUT_ADDED_STREAMS
    if state.commits.pending or state.staging.has_parts:
        return _VERSION_WITHOUT_SPREAD_SCHEMAS
    if state.spread.has_lost:
        return _VERSION_WITHOUT_PARTS
    if state.keys.is_used:
        return _VERSION_WITHOUT_LOST
    if state.has_schema:
        return _VERSION_WITHOUT_KEYS
    if state.spread.has_closed or state.sealed.names:
        return _VERSION_WITHOUT_SCHEMAS
    if state.spread.is_changed:
        return _VERSION_WITHOUT_SEALS
    if state.spread_actors.actors:
        return _VERSION_WITHOUT_CHANGES
    if state.archiving:
        return _VERSION_WITHOUT_SPREAD_ACTORS
    if state.has_order:
        return _VERSION_WITHOUT_ARCHIVE_SETTINGS
    if state.spread.topics:
        return _VERSION_WITHOUT_ORDER
    if state.runs.is_used:
        return _VERSION_WITHOUT_SPREAD
    if state.placements.is_used:
        return _VERSION_WITHOUT_RUNS
    return _VERSION_WITHOUT_GROUPS if state.access.is_used else _VERSION_WITHOUT_TOKENS


class StreamsCut:
    """A cut of the whole machine: topics, sessions and actors. See ``node.state_machine.Cut``."""

    def __init__(self, state: StateCut, actors: ActorCut, let_go: Callable[[StreamsCut], None]) -> None:
        self.state = state
        self._actors = actors
        self._let_go = let_go
        self._is_complete = False
        """Whether everything has been handed out."""
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether items are held packed, because they changed before their turn."""
        return self.state.is_waiting or self._actors.held_bytes > 0

    def next_piece(self, bytes_max: int) -> bytes | None:
        """Return the next piece; None = there are no more. It ends with the item that fills ``bytes_max``.

        Raises:
          RequestError: an actor's state cannot be packed, so there is no snapshot; the message names the instance.
          UnavailableError: the cut was closed, or another state was adopted, before all pieces were handed out.
        """
        if self._is_complete:
            return None
        if self._is_closed:
            raise UnavailableError("the snapshot was abandoned before it was complete", remedy="begin another snapshot")
        piece = self.state.next_piece(bytes_max)
        if piece is not None:
            return piece
        content = self._actors.next_piece(bytes_max)
        if content is not None:
            return _pack(["actors", content])
        self._is_complete = True
        self.close()
        return _pack(["end", None])

    def close(self) -> None:
        """Release everything that was not handed out. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self.state.close()
            self._actors.close()
            self._let_go(self)


def founders_in(piece: bytes) -> list[str]:
    """Return the incarnations of the founders of groups in the first piece of a cut.

    Raises:
      CorruptionError: it is no state.
      OutdatedCodeError: it is of a newer version.
    """
    version, image, _, _ = _load_header(iter([piece]))
    with _reading():
        return Placements.from_image(image[6]).founders if version > _VERSION_WITHOUT_GROUPS else []


def load_state(pieces: Iterator[bytes]) -> State:
    """Build a state from the first pieces of a cut; the rest of ``pieces`` is for :func:`load_actors`.

    Raises:
      CorruptionError: the pieces are not a state.
      OutdatedCodeError: they are of a newer version.
    """
    _, image, topics, sessions = _load_header(pieces)
    with _reading():
        if not type(topics) is type(sessions) is int:
            raise TypeError("the numbers of topics and sessions are not integers")
        state = State.from_image(image)
    while len(state.sessions.by_id) < sessions:
        images = _load_section(pieces, "sessions")
        with _reading():
            # Older images lack the time of the last use, which was before this log time.
            state.sessions.restore(images, used_at=state.next_second)
    with _reading():
        state.sessions.restored()
    while len(state.topics) < topics:
        images = _load_section(pieces, "topics")
        with _reading():
            for topic in map(Topic.from_image, images):
                state.add_topic(topic)
    with _reading():
        state.runs.check_topics(state.topics)
        state.keys.check_topics(state.topics)
        state.spread.check_topics(state.names)
        state.maps.check_topics(state.names)
        state.sealed.check_topics(state.names)
    return state


def _load_header(pieces: Iterator[bytes]) -> tuple[int, list[Any], Any, Any]:
    """Return the version, the image, and the numbers of topics and sessions. Raises as :func:`load_state`."""
    with _reading():
        version, *image, topics, sessions = _load_section(pieces, "state")
    if version not in _READABLE:
        raise OutdatedCodeError(
            f"a snapshot's state has version {version}, but this release reads versions up to {_VERSION}",
            remedy="start this node with the release that wrote the snapshot, or a newer one",
        )
    return version, image, topics, sessions


def load_actors(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the actors' pieces after those that :func:`load_state` has read. Raises CorruptionError."""
    while (piece := _load_section(pieces, "actors", "end")) is not None:
        if type(piece) is not bytes:
            raise _damaged("a piece of actors is not bytes")
        yield piece


def _load_section(pieces: Iterator[bytes], *names: str) -> Any:
    """Return the content of the next piece, which must be of one of the sections ``names``. Raises CorruptionError."""
    with _reading():
        section, content = msgpack.unpackb(next(pieces), strict_map_key=False)
    if section not in names:
        raise _damaged(f"section {section!r} instead of {names[0]!r}")
    return content


_MALFORMED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, AssertionError),
    *(struct.error, msgpack.exceptions.UnpackException, RequestError),
)


@contextmanager
def _reading() -> Iterator[None]:
    """Convert the errors that malformed values cause into CorruptionError."""
    try:
        yield
    except StopIteration:
        raise _damaged("it ends too early") from None
    except _MALFORMED as error:
        raise _damaged(repr(error)) from error


def _damaged(why: str) -> CorruptionError:
    return CorruptionError(
        f"the pieces of a snapshot are not a state of topics and sessions: {why}",
        remedy="take another snapshot; this one is damaged, or was written by another program",
    )


def _pack(value: object) -> bytes:
    return cast("bytes", msgpack.packb(value))
