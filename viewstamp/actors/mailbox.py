"""The bounded mailbox: what waits for an actor's next turn. Knows nothing of loops, actors or replies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from viewstamp.errors import ClosedError, OverloadedError

__all__ = ["COUNT_MAX", "Mailbox"]

MessageT = TypeVar("MessageT")

COUNT_MAX = 10_000
"""The default bound of a mailbox, in messages."""


class Mailbox(Generic[MessageT]):
    """Messages in the order in which they came, bounded by count and, where asked for, by bytes.

    ``wake`` is called when the first message comes after everything was taken, and not again before that.

    Invariants:
      * ``taken <= accepted``; a mailbox that is not closed holds ``accepted - taken`` messages
      * ``bytes`` is the sum of ``measure`` over what waits
      * a closed mailbox is empty and stays so
    """

    __slots__ = (
        "_bytes_max",
        "_count_max",
        "_measure",
        "_messages",
        "_name",
        "_wake",
        "_woken",
        "accepted",
        "bytes",
        "is_closed",
        "taken",
    )

    def __init__(
        self,
        name: str,
        wake: Callable[[], None],
        *,
        count_max: int = COUNT_MAX,
        bytes_max: int = 0,
        measure: Callable[[MessageT], int] | None = None,
    ) -> None:
        """Make an empty mailbox.

        Args:
          name: whose it is, for errors.
          wake: called, on the caller's stack, when messages begin to wait.
          count_max: the number of waiting messages at which ``tell`` refuses, at least 1.
          bytes_max: their bytes at which it refuses; 0 = bounded by count only.
          measure: the size of a message in bytes, the same each time it is asked; given exactly with ``bytes_max``.
        """
        assert count_max >= 1, f"the mailbox of {name!r} could hold nothing: count_max={count_max}"
        assert (bytes_max > 0) == (measure is not None), (
            f"the mailbox of {name!r} takes bytes_max and measure together: bytes_max={bytes_max}, measure={measure}"
        )
        self._name = name
        self._wake = wake
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._measure = measure
        self._messages: deque[MessageT] = deque()
        self._woken = False
        self.bytes = 0
        self.accepted = 0
        self.taken = 0
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def tell(self, message: MessageT) -> None:
        """Add a message from outside.

        Raises:
          OverloadedError: the mailbox is full; nothing was added, try again later.
          ClosedError: the actor has stopped.
        """
        if self.is_closed:
            raise self.closed_error()
        if len(self._messages) >= self._count_max:
            raise OverloadedError(
                f"the mailbox of actor {self._name!r} is full: {len(self._messages)} messages wait",
                remedy="try again a little later",
            )
        if self._measure is not None:
            size = self._measure(message)
            if self.bytes and self.bytes + size > self._bytes_max:
                raise OverloadedError(
                    f"the mailbox of actor {self._name!r} is full: {self.bytes} of {self._bytes_max} bytes wait,"
                    f" {size} more do not fit",
                    remedy="try again a little later",
                )
            self.bytes += size
        self._messages.append(message)
        self.accepted += 1
        if not self._woken:
            self._woken = True
            self._wake()

    def put(self, message: MessageT) -> None:
        """Add a message that must not be refused; it is dropped only where the actor has stopped."""
        if self.is_closed:
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
        self.taken += len(messages)
        self.bytes = 0
        self._woken = False
        return messages

    def take_one(self) -> MessageT:
        """Take the first message that waits; there must be one. The next message wakes again once none is left."""
        message = self._messages.popleft()
        self.taken += 1
        if self._measure is not None:
            self.bytes -= self._measure(message)
        if not self._messages:
            self._woken = False
        return message

    def close(self) -> list[MessageT]:
        """Refuse what comes, and return what waited and will not be taken any more. Idempotent."""
        self.is_closed = True
        dropped = list(self._messages)
        self._messages.clear()
        self.bytes = 0
        return dropped

    def closed_error(self) -> ClosedError:
        """Return the error for a message that never reached the actor."""
        return ClosedError(f"actor {self._name!r} has stopped", remedy="try another node, or start this one again")
