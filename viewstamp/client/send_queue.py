"""The waiting line of a client: appends that cannot join a batch yet, let in by the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from viewstamp.client.batches import OpenBatch
from viewstamp.client.runtime import Future, Runtime, Timer
from viewstamp.errors import ViewstampError

__all__ = ["SendQueue", "Ticket"]


class Ticket:
    """One append or command, which may have to wait."""

    __slots__ = ("act", "batch", "size", "timer", "topic", "waiter")

    def __init__(
        self, topic: str, size: int, waiter: Future[Any], act: Callable[[], OpenBatch[Future[Any]] | None]
    ) -> None:
        self.topic = topic
        self.size = size
        """Bytes that it is going to hold."""
        self.waiter = waiter
        """Who is told what became of it."""
        self.act = act
        """Puts it into a batch; None = there is nothing to send. Raises ViewstampError where it never can be."""
        self.batch: OpenBatch[Future[Any]] | None = None
        """Where it was put; None = it waits."""
        self.timer: Timer | None = None
        """When it expires; None = never, or by the default timeout of its batch."""


class SendQueue:
    """First come, first served.

    The line itself acts for those whose turn has come, and wakes nobody for it: in which order tasks run is not
    everywhere the order in which they were woken.

    Invariants:
      * nobody stands in the line who was let in, or who needs no answer any more
      * it acts from the event loop, never inside ``join``, ``leave`` or ``fail``
    """

    def __init__(self, runtime: Runtime, may_go: Callable[[Ticket], bool]) -> None:
        self.places: deque[Ticket] = deque()
        """Who stands in the line; read only, empty = nobody."""
        self._runtime = runtime
        self._may_go = may_go
        self._is_serving = False

    def join(self, place: Ticket) -> None:
        """Stand at the end."""
        self.places.append(place)
        self.serve()

    def leave(self, place: Ticket) -> None:
        """Go without having been let in: the waiter has been told, or was cancelled. Nothing where it was let in."""
        if place in self.places:
            self.places.remove(place)
            self.serve()

    def serve(self) -> None:
        """Let in soon who may go: something has changed."""
        if self.places and not self._is_serving:
            self._is_serving = True
            self._runtime.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_serving = False
        while self.places and self._may_go(self.places[0]):
            place = self.places.popleft()
            if place.waiter.done():
                continue  # Cancelled, but its task has not run yet.
            try:
                place.batch = place.act()
            except ViewstampError as error:
                place.waiter.set_exception(error)

    def fail(self, error: Callable[[], ViewstampError], *, topic: str | None = None) -> None:
        """Send everybody away, or everybody who waits for ``topic``."""
        going = [place for place in self.places if topic in (None, place.topic)]
        self.places = deque(place for place in self.places if topic not in (None, place.topic))
        for place in going:
            if not place.waiter.done():
                place.waiter.set_exception(error())
        self.serve()
