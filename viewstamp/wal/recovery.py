"""Opening a log: the survey of its files, which only reads, and the steps that follow from the verdict on them.

A torn tail is cut, a truncation finished; corruption is refused. Each step on the disk can be repeated: after a death
in between, the next survey gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from viewstamp.errors import CorruptionError, StorageFullError
from viewstamp.host.interfaces import Disk
from viewstamp.ids import Index, Term
from viewstamp.value_class import value_class
from viewstamp.wal.budget import Spares, WalOptions
from viewstamp.wal.catalogue import Catalogue, Segment
from viewstamp.wal.format import (
    NO_LOG_ID,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    SegmentHeader,
    segment_name,
)
from viewstamp.wal.scan import Rest, ScanState, SegmentScanner, read_segment_header, rest_of
from viewstamp.wal.truncation import Mark, carry_out
from viewstamp.wal.verdict import Known, LogJudgement, LogScan, LogVerdict, judge, judge_files
from viewstamp.wal.writer import Writer
from viewstamp.wire.batch import Batch

__all__ = ["Found", "Recovery", "Survey", "check_without_log_id", "settle_names", "take_over"]

Found = Segment | GroupHeader | tuple[int, Batch]
"""The items of a survey, in this order: a segment, its groups, after each group its batches with their locations."""


@value_class
class Recovery:
    """The result of opening a log. ``end`` is exclusive; ``torn_bytes`` were cut off.

    ``commit_hint`` is the highest in any group header that was read: an end below which all was known to be committed.
    ``batches``, ``records`` and ``term_starts`` count from the index at which the scan of the log began; the last one
    has the runs of terms in the batch headers, as (term, index of its first record there). ``previous_term`` is the
    term of the record before that index, according to the headers; 0 = not held: the log ends before it, begins after
    it, or has a batch across it.
    """

    verdict: LogVerdict
    segments: int
    batches: int
    records: int
    first_index: Index
    end: Index
    commit_hint: int
    torn_bytes: int
    previous_term: Term
    term_starts: tuple[tuple[int, int], ...]


@dataclass(slots=True, kw_only=True)
class Survey:
    """One strict pass over a log directory, and its results. Changes nothing on the disk.

    Iterate :meth:`walk` to its end (or call :meth:`run`), then read the other attributes.

    ``known`` is given. An empty log begins at its ``first_index_max``, after a record of ``previous_term``. Below
    ``scan_from`` only segments are yielded, and of segments wholly below it only the headers are read. ``log_id`` is
    that of the log; ``NO_LOG_ID`` = its control file has none, so no segment may have one; None = that of the first
    segment that has one.

    ``segments`` are the written ones, each with its intact length. ``last_group`` is the last group header in the last
    of them, None = there is none.
    """

    disk: Disk
    directory: str
    known: Known = field(default_factory=Known)
    previous_term: int = 0
    scan_from: int = 1
    log_id: bytes | None = None
    scan: LogScan = field(default_factory=LogScan)
    state: ScanState = field(default_factory=ScanState)
    judged: LogJudgement | None = None
    segments: list[Segment] = field(default_factory=list)
    last_group: GroupHeader | None = None
    batches: int = 0
    records: int = 0
    term_starts: list[tuple[int, int]] = field(default_factory=list)
    _term_before: int = 0

    @property
    def judgement(self) -> LogJudgement:
        """The meaning of the files, after the walk."""
        assert self.judged is not None, "walk comes first"
        return self.judged

    def recovery(self) -> Recovery:
        """Return the result as a value."""
        judged = self.judgement
        is_empty = not self.segments and self.scan_from == judged.end
        return Recovery(
            verdict=judged.verdict,
            segments=len(self.segments),
            batches=self.batches,
            records=self.records,
            first_index=Index(judged.first_index),
            end=Index(judged.end),
            commit_hint=self.state.commit_hint,
            torn_bytes=judged.torn_bytes,
            previous_term=Term(self.previous_term if is_empty else self._term_before),
            term_starts=tuple(self.term_starts),
        )

    def error(self) -> CorruptionError:
        """Return the error that describes the damage."""
        damage = self.judgement.corruption
        assert damage is not None, "there is damage"
        path = f"{self.directory}/{damage.segment}"
        return CorruptionError(
            f"{path} is damaged at byte {damage.location}: expected {damage.expected}, found {damage.found}",
            path=path,
            location=damage.location,
            expected=damage.expected,
            found=damage.found,
            remedy="nothing was changed; see `viewstamp wal inspect`. Keep the directory; the others go on "
            "without this one. Never start an older copy of it, because it lacks this node's latest votes and records",
        )

    def run(self) -> Survey:
        """Walk to the end, and drop the items on the way."""
        for _ in self.walk():
            pass
        return self

    def walk(self) -> Iterator[Found]:
        """Read the log once, forward; yield the intact items, up to the end or the first damage.

        A batch's buffer is a view of a piece that was read: valid as long as it is held, but it keeps the whole piece
        (1 MiB) in memory, so copy the bytes that you keep.

        Raises:
          ConfigError: a segment has a newer format, or is of another log.
          StorageError: a file cannot be read.
        """
        self.scan = scan = LogScan.of(self.disk, self.directory)
        self.state.log_id = self.log_id
        mark = scan.mark
        judged = judge_files(scan, self.known)
        if judged is None:
            yield from self._walk_segments()
        elif mark is not None and judged.corruption is None:
            self._begin_at(mark)
        if mark is not None and not mark.resets:
            self.state.number = max(self.state.number, mark.group)
            self.state.generation = max(self.state.generation, mark.generation)
        self.judged = judge(scan, self.known)
        if self.judged.corruption is not None:
            self._check_log_ids()

    def _walk_segments(self) -> Iterator[Found]:
        scan = self.scan
        if scan.numbers and scan.mark is None and self._is_unused(scan.numbers[-1]):
            scan.unused = scan.numbers[-1]
        written = scan.written
        for number in written:
            if self.known.only is None or number == self.known.only:
                yield from self._walk_segment(number, is_followed=number != written[-1])
                if not scan.segments[-1].is_whole:
                    return

    def _begin_at(self, mark: Mark) -> None:
        """Use the log as a reset has left it, or is about to leave it."""
        header, self.last_group = mark.first_segment()
        self.state.enter(header)
        self.state.number = self.last_group.number
        path = f"{self.directory}/{segment_name(mark.segment)}"
        length = SEGMENT_HEADER_SIZE + self.last_group.size
        self.segments = [
            Segment(
                number=mark.segment,
                generation=header.generation,
                path=path,
                first_index=mark.end,
                length=length,
            )
        ]
        self._term_before = mark.term if self.scan_from == mark.end else 0

    def _is_unused(self, number: int) -> bool:
        """Return whether a segment has only zeros: prepared, and never written to."""
        file = self.disk.open_read(f"{self.directory}/{segment_name(number)}")
        try:
            return not file.read(0, 4).strip(b"\0") and rest_of(file, 0, file.size())[0] is not Rest.BYTES
        finally:
            file.close()

    def _walk_segment(self, number: int, *, is_followed: bool) -> Iterator[Found]:
        file = self.disk.open_read(f"{self.directory}/{segment_name(number)}")
        try:
            scanner = SegmentScanner(file, number, self.state, limit=self.scan.limit(number))
            scan = scanner.scan
            self.scan.segments.append(scan)
            if not scanner.read_header():
                return
            header = scan.header
            assert header is not None, "read_header said so"
            if not self.segments and not self.known.allows(header.first_index):
                scan.stop = scanner.stop_at(SEGMENT_HEADER_SIZE)
                return
            segment = Segment(
                number=number,
                generation=header.generation,
                path=file.path,
                first_index=header.first_index,
                log_id=header.log_id,
            )
            self.segments.append(segment)
            if header.first_index == self.scan_from:
                self._term_before = header.previous_term
            yield segment
            if is_followed and self._pass_over(header):
                segment.length = scan.size
                segment.sealed = True
                scan.stop = scanner.stop_at(scan.size)
                return
            yield from self._take(scanner, segment)
        finally:
            file.close()

    def _pass_over(self, header: SegmentHeader) -> bool:
        """Count a segment that ends at or below ``scan_from`` as read; False = it must be read.

        It ends where the next segment begins, and the next header has the term and the group number too. If the two
        headers do not fit together, the segment is read to find out why.
        """
        if self.scan_from <= header.first_index or self.known.only is not None:
            return False
        following = read_segment_header(self.disk, f"{self.directory}/{segment_name(header.number + 1)}")
        if following is None:
            return False
        rises = header.first_index < following.first_index and header.first_group < following.first_group
        if not rises or following.first_index > self.scan_from or following.previous_term < header.previous_term:
            return False
        self.state.end = following.first_index
        self.state.term = following.previous_term
        self.state.number = following.first_group - 1
        return True

    def _take(self, scanner: SegmentScanner, segment: Segment) -> Iterator[Found]:
        """Run the pass: yield its items, fill the sparse index, count."""
        last_term = self.term_starts[-1][0] if self.term_starts else -1
        boundary = 0
        for item in scanner.items():
            if isinstance(item, GroupHeader):
                boundary = item.location
                yield item
                continue
            location, batch = item
            if (boundary or location) >= segment.next_noted:
                segment.note(batch.first_index, boundary or location)
            boundary = 0
            if batch.first_index < self.scan_from:
                self._term_before = batch.term if batch.end == self.scan_from else 0
                continue
            self.batches += 1
            self.records += batch.count
            if batch.term != last_term:
                last_term = batch.term
                self.term_starts.append((last_term, batch.first_index))
            yield location, batch
        scan = scanner.scan
        assert scan.stop is not None, "a pass ends with a reason"
        self.last_group = scan.last_group
        segment.length = scan.stop.location
        segment.sealed = scan.is_sealed

    def _check_log_ids(self) -> None:
        """Refuse a segment of another log, even after damage, because it is there by mistake and needs no repair."""
        mark = self.scan.mark
        for number in self.scan.numbers if mark is None or not mark.resets else ():
            path = f"{self.directory}/{segment_name(number)}"
            if self.known.only is None and (header := read_segment_header(self.disk, path)) is not None:
                self.state.check_log_id(header, path)


def check_without_log_id(disk: Disk, directory: str) -> None:
    """Check that no segment carries a log id, as is right where the control file names none; blocking.

    Raises:
      ConfigError: one does: the control file is older than the log. Or it has a newer format.
      StorageError: a file cannot be read.
    """
    for number in LogScan.of(disk, directory).present:
        path = f"{directory}/{segment_name(number)}"
        if (header := read_segment_header(disk, path)) is not None:
            ScanState(log_id=NO_LOG_ID).check_log_id(header, path)


def settle_names(
    disk: Disk, directory: str, segment_bytes: int, bytes_max: int, found: Survey, log_id: bytes
) -> Spares:
    """Make the names durable, finish a truncation or reset, create a first segment if there is none; return the spares.

    Raises:
      StorageFullError: there is no room even for the first segment.
      StorageError: final.
    """
    disk.sync_directory(directory)
    if found.scan.mark is not None:
        carry_out(disk, directory, found.scan.mark, log_id)
    spares = Spares.open(disk, directory, segment_bytes, bytes_max)
    if not found.segments and found.scan.unused is None and found.judgement.torn_number is None:
        path = spares.pop()
        while path is None:
            if not spares.prepare().is_made:
                raise StorageFullError(
                    f"the disk has {disk.free_bytes(directory)} bytes left, a segment takes {segment_bytes}",
                    remedy="free space on the disk, or set a smaller [wal] segment_bytes",
                )
            path = spares.pop()
        found.scan.unused = 1
        disk.rename(path, f"{directory}/{segment_name(1)}")
        disk.sync_directory(directory)
    return spares


def take_over(
    disk: Disk,
    directory: str,
    options: WalOptions,
    found: Survey,
    spares: Spares,
    log_id: bytes,
) -> Writer:
    """Cut the torn tail, make the rest durable, and return a writer that continues after it."""
    fresh = found.scan.unused if found.scan.unused is not None else found.judgement.torn_number
    generation = found.state.generation
    segments = list(found.segments)
    if not segments:
        assert fresh is not None, "a log has a segment"
        generation += 1
        path = f"{directory}/{segment_name(fresh)}"
        segments.append(
            Segment(number=fresh, generation=generation, path=path, first_index=found.judgement.end, length=0)
        )
    if found.judgement.torn_number is not None:
        spares.give(_cut(disk, f"{directory}/{segment_name(found.judgement.torn_number)}", 0))
    if found.segments:
        spares.give(_settle(disk, segments[-1], found))
    file = disk.open(segments[-1].path)
    writer = Writer(
        disk,
        directory,
        options.segment_bytes,
        options.sync_seconds,
        Catalogue(segments, found.judgement.end),
        spares,
        file,
        allocated=file.size(),
        group=found.state.number,
        generation=generation,
        end=found.judgement.end,
        term=(found.state.term or 0) if found.segments else found.previous_term,
        closed=True,
        log_id=log_id,
    )
    writer.commit_hint = found.state.commit_hint
    if options.cached_bytes:
        writer.cached_segments = options.cached_bytes // options.segment_bytes
    if found.segments and fresh is not None:
        writer.enter(fresh)
    elif found.segments and (
        found.last_group is None or not found.last_group.is_empty or found.judgement.verdict != "clean"
    ):
        writer.close_group()
    _fill(disk, directory, options.segment_bytes, writer)
    return writer


def _fill(disk: Disk, directory: str, segment_bytes: int, writer: Writer) -> None:
    """Bring the open segment to its full length; on a full disk the log starts without room, to be read."""
    if disk.free_bytes(directory) >= segment_bytes:
        with suppress(StorageFullError):
            writer.fill()


def _cut(disk: Disk, path: str, size: int) -> int:
    """Cut a file to ``size`` bytes, durably; return by how many it is shorter now."""
    file = disk.open(path)
    try:
        before = file.size()
        file.truncate(size)
        file.sync()
        return before - size
    finally:
        file.close()


def _settle(disk: Disk, segment: Segment, found: Survey) -> int:
    """Cut the torn tail off the last written segment, and make sure that the rest is on the device.

    A byte that no group calls durable may never have been synced, or its sync failed. The page cache can then show
    bytes, as clean ones, that the device does not have, and a sync alone would do nothing. So everything from there on
    is written again. Returns by how many bytes the file is shorter now.
    """
    file = disk.open(segment.path)
    try:
        before = file.size()
        if segment.sealed or (found.judgement.verdict == "torn-tail" and found.judgement.torn_number is None):
            file.truncate(segment.length)
        start = found.last_group.durable if found.last_group is not None else 0
        file.write(start, [file.read(start, segment.length - start)])
        file.sync()
        return before - file.size()
    finally:
        file.close()
