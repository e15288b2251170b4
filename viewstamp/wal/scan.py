"""One forward pass over one segment file. Reads only; decides nothing: ``recovery`` does.

The pass stops at the first byte that is not the next group header or the next batch, and says what it
expected and what it found. What that means (end, torn tail, damage) depends on what stands around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from viewstamp.enums import fast_members
from viewstamp.errors import ConfigError, FrameError
from viewstamp.host.interfaces import File
from viewstamp.wal.format import (
    GROUP_BATCHES_MAX,
    GROUP_HEADER_SIZE,
    GROUP_MAGIC,
    NO_LOG_ID,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    SegmentHeader,
    batch_checksum,
)
from viewstamp.wire.batch import HEADER_SIZE, Batch, pad

__all__ = ["CHUNK_BYTES", "Pass", "Rest", "ScanState", "Stop", "Window", "groups_behind", "later_durable", "rest_of"]

CHUNK_BYTES = 1024 * 1024
"""How much is read at once."""

_GROUP_HEADER_BYTES_MAX = GROUP_HEADER_SIZE + pad(4 * GROUP_BATCHES_MAX)


@fast_members
class Rest(Enum):
    """What stands in a file from some byte to its end."""

    NOTHING = "the end of the file"
    ZEROS = "zeros"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a pass ended.

    ``location`` is the first byte not understood, behind the last intact batch or group header. ``complete``:
    everything before it is, so that it can be the end of the log; False inside a group. ``contradicts``: the
    bytes are intact and tied to their place, and yet do not follow from what stands before them.
    """

    location: int
    complete: bool
    contradicts: bool
    expected: str
    found: str


@dataclass(slots=True, kw_only=True)
class ScanState:
    """What the next group and batch must follow; carried from segment to segment.

    ``end`` is the index that comes next, None before the first segment; ``term`` that of the record before
    it, None where it is not known; ``number`` and ``generation`` are the highest seen; ``commit_hint`` too. ``log_id``
    is the id that every segment must carry that has one; None = that of the first which does.
    """

    end: int | None = None
    term: int | None = None
    number: int = 0
    generation: int = 0
    commit_hint: int = 0
    log_id: bytes | None = None

    def check_log_id(self, header: SegmentHeader, path: str) -> None:
        """Refuse an intact segment of another log; one of a version that wrote no ids is taken.

        Raises:
          ConfigError: it names the file and both ids. This is no rot: somebody has put the file there.
        """
        found = header.log_id
        if found == NO_LOG_ID:
            return
        if self.log_id is None:
            self.log_id = found
        elif self.log_id == NO_LOG_ID:
            raise ConfigError(
                f"{path} is a segment of the log {found.hex()}, and the control file beside it is older than that log:"
                " it names none",
                remedy="put back the newest control-a and control-b of this node; without them it must not take part,"
                " because they hold its vote. Nothing was changed",
            )
        elif found != self.log_id:
            raise ConfigError(
                f"{path} is a segment of another log: its log id is {found.hex()}, this log has {self.log_id.hex()}",
                remedy="put this node's own file back; if it is lost, move the foreign one away: then a member of a"
                " group fetches from the others what is missing. Nothing was changed",
            )


class Window:
    """Reads a file in large pieces and hands out views of them.

    A view stays valid as long as somebody holds it (and keeps its whole piece alive).
    """

    def __init__(self, file: File, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._view = memoryview(b"")
        self._start = 0

    def peek(self, offset: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``offset``; fewer only at the end of the file."""
        at = offset - self._start
        if at < 0 or at + size > len(self._view):
            self._view = memoryview(self._file.read(offset, max(size, self._chunk_bytes)))
            self._start = offset
            at = 0
        return self._view[at : at + size]


class Pass:
    """The forward pass: iterate :meth:`items`, then look at :attr:`stop`.

    Invariants:
      * every yielded batch has intact checksums, is tied to its group, and continues ``chain``
      * ``chain`` describes what was yielded so far
    """

    def __init__(self, file: File, chain: ScanState, *, limit: int | None = None) -> None:
        """Read ``file`` from its start; ``limit`` = as if it were not longer than that."""
        self.file = file
        self.chain = chain
        self.size = file.size() if limit is None else min(limit, file.size())
        self.header: SegmentHeader | None = None
        self.stop: Stop | None = None
        self.last_group: GroupHeader | None = None
        self._window = Window(file)

    def read_header(self, number: int) -> bool:
        """Read the segment header of segment ``number``; say whether it is there. False sets :attr:`stop`.

        Raises:
          ConfigError: the segment has a newer format, or is of another log.
        """
        view = self._window.peek(0, SEGMENT_HEADER_SIZE)
        try:
            header = SegmentHeader.decode(view, self.file.path)
        except FrameError as error:
            self._end(0, True, "a segment header", error.message)
            return False
        chain = self.chain
        chain.check_log_id(header, self.file.path)
        wrong = ""
        if header.number != number:
            wrong = f"segment {header.number} in the file of segment {number}"
        elif header.generation <= chain.generation:
            wrong = f"generation {header.generation} after {chain.generation}"
        elif header.first_group <= chain.number:
            wrong = f"first group {header.first_group} after group {chain.number}"
        elif chain.end is not None and header.first_index != chain.end:
            wrong = f"first index {header.first_index} where {chain.end} comes next"
        elif chain.term is not None and header.previous_term != chain.term:
            wrong = f"previous term {header.previous_term} after term {chain.term}"
        if wrong:
            self._end(0, True, "a segment header that follows the segment before", wrong, contradicts=True)
            return False
        self.header = header
        chain.generation = header.generation
        chain.end = header.first_index
        chain.term = header.previous_term
        return True

    def items(self, start: int = SEGMENT_HEADER_SIZE) -> Iterator[GroupHeader | tuple[int, Batch]]:
        """Yield each group header, then each of its batches with its location, up to what is not readable.

        A group can hold fewer batches than its header says where a truncation or a torn tail cut it: the
        next group header, with a higher number, stands at a batch boundary then. ``start`` is where a group stands.
        """
        header = self.header
        assert header is not None, "read_header comes first"
        chain = self.chain
        chain.number = max(chain.number, header.first_group - 1)
        window = self._window
        at = start
        durable = 0
        taken = count = 0
        checksums: Sequence[int] = ()
        while at < self.size:
            view = window.peek(at, HEADER_SIZE)
            if taken < count and view[:4] != GROUP_MAGIC:
                try:
                    size = Batch.measure(view)
                    if size > self.size - at:
                        raise FrameError(f"a batch of {size} bytes where {self.size - at} are left")
                    batch = Batch.decode(window.peek(at, size))
                except FrameError as error:
                    self._end(at, False, f"batch {taken + 1} of {count} of group {chain.number}", error.message)
                    return
                found = batch_checksum(batch)
                if found != checksums[taken]:
                    expected = f"the batch with header checksum {checksums[taken]:#010x} in group {chain.number}"
                    self._end(at, False, expected, f"one with {found:#010x}")
                    return
                if batch.first_index != chain.end or batch.term < (chain.term or 0):
                    expected = f"a batch at index {chain.end}, of term {chain.term} or later"
                    self._end(at, False, expected, f"{batch!r}", contradicts=True)
                    return
                yield at, batch
                taken += 1
                chain.end = batch.end
                chain.term = batch.term
                at += size
                continue
            try:
                group = GroupHeader.decode(window.peek(at, GroupHeader.measure(view)))
                _check_place(group, header, at, chain)
            except FrameError as error:
                self._end(at, taken == count, f"a group with a number above {chain.number}", error.message)
                return
            if group.first_index != chain.end or not durable <= group.durable <= at:
                expected = f"a group at index {chain.end}, durable up to {durable}..{at}"
                found_text = f"one at index {group.first_index}, durable up to {group.durable}"
                self._end(at, taken == count, expected, found_text, contradicts=True)
                return
            yield group
            self.last_group = group
            durable = group.durable
            chain.number = group.number
            chain.commit_hint = max(chain.commit_hint, group.commit_hint)
            checksums = group.checksums
            count = len(checksums)
            taken = 0
            at += group.size
        self._end(at, taken == count, "a group or the end", Rest.NOTHING.value)

    def _end(self, at: int, complete: bool, expected: str, found: str, *, contradicts: bool = False) -> None:
        self.stop = Stop(location=at, complete=complete, contradicts=contradicts, expected=expected, found=found)


def _check_place(group: GroupHeader, segment: SegmentHeader, at: int, chain: ScanState) -> None:
    """Refuse a group header that is intact but was written for another place or an earlier time."""
    if group.generation != segment.generation:
        raise FrameError(f"a group of generation {group.generation} in a segment of generation {segment.generation}")
    if group.location != at:
        raise FrameError(f"a group that was written at byte {group.location}")
    if group.number <= chain.number:
        raise FrameError(f"group {group.number} after group {chain.number}")


def rest_of(file: File, location: int) -> tuple[Rest, int]:
    """Say what stands from ``location`` to the end, and how many bytes up to the last one that is not zero."""
    size = file.size()
    if location >= size:
        return Rest.NOTHING, 0
    used = 0
    for at in range(location, size, CHUNK_BYTES):
        chunk = file.read(at, min(CHUNK_BYTES, size - at))
        if chunk.count(0) != len(chunk):
            used = at + len(chunk.rstrip(b"\0")) - location
    return (Rest.BYTES, used) if used else (Rest.ZEROS, 0)


def later_durable(file: File, location: int, chain: ScanState, generation: int | None) -> GroupHeader | None:
    """Search behind ``location`` for an intact group that calls a byte beyond it durable.

    Such a group was written after everything before it had been synced, so what is unreadable at
    ``location`` was durable once.
    """
    groups = groups_behind(file, location, chain, generation)
    return next((group for group in groups if group.durable > location), None)


def groups_behind(file: File, location: int, chain: ScanState, generation: int | None) -> Iterator[GroupHeader]:
    """Yield the intact groups behind ``location`` that can follow ``chain``, by their place.

    ``generation`` is the segment's; None where its header is not readable. Bytes that only look like a header (inside
    a record, or of an earlier life of the file) fail its checksum, its location, its generation or its number.
    """
    size = file.size()
    at = location + 1
    while at < size:
        chunk = file.read(at, CHUNK_BYTES)
        hit = chunk.find(GROUP_MAGIC)
        while hit >= 0:
            group = _decode_at(file, at + hit)
            if (
                group is not None
                and (group.generation == generation if generation else group.generation > chain.generation)
                and group.number > chain.number
            ):
                yield group
            hit = chunk.find(GROUP_MAGIC, hit + 1)
        if at + len(chunk) >= size:
            break
        at += len(chunk) - len(GROUP_MAGIC) + 1


def _decode_at(file: File, at: int) -> GroupHeader | None:
    """Return the intact group header at ``at`` that was written for this place, if there is one."""
    buffer = file.read(at, _GROUP_HEADER_BYTES_MAX)
    try:
        group = GroupHeader.decode(buffer[: GroupHeader.measure(buffer)])
    except FrameError:
        return None
    return group if group.location == at else None
