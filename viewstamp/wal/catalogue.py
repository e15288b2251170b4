"""The segments of an open log in memory, and the sparse index from record to byte.

Shared between the writer thread, which changes it, and readers on other threads: one lock, held for a
look-up or an entry, never while the disk works.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from viewstamp.errors import FrameError, TrimmedError
from viewstamp.host.interfaces import Disk
from viewstamp.wal.format import NO_LOG_ID, SEGMENT_HEADER_SIZE
from viewstamp.wal.scan import CHUNK_BYTES, Window, batches_from
from viewstamp.wire.batch import Batch

__all__ = ["Catalogue", "ReadLocation", "Segment", "read"]

_SPARSE_BYTES = 64 * 1024
"""At most one index entry (16 bytes) for this many bytes of log, which is 256 KiB of memory for a GiB of log."""


@dataclass(slots=True, kw_only=True)
class Segment:
    """One segment file.

    ``first_index`` is that of the first record in it, ``length`` the written bytes. ``sealed``: its last group is
    a seal. The two arrays are the sparse index: the record at ``indices[i]`` begins a batch, which
    stands at byte ``locations[i]`` or directly behind the group header there. They may be empty, where the segment has
    not been read.

    Invariants:
      * ``indices`` and ``locations`` rise, and are equally long
    """

    number: int
    generation: int
    path: str
    first_index: int
    length: int = SEGMENT_HEADER_SIZE
    sealed: bool = False
    log_id: bytes = NO_LOG_ID
    indices: array[int] = field(default_factory=lambda: array("Q"))
    locations: array[int] = field(default_factory=lambda: array("Q"))
    next_noted: int = 0
    """:meth:`note` does nothing for boundaries before this byte, so most groups need not call it; 0 = not known."""

    def note(self, index: int, location: int) -> None:
        """Add a boundary to the sparse index, if the last one is far enough behind."""
        if not self.locations or location - self.locations[-1] >= _SPARSE_BYTES:
            self.indices.append(index)
            self.locations.append(location)
        self.next_noted = self.locations[-1] + _SPARSE_BYTES

    def forget(self, end: int) -> None:
        """Drop the entries at or above ``end``."""
        while self.indices and self.indices[-1] >= end:
            self.indices.pop()
            self.locations.pop()
        self.next_noted = 0

    def locate(self, index: int) -> int:
        """Return a boundary at or before the batch that holds ``index``."""
        at = bisect_right(self.indices, index)
        return self.locations[at - 1] if at else SEGMENT_HEADER_SIZE


class ReadLocation(NamedTuple):
    """A place to begin reading: a boundary in a segment, at or before the requested record.

    ``length`` is the written and durable length of the segment; ``end`` the index at which to stop all the same,
    because the log may be about to be cut there.
    """

    path: str
    number: int
    location: int
    length: int
    end: int


class Catalogue:
    """The segments in order, the durable end, and how often the log was truncated.

    Invariants:
      * segment numbers are consecutive
      * ``first_index <= durable_end``
      * ``bytes_used`` is the sum of the segments' lengths
      * ``last`` is the last of the segments
    """

    def __init__(self, segments: list[Segment], durable_end: int) -> None:
        self._lock = threading.Lock()
        self._segments = segments
        self.last = segments[-1]
        """The open segment. An attribute and not a property, because the writer reads it for each group."""
        self._durable_end = durable_end
        self._truncations = 0
        self._kept_from = 0
        self.bytes_used = sum(segment.length for segment in segments)
        """Written bytes of all segments."""

    @property
    def durable_end(self) -> int:
        """The end of the synced records."""
        return self._durable_end

    @property
    def truncations(self) -> int:
        """The number of truncations so far. If it has changed during a read that failed, a truncation is the reason."""
        return self._truncations

    @property
    def first_index(self) -> int:
        """The index of the first record kept."""
        return max(self._segments[0].first_index, self._kept_from)

    def bytes_below(self, index: int) -> int:
        """Return about how many written bytes are below an index: within a segment as if all records were alike."""
        with self._lock:
            total = 0
            ends = [segment.first_index for segment in self._segments[1:]]
            for segment, end in zip(self._segments, [*ends, self._durable_end], strict=True):
                first_index = segment.first_index
                if index <= first_index:
                    return total
                if index < end:
                    return total + segment.length * (index - first_index) // (end - first_index)
                total += segment.length
            return total

    def segments(self) -> list[Segment]:
        """Return the segments in order: a copy of the list, not of the segments."""
        with self._lock:
            return list(self._segments)

    def add(self, segment: Segment) -> None:
        """Append a segment; it becomes the open one."""
        with self._lock:
            assert segment.number == self._segments[-1].number + 1, "segment numbers are consecutive"
            self._segments.append(segment)
            self.last = segment
            self.bytes_used += segment.length

    def seal(self, length: int) -> None:
        """Note that the open segment got its seal and was cut to ``length`` bytes."""
        with self._lock:
            self._set_length(length)
            self._segments[-1].sealed = True

    def extend(self, entries: list[tuple[int, int]], length: int, end: int) -> None:
        """Note a synced group in the open segment: its batches' (index, location), the new length, the new end."""
        with self._lock:
            segment = self._segments[-1]
            for index, location in entries:
                if location >= segment.next_noted:
                    segment.note(index, location)
            self.bytes_used += length - segment.length
            segment.length = length
            self._durable_end = end

    def learn(self, number: int, entries: list[tuple[int, int]], truncations: int) -> None:
        """Add a reader's findings to the sparse index of a segment that was not read when the log was opened.

        ``truncations`` is the number of truncations before the reader began: findings from before a later truncation
        are ignored.
        """
        with self._lock:
            at = number - self._segments[0].number
            if truncations == self._truncations and 0 <= at < len(self._segments):
                segment = self._segments[at]
                for index, location in entries:
                    if not segment.locations or location > segment.locations[-1]:
                        segment.note(index, location)

    def droppable(self, first_index: int) -> Segment | None:
        """Return the first segment if all its records are below ``first_index`` and it is not the open one."""
        with self._lock:
            if len(self._segments) > 1 and self._segments[1].first_index <= first_index:
                return self._segments[0]
            return None

    def drop_first(self) -> None:
        """Forget the first segment, before anything happens to its file."""
        with self._lock:
            self.bytes_used -= self._segments.pop(0).length

    def begin_truncation(self, end: int) -> None:
        """Stop readers from going to ``end`` or beyond, before the first byte is cut."""
        with self._lock:
            self._truncations += 1
            self._durable_end = min(self._durable_end, end)

    def boundary(self, end: int) -> Segment:
        """Return the segment that holds the record before ``end``, or the first one."""
        with self._lock:
            at = bisect_left(self._segments, end, key=lambda segment: segment.first_index)
            return self._segments[max(0, at - 1)]

    def cut(self, number: int, length: int, end: int) -> None:
        """Note that segment ``number`` is the last one now, ``length`` bytes long, and the log ends at ``end``."""
        with self._lock:
            at = number + 1 - self._segments[0].number
            self.bytes_used -= sum(segment.length for segment in self._segments[at:])
            del self._segments[at:]
            segment = self.last = self._segments[-1]
            self._set_length(length)
            segment.sealed = False
            segment.forget(end)
            self._durable_end = end
            self._truncations += 1

    def begin_reset(self, end: int) -> None:
        """Make reads below ``end`` fail from now on. Called before the first byte of the old log is removed."""
        with self._lock:
            self._truncations += 1
            self._kept_from = self._durable_end = end

    def reset(self, segment: Segment) -> None:
        """Note that ``segment``, which holds no record, is the only one now."""
        with self._lock:
            self._segments = [segment]
            self.last = segment
            self._durable_end = segment.first_index
            self._kept_from = 0
            self._truncations += 1
            self.bytes_used = segment.length

    def check_kept(self, index: int) -> None:
        """Refuse an index below the first one that is kept.

        Raises:
          TrimmedError: names the first one.
        """
        first = self.first_index
        if index < first:
            raise TrimmedError(
                f"index {index} has been trimmed, the log begins at {first}",
                first=first,
                remedy=f"begin to read at index {first}",
            )

    def find(self, index: int) -> ReadLocation | None:
        """Return the place from which to search for the batch that holds ``index``; None = it is not durable yet.

        Raises:
          TrimmedError: the index is below the first one kept.
        """
        with self._lock:
            self.check_kept(index)
            if index >= self._durable_end:
                return None
            at = bisect_right(self._segments, index, key=lambda segment: segment.first_index) - 1
            return self._place(self._segments[at], self._segments[at].locate(index))

    def after(self, number: int) -> ReadLocation | None:
        """Return the start of the segment after segment ``number``; None = there is none."""
        with self._lock:
            at = number + 1 - self._segments[0].number
            if not 0 <= at < len(self._segments):
                return None
            return self._place(self._segments[at], SEGMENT_HEADER_SIZE)

    def _set_length(self, length: int) -> None:
        """Set the length of the last segment."""
        segment = self._segments[-1]
        self.bytes_used += length - segment.length
        segment.length = length

    def _place(self, segment: Segment, location: int) -> ReadLocation:
        return ReadLocation(segment.path, segment.number, location, segment.length, self._durable_end)


def read(disk: Disk, catalogue: Catalogue, start: int, bytes_max: int) -> list[Batch]:
    """Return batches from the one that holds index ``start``, about ``bytes_max`` bytes, at least one if it is durable.

    Raises:
      TrimmedError: ``start`` is below the first index kept.
      FrameError, FileNotFoundError: the files differ from the catalogue, perhaps because they are being cut or trimmed.
      StorageError: the disk failed.
    """
    found: list[Batch] = []
    truncations = catalogue.truncations
    place = catalogue.find(start)
    held = 0
    while place is not None:
        passed: list[tuple[int, int]] = []
        held = _read_segment(disk, place, start, bytes_max, held, found, passed)
        catalogue.learn(place.number, passed, truncations)
        if found and (held >= bytes_max or found[-1].end >= place.end):
            break
        place = catalogue.after(place.number)
    return found


def _read_segment(
    disk: Disk,
    place: ReadLocation,
    start: int,
    bytes_max: int,
    held: int,
    found: list[Batch],
    passed: list[tuple[int, int]],
) -> int:
    """Add the batches of one segment to ``found``; return the bytes that it holds now.

    ``passed`` gets the (index, location) of each batch before ``start``, for the sparse index.
    """
    file = disk.open_read(place.path)
    try:
        window = Window(file, min(CHUNK_BYTES, max(bytes_max, 64 * 1024)))
        for at, batch in batches_from(window, place.location, place.length):
            if batch.end <= start:
                passed.append((batch.first_index, at))
                continue
            if batch.first_index != (found[-1].end if found else batch.first_index):
                raise FrameError(f"{batch!r} follows {found[-1]!r}, but begins at another index")
            found.append(batch)
            held += batch.size
            if held >= bytes_max or batch.end >= place.end:
                break
        return held
    finally:
        file.close()
