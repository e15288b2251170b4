"""The cell: what the framework keeps for one actor through all its lives: mailbox, timers, open replies, children."""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, assert_never, cast

from viewstamp.actors.dead_letters import Loss
from viewstamp.actors.mailbox import Bounds, DropOldestMailbox, Mailbox, Overflow
from viewstamp.actors.ref import Ref
from viewstamp.actors.reply import Reply
from viewstamp.actors.supervisor import RESTARTS_KEPT, Directive, Failure, RestartIn, Supervisor
from viewstamp.actors.timer import Timer
from viewstamp.errors import UnavailableError

if TYPE_CHECKING:
    from viewstamp.actors.actor import Actor, AsyncActor
    from viewstamp.actors.system import System

__all__ = ["FAILURES", "INTERRUPTS", "Cell"]

MessageT = TypeVar("MessageT")
ResultT = TypeVar("ResultT")

INTERRUPTS = (KeyboardInterrupt, SystemExit)
"""What goes on through the loop when it has been noted; no supervisor is asked about it."""

FAILURES = (Exception, asyncio.CancelledError, *INTERRUPTS)
"""What counts when it leaves a handler.

CancelledError too: out of a turn it says that a future which a handler looked at was cancelled, and the loop
would drop it silently. Not all of BaseException: a simulated process that dies in a call runs no code after it.
"""


class Cell(ABC, Generic[MessageT]):
    """One actor, whatever its kind, from ``spawn`` to its end for good; a restart puts another object into it.

    Invariants:
      * ``actor`` is the object that lives, None before, between and after its lives: what an object asks for that
        lives no more has no effect on its successor
      * ``stop`` takes effect once; the first caller's error is the one that the actor hears
      * a reply is in ``_replies`` exactly while it is open (up to one iteration longer)
      * a timer is in ``_timers`` exactly while it may fire
      * it is forgotten, and ``ended`` told, once its end is over and its children have been forgotten
    """

    def __init__(
        self,
        system: System,
        name: str,
        *,
        parent: Cell[Any] | None,
        supervisor: Supervisor,
        factory: Callable[[], Actor[MessageT] | AsyncActor[MessageT]] | None,
        **bounds: Unpack[Bounds[MessageT]],
    ) -> None:
        self.system = system
        self.name = name
        self.parent = parent
        self.supervisor = supervisor
        self.children: dict[Cell[Any], None] = {}
        self.actor: Actor[MessageT] | AsyncActor[MessageT] | None = None
        kind = DropOldestMailbox if bounds.get("overflow") is Overflow.DROP_OLDEST else Mailbox
        self.mailbox: Mailbox[MessageT] = kind(name, self._wake, self._lose, **bounds)
        self.ref: Ref[MessageT] = Ref(self)
        self._loop = system.loop
        # A context of its own: a turn serves many tellers and must not run in that of the one who came first.
        self._context = contextvars.copy_context()
        self._factory = factory
        self._stopped_by: BaseException | None = None
        self._restarted: deque[float] = deque(maxlen=RESTARTS_KEPT)
        self._pausing: asyncio.TimerHandle | None = None
        self._waits_for_children = False
        self._is_over = False
        self._ended: asyncio.Future[BaseException | None] | None = None
        # Dictionaries for their order: what is resolved at a stop is resolved in the order in which it was asked.
        self._replies: dict[int, Reply[object]] = {}
        self._timers: dict[Timer[MessageT], None] = {}

    # -- What the kinds do differently ------------------------------------------------------------------------

    @abstractmethod
    def begin(self, actor: Actor[MessageT] | AsyncActor[MessageT]) -> None:
        """Begin the life of ``actor``; raises what its ``on_start`` raises here."""

    @abstractmethod
    def stop(self, error: BaseException | None) -> None:
        """Begin its end; ``error`` is why, None for an ordinary end. Idempotent, never raises."""

    @abstractmethod
    def _restart(self, delay: float, error: BaseException) -> None:
        """End the present life, if there is one, and begin another ``delay`` seconds after that; it is not stopped."""

    @abstractmethod
    def _wake(self) -> None:
        """Hear from the mailbox that messages wait."""

    @property
    @abstractmethod
    def _is_idle(self) -> bool:
        """Whether the actor is done with all that it has taken."""

    # -- Messages -----------------------------------------------------------------------------------------------

    def ask(
        self,
        make: Callable[[Reply[ResultT]], MessageT],
        *,
        timeout: float | None,
        changes: bool,
    ) -> asyncio.Future[ResultT]:
        """See :meth:`Ref.ask`."""
        future: asyncio.Future[ResultT] = self._loop.create_future()
        reply = Reply(future, actor=self.name, changes=changes)
        message = make(reply)
        try:
            if not self.mailbox.tell(message):
                raise self.mailbox.full_error("the message was dropped")
        except UnavailableError as error:
            reply.refuse(error)
            return future
        if timeout is not None:
            reply.deadline = self._loop.call_later(timeout, reply.expire, timeout)
        # One dictionary holds the replies of every type: all that it does is end them, which is the same for all.
        ticket = self.mailbox.accepted
        self._replies[ticket] = cast("Reply[object]", reply)
        future.add_done_callback(partial(self._forget_reply, ticket))
        return future

    def _forget_reply(self, ticket: int, _: asyncio.Future[Any]) -> None:
        reply = self._replies.pop(ticket)
        if reply.deadline is not None:
            reply.deadline.cancel()

    def _close_replies(self) -> None:
        """End every ask: the actor has stopped."""
        for ticket, reply in list(self._replies.items()):
            reply.close(self.mailbox.closed_error(), was_taken=ticket <= self.mailbox.taken)

    def _lose_replies(self, cause: BaseException) -> None:
        """End the asks that a failed life has taken with it; those that still wait are for the next one."""
        for ticket, reply in list(self._replies.items()):
            if ticket <= self.mailbox.taken:
                error = UnavailableError(f"actor {self.name!r} has failed", remedy="try again: it is being restarted")
                error.__cause__ = cause
                reply.close(error, was_taken=True)

    def _lose(self, message: MessageT, loss: Loss, ticket: int) -> None:
        """Hear from the mailbox that a message is lost."""
        self.system.dead_letters.add(self.name, [message], loss)
        if ticket in self._replies:
            self._replies[ticket].refuse(self.mailbox.full_error("the message was dropped for a newer one"))

    def is_stopping(self, actor: object) -> bool:
        """See :attr:`Actor.is_stopping`."""
        return self.actor is not actor or self.mailbox.is_closed

    def schedule(self, actor: object, delay: float, message: MessageT, every: float) -> Timer[MessageT]:
        """See :meth:`Actor.schedule`."""
        timer = Timer(self._loop, self._timers, self.mailbox, message, every)
        if not self.is_stopping(actor):
            timer.start(delay)
        return timer

    # -- Failure and restart --------------------------------------------------------------------------------------

    def fail(self, error: BaseException, *, child: Failure | None = None, may_restart: bool = True) -> None:
        """Have the supervisor decide about a failure, and do so.

        Args:
          error: what went wrong.
          child: the child's failure that was escalated; None = this actor itself failed.
          may_restart: False where somebody has cancelled the actor, which a restart would swallow.
        """
        now = self._loop.time()
        failure = Failure(self.name, error, tuple(now - then for then in self._restarted), child)
        may_restart = may_restart and self._factory is not None
        match self.system.decide(failure, self, may_restart=may_restart):
            case RestartIn(delay):
                self._restart(delay, error)
            case Directive.STOP:
                self.stop(error)
            case Directive.ESCALATE:
                assert self.parent is not None
                self.parent.fail(error, child=failure)
            case Directive.STOP_ALL:
                self.system.stop_all(failure)
            case None:
                pass
            case never:
                assert_never(never)

    def _adopt(self, actor: Actor[MessageT] | AsyncActor[MessageT]) -> None:
        assert actor._cell is None, f"{actor!r} has been spawned before, as {actor._cell.name!r}"
        self.actor = actor
        actor._cell = self

    def _end_life(self, error: BaseException | None) -> None:
        """Do what every end of a life begins with: nothing comes of what it has left behind."""
        self.actor = None
        for timer in list(self._timers):
            timer.cancel()
        for child in reversed(list(self.children)):
            child.stop(error)

    def _pause(self, delay: float) -> None:
        """Begin the next life in ``delay`` seconds; the last call counts."""
        self._end_pause()
        self._pausing = self._loop.call_later(delay, self._resume, context=self._context)

    def _end_pause(self) -> None:
        self._waits_for_children = False
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None

    def _resume(self) -> None:
        self._pausing = None
        if self.children:  # of the former life: their names are still taken
            self._waits_for_children = True
            return
        assert self._factory is not None
        self._restarted.append(self._loop.time())
        waits = len(self.mailbox) > 0
        try:
            actor = self._factory()
            if not self.mailbox.is_closed:
                self.begin(actor)
        except FAILURES as error:
            self.fail(error)
            if self.mailbox.is_closed:  # by the start itself, before it failed: there is an end to be brought about
                self.stop(error)
            if isinstance(error, INTERRUPTS):
                raise
        if waits:
            self._wake()

    # -- The end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """See :meth:`Ref.finish`."""
        self.mailbox.refuse()
        self._maybe_finish()

    def _maybe_finish(self) -> None:
        """Stop an actor that is to finish, once nothing waits and its children have finished."""
        if self.mailbox.is_refusing and not self.mailbox.is_closed and self._is_idle and not len(self.mailbox):
            for child in reversed(list(self.children)):
                child.finish()
            if not self.children:
                self.stop(None)

    def _drop(self, messages: list[MessageT], actor: Actor[MessageT] | AsyncActor[MessageT] | None) -> None:
        """Lose what waited, and let the actor hear of it, if one lives."""
        self.system.dead_letters.add(self.name, messages, Loss.STOPPED)
        if messages and actor is not None:
            self._guard(partial(actor.on_dropped, messages))

    def _guard(self, hook: Callable[[], None]) -> None:
        try:
            hook()
        except FAILURES as error:
            self.fail(error)
            if isinstance(error, INTERRUPTS):
                raise

    def _on_over(self) -> None:
        """Take note that the end is over, but for the children's."""
        self._is_over = True
        if not self.children:
            self._tell_end()

    def on_child_ended(self, child: Cell[Any]) -> None:
        """Hear from a child that its life, and those of its own children, are over."""
        del self.children[child]
        if self.children:
            return
        if self._is_over:
            self._tell_end()
        elif self._waits_for_children:
            self._pause(0.0)
        else:
            self._maybe_finish()

    def _tell_end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(self._stopped_by)
        if self.parent is not None:
            self.parent.on_child_ended(self)
        self.system.forget(self)

    @property
    def ended(self) -> asyncio.Future[BaseException | None]:
        """See :attr:`Ref.ended`."""
        if self._ended is None:
            self._ended = self._loop.create_future()
            if self._is_over and not self.children:
                self._ended.set_result(self._stopped_by)
        return asyncio.shield(self._ended)
