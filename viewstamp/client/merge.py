"""Merges the records of a topic's streams into one order, by position. Pure: no I/O, no clock.

Each stream has a *lane*: pieces of it that were received and not taken yet, and ``covered_to``, a position below which
the stream has no other records. The positions of a topic have no gaps, so the next one is in exactly one stream.

| the lanes | the next position *p* |
| --- | --- |
| a piece begins at *p* | is taken with this piece; no other lane needs to be known |
| a lane is of a lost stream whose records are all below *p*, or were trimmed; or of a removed one | counts as \
covered: nobody asks it |
| no piece has *p*, and a lane is covered to *p* or less | is not known yet: the reader waits |
| no piece has *p*, all lanes are covered beyond it, and a stream was trimmed above it | was trimmed |
| the same, and a recovery has lost positions there | was lost |
| the same, and no stream was trimmed above it | contradicts the order: an error, and nothing is skipped |
| both, and the topic has got a stream since | is of that stream, which gets a lane |
| two lanes have *p* | contradicts the order as well |

**Memory.** A lane whose stream stands still keeps the others from being taken. So a lane asks for no more while it
holds half of its share of the bytes. The record at *p* is the exception, because it has to be read whatever its size:
the request for it says so, and a node sends no other batch that is larger than the share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from viewstamp.errors import PeerError, TrimmedError
from viewstamp.ids import GlobalPosition

__all__ = ["Lane", "Merge", "Piece", "end_of_rising"]

ItemT = TypeVar("ItemT")
_NEVER = GlobalPosition((1 << 63) - 1)
"""Above each position that is ever reached."""


class Piece(NamedTuple, Generic[ItemT]):
    """Records of one stream with consecutive positions.

    Attributes:
      position: that of its first record in the topic.
      length: the number of its records.
      size: its bytes in memory.
      item: the records.
    """

    position: GlobalPosition
    length: int
    size: int
    item: ItemT

    @property
    def end(self) -> GlobalPosition:
        """The position after its last record."""
        return GlobalPosition(self.position + self.length)


def end_of_rising(pieces: Sequence[Piece[ItemT]], stream: int, begin: GlobalPosition) -> GlobalPosition:
    """Return the end of pieces that a node sent of a stream, from ``begin`` on; without pieces it is ``begin``.

    Raises:
      PeerError: they do not rise from ``begin`` on.
    """
    at = begin
    for piece in pieces:
        if piece.position < at or piece.length < 1:
            raise PeerError(f"stream {stream} was sent with position {piece.position}, expected {at} or a later one")
        at = piece.end
    return at


class Lane(Generic[ItemT]):
    """What is known of one stream, and was not taken yet.

    Invariants:
      * the pieces rise, and end at or before ``covered_to``
      * ``size`` is the sum of their bytes
    """

    __slots__ = ("covered_to", "is_passed", "is_withheld", "kept_from", "pieces", "size")

    def __init__(self, position: GlobalPosition) -> None:
        self.pieces: deque[Piece[ItemT]] = deque()
        self.covered_to = position
        """All records of the stream below it are in the pieces, or were taken, or were trimmed."""
        self.kept_from = GlobalPosition(1)
        """Records of the stream below it may have been trimmed."""
        self.is_withheld = False
        """Whether the stream has further records, of which the last answer sent none because of their size."""
        self.is_passed = False
        """Whether the stream has nothing more for this reader, so that it is not asked."""
        self.size = 0


class Merge(Generic[ItemT]):
    """The lanes of a topic, from a position on.

    Invariants:
      * what is taken has the positions from the start on, each once, in order
    """

    def __init__(
        self, streams: int, position: GlobalPosition, end: GlobalPosition | None, *, exists_to: GlobalPosition
    ) -> None:
        """Begin.

        Args:
          streams: the number of the streams, which have the numbers from 1 on.
          position: the first position to take.
          end: the position after the last one to take; None = without end.
          exists_to: all positions below it exist.
        """
        self.position = position
        """The next position to take."""
        self.end = end
        self.lanes = {stream: Lane[ItemT](position) for stream in range(1, streams + 1)}
        self._heads: list[tuple[GlobalPosition, int]] = []
        """The first piece of each lane that has one: its position, and the stream. A heap."""
        self._exists_to = exists_to
        self.is_at_start = True
        """Whether nothing was taken yet."""

    @property
    def is_over(self) -> bool:
        """Whether everything before the end was taken."""
        return self.end is not None and self.position >= self.end

    def put(
        self,
        stream: int,
        begin: GlobalPosition,
        pieces: Sequence[Piece[ItemT]],
        *,
        known_to: GlobalPosition,
        kept_from: GlobalPosition,
        has_more: bool,
    ) -> None:
        """Take an answer. It is dropped if ``begin`` is not ``covered_to`` of the lane: it was asked before a skip.

        Args:
          stream: the number of the stream.
          begin: the position from which on the stream was asked for its records.
          pieces: its next records, rising.
          known_to: all its records below it are in ``pieces``, or before them, or were trimmed.
          kept_from: its records from ``begin`` on and below this position may have been trimmed; ``begin`` = none was.
          has_more: it has further records now.

        Raises:
          PeerError: the pieces do not rise from ``covered_to`` up to ``known_to``. Nothing was changed.
        """
        lane = self.lanes[stream]
        if begin != lane.covered_to:
            return
        expected = end_of_rising(pieces, stream, begin)
        if known_to < expected:
            raise PeerError(f"stream {stream} was sent with the end {known_to}, before {expected}")
        if kept_from > begin:  # Otherwise nothing from ``begin`` on was trimmed, and nothing is said of what is below.
            lane.kept_from = max(lane.kept_from, kept_from)
        lane.is_withheld = has_more and not pieces
        lane.covered_to = known_to
        self._exists_to = max(self._exists_to, known_to)
        if pieces and not lane.pieces:
            heappush(self._heads, (pieces[0].position, stream))
        lane.pieces.extend(pieces)
        lane.size += sum(piece.size for piece in pieces)

    def take(self) -> list[tuple[int, Piece[ItemT]]]:
        """Take all pieces that follow one another from ``position`` on, each with its stream; [] = there is none.

        Raises:
          PeerError: two streams have the same position. The pieces of that position are not taken.
        """
        taken: list[tuple[int, Piece[ItemT]]] = []
        heads = self._heads
        while heads and heads[0][0] == self.position and not self.is_over:
            _, stream = heappop(heads)
            lane = self.lanes[stream]
            piece = lane.pieces.popleft()
            lane.size -= piece.size
            self.position = piece.end
            self.is_at_start = False
            taken.append((stream, piece))
            if lane.pieces:
                heappush(heads, (lane.pieces[0].position, stream))
        if heads and heads[0][0] < self.position and not taken:
            raise PeerError(
                f"position {heads[0][0]} belongs to stream {heads[0][1]}, and to another stream as well; it was not"
                " read twice",
                remedy="compare the nodes of the streams' groups: viewstamp doctor",
            )
        return taken

    def needs(self, stream: int) -> GlobalPosition:
        """Return the next position if it exists and only further records of this stream can show whose it is; else 0.

        A request that carries it is answered as soon as its node knows about this position.
        """
        lane = self.lanes[stream]
        is_next = lane.covered_to <= self.position and not lane.pieces
        is_there = self.position < self._exists_to or lane.is_withheld
        return self.position if is_next and is_there else GlobalPosition(0)

    def wants(self, stream: int, share: int) -> bool:
        """Return whether a request for ``share`` bytes of a stream may be sent, of which a lane holds half by now."""
        lane = self.lanes[stream]
        if lane.is_passed or (self.end is not None and lane.covered_to >= self.end):
            return False
        if lane.covered_to <= self.position and not lane.pieces:
            return True
        return 2 * lane.size < share and not lane.is_withheld

    def pass_by(self, stream: int, kept_from: GlobalPosition) -> None:
        """Ask a stream no more: it has no record from ``position`` on that was not trimmed, below ``kept_from``."""
        lane = self.lanes[stream]
        lane.is_passed = True
        lane.covered_to = _NEVER
        lane.kept_from = max(lane.kept_from, kept_from)

    def add(self, streams: int) -> bool:
        """Add a lane for each stream that was added to the topic, which has ``streams`` now; return whether any was.

        A new stream has no record below ``position``, because each position has one stream, and those below were taken.
        """
        new = range(len(self.lanes) + 1, streams + 1)
        self.lanes.update({stream: Lane[ItemT](self.position) for stream in new})
        return bool(new)

    @property
    def missing(self) -> list[int]:
        """The streams of which the reader does not know whether they have the next position; [] = none has it."""
        if self._heads and self._heads[0][0] <= self.position:
            return []
        return [stream for stream, lane in self.lanes.items() if lane.covered_to <= self.position]

    @property
    def kept_from(self) -> GlobalPosition:
        """The first position from which on no stream was trimmed, as far as the answers say."""
        return max(lane.kept_from for lane in self.lanes.values())

    @property
    def is_blocked(self) -> bool:
        """Whether no known stream has the next position."""
        return not (self.is_over or self.missing or (self._heads and self._heads[0][0] <= self.position))

    def check(self, lost: tuple[int, int] = (0, 0)) -> None:
        """Check that the next position can still be read, when nothing was taken.

        ``lost``: positions in [first, end) that no stream has were lost with a majority of the nodes.

        Raises:
          TrimmedError: it was trimmed, or lost; ``first`` is the position from which on everything is kept, or the next
            one that is there.
          PeerError: no stream has it, and none was trimmed or lost.
        """
        if not self.is_blocked:
            return
        first = self.kept_from
        if first <= self.position and lost[0] <= self.position < lost[1]:
            first = min([lane.pieces[0].position if lane.pieces else lane.covered_to for lane in self.lanes.values()])
            first = GlobalPosition(min(first, lost[1]))
            raise TrimmedError(
                f"positions {self.position} to {first - 1} were lost with a majority of the nodes, and the cluster was"
                " recovered without them",
                first=first,
                remedy=f"read from {first}",
            )
        if first <= self.position:
            raise PeerError(
                f"no stream has position {self.position}, and none was trimmed; nothing was skipped",
                remedy="compare the nodes of the streams' groups: viewstamp doctor",
            )
        raise TrimmedError(
            f"position {self.position} has been trimmed; all records from position {first} on are kept",
            first=first,
            remedy=f"read from {first}",
        )

    def skip_to(self, position: GlobalPosition) -> None:
        """Go on at a later position, from which on everything is kept. Pieces before it are dropped."""
        assert position >= self.position, f"{position} after {self.position}"
        self.position = position
        self._heads = []
        for stream, lane in self.lanes.items():
            while lane.pieces and lane.pieces[0].position < position:
                piece = lane.pieces.popleft()
                lane.size -= piece.size
                if piece.end > position:
                    lane.pieces.clear()
                    lane.size, lane.covered_to = 0, position
            lane.covered_to = max(lane.covered_to, position)
            if lane.pieces:
                self._heads.append((lane.pieces[0].position, stream))
        self._heads.sort()
