"""The share of each turn of the event loop that the requests of clients may take, and the order of those that wait.

A node serves all connections in one event loop. One read of a socket can bring 6,000 small requests, and a loop may
read 32 times from one socket in a turn. If a node handled them all at once, one client could delay the heartbeats of
the node and the requests of all others by seconds. So:

* In one turn, connections of clients are handled for ``TURN_SECONDS``. The clock is read once for ``REQUESTS_AT_ONCE``
  requests, because reading it for each one would cost more than a small request; so a turn is exceeded by the time of
  at most that many.
* A connection whose requests do not fit waits, and its socket is not read meanwhile. So its client is slowed down by
  TCP, and the node holds at most one chunk of bytes for it.
* The connections that wait are handled in rotation, ``REQUESTS_AT_ONCE`` requests each.

Connections of members are not limited, nor is the first frame of any connection, its HELLO, because a member that comes
back after a failure of the network has only seconds for it. A request of over a MiB is handled as soon as it is whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

__all__ = ["REQUESTS_AT_ONCE", "TURN_SECONDS", "Rota", "RotaConnection"]

TURN_SECONDS = 0.005
"""Time that clients may take in one turn. A heartbeat interval is ten times as long by default."""
REQUESTS_AT_ONCE = 16
"""Requests of one connection that are handled before it is the turn of the next one."""


class RotaConnection(Protocol):
    """A connection that waits in a rota."""

    def on_turn(self) -> None:
        """Handle the next requests; call :meth:`Rota.wait` again if there are more."""
        ...


class Rota:
    """The connections of one server that wait until there is time for their requests.

    The time in a turn is measured from :meth:`begin` to :meth:`end`. The loop does not report its turns, so the
    measured times are added up until the rota has a turn of its own, or until no client was handled for
    ``TURN_SECONDS``.

    Invariants:
      * while a connection waits, a turn of the rota is scheduled, and other connections queue behind it
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Measure time in seconds with ``monotonic``."""
        self._monotonic = monotonic
        self._waiting: dict[RotaConnection, None] = {}
        self._is_scheduled = False
        self._since = self._ended_at = monotonic()
        self._used = 0.0

    def begin(self) -> bool:
        """Return whether requests may be handled now; if so, the time until :meth:`end` is counted."""
        if self._waiting:
            return False
        self._since = now = self._monotonic()
        if now - self._ended_at > TURN_SECONDS:
            self._used = 0.0
        return self._used < TURN_SECONDS

    def end(self) -> None:
        """Count the time since :meth:`begin`."""
        self._ended_at = now = self._monotonic()
        self._used += now - self._since

    @property
    def is_over(self) -> bool:
        """Whether the connection that is handled now has to leave the rest to a later turn."""
        return bool(self._waiting) or self._used + self._monotonic() - self._since >= TURN_SECONDS

    def wait(self, connection: RotaConnection) -> None:
        """Put a connection at the end of the queue; its ``on_turn`` is called in a later turn. Idempotent."""
        self._waiting[connection] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._on_turn)

    def is_waiting(self, connection: RotaConnection) -> bool:
        """Return whether a connection is in the queue."""
        return connection in self._waiting

    def leave(self, connection: RotaConnection) -> None:
        """Take a connection out of the queue, because it has ended. Idempotent."""
        self._waiting.pop(connection, None)

    def _on_turn(self) -> None:
        self._is_scheduled = False
        self._since, self._used = self._monotonic(), 0.0
        while self._waiting:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.on_turn()
            if self._used + self._monotonic() - self._since >= TURN_SECONDS:
                break
        self.end()
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._on_turn)
