"""Replicated actors of the benchmarks; the nodes import them by ``benchmarks.actors:NAME``."""

from __future__ import annotations

from hashlib import sha512

from viewstamp import ReplicatedActor, command, query

__all__ = ["Block", "Counter"]


class Counter(ReplicatedActor):
    """A counter: the command with the least work."""

    def __init__(self) -> None:
        self.value = 0

    @command
    def add(self, number: int) -> int:
        """Add to the counter and return its new value."""
        self.value += number
        return self.value

    @query
    def read(self) -> int:
        """Return the value."""
        return self.value


class Block(ReplicatedActor):
    """An instance of a given size, so that many of them make a large state."""

    def __init__(self) -> None:
        self.content = b""

    @command
    def fill(self, size: int) -> int:
        """Set the state to ``size`` bytes that differ between instances and return ``size``; the log has only this."""
        self.content = (sha512(self.key.encode()).digest() * (size // 64 + 1))[:size]
        return len(self.content)
