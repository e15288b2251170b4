"""The cell: the framework's state of one actor through all its restarts: mailbox, timers, open replies, children."""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
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
"""Exceptions that are recorded and then continue through the loop. No supervisor decides about them."""

FAILURES = (Exception, asyncio.CancelledError, *INTERRUPTS)
"""Exceptions that are a failure if they leave a handler.

CancelledError is included, because in a turn it means that a handler read the result of a cancelled future, and the
loop would drop it silently. Other BaseExceptions are not, because the simulator kills a process by one, and no code may
run after it.
"""


class Cell(ABC, Generic[MessageT]):
    """One actor of either kind, from ``spawn`` to its final end. A restart puts another object into the same cell.

    Invariants:
      * ``actor`` is the living object; None before the first, between two, and after the last. Calls of an object that
        is no longer ``actor`` have no effect on its successor
      * ``stop`` takes effect once; the first caller's error is the one that ``on_stop`` gets
      * a reply is in ``_replies`` exactly while it is open (up to one iteration longer)
      * a timer is in ``_timers`` exactly while it may fire
      * the system forgets the cell, and ``ended`` is resolved, once its end is over and its children are forgotten
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
        self._loop = system.loop
        # A context of its own, because a turn serves several senders and must not run in the context of the first one.
        self._context = contextvars.copy_context()
        self._wake = self._waker()
        self.mailbox: Mailbox[MessageT] = kind(name, self._wake, self._lose, **bounds)
        self.ref: Ref[MessageT] = Ref(self)
        self._factory = factory
        self._stopped_by: BaseException | None = None
        self._restarted: deque[float] = deque(maxlen=RESTARTS_KEPT)
        self._pausing: asyncio.TimerHandle | None = None
        self._waits_for_children = False
        self._is_over = False
        self._ended: asyncio.Future[BaseException | None] | None = None
        # Dictionaries, because they keep their order: a stop resolves the asks in the order in which they were made.
        self._replies: dict[int, Reply[object]] = {}
        self._timers: dict[Timer[MessageT], None] = {}

    # -- The methods in which the two kinds differ ---------------------------------------------------------------

    @abstractmethod
    def begin(self, actor: Actor[MessageT] | AsyncActor[MessageT]) -> None:
        """Start ``actor``; raises the error of its ``on_start`` if that runs here."""

    @abstractmethod
    def stop(self, error: BaseException | None) -> None:
        """Begin the end of the actor; ``error`` is the cause, None for an ordinary end. Idempotent, never raises."""

    @abstractmethod
    def _restart(self, delay: float, error: BaseException) -> None:
        """End the present object, if there is one, and start another one ``delay`` seconds later."""

    @abstractmethod
    def _waker(self) -> Callable[[], object]:
        """Return the function that schedules the actor: the mailbox calls it when messages begin to wait."""

    @property
    @abstractmethod
    def _is_idle(self) -> bool:
        """Whether the actor has finished all messages that it has taken."""

    # -- Messages -----------------------------------------------------------------------------------------------

    def tell_now(self, message: MessageT) -> None:
        """See :meth:`Ref.tell_now`; ``TurnCell`` overrides it."""
        with suppress(UnavailableError):
            self.mailbox.tell(message)

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
        # One dictionary for replies of every type, because it only ends them, which does not depend on the type.
        ticket = self.mailbox.accepted
        self._replies[ticket] = cast("Reply[object]", reply)
        future.add_done_callback(partial(self._forget_reply, ticket))
        return future

    def _forget_reply(self, ticket: int, _: asyncio.Future[Any]) -> None:
        reply = self._replies.pop(ticket)
        if reply.deadline is not None:
            reply.deadline.cancel()

    def _close_replies(self) -> None:
        """End all open asks, because the actor has stopped."""
        for ticket, reply in list(self._replies.items()):
            reply.close(self.mailbox.closed_error(), was_taken=ticket <= self.mailbox.taken)

    def _lose_replies(self, cause: BaseException) -> None:
        """End the asks that the failed object had taken; those that still wait are for its successor."""
        for ticket, reply in list(self._replies.items()):
            if ticket <= self.mailbox.taken:
                error = UnavailableError(f"actor {self.name!r} has failed", remedy="try again: it is being restarted")
                error.__cause__ = cause
                reply.close(error, was_taken=True)

    def _lose(self, message: MessageT, loss: Loss, ticket: int) -> None:
        """Record a message that the mailbox lost."""
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
        """Let the supervisor decide about a failure, and carry out the decision.

        Args:
          error: the failure.
          child: the child's failure that was escalated; None = this actor itself failed.
          may_restart: False if the actor's task was cancelled from outside, because a restart would swallow that.
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
        """Begin the end of the present object, in every case: its timers are cancelled and its children stopped."""
        self.actor = None
        for timer in list(self._timers):
            timer.cancel()
        for child in reversed(list(self.children)):
            child.stop(error)

    def _pause(self, delay: float) -> None:
        """Start the next object in ``delay`` seconds; a later call replaces this one."""
        self._end_pause()
        self._pausing = self._loop.call_later(delay, self._resume, context=self._context)

    def _end_pause(self) -> None:
        self._waits_for_children = False
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None

    def _resume(self) -> None:
        self._pausing = None
        if self.children:  # They belong to the former object, and their names are still taken.
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
            if self.mailbox.is_closed:  # The start stopped the actor before it failed, so the end is still to be done.
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
        """Stop an actor that is finishing, once no message waits and its children have finished."""
        if self.mailbox.is_refusing and not self.mailbox.is_closed and self._is_idle and not len(self.mailbox):
            for child in reversed(list(self.children)):
                child.finish()
            if not self.children:
                self.stop(None)

    def _drop(self, messages: list[MessageT], actor: Actor[MessageT] | AsyncActor[MessageT] | None) -> None:
        """Count the waiting messages as lost, and pass them to the actor's ``on_dropped``, if it lives."""
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
        """Record that the actor's own end is over; its children may still be ending."""
        self._is_over = True
        if not self.children:
            self._tell_end()

    def on_child_ended(self, child: Cell[Any]) -> None:
        """Record that a child has ended, with its own children."""
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
