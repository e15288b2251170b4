"""Timers: messages that an actor schedules for itself, in the time of its event loop."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from viewstamp.actors.mailbox import Mailbox

__all__ = ["Timer"]

MessageT = TypeVar("MessageT")


class Timer(Generic[MessageT]):
    """A scheduled message, once or repeated.

    Invariants:
      * it is in its actor's timers exactly while it may fire
      * at most one message of a repeated timer waits in the mailbox, so a busy actor does not accumulate them
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
        """Created by ``Actor.schedule`` only."""
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
        """Whether a message will still be sent."""
        return self._handle is not None

    def start(self, delay: float) -> None:
        """Start the timer; called once, by the cell."""
        self._due = self._loop.time() + delay
        self._handle = self._loop.call_at(self._due, self._fire)
        self._timers[self] = None

    def cancel(self) -> None:
        """Send no more messages. One that is in the mailbox already stays there. Idempotent."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            del self._timers[self]

    def _fire(self) -> None:
        if self._every > 0:
            # Stay in step with the first due time, and skip the repetitions that a stall of the loop has missed.
            missed = max(self._loop.time() - self._due, 0.0) // self._every
            self._due += (missed + 1) * self._every
            self._handle = self._loop.call_at(self._due, self._fire)
        else:
            self._handle = None
            del self._timers[self]
        if self._ticket <= self._mailbox.taken:
            self._mailbox.put(self._message)
            self._ticket = self._mailbox.accepted
