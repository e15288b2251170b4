"""The cell: what the framework keeps for one live actor: its mailbox, timers, open replies and turns."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from viewstamp.actors.actor import Actor, AsyncActor
from viewstamp.actors.mailbox import Mailbox
from viewstamp.actors.ref import Ref
from viewstamp.actors.reply import Reply
from viewstamp.errors import UnavailableError

if TYPE_CHECKING:
    from viewstamp.actors.system import System

__all__ = ["Cell", "TaskCell", "Timer", "TurnCell"]

MessageT = TypeVar("MessageT")
ResultT = TypeVar("ResultT")

FAILURES = (Exception, asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""What counts when it leaves a handler.

CancelledError too: out of a turn it says that a future which a handler looked at was cancelled, and the loop
would drop it silently. Not all of BaseException: a simulated process that dies in a call runs no code after it.
"""


class Cell(ABC, Generic[MessageT]):
    """One live actor, whatever its kind.

    Invariants:
      * ``stop`` takes effect once; the first caller's error is the one that the actor hears
      * a reply is in ``_replies`` exactly while it is open (up to one iteration longer)
      * a timer is in ``_timers`` exactly while it may fire
    """

    def __init__(
        self,
        system: System,
        name: str,
        on_dropped: Callable[[list[MessageT]], None],
        *,
        count_max: int,
        bytes_max: int,
        measure: Callable[[MessageT], int] | None,
    ) -> None:
        self.system = system
        self.name = name
        self.mailbox: Mailbox[MessageT] = Mailbox(
            name, self._wake, count_max=count_max, bytes_max=bytes_max, measure=measure
        )
        self.ref: Ref[MessageT] = Ref(self)
        self._on_dropped = on_dropped
        self._loop = system.loop
        # Dictionaries for their order: what is resolved at a stop is resolved in the order in which it was asked.
        self._replies: dict[asyncio.Future[object], Reply[object]] = {}
        self._timers: dict[Timer, None] = {}

    @abstractmethod
    def start(self) -> None:
        """Begin the actor's life."""

    @abstractmethod
    def stop(self, error: BaseException | None) -> None:
        """Begin its end; ``error`` is why everything stops, None for an ordinary end. Idempotent, never raises."""

    @abstractmethod
    def _wake(self) -> None:
        """Hear from the mailbox that messages wait."""

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
            self.mailbox.tell(message)
        except UnavailableError as error:
            reply.refuse(error)
            return future
        reply.ticket = self.mailbox.accepted
        if timeout is not None:
            reply.deadline = self._loop.call_later(timeout, reply.expire, timeout)
        # One dictionary holds the replies of every type: all that it does is end them, which is the same for all.
        self._replies[cast("asyncio.Future[object]", future)] = cast("Reply[object]", reply)
        future.add_done_callback(self._forget_reply)
        return future

    def schedule(self, delay: float, message: MessageT) -> Timer:
        """See :meth:`Actor.schedule`."""
        timer = Timer(self._timers)
        if not self.mailbox.is_closed:
            timer.start(self._loop, delay, self.mailbox.put, message)
        return timer

    def _forget_reply(self, future: asyncio.Future[Any]) -> None:
        reply = self._replies.pop(future)
        if reply.deadline is not None:
            reply.deadline.cancel()

    def _drop(self, messages: list[MessageT]) -> None:
        if not messages:
            return
        try:
            self._on_dropped(messages)
        except FAILURES as error:
            self.system.on_failure(self.name, error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise

    def _cancel_timers(self) -> None:
        for timer in list(self._timers):
            timer.cancel()

    def _close_replies(self) -> None:
        for reply in list(self._replies.values()):
            reply.close(self.mailbox.closed_error(), was_taken=reply.ticket <= self.mailbox.taken)


class TurnCell(Cell[MessageT]):
    """The cell of an :class:`Actor`: its turns are callbacks of the loop."""

    def __init__(
        self,
        system: System,
        name: str,
        actor: Actor[MessageT],
        *,
        count_max: int,
        bytes_max: int,
        measure: Callable[[MessageT], int] | None,
    ) -> None:
        super().__init__(system, name, actor.on_dropped, count_max=count_max, bytes_max=bytes_max, measure=measure)
        self._actor = actor
        # A context of its own: a turn serves many tellers and must not run in that of the one who came first.
        self._context = contextvars.copy_context()
        self._is_busy = False
        self._has_ended = False
        self._dropped: list[MessageT] = []
        self._error: BaseException | None = None
        actor._cell = self

    def start(self) -> None:
        """Run ``on_start``; what it raises ends the actor's life before it began."""
        self._is_busy = True
        try:
            self._actor.on_start()
        except FAILURES:
            self._close()
            raise
        finally:
            self._is_busy = False
        self._maybe_end()

    def stop(self, error: BaseException | None) -> None:
        """Close the mailbox now; end at once, or after the turn that runs."""
        if self.mailbox.is_closed:
            return
        self._dropped = self.mailbox.close()
        self._error = error
        self._maybe_end()

    def _wake(self) -> None:
        self._loop.call_soon(self._turn, context=self._context)

    def _turn(self) -> None:
        messages = self.mailbox.take()
        if not messages:  # stopped since it was woken
            return
        self._is_busy = True
        try:
            self._actor.on_messages(messages)
        except FAILURES as error:
            self._is_busy = False
            self.system.on_failure(self.name, error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        self._is_busy = False
        self._maybe_end()

    def _maybe_end(self) -> None:
        """End the life of a stopped actor, once, and outside its turns."""
        if self._is_busy or self._has_ended or not self.mailbox.is_closed:
            return
        self._has_ended = True
        self._cancel_timers()
        try:
            self._drop(self._dropped)
            self._actor.on_stop(self._error)
        except FAILURES as error:
            self.system.on_failure(self.name, error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        finally:
            self._close()

    def _close(self) -> None:
        self._has_ended = True
        self.mailbox.close()
        self._cancel_timers()
        self._close_replies()
        self.system.forget(self)


class TaskCell(Cell[MessageT]):
    """The cell of an :class:`AsyncActor`: one task, which waits for messages by one future at a time."""

    def __init__(
        self,
        system: System,
        name: str,
        actor: AsyncActor[MessageT],
        *,
        count_max: int,
        bytes_max: int,
        measure: Callable[[MessageT], int] | None,
    ) -> None:
        super().__init__(system, name, actor.on_dropped, count_max=count_max, bytes_max=bytes_max, measure=measure)
        self._actor = actor
        self._waiter: asyncio.Future[None] | None = None
        self._has_begun = False
        self._cancelled_itself = False
        self._error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        actor._cell = self

    def start(self) -> None:
        """Create the task; ``on_start`` runs in it."""
        self.task = self._loop.create_task(self._main(), name=f"actor {self.name}")
        self.task.add_done_callback(self._on_done)

    def stop(self, error: BaseException | None) -> None:
        """Close the mailbox, end the open asks and cancel the task, unless it is ending by itself."""
        if self.mailbox.is_closed:
            return
        self._close(error)
        if self._has_begun:  # else its first step sees the closed mailbox: cancelled before that, it would run nothing
            assert self.task is not None
            self._cancelled_itself = asyncio.current_task() is self.task
            self.task.cancel()

    async def receive(self) -> MessageT:
        """See :meth:`AsyncActor.receive`."""
        assert self._waiter is None, f"two receive() of actor {self.name!r} at once"
        while not len(self.mailbox):
            if self.mailbox.is_closed:
                # The handler stopped its own actor, and the cancellation is raised here; or it has swallowed the
                # cancellation that a stop sent, and that is made good.
                await asyncio.sleep(0)
                raise asyncio.CancelledError(f"actor {self.name!r} has been stopped")
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.mailbox.take_one()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _main(self) -> None:
        self._has_begun = True
        if self.mailbox.is_closed:
            await self._end()
            return
        try:
            await self._actor.on_start()
            await self._actor.run()
        except FAILURES as error:
            self._fail(error)
            await self._end()
            if not isinstance(error, Exception):  # a cancellation or an interrupt goes on
                raise
        else:
            self._close(None)
            await self._end()

    def _fail(self, error: BaseException) -> None:
        """Take note of what ended the task: a stop's own cancellation is no failure, anybody else's is."""
        was_stopped = self.mailbox.is_closed
        self._close(error)
        if not (was_stopped and isinstance(error, asyncio.CancelledError)):
            self.system.on_failure(self.name, error)

    async def _end(self) -> None:
        if self._cancelled_itself:
            # An actor that stopped itself and left its handler without awaiting has its own cancellation still
            # ahead of it, which would hit on_stop.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        try:
            await self._actor.on_stop(self._error)
        except Exception as error:
            self.system.on_failure(self.name, error)

    def _close(self, error: BaseException | None) -> None:
        if self.mailbox.is_closed:
            return
        dropped = self.mailbox.close()
        self._error = error
        self._cancel_timers()
        self._close_replies()
        self._drop(dropped)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # an interrupt, which the loop has raised already
        if not self.mailbox.is_closed:  # somebody else cancelled it before its first step
            self._fail(asyncio.CancelledError(f"the task of actor {self.name!r} was cancelled"))
        self.system.forget(self)


class Timer:
    """A message to oneself that has not come yet.

    Invariants:
      * it stands in its actor's timers exactly while it may fire
    """

    __slots__ = ("_handle", "_timers")

    def __init__(self, timers: dict[Timer, None]) -> None:
        self._timers = timers
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_pending(self) -> bool:
        """Whether its message is still to come."""
        return self._handle is not None

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        delay: float,
        put: Callable[[MessageT], None],
        message: MessageT,
    ) -> None:
        """Begin to wait; called once, by the cell."""
        self._handle = loop.call_later(delay, self._fire, put, message)
        self._timers[self] = None

    def cancel(self) -> None:
        """Make sure that the message does not come, unless it waits in the mailbox already. Idempotent."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            del self._timers[self]

    def _fire(self, put: Callable[[MessageT], None], message: MessageT) -> None:
        self._handle = None
        del self._timers[self]
        put(message)
