"""The bounded mailbox: the messages that wait for an actor's next turn. Independent of loops, actors and replies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypedDict, TypeVar, Unpack

from viewstamp.actors.dead_letters import Loss
from viewstamp.enums import fast_members
from viewstamp.errors import ClosedError, OverloadedError

__all__ = ["COUNT_MAX", "Bounds", "DropOldestMailbox", "Mailbox", "Overflow"]

MessageT = TypeVar("MessageT")

COUNT_MAX = 10_000
"""The default bound of a mailbox, in messages."""
_QUIET_MAX = 64
"""Messages that may wait without a turn being due."""


@fast_members
class Overflow(Enum):
    """The treatment of a ``tell`` to a full mailbox. Messages that are ``put`` are always accepted."""

    REFUSE = "refuse"
    """``tell`` raises OverloadedError, so that the sender can slow down."""
    DROP_NEWEST = "drop newest"
    """The new message is dropped, as a dead letter."""
    DROP_OLDEST = "drop oldest"
    """The oldest waiting message of a ``tell`` is dropped; for messages of which only the latest matter."""


class Bounds(TypedDict, Generic[MessageT], total=False):
    """The limits of a mailbox, and what it does at the limit; each key may be left out."""

    count_max: int
    """The mailbox is full at this number of waiting messages, at least 1; by default ``COUNT_MAX``."""
    bytes_max: int
    """The mailbox is full at this size of waiting messages; requires ``measure``. 0 = bounded by count only."""
    measure: Callable[[MessageT], int] | None
    """Returns the size of a message in bytes; must be the same for each call."""
    overflow: Overflow
    """The treatment of a ``tell`` to a full mailbox; by default it is refused."""


class Mailbox(Generic[MessageT]):
    """Messages in the order of arrival, bounded by count and optionally by bytes.

    ``wake`` is called at the first message after all were taken, and not again until all are taken again.

    Each accepted message has a ticket: its number, from 1.

    Invariants:
      * the waiting messages have the tickets above ``taken`` up to ``accepted``
      * ``bytes`` is the sum of ``measure`` over the waiting messages
      * a closed mailbox is empty, refuses, and stays so
    """

    __slots__ = (
        "_bytes_max",
        "_count_max",
        "_lose",
        "_measure",
        "_messages",
        "_name",
        "_overflow",
        "_wake",
        "_woken",
        "accepted",
        "bytes",
        "is_closed",
        "is_refusing",
        "taken",
    )

    def __init__(
        self,
        name: str,
        wake: Callable[[], object],
        lose: Callable[[MessageT, Loss, int], None],
        *,
        count_max: int = COUNT_MAX,
        bytes_max: int = 0,
        measure: Callable[[MessageT], int] | None = None,
        overflow: Overflow = Overflow.REFUSE,
    ) -> None:
        """Create an empty mailbox.

        Args:
          name: the actor's name, for errors.
          wake: called when messages begin to wait, on the sender's stack.
          lose: called with a lost message, the cause, and its ticket; ticket 0 = the message was never accepted.
          count_max: see :class:`Bounds`, also for the others.
          bytes_max: 0 = bounded by count only.
          measure: None exactly if ``bytes_max`` is 0.
          overflow: DROP_OLDEST is for :class:`DropOldestMailbox` only.
        """
        assert count_max >= 1, f"the mailbox of {name!r} could hold nothing: count_max={count_max}"
        assert (bytes_max > 0) == (measure is not None), (
            f"the mailbox of {name!r} takes bytes_max and measure together: bytes_max={bytes_max}, measure={measure}"
        )
        self._name = name
        self._wake = wake
        self._lose = lose
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._measure = measure
        self._overflow = overflow
        self._messages: deque[MessageT] = deque()
        self._woken = False
        self.bytes = 0
        self.accepted = 0
        self.taken = 0
        self.is_refusing = False
        """Whether it accepts only ``put``."""
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def tell(self, message: MessageT) -> bool:
        """Add a message of a sender; return whether it was added. In a full mailbox ``overflow`` decides.

        Raises:
          OverloadedError: the mailbox is full; nothing was added, try again later.
          ClosedError: the actor has stopped, or is finishing.
        """
        if self.is_refusing:
            self._lose(message, Loss.ENDED, 0)
            raise self.closed_error()
        if len(self._messages) >= self._count_max:
            return self._on_full(message, f"{len(self._messages)} messages wait")
        if self._measure is not None:
            size = self._measure(message)
            if self.bytes and self.bytes + size > self._bytes_max:
                return self._on_full(message, f"{self.bytes} of {self._bytes_max} bytes wait, {size} more do not fit")
            self.bytes += size
        self._messages.append(message)
        self.accepted += 1
        if not self._woken:
            self._woken = True
            self._wake()
        return True

    def _on_full(self, message: MessageT, reason: str) -> bool:
        if self._overflow is Overflow.REFUSE:
            raise self.full_error(reason)
        self._lose(message, Loss.OVERFLOW, 0)
        return False

    def put(self, message: MessageT, *, wakes: bool = True) -> None:
        """Add a message that must not be refused. It is lost only if the actor has stopped.

        With ``wakes=False`` it waits for the next turn that another message causes, unless ``_QUIET_MAX`` wait already.
        """
        if self.is_closed:
            self._lose(message, Loss.ENDED, 0)
            return
        if self._measure is not None:
            self.bytes += self._measure(message)
        self._messages.append(message)
        self.accepted += 1
        if not self._woken and (wakes or len(self._messages) > _QUIET_MAX):
            self._woken = True
            self._wake()

    def take(self) -> list[MessageT]:
        """Take all waiting messages, in order; the next message calls ``wake``."""
        messages = list(self._messages)
        self._messages.clear()
        self.taken = self.accepted
        self.bytes = 0
        self._woken = False
        return messages

    def take_one(self) -> MessageT:
        """Take the first waiting message; there must be one. Once none is left, the next message calls ``wake``."""
        message = self._messages.popleft()
        self.taken = self.accepted - len(self._messages)
        if self._measure is not None:
            self.bytes -= self._measure(message)
        if not self._messages:
            self._woken = False
        return message

    def give_back(self, messages: list[MessageT]) -> bool:
        """Put back the last of the taken messages, before all others. Returns False if the mailbox is closed.

        In both cases they count as not taken. The actor is not woken: the caller schedules the next turn.
        """
        self.taken -= len(messages)
        if messages and not self.is_closed:
            if self._measure is not None:
                self.bytes += sum(map(self._measure, messages))
            self._messages.extendleft(reversed(messages))
            self._woken = True
        return not self.is_closed

    def refuse(self) -> None:
        """Accept only ``put`` from now on. Idempotent. Messages that wait without a turn being due get one."""
        self.is_refusing = True
        if self._messages and not self._woken:
            self._woken = True
            self._wake()

    def close(self) -> list[MessageT]:
        """Refuse all messages from now on, and return the waiting ones, which will not be taken. Idempotent."""
        self.is_refusing = self.is_closed = True
        dropped = list(self._messages)
        self._messages.clear()
        self.bytes = 0
        return dropped

    def closed_error(self) -> ClosedError:
        """Return the error for a message that never reached the actor."""
        return ClosedError(f"actor {self._name!r} has stopped", remedy="try another node, or start this one again")

    def full_error(self, reason: str) -> OverloadedError:
        """Return the error for a message that did not fit."""
        return OverloadedError(
            f"the mailbox of actor {self._name!r} is full: {reason}",
            remedy="try again a little later",
        )


class DropOldestMailbox(Mailbox[MessageT]):
    """A mailbox that makes room by dropping the oldest message of a ``tell``.

    Invariants:
      * ``_tickets`` has one number for each waiting message: its ticket, negative if the message must not be dropped,
        because it came by ``put`` or was given back. ``taken`` follows from these, and not from a count, because a
        dropped message leaves a gap behind messages that stay.
    """

    __slots__ = ("_out", "_tickets")

    def __init__(
        self,
        name: str,
        wake: Callable[[], object],
        lose: Callable[[MessageT, Loss, int], None],
        **bounds: Unpack[Bounds[MessageT]],
    ) -> None:
        super().__init__(name, wake, lose, **bounds)
        self._tickets: deque[int] = deque()
        self._out: list[int] = []
        """The tickets of the messages that the last call took."""

    def tell(self, message: MessageT) -> bool:
        """Add a message, and drop older ones until it fits. If only ``put`` messages are older, drop the new one."""
        while not super().tell(message):
            if not self._drop_oldest():
                self._lose(message, Loss.OVERFLOW, 0)
                return False
        self._tickets.append(self.accepted)
        return True

    def _on_full(self, message: MessageT, reason: str) -> bool:
        return False

    def _drop_oldest(self) -> bool:
        for place, ticket in enumerate(self._tickets):
            if ticket > 0:
                oldest = self._messages[place]
                del self._messages[place], self._tickets[place]
                if self._measure is not None:
                    self.bytes -= self._measure(oldest)
                self._lose(oldest, Loss.OVERFLOW, ticket)
                return True
        return False

    def put(self, message: MessageT, *, wakes: bool = True) -> None:
        """Add a message that is never dropped in favour of another."""
        super().put(message, wakes=wakes)
        if not self.is_closed:
            self._tickets.append(-self.accepted)

    def take(self) -> list[MessageT]:
        """Take all waiting messages, in order."""
        self._out = list(map(abs, self._tickets))
        self._tickets.clear()
        return super().take()

    def take_one(self) -> MessageT:
        """Take the first waiting message; there must be one."""
        self._out = [abs(self._tickets.popleft())]
        message = super().take_one()
        self.taken = self._out[0]
        return message

    def give_back(self, messages: list[MessageT]) -> bool:
        """Put taken messages back. They are not dropped any more."""
        if not messages:
            return super().give_back(messages)
        start = len(self._out) - len(messages)
        given, self._out = self._out[start:], self._out[:start]
        if not self.is_closed:
            self._tickets.extendleft(-ticket for ticket in reversed(given))
        is_open = super().give_back(messages)
        self.taken = given[0] - 1
        return is_open
