"""The replicated actor of the simulator's own workload: it records each entry that it is sent."""

from __future__ import annotations

from viewstamp.actors.replicated import ReplicatedActor, command, query
from viewstamp.errors import CommandError

__all__ = ["Journal", "TornError"]


class TornError(CommandError):
    """The journal refused an entry after it had recorded it."""


class Journal(ReplicatedActor):
    """Entries in the order of the calls. A call returns the entry's number, from 1."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.drawn = 0

    @command
    def put(self, entry: str, padding: bytes) -> int:
        """Record an entry; every seventh is recorded, but answered with an error. The padding only fills the log.

        The error contains the padding, so that its text exceeds the limit that some members have for a result.
        """
        self.entries.append(entry)
        self.drawn = self.random.randrange(1 << 30)
        if len(self.entries) % 7 == 0:
            raise TornError(f"{len(self.entries)} {padding.hex()}")
        return len(self.entries)

    @query
    def count(self) -> int:
        """Return the number of entries."""
        return len(self.entries)

    @query
    def read(self, start: int = 0, count: int = 1 << 30) -> list[str]:
        """Return ``count`` entries after the first ``start``, or all if there are fewer."""
        return self.entries[start : start + count]
