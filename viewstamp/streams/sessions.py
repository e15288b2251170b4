"""All sessions of a member, and the limits on their number, their age and the size of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgpack

from viewstamp.errors import RequestError, StaleSessionError
from viewstamp.ids import SessionId
from viewstamp.streams.session import SessionState
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.brief_repr import brief_repr

__all__ = ["EXPIRED_MAX", "Sessions", "decode_expiry", "encode_expiry"]

EXPIRED_MAX = 1000
"""The most sessions that one EXPIRE_SESSIONS names."""


class Sessions:
    """The sessions, in order of their last use in the log.

    Invariants:
      * ``by_id`` has the least recently used session first; ``Streams`` moves a session to the end when it applies one
        of its batches
      * ``_holders`` are the sessions with kept results, in the order of each one's newest batch of commands
      * ``result_bytes`` is the size of all kept results
    """

    __slots__ = ("_holders", "by_id", "result_bytes")

    def __init__(self) -> None:
        self.by_id: dict[SessionId, SessionState] = {}
        self._holders: dict[SessionId, SessionState] = {}
        self.result_bytes = 0

    def add(self, session: SessionState) -> None:
        """Add a session, as the most recently used one."""
        self.by_id[session.id] = session

    def find(self, session_id: SessionId) -> SessionState:
        """Return a session. Raises StaleSessionError."""
        session = self.by_id.get(session_id)
        if session is None:
            raise StaleSessionError(
                f"session {session_id} has ended or never existed"
                if session_id
                else "a batch of a client needs a session",
                remedy="open a new session; the outcomes that the old one had not received stay unknown",
            )
        return session

    def forget(self, session_id: SessionId) -> None:
        """Remove a session, if it exists."""
        session = self.by_id.pop(session_id, None)
        if session is not None:
            self._holders.pop(session_id, None)
            self.result_bytes -= session.result_bytes

    def clear(self) -> int:
        """Remove all sessions; return how many there were."""
        count = len(self.by_id)
        self.by_id.clear()
        self._holders.clear()
        self.result_bytes = 0
        return count

    def idle(self, used_before: int) -> Iterable[SessionId]:
        """Yield the sessions that were last used before a log time, the longest unused one first."""
        for session in self.by_id.values():
            if session.used_at >= used_before:
                return
            yield session.id

    # Results.

    def count_results(self, session: SessionState, held_before: int, *, is_newest: bool) -> None:
        """Update the counts after a session's kept results have changed; ``is_newest``: it got new ones."""
        self.result_bytes += session.result_bytes - held_before
        if is_newest or not session.result_bytes:
            self._holders.pop(session.id, None)
        if is_newest and session.result_bytes:
            self._holders[session.id] = session

    def bound_results(self, bytes_max: int, before: Callable[[SessionState], None]) -> None:
        """Drop the results of whole sessions, the one that called longest ago first, until ``bytes_max`` is met.

        The session that called last keeps its results; its own limit bounds them. ``before`` is called with each
        session just before it loses results.
        """
        while self.result_bytes > bytes_max and len(self._holders) > 1:
            session = self._holders.pop(next(iter(self._holders)))
            before(session)
            self.result_bytes -= session.result_bytes
            session.drop_results()

    def restore(self, images: list[list[Any]], used_at: int) -> None:
        """Add the sessions of images; ``used_at`` is for older images, which lack it."""
        for session in (SessionState.from_image(image, used_at) for image in images):
            self.by_id[session.id] = session

    def restored(self) -> None:
        """Count the results, once all sessions have been restored."""
        holding = [session for session in self.by_id.values() if session.result_bytes]
        self._holders = {session.id: session for session in sorted(holding, key=SessionState.called_at)}
        self.result_bytes = sum(session.result_bytes for session in holding)


def encode_expiry(sessions: list[SessionId]) -> Batch:
    """Return the EXPIRE_SESSIONS batch for these sessions; its record is the msgpack of the list."""
    return build_batch([msgpack.packb(sessions)], kind=Kind.EXPIRE_SESSIONS)


def decode_expiry(batch: Batch) -> list[SessionId]:
    """Return the sessions that an EXPIRE_SESSIONS batch ends.

    Raises:
      RequestError: its record is not a list of ids.
    """
    try:
        sessions = msgpack.unpackb(batch.values()[0])
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise RequestError(f"the list of sessions that expire cannot be read: {error!r}") from error
    if type(sessions) is not list or not all(type(each) is int and each >= 0 for each in sessions):
        raise RequestError(f"{brief_repr(sessions)} is not a list of sessions")
    return sessions
