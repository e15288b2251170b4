"""The ends of the streams of a topic, as a client reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["EndedStream", "StreamEnds", "ended_streams"]


class EndedStream(NamedTuple):
    """A stream of a topic that gets no more records, or is about to get none.

    Attributes:
      stream: its number.
      into: the number of the stream that gets its slots.
      end: the position in the stream behind its last record with a position in the topic, once it is sealed; 0 = it is
        closing.
      lost_at: the next position of the topic when the stream was given up as lost: all its records with a position have
        a lower one; 0 = it is not lost.
      gone_at: a position of the topic above those of all its records, which were trimmed, since it is removed; 0 = it
        is not removed.
    """

    stream: int
    into: int
    end: int
    lost_at: int = 0
    gone_at: int = 0

    @property
    def phase(self) -> str:
        """``"closing"``, ``"sealed"``, ``"lost"`` or ``"removed"``."""
        if self.gone_at:
            return "removed"
        return "lost" if self.lost_at else "sealed" if self.end else "closing"


class StreamEnds:
    """The ends of the streams of a topic that has ``closed`` and ``first_position``."""

    __slots__ = ()
    closed: tuple[EndedStream, ...]
    first_position: int

    def phase_of(self, stream: int) -> str:
        """Return ``"open"``, ``"closing"``, ``"sealed"``, ``"lost"`` or ``"removed"``."""
        return next((each.phase for each in self.closed if each.stream == stream), "open")

    @property
    def sealed_streams(self) -> set[int]:
        """The numbers of the streams whose slots belong to others, because they get no more records."""
        return {each.stream for each in self.closed if each.end}

    @property
    def lost_streams(self) -> set[int]:
        """The numbers of those of them whose groups were given up."""
        return {each.stream for each in self.closed if each.lost_at}

    @property
    def removed_streams(self) -> set[int]:
        """The numbers of the streams that were removed. Their numbers are never used again."""
        return {each.stream for each in self.closed if each.gone_at}

    def gone_at(self, stream: int) -> int:
        """Return the position of the topic below which a removed stream had all its records; 0 = it is not removed."""
        return next((each.gone_at for each in self.closed if each.stream == stream), 0)

    def closed_at(self, stream: int) -> int:
        """Return the end of a stream, as :class:`EndedStream` has it; 0 = it is open or closing."""
        return next((each.end for each in self.closed if each.stream == stream), 0)

    def lost_at(self, stream: int) -> int:
        """Return the position of the topic below which a lost stream has all its records; 0 = it is not lost."""
        return next((each.lost_at for each in self.closed if each.stream == stream), 0)

    def can_pass(self, stream: int, position: int) -> bool:
        """Return whether a reader at a position of the topic needs nothing of a stream, because it is lost or removed.

        All records of a lost stream with a position are below ``lost_at``, and those below ``first_position`` are
        trimmed. All records of a removed one are trimmed.
        """
        return self.gone_at(stream) > 0 or 0 < self.lost_at(stream) <= max(position, self.first_position)

    def kept_from(self, stream: int) -> int:
        """Return the position of the topic below which records of a stream that can be passed may be trimmed."""
        return self.gone_at(stream) or self.first_position


def ended_streams(topic: Mapping[str, Any]) -> tuple[EndedStream, ...]:
    """Return the ended streams of a topic from its map in an answer."""
    lost, gone = dict(topic.get("lost", ())), dict(topic.get("gone", ()))
    closed = topic.get("closed", ())
    return tuple(
        EndedStream(stream, into, end, lost.get(stream, 0), gone.get(stream, 0)) for stream, into, end in closed
    )
