"""The waiting line of a client: callers that cannot append yet, let in by the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from viewstamp.client.shell import Future, Shell
from viewstamp.errors import ViewstampError

__all__ = ["Line", "Place"]


class Place:
    """One caller in the line."""

    __slots__ = ("is_let", "size", "topic", "turn")

    def __init__(self, topic: str, size: int, turn: Future[None]) -> None:
        self.topic = topic
        self.size = size
        """Bytes that the caller is going to hold."""
        self.turn = turn
        self.is_let = False
        """Its turn has come, its bytes are reserved; it leaves as soon as its task runs."""


class Line:
    """First come, first served.

    A caller stays in the line until its task has run and done what it waited for. So whoever finds the line
    empty knows that nobody who came earlier is still to act, and may act at once without overtaking.

    Invariants:
      * those whose turn has come stand in front of those whose turn has not
      * ``reserved_bytes`` is the sum of the sizes of those whose turn has come
      * a turn is given from the event loop, never inside ``join``: a future that is done already would not make
        its caller wait behind those who were woken before
    """

    def __init__(self, shell: Shell, may_go: Callable[[Place], bool]) -> None:
        self.reserved_bytes = 0
        self._shell = shell
        self._may_go = may_go
        self.places: deque[Place] = deque()
        """Who stands in the line; read only, empty = nobody."""
        self._is_serving = False

    def join(self, topic: str, size: int) -> Place:
        """Stand at the end. Await ``turn``, act without awaiting, then ``leave``: in any case, also when cancelled."""
        place = Place(topic, size, self._shell.create_future())
        self.places.append(place)
        self.serve()
        return place

    def leave(self, place: Place) -> None:
        """Go, after the turn or instead of it."""
        if place.is_let:
            self.reserved_bytes -= place.size
        self.places.remove(place)
        self.serve()

    def serve(self) -> None:
        """Give turns soon: something has changed."""
        if self.places and not self._is_serving:
            self._is_serving = True
            self._shell.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_serving = False
        for place in self.places:
            if place.turn.done():
                continue
            if not self._may_go(place):
                return
            place.is_let = True
            self.reserved_bytes += place.size
            place.turn.set_result(None)

    def fail(self, error: Callable[[], ViewstampError], *, topic: str | None = None) -> None:
        """Send everybody away who waits, or everybody who waits for ``topic``."""
        for place in self.places:
            if not place.turn.done() and topic in (None, place.topic):
                place.turn.set_exception(error())
        self.serve()
