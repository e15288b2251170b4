"""What is left of a damaged log: reading on past the damage, where ``recovery.Survey`` stops at it. Reads only.

A part is one segment number between the first and the last that is there, its file present or not. Behind bytes that
are not readable the next intact group header says which index comes next, so what is missing is known exactly: a gap.
Regions are what has to be written again: a part that is not whole, and those behind it until one says where it begins.

| what is found | what is known |
| --- | --- |
| a bit in a batch, or in a group's header | the records from there to the next intact group are missing |
| a segment's header | nothing is missing, if its first group stands where it should |
| a file | its records are missing, up to where the next one begins |
| the last file, and the one before is sealed | records are missing, and how many is not known: ``end`` None |
| damage, and what reads as a torn tail | the same: on a disk that lies the tail may be rot too |
| an unreadable truncation mark | the same: what was decided is not known |
| no file at all | nothing: ``parts`` is empty |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from viewstamp.errors import FrameError
from viewstamp.host.interfaces import Disk, File
from viewstamp.wal.format import SEGMENT_HEADER_SIZE, GroupHeader, SegmentHeader, parse_segment_name, segment_name
from viewstamp.wal.scan import Pass, Rest, ScanState, groups_behind, rest_of
from viewstamp.wal.truncation import read_mark
from viewstamp.wire.batch import Batch, Kind

__all__ = ["Assessment", "LostRange", "Region", "SegmentAssessment", "assess", "salvage"]


@dataclass(frozen=True, slots=True)
class LostRange:
    """Records that cannot be read: indices ``start`` to ``end`` (half-open; None = how many is not known)."""

    start: int
    end: int | None


@dataclass(slots=True, kw_only=True)
class SegmentAssessment:
    """One segment number. ``header`` None = there is no file, or nothing in it says what it is.

    ``runs`` are the indices (half-open) that can be read, ``bytes_lost`` how many bytes cannot. ``last_term`` is that
    of the last record in it, or before it; ``last_group`` and ``generation`` the highest numbers up to its end.
    ``is_header_intact``: the header stands there, and was not told by the first group. ``is_whole``: nothing of it is
    missing or unreadable. ``is_blank``: only zeros. ``is_sealed``: another follows. ``has_tail``: something stands
    behind what is intact, be it zeros, or it ends in the middle of a group; ``is_torn``: more than zeros. ``floor`` is
    the generation and the group number with which it was read: what belongs to it has higher ones.
    """

    number: int
    path: str
    exists: bool = False
    header: SegmentHeader | None = None
    runs: list[tuple[int, int]] = field(default_factory=list)
    bytes_lost: int = 0
    last_term: int | None = None
    last_group: int = 0
    generation: int = 0
    is_header_intact: bool = False
    is_whole: bool = False
    is_blank: bool = False
    is_sealed: bool = False
    has_tail: bool = False
    is_torn: bool = False
    floor: tuple[int, int] = (0, 0)

    @property
    def first_index(self) -> int | None:
        """The index of its first record; None = not known."""
        return self.header.first_index if self.header is not None else None

    @property
    def end(self) -> int | None:
        """The index after the last record that can be read; None = not known."""
        return self.runs[-1][1] if self.runs else self.first_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Parts that have to be written again, to hold the indices ``start`` to ``end`` (half-open; None = not known).

    ``before`` is the last whole part before them, ``behind`` the first one behind them; None = there is none.
    ``is_followed``: something was written behind them, so they end with a seal. ``start`` is below the first index of
    the first part where the beginning of the log is missing, and no number is left for a part of its own.
    """

    parts: tuple[SegmentAssessment, ...]
    start: int
    end: int | None
    before: SegmentAssessment | None
    behind: SegmentAssessment | None
    is_followed: bool

    @property
    def gaps(self) -> list[LostRange]:
        """What of it cannot be read."""
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
        """Whether what is left tells the term of the record before it."""
        first = self.parts[0]
        is_told = first.is_header_intact and first.first_index == self.start
        return is_told or (self.before is not None and self.before.last_term is not None)

    @property
    def bytes_lost(self) -> int:
        """About how many bytes cannot be read."""
        return sum(part.bytes_lost for part in self.parts)


@dataclass(slots=True, kw_only=True)
class Assessment:
    """What is left of a log.

    ``begin`` is the first index that it should hold, ``end`` the index after the last record that it ever held (None =
    not known). ``commit_hint`` is the highest in an intact group. ``membership`` is the newest record of one, b"" =
    none was seen. ``contradiction`` says in what intact bytes do not belong together: then nothing must be repaired.
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
    def intact_end(self) -> int:
        """Up to where everything can be read."""
        return min((gap.start for gap in self.gaps), default=self.end if self.end is not None else self.begin)

    @property
    def is_damaged(self) -> bool:
        """Whether anything has to be done."""
        return bool(self.regions) or self.mark_is_lost or not self.parts


def assess(
    disk: Disk, directory: str, *, begin_max: int = 1, commit_hint: int = 0, log_id: bytes | None = None
) -> Assessment:
    """Read all of a log, damaged or not; blocking, changes nothing.

    An unfinished truncation has to be carried out before (``repair.finish_truncation``).

    Args:
      disk: where the files are.
      directory: the log's.
      begin_max: the log should begin at this index or below it: a snapshot reaches it, or it is 1.
      commit_hint: an end below which all is known to be committed; a log that ends before it lost its end.
      log_id: that of the log; None = that of the first segment that has one.

    Raises:
      ConfigError: a segment has a newer format, or is of another log.
      StorageError: a file cannot be read.
    """
    found = Assessment(directory=directory)
    try:
        read_mark(disk, directory)
    except FrameError:
        found.mark_is_lost = True
    present = sorted(n for n in map(parse_segment_name, disk.list_directory(directory)) if n is not None)
    chain = ScanState(log_id=log_id)
    for number in range(present[0], present[-1] + 1) if present else ():
        part = SegmentAssessment(number=number, path=f"{directory}/{segment_name(number)}", exists=number in present)
        found.parts.append(part)
        if part.exists:
            for batch in _read(disk, part, chain, found):
                if batch.kind is Kind.MEMBERSHIP:
                    found.membership = bytes(batch.values()[0])
        part.last_group, part.generation = chain.number, chain.generation
    found.commit_hint = chain.commit_hint
    _find_regions(found, begin_max, max(commit_hint, chain.commit_hint))
    return found


def salvage(disk: Disk, part: SegmentAssessment, start: int, end: int | None) -> Iterator[Batch]:
    """Yield the batches of a part that can be read, from index ``start`` on, up to ``end``; blocking.

    Each is in a buffer of its own.
    """
    generation, group = part.floor
    chain = ScanState(generation=generation, number=group)
    for batch in _read(disk, SegmentAssessment(number=part.number, path=part.path), chain, None):
        if end is not None and batch.first_index >= end:
            return
        if batch.first_index >= start:
            yield Batch.decode(bytearray(batch.buffer), verify=False)


def _read(disk: Disk, part: SegmentAssessment, chain: ScanState, found: Assessment | None) -> Iterator[Batch]:
    """Yield what can be read of a part, and fill it in."""
    file = disk.open_read(part.path)
    try:
        chain.end = chain.term = None
        part.floor = chain.generation, chain.number
        reading = Pass(file, chain)
        start = SEGMENT_HEADER_SIZE
        part.is_whole = reading.read_header(part.number)
        part.header = reading.header
        if found is not None and reading.stop is not None and reading.stop.contradicts:
            # No rot, and no torn header either: this file was written for another place, and what stood here is gone.
            found.contradiction = f"{part.path}: {reading.stop.expected}, found {reading.stop.found}"
        part.is_header_intact = part.header is not None
        if part.header is None:
            part.is_blank = rest_of(file, 0)[0] is not Rest.BYTES
            group = next(groups_behind(file, 0, chain, None), None)
            if group is None:
                part.bytes_lost = rest_of(file, 0)[1]
                return
            reading.header = _header_of(part.number, group)
            if group.location == SEGMENT_HEADER_SIZE:
                part.header = reading.header
            else:
                part.runs.append((group.first_index, group.first_index))
            start, chain.end, chain.generation = group.location, group.first_index, group.generation
        yield from _read_on(file, reading, part, start, found)
        part.last_term = chain.term
    finally:
        file.close()


def _read_on(
    file: File, reading: Pass, part: SegmentAssessment, start: int, found: Assessment | None
) -> Iterator[Batch]:
    """Read groups from byte ``start`` on, and on behind what cannot be read."""
    chain, header = reading.chain, reading.header
    assert header is not None, "it was read, or made up"
    while True:
        for item in reading.items(start):
            if not isinstance(item, GroupHeader):
                batch = item[1]
                if part.runs and part.runs[-1][1] == batch.first_index:
                    part.runs[-1] = (part.runs[-1][0], batch.end)
                else:
                    part.runs.append((batch.first_index, batch.end))
                yield batch
        stop, last = reading.stop, reading.last_group
        assert stop is not None and chain.end is not None, "a pass ends with a reason"  # noqa: PT018
        if stop.contradicts and found is not None:
            found.contradiction = f"{part.path} at byte {stop.location}: {stop.expected}, found {stop.found}"
        end = chain.end
        following = (each for each in groups_behind(file, stop.location, chain, header.generation))
        group = next((each for each in following if each.first_index >= end), None)
        if group is None:
            rest = rest_of(file, stop.location)[0]
            part.has_tail = not stop.complete or rest is not Rest.NOTHING
            part.is_torn = not stop.complete or rest is Rest.BYTES
            part.is_sealed = last is not None and last.seals and not part.has_tail
            part.bytes_lost += rest_of(file, stop.location)[1]
            return
        part.is_whole = False
        part.bytes_lost += group.location - stop.location
        if group.first_index > end or not part.runs:
            part.runs.append((group.first_index, group.first_index))
        start, chain.end, chain.term = group.location, group.first_index, None


def _header_of(number: int, group: GroupHeader) -> SegmentHeader:
    """Return what the header of a segment said, as far as its first group tells."""
    return SegmentHeader(
        number=number,
        generation=group.generation,
        first_index=group.first_index,
        previous_term=0,
        first_group=group.number,
    )


def _find_regions(found: Assessment, begin_max: int, commit_hint: int) -> None:
    """Decide which parts have to be written again, and where the log ends."""
    parts = list(found.parts)
    tail = parts.pop() if parts and parts[-1].header is None and not parts[-1].runs else None
    if not parts:
        # What the only file held, if anything, is not known.
        found.parts = []
        return
    found.begin = min(begin_max, parts[0].first_index or begin_max)
    last = parts[-1]
    is_ended = last.exists and (tail is not None or not last.is_sealed) and last.end is not None
    end = last.end if is_ended and not found.mark_is_lost else None
    if end is not None and end < commit_hint:
        end = None
    _check_order(found, parts)
    found.regions = _regions_of(found, parts, tail, end)
    is_torn = last.is_torn or (tail is not None and not tail.is_blank)
    if found.regions and end is not None and is_torn:
        # What reads as a torn tail, on a disk that is known to lie, may be rot too.
        end = None
        found.regions = _regions_of(found, parts, tail, end)
    found.end = end


def _regions_of(
    found: Assessment, parts: list[SegmentAssessment], tail: SegmentAssessment | None, end: int | None
) -> list[Region]:
    """Return what has to be written again, where the log ends at ``end`` (None = not known), and ``tail`` is behind."""
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
        assert before.end is not None, "where one part ends and the next begins are not both unknown"
        return before.end
    return min([begin, *(start for part in parts for start, _ in part.runs)])


def _check_order(found: Assessment, parts: list[SegmentAssessment]) -> None:
    """Note where intact records of one part lie beyond the beginning of the next."""
    at = 0
    for part in parts:
        for start, end in ([(part.first_index, part.first_index)] if part.first_index is not None else []) + part.runs:
            if start < at:
                found.contradiction = f"{part.path} begins at index {start}, what is before it reaches {at}"
            at = max(at, end)
