"""Dead letters: messages that no actor will handle. They are counted, and the newest are kept for inspection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from viewstamp.enums import fast_members

__all__ = ["DeadLetter", "DeadLetters", "Loss"]


@fast_members
class Loss(Enum):
    """Why a message was lost."""

    ENDED = "the actor had ended, or was finishing"
    STOPPED = "it waited when the actor stopped"
    OVERFLOW = "the mailbox was full and drops"
    FAILED = "the actor failed with it in hand; it may have been carried out, in part or whole"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One lost message, and the name of the actor that it was sent to."""

    actor: str
    message: object
    loss: Loss


class DeadLetters:
    """The lost messages of one system. A message that a full mailbox refused is not lost: its sender still has it.

    Invariants:
      * ``sum(counts.values()) >= len(newest)``
    """

    def __init__(self, kept_max: int, on_dead_letter: Callable[[DeadLetter], None] | None) -> None:
        self.counts: dict[Loss, int] = dict.fromkeys(Loss, 0)
        """Lost messages since the system was created, by cause."""
        self.newest: deque[DeadLetter] = deque(maxlen=kept_max)
        """The latest of them, oldest first. They keep their messages in memory."""
        self._on_dead_letter = on_dead_letter
        self._loop = asyncio.get_running_loop()

    def add(self, actor: str, messages: Iterable[object], loss: Loss) -> None:
        """Record lost messages. The loop calls the callback later, so that its errors do not reach the caller."""
        for message in messages:
            letter = DeadLetter(actor, message, loss)
            self.counts[loss] += 1
            self.newest.append(letter)
            if self._on_dead_letter is not None:
                self._loop.call_soon(self._on_dead_letter, letter)
