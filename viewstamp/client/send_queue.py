"""Appends and commands that cannot join a batch yet, because there is no room or their topic or actor is unknown."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from viewstamp.client.batches import OpenBatch
from viewstamp.client.router import Router
from viewstamp.client.routing import Reaction, copies, reaction
from viewstamp.client.runtime import Future, Runtime, TimerHandle
from viewstamp.errors import PeerError, StreamSealedError, UnavailableError, UnknownTopicError, ViewstampError
from viewstamp.ids import TopicId
from viewstamp.wire.commands import Interface
from viewstamp.wire.requests import DescribeActor, DescribeTopic

__all__ = ["SendQueue", "Ticket", "ticket_name"]

_MISSING_SECONDS = 0.1
"""The pause before a node is asked again about a promised topic."""
_ACTOR = "\0"
"""Prefix that distinguishes the names of actors from those of topics in the queue."""


def ticket_name(actor: str) -> str:
    """Return the name under which the queue holds the calls of an actor. No topic can have it."""
    return _ACTOR + actor


class Ticket:
    """One append or command that may have to wait."""

    __slots__ = ("act", "batch", "name", "size", "timer", "waiter")

    def __init__(
        self, name: str, size: int, waiter: Future[Any], act: Callable[[Any], OpenBatch[Future[Any]] | None]
    ) -> None:
        self.name = name
        """The topic, or the actor as ``ticket_name`` returns it."""
        self.size = size
        """Bytes that it will hold."""
        self.waiter = waiter
        """The future of the caller."""
        self.act = act
        """Called with this ticket: puts it into a batch and returns that; None = nothing is to be sent. Raises
        ViewstampError if it is wrong. One function may serve many tickets, because a closure for each costs time."""
        self.batch: OpenBatch[Future[Any]] | None = None
        """The batch that it joined; None = it is waiting."""
        self.timer: TimerHandle | None = None
        """The timer that expires it; None = it has none, or the default timeout of its batch applies."""


class SendQueue:
    """Appends and commands in the order of their calls.

    The queue itself puts each ticket into its batch. It does not wake the callers for that, because trio does not run
    tasks in the order in which they were woken.

    Invariants:
      * no ticket in the queue was admitted or has a future that is done
      * tickets are admitted in a callback of the event loop, never inside ``join``, ``leave`` or ``fail``
      * for each name at most one task asks the nodes
    """

    def __init__(
        self,
        runtime: Runtime,
        router: Router,
        silence: float,
        fits: Callable[[int], bool],
        on_sealed: Callable[[Future[Any]], None],
    ) -> None:
        """Create an empty queue.

        Args:
          runtime: the event loop.
          router: sends the questions about names.
          silence: seconds after which a question is sent again.
          fits: returns whether the given number of bytes may be held in addition.
          on_sealed: called with the future of each ticket that is refused because its stream has ended.
        """
        self.tickets: deque[Ticket] = deque()
        """The waiting ones, in order. Others may read it."""
        self.topics: dict[str, TopicId] = {}
        self.interfaces: dict[str, Interface] = {}
        """The interface of each known actor, by its name in the queue."""
        self.promised: set[str] = set()
        """Topics that certainly exist, or will: a node that does not know one of them is asked again."""
        self.missing: dict[str, UnavailableError] = {}
        """The promised topics that no node knows yet, with the reason for their callers."""
        self._runtime = runtime
        self._router = router
        self._silence = silence
        self._fits = fits
        self._on_sealed = on_sealed
        self._asking: set[str] = set()
        self._is_serving = False

    def admits(self, ticket: Ticket) -> bool:
        """Return whether a new ticket need not wait."""
        return not self.tickets and self._is_known(ticket.name) and self._fits(ticket.size)

    def join(self, ticket: Ticket) -> None:
        """Add a ticket at the end."""
        self.tickets.append(ticket)
        self.serve()

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket whose future is done. No effect if it was admitted."""
        if ticket in self.tickets:
            self.tickets.remove(ticket)
            self.serve()

    def serve(self) -> None:
        """Admit in the next turn the tickets that need not wait any longer."""
        if self.tickets and not self._is_serving:
            self._is_serving = True
            self._runtime.call_soon(self._serve)

    def fail(self, error: Callable[[], ViewstampError], *, name: str | None = None) -> None:
        """Fail all tickets, or all that wait for ``name``."""
        going = [ticket for ticket in self.tickets if name in (None, ticket.name)]
        self.tickets = deque(ticket for ticket in self.tickets if name not in (None, ticket.name))
        for ticket in going:
            if not ticket.waiter.done():
                failure = error()
                if isinstance(failure, StreamSealedError):
                    self._on_sealed(ticket.waiter)
                ticket.waiter.set_exception(failure)
        self.serve()

    async def ask_interface(self, actor: str, seconds: float) -> Interface:
        """Return the interface of an actor, as any node describes it."""
        _, frame = await self._router.ask_any(DescribeActor(name=actor), seconds=seconds)
        return Interface.from_wire(frame.body["actor"])

    def _serve(self) -> None:
        self._is_serving = False
        while self.tickets and self._may_go(self.tickets[0]):
            ticket = self.tickets.popleft()
            if ticket.waiter.done():
                continue  # Cancelled, but its task has not run yet.
            try:
                ticket.batch = ticket.act(ticket)
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
        """Ask the nodes about a name until it is known or refused, or no ticket waits for it."""
        try:
            while any(ticket.name == name for ticket in self.tickets):
                try:
                    if name.startswith(_ACTOR):
                        self.interfaces[name] = await self.ask_interface(name.removeprefix(_ACTOR), self._silence)
                    else:
                        request = DescribeTopic(name=name, stale=False)
                        _, frame = await self._router.ask_any(request, seconds=self._silence)
                        self.topics[name] = TopicId(frame.body["topic"]["id"])
                        self.missing.pop(name, None)
                except ViewstampError as error:
                    if isinstance(error, UnknownTopicError) and name in self.promised:
                        why = f"the topic {name!r} is not created in its group yet"
                        self.missing[name] = UnavailableError(why, remedy="append again")
                        await self._runtime.sleep(_MISSING_SECONDS)
                        continue
                    if reaction(error) is Reaction.FINAL or isinstance(error, PeerError):
                        self.fail(copies(error), name=name)
                    # Otherwise ask again, because the waiting callers have timeouts of their own.
                else:
                    return
        finally:
            self._asking.discard(name)
            self.serve()
