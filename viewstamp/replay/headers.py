"""Pass 1 over one segment file: the header of every batch that can be read, whatever stands between them.

Recovery stops at the first byte that it does not understand, since a node must not guess. A replay has other copies, so
it notes the place and looks for what can be read behind it: a group header says the checksums of its batches and their
size, so damage in one batch costs that batch; where a group header is damaged, its batches are judged alone while each
follows on the one before; else the next group header of this file, this generation and a higher number is searched.

Nothing is decided here. Whether a place is a torn tail or damage, and what of it matters, is said in ``replica.py``.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from viewstamp.errors import FrameError
from viewstamp.host.interfaces import Disk, File
from viewstamp.wal.format import (
    GROUP_BATCHES_MAX,
    GROUP_HEADER_SIZE,
    GROUP_MAGIC,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    SegmentHeader,
    batch_checksum,
)
from viewstamp.wal.scan import Window
from viewstamp.wire.batch import HEADER_SIZE, Batch, Kind, pad

__all__ = ["HEADER_ONLY", "BatchLink", "BatchTable", "Hole", "SegmentScan", "scan_segment"]

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How much is read at once: batches reach over the end of a piece, and what was read of them is read again."""

_LINK = struct.Struct("<8xQQQ28xI")
_LENGTH = struct.Struct("<I")
_BATCH_MAGIC: Final = b"VSB\x01"
_GROUP_HEADER_BYTES_MAX: Final = GROUP_HEADER_SIZE + pad(4 * GROUP_BATCHES_MAX)
HEADER_ONLY: Final = frozenset({Kind.RECORDS, Kind.STAGED, Kind.COMMANDS, Kind.OPEN_SESSION, Kind.FENCE})
"""Of these kinds a replay needs no body before it hands it out, or not at all."""


class BatchLink(NamedTuple):
    """What ties a batch to the one before it: both ends are indices, ``end`` is exclusive."""

    term: int
    first_index: int
    previous_term: int
    end: int


class BatchTable:
    """Headers of batches as they stand on the disk, and where: 108 bytes each, in order of their index.

    Invariants:
      * ``first_index`` rises from row to row, and no two rows overlap
      * ``bodies`` holds the whole batch of each row that is a small command to the state, if it is readable
    """

    __slots__ = ("bodies", "files", "headers", "locations", "unreadable")

    def __init__(self) -> None:
        self.headers = bytearray()
        self.locations = array("Q")
        self.files = array("I")
        """Which file of the replica, as an index."""
        self.unreadable: set[int] = set()
        """Rows whose header is intact and whose body is not."""
        self.bodies: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.locations)

    def __getstate__(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        for name, value in zip(self.__slots__, state, strict=True):
            setattr(self, name, value)

    def link(self, row: int) -> BatchLink:
        """Return the row's place in the log."""
        term, first_index, previous_term, count = _LINK.unpack_from(self.headers, row * HEADER_SIZE)
        return BatchLink(term, first_index, previous_term, first_index + count)

    def size(self, row: int) -> int:
        """Return the bytes of a batch, its header included."""
        return HEADER_SIZE + int(_LENGTH.unpack_from(self.headers, row * HEADER_SIZE + 80)[0])

    def header(self, row: int) -> bytes:
        """Return the header's bytes. Copies of one batch have equal ones, and its checksums stand in there."""
        return bytes(self.headers[row * HEADER_SIZE : (row + 1) * HEADER_SIZE])

    def batch(self, row: int) -> Batch:
        """Return the batch: with its body where that is kept, else its header alone."""
        body = self.bodies.get(row)
        if body is not None:
            return Batch.decode(body, verify=False)
        return Batch.decode_header(self.header(row))

    def add(self, batch: Batch, location: int, *, file: int = 0, readable: bool = True) -> None:
        """Append a row."""
        row = len(self.locations)
        self.headers += batch.buffer[:HEADER_SIZE]
        self.locations.append(location)
        self.files.append(file)
        if not readable:
            self.unreadable.add(row)
        elif batch.kind not in HEADER_ONLY:
            self.bodies[row] = bytes(batch.buffer)

    def extend(self, other: BatchTable, file: int, start: int, end: int) -> None:
        """Append rows ``[start, end)`` of another table, all of which are in one file."""
        shift = len(self.locations) - start
        self.headers += other.headers[start * HEADER_SIZE : end * HEADER_SIZE]
        self.locations += other.locations[start:end]
        self.files += array("I", [file]) * (end - start)
        self.unreadable.update(row + shift for row in other.unreadable if start <= row < end)
        self.bodies.update((row + shift, body) for row, body in other.bodies.items() if start <= row < end)


@dataclass(slots=True)
class Hole:
    """A place that is not what should stand there; ``end_location`` is where something readable follows.

    ``first`` and ``end`` are the indices that are lost with it, half-open; None = not known on that side.
    """

    location: int
    end_location: int
    first: int | None
    end: int | None
    expected: str
    found: str


@dataclass(slots=True)
class SegmentScan:
    """What one segment file holds.

    ``header`` None = not readable. ``end`` is the index after all that was read, None = nothing was. ``is_unused``:
    nothing but zeros. ``term_starts``: (term, first index) where the term of the rows changes. ``commit_hint``: the
    highest in any group header. ``last_group`` is the last one that was readable.
    """

    path: str
    number: int
    size: int
    header: SegmentHeader | None = None
    is_unused: bool = False
    rows: BatchTable = field(default_factory=BatchTable)
    holes: list[Hole] = field(default_factory=list)
    term_starts: list[tuple[int, int]] = field(default_factory=list)
    end: int | None = None
    commit_hint: int = 0
    last_group: GroupHeader | None = None

    @property
    def first_index(self) -> int | None:
        """The index of the first record that is, or should be, in here; None = not known."""
        if self.header is not None:
            return self.header.first_index
        return self.rows.link(0).first_index if len(self.rows) else None

    @property
    def is_sealed(self) -> bool:
        """Whether its last group says that another segment follows."""
        return self.last_group is not None and self.last_group.seals

    def is_durable(self, hole: Hole) -> bool:
        """Say whether a later group calls the place of a hole durable: then it is damage, and no torn tail."""
        last = self.last_group
        return last is not None and last.location > hole.location and last.durable > hole.location


def scan_segment(
    disk: Disk, path: str, number: int, *, limit: int | None = None, on_bytes: Callable[[int], None] = lambda _: None
) -> SegmentScan:
    """Read one segment file once, forward, and verify every checksum; blocking.

    Args:
      disk: where it is.
      path: the file.
      number: which segment its name says it is.
      limit: read as if the file were not longer: a truncation that was decided has cut it there.
      on_bytes: is told how many bytes were dealt with, now and then.

    Raises:
      ConfigError: it has a newer format.
      StorageError, FileNotFoundError: it cannot be read.
    """
    file = disk.open_read(path)
    try:
        return _Scanner(file, number, limit, on_bytes).run()
    finally:
        file.close()


class _Scanner:
    """The pass. ``_index`` and ``_term`` are of what comes next and of what was before; None behind a hole."""

    def __init__(self, file: File, number: int, limit: int | None, on_bytes: Callable[[int], None]) -> None:
        self._file = file
        self._size = file.size() if limit is None else min(limit, file.size())
        self._window = Window(file, CHUNK_BYTES)
        self._on_bytes = on_bytes
        self._told = 0
        self._index: int | None = None
        self._term: int | None = None
        self._group_number = 0
        self._generation: int | None = None
        self.scan = SegmentScan(file.path, number, self._size)

    def run(self) -> SegmentScan:
        scan = self.scan
        at = self._read_segment_header()
        checksums: Sequence[int] = ()
        taken = 0
        while at < self._size and not scan.is_unused:
            self._tell(at)
            view = self._window.peek(at, HEADER_SIZE)
            if taken < len(checksums) and view[:4] != GROUP_MAGIC:
                size, problem = self._take_batch(at, view, checksums[taken])
                if size:
                    at += size
                    taken += 1
                else:
                    expected = f"batch {taken + 1} of {len(checksums)} of group {self._group_number}"
                    at, taken = self._skip(at, expected, problem, checksums, taken)
                continue
            group, problem = self._group_at(at)
            if group is not None:
                self._take_group(group, at)
                at, checksums, taken = at + group.size, group.checksums, 0
                continue
            is_complete = taken == len(checksums)
            if is_complete and self._is_zero(at):
                break
            expected = f"a group with a number above {self._group_number}"
            follows = self._take_orphans(at, expected, problem) if is_complete else 0
            checksums, taken = (), 0
            at = follows or self._skip(at, expected, problem, (), 0)[0]
        self._tell(self._size)
        if self._index is not None:
            scan.end = self._index
        return scan

    def _tell(self, at: int) -> None:
        if at - self._told >= CHUNK_BYTES or at == self._size:
            self._on_bytes(at - self._told)
            self._told = at

    def _read_segment_header(self) -> int:
        view = self._window.peek(0, SEGMENT_HEADER_SIZE)
        try:
            header = SegmentHeader.decode(view, self._file.path)
        except FrameError as error:
            if self._is_zero(0):
                self.scan.is_unused = True
                return 0
            return self._skip(0, "a segment header", error.message, (), 0)[0]
        if header.number != self.scan.number:
            # A file under another name: what it holds is told by its batches; its place in the log is not.
            self._note(0, 0, "the header of this segment", f"that of segment {header.number}")
        self.scan.header = header
        self._generation = header.generation
        self._group_number = header.first_group - 1
        self._index, self._term = header.first_index, header.previous_term
        return SEGMENT_HEADER_SIZE

    # What is intact.

    def _group_at(self, at: int) -> tuple[GroupHeader | None, str]:
        """Return the intact group header that was written for this place, or why there is none."""
        try:
            view = self._window.peek(at, GROUP_HEADER_SIZE)
            group = GroupHeader.decode(self._window.peek(at, GroupHeader.measure(view)))
        except FrameError as error:
            return None, error.message
        if group.location != at:
            return None, f"a group that was written at byte {group.location}"
        if self._generation is not None and group.generation != self._generation:
            return None, f"a group of generation {group.generation} in a segment of generation {self._generation}"
        if group.number <= self._group_number:
            return None, f"group {group.number} after group {self._group_number}"
        return group, ""

    def _take_group(self, group: GroupHeader, at: int) -> None:
        scan = self.scan
        if self._index is not None and group.first_index != self._index:
            self._note(at, at, f"a group at index {self._index}", f"one at index {group.first_index}")
        self._reach(group.first_index)
        self._group_number = group.number
        self._generation = group.generation
        scan.commit_hint = max(scan.commit_hint, group.commit_hint)
        scan.last_group = group

    def _take_batch(self, at: int, view: memoryview, checksum: int | None) -> tuple[int, str]:
        """Take the batch at ``at``; return its size, or 0 and why even that cannot be told."""
        try:
            size = Batch.measure(view)
            if size > self._size - at:
                return 0, f"a batch of {size} bytes where {self._size - at} are left"
            batch = Batch.decode(self._window.peek(at, size))
        except FrameError as error:
            return self._take_header(at, view, checksum, error.message)
        if checksum is not None and batch_checksum(batch) != checksum:
            return 0, f"a batch with header checksum {batch_checksum(batch):#010x}, not {checksum:#010x}"
        self._add(batch, at, readable=True)
        return size, ""

    def _take_header(self, at: int, view: memoryview, checksum: int | None, problem: str) -> tuple[int, str]:
        """Take a batch of which the header alone is intact, and is the one that the group lists."""
        try:
            batch = Batch.decode_header(view)
        except FrameError:
            return 0, problem
        if checksum is None or batch_checksum(batch) != checksum or batch.size > self._size - at:
            return 0, problem
        end = at + batch.size
        self.scan.holes.append(Hole(at, end, batch.first_index, batch.end, f"the body of {batch!r}", problem))
        self._add(batch, at, readable=False)
        return batch.size, ""

    def _add(self, batch: Batch, at: int, *, readable: bool) -> None:
        index, term = self._index, self._term
        first = batch.first_index
        if (index is not None and first != index) or (term is not None and batch.term < term):
            self._note(at, at + batch.size, f"a batch at index {index}, of term {term} or later", repr(batch))
            if index is not None and first < index:
                return
        scan = self.scan
        if not scan.term_starts or scan.term_starts[-1][0] != batch.term:
            scan.term_starts.append((batch.term, first))
        scan.rows.add(batch, at, readable=readable)
        self._index, self._term = batch.end, batch.term

    # What is not.

    def _note(self, at: int, end: int, expected: str, found: str) -> None:
        self.scan.holes.append(Hole(at, end, self._index, self._index, expected, found))

    def _reach(self, index: int) -> None:
        """Take ``index`` as what comes next; a hole before it that has no end yet ends there."""
        holes = self.scan.holes
        if self._index is None and holes and holes[-1].end is None:
            holes[-1].end = index
        if self._index is None or index > self._index:
            self._index = index

    def _skip(self, at: int, expected: str, found: str, checksums: Sequence[int], taken: int) -> tuple[int, int]:
        """Note that ``at`` is not readable; return where something is again, and how many of the group are behind."""
        hole = Hole(at, self._size, self._index, None, expected, found)
        self.scan.holes.append(hole)
        self._index, self._term = None, None
        left = {checksum: number for number, checksum in enumerate(checksums) if number >= taken}
        for place, magic in self._candidates(at + 1, bool(left)):
            if magic == GROUP_MAGIC:
                if self._group_at(place)[0] is None:
                    continue
            else:
                try:
                    batch = Batch.decode_header(self._window.peek(place, HEADER_SIZE))
                except FrameError:
                    continue
                if batch_checksum(batch) not in left:
                    continue
                taken = left[batch_checksum(batch)]
                self._reach(batch.first_index)
            hole.end_location = place
            return place, taken
        return self._size, len(checksums)

    def _candidates(self, start: int, batches: bool) -> Iterator[tuple[int, bytes]]:
        """Yield where a group header, or a batch, may begin, in order."""
        overlap = len(GROUP_MAGIC) - 1
        at = start
        while at < self._size:
            chunk = self._file.read(at, min(CHUNK_BYTES, self._size - at))
            places = [(place, GROUP_MAGIC) for place in _find_all(chunk, GROUP_MAGIC)]
            if batches:
                places += [(place, _BATCH_MAGIC) for place in _find_all(chunk, _BATCH_MAGIC)]
            for place, magic in sorted(places):
                yield at + place, magic
            if at + len(chunk) >= self._size:
                return
            at += len(chunk) - overlap

    def _take_orphans(self, at: int, expected: str, found: str) -> int:
        """Take the batches behind a damaged group header, as long as each follows on the one before.

        How many there are, and so where the first begins, stood in that header: all places are tried. What is inside
        a record cannot stand there, and would not follow.
        """
        index, term = self._index, self._term
        if index is None or term is None:
            return 0
        block = self._window.peek(at, min(_GROUP_HEADER_BYTES_MAX + HEADER_SIZE, self._size - at))
        for place in range(GROUP_HEADER_SIZE + 8, len(block) - HEADER_SIZE + 1, 8):
            if bytes(block[place : place + 4]) == _BATCH_MAGIC and self._follows(at + place, index, term):
                self.scan.holes.append(Hole(at, at + place, index, index, expected, found))
                at += place
                break
        else:
            return 0
        while self._index is not None and self._term is not None and self._follows(at, self._index, self._term):
            at += self._take_batch(at, self._window.peek(at, HEADER_SIZE), None)[0]
        return at

    def _follows(self, at: int, index: int, term: int) -> bool:
        """Say whether an intact batch at ``at`` is the one at ``index`` after a record of ``term``."""
        try:
            view = self._window.peek(at, HEADER_SIZE)
            size = Batch.measure(view)
            if size > self._size - at:
                return False
            batch = Batch.decode(self._window.peek(at, size))
        except FrameError:
            return False
        return batch.first_index == index and batch.previous_term == term

    def _is_zero(self, at: int) -> bool:
        """Say whether nothing but zeros follows."""
        while at < self._size:
            chunk = self._file.read(at, min(CHUNK_BYTES, self._size - at))
            if chunk.count(0) != len(chunk):
                return False
            at += len(chunk)
        return True


def _find_all(chunk: bytes, magic: bytes) -> Iterator[int]:
    at = chunk.find(magic)
    while at >= 0:
        yield at
        at = chunk.find(magic, at + 1)
