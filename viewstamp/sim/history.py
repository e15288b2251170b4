"""A history: what clients called, when, what came of it, and when. Checkers judge it; real processes write one too."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from viewstamp.enums import fast_members

__all__ = ["Add", "Append", "Fate", "Operation", "Read", "ReadEnd", "ReadFrom", "Recorder", "Value", "Write"]

Value = Hashable


@fast_members
class Fate(Enum):
    """Whether it happened, as far as its client was told."""

    PENDING = "pending"
    APPLIED = "applied"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Operation:
    """One call: of what, when, and what came of it.

    ``called`` and ``returned`` are times of one clock, in any unit; at equal times a call counts as before an answer.
    ``returned`` is infinite where no answer came: it may have happened, then or later, or not. What is known not to
    have happened is no operation.
    """

    partition: str
    request: Hashable
    called: float
    answer: Any = None
    returned: float = math.inf

    @property
    def is_open(self) -> bool:
        """Whether no answer came."""
        return self.returned == math.inf


class Recorder:
    """Writes a history down. ``now`` gives the time; it must not fall."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._operations: dict[int, Operation] = {}

    def call(self, partition: str, request: Hashable) -> Operation:
        """Take note that something is called now."""
        operation = Operation(partition, request, self.now())
        self._operations[id(operation)] = operation
        return operation

    def answered(self, operation: Operation, answer: Any) -> None:
        """Take note of the answer, which came now; a first answer stays."""
        if operation.is_open:
            operation.answer = answer
            operation.returned = self.now()

    def never(self, operation: Operation) -> None:
        """Take note that it did not happen, and will not: it is no operation."""
        del self._operations[id(operation)]

    @property
    def operations(self) -> list[Operation]:
        """The history so far, in the order of the calls."""
        return list(self._operations.values())


# -- What is asked of a log ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Add values at the end, at a stretch. Answer: the position of the first, from 1."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Ask for the last position. Answer: it; 0 = there is none."""


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Read from a position on. Answer: a tuple of values; () = there was nothing yet.

    ``is_whole``: all that there was then, and not only some of it.
    """

    first: int
    is_whole: bool = False


# -- What is asked of a register -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Set the value. Answer: None."""

    value: Value


@dataclass(frozen=True, slots=True)
class Read:
    """Ask for the value. Answer: it."""


@dataclass(frozen=True, slots=True)
class Add:
    """Add a number. Answer: the sum."""

    number: int
