"""The reference: the only thing that others hold of an actor."""

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
    """The address of one actor. Cheap to copy about, valid for ever: after the actor's end it says so.

    Every call here is made on the event loop, never awaits and never runs the actor: it is woken later.
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
        """The name that it was spawned under."""
        return self._cell.name

    @property
    def is_alive(self) -> bool:
        """Whether the actor still takes messages; also while it is being restarted."""
        return not self._mailbox.is_refusing

    @property
    def waiting(self) -> int:
        """How many messages wait for the actor."""
        return len(self._mailbox)

    @property
    def ended(self) -> asyncio.Future[BaseException | None]:
        """A future of the actor's end, for good and with all its children: why, or None for an ordinary end.

        A restart is no end. Each access gives a future that is safe to cancel.
        """
        return self._cell.ended

    def tell(self, message: MessageT_contra) -> None:
        """Leave a message.

        Raises:
          OverloadedError: the mailbox is full and refuses; nothing was left. Back off, or refuse your own caller.
          ClosedError: the actor has stopped, or is finishing.
        """
        self._mailbox.tell(message)

    def maybe_tell(self, message: MessageT_contra) -> bool:
        """Leave a message that may as well be lost; return whether it was left."""
        try:
            return self._mailbox.tell(message)
        except UnavailableError:
            return False

    def put(self, message: MessageT_contra) -> None:
        """Leave an internal message, which is never refused: a durable notice, the answer to the actor's own request.

        Only for messages whose number something else bounds. A dead letter where the actor has stopped.
        """
        self._mailbox.put(message)

    def ask(
        self,
        make: Callable[[Reply[ResultT]], MessageT_contra],
        *,
        timeout: float | None,
        changes: bool = True,
    ) -> asyncio.Future[ResultT]:
        """Leave a message that carries a reply, and return the future of its answer. Never raises.

        Cancelling the future, or the task that awaits it, gives up the answer and not the message: the
        actor may still carry it out.

        Args:
          make: builds the message around its reply; called once, at once.
          timeout: the deadline in seconds from now; None = wait until the actor answers or stops.
          changes: False where the message only reads, so that no answer means that nothing was changed.

        Raises, through the future:
          OverloadedError: the mailbox was full; the message was not left, or dropped for a newer one.
          ClosedError: the actor stopped, and the message did not reach it or changes nothing.
          OutcomeUnknownError: it reached the actor, which stopped, failed or let the deadline pass.
          UnavailableError: the actor failed, or the deadline passed, of a message that changes nothing.
          any other: what the actor answered.
        """
        return self._cell.ask(make, timeout=timeout, changes=changes)

    def stop(self) -> None:
        """End this actor alone; no failure, nobody else stops. What waits in its mailbox is dropped. Idempotent."""
        self._cell.stop(None)

    def finish(self) -> None:
        """End this actor once it has handled what waits, and its children likewise; only ``put`` reaches it until then.

        One that never receives, an ``AsyncActor`` with a ``run`` of its own, is stopped at once. Idempotent.
        """
        self._cell.finish()
