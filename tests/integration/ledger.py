"""An actor that notices a lost, doubled or misordered command, and callers that keep their own account.

Nodes that run as processes import this file on its own, so it must not need the tests.
"""

from __future__ import annotations

import viewstamp as vs

__all__ = ["Ledger"]


class Ledger(vs.ReplicatedActor):
    """Every caller numbers its commands from 1 on; commands out of order are recorded for the test."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.total = 0
        self.wrong: list[list[object]] = []
        self.kept: dict[int, bytes] = {}

    @vs.command
    def enter(self, caller: str, number: int, padding: bytes = b"") -> int:
        """Enter a caller's command number ``number``; return the number of commands entered by all callers."""
        before = self.last.get(caller, 0)
        if number != before + 1:
            self.wrong.append([caller, before, number])
        self.last[caller] = number
        self.total += 1
        return self.total

    @vs.command
    def keep(self, place: int, value: bytes) -> None:
        """Keep a value, so that the state has a size."""
        self.kept[place] = value

    @vs.query
    def state(self) -> tuple[int, dict[str, int], list[list[object]]]:
        """Return the total, each caller's last number, and the commands out of order."""
        return self.total, self.last, self.wrong
