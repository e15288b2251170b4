"""The readable rest of a damaged log, from a tolerant scan of all its segments. Reads only.

A part is one segment number between the first and the last existing one, with or without a file. After unreadable bytes
the next intact batch or group header has the next index, so the missing records are known exactly: a lost range. A
region has to be written again: a part that is not whole, and the parts after it up to one whose beginning is known.
`verdict.py` decides whether anything is damaged, and whether the end of the log is known.

| damage | consequence |
| --- | --- |
| a bit in a batch | its records are missing |
| a bit in a group's header | nothing is missing if its batches follow on the ones before, else its records are |
| a segment's header | nothing is missing, if its first group is at its place |
| a file | its records are missing, up to the beginning of the next one |
| the last file, and the one before is sealed | records are missing, and their number is unknown: ``end`` None |
| damage, and an apparent torn tail | the same, because on such a disk the tail may be damage too |
| an unreadable truncation mark | the same, because the decided end is unknown |
| no file at all | nothing: ``parts`` is empty |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from viewstamp.host.interfaces import Disk
from viewstamp.value_class import value_class
from viewstamp.wal.format import SEGMENT_HEADER_SIZE, GroupHeader, SegmentHeader, segment_name
from viewstamp.wal.scan import Rest, ScanState, SegmentScan, SegmentScanner, UnreadableBatch
from viewstamp.wal.verdict import Known, LogScan, judge, reached_end
from viewstamp.wire.batch import Batch, Kind

__all__ = ["Assessment", "LostRange", "Region", "SegmentAssessment", "assess", "salvage"]


@value_class(kw_only=False)
class LostRange:
    """Records that cannot be read: indices ``start`` to ``end`` (half-open; None = how many is not known)."""

    start: int
    end: int | None


@dataclass(slots=True, kw_only=True)
class SegmentAssessment:
    """The findings about the segment of one number.

    Attributes:
      scan: the scan of the file; None = there is no file.
      header: the header of the file, or, if that is damaged, one made from the first group; None = both are damaged.
      runs: the readable indices (half-open).
      last_term: the term of the last record, or of the record before the segment if it has none.
      last_group, generation: the highest group number and generation up to the end of the segment.
      last_location: the location of the last group or batch.
      floor: the highest generation and group number before this segment; its own groups have higher ones.
    """

    number: int
    path: str
    scan: SegmentScan | None = None
    header: SegmentHeader | None = None
    runs: list[tuple[int, int]] = field(default_factory=list)
    last_term: int | None = None
    last_group: int = 0
    generation: int = 0
    last_location: int = 0
    floor: tuple[int, int] = (0, 0)

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.scan is not None

    @property
    def first_index(self) -> int | None:
        """The index of its first record; None = not known."""
        return self.header.first_index if self.header is not None else None

    @property
    def end(self) -> int | None:
        """The index after the last record that can be read; None = not known."""
        return self.runs[-1][1] if self.runs else self.first_index

    @property
    def is_header_intact(self) -> bool:
        """Whether the file has an intact segment header, so that ``header`` was not derived from the first group."""
        return self.scan is not None and self.scan.header is not None

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing but zeros in the file."""
        return self.scan is not None and self.scan.is_blank

    @property
    def is_whole(self) -> bool:
        """Whether everything up to the last readable group or batch can be read."""
        holes = self.scan.holes if self.scan is not None else []
        return self.is_header_intact and not any(hole.location <= self.last_location for hole in holes)

    @property
    def has_tail(self) -> bool:
        """Whether bytes follow the readable ones, even zeros, or it ends in the middle of a group."""
        scan = self.scan
        has_hole = scan is not None and bool(scan.holes) and scan.holes[-1].location > self.last_location
        return scan is not None and (scan.tail is not Rest.NOTHING or has_hole)

    @property
    def is_sealed(self) -> bool:
        """Whether its seal proves that another segment follows."""
        return self.scan is not None and self.scan.is_sealed and not self.has_tail

    @property
    def bytes_lost(self) -> int:
        """The number of bytes that cannot be read, estimated."""
        scan = self.scan
        if scan is None or scan.stop is None:
            return 0
        written = scan.stop.location + scan.used
        return sum(max(0, min(hole.end_location, written) - hole.location) for hole in scan.holes)


@value_class
class Region:
    """Parts that have to be written again, to hold the indices ``start`` to ``end`` (half-open; None = not known).

    ``before`` is the last whole part before them, ``behind`` the first one after them; None = there is none.
    ``is_followed``: something was written after them, so they end with a seal. ``start`` is usually the first index of
    the first part. It is lower if the beginning of the log is missing and no segment number is left for it: then the
    first part takes the missing records too.
    """

    parts: tuple[SegmentAssessment, ...]
    start: int
    end: int | None
    before: SegmentAssessment | None
    behind: SegmentAssessment | None
    is_followed: bool

    @property
    def gaps(self) -> list[LostRange]:
        """The indices of the region that cannot be read."""
        gaps = []
        at = self.start
        for start, end in (run for part in self.parts for run in part.runs):
            if start > at:
                gaps.append(LostRange(at, start))
            at = end
        if self.end is None or at < self.end:
            gaps.append(LostRange(at, self.end))
        return gaps

    @property
    def knows_previous_term(self) -> bool:
        """Whether an intact header or the part before has the term of the record before the region."""
        first = self.parts[0]
        is_in_header = first.is_header_intact and first.first_index == self.start
        return is_in_header or (self.before is not None and self.before.last_term is not None)

    @property
    def bytes_lost(self) -> int:
        """The number of bytes that cannot be read, estimated."""
        return sum(part.bytes_lost for part in self.parts)


@dataclass(slots=True, kw_only=True)
class Assessment:
    """The readable rest of a log.

    ``begin`` is the first index that it should hold, ``end`` the index after the last record that it ever held (None =
    unknown). ``commit_hint`` is the highest in an intact group. ``membership`` is the newest membership record, b"" =
    none was found. ``contradiction`` describes intact bytes that do not belong together; then nothing must be repaired.
    """

    directory: str
    begin: int = 1
    end: int | None = None
    commit_hint: int = 0
    membership: bytes = b""
    mark_is_lost: bool = False
    contradiction: str = ""
    parts: list[SegmentAssessment] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)

    @property
    def gaps(self) -> list[LostRange]:
        """Everything that cannot be read."""
        return [gap for region in self.regions for gap in region.gaps]

    @property
    def is_damaged(self) -> bool:
        """Whether the log needs a repair."""
        return bool(self.regions) or self.mark_is_lost or not self.parts


def assess(
    disk: Disk, directory: str, *, begin_max: int = 1, commit_hint: int = 0, log_id: bytes | None = None
) -> Assessment:
    """Read all of a log, damaged or not; blocking, changes nothing.

    An unfinished truncation has to be carried out before (``repair.finish_truncation``).

    Args:
      disk: the disk with the files.
      directory: the log's directory.
      begin_max: the log should begin at this index or below it: a snapshot reaches it, or it is 1.
      commit_hint: an end below which all is known to be committed; a log that ends before it lost its end.
      log_id: that of the log; None = that of the first segment that has one.

    Raises:
      ConfigError: a segment has a newer format, or is of another log.
      StorageError: a file cannot be read.
    """
    found = Assessment(directory=directory)
    scan = LogScan.of(disk, directory)
    found.mark_is_lost = bool(scan.mark_problem)
    state = ScanState(log_id=log_id)
    for number in range(scan.present[0], scan.present[-1] + 1) if scan.present else ():
        part = SegmentAssessment(number=number, path=f"{directory}/{segment_name(number)}")
        found.parts.append(part)
        if number in scan.present:
            for batch in _read(disk, part, state):
                if batch.kind is Kind.MEMBERSHIP:
                    found.membership = bytes(batch.values()[0])
            assert part.scan is not None, "it was read"
            scan.segments.append(part.scan)
            if part.scan.contradiction and not found.contradiction:
                found.contradiction = f"{part.path}: {part.scan.contradiction}"
        part.last_group, part.generation = state.number, state.generation
    if scan.segments and scan.segments[-1].is_blank and scan.mark is None:
        scan.unused = scan.segments.pop().number
    found.commit_hint = state.commit_hint
    known = Known(end=commit_hint, must_exist=True, first_index_max=begin_max)
    judged = judge(scan, known)
    found.end = reached_end(scan, judged, known)
    found.begin = min(begin_max, judged.first_index)
    if judged.corruption is not None and not found.contradiction:
        _find_regions(found, begin_max)
    return found


def salvage(disk: Disk, part: SegmentAssessment, start: int, end: int | None) -> Iterator[Batch]:
    """Yield the batches of a part that can be read, from index ``start`` on, up to ``end``; blocking.

    Each is in a buffer of its own.
    """
    generation, group = part.floor
    state = ScanState(generation=generation, number=group)
    for batch in _read(disk, SegmentAssessment(number=part.number, path=part.path), state):
        if end is not None and batch.first_index >= end:
            return
        if batch.first_index >= start:
            yield Batch.decode(bytearray(batch.buffer), verify=False)


def _read(disk: Disk, part: SegmentAssessment, state: ScanState) -> Iterator[Batch]:
    """Yield the readable items of a part, and fill in its fields."""
    file = disk.open_read(part.path)
    try:
        state.end = state.term = None
        part.floor = state.generation, state.number
        scanner = SegmentScanner(file, part.number, state, is_tolerant=True)
        scan = part.scan = scanner.scan
        scanner.read_header()
        part.header = scan.header
        last = 0
        for item in scanner.items():
            if isinstance(item, UnreadableBatch):
                continue
            if isinstance(item, GroupHeader):
                last = item.location
                if part.header is None and not part.runs and last == SEGMENT_HEADER_SIZE:
                    part.header = _header_of(part.number, item)
                elif part.end is None or item.first_index > part.end:
                    part.runs.append((item.first_index, item.first_index))
                continue
            last, batch = item
            if part.runs and part.runs[-1][1] == batch.first_index:
                part.runs[-1] = (part.runs[-1][0], batch.end)
            else:
                part.runs.append((batch.first_index, batch.end))
            yield batch
        part.last_location = last
        part.last_term = state.term
    finally:
        file.close()


def _header_of(number: int, group: GroupHeader) -> SegmentHeader:
    """Return the header of a segment as far as its first group implies it."""
    return SegmentHeader(
        number=number,
        generation=group.generation,
        first_index=group.first_index,
        previous_term=0,
        first_group=group.number,
    )


def _find_regions(found: Assessment, begin_max: int) -> None:
    """Decide which parts have to be written again."""
    parts = list(found.parts)
    tail = parts.pop() if parts and parts[-1].header is None and not parts[-1].runs else None
    if not parts:
        # The content of the only file, if any, is unknown.
        found.parts = []
        return
    found.begin = min(begin_max, parts[0].first_index or begin_max)
    _check_order(found, parts)
    found.regions = _regions_of(found, parts, tail, found.end)


def _regions_of(
    found: Assessment, parts: list[SegmentAssessment], tail: SegmentAssessment | None, end: int | None
) -> list[Region]:
    """Return the regions to write again, if the log ends at ``end`` (None = unknown) and ``tail`` is behind it."""
    regions = []
    first = parts[0]
    lacks_beginning = first.first_index is not None and first.first_index > found.begin
    if lacks_beginning and first.number > 1:
        gap = SegmentAssessment(number=first.number - 1, path=f"{found.directory}/{segment_name(first.number - 1)}")
        regions.append(
            Region(parts=(gap,), start=found.begin, end=first.first_index, before=None, behind=first, is_followed=True)
        )
    open_: list[SegmentAssessment] = []
    for at, part in enumerate(parts):
        after = parts[at + 1] if at + 1 < len(parts) else None
        limit = after.first_index if after is not None else end
        is_followed = after is not None or (tail is not None and not tail.is_blank)
        takes_beginning = at == 0 and lacks_beginning and part.number == 1
        if part.is_whole and not open_ and not (is_followed and part.has_tail) and not takes_beginning:
            if limit is not None and part.end == limit:
                continue
            if limit is None and after is not None and part.is_sealed:
                continue
        open_.append(part)
        if limit is None and after is not None:
            continue
        before = parts[at - len(open_)] if at >= len(open_) else None
        start = _start_of(open_, before, min(found.begin, limit or found.begin))
        regions.append(
            Region(
                parts=tuple(open_),
                start=min(start, found.begin) if before is None and open_[0].number == 1 else start,
                end=limit,
                before=before,
                behind=after,
                is_followed=is_followed,
            )
        )
        open_ = []
    return regions


def _start_of(parts: list[SegmentAssessment], before: SegmentAssessment | None, begin: int) -> int:
    """Return the index with which the first of ``parts`` began."""
    if parts[0].first_index is not None:
        return parts[0].first_index
    if before is not None:
        assert before.end is not None, "the end of one part and the beginning of the next are not both unknown"
        return before.end
    return min([begin, *(start for part in parts for start, _ in part.runs)])


def _check_order(found: Assessment, parts: list[SegmentAssessment]) -> None:
    """Note where intact records of one part lie beyond the beginning of the next."""
    at = 0
    for part in parts:
        for start, end in ([(part.first_index, part.first_index)] if part.first_index is not None else []) + part.runs:
            if start < at:
                found.contradiction = f"{part.path} begins at index {start}, but the part before it reaches {at}"
            at = max(at, end)
