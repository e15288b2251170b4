"""The reference to an actor, which is all that others hold of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from viewstamp.actors.reply import Reply
from viewstamp.errors import UnavailableError

if TYPE_CHECKING:
    from viewstamp.actors.cell import Cell

__all__ = ["Ref"]

MessageT_contra = TypeVar("MessageT_contra", contravariant=True)
ResultT = TypeVar("ResultT")


class Ref(Generic[MessageT_contra]):
    """The address of one actor. Cheap to copy, and valid for ever: after the actor's end, calls raise ClosedError.

    Call it on the event loop. No call awaits. None but :meth:`tell_now` runs the actor, which is scheduled for later.

    Example::

        counter.tell(Add(1))
        total: int = await counter.ask(lambda reply: Total(reply), timeout=5.0, changes=False)
    """

    __slots__ = ("_cell", "_mailbox")

    def __init__(self, cell: Cell[MessageT_contra]) -> None:
        """Made by ``System.spawn`` only."""
        self._cell = cell
        self._mailbox = cell.mailbox

    def __repr__(self) -> str:
        return f"<Ref {self.name}{'' if self.is_alive else ' stopped'}>"

    @property
    def name(self) -> str:
        """The name under which it was spawned."""
        return self._cell.name

    @property
    def is_alive(self) -> bool:
        """Whether the actor still accepts messages; also True while it is being restarted."""
        return not self._mailbox.is_refusing

    @property
    def waiting(self) -> int:
        """The number of waiting messages."""
        return len(self._mailbox)

    @property
    def ended(self) -> asyncio.Future[BaseException | None]:
        """A future that is resolved when the actor and all its children have ended for good.

        Its result is the error, or None for an ordinary end. A restart is not an end. Each access returns another
        future, which may be cancelled.
        """
        return self._cell.ended

    def tell(self, message: MessageT_contra) -> None:
        """Send a message.

        Raises:
          OverloadedError: the mailbox is full; the message was not accepted. Wait, or refuse your own caller.
          ClosedError: the actor has stopped, or is finishing; the message was not accepted.
        """
        self._mailbox.tell(message)

    def maybe_tell(self, message: MessageT_contra) -> bool:
        """Send a message that may be lost; return whether it was accepted."""
        try:
            return self._mailbox.tell(message)
        except UnavailableError:
            return False

    def tell_now(self, message: MessageT_contra) -> None:
        """Send a message that may be lost, and let an idle actor handle it in a turn before this call returns.

        An actor with a task, one that runs already and one with waiting messages is scheduled as by ``maybe_tell``. For
        senders on which no actor depends that the turn may call, because it runs on their stack. A failure in the turn
        is the actor's; it is not raised here.
        """
        self._cell.tell_now(message)

    def put(self, message: MessageT_contra) -> None:
        """Send an internal message, which is never refused: a durable notice, the answer to the actor's own request.

        Only for messages with another bound on their number. If the actor has stopped, the message is a dead letter.
        """
        self._mailbox.put(message)

    def put_quietly(self, message: MessageT_contra) -> None:
        """Send an internal message that can wait: it is handled in the next turn that another message causes.

        For messages that change nothing by themselves, because a turn costs more than they do. Else as :meth:`put`.
        """
        self._mailbox.put(message, wakes=False)

    def ask(
        self,
        make: Callable[[Reply[ResultT]], MessageT_contra],
        *,
        timeout: float | None,
        changes: bool = True,
    ) -> asyncio.Future[ResultT]:
        """Send a message that carries a reply, and return the future of its answer. Never raises.

        Cancelling the future, or the task that awaits it, gives up the answer and not the message: the actor may still
        carry it out.

        Args:
          make: builds the message around its reply; called once, at once.
          timeout: the deadline in seconds from now; None = wait until the actor answers or stops.
          changes: False if the message only reads, so that no answer means that nothing was changed.

        Raises, through the future:
          OverloadedError: the mailbox was full; the message was not accepted, or was dropped for a newer one.
          ClosedError: the actor stopped, and the message did not reach it or changes nothing.
          OutcomeUnknownError: the message reached the actor, which stopped, failed or did not answer in time.
          UnavailableError: the actor failed, or did not answer in time, and the message changes nothing.
          Others: the error that the actor answered.
        """
        return self._cell.ask(make, timeout=timeout, changes=changes)

    def stop(self) -> None:
        """End this actor only, without a failure. Its waiting messages are dropped. Idempotent."""
        self._cell.stop(None)

    def finish(self) -> None:
        """End this actor and its children once they have handled their waiting messages. Until then only ``put`` works.

        An ``AsyncActor`` whose own ``run`` never calls ``receive`` is stopped at once. Idempotent.
        """
        self._cell.finish()
