"""Repairs a damaged log: files are set aside, never deleted, and written again from their rest and from peers' copies.

Every step can be repeated, and a death between two disk calls leaves the damaged log or the repaired one:

* a segment is written again under a temporary name, synced, and renamed over the old one, of which a copy was set
  aside before. If several numbers have to be written, the later ones are emptied first, so that their records are
  missing between two known places until the first one holds all of them;
* if the log ends earlier, the files behind the end are removed first, the last segment first, each removal synced.

The new segment keeps the number of the old one, and has a generation and group numbers between those of its
neighbours. There are enough, because the old segment had some, and the new one uses no more than a log of the same
records must have had. The files that are set aside go to ``<data_dir>/damaged-<n>/``, one directory for each run.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from viewstamp.errors import FrameError
from viewstamp.host.garbage import create_anew
from viewstamp.host.interfaces import Disk
from viewstamp.wal.assessment import Region, SegmentAssessment, salvage
from viewstamp.wal.control_file import CONTROL_NAMES
from viewstamp.wal.format import (
    GROUP_BATCHES_MAX,
    NO_LOG_ID,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    SegmentHeader,
    batch_checksum,
    parse_segment_name,
    segment_name,
)
from viewstamp.wal.scan import CHUNK_BYTES, ScanState, SegmentScanner
from viewstamp.wal.truncation import MARK_NAME, Mark, carry_out, place_mark, read_mark
from viewstamp.wire.batch import Batch

__all__ = ["Quarantine", "SegmentRewriter", "begin_anew", "cut_behind", "finish_truncation", "set_everything_aside"]


class Quarantine:
    """The directory for damaged files: ``<data_dir>/damaged-<n>``, created when first needed. Everything blocks."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self.directory = ""
        """The directory; "" = nothing was set aside."""

    def move(self, path: str) -> None:
        """Move a file into this directory; durable on return."""
        target = self._target(path)
        self._disk.rename(path, target)
        self._disk.sync_directory(posixpath.dirname(target))
        self._disk.sync_directory(posixpath.dirname(path))

    def copy(self, path: str) -> None:
        """Copy a file into this directory; durable on return."""
        target = self._target(path)
        source = self._disk.open_read(path)
        try:
            file = self._disk.open(target, create=True)
            try:
                size = source.size()
                for at in range(0, size, CHUNK_BYTES):
                    file.write(at, [source.read(at, min(CHUNK_BYTES, size - at))])
                file.sync()
            finally:
                file.close()
        finally:
            source.close()
        self._disk.sync_directory(posixpath.dirname(target))

    def _target(self, path: str) -> str:
        """Return a free name in this directory, in a subdirectory with the name of the file's own directory."""
        if not self.directory:
            number = 1
            while self._disk.exists(f"{self._data_dir}/damaged-{number}"):
                number += 1
            self.directory = f"{self._data_dir}/damaged-{number}"
        place = posixpath.relpath(posixpath.dirname(path), self._data_dir)
        directory = posixpath.normpath(f"{self.directory}/{place}")
        self._disk.make_directory(directory)
        target = f"{directory}/{posixpath.basename(path)}"
        number = 1
        while self._disk.exists(target):
            number += 1
            target = f"{directory}/{posixpath.basename(path)}.{number}"
        return target


def finish_truncation(disk: Disk, directory: str, log_id: bytes = NO_LOG_ID) -> None:
    """Carry out a truncation or a reset that was decided, so that the log can be assessed; blocking.

    Does nothing if there is no mark, or it cannot be read. If the file to be cut is missing, the files behind it are
    removed all the same, because they were cut off. An empty group is written at the end of the log, because damage
    before that place would otherwise read as a torn tail once the mark is gone.

    Raises:
      StorageError: final.
    """
    try:
        mark = read_mark(disk, directory)
    except FrameError:
        return
    if mark is None:
        return
    with suppress(FileNotFoundError):
        carry_out(disk, directory, mark, log_id, _closing_group(disk, directory, mark))
        return
    disk.remove(f"{directory}/{MARK_NAME}")
    disk.sync_directory(directory)


def _closing_group(disk: Disk, directory: str, mark: Mark) -> GroupHeader | None:
    """Return the empty group that marks the end of a truncated log, with everything before it durable.

    None after a reset, and if the file to be cut is missing.
    """
    path = f"{directory}/{segment_name(mark.segment)}"
    if mark.resets or not disk.exists(path):
        return None
    file = disk.open_read(path)
    try:
        scanner = SegmentScanner(file, mark.segment, ScanState(), limit=mark.length, is_tolerant=True)
        scanner.read_header()
        groups = (item.generation for item in scanner.items() if isinstance(item, GroupHeader))
        header = scanner.scan.header
        generation = header.generation if header is not None else next(groups, mark.generation)
    finally:
        file.close()
    return GroupHeader(
        generation=generation,
        number=mark.group + 1,
        location=mark.length,
        durable=mark.length,
        commit_hint=0,
        first_index=mark.end,
        body_size=0,
        seals=False,
        checksums=(),
    )


class SegmentRewriter:
    """Writes one region again: :meth:`add` batches that are ``wanted`` until it is None, then :meth:`finish`; blocking.

    For a region with an end: either ``end`` is the new end of the log, or the region's own end is known. The log does
    not change until :meth:`finish`; after :meth:`abandon`, or if it is not finished, the damaged log is unchanged.

    Invariants:
      * the new file holds the indices from the region's start to ``at``
    """

    def __init__(
        self,
        disk: Disk,
        region: Region,
        *,
        commit_end: int,
        previous_term: int = 0,
        end: int | None = None,
        log_id: bytes = NO_LOG_ID,
    ) -> None:
        """Begin to write.

        Args:
          disk: the disk with the files.
          region: the region to write again.
          commit_end: an end below which all is known to be committed, for the group headers.
          previous_term: the term of the record before the region, if no part has it.
          end: the new end of the log: inside the region, or at its end.
          log_id: of the log.
        """
        self._disk = disk
        self._region = region
        self._is_open = end is not None or not region.is_followed
        limit = end if end is not None else region.end
        assert limit is not None, "a region without an end cannot be written again"
        self.end = limit
        self.at = region.start
        """Up to where the new file reaches."""
        self._commit_end = commit_end
        self._path = region.parts[0].path
        self._header = replace(_header_for(region, previous_term), log_id=log_id)
        self._term: int | None = None
        self._number = self._header.first_group
        self._waiting: list[Batch] = []
        temporary = f"{self._path}.temporary"
        self._file = create_anew(disk, temporary)
        self._position = SEGMENT_HEADER_SIZE
        self._take_own()

    @property
    def wanted(self) -> tuple[int, int] | None:
        """The indices (half-open) that have to be added next; None = all are there."""
        if self.at >= self.end:
            return None
        starts = [start for part in self._region.parts for start, _ in part.runs if self.at < start < self.end]
        return self.at, min(starts, default=self.end)

    @property
    def fits(self) -> bool:
        """Whether the rewritten segments can be numbered below the segment that follows them.

        Generations and group numbers rise through the log. Records that this log has held before always fit, because
        their old numbers are free. Others may not: for example, a log that was reset begins above the records before
        it, and leaves few numbers for them or none.
        """
        header = self._region.behind.header if self._region.behind is not None else None
        if header is None:
            return True
        rest = len(self._region.parts) - 1
        numbers = self._number + (1 if self._waiting else 0) + rest
        first = self._header
        return first.generation + rest < header.generation and numbers < header.first_group

    def add(self, batches: Sequence[Batch]) -> None:
        """Add verified batches that continue the file; the readable batches after them are added automatically.

        Raises:
          StorageError: final.
        """
        for batch in batches:
            self._add(batch)
        self._take_own()

    def finish(self, aside: Quarantine) -> None:
        """Put the new file in the place of the old ones, of which copies are set aside; durable on return.

        Raises:
          StorageError: final.
        """
        assert self.wanted is None, f"{self.wanted} are missing"
        assert self.fits, "the numbers of the new segments would not be below those of the next segment"
        self._write_group()
        first, *rest = self._region.parts
        closing = self._group([], seals=not self._is_open or bool(rest))
        self._file.write(self._position, [closing.encode()])
        self._file.write(0, [self._header.encode()])
        self._file.sync()
        self._file.close()
        for part in reversed(rest):
            if part.exists:
                aside.copy(part.path)
            self._empty(part)
        if first.exists:
            aside.copy(first.path)
        self._put_in_place(first.path)

    def abandon(self) -> None:
        """Leave everything as it is. Idempotent."""
        self._file.close()

    def _take_own(self) -> None:
        """Add the readable batches of the old files, as long as they continue the new one."""
        for part in self._region.parts:
            if any(start <= self.at < end for start, end in part.runs):
                for batch in salvage(self._disk, part, self.at, self.end):
                    if batch.first_index != self.at:
                        return
                    self._add(batch)

    def _add(self, batch: Batch) -> None:
        assert batch.first_index == self.at, f"{batch!r} where {self.at} comes next"
        assert batch.end <= self.end, f"{batch!r} goes beyond {self.end}"
        if self._term is None and not self._region.knows_previous_term:
            self._header = replace(self._header, previous_term=batch.previous_term)
        self._term = batch.term
        self._waiting.append(batch)
        self.at = batch.end
        if len(self._waiting) == GROUP_BATCHES_MAX:
            self._write_group()

    def _write_group(self) -> None:
        if self._waiting:
            batches, self._waiting = self._waiting, []
            group = self._group(batches, seals=False)
            self._file.write(self._position, [group.encode(), *(batch.buffer for batch in batches)])
            self._position += group.size + group.body_size
            self._number += 1

    def _group(self, batches: Sequence[Batch], *, seals: bool) -> GroupHeader:
        first_index = batches[0].first_index if batches else self.at
        return GroupHeader(
            generation=self._header.generation,
            number=self._number,
            location=self._position,
            durable=self._position if self._position > SEGMENT_HEADER_SIZE else 0,
            commit_hint=min(self._commit_end, first_index),
            first_index=first_index,
            body_size=sum(batch.size for batch in batches),
            seals=seals,
            checksums=[batch_checksum(batch) for batch in batches],
        )

    def _empty(self, part: SegmentAssessment) -> None:
        """Replace a segment by an empty one that begins at the end of the region."""
        behind, last = self._region.behind, self._region.parts[-1]
        back = last.number - part.number
        if behind is not None and behind.header is not None:
            generation, number = behind.header.generation - 1 - back, behind.header.first_group - 1 - back
        else:
            above = len(self._region.parts)
            generation, number = last.generation + above - back, last.last_group + above - back
        header = SegmentHeader(
            number=part.number,
            generation=generation,
            first_index=self.end,
            previous_term=self._term if self._term is not None else self._header.previous_term,
            first_group=number,
            log_id=self._header.log_id,
        )
        group = GroupHeader.empty_first(header, seals=not self._is_open or back > 0)
        path = f"{part.path}.temporary"
        file = create_anew(self._disk, path)
        try:
            file.write(0, [header.encode(), group.encode()])
            file.sync()
        finally:
            file.close()
        self._put_in_place(part.path)

    def _put_in_place(self, path: str) -> None:
        self._disk.rename(f"{path}.temporary", path)
        self._disk.sync_directory(posixpath.dirname(path))


def cut_behind(disk: Disk, parts: Sequence[SegmentAssessment], region: Region, end: int, aside: Quarantine) -> Region:
    """Set aside every part of a log without a record below ``end``, the last one first; blocking, each move durable.

    Returns:
      The rest of ``region``, with which the log now ends: rewrite it with this ``end`` next.

    Raises:
      StorageError: final.
    """
    first = region.parts[0]
    kept = [part for part in region.parts if part is first or (part.runs and part.runs[0][0] < end)]
    last = kept[-1]
    kept = [part for part in region.parts if part.number <= last.number]
    for part in reversed(parts):
        if part.number > last.number and part.exists:
            aside.move(part.path)
    return replace(region, parts=tuple(kept), behind=None, end=end, is_followed=False)


def begin_anew(disk: Disk, directory: str, aside: Quarantine, log_id: bytes = NO_LOG_ID) -> None:
    """Set the whole log aside, and make an empty one with this id that begins at index 1; blocking, durable.

    Raises:
      StorageError: final.
    """
    disk.make_directory(directory)
    names = [name for name in disk.list_directory(directory) if parse_segment_name(name) is not None]
    for name in [*reversed(names), *([MARK_NAME] if disk.exists(f"{directory}/{MARK_NAME}") else [])]:
        aside.move(f"{directory}/{name}")
    mark = Mark(end=1, segment=1, length=0, group=0, generation=0, resets=True, term=0)
    place_mark(disk, directory, mark)
    carry_out(disk, directory, mark, log_id)


def set_everything_aside(disk: Disk, data_dir: str) -> str:
    """Set log, snapshots and then the control file aside; return their directory. Blocking, durable.

    Afterwards the data directory is like that of a new node. If the process dies before the end, the next start finds
    an unreadable control file, or data without a control file, and does the same again.

    Raises:
      StorageError: final.
    """
    aside = Quarantine(disk, data_dir)
    for directory in (f"{data_dir}/wal", f"{data_dir}/snapshots"):
        for name in reversed(disk.list_directory(directory)):
            aside.move(f"{directory}/{name}")
    for name in CONTROL_NAMES:
        if disk.exists(f"{data_dir}/{name}"):
            aside.move(f"{data_dir}/{name}")
    return aside.directory


def _header_for(region: Region, previous_term: int) -> SegmentHeader:
    """Return the header with which the first part of a region is written again."""
    first, before = region.parts[0], region.before
    if first.header is not None and first.is_header_intact and first.first_index == region.start:
        return first.header
    if before is not None and before.last_term is not None:
        previous_term = before.last_term
    if first.header is not None:
        return replace(first.header, first_index=region.start, previous_term=previous_term)
    return SegmentHeader(
        number=first.number,
        generation=before.generation + 1 if before is not None else 1,
        first_index=region.start,
        previous_term=previous_term,
        first_group=before.last_group + 1 if before is not None else 1,
    )
