"""The writer: the work of the writer thread. Independent of the event loop, futures and reservations.

One call of :meth:`Writer.work` takes everything that is queued: consecutive appends become groups (one write, one sync
each), with truncations, trims and jobs between them in their order. Nothing here is done per record.

With ``sync_seconds`` (the interval mode) a group is complete when it is written, and one sync covers all groups of an
interval. After each group the writer checks whether that sync is due: on a slow disk it waits here, and so do the items
behind it. Every item that is not an append syncs first. A group with a batch of another kind than ``_INTERVAL_KINDS``
is complete when it is durable, because such a batch gives out names (of sessions, topics, attempts) or ends something.
If a power cut took an acknowledged name, the name would be given again, to another client.

A failure is final: the item that failed and all after it, in this call and in every later one, get the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, itemgetter

from viewstamp.errors import StorageFullError
from viewstamp.host.interfaces import Disk, File
from viewstamp.wal.budget import Spares, fill_with_zeros
from viewstamp.wal.catalogue import Catalogue, Segment
from viewstamp.wal.completion import Done
from viewstamp.wal.format import (
    GROUP_BATCHES_MAX,
    GROUP_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
    encode_group,
    segment_name,
)
from viewstamp.wal.scan import Window, batches_from, read_segment_header
from viewstamp.wal.truncation import Mark, carry_out, place_mark
from viewstamp.wire.batch import Batch, Buffer, Kind, pad

__all__ = [
    "AppendItem",
    "CloseItem",
    "JobItem",
    "Reservation",
    "ResetItem",
    "SyncItem",
    "TrimItem",
    "TruncateItem",
    "WorkResult",
    "Writer",
    "WriterItem",
]

_GROUP_BYTES_MAX = 8 * 1024 * 1024
"""A group closes at this size, which bounds the bytes of one sync, and so the latency of the appends behind it."""

_SPARSE_BYTES = 64 * 1024

_GROUP_FIXED_BYTES = GROUP_HEADER_SIZE + pad(4) + 2 * GROUP_HEADER_SIZE
"""The bytes of a group in a segment without its batches and their checksums: its header, padded; and after it, the
empty group of an idle log, and the seal."""

_CHECKSUM_BYTES = 4
"""The bytes of each batch in the header of its group."""

_INTERVAL_KINDS = frozenset({Kind.RECORDS, Kind.STAGED, Kind.COMMANDS})
"""The kinds of batches that the interval mode completes before they are durable."""

_BUFFER_OF = attrgetter("buffer")
_KIND_OF = attrgetter("kind")
_CHECKSUM_OF = itemgetter(slice(4, 8))
"""The bytes of a batch that its group's header repeats: the checksum of the batch's header."""


@dataclass(slots=True, eq=False)
class AppendItem:
    """Batches to write, in order; ``size`` is their share of the queue's bound."""

    batches: Sequence[Batch]
    size: int
    done: Done


@dataclass(slots=True, eq=False)
class TruncateItem:
    """Truncate the log to ``end``."""

    end: int
    done: Done


@dataclass(slots=True, eq=False)
class TrimItem:
    """Drop one segment whose records are all below ``first_index``, if there is one; never the open one."""

    first_index: int
    done: Done


@dataclass(slots=True, eq=False)
class ResetItem:
    """Drop everything: the log is empty and begins at ``end``, after a record of ``term``."""

    end: int
    term: int
    done: Done


@dataclass(slots=True, eq=False)
class SyncItem:
    """Make all complete batches durable."""

    done: Done


@dataclass(slots=True, eq=False)
class JobItem:
    """Run ``job`` here, after everything before it is durable."""

    job: Callable[[], object]
    done: Done


@dataclass(slots=True, eq=False)
class CloseItem:
    """Write an empty group, so that the last one is known to have been durable.

    ``finally_``: also cut the open segment to its written length, as nothing will follow.
    """

    finally_: bool
    done: Done


WriterItem = AppendItem | TruncateItem | TrimItem | ResetItem | SyncItem | JobItem | CloseItem


class Reservation:
    """A place in the order of the log; to be filled or cancelled.

    Invariants:
      * ``item`` is set once, by ``fill`` or, as None with ``ready``, by ``cancel``
    """

    __slots__ = ("cost", "item", "ready")

    def __init__(self, cost: int, item: WriterItem | None = None) -> None:
        self.cost = cost
        self.item = item
        self.ready = item is not None


@dataclass(slots=True, eq=False, kw_only=True)
class WorkResult:
    """The result of one call: the first ``succeeded`` items succeeded, the rest failed with ``error``.

    ``room`` is the number of bytes that the open segment takes without growing, ``is_whole`` whether it has its full
    length, ``used`` the bytes written in all segments. ``taken`` and ``dropped`` are the numbers of prepared files that
    were used up, and of segments that became spares. ``unsynced_since`` is the time at which the oldest group was
    written that is complete and not durable, None = all are.
    """

    succeeded: int
    error: Exception | None
    room: int
    is_whole: bool
    used: int
    taken: int
    dropped: int
    groups: int
    unsynced_since: float | None


class Writer:
    """Owns the open segment: its file, its write position, the group numbers.

    Invariants:
      * everything below ``durable`` is durable, and all of it between two calls, but in the interval mode
      * only the open segment has anything that is not durable
      * group numbers and generations only rise
      * ``position`` 0 means that not even the segment header is written
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segment_bytes: int,
        sync_seconds: float,
        catalogue: Catalogue,
        spares: Spares,
        file: File,
        *,
        allocated: int,
        group: int,
        generation: int,
        end: int,
        term: int,
        closed: bool,
        log_id: bytes,
    ) -> None:
        """Take over the last segment of ``catalogue``.

        Args:
          disk: the disk with the files.
          directory: the directory of the segments.
          segment_bytes: the length at which the log continues in the next segment.
          sync_seconds: see ``WalOptions``; takes effect when ``now`` is set.
          catalogue: the index for readers.
          spares: the source of the next segments.
          file: the open segment, open for writing.
          allocated: its length, all of it written before (zeros).
          group: the highest group number so far.
          generation: the highest generation so far.
          end: the end of the log.
          term: the term of the last record, 0 = none.
          closed: the last group is empty, or there is none, so there is nothing to close.
          log_id: the id for each new segment.
        """
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._sync_seconds = sync_seconds
        self.catalogue = catalogue
        self._spares = spares
        self._file = file
        self._position = catalogue.last.length
        self._allocated = allocated
        self._held = allocated
        """Bytes of the budget that the open segment has, at least its length."""
        self._group = group
        self._generation = generation
        self._end = end
        self._term = term
        self.is_closed = closed
        """Whether the last group is an empty one, behind which nothing was written. Read on the event loop, too."""
        self._log_id = log_id
        self._failure: Exception | None = None
        self._durable = self._position
        self._durable_end = end
        self._unsynced_since: float | None = None
        self._taken = 0
        self._dropped = 0
        self._succeeded = 0
        """Number of complete items of the present call of :meth:`work`."""
        self.now: Callable[[], float] | None = None
        """The clock of the interval mode; None = every group is synced."""
        self.cached_segments: int | None = None
        """The newest full segments that stay in the memory of the operating system; None = that decides by itself."""
        self.commit_hint = 0
        """Set from outside; written into each group header, at most the durable end."""
        self.groups = 0
        """Number of groups that were written and synced, including empty ones and seals."""

    @property
    def durable_commit_end(self) -> int:
        """The commit hint, but never above the synced end. For jobs, on the writer thread."""
        return min(self.commit_hint, self._durable_end)

    @property
    def room(self) -> int:
        """Bytes that the open segment takes without growing."""
        return max(0, self._allocated - self._position)

    @property
    def is_whole(self) -> bool:
        """Whether the open segment has its full length."""
        return self._allocated >= self._segment_bytes

    def work(self, items: list[WriterItem]) -> WorkResult:
        """Do all of ``items`` in order. Blocking; never raises."""
        self._succeeded = 0
        before = self.groups
        try:
            if self._failure is not None:
                raise self._failure
            while self._succeeded < len(items):
                item = items[self._succeeded]
                if isinstance(item, AppendItem):
                    self._append_run(items, self._succeeded)
                else:
                    self._do(item)
                    self._succeeded += 1
        except Exception as error:
            # The root of the writer's work: after any error nothing is written any more.
            self._failure = error
        taken, self._taken = self._taken, 0
        dropped, self._dropped = self._dropped, 0
        # `room` and `is_whole` are computed here, because calls would cost time for each group.
        return WorkResult(
            succeeded=self._succeeded,
            error=self._failure,
            room=max(0, self._allocated - self._position),
            is_whole=self._allocated >= self._segment_bytes,
            used=self.catalogue.bytes_used,
            taken=taken,
            dropped=dropped,
            groups=self.groups - before,
            unsynced_since=self._unsynced_since,
        )

    def fail(self, error: Exception) -> None:
        """Write nothing any more after the call of :meth:`work` that may be under way; from any thread."""
        self._failure = self._failure or error

    def fill(self) -> None:
        """Extend the open segment to its full length with zeros, so that syncs in it are cheap.

        Raises:
          StorageFullError: there is no room; the segment stays as long as its written bytes.
        """
        missing = self._segment_bytes - self._held
        if missing <= 0 or not self._spares.take(missing):
            return
        self._held = self._segment_bytes
        try:
            fill_with_zeros(self._file, self._position, self._segment_bytes)
        except StorageFullError:
            self._shorten()
            raise
        self._allocated = self._segment_bytes

    def close(self) -> None:
        """Close the file without writing anything."""
        self._file.close()

    def _do(self, item: WriterItem) -> None:
        self._sync()
        match item:
            case TruncateItem():
                self._truncate(item.end)
            case TrimItem():
                self._trim(item.first_index)
            case ResetItem():
                self._reset(item.end, item.term)
            case JobItem():
                item.job()
            case CloseItem():
                if not self.is_closed:
                    self.close_group()
                if item.finally_:
                    self._shorten()

    def _append_run(self, items: Sequence[WriterItem], start: int) -> None:
        """Write the appends from ``start`` up to the next item of another kind, as one group if they fit into one.

        ``_succeeded`` follows after each group, so that it is right where a later one fails.
        """
        batches: list[Batch] = []
        stop = start
        while stop < len(items) and isinstance(item := items[stop], AppendItem):
            batches += item.batches
            stop += 1
        size = 0
        for batch in batches:
            size += batch.size
        # Nearly always they fit into the open segment. Then no batch has to be examined by itself.
        room = self._segment_bytes - (self._position or SEGMENT_HEADER_SIZE) - _GROUP_FIXED_BYTES
        bytes_max = min(room, _GROUP_BYTES_MAX) - _CHECKSUM_BYTES * len(batches)
        if size <= bytes_max and len(batches) <= GROUP_BATCHES_MAX:
            self._append_group(batches, size)
        else:
            self._append_groups(items, start, stop)
        self._succeeded = stop

    def _append_groups(self, items: Sequence[WriterItem], start: int, stop: int) -> None:
        """Write the appends from ``start`` up to ``stop`` as several groups."""
        batches: list[Batch] = []
        size = limit = 0
        for at in range(start, stop):
            item = items[at]
            assert isinstance(item, AppendItem), "only appends form groups"
            for batch in item.batches:
                if batches and (len(batches) == GROUP_BATCHES_MAX or size + batch.size + _CHECKSUM_BYTES > limit):
                    self._append_group(batches, size)
                    self._succeeded = at
                    batches = []
                    size = 0
                if not batches:
                    limit = self._group_limit(batch.size)
                limit -= _CHECKSUM_BYTES
                batches.append(batch)
                size += batch.size
        self._append_group(batches, size)

    def _group_limit(self, first: int) -> int:
        """Return the largest size of a group whose first batch has ``first`` bytes, checksums included.

        A group ends where its segment does: the open one, or the next if ``first`` does not fit.
        """
        room = self._segment_bytes - (self._position or SEGMENT_HEADER_SIZE) - _GROUP_FIXED_BYTES
        if first + _CHECKSUM_BYTES > room:
            room = self._segment_bytes - SEGMENT_HEADER_SIZE - _GROUP_FIXED_BYTES
        return min(room, _GROUP_BYTES_MAX)

    def _append_group(self, batches: list[Batch], size: int) -> None:
        """Write a group of batches and complete it, in the next segment where this one is full."""
        end = self._end
        term = self._term
        for batch in batches:
            assert batch.first_index == end, f"{batch!r} where index {end} comes next"
            assert batch.term >= term, f"{batch!r} after term {term}"
            end = batch.end
            term = batch.term
        needed = _GROUP_FIXED_BYTES + _CHECKSUM_BYTES * len(batches) + size
        start = self._position or SEGMENT_HEADER_SIZE
        if start + needed > self._segment_bytes and self.catalogue.last.first_index < self._end:
            self._roll()
        location = self._write_group(batches, size, seals=False)
        self._end = end
        self._term = term
        self.is_closed = False
        self.groups += 1
        if self._sync_seconds <= 0 or self._is_sync_due() or not _INTERVAL_KINDS.issuperset(map(_KIND_OF, batches)):
            self._sync()
        entries = [(int(batches[0].first_index), location)]
        if size > _SPARSE_BYTES:
            entries = _boundaries(batches, location, self._position - size)
        self.catalogue.extend(entries, self._position, end)

    def _is_sync_due(self) -> bool:
        """Return whether the interval mode has to sync now, because the oldest group that is not durable is too old."""
        if self.now is None:
            return True
        now = self.now()
        if self._unsynced_since is None:
            self._unsynced_since = now
        return now - self._unsynced_since >= self._sync_seconds

    def close_group(self) -> None:
        """Write and sync an empty group: it calls everything before it durable."""
        self._sync()
        self._write_group([], 0, seals=False)
        self.groups += 1
        self._sync()
        self.is_closed = True
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
                log_id=self._log_id,
            )
            buffers.append(header.encode())
        self._group += 1
        bodies = list(map(_BUFFER_OF, batches))
        packed = encode_group(
            generation=segment.generation,
            number=self._group,
            location=location,
            durable=self._durable,
            commit_hint=min(self.commit_hint, self._durable_end),  # No further call for each group.
            first_index=self._end,
            body_size=size,
            seals=seals,
            checksums=b"".join(map(_CHECKSUM_OF, bodies)),
        )
        buffers.append(packed)
        buffers += bodies
        end = location + len(packed) + size
        if end > self._held:
            self._grow(end)
        self._file.write(start, buffers)
        self._position = end
        return location

    def _grow(self, end: int) -> None:
        """Count the bytes up to ``end`` that the open segment lacks against ``bytes_max``.

        If the bound leaves too few, prepared files are deleted, because their bytes count against it too.
        """
        missing = end - self._held
        if missing <= 0:
            return
        while not self._spares.take(missing):
            if not self._spares.give_up():
                # Only a log that was over its bound when it was opened comes here, for the empty group that closes it
                # or a truncation. Appends are refused before.
                self._spares.overdraw(missing)
                break
            self._taken += 1
        self._held = end

    def _sync(self) -> None:
        """Make everything written durable: cheaply where the file neither grew nor got new blocks."""
        if self._durable == self._position:
            return
        if self._position <= self._allocated:
            self._file.sync_data()
        else:
            self._file.sync()
            self._allocated = self._position
        self._durable = self._position
        self._durable_end = self._end
        self._unsynced_since = None

    def _shorten(self) -> None:
        """Cut the open segment to its written length."""
        if self._position < self._held:
            self._file.truncate(self._position)
            self._file.sync()
            self._allocated = self._position
            self._give_surplus()

    def _give_surplus(self) -> None:
        """Give back the bytes that the open segment cannot use any more, once that is durable."""
        self._spares.give(self._held - self._position)
        self._held = self._position

    def _roll(self) -> None:
        """Continue in a prepared segment; without one the open segment grows.

        The written bytes are synced first, because a segment with a successor must be complete. The new name is durable
        before the old segment is sealed, so a seal proves that the next file exists. The seal and the old segment's
        length are durable before the first write to the new one, so a segment that is followed by a written one is
        complete.
        """
        self._grow(self._position + GROUP_HEADER_SIZE)  # for the seal, while there is a spare to take it from
        prepared = self._spares.pop()
        if prepared is None:
            return
        self._taken += 1
        self._sync()
        number = self.catalogue.last.number + 1
        self._disk.rename(prepared, f"{self._directory}/{segment_name(number)}")
        self._disk.sync_directory(self._directory)
        self.enter(number)

    def enter(self, number: int) -> None:
        """Seal the open segment and continue in segment ``number``, whose name is durable and which is all zeros."""
        if not self.catalogue.last.sealed:
            self._write_group([], 0, seals=True)
            self._file.truncate(self._position)
            self._file.sync()
            self._give_surplus()
            self.catalogue.seal(self._position)
            self.groups += 1
        self._file.close()
        path = f"{self._directory}/{segment_name(number)}"
        self._file = self._disk.open(path)
        self._generation += 1
        self._position = self._durable = 0
        self._allocated = self._held = self._file.size()
        self.is_closed = True
        self.catalogue.add(
            Segment(number=number, generation=self._generation, path=path, first_index=self._end, length=0)
        )
        self._uncache()

    def _uncache(self) -> None:
        """Give up the memory of the segment that is not among the newest any more.

        One for each new segment. It is sealed, so everything in it is synced. If the process dies before this call, or
        the call has no effect, the operating system decides about this memory, as without the bound.
        """
        if self.cached_segments is None:
            return
        full = self.catalogue.segments()[:-1]
        if len(full) > self.cached_segments:
            self._disk.uncache(full[-1 - self.cached_segments].path)

    def _truncate(self, end: int) -> None:
        """Cut the log to ``end``, a batch boundary; durable on return. The steps are those of ``truncation``."""
        if end == self._end:
            return
        catalogue = self.catalogue
        assert catalogue.first_index <= end < self._end, f"truncation to {end} of {catalogue.first_index}..{self._end}"
        catalogue.begin_truncation(end)
        segment = catalogue.boundary(end)
        length, self._term = _find_end(self._disk, segment, end)
        mark = Mark(end=end, segment=segment.number, length=length, group=self._group, generation=self._generation)
        before = self._length_from(segment)
        place_mark(self._disk, self._directory, mark)
        self._file.close()
        carry_out(self._disk, self._directory, mark, self._log_id)
        self._spares.give(before - length)
        self._file = self._disk.open(segment.path)
        self._position = self._allocated = self._held = self._durable = length
        self._end = self._durable_end = end
        catalogue.cut(segment.number, length, end)
        # The number of this group is above those that were cut, also after a restart.
        self.close_group()

    def _length_from(self, first: Segment) -> int:
        """Return the length of the files of ``first`` and all segments behind it."""
        sealed = self.catalogue.segments()[:-1]
        return sum(segment.length for segment in sealed if segment.number >= first.number) + self._held

    def _trim(self, first_index: int) -> None:
        """Drop the first segment if it is wholly below ``first_index``, durably.

        One at a time, so that appends go on between them; and the first one first, so that a death on the way leaves a
        log without gaps, which begins at or below ``first_index``.
        """
        segment = self.catalogue.droppable(first_index)
        if segment is None:
            return
        if self._position == 0:
            self.close_group()  # Without a header in its only segment, the log would look as if files were missing.
        self.catalogue.drop_first()
        self._dropped += self._spares.drop(segment.path, segment.length)

    def _reset(self, end: int, term: int) -> None:
        """Empty the log; durable on return. The steps are those of ``truncation``.

        Files that an earlier reset has set aside are removed first, so that at most one old log is kept.
        """
        catalogue = self.catalogue
        self._spares.remove_replaced()
        catalogue.begin_reset(end)
        before = self._length_from(catalogue.segments()[0])
        number = catalogue.last.number + 1
        mark = Mark(
            end=end,
            segment=number,
            length=0,
            group=self._group,
            generation=self._generation,
            resets=True,
            term=term,
        )
        place_mark(self._disk, self._directory, mark)
        self._file.close()
        carry_out(self._disk, self._directory, mark, self._log_id)
        path = f"{self._directory}/{segment_name(number)}"
        self._file = self._disk.open(path)
        length = self._file.size()
        self._spares.give(before - length)
        self._spares.keeps_replaced = True
        self._group += 1
        self._generation += 1
        self._position = self._allocated = self._held = self._durable = length
        self._end = self._durable_end = end
        self._term = term
        self.is_closed = True
        catalogue.reset(Segment(number=number, generation=self._generation, path=path, first_index=end, length=length))
        with suppress(StorageFullError):
            self.fill()


def _boundaries(batches: list[Batch], group: int, first: int) -> list[tuple[int, int]]:
    """Return (index, location) of each batch of a large group; of the first, the group's own location."""
    entries = [(int(batches[0].first_index), group)]
    location = first
    for before, batch in pairwise(batches):
        location += before.size
        entries.append((int(batch.first_index), location))
    return entries


def _find_end(disk: Disk, segment: Segment, end: int) -> tuple[int, int]:
    """Return the byte after the batch that ends at ``end``, and that batch's term.

    If the segment begins at ``end``: the byte after the segment header, and the term before the segment.
    """
    if end == segment.first_index:
        header = read_segment_header(disk, segment.path)
        assert header is not None, f"{segment.path} was intact when the log was opened"
        return SEGMENT_HEADER_SIZE, header.previous_term
    file = disk.open_read(segment.path)
    try:
        for at, batch in batches_from(Window(file), segment.locate(end - 1), segment.length):
            if batch.end >= end:
                assert batch.end == end, f"truncation to {end}, inside {batch!r}"
                return at + batch.size, batch.term
    finally:
        file.close()
    raise AssertionError(f"truncation to {end}, which {segment.path} does not hold")
