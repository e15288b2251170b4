"""The cell of an actor that runs in turns, which are callbacks of the loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from viewstamp.actors.actor import Actor, AsyncActor
from viewstamp.actors.cell import FAILURES, INTERRUPTS, Cell
from viewstamp.actors.dead_letters import Loss

__all__ = ["TurnCell"]

MessageT = TypeVar("MessageT")


class TurnCell(Cell[MessageT]):
    """The cell of an :class:`Actor`.

    Invariants:
      * while it is busy, in a turn or in ``on_start``, no end and no restart begins: ``_settle`` does them afterwards
    """

    actor: Actor[MessageT] | None
    _takes_lists = False
    _is_busy = False
    _has_ended = False
    _interrupted: tuple[float, BaseException] | None = None
    """The restart that a child's failure caused while this actor was busy: its delay and its cause."""
    _dropped: list[MessageT]

    def begin(self, actor: Actor[MessageT] | AsyncActor[MessageT]) -> None:
        """Run ``on_start``. If that raises, the object ends before its first message."""
        assert isinstance(actor, Actor), f"actor {self.name!r} cannot be restarted as one of the other kind: {actor!r}"
        self._adopt(actor)
        self._takes_lists = type(actor).on_messages is not Actor.on_messages
        self._is_busy = True
        try:
            actor.on_start()
        except FAILURES as error:
            self._is_busy = False
            self._interrupted = None
            self._end_life(error)
            raise
        self._is_busy = False
        self._settle()

    def stop(self, error: BaseException | None) -> None:
        """Close the mailbox now; end at once, or after the running turn."""
        if not self.mailbox.is_closed:
            self._dropped = self.mailbox.close()
            self._stopped_by = error
        self._settle()

    def tell_now(self, message: MessageT) -> None:
        """See :meth:`Ref.tell_now`."""
        if self._is_busy or self.actor is None or self.mailbox.is_refusing or len(self.mailbox):
            super().tell_now(message)
        else:
            self.mailbox.put(message, wakes=False)
            self._context.run(self._turn)

    @property
    def _is_idle(self) -> bool:
        return not self._is_busy

    def _waker(self) -> Callable[[], object]:
        return partial(self._loop.call_soon, self._turn, context=self._context)

    def _turn(self) -> None:
        actor = self.actor
        if actor is None:  # It failed or stopped since it was scheduled.
            return
        messages = self.mailbox.take()
        if not messages:
            return
        self._is_busy = True
        rest = iter(messages)
        try:
            if self._takes_lists:
                actor.on_messages(messages)
            else:
                for message in rest:
                    actor.on_message(message)
        except FAILURES as error:
            self._is_busy = False
            self._interrupted = None  # The decision about this failure replaces it.
            # A list counts as lost whole, because any of it may have been carried out. One by one, only the message
            # that failed is lost: those after it have not been seen.
            behind = [] if self._takes_lists else list(rest)
            if not self.mailbox.give_back(behind):
                self._dropped[:0] = behind
            lost = messages if self._takes_lists else [messages[-1 - len(behind)]]
            self.system.dead_letters.add(self.name, lost, Loss.FAILED)
            self.fail(error)
            if isinstance(error, INTERRUPTS):
                raise
        self._is_busy = False
        if self.mailbox.is_refusing or self._interrupted is not None:
            self._settle()

    def _settle(self) -> None:
        """Do the end or the restart that was requested while the actor was busy, unless it still is."""
        if self._is_busy:
            return
        interrupted, self._interrupted = self._interrupted, None
        if self.mailbox.is_closed:
            self._end()
        elif interrupted is not None:
            self._restart(*interrupted)
        else:
            self._maybe_finish()

    def _restart(self, delay: float, error: BaseException) -> None:
        if self._is_busy:
            self._interrupted = (delay, error)
            return
        self._pause(delay)
        actor = self.actor
        if actor is not None:
            try:
                self._end_life(error)
                self._guard(partial(actor.on_stop, error))
            finally:
                self._lose_replies(error)

    def _end(self) -> None:
        """End a stopped actor, once."""
        if self._has_ended:
            return
        self._has_ended = True
        actor = self.actor
        self._end_pause()
        try:
            self._end_life(self._stopped_by)
            self._drop(self._dropped, actor)
            if actor is not None:
                self._guard(partial(actor.on_stop, self._stopped_by))
        finally:
            self._close_replies()
            self._on_over()
