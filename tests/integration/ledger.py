"""An actor that notices a command that is lost, doubled or out of order, and callers that keep account themselves.

Nodes that are processes import this file by itself: it needs nothing of the tests.
"""

from __future__ import annotations

import viewstamp as vs

__all__ = ["Ledger"]


class Ledger(vs.ReplicatedActor):
    """Every caller counts from 1 on; what does not follow is kept for the test to see."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.total = 0
        self.wrong: list[list[object]] = []
        self.kept: dict[int, bytes] = {}

    @vs.command
    def enter(self, caller: str, number: int, padding: bytes = b"") -> int:
        """Enter what ``caller`` sends as its ``number``-th; return how many were entered by all."""
        before = self.last.get(caller, 0)
        if number != before + 1:
            self.wrong.append([caller, before, number])
        self.last[caller] = number
        self.total += 1
        return self.total

    @vs.command
    def keep(self, place: int, value: bytes) -> None:
        """Keep something, so that the state has a size."""
        self.kept[place] = value

    @vs.query
    def state(self) -> tuple[int, dict[str, int], list[list[object]]]:
        """Return the total, each caller's last number, and what did not follow."""
        return self.total, self.last, self.wrong
