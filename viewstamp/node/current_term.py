"""The term of the moment in every log line."""

from __future__ import annotations

from collections.abc import Callable

from viewstamp.node.replica import Replica

__all__ = ["CurrentTerm"]


class CurrentTerm:
    """The node's term, as a value to bind to a logger: whatever is logged says the term of that moment."""

    def __init__(self, replica: Callable[[], Replica | None]) -> None:
        """Ask ``replica`` who knows the term; None = nobody does yet, and it is 0."""
        self._replica = replica

    def __structlog__(self) -> int:
        """Return what JSON shows."""
        replica = self._replica()
        return replica.raft.core.term if replica is not None else 0

    def __repr__(self) -> str:
        return str(self.__structlog__())
