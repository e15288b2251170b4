"""What the files of a log mean after whatever happened to them: the decision table, and the survey that asks it.

The survey only reads. What follows from its verdict (cutting a torn tail, finishing a truncation, refusing to
start) is done by ``wal.Wal.open``; ``verify`` and ``reader`` stop at the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from viewstamp.errors import CorruptionError, FrameError, StorageFullError
from viewstamp.host.interfaces import Disk, File
from viewstamp.ids import Index, Term
from viewstamp.wal.budget import Spares
from viewstamp.wal.catalogue import Catalogue, Segment
from viewstamp.wal.format import (
    NO_LOG_ID,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    SegmentHeader,
    parse_segment_name,
    segment_name,
)
from viewstamp.wal.scan import Pass, Rest, ScanState, later_durable, rest_of
from viewstamp.wal.truncation import MARK_NAME, Mark, carry_out, read_mark
from viewstamp.wal.verdict import DECISIONS, Corruption, Decision, Fact, LogVerdict, decide
from viewstamp.wal.writer import Writer
from viewstamp.wire.batch import Batch

__all__ = ["Found", "Recovery", "Survey", "check_without_log_id", "settle_names", "take_over"]

Found = Segment | GroupHeader | tuple[int, Batch]
"""What a survey meets, in this order: a segment, its groups, after each its batches with their locations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What opening the log found. ``end`` is exclusive; ``torn_bytes`` were cut off.

    ``commit_hint`` is the highest in any group header that was read: an end below which all was known to be committed.
    ``batches``, ``records`` and ``term_starts`` are those from the index on from which the log was scanned; the last
    are the runs of terms in the batch headers, as (term, index of its first record there). ``previous_term`` is the
    term of the record before that index, as the headers say; 0 = not held: the log ends before it, begins behind it,
    or has a batch across it.
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
    """One forward pass over a log directory, and what it learnt. Changes nothing on the disk.

    Iterate :meth:`walk` to its end (or call :meth:`run`), then look at the rest.

    ``segments`` are those that were written, each with the length that is intact. ``unused`` is the number of a
    zero-filled segment behind them, ``torn_number`` that of one in which not even the segment header was written
    whole; None = there is none. ``mark`` is an unfinished truncation, which the log is read as if it had been
    finished. ``last_group`` is the last group header in the last of ``segments``, None = there is none.

    ``commit_hint`` is given: an end below which all is known to be committed. ``must_exist``: no segment at all is
    damage. The log may begin at or below ``first_index_max`` (None = wherever it does); above it, files are missing.
    An empty one begins there, after a record of ``previous_term``. Below ``scan_from`` nothing is yielded but
    segments, and of segments wholly below it only the headers are read. ``only`` restricts the survey to one segment
    (by number), whatever stands before it. ``log_id`` is that of the log; ``NO_LOG_ID`` = its control file names none,
    so that no segment may; None = that of the first segment that has one.
    """

    disk: Disk
    directory: str
    commit_hint: int = 0
    must_exist: bool = False
    first_index_max: int | None = 1
    previous_term: int = 0
    scan_from: int = 1
    only: int | None = None
    log_id: bytes | None = None
    decision: Decision = DECISIONS[-2]
    segments: list[Segment] = field(default_factory=list)
    unused: int | None = None
    torn_number: int | None = None
    mark: Mark | None = None
    chain: ScanState = field(default_factory=ScanState)
    last_group: GroupHeader | None = None
    batches: int = 0
    records: int = 0
    torn_bytes: int = 0
    term_starts: list[tuple[int, int]] = field(default_factory=list)
    damage: list[Corruption] = field(default_factory=list)
    _term_before: int = 0

    def __post_init__(self) -> None:
        self.chain.log_id = self.log_id

    @property
    def verdict(self) -> LogVerdict:
        """The verdict of the table."""
        return self.decision.verdict

    @property
    def first_index(self) -> int:
        """The index of the first record, or of the one that comes next where there is none."""
        return self.segments[0].first_index if self.segments else self.first_index_max or 1

    @property
    def end(self) -> int:
        """The index after the last intact record."""
        return self.chain.end if self.chain.end is not None else self.first_index

    @property
    def _lacks_end(self) -> bool:
        """Whether the log ends below an end that it has reached once.

        A log of which nothing is written ends where a snapshot says that it may begin, whatever it held before.
        """
        end = self.end if self.segments else 1
        return end < max(self.commit_hint, self.chain.commit_hint)

    def recovery(self) -> Recovery:
        """Return the result as a value."""
        return Recovery(
            verdict=self.verdict,
            segments=len(self.segments),
            batches=self.batches,
            records=self.records,
            first_index=Index(self.first_index),
            end=Index(self.end),
            commit_hint=self.chain.commit_hint,
            torn_bytes=self.torn_bytes,
            previous_term=Term(self._previous_term()),
            term_starts=tuple(self.term_starts),
        )

    def _previous_term(self) -> int:
        if self.segments or self.scan_from != self.end:
            return self._term_before
        return self.previous_term

    def error(self) -> CorruptionError:
        """Return the error that says where the damage is."""
        damage = self.damage[0]
        path = f"{self.directory}/{damage.segment}"
        return CorruptionError(
            f"{path} is damaged at byte {damage.location}: expected {damage.expected}, found {damage.found}",
            path=path,
            location=damage.location,
            expected=damage.expected,
            found=damage.found,
            remedy="nothing was changed; look with `viewstamp wal inspect`. Keep the directory, the others go on "
            "without this one; never start an older copy of it, which has forgotten what this one promised",
        )

    def run(self) -> Survey:
        """Walk to the end without looking at anything on the way."""
        for _ in self.walk():
            pass
        return self

    def walk(self) -> Iterator[Found]:
        """Read the log once, forward; yield what is intact, up to the end or the first damage.

        A batch's buffer is a view of a piece that was read: valid as long as it is held, but holding it keeps the
        whole piece (1 MiB) alive, so copy what is to be kept.

        Raises:
          ConfigError: a segment has a newer format, or is of another log.
          StorageError: a file cannot be read.
        """
        present = sorted(n for n in map(parse_segment_name, self.disk.list_directory(self.directory)) if n is not None)
        if not self._read_mark(present):
            return
        if self.mark is not None and self.mark.resets and self.only is None:
            self._begin_at(self.mark)
            return
        numbers = self._consecutive(present)
        if numbers is None:
            return
        written = numbers
        if numbers and self.mark is None and self._is_unused(numbers[-1]):
            self.unused = numbers[-1]
            written = numbers[:-1]
        for number in written:
            if self.only is None or number == self.only:
                followed = number != written[-1]
                yield from self._walk_segment(number, followed)
                if self.verdict != "clean":
                    return
        self._check_end(present)

    def _read_mark(self, present: list[int]) -> bool:
        try:
            self.mark = read_mark(self.disk, self.directory)
        except FrameError as error:
            self._refuse({Fact.UNREADABLE_MARK}, MARK_NAME, 0, "a truncation mark", error.message)
            return False
        if self.mark is not None and not self.mark.resets and self.mark.segment not in present:
            self._refuse({Fact.MISSING}, segment_name(self.mark.segment), 0, "the segment that was cut", "no such file")
            return False
        return True

    def _begin_at(self, mark: Mark) -> None:
        """Take the log as what a reset has made of it, or is about to."""
        self.first_index_max = mark.end if self.first_index_max is None else self.first_index_max
        if not self._may_begin_at(mark.end, mark.segment):
            return
        header, self.last_group = mark.first_segment()
        self.chain = ScanState(
            end=mark.end,
            term=mark.term,
            number=self.last_group.number,
            generation=header.generation,
            log_id=self.log_id,
        )
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
        if mark.end < self.commit_hint:
            self._refuse({Fact.BELOW_HINT}, MARK_NAME, 0, "a reset to what is committed", f"one to {mark.end}")

    def _consecutive(self, present: list[int]) -> list[int] | None:
        """Return the segments that belong to the log; None where one is missing."""
        numbers = [n for n in present if self.mark is None or self.mark.resets or n <= self.mark.segment]
        if self.only is not None:
            return numbers
        if not numbers:
            if self.must_exist or self.commit_hint > self.first_index:
                self._refuse({Fact.MISSING}, segment_name(1), 0, "the first segment", "no such file")
                return None
            return []
        for expected, number in enumerate(numbers, numbers[0]):
            if number != expected:
                wanted = f"segment {expected}, between {expected - 1} and {number}"
                self._refuse({Fact.MISSING}, segment_name(expected), 0, wanted, "no such file")
                return None
        return numbers

    def _is_unused(self, number: int) -> bool:
        """Say whether a segment holds nothing but zeros: made ready, and never written to."""
        file = self.disk.open_read(f"{self.directory}/{segment_name(number)}")
        try:
            return not file.read(0, 4).strip(b"\0") and rest_of(file, 0)[0] is not Rest.BYTES
        finally:
            file.close()

    def _walk_segment(self, number: int, followed: bool) -> Iterator[Found]:
        file = self.disk.open_read(f"{self.directory}/{segment_name(number)}")
        try:
            mark = self.mark if self.mark is not None and self.mark.segment == number else None
            reading = Pass(file, self.chain, limit=mark.length if mark is not None else None)
            if reading.read_header(number):
                assert reading.header is not None, "read_header said so"
                header = reading.header
                if not self.segments and not self._may_begin_at(header.first_index, number):
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
                if followed and self._pass_over(header):
                    segment.length = reading.size
                    segment.sealed = True
                    return
                yield from self._take(reading, segment)
            self._judge(file, reading, number, followed, mark)
        finally:
            file.close()

    def _may_begin_at(self, first_index: int, number: int) -> bool:
        if self.only is not None or self.first_index_max is None or first_index <= self.first_index_max:
            return True
        wanted = (
            f"a log that begins at index {self.first_index_max} or below; this one begins at {first_index}, so a"
            f" snapshot that reaches index {first_index} is needed"
        )
        self._refuse({Fact.MISSING}, segment_name(number - 1), 0, wanted, "no such file")
        return False

    def _pass_over(self, header: SegmentHeader) -> bool:
        """Take a segment that ends at or below ``scan_from`` as read; False where it must be read.

        Where the next segment begins, this one ends: the next one's header says so, and the term and the group number
        too. Where the two headers do not fit together, reading will find out what is wrong.
        """
        if self.scan_from <= header.first_index or self.only is not None:
            return False
        file = self.disk.open_read(f"{self.directory}/{segment_name(header.number + 1)}")
        try:
            following = SegmentHeader.decode(file.read(0, SEGMENT_HEADER_SIZE), file.path)
        except FrameError:
            return False
        finally:
            file.close()
        rises = header.first_index < following.first_index and header.first_group < following.first_group
        if not rises or following.first_index > self.scan_from or following.previous_term < header.previous_term:
            return False
        self.chain.end = following.first_index
        self.chain.term = following.previous_term
        self.chain.number = following.first_group - 1
        return True

    def _take(self, reading: Pass, segment: Segment) -> Iterator[Found]:
        """Run the pass: hand out what it finds, fill the sparse index, count."""
        last_term = self.term_starts[-1][0] if self.term_starts else -1
        boundary = 0
        for item in reading.items():
            if isinstance(item, GroupHeader):
                boundary = item.location
                yield item
                continue
            location, batch = item
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
            yield item
        assert reading.stop is not None, "a pass ends with a reason"
        self.last_group = reading.last_group
        segment.length = reading.stop.location
        segment.sealed = reading.last_group is not None and reading.last_group.seals

    def _judge(self, file: File, reading: Pass, number: int, followed: bool, mark: Mark | None) -> None:
        """Decide what the place is at which the pass stopped."""
        stop = reading.stop
        assert stop is not None, "a pass ends with a reason"
        if mark is not None:
            self.chain.number = max(self.chain.number, mark.group)
            self.chain.generation = max(self.chain.generation, mark.generation)
            if stop.location == mark.length and self.end == mark.end and self.end >= self.commit_hint:
                return
            followed = True
        facts: set[Fact] = {Fact.CONTRADICTS} if stop.contradicts else set()
        rest, used = rest_of(file, stop.location)
        if reading.header is None and self.unused is not None:
            followed = True  # the segment behind got its name only after this one had been written
        if followed:
            if stop.complete and rest is Rest.NOTHING and reading.header is not None and mark is None:
                return
            facts.add(Fact.FOLLOWED)
        elif rest is Rest.BYTES:
            generation = reading.header.generation if reading.header is not None else None
            if later_durable(file, stop.location, self.chain, generation) is not None:
                facts.add(Fact.CALLED_DURABLE)
        elif stop.complete:
            facts.add(Fact.ENDS)
        if not followed and self._lacks_end and self.only is None:
            facts.add(Fact.BELOW_HINT)
        if decide(facts).verdict == "corruption":
            self._refuse(facts, segment_name(number), stop.location, stop.expected, stop.found)
            return
        self.decision = decide(facts)
        self.torn_bytes = used
        if reading.header is None:
            self.torn_number = number

    def _check_end(self, present: list[int]) -> None:
        """Look for what is missing behind the last segment."""
        if not self.segments:
            hidden = self.unused is not None and self.unused != 1
            if self.only is None and (hidden or self._lacks_end):
                number = present[0] if present else 1
                self._refuse({Fact.MISSING}, segment_name(max(1, number - 1)), 0, "a written segment", "no such file")
            return
        last = self.segments[-1]
        if last.sealed and self.mark is None and last.number + 1 not in present:
            wanted = f"a file, as segment {last.number} says that another one follows"
            self._refuse({Fact.MISSING}, segment_name(last.number + 1), 0, wanted, "no such file")

    def _refuse(self, facts: set[Fact], segment: str, location: int, expected: str, found: str) -> None:
        """Note a damage, with the reason why it is no torn tail."""
        reasons = {
            Fact.FOLLOWED: "where everything had been synced before the log went on elsewhere",
            Fact.CALLED_DURABLE: "and a later group calls this place durable",
            Fact.BELOW_HINT: f"and the log would end at index {self.end}, below what is known to be committed",
        }
        self.decision = decide(facts)
        found = ", ".join([found, *(text for fact, text in reasons.items() if fact in facts)])
        self.damage.append(Corruption(segment=segment, location=location, expected=expected, found=found))


def check_without_log_id(disk: Disk, directory: str) -> None:
    """Check that no segment carries a log id, as is right where the control file names none; blocking.

    Raises:
      ConfigError: one does: the control file is older than the log. Or it has a newer format.
      StorageError: a file cannot be read.
    """
    for name in disk.list_directory(directory):
        if parse_segment_name(name) is not None:
            file = disk.open_read(f"{directory}/{name}")
            try:
                header = SegmentHeader.decode(file.read(0, SEGMENT_HEADER_SIZE), file.path)
            except FrameError:
                continue  # Unused, torn or damaged: what it is, the survey decides.
            finally:
                file.close()
            ScanState(log_id=NO_LOG_ID).check_log_id(header, file.path)


def settle_names(
    disk: Disk, directory: str, segment_bytes: int, bytes_max: int, found: Survey, log_id: bytes
) -> Spares:
    """Make the names durable, finish a truncation or reset, see to a first segment; return the spares.

    Raises:
      StorageFullError: there is no room even for the first segment.
      StorageError: final.
    """
    disk.sync_directory(directory)
    if found.mark is not None:
        carry_out(disk, directory, found.mark, log_id)
    spares = Spares.open(disk, directory, segment_bytes, bytes_max)
    if not found.segments and found.unused is None and found.torn_number is None:
        path = spares.pop()
        while path is None:
            if not spares.prepare().is_made:
                raise StorageFullError(
                    f"the disk has {disk.free_bytes(directory)} bytes left, a segment takes {segment_bytes}",
                    remedy="free space on the disk, or set a smaller [wal] segment_bytes",
                )
            path = spares.pop()
        found.unused = 1
        disk.rename(path, f"{directory}/{segment_name(1)}")
        disk.sync_directory(directory)
    return spares


def take_over(
    disk: Disk,
    directory: str,
    segment_bytes: int,
    sync_seconds: float,
    found: Survey,
    spares: Spares,
    log_id: bytes,
) -> Writer:
    """Cut what is torn, make the rest durable, and return a writer that goes on behind it."""
    fresh = found.unused if found.unused is not None else found.torn_number
    generation = found.chain.generation
    segments = list(found.segments)
    if not segments:
        assert fresh is not None, "a log has a segment"
        generation += 1
        path = f"{directory}/{segment_name(fresh)}"
        segments.append(Segment(number=fresh, generation=generation, path=path, first_index=found.end, length=0))
    if found.torn_number is not None:
        spares.give(_cut(disk, f"{directory}/{segment_name(found.torn_number)}", 0))
    if found.segments:
        spares.give(_settle(disk, segments[-1], found))
    file = disk.open(segments[-1].path)
    writer = Writer(
        disk,
        directory,
        segment_bytes,
        sync_seconds,
        Catalogue(segments, found.end),
        spares,
        file,
        allocated=file.size(),
        group=found.chain.number,
        generation=generation,
        end=found.end,
        term=(found.chain.term or 0) if found.segments else found.previous_term,
        closed=True,
        log_id=log_id,
    )
    writer.commit_hint = found.chain.commit_hint
    if found.segments and fresh is not None:
        writer.enter(fresh)
    elif found.segments and (found.last_group is None or not found.last_group.is_empty or found.verdict != "clean"):
        writer.close_group()
    _fill(disk, directory, segment_bytes, writer)
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
    """Cut what is torn off the last written segment, and make sure that the rest is on the device.

    Where no group calls a byte durable, it may never have been synced, or its sync failed: the page cache can then
    show bytes, as clean ones, that the device does not have, and a sync alone would do nothing. So from there on all
    is written again. Returns by how many bytes the file is shorter now.
    """
    file = disk.open(segment.path)
    try:
        before = file.size()
        if segment.sealed or (found.verdict == "torn-tail" and found.torn_number is None):
            file.truncate(segment.length)
        start = found.last_group.durable if found.last_group is not None else 0
        file.write(start, [file.read(start, segment.length - start)])
        file.sync()
        return before - file.size()
    finally:
        file.close()
