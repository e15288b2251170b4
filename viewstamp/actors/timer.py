"""Timers: messages that an actor leaves for itself, in the time of the loop it runs on."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from viewstamp.actors.mailbox import Mailbox

__all__ = ["Timer"]

MessageT = TypeVar("MessageT")


class Timer(Generic[MessageT]):
    """A message to oneself that has not come yet, or that comes again and again.

    Invariants:
      * it stands in its actor's timers exactly while it may fire
      * at most one message of a repeated timer waits in the mailbox: however busy the actor is, they do not pile up
    """

    __slots__ = ("_due", "_every", "_handle", "_loop", "_mailbox", "_message", "_ticket", "_timers")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: dict[Timer[MessageT], None],
        mailbox: Mailbox[MessageT],
        message: MessageT,
        every: float,
    ) -> None:
        """Made by ``Actor.schedule`` only."""
        self._loop = loop
        self._timers = timers
        self._mailbox = mailbox
        self._message = message
        self._every = every
        self._due = 0.0
        self._ticket = 0
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a message is still to come."""
        return self._handle is not None

    def start(self, delay: float) -> None:
        """Begin to wait; called once, by the cell."""
        self._due = self._loop.time() + delay
        self._handle = self._loop.call_at(self._due, self._fire)
        self._timers[self] = None

    def cancel(self) -> None:
        """Make sure that no message comes, unless it waits in the mailbox already. Idempotent."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            del self._timers[self]

    def _fire(self) -> None:
        if self._every > 0:
            # In step with the first one; what a stall of the loop has missed is left out.
            missed = max(self._loop.time() - self._due, 0.0) // self._every
            self._due += (missed + 1) * self._every
            self._handle = self._loop.call_at(self._due, self._fire)
        else:
            self._handle = None
            del self._timers[self]
        if self._ticket <= self._mailbox.taken:
            self._mailbox.put(self._message)
            self._ticket = self._mailbox.accepted
