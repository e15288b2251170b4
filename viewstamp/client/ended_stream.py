"""The end of a stream of a topic, as a client reads it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EndedStream"]


class EndedStream(NamedTuple):
    """A stream of a topic that gets no more records, or is about to get none.

    Attributes:
      stream: its number.
      into: the number of the stream that gets its slots.
      end: the position in the stream behind its last record, once it is sealed; 0 = it is closing.
    """

    stream: int
    into: int
    end: int

    @property
    def phase(self) -> str:
        """``"closing"`` or ``"sealed"``."""
        return "sealed" if self.end else "closing"
