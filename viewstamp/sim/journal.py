"""The replicated actor of the simulator's own workload: it writes down what it is told, once each."""

from __future__ import annotations

from viewstamp.actors.replicated import ReplicatedActor, command, query
from viewstamp.errors import CommandError

__all__ = ["Journal", "TornError"]


class TornError(CommandError):
    """The journal refused an entry, after it had written it down."""


class Journal(ReplicatedActor):
    """Entries in the order of the calls. What a call returns is the entry's number, from 1."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.drawn = 0

    @command
    def put(self, entry: str, padding: bytes) -> int:
        """Write an entry down; every seventh is refused with an error all the same. The padding only fills the log.

        The error repeats it, so that its text is over the limit that some members have for a result.
        """
        self.entries.append(entry)
        self.drawn = self.random.randrange(1 << 30)
        if len(self.entries) % 7 == 0:
            raise TornError(f"{len(self.entries)} {padding.hex()}")
        return len(self.entries)

    @query
    def count(self) -> int:
        """Return how many entries there are."""
        return len(self.entries)

    @query
    def read(self, start: int = 0, count: int = 1 << 30) -> list[str]:
        """Return ``count`` entries after the first ``start``, or those that there are."""
        return self.entries[start : start + count]
