"""All sessions of a member: which of them go, by number or by age, and how much their results take together."""

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
"""One EXPIRE_SESSIONS names at most so many."""


class Sessions:
    """The sessions, in order of their last use in the log.

    Invariants:
      * ``by_id`` has the least recently used one first; ``Streams`` moves each that it applies a batch of to the end
      * ``_holders`` are those that hold results, in the order of the newest batch of commands of each
      * ``result_bytes`` is what all of them hold
    """

    __slots__ = ("_holders", "by_id", "result_bytes")

    def __init__(self) -> None:
        self.by_id: dict[SessionId, SessionState] = {}
        self._holders: dict[SessionId, SessionState] = {}
        self.result_bytes = 0

    def add(self, session: SessionState) -> None:
        """Take a session, as the one that was used last."""
        self.by_id[session.id] = session

    def find(self, session_id: SessionId) -> SessionState:
        """Return a session. Raises StaleSessionError."""
        session = self.by_id.get(session_id)
        if session is None:
            raise StaleSessionError(
                f"session {session_id} is not known" if session_id else "a batch of a client needs a session",
                remedy="open a new session; what the old one had not heard of stays unknown",
            )
        return session

    def forget(self, session_id: SessionId) -> None:
        """Let a session go, where it is still there."""
        session = self.by_id.pop(session_id, None)
        if session is not None:
            self._holders.pop(session_id, None)
            self.result_bytes -= session.result_bytes

    def idle(self, used_before: int) -> Iterable[SessionId]:
        """Yield those that were last used before a log time, the one that has been idle for longest first."""
        for session in self.by_id.values():
            if session.used_at >= used_before:
                return
            yield session.id

    # Results.

    def count_results(self, session: SessionState, held_before: int, *, is_newest: bool) -> None:
        """Take note that what a session holds of results has changed; ``is_newest``: it got some just now."""
        self.result_bytes += session.result_bytes - held_before
        if is_newest or not session.result_bytes:
            self._holders.pop(session.id, None)
        if is_newest and session.result_bytes:
            self._holders[session.id] = session

    def bound_results(self, bytes_max: int, before: Callable[[SessionState], None]) -> None:
        """Drop results, all of the session that called longest ago first, until the others take at most ``bytes_max``.

        Those of the session that called last are bounded by its own limit alone. ``before`` hears of each session just
        before it loses some.
        """
        while self.result_bytes > bytes_max and len(self._holders) > 1:
            session = self._holders.pop(next(iter(self._holders)))
            before(session)
            self.result_bytes -= session.result_bytes
            session.drop_results()

    def restore(self, images: list[list[Any]], used_at: int) -> None:
        """Add what the images hold; ``used_at`` stands for what older ones do not say."""
        for session in (SessionState.from_image(image, used_at) for image in images):
            self.by_id[session.id] = session

    def restored(self) -> None:
        """Count results, once all sessions have been restored."""
        holding = [session for session in self.by_id.values() if session.result_bytes]
        self._holders = {session.id: session for session in sorted(holding, key=SessionState.called_at)}
        self.result_bytes = sum(session.result_bytes for session in holding)


def encode_expiry(sessions: list[SessionId]) -> Batch:
    """Return the EXPIRE_SESSIONS that lets these sessions go; its record is the msgpack of the list."""
    return build_batch([msgpack.packb(sessions)], kind=Kind.EXPIRE_SESSIONS)


def decode_expiry(batch: Batch) -> list[SessionId]:
    """Read which sessions an EXPIRE_SESSIONS lets go.

    Raises:
      RequestError: its record is no list of ids.
    """
    try:
        sessions = msgpack.unpackb(batch.values()[0])
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise RequestError(f"the sessions that expire cannot be read: {error!r}") from error
    if type(sessions) is not list or not all(type(each) is int and each >= 0 for each in sessions):
        raise RequestError(f"{brief_repr(sessions)} are no sessions that could expire")
    return sessions
