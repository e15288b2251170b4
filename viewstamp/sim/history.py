"""A history: the clients' calls and answers with their times. Checkers judge it; real processes write one, too."""

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
    """Whether an operation happened, as far as its client knows."""

    PENDING = "pending"
    APPLIED = "applied"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Operation:
    """One call: its partition, its request, its answer and their times.

    ``called`` and ``returned`` are times of one clock, in any unit; at equal times a call counts as before an answer.
    ``returned`` is infinite if no answer came: the operation may have happened at any later time, or not at all. A
    request that is known not to have happened is not an operation.
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
    """Records a history. ``now`` returns the time, which must not fall."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._operations: dict[int, Operation] = {}

    def call(self, partition: str, request: Hashable) -> Operation:
        """Record a call at the present time."""
        operation = Operation(partition, request, self.now())
        self._operations[id(operation)] = operation
        return operation

    def answered(self, operation: Operation, answer: Any) -> None:
        """Record an answer at the present time; only the first answer counts."""
        if operation.is_open:
            operation.answer = answer
            operation.returned = self.now()

    def never(self, operation: Operation) -> None:
        """Remove an operation that did not happen and never will."""
        del self._operations[id(operation)]

    @property
    def operations(self) -> list[Operation]:
        """The history so far, in the order of the calls."""
        return list(self._operations.values())


# -- Requests to a log ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Add contiguous values at the end. Answer: the position of the first, from 1."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Read the last position. Answer: that position; 0 = there is none."""


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Read from a position on. Answer: a tuple of values; () = there was nothing yet.

    ``is_whole``: the answer contains all values up to the end, not only some of them.
    """

    first: int
    is_whole: bool = False


# -- Requests to a register -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Set the value. Answer: None."""

    value: Value


@dataclass(frozen=True, slots=True)
class Read:
    """Read the value. Answer: the value."""


@dataclass(frozen=True, slots=True)
class Add:
    """Add a number. Answer: the sum."""

    number: int
