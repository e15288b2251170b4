"""A topic: its name, its retention, its positions, and the places of its records in the log.

Records become visible at one index of the log: that of their batch of RECORDS, or of their COMMIT, which comes after
the staged batches. The sparse map has those indices, and separately the lowest index of the log that they need.
"""

from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Any

from viewstamp.errors import TrimmedError
from viewstamp.ids import Index, Position, TopicId
from viewstamp.streams.archive_settings import OFF, ArchiveSettings
from viewstamp.wire.row_schema import RowSchema

__all__ = ["Topic"]

_OWN_BYTES = 64 * 1024
"""A new entry of the sparse map is added when this many bytes of the topic have followed the latest entry ..."""
_LOG_BYTES = 1024 * 1024
"""... or this many bytes of the whole log, because that bounds a reader's scan in a busy log ..."""
_SPANS = 16
"""... or, with an age that counts for its records, after this fraction of it, so that a quiet topic is trimmed and
archived in time too."""
_SPAN_US_MIN = 1_000_000
_ARCHIVE_SPAN_US = 300_000_000
"""... and at least this often in a topic with an archive, because a run is due an hour after its first record."""
_NEVER = 1 << 62


class Topic:
    """The applied state of one topic.

    Invariants:
      * ``first_position <= next_position``; equal = empty, and then the sparse map is empty too
      * entries of the sparse map rise strictly in position, in index and in bytes, never fall in log time, and each
        has the first record of the topic that became visible at that index
      * the first entry is the last one at or before ``first_position``
      * the log is needed from the lowest of ``_oldest`` on
    """

    __slots__ = (
        "_bytes_at",
        "_due_bytes",
        "_due_log_bytes",
        "_due_time",
        "_indices",
        "_latest",
        "_oldest",
        "_positions",
        "_times",
        "_total",
        "archive",
        "first_position",
        "id",
        "name",
        "next_position",
        "retain_bytes",
        "retain_seconds",
        "schema",
    )

    def __init__(self, topic_id: TopicId, name: str) -> None:
        self.id = topic_id
        self.name = name
        self.first_position = Position(1)
        self.next_position = Position(1)
        self.retain_bytes = 0
        """Keep at least this many bytes of the newest records; 0 = keep all."""
        self.retain_seconds = 0.0
        """Keep records at least this long, by log time; 0 = for ever. With an archive both are about the log only."""
        self.archive = OFF
        self.schema = ""
        """The text of the schema of its rows; "" = it has none."""
        self._total = 0
        """The bytes of all batches that the topic ever got, headers included."""
        self._latest = 0
        """The log time of the newest batch."""
        # The sparse map, as columns. An entry has: a first position; the index at which it became visible; the lowest
        # index of a record that became visible between this entry and the next; ``_total`` there; the log time there.
        self._positions = array("Q")
        self._indices = array("Q")
        self._oldest = array("Q")
        self._bytes_at = array("Q")
        self._times = array("q")
        # The next batch gets an entry when one of these is reached: by ``_total``, by the log's bytes, by log time.
        self._due_bytes = 0
        self._due_log_bytes = 0
        self._due_time = _NEVER

    def extend(self, index: int, count: int, size: int, time: int, log_bytes: int, oldest: int) -> None:
        """Add the topic's next records.

        Args:
          index: the index at which they become visible: that of their batch, or of the COMMIT.
          count: their number.
          size: the bytes of their batches.
          time: the log time at ``index``.
          log_bytes: the bytes of all batches that were applied before.
          oldest: the lowest index of one of them; ``index`` if they were not staged.
        """
        total = self._total
        if total >= self._due_bytes or log_bytes >= self._due_log_bytes or time >= self._due_time:
            self._positions.append(self.next_position)
            self._indices.append(index)
            self._oldest.append(oldest)
            self._bytes_at.append(total)
            self._times.append(time)
            self._due_bytes = total + _OWN_BYTES
            self._due_log_bytes = log_bytes + _LOG_BYTES
            self._due_time = time + self._span_us if self._has_ages else _NEVER
        elif oldest < self._oldest[-1]:
            self._oldest[-1] = oldest
        self._total = total + size
        self._latest = time
        self.next_position += count  # type: ignore[assignment]  # without Position(...), which is a function call

    def begin_entry(self) -> None:
        """Give the next records an entry of their own in the sparse map, because no log has to keep those before.

        Otherwise the map would find them from an index on that the log has deleted.
        """
        self._due_bytes = 0

    # Retention.

    def configure(self, retain_bytes: int, retain_seconds: float, archive: ArchiveSettings = OFF) -> None:
        """Set retention and archive; they take effect with the next :meth:`trim` to a position that they give."""
        self.retain_bytes = retain_bytes
        self.retain_seconds = retain_seconds
        self.archive = archive
        self._due_time = self._times[-1] + self._span_us if self._has_ages and self._times else _NEVER

    @property
    def has_surplus(self) -> bool:
        """Whether the topic holds more than ``retain_bytes`` even without its oldest entry, and may delete that."""
        is_over = len(self._bytes_at) > 1 and self._total - self._bytes_at[1] >= self.retain_bytes
        return is_over and not self.archive.is_on

    @property
    def is_aging(self) -> bool:
        """Whether records are deleted because of their age."""
        return (self.archive.delete_seconds if self.archive.is_on else self.retain_seconds) > 0

    def retained_from(self, log_time: int) -> Position:
        """Return the first position that retention keeps at ``log_time``: that of an entry, or the next position.

        All records before it are beyond ``retain_bytes`` or older than ``retain_seconds``. Some records after it may be
        too, but fewer than lie between two entries.
        """
        if not self._positions:
            return self.first_position
        kept = 0
        if self.retain_bytes and self._total > self.retain_bytes:
            kept = max(bisect_right(self._bytes_at, self._total - self.retain_bytes) - 1, 0)
        if self.retain_seconds:
            oldest = log_time - round(self.retain_seconds * 1e6)
            if self._latest <= oldest:
                return self.next_position
            # All records of an entry are at most as old as the next entry.
            kept = max(bisect_right(self._times, oldest) - 1, kept)
        return max(Position(self._positions[kept]), self.first_position)

    def trim(self, position: Position) -> None:
        """Delete all records below ``position``, for good."""
        if position <= self.first_position:
            return
        assert position <= self.next_position, f"{position} is beyond the next position {self.next_position}"
        self.first_position = position
        if position == self.next_position:
            kept = len(self._positions)
            self._due_bytes = 0
        else:
            kept = bisect_right(self._positions, position) - 1
        for column in self._columns:
            del column[:kept]

    @property
    def first_index(self) -> Index | None:
        """The index from which the log has the topic's records; None = it has none."""
        return self.first_index_from(self.first_position)

    def first_index_from(self, position: int) -> Index | None:
        """Return the index from which the log is needed for the kept records from ``position`` on; None = for none."""
        if position >= self.next_position or not self._oldest:
            return None
        at = max(bisect_right(self._positions, position) - 1, 0)
        return Index(min(self._oldest[at:]))

    @property
    def first_visible(self) -> int | None:
        """The index below which no kept record became visible; None = no record is kept."""
        return self._indices[0] if self._indices else None

    @property
    def first_time(self) -> int:
        """The log time of the oldest kept records, in microseconds since 1970; 0 = there are none."""
        return self._times[0] if self._times else 0

    @property
    def bytes(self) -> int:
        """The bytes of the kept batches, headers included, from the first entry on."""
        return self._total - self._bytes_at[0] if self._bytes_at else 0

    def bytes_between(self, start: int, end: int) -> int:
        """Return the bytes of the kept batches from position ``start`` to ``end``, estimated."""
        positions = [*self._positions, int(self.next_position)]
        bytes_at = [*self._bytes_at, self._total]
        if start >= end or len(positions) == 1:
            return 0
        return round(_interpolate(end, positions, bytes_at) - _interpolate(start, positions, bytes_at))

    def time_before(self, position: int) -> int:
        """Return a log time at or before that of the kept record at ``position``: its entry's; 0 = none is kept."""
        at = max(bisect_right(self._positions, position) - 1, 0)
        return self._times[at] if self._times else 0

    @property
    def _has_ages(self) -> bool:
        return self.retain_seconds > 0 or self.archive.is_on

    @property
    def _span_us(self) -> int:
        """The longest log time between two entries, if an age counts for the records."""
        spans = [round(age * 1e6 / _SPANS) for age in (self.retain_seconds, self.archive.after_seconds) if age]
        return max(min([*spans, *[_ARCHIVE_SPAN_US] * self.archive.is_on]), _SPAN_US_MIN)

    def locate(self, position: int) -> tuple[int, int]:
        """Return where a forward scan of the log finds ``position``, which the topic has reached.

        The result is an index, and the first position of the topic that becomes visible there.

        Raises:
          TrimmedError: it is below the first position.
        """
        if position < self.first_position:
            raise TrimmedError(
                f"position {position} of topic {self.name!r} has been trimmed; its first position is"
                f" {self.first_position}",
                first=self.first_position,
                remedy=f"read from position {self.first_position} on; the records before it are deleted",
            )
        at = bisect_right(self._positions, position) - 1
        return self._indices[at], self._positions[at]

    def split(self, start: int, end: int, size: int) -> list[int]:
        """Return rising positions from ``start`` to ``end`` that divide the range into parts of about ``size`` bytes.

        All records between two entries of the sparse map are taken as equally long.
        """
        if start >= end:
            return [start]
        positions = [*self._positions, int(self.next_position)]
        bytes_at = [*self._bytes_at, self._total]
        low, high = _interpolate(start, positions, bytes_at), _interpolate(end, positions, bytes_at)
        parts = max(math.ceil((high - low) / size), 1)
        cuts = (round(_interpolate(low + (high - low) * i / parts, bytes_at, positions)) for i in range(1, parts))
        return sorted({start, end, *(cut for cut in cuts if start < cut < end)})

    def find_time(self, time: int) -> int:
        """Return a position at or before the first record of log time ``time`` or later: an entry's, or the next."""
        if not self._times or time > self._latest:
            return self.next_position
        at = max(bisect_left(self._times, time) - 1, 0)
        return max(self._positions[at], int(self.first_position))

    def entries(self) -> list[tuple[int, int]]:
        """Return the sparse map's (position, index), in order."""
        return list(zip(self._positions, self._indices, strict=True))

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self._positions, self._indices, self._bytes_at, self._times, self._oldest

    def describe(self) -> dict[str, object]:
        """Return the topic as the wire and users see it; ``last_position`` is inclusive, 0 = never had a record."""
        return {
            "id": self.id,
            "name": self.name,
            "first_position": self.first_position,
            "last_position": self.next_position - 1,
            "bytes": self.bytes,
            "retain_bytes": self.retain_bytes,
            "retain_seconds": self.retain_seconds,
            **({"archive": self.archive.describe()} if self.archive.is_on else {}),
            **({"schema": self.schema} if self.schema else {}),
        }

    def image(self) -> list[object]:
        """Return the state as plain values."""
        return [
            self.id,
            self.name,
            self.first_position,
            self.next_position,
            self.retain_bytes,
            self.retain_seconds,
            self._total,
            self._latest,
            self._due_bytes,
            self._due_log_bytes,
            self._due_time,
            *map(_pack_column, self._columns),
            *([list(self.archive)] if self.archive.is_on else []),
            *([self.schema] if self.schema else []),
        ]

    @classmethod
    def from_image(cls, image: list[Any]) -> Topic:
        """Rebuild a topic from :meth:`image`."""
        topic = cls(TopicId(image[0]), image[1])
        topic.first_position = Position(image[2])
        topic.next_position = Position(image[3])
        topic.retain_bytes, topic.retain_seconds = image[4:6]
        topic._total, topic._latest = image[6:8]
        topic._due_bytes, topic._due_log_bytes, topic._due_time = image[8:11]
        if isinstance(image[-1], str):  # All columns before it are bytes, and the archive is a list.
            *image, topic.schema = image
            topic.schema = RowSchema.parse(topic.schema).text
        if len(image) == 15:  # An image from before sinks existed: records became visible at their own index.
            image = [*image, image[12]]
        if len(image) == 17:
            topic.archive = ArchiveSettings.from_image(image.pop())
        for column, packed in zip(topic._columns, image[11:], strict=True):
            column.frombytes(packed)
            if sys.byteorder == "big":
                column.byteswap()
        return topic


def _interpolate(x: float, xs: list[int], ys: list[int]) -> float:
    """Return the value at ``x`` of the rising line through the points (xs, ys); outside, that of the nearest point."""
    at = bisect_right(xs, x) - 1
    if at < 0 or at + 1 == len(xs):
        return ys[max(at, 0)]
    return ys[at] + (x - xs[at]) * (ys[at + 1] - ys[at]) / (xs[at + 1] - xs[at])


def _pack_column(column: array[int]) -> bytes:
    """Return a column of the sparse map, which may have 100,000 entries, as little-endian bytes."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()
