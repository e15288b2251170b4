"""The replicated actor of the soak: a number that callers add to, set and read, and a record of their calls.

Nodes that run as processes import this file on its own, so it must not need the tests.
"""

from __future__ import annotations

import viewstamp as vs

__all__ = ["Cell"]


class Cell(vs.ReplicatedActor):
    """A number. Every caller numbers its calls from 1 on; calls out of order are recorded."""

    def __init__(self) -> None:
        self.value = 0
        self.last: dict[str, int] = {}
        self.wrong: list[list[object]] = []

    @vs.command
    def add(self, caller: str, number: int, amount: int) -> int:
        """Add to the number; return the sum."""
        self._note(caller, number)
        self.value += amount
        return self.value

    @vs.command
    def write(self, caller: str, number: int, value: int) -> None:
        """Set the number."""
        self._note(caller, number)
        self.value = value

    @vs.query
    def read(self) -> int:
        """Return the number."""
        return self.value

    @vs.query
    def account(self) -> tuple[dict[str, int], list[list[object]]]:
        """Return each caller's last number, and the calls out of order."""
        return self.last, self.wrong

    def _note(self, caller: str, number: int) -> None:
        before = self.last.get(caller, 0)
        if number <= before:
            self.wrong.append([caller, before, number])
        self.last[caller] = number
