"""The replicated actor of the soak: a number that is counted up, set and read, and an account of who called what.

Nodes that are processes import this file by itself: it needs nothing of the tests.
"""

from __future__ import annotations

import viewstamp as vs

__all__ = ["Cell"]


class Cell(vs.ReplicatedActor):
    """A number. Every caller counts its calls from 1 on; what does not follow is kept."""

    def __init__(self) -> None:
        self.value = 0
        self.last: dict[str, int] = {}
        self.wrong: list[list[object]] = []

    @vs.command
    def add(self, caller: str, number: int, amount: int) -> int:
        """Add; return the sum."""
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
        """Return each caller's last number, and what did not follow."""
        return self.last, self.wrong

    def _note(self, caller: str, number: int) -> None:
        before = self.last.get(caller, 0)
        if number <= before:
            self.wrong.append([caller, before, number])
        self.last[caller] = number
