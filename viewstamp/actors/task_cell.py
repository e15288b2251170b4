"""The cell of an actor with a task. The task waits for messages by one future at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from viewstamp.actors.actor import Actor, AsyncActor
from viewstamp.actors.cell import FAILURES, Cell
from viewstamp.actors.dead_letters import Loss

__all__ = ["TaskCell"]

MessageT = TypeVar("MessageT")

_NOTHING = object()


class TaskCell(Cell[MessageT]):
    """The cell of an :class:`AsyncActor`, with one task for each object.

    Invariants:
      * ``task`` is None exactly between two objects, and after the last
      * an object whose end has begun (``actor`` is None) receives no message, and its task is not cancelled again
    """

    actor: AsyncActor[MessageT] | None
    task: asyncio.Task[None] | None = None
    _waiter: asyncio.Future[None] | None = None
    _in_hand: object = _NOTHING
    """The message that was received last, until the next one is requested."""
    _has_begun = False
    _cancelled_itself = False
    _error: BaseException | None = None
    """The cause of the present object's end."""
    _delay = 0.0
    """Seconds from the task's end to the start of the next object."""

    def begin(self, actor: Actor[MessageT] | AsyncActor[MessageT]) -> None:
        """Create the task; ``on_start`` runs in it."""
        assert isinstance(actor, AsyncActor), (
            f"actor {self.name!r} cannot be restarted as one of the other kind: {actor!r}"
        )
        self._adopt(actor)
        self._in_hand = _NOTHING
        self._error = None
        self._has_begun = self._cancelled_itself = False
        self.task = self._loop.create_task(self._main(actor), name=f"actor {self.name}")
        self.task.add_done_callback(self._on_done)

    def stop(self, error: BaseException | None) -> None:
        """Close the mailbox, end the open asks and cancel the task, unless its end has begun."""
        if self.mailbox.is_closed:
            return
        dropped = self.mailbox.close()
        self._stopped_by = error
        self._end_pause()
        actor = self.actor
        if actor is not None:
            self._error = error
        self._end_life(error)
        self._close_replies()
        self._drop(dropped, actor)
        if self.task is None:
            self._on_over()
        elif actor is not None:
            self._cancel()

    async def receive(self, actor: AsyncActor[MessageT]) -> MessageT:
        """See :meth:`AsyncActor.receive`."""
        assert self._waiter is None, f"two receive() of actor {self.name!r} at once"
        while self.actor is actor:
            if len(self.mailbox):
                message = self._in_hand = self.mailbox.take_one()
                return message
            self._in_hand = _NOTHING
            self._waiter = self._loop.create_future()
            try:
                self._maybe_finish()
                await self._waiter
            finally:
                self._waiter = None
        # Either the handler stopped its own actor, and the cancellation is raised at this sleep; or the handler has
        # swallowed the cancellation of a stop, and it is raised again below.
        await asyncio.sleep(0)
        raise asyncio.CancelledError(f"actor {self.name!r} has been stopped")

    @property
    def _is_idle(self) -> bool:
        return self._waiter is not None or self.task is None or not self.mailbox.taken

    def _waker(self) -> Callable[[], object]:
        return self._end_wait

    def _end_wait(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _main(self, actor: AsyncActor[MessageT]) -> None:
        self._has_begun = True
        if self.actor is not actor:  # Stopped before its first step.
            await self._end(actor)
            return
        try:
            await actor.on_start()
            await actor.run()
        except FAILURES as error:
            self._on_left(error)
            await self._end(actor)
            if not isinstance(error, Exception):  # A cancellation or an interrupt continues.
                raise
        else:
            if self.actor is actor:
                self.stop(None)
            await self._end(actor)

    def _on_left(self, error: BaseException) -> None:
        """Record the error that ended ``run``. The cancellation that a stop sends is no failure; any other one is."""
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if self.actor is None and is_cancelled:
            return
        if self._in_hand is not _NOTHING:
            self.system.dead_letters.add(self.name, [self._in_hand], Loss.FAILED)
        assert self.task is not None
        self.fail(error, may_restart=not (is_cancelled and self.task.cancelling()))

    def _restart(self, delay: float, error: BaseException) -> None:
        self._delay = delay
        if self.task is None:
            self._pause(delay)
        elif self.actor is not None:
            self._error = error
            self._end_life(error)
            self._lose_replies(error)
            self._cancel()

    def _cancel(self) -> None:
        # A task that has not begun is not cancelled, because then it would run nothing; its first step finds the end.
        if self._has_begun:
            assert self.task is not None
            self._cancelled_itself = asyncio.current_task() is self.task
            self.task.cancel()

    async def _end(self, actor: AsyncActor[MessageT]) -> None:
        try:
            if self._cancelled_itself:
                # An actor that stopped itself, or failed, and then left its handler without awaiting still has its own
                # cancellation pending. Take it here, because otherwise it would hit on_stop.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            for child in reversed(list(self.children)):
                await child.ended
        finally:
            try:
                await actor.on_stop(self._error)
            except Exception as error:
                self.fail(error)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # Marks it as retrieved: an interrupt, which the loop has raised already.
        if not self._has_begun and self.actor is not None:  # The task was cancelled from outside before its first step.
            self.fail(asyncio.CancelledError(f"the task of actor {self.name!r} was cancelled"), may_restart=False)
        self.task = None
        if self.mailbox.is_closed:
            self._on_over()
        else:
            self._pause(self._delay)
