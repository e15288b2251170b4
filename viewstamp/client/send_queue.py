"""Appends and commands that cannot join a batch yet: they wait for room, or for what the nodes say of a name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from viewstamp.client.batches import OpenBatch
from viewstamp.client.router import Router
from viewstamp.client.routing import Reaction, copies, reaction
from viewstamp.client.runtime import Future, Runtime, TimerHandle
from viewstamp.errors import PeerError, ViewstampError
from viewstamp.ids import TopicId
from viewstamp.wire.commands import Interface
from viewstamp.wire.requests import DescribeActor, DescribeTopic

__all__ = ["SendQueue", "Ticket", "ticket_name"]

_ACTOR = "\0"
"""What the names of actors begin with in the queue, where topics stand too."""


def ticket_name(actor: str) -> str:
    """Return the name of an actor in the queue, which no topic has."""
    return _ACTOR + actor


class Ticket:
    """One append or command, which may have to wait."""

    __slots__ = ("act", "batch", "name", "size", "timer", "waiter")

    def __init__(
        self, name: str, size: int, waiter: Future[Any], act: Callable[[], OpenBatch[Future[Any]] | None]
    ) -> None:
        self.name = name
        """The topic, or the actor as ``ticket_name`` returns it."""
        self.size = size
        """Bytes that it is going to hold."""
        self.waiter = waiter
        """The future of the caller."""
        self.act = act
        """Puts it into a batch; None = there is nothing to send. Raises ViewstampError where it never can be."""
        self.batch: OpenBatch[Future[Any]] | None = None
        """The batch that it joined; None = it waits."""
        self.timer: TimerHandle | None = None
        """When it expires; None = never, or by the default timeout of its batch."""


class SendQueue:
    """First come, first served.

    The queue itself acts for tickets whose turn has come, and wakes no task for it: not every runtime runs tasks in the
    order in which they were woken.

    Invariants:
      * no ticket stands in the queue that was admitted, or whose future is done
      * it acts from the event loop, never inside ``join``, ``leave`` or ``fail``
      * at most one task asks for a name
    """

    def __init__(self, runtime: Runtime, router: Router, silence: float, fits: Callable[[int], bool]) -> None:
        """Begin empty.

        Args:
          runtime: calls it back.
          router: asks for names.
          silence: seconds after which it asks for a name again.
          fits: says whether so many more bytes may be held.
        """
        self.tickets: deque[Ticket] = deque()
        """Read only."""
        self.topics: dict[str, TopicId] = {}
        self.interfaces: dict[str, Interface] = {}
        """What nodes said of actors, by the names that these have in the queue."""
        self._runtime = runtime
        self._router = router
        self._silence = silence
        self._fits = fits
        self._asking: set[str] = set()
        self._is_serving = False

    def admits(self, ticket: Ticket) -> bool:
        """Say whether a ticket that comes now need not wait."""
        return not self.tickets and self._is_known(ticket.name) and self._fits(ticket.size)

    def join(self, ticket: Ticket) -> None:
        """Stand at the end."""
        self.tickets.append(ticket)
        self.serve()

    def leave(self, ticket: Ticket) -> None:
        """Go without having been admitted, because the future is done. Nothing happens where it was admitted."""
        if ticket in self.tickets:
            self.tickets.remove(ticket)
            self.serve()

    def serve(self) -> None:
        """Admit soon whoever may go, because something has changed."""
        if self.tickets and not self._is_serving:
            self._is_serving = True
            self._runtime.call_soon(self._serve)

    def fail(self, error: Callable[[], ViewstampError], *, name: str | None = None) -> None:
        """Fail all tickets, or all that wait for ``name``."""
        going = [ticket for ticket in self.tickets if name in (None, ticket.name)]
        self.tickets = deque(ticket for ticket in self.tickets if name not in (None, ticket.name))
        for ticket in going:
            if not ticket.waiter.done():
                ticket.waiter.set_exception(error())
        self.serve()

    async def ask_interface(self, actor: str, seconds: float) -> Interface:
        """Ask any node what an actor understands."""
        _, frame = await self._router.ask_any(DescribeActor(name=actor), seconds=seconds)
        return Interface.from_wire(frame.body["actor"])

    def _serve(self) -> None:
        self._is_serving = False
        while self.tickets and self._may_go(self.tickets[0]):
            ticket = self.tickets.popleft()
            if ticket.waiter.done():
                continue  # Cancelled, but its task has not run yet.
            try:
                ticket.batch = ticket.act()
            except ViewstampError as error:
                ticket.waiter.set_exception(error)

    def _is_known(self, name: str) -> bool:
        return name in self.topics or name in self.interfaces

    def _may_go(self, ticket: Ticket) -> bool:
        if not self._is_known(ticket.name):
            if ticket.name not in self._asking:
                self._asking.add(ticket.name)
                self._runtime.spawn(self._ask(ticket.name))
            return False
        return self._fits(ticket.size)

    async def _ask(self, name: str) -> None:
        """Ask what a name stands for until it is known, refused, or nobody waits for it any more."""
        try:
            while any(ticket.name == name for ticket in self.tickets):
                try:
                    if name.startswith(_ACTOR):
                        self.interfaces[name] = await self.ask_interface(name.removeprefix(_ACTOR), self._silence)
                    else:
                        request = DescribeTopic(name=name, stale=False)
                        _, frame = await self._router.ask_any(request, seconds=self._silence)
                        self.topics[name] = TopicId(frame.body["topic"]["id"])
                except ViewstampError as error:
                    if reaction(error) is Reaction.FINAL or isinstance(error, PeerError):
                        self.fail(copies(error), name=name)
                    # Otherwise ask again: the waiting callers have timeouts of their own.
                else:
                    return
        finally:
            self._asking.discard(name)
            self.serve()
