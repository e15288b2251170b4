"""The replicated actors that the benchmarks run; the nodes import them by ``benchmarks.actors:NAME``."""

from __future__ import annotations

import hashlib

from viewstamp import ReplicatedActor, command, query

__all__ = ["Block", "Counter"]


class Counter(ReplicatedActor):
    """The least that a command can do."""

    def __init__(self) -> None:
        self.value = 0

    @command
    def add(self, number: int) -> int:
        """Add to the counter and return what it comes to."""
        self.value += number
        return self.value

    @query
    def read(self) -> int:
        """Return the value."""
        return self.value


class Block(ReplicatedActor):
    """An instance of a given size: many of them are a large state."""

    def __init__(self) -> None:
        self.content = b""

    @command
    def fill(self, size: int) -> int:
        """Hold ``size`` bytes that no compression would shrink; the log carries only how many."""
        self.content = hashlib.shake_128(self.key.encode()).digest(size)
        return len(self.content)
