"""The writer: what happens on the writer thread. It knows nothing of the event loop, futures or reservations.

One call of :meth:`Writer.work` takes everything that was queued: consecutive appends become groups (one
write, one sync each), truncations and jobs stand between them in their order. Nothing here is per record.

A failure is final: the item that failed and all after it, in this call and in every later one, get the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from viewstamp.errors import StorageFullError
from viewstamp.host.seam import Disk, File
from viewstamp.wal.catalogue import Catalogue, Segment
from viewstamp.wal.format import (
    GROUP_BATCHES_MAX,
    GROUP_HEADER_SIZE,
    GROUP_MAGIC,
    PREPARED_NAME,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    SegmentHeader,
    batch_checksum,
    segment_name,
)
from viewstamp.wal.preparation import fill_with_zeros
from viewstamp.wal.segment import Window
from viewstamp.wal.truncation import Mark, carry_out, place_mark
from viewstamp.wire.batch import HEADER_SIZE, Batch, Buffer

__all__ = ["Append", "Close", "Cut", "Item", "Job", "Outcome", "Writer"]

Done = Callable[[BaseException | None], None]

_GROUP_BYTES_MAX = 8 * 1024 * 1024
"""A group closes at this size: a bound on what one sync has to carry, and so on the latency of those behind."""

_SPARSE_BYTES = 64 * 1024


@dataclass(slots=True, eq=False)
class Append:
    """Batches to write, in order; ``size`` is what they hold of the queue's bound."""

    batches: Sequence[Batch]
    size: int
    done: Done


@dataclass(slots=True, eq=False)
class Cut:
    """Truncate the log to ``end``."""

    end: int
    done: Done


@dataclass(slots=True, eq=False)
class Job:
    """Run ``job`` here, after everything before it is durable."""

    job: Callable[[], None]
    done: Done


@dataclass(slots=True, eq=False)
class Close:
    """Write an empty group, so that the last one is known to have been durable.

    ``finally_``: also cut the open segment to its written length, as nothing will follow.
    """

    finally_: bool
    done: Done


Item = Append | Cut | Job | Close


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one call did: the first ``succeeded`` items did, the rest failed with ``error``.

    ``room`` is what the open segment still takes without growing; ``took_prepared``: a new one is needed.
    """

    succeeded: int
    error: Exception | None
    room: int
    took_prepared: bool
    groups: int


class Writer:
    """Owns the open segment: its file, its write position, the group numbers.

    Invariants:
      * one group is unsynced at a time; everything below ``position`` is durable between two calls
      * group numbers and generations only rise
      * ``position`` 0 means that not even the segment header is written
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segment_bytes: int,
        catalogue: Catalogue,
        file: File,
        *,
        allocated: int,
        group: int,
        generation: int,
        end: int,
        term: int,
        closed: bool,
    ) -> None:
        """Take over the last segment of ``catalogue``.

        Args:
          disk: where the files are.
          directory: holds the segments.
          segment_bytes: from this length on the log goes on in the next segment.
          catalogue: what readers look things up in.
          file: the open segment, open for writing.
          allocated: its length, all of it written before (zeros).
          group: the highest group number so far.
          generation: the highest generation so far.
          end: the end of the log.
          term: the term of the last record, 0 = none.
          closed: the last group is empty, or there is none: nothing to close.
        """
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self.catalogue = catalogue
        self._file = file
        self._position = catalogue.last.length
        self._allocated = allocated
        self._group = group
        self._generation = generation
        self._end = end
        self._term = term
        self._closed = closed
        self._failure: Exception | None = None
        self._took_prepared = False
        self.prepared = False
        """Set from outside when ``next.prepared`` is there; cleared here when it is taken."""
        self.commit_hint = 0
        """Set from outside; written into each group header, at most the durable end."""
        self.groups = 0
        """How many groups were written and synced, empty ones and seals too."""

    @property
    def room(self) -> int:
        """Bytes that the open segment takes without growing."""
        return max(0, self._allocated - self._position)

    @property
    def is_whole(self) -> bool:
        """Whether the open segment has its full length."""
        return self._allocated >= self._segment_bytes

    def work(self, items: list[Item]) -> Outcome:
        """Do all of ``items`` in order. Blocking; never raises."""
        at = 0
        before = self.groups
        try:
            if self._failure is not None:
                raise self._failure
            while at < len(items):
                item = items[at]
                if isinstance(item, Append):
                    stop = at + 1
                    while stop < len(items) and isinstance(items[stop], Append):
                        stop += 1
                    for upto in self._groups(items, at, stop):
                        at = upto
                else:
                    self._do(item)
                    at += 1
        except Exception as error:
            # The root of the writer's work: from here on nothing is written, whatever it was.
            self._failure = error
        took, self._took_prepared = self._took_prepared, False
        return Outcome(
            succeeded=at, error=self._failure, room=self.room, took_prepared=took, groups=self.groups - before
        )

    def fail(self, error: Exception) -> None:
        """Write nothing any more after the call of :meth:`work` that may be under way; from any thread."""
        self._failure = self._failure or error

    def fill(self) -> None:
        """Bring the open segment to its full length with zeros, so that syncs in it are cheap.

        Raises:
          StorageFullError: there is no room; the segment is as long as what is written in it.
        """
        if self._allocated >= self._segment_bytes:
            return
        try:
            fill_with_zeros(self._file, self._position, self._segment_bytes)
        except StorageFullError:
            self._file.truncate(self._position)
            self._file.sync()
            self._allocated = self._position
            raise
        self._allocated = self._segment_bytes

    def close(self) -> None:
        """Close the file without writing anything."""
        self._file.close()

    def _do(self, item: Item) -> None:
        match item:
            case Cut():
                self._truncate(item.end)
            case Job():
                item.job()
            case Close():
                if not self._closed:
                    self.close_group()
                if item.finally_:
                    self._shorten()

    def _groups(self, items: Sequence[Item], start: int, stop: int) -> Iterator[int]:
        """Write the appends from ``start`` up to ``stop``; yield after each sync up to where items are durable."""
        batches: list[Batch] = []
        size = 0
        for at in range(start, stop):
            item = items[at]
            assert isinstance(item, Append), "only appends form groups"
            for batch in item.batches:
                if batches and (len(batches) == GROUP_BATCHES_MAX or size + batch.size > _GROUP_BYTES_MAX):
                    self._append_group(batches, size)
                    yield at
                    batches = []
                    size = 0
                batches.append(batch)
                size += batch.size
        self._append_group(batches, size)
        yield stop

    def _append_group(self, batches: list[Batch], size: int) -> None:
        """Write and sync one group of batches, in the next segment where this one is full."""
        end = self._end
        term = self._term
        for batch in batches:
            assert batch.first_index == end, f"{batch!r} where index {end} comes next"
            assert batch.term >= term, f"{batch!r} after term {term}"
            end = batch.end
            term = batch.term
        full = self._position + GROUP_HEADER_SIZE + size > self._segment_bytes
        if full and self.prepared and self.catalogue.last.first_index < self._end:
            self._roll()
        location = self._write_group(batches, size, seals=False)
        self._sync()
        entries = [(self._end, location)]
        if size > _SPARSE_BYTES:
            entries = _boundaries(batches, location, self._position - size)
        self._end = end
        self._term = term
        self._closed = False
        self.catalogue.extend(entries, self._position, end)

    def close_group(self) -> None:
        """Write and sync an empty group: it calls everything before it durable."""
        self._write_group([], 0, seals=False)
        self._sync()
        self._closed = True
        self.catalogue.extend([], self._position, self._end)

    def _write_group(self, batches: list[Batch], size: int, *, seals: bool) -> int:
        """Write a group, with the segment header if this is the segment's first; return where the group stands."""
        buffers: list[Buffer] = []
        start = location = self._position
        segment = self.catalogue.last
        if start == 0:
            location = SEGMENT_HEADER_SIZE
            header = SegmentHeader(
                number=segment.number,
                generation=segment.generation,
                first_index=segment.first_index,
                previous_term=self._term,
                first_group=self._group + 1,
            )
            buffers.append(header.encode())
        self._group += 1
        group = GroupHeader(
            generation=segment.generation,
            number=self._group,
            location=location,
            durable=start,
            commit_hint=min(self.commit_hint, self._end),
            first_index=self._end,
            body_size=size,
            seals=seals,
            checksums=[batch_checksum(batch) for batch in batches],
        )
        packed = group.encode()
        buffers.append(packed)
        buffers.extend([batch.buffer for batch in batches])
        self._file.write(start, buffers)
        self._position = location + len(packed) + size
        return location

    def _sync(self) -> None:
        """Make the group just written durable: cheaply where the file neither grew nor got new blocks."""
        self.groups += 1
        if self._position <= self._allocated:
            self._file.sync_data()
        else:
            self._file.sync()
            self._allocated = self._position

    def _shorten(self) -> None:
        """Cut the open segment to its written length."""
        if self._position < self._allocated:
            self._file.truncate(self._position)
            self._file.sync()
            self._allocated = self._position

    def _roll(self) -> None:
        """Go on in the prepared segment.

        The new name is durable before the old segment is sealed, so a seal promises that the next file exists; the
        seal and the old segment's length are durable before the first write to the new one, so a segment that
        is followed by a written one is complete.
        """
        number = self.catalogue.last.number + 1
        self._disk.rename(f"{self._directory}/{PREPARED_NAME}", f"{self._directory}/{segment_name(number)}")
        self._disk.sync_directory(self._directory)
        self.prepared = False
        self._took_prepared = True
        self.enter(number)

    def enter(self, number: int) -> None:
        """Seal the open segment and go on in segment ``number``, whose name is durable and which is all zeros."""
        if not self.catalogue.last.sealed:
            self._write_group([], 0, seals=True)
            self._file.truncate(self._position)
            self._file.sync()
            self.catalogue.seal(self._position)
            self.groups += 1
        self._file.close()
        path = f"{self._directory}/{segment_name(number)}"
        self._file = self._disk.open(path)
        self._generation += 1
        self._position = 0
        self._allocated = self._file.size()
        self._closed = True
        self.catalogue.add(
            Segment(number=number, generation=self._generation, path=path, first_index=self._end, length=0)
        )

    def _truncate(self, end: int) -> None:
        """Cut the log to ``end``, a batch boundary; durable on return. The steps are those of ``truncation``."""
        if end == self._end:
            return
        catalogue = self.catalogue
        assert catalogue.first_index <= end < self._end, f"truncation to {end} of {catalogue.first_index}..{self._end}"
        catalogue.begin_truncation(end)
        segment = catalogue.boundary(end)
        file = self._disk.open_read(segment.path)
        length, self._term = _find_end(file, segment, end)
        file.close()
        mark = Mark(end=end, segment=segment.number, length=length, group=self._group, generation=self._generation)
        place_mark(self._disk, self._directory, mark)
        self._file.close()
        carry_out(self._disk, self._directory, mark)
        self._file = self._disk.open(segment.path)
        self._position = self._allocated = length
        self._end = end
        catalogue.cut(segment.number, length, end)
        # The number of this group is above those that were cut, also after a restart.
        self.close_group()


def _boundaries(batches: list[Batch], group: int, first: int) -> list[tuple[int, int]]:
    """Return (index, location) of each batch of a large group; of the first, the group's own location."""
    entries = [(int(batches[0].first_index), group)]
    location = first
    for before, batch in pairwise(batches):
        location += before.size
        entries.append((int(batch.first_index), location))
    return entries


def _find_end(file: File, segment: Segment, end: int) -> tuple[int, int]:
    """Return the byte after the batch that ends at ``end``, and that batch's term.

    Where the segment begins at ``end``: the byte after the segment header, and the term before the segment.
    """
    if end == segment.first_index:
        return SEGMENT_HEADER_SIZE, SegmentHeader.decode(file.read(0, SEGMENT_HEADER_SIZE), file.path).previous_term
    window = Window(file)
    at = segment.locate(end - 1)
    while True:
        view = window.peek(at, HEADER_SIZE)
        if view[:4] == GROUP_MAGIC:
            at += GroupHeader.measure(view)
            continue
        batch = Batch.decode(window.peek(at, Batch.measure(view)))
        at += batch.size
        if batch.end >= end:
            assert batch.end == end, f"truncation to {end}, inside {batch!r}"
            return at, batch.term
