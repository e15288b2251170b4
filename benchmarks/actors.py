"""The replicated actors that the benchmarks run; the nodes import them by ``benchmarks.actors:NAME``."""

from __future__ import annotations

from hashlib import sha512

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
        """Hold ``size`` bytes, each instance its own; the log carries only how many."""
        self.content = (sha512(self.key.encode()).digest() * (size // 64 + 1))[:size]
        return len(self.content)
