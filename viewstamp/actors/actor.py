"""The two kinds of actors that a program derives from: by turns, and with a task."""

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
    """What both kinds may ask of the system that they were spawned in; usable from ``on_start`` on."""

    _cell: Cell[MessageT] | None = None

    def _spawned(self) -> Cell[MessageT]:
        assert self._cell is not None, f"{type(self).__name__} has not been spawned"
        return self._cell

    @property
    def ref(self) -> Ref[MessageT]:
        """The actor's own reference, to hand to others."""
        return self._spawned().ref

    @property
    def system(self) -> System:
        """The system that it lives in."""
        return self._spawned().system

    @property
    def is_stopping(self) -> bool:
        """Whether this object's end has been asked for; inside a turn it may be so before ``on_stop``."""
        return self._spawned().is_stopping(self)

    def spawn(
        self,
        actor: Spawnable[ChildT],
        *,
        name: str,
        supervisor: Supervisor | None = None,
        **bounds: Unpack[Bounds[ChildT]],
    ) -> Ref[ChildT]:
        """Give life to a child, as :meth:`System.spawn` does. It ends before this actor ends or is restarted.

        Args:
          actor: what ``System.spawn`` takes.
          name: it follows this actor's own and a slash; unique among its living children.
          supervisor: who decides when it fails; None = who decides when this actor fails.
          **bounds: of its mailbox, see :class:`~viewstamp.actors.mailbox.Bounds`.

        Raises:
          ClosedError: this actor is stopping.
          anything: what the child's ``on_start``, or its factory, raised.
        """
        cell = self._spawned()
        name = f"{cell.name}/{name}"
        if cell.is_stopping(self):
            raise ClosedError(f"actor {cell.name!r} is stopping: {name!r} was not spawned")
        return cell.system.spawn_under(cell, actor, name, cell.supervisor if supervisor is None else supervisor, bounds)

    def schedule(self, delay: float, message: MessageT, *, every: float = 0.0) -> Timer[MessageT]:
        """Leave ``message`` for oneself in ``delay`` seconds of the loop's time, once or again and again.

        It is put, so never refused. The end of this object, by a stop or a failure, cancels it; so does
        ``Timer.cancel``.

        Args:
          delay: seconds until it comes.
          message: what to leave.
          every: seconds from one to the next, in step with the first; one is left out where the last
            still waits, or its moment has passed. 0 = once.
        """
        return self._spawned().schedule(self, delay, message, every)

    def stop(self) -> None:
        """End this actor alone, after the turn that runs or at the task's next ``await``. Idempotent."""
        cell = self._spawned()
        if not cell.is_stopping(self):
            cell.stop(None)

    def on_dropped(self, messages: list[MessageT]) -> None:
        """Hear what still waited when the actor was stopped, at least one message; before ``on_stop``, once at most.

        None of it is to be carried out. It is for messages that somebody waits on by other means than a
        :class:`Reply`, which is resolved without help: a callback that must be called, a buffer that must be let go.
        It is not called at a restart, where they go on to wait, nor where the actor is stopped between two lives,
        where there is nobody to call: all become dead letters in any case.
        """


class Actor(_Spawned[MessageT]):
    """An actor by turns: the loop wakes it at most once an iteration, for all that has come in since.

    Derive and override ``on_message``, or ``on_messages`` to see a whole turn at once. No handler awaits.
    An exception that leaves one is a failure, about which the supervisor decides: answer an expected error by
    ``Reply.fail``.
    """

    def on_start(self) -> None:
        """Begin: called by ``spawn``, which raises what this raises; no message comes before it returns.

        At a restart it is called from the loop, and what it raises is a failure like others. ``on_stop`` does
        not follow on one that raised.
        """

    def on_messages(self, messages: list[MessageT]) -> None:
        """Handle one turn: all that waited, at least one message, in order. The list is the actor's to keep."""
        for message in messages:
            self.on_message(message)

    def on_message(self, message: MessageT) -> None:
        """Handle one message."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither on_message nor on_messages")

    def on_stop(self, error: BaseException | None) -> None:
        """End: called once, after this object's last turn; open replies may still be answered here.

        Its children, and at the end of all whoever was spawned later, have stopped already (those with a task
        may be ending yet): leave messages by ``put`` or ``maybe_tell`` only.

        Args:
          error: its own failure, or why everything stops; None = an ordinary end.
        """


class AsyncActor(_Spawned[MessageT]):
    """An actor with one task, for what must wait: it handles one message after the other.

    Stopping cancels the task: CancelledError comes out of whatever it awaits and must be let through. One
    that is stopped before its task has run at all sees ``on_stop`` only.
    """

    _cell: TaskCell[MessageT] | None = None

    async def on_start(self) -> None:
        """Begin: the first thing that the task does; messages wait meanwhile."""

    async def run(self) -> None:
        """Handle messages until stopped. Override it for a loop of one's own; to return is an ordinary end."""
        while True:
            await self.on_message(await self.receive())

    async def receive(self) -> MessageT:
        """Wait for the next message and take it. Safe to cancel: a message is taken only when it is returned."""
        assert self._cell is not None, f"{type(self).__name__} has not been spawned"
        return await self._cell.receive(self)

    async def on_message(self, message: MessageT) -> None:
        """Handle one message; the next one waits. Cancelled where the actor is stopped meanwhile."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither on_message nor run")

    async def on_stop(self, error: BaseException | None) -> None:
        """End: the last thing that the task does, however it ended. ``System.stop()`` waits for it.

        It is not called where somebody other than the system cancelled the task before its first step.

        Replies that were open when the end began have been resolved by then, and its children have ended.

        Args:
          error: its own failure, or why everything stops; None = an ordinary end.
        """


Spawnable = Actor[MessageT] | AsyncActor[MessageT] | Callable[[], Actor[MessageT] | AsyncActor[MessageT]]
"""What can be spawned: an actor, or what makes one. Only the second can be restarted."""
