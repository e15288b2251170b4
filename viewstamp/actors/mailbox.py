"""The bounded mailbox: what waits for an actor's next turn. Knows nothing of loops, actors or replies."""

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


@fast_members
class Overflow(Enum):
    """What becomes of a message that is told to a full mailbox. What is ``put`` is never refused and never dropped."""

    REFUSE = "refuse"
    """``tell`` raises OverloadedError: whoever produces too much hears of it."""
    DROP_NEWEST = "drop newest"
    """It is dropped, as a dead letter."""
    DROP_OLDEST = "drop oldest"
    """The oldest that was told, and waits, is dropped in its favour: where only the latest matter."""


class Bounds(TypedDict, Generic[MessageT], total=False):
    """How much a mailbox holds, and what it does when that is reached; each may be left out."""

    count_max: int
    """The number of waiting messages at which it is full, at least 1; by default ``COUNT_MAX``."""
    bytes_max: int
    """Their bytes at which it is full, given together with ``measure``; 0 = bounded by count only."""
    measure: Callable[[MessageT], int] | None
    """The size of a message in bytes, the same each time it is asked."""
    overflow: Overflow
    """What becomes of a message that is told to a full mailbox; by default it is refused."""


class Mailbox(Generic[MessageT]):
    """Messages in the order in which they came, bounded by count and, where asked for, by bytes.

    ``wake`` is called when the first message comes after everything was taken, and not again before that.

    Each accepted message has a ticket, its number from 1 on.

    Invariants:
      * what waits has tickets over ``taken`` and up to ``accepted``
      * ``bytes`` is the sum of ``measure`` over what waits
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
        wake: Callable[[], None],
        lose: Callable[[MessageT, Loss, int], None],
        *,
        count_max: int = COUNT_MAX,
        bytes_max: int = 0,
        measure: Callable[[MessageT], int] | None = None,
        overflow: Overflow = Overflow.REFUSE,
    ) -> None:
        """Make an empty mailbox.

        Args:
          name: whose it is, for errors.
          wake: called, on the caller's stack, when messages begin to wait.
          lose: called with a message that is lost here, how, and its ticket, 0 where it was never accepted.
          count_max: see :class:`Bounds`, also for the others.
          bytes_max: 0 = bounded by count only.
          measure: None exactly where ``bytes_max`` is 0.
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
        """Whether it takes only what is put."""
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def tell(self, message: MessageT) -> bool:
        """Add a message from outside; return whether it was added. What happens when it is full, ``overflow`` says.

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

    def put(self, message: MessageT) -> None:
        """Add a message that must not be refused; it is lost only where the actor has stopped."""
        if self.is_closed:
            self._lose(message, Loss.ENDED, 0)
            return
        if self._measure is not None:
            self.bytes += self._measure(message)
        self._messages.append(message)
        self.accepted += 1
        if not self._woken:
            self._woken = True
            self._wake()

    def take(self) -> list[MessageT]:
        """Take everything that waits, in order; the next message wakes again."""
        messages = list(self._messages)
        self._messages.clear()
        self.taken = self.accepted
        self.bytes = 0
        self._woken = False
        return messages

    def take_one(self) -> MessageT:
        """Take the first message that waits; there must be one. The next message wakes again once none is left."""
        message = self._messages.popleft()
        self.taken = self.accepted - len(self._messages)
        if self._measure is not None:
            self.bytes -= self._measure(message)
        if not self._messages:
            self._woken = False
        return message

    def give_back(self, messages: list[MessageT]) -> bool:
        """Have the last ones of what was taken wait again, before all others; return False where it is closed.

        They count as not taken either way. The actor is not woken: whoever gives back sees to the next turn.
        """
        self.taken -= len(messages)
        if messages and not self.is_closed:
            if self._measure is not None:
                self.bytes += sum(map(self._measure, messages))
            self._messages.extendleft(reversed(messages))
            self._woken = True
        return not self.is_closed

    def refuse(self) -> None:
        """Take from now on only what is put. Idempotent."""
        self.is_refusing = True

    def close(self) -> list[MessageT]:
        """Refuse what comes, and return what waited and will not be taken any more. Idempotent."""
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
            f"the mailbox of actor {self._name!r} is full: {reason}", remedy="try again a little later"
        )


class DropOldestMailbox(Mailbox[MessageT]):
    """A mailbox that makes room by dropping the oldest of what was told.

    Invariants:
      * ``_tickets`` runs beside what waits: the tickets of what was told, and 0 for what is never dropped
    """

    __slots__ = ("_tickets",)

    def __init__(
        self,
        name: str,
        wake: Callable[[], None],
        lose: Callable[[MessageT, Loss, int], None],
        **bounds: Unpack[Bounds[MessageT]],
    ) -> None:
        super().__init__(name, wake, lose, **bounds)
        self._tickets: deque[int] = deque()

    def tell(self, message: MessageT) -> bool:
        """Add a message and drop older ones until it fits; drop it itself where only what was put is older."""
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
            if ticket:
                oldest = self._messages[place]
                del self._messages[place], self._tickets[place]
                if self._measure is not None:
                    self.bytes -= self._measure(oldest)
                self._lose(oldest, Loss.OVERFLOW, ticket)
                return True
        return False

    def put(self, message: MessageT) -> None:
        """Add a message that is never dropped for another."""
        super().put(message)
        if not self.is_closed:
            self._tickets.append(0)

    def take(self) -> list[MessageT]:
        """Take everything that waits, in order."""
        self._tickets.clear()
        return super().take()

    def take_one(self) -> MessageT:
        """Take the first message that waits; there must be one."""
        self._tickets.popleft()
        return super().take_one()

    def give_back(self, messages: list[MessageT]) -> bool:
        """Have what was taken wait again; it is not dropped any more."""
        if not self.is_closed:
            self._tickets.extendleft([0] * len(messages))
        return super().give_back(messages)
