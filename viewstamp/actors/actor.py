"""The two base classes of actors: ``Actor`` runs in turns, ``AsyncActor`` has a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack

from viewstamp.errors import ClosedError

if TYPE_CHECKING:
    from viewstamp.actors.cell import Cell
    from viewstamp.actors.mailbox import Bounds
    from viewstamp.actors.ref import Ref
    from viewstamp.actors.supervisor import Supervisor
    from viewstamp.actors.system import System
    from viewstamp.actors.task_cell import TaskCell
    from viewstamp.actors.timer import Timer

__all__ = ["Actor", "AsyncActor", "Spawnable"]

MessageT = TypeVar("MessageT")
ChildT = TypeVar("ChildT")


class _Spawned(Generic[MessageT]):
    """The methods of both kinds that need the system. They can be used from ``on_start`` on."""

    _cell: Cell[MessageT] | None = None

    def _spawned(self) -> Cell[MessageT]:
        assert self._cell is not None, f"{type(self).__name__} has not been spawned"
        return self._cell

    @property
    def ref(self) -> Ref[MessageT]:
        """The actor's own reference, to give to others."""
        return self._spawned().ref

    @property
    def system(self) -> System:
        """The system of this actor."""
        return self._spawned().system

    @property
    def is_stopping(self) -> bool:
        """Whether the end of this object has been requested. Within a turn this can be True before ``on_stop`` runs."""
        return self._spawned().is_stopping(self)

    def spawn(
        self,
        actor: Spawnable[ChildT],
        *,
        name: str,
        supervisor: Supervisor | None = None,
        **bounds: Unpack[Bounds[ChildT]],
    ) -> Ref[ChildT]:
        """Spawn a child, as :meth:`System.spawn` does. The child ends before this actor ends or is restarted.

        Args:
          actor: as for ``System.spawn``.
          name: appended to this actor's name and a slash; unique among its living children.
          supervisor: decides about the child's failures; None = this actor's supervisor.
          **bounds: of its mailbox, see :class:`~viewstamp.actors.mailbox.Bounds`.

        Raises:
          ClosedError: this actor is stopping; the child was not spawned.
          Others: the error of the child's factory or ``on_start``.
        """
        cell = self._spawned()
        name = f"{cell.name}/{name}"
        if cell.is_stopping(self):
            raise ClosedError(
                f"actor {cell.name!r} is stopping, so {name!r} was not spawned",
                remedy="spawn no children once is_stopping is True",
            )
        return cell.system.spawn_under(cell, actor, name, cell.supervisor if supervisor is None else supervisor, bounds)

    def schedule(self, delay: float, message: MessageT, *, every: float = 0.0) -> Timer[MessageT]:
        """Send ``message`` to this actor itself in ``delay`` seconds of the loop's time, once or repeatedly.

        The message is ``put``, so it is never refused. The end of this object, by a stop or a failure, cancels the
        timer; so does ``Timer.cancel``.

        Args:
          delay: seconds until the first message.
          message: the message, the same one each time.
          every: seconds between repetitions, counted from the first, without drift. A repetition is skipped if the
            previous message still waits, or if its time has passed. 0 = no repetition.
        """
        return self._spawned().schedule(self, delay, message, every)

    def stop(self) -> None:
        """End this actor only, after the running turn or at the task's next ``await``. Idempotent."""
        cell = self._spawned()
        if not cell.is_stopping(self):
            cell.stop(None)

    def on_dropped(self, messages: list[MessageT]) -> None:
        """Give up messages that still waited when the actor was stopped. Called at most once, before ``on_stop``.

        The messages, at least one, must not be carried out. The hook is for messages that another part waits for
        without a :class:`Reply` (replies are resolved without help): for example a callback to call, or a buffer to
        release.

        It is not called at a restart, because waiting messages stay, nor if the actor is stopped between a failure and
        its restart, because there is no object to call. In any case the messages become dead letters.
        """


class Actor(_Spawned[MessageT]):
    """An actor that runs in turns: the loop calls it at most once an iteration, with all messages that have arrived.

    Derive and override ``on_message``, or ``on_messages`` to get a whole turn at once. Handlers are not coroutines. An
    exception that leaves a handler is a failure, about which the supervisor decides; so answer an expected error with
    ``Reply.fail``.
    """

    def on_start(self) -> None:
        """Prepare the actor; override it to open what the handlers need. No message arrives before it returns.

        ``spawn`` calls it and raises its errors. At a restart the loop calls it, and the supervisor decides about its
        errors, as about those of a handler. If it raises, ``on_stop`` is not called.
        """

    def on_messages(self, messages: list[MessageT]) -> None:
        """Handle one turn: all waiting messages, at least one, in order. The actor owns the list."""
        for message in messages:
            self.on_message(message)

    def on_message(self, message: MessageT) -> None:
        """Handle one message."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither on_message nor on_messages")

    def on_stop(self, error: BaseException | None) -> None:
        """Stop. Called once, after this object's last turn; open replies may still be answered here.

        The children have stopped already, and so have actors spawned later if the whole system stops (those with a task
        may still be ending). Send messages with ``put`` or ``maybe_tell`` only.

        Args:
          error: this actor's failure, or the failure that stops everything; None = an ordinary end.
        """


class AsyncActor(_Spawned[MessageT]):
    """An actor with a task of its own, for work that waits. It handles one message after the other.

    Stopping cancels the task: its ``await`` raises CancelledError, which must not be caught. If an actor is stopped
    before its task has run at all, only ``on_stop`` is called.
    """

    _cell: TaskCell[MessageT] | None = None

    async def on_start(self) -> None:
        """Start: the task's first step. Messages wait meanwhile."""

    async def run(self) -> None:
        """Handle messages until stopped. Override it for another loop; returning is an ordinary end."""
        while True:
            await self.on_message(await self.receive())

    async def receive(self) -> MessageT:
        """Wait for the next message and take it. Safe to cancel: a message is taken only when it is returned."""
        assert self._cell is not None, f"{type(self).__name__} has not been spawned"
        return await self._cell.receive(self)

    async def on_message(self, message: MessageT) -> None:
        """Handle one message; the next one waits. Cancelled if the actor is stopped meanwhile."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither on_message nor run")

    async def on_stop(self, error: BaseException | None) -> None:
        """Stop: the task's last step, however it ended. ``System.stop()`` waits for it.

        It is not called if the task was cancelled from outside the system before its first step. Open replies have been
        resolved, and the children have ended.

        Args:
          error: this actor's failure, or the failure that stops everything; None = an ordinary end.
        """


Spawnable = Actor[MessageT] | AsyncActor[MessageT] | Callable[[], Actor[MessageT] | AsyncActor[MessageT]]
"""An actor, or a factory of actors such as a class. Only an actor from a factory can be restarted."""
