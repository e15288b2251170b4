"""The one scanner of segment files: it turns their bytes into a :class:`SegmentScan`. Reads only; decides nothing.

No other module parses the headers of segments and groups. `verdict.py` decides about the meaning of a scan (end, torn
tail, corruption), which depends on other files too.

A *strict* pass stops at the first byte that is not the next group header or the next batch, because a node must not
guess. A *tolerant* pass records that place as the stop, too, and then continues after it, for repair and replay, which
have other copies of the lost records:

* a group header has the checksums of its batches and their number, so damage in one batch costs that batch;
* if a group header is damaged, its batches are checked alone, as long as each follows on the one before;
* else the next group header of this file, this generation and a higher number is searched.

Everything up to the stop is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from viewstamp.enums import fast_members
from viewstamp.errors import ConfigError, FrameError
from viewstamp.host.interfaces import Disk, File
from viewstamp.value_class import value_class
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

__all__ = [
    "CHUNK_BYTES",
    "Hole",
    "Rest",
    "ScanItem",
    "ScanState",
    "SegmentScan",
    "SegmentScanner",
    "Stop",
    "UnreadableBatch",
    "Window",
    "batches_from",
    "read_segment_header",
    "rest_of",
    "why_not_next",
]

CHUNK_BYTES = 1024 * 1024
"""Bytes that are read at once."""

_BATCH_MAGIC = b"VSB\x01"
_GROUP_HEADER_BYTES_MAX = GROUP_HEADER_SIZE + pad(4 * GROUP_BATCHES_MAX)


@fast_members
class Rest(Enum):
    """The content of a file from some byte to its end."""

    NOTHING = "the end of the file"
    ZEROS = "zeros"
    BYTES = "bytes"


@value_class(kw_only=False)
class Stop:
    """The first byte that is not understood, after the last intact batch or group header; or the end of the file.

    ``complete``: everything before it is complete, so that it can be the end of the log; False inside a group.
    ``contradicts``: the bytes are intact and tied to their place, and yet do not follow from the bytes before them.
    ``end`` is the next index there, ``term`` that of the record before, ``group`` the highest group number; None =
    unknown, because the segment header is not readable.
    """

    location: int
    complete: bool
    contradicts: bool
    expected: str
    found: str
    end: int | None
    term: int | None
    group: int


@dataclass(slots=True)
class Hole:
    """A place with other bytes than expected; ``end_location`` is the next readable place.

    ``first`` and ``end`` are the indices that are lost with it, half-open; None = unknown on that side.
    """

    location: int
    end_location: int
    first: int | None
    end: int | None
    expected: str
    found: str


class UnreadableBatch(NamedTuple):
    """A batch of which only the header is intact, and is the one that its group lists; ``batch`` has no body."""

    location: int
    batch: Batch


ScanItem = GroupHeader | tuple[int, Batch] | UnreadableBatch
"""The items of a pass: group headers, and after each its batches with their locations."""


@dataclass(slots=True, kw_only=True)
class ScanState:
    """The state that the next group and batch must follow; carried from segment to segment.

    Attributes:
      end: the index of the next record; None before the first segment and after a hole.
      term: the term of the record before ``end``; None = unknown.
      number: the highest number of a group so far.
      generation: the highest generation so far.
      commit_hint: the highest commit hint so far.
      log_id: the id that every segment with an id must have; None = the first segment with an id decides.
    """

    end: int | None = None
    term: int | None = None
    number: int = 0
    generation: int = 0
    commit_hint: int = 0
    log_id: bytes | None = None

    def check_log_id(self, header: SegmentHeader, path: str) -> None:
        """Refuse an intact segment of another log; one of a version that wrote no ids is accepted.

        Raises:
          ConfigError: gives the file and both ids. This is no disk damage: the file was put there by mistake.
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
                " group fetches the missing records from the others. Nothing was changed",
            )

    def enter(self, header: SegmentHeader) -> None:
        """Record a segment header that follows."""
        self.generation = header.generation
        self.end = header.first_index
        self.term = header.previous_term
        self.number = max(self.number, header.first_group - 1)


def why_not_next(header: SegmentHeader, number: int, state: ScanState) -> str:
    """Return why the header found in the file of segment ``number`` does not follow ``state``; "" = it does."""
    if header.number != number:
        return f"segment {header.number} in the file of segment {number}"
    if header.generation <= state.generation:
        return f"generation {header.generation} after {state.generation}"
    if header.first_group <= state.number:
        return f"first group {header.first_group} after group {state.number}"
    if state.end is not None and header.first_index != state.end:
        return f"first index {header.first_index} where {state.end} comes next"
    if state.term is not None and header.previous_term != state.term:
        return f"previous term {header.previous_term} after term {state.term}"
    return ""


@dataclass(slots=True, kw_only=True)
class SegmentScan:
    """The content of one segment file.

    ``size`` is that of the file, or the limit up to which it was read. ``header`` None = not readable. ``stop`` is the
    first place that is not understood, or the end of the file; ``rest`` and ``used`` describe the bytes from there to
    the end, and the number of bytes up to the last one that is not zero. ``later`` is an intact group after the stop
    that calls the stop durable: with a readable segment header the first one, else the newest. ``last_group`` is the
    last group that was read, ``commit_hint`` the highest in any.

    The other fields are of a tolerant pass: ``holes``; ``contradiction``, the first place where intact bytes do not
    follow from those before them; ``tail``, the bytes after everything that was read, BYTES also if it ends inside a
    group; and ``end``, the index after everything that was read, None = nothing was.
    """

    number: int
    path: str
    size: int
    header: SegmentHeader | None = None
    stop: Stop | None = None
    rest: Rest = Rest.NOTHING
    used: int = 0
    later: GroupHeader | None = None
    last_group: GroupHeader | None = None
    commit_hint: int = 0
    holes: list[Hole] = field(default_factory=list)
    contradiction: str = ""
    tail: Rest = Rest.NOTHING
    end: int | None = None

    @property
    def is_blank(self) -> bool:
        """Whether it holds nothing, or nothing but zeros."""
        return self.stop is not None and self.stop.location == 0 and self.rest is not Rest.BYTES

    @property
    def is_sealed(self) -> bool:
        """Whether the last group that was read is a seal, so that another segment follows."""
        return self.last_group is not None and self.last_group.seals

    @property
    def is_whole(self) -> bool:
        """Whether the file ends with a whole group, and all before it is intact, as in each segment but the last."""
        stop = self.stop
        is_read = stop is not None and stop.complete and not stop.contradicts and self.rest is Rest.NOTHING
        return is_read and self.header is not None

    @property
    def has_torn_end(self) -> bool:
        """Whether something is unreadable that no later group calls durable: torn, or rot that looks like it."""
        last = self.last_group
        return self.tail is Rest.BYTES or any(
            last is None or last.location < hole.location or last.durable <= hole.location for hole in self.holes
        )


class Window:
    """Reads a file in large pieces and returns views of them.

    A view stays valid as long as it is held, and keeps its whole piece in memory.
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


class SegmentScanner:
    """One forward pass over one segment file: :meth:`read_header`, iterate :meth:`items`, then read :attr:`scan`.

    Invariants:
      * every yielded batch has intact checksums; up to the stop it is tied to its group and continues ``state``
      * ``state`` describes the items that were yielded so far
    """

    def __init__(
        self,
        file: File,
        number: int,
        state: ScanState,
        *,
        limit: int | None = None,
        is_tolerant: bool = False,
        chunk_bytes: int = CHUNK_BYTES,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        """Prepare the pass; nothing is read yet.

        Args:
          file: the segment.
          number: the segment's number according to its name.
          state: the state that it must follow. A tolerant pass does without unknown fields of the segment before.
          limit: read as if the file were not longer, because a decided truncation has cut it there.
          is_tolerant: continue after bytes that are not understood.
          chunk_bytes: the size of one read.
          on_bytes: called regularly with the number of bytes that were processed.
        """
        size = file.size()
        self.scan = SegmentScan(number=number, path=file.path, size=size if limit is None else min(limit, size))
        self.state = state
        self._file = file
        self._is_tolerant = is_tolerant
        self._chunk_bytes = chunk_bytes
        self._window = Window(file, chunk_bytes)
        self._on_bytes = on_bytes
        self._told = 0
        self._generation: int | None = None
        """The generation of the segment; None = its header is not readable, and no group was read yet."""

    def read_header(self) -> bool:
        """Read the segment header; return whether it is there and follows ``state``. False sets the stop.

        Raises:
          ConfigError: the segment has a newer format, or is of another log.
        """
        state = self.state
        try:
            header = SegmentHeader.decode(self._window.peek(0, SEGMENT_HEADER_SIZE), self._file.path)
        except FrameError as error:
            self._set_stop(0, True, "a segment header", error.message)
            return False
        state.check_log_id(header, self._file.path)
        self.scan.header = header
        wrong = why_not_next(header, self.scan.number, state)
        if wrong:
            expected = "a segment header that follows the segment before"
            self._set_stop(0, True, expected, wrong, contradicts=True)
            self._note(0, 0, expected, wrong)
        if not wrong or self._is_tolerant:
            self._generation = header.generation
            state.enter(header)
        return not wrong

    def stop_at(
        self,
        location: int,
        *,
        complete: bool = True,
        contradicts: bool = False,
        expected: str = "a group or the end",
        found: str = Rest.NOTHING.value,
    ) -> Stop:
        """Return the stop of a pass that ends at ``location``, read up to there or not."""
        state = self.state
        return Stop(location, complete, contradicts, expected, found, state.end, state.term, state.number)

    def items(self, start: int = SEGMENT_HEADER_SIZE) -> Iterator[ScanItem]:
        """Yield each group header, then each of its batches with its location.

        A group can hold fewer batches than its header gives, if a truncation or a torn tail cut it: then the next group
        header, with a higher number, follows at a batch boundary. ``start`` is the location of a group.
        """
        scan, state, window = self.scan, self.state, self._window
        limit = scan.size
        at, durable, taken = start, 0, 0
        checksums: Sequence[int] = ()
        if scan.header is None:
            assert self._is_tolerant, "read_header comes first"
            if scan.is_blank:
                scan.tail = scan.rest
                self._tell(limit)
                return
            assert scan.stop is not None, "read_header sets it"
            at, taken = self._skip(0, scan.stop.expected, scan.stop.found, (), 0)
        while at < limit:
            if at - self._told >= self._chunk_bytes:
                self._tell(at)
            view = window.peek(at, HEADER_SIZE)
            if taken < len(checksums) and view[:4] != GROUP_MAGIC:
                expected = problem = ""
                try:
                    size = Batch.measure(view)
                    if size > limit - at:
                        raise FrameError(f"a batch of {size} bytes where {limit - at} are left")
                    batch = Batch.decode(window.peek(at, size))
                    if (checksum := batch_checksum(batch)) != checksums[taken]:
                        expected = f"the batch with header checksum {checksums[taken]:#010x} in group {state.number}"
                        problem = f"one with {checksum:#010x}"
                except FrameError as error:
                    expected = f"batch {taken + 1} of {len(checksums)} of group {state.number}"
                    problem = error.message
                if problem:
                    self._set_stop(at, False, expected, problem)
                    if not self._is_tolerant:
                        return
                    unreadable = self._header_alone(at, view, checksums[taken], problem)
                    if unreadable is None:
                        at, taken = self._skip(at, expected, problem, checksums, taken)
                    else:
                        yield unreadable
                        state.end, state.term = unreadable.batch.end, unreadable.batch.term
                        at += unreadable.batch.size
                        taken += 1
                    continue
                follows = state.end is None or batch.first_index == state.end
                if not follows or batch.term < (state.term or 0):
                    expected = f"a batch at index {state.end}, of term {state.term} or later"
                    self._set_stop(at, False, expected, f"{batch!r}", contradicts=True)
                    if not self._is_tolerant:
                        return
                    self._note(at, at + size, expected, f"{batch!r}")
                    follows = batch.first_index >= (state.end or 0)
                    if not follows:
                        at, taken = at + size, taken + 1
                        continue
                if state.end is None:
                    self._close_hole(batch.first_index)
                yield at, batch
                taken += 1
                state.end = batch.end
                state.term = batch.term
                at += size
                continue
            group, problem = self._group_at(at)
            if group is None:
                is_complete = taken == len(checksums)
                expected = f"a group with a number above {state.number}"
                self._set_stop(at, is_complete, expected, problem)
                if not self._is_tolerant:
                    return
                if is_complete and rest_of(self._file, at, scan.size)[0] is Rest.ZEROS:
                    scan.tail = Rest.ZEROS
                    break
                checksums, taken = (), 0
                orphans = self._find_orphans(at, expected, problem) if is_complete else 0
                if orphans:
                    at = orphans
                    while state.end is not None and (orphan := self._next_orphan(at, state.end, state.term)):
                        yield at, orphan
                        at += orphan.size
                        state.end, state.term = orphan.end, orphan.term
                else:
                    at, _ = self._skip(at, expected, problem, (), 0)
                continue
            if (state.end is not None and group.first_index != state.end) or not durable <= group.durable <= at:
                expected = f"a group at index {state.end}, durable up to {durable}..{at}"
                found = f"one at index {group.first_index}, durable up to {group.durable}"
                self._set_stop(at, taken == len(checksums), expected, found, contradicts=True)
                if not self._is_tolerant:
                    return
                self._note(at, at, expected, found)
            if state.end is None:
                self._close_hole(group.first_index)
            if state.end is None or group.first_index > state.end:
                state.end = group.first_index
            yield group
            scan.last_group = group
            durable = group.durable
            self._generation = state.generation = group.generation
            state.number = group.number
            state.commit_hint = max(state.commit_hint, group.commit_hint)
            scan.commit_hint = max(scan.commit_hint, group.commit_hint)
            checksums, taken = group.checksums, 0
            at += group.size
            if not 0 < group.body_size <= min(self._chunk_bytes, limit - at):
                continue
            # Nearly always the whole group is intact. A damaged one is read again above, batch by batch.
            body, offset, end, term = window.peek(at, group.body_size), 0, state.end, state.term or 0
            for checksum in checksums:
                listed = Batch.decode_listed(body, offset, checksum)
                if listed is None or listed.first_index != end or listed.term < term:
                    break
                yield at + offset, listed
                taken += 1
                offset += listed.size
                end, term = listed.end, listed.term
                state.end, state.term = end, term
            at += offset
        if taken < len(checksums):
            scan.tail = Rest.BYTES
        if scan.stop is None:
            self._set_stop(at, taken == len(checksums), "a group or the end", Rest.NOTHING.value)
        scan.end = state.end
        self._tell(limit)

    def _tell(self, at: int) -> None:
        if self._on_bytes is not None:
            self._on_bytes(at - self._told)
        self._told = at

    # -- for a strict pass -----------------------------------------------------------------------

    def _group_at(self, at: int) -> tuple[GroupHeader | None, str]:
        """Return the intact group header that was written for this place, or why there is none.

        One that was written for another place or an earlier time is none: bytes that only look like a header (inside a
        record, or of an earlier life of the file) fail its checksum, its location, its generation or its number.
        """
        window = self._window
        try:
            view = window.peek(at, GROUP_HEADER_SIZE)
            group = GroupHeader.decode(window.peek(at, GroupHeader.measure(view)))
        except FrameError as error:
            return None, error.message
        return (None, problem) if (problem := self._is_stale(group, at)) else (group, "")

    def _is_stale(self, group: GroupHeader, at: int) -> str:
        """Return why an intact group header belongs to another place or an earlier time; "" = it does not."""
        if group.location != at:
            return f"a group that was written at byte {group.location}"
        if self._generation is None:
            if group.generation <= self.state.generation:
                return f"a group of generation {group.generation} after generation {self.state.generation}"
        elif group.generation != self._generation:
            return f"a group of generation {group.generation} in a segment of generation {self._generation}"
        if group.number <= self.state.number:
            return f"group {group.number} after group {self.state.number}"
        return ""

    def _set_stop(self, at: int, complete: bool, expected: str, found: str, *, contradicts: bool = False) -> None:
        """Record the first place that is not understood, and the bytes after it; later places are ignored."""
        scan = self.scan
        if scan.stop is not None:
            return
        scan.stop = self.stop_at(at, complete=complete, contradicts=contradicts, expected=expected, found=found)
        scan.rest, scan.used = rest_of(self._file, at, scan.size)
        if scan.rest is Rest.BYTES:
            scan.later = self._later_durable(at)

    def _later_durable(self, location: int) -> GroupHeader | None:
        """Search after ``location`` for an intact group that calls a byte beyond it durable.

        Such a group was written after everything before it had been synced, so the unreadable bytes at ``location``
        were durable once.
        """
        newest: GroupHeader | None = None
        self._window = Window(self._file, self._chunk_bytes)  # A running node may have written since the last read.
        for place, _ in self._candidates(location + 1, batches=False):
            group, _ = self._group_at(place)
            if group is not None and group.durable > location:
                if self._generation is not None:
                    return group
                newest = group if newest is None or group.number > newest.number else newest
        return newest

    # -- for a tolerant pass only ----------------------------------------------------------------

    def _note(self, at: int, end: int, expected: str, found: str) -> None:
        """Record a contradiction between intact bytes, at which no record is lost."""
        index = self.state.end
        self.scan.holes.append(Hole(at, end, index, index, expected, found))
        self.scan.contradiction = self.scan.contradiction or f"{expected}, found {found}, at byte {at}"

    def _close_hole(self, index: int) -> None:
        """Continue at ``index``; a hole before it that has no end yet ends there."""
        holes = self.scan.holes
        if self.state.end is None and holes and holes[-1].end is None:
            holes[-1].end = index

    def _header_alone(self, at: int, view: memoryview, checksum: int, problem: str) -> UnreadableBatch | None:
        """Return the batch at ``at`` if its header alone is intact, and is the one that the group lists."""
        try:
            batch = Batch.decode_header(view)
        except FrameError:
            return None
        index = self.state.end
        is_next = index is None or batch.first_index == index
        if not is_next or batch_checksum(batch) != checksum or batch.size > self.scan.size - at:
            return None
        self._close_hole(batch.first_index)
        end = at + batch.size
        self.scan.holes.append(Hole(at, end, batch.first_index, batch.end, f"the body of {batch!r}", problem))
        return UnreadableBatch(at, batch)

    def _skip(self, at: int, expected: str, found: str, checksums: Sequence[int], taken: int) -> tuple[int, int]:
        """Record that the bytes at ``at`` are not readable; return the next readable place.

        Also returns how many batches of the group lie before that place.
        """
        size = self.scan.size
        hole = Hole(at, size, self.state.end, None, expected, found)
        self.scan.holes.append(hole)
        self.state.end, self.state.term = None, None
        left = {checksum: number for number, checksum in enumerate(checksums) if number >= taken}
        for place, magic in self._candidates(at + 1, batches=bool(left)):
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
            hole.end_location = place
            return place, taken
        self.scan.tail = Rest.BYTES
        return size, len(checksums)

    def _candidates(self, start: int, *, batches: bool) -> Iterator[tuple[int, bytes]]:
        """Yield where a group header, or a batch, may begin, in order."""
        overlap = len(GROUP_MAGIC) - 1
        size = self.scan.size
        at = start
        while at < size:
            chunk = self._file.read(at, min(self._chunk_bytes, size - at))
            places = [(place, GROUP_MAGIC) for place in _find_all(chunk, GROUP_MAGIC)]
            if batches:
                places += [(place, _BATCH_MAGIC) for place in _find_all(chunk, _BATCH_MAGIC)]
            for place, magic in sorted(places):
                yield at + place, magic
            if at + len(chunk) >= size:
                return
            at += len(chunk) - overlap

    def _find_orphans(self, at: int, expected: str, found: str) -> int:
        """Return the beginning of the batches after a damaged group header, if they certainly follow.

        Their number, and so the place of the first, was in that header, so all places are tried. Bytes inside a record
        cannot match at such a place, and would not follow.
        """
        index, term = self.state.end, self.state.term
        if index is None or term is None:
            return 0
        block = self._window.peek(at, min(_GROUP_HEADER_BYTES_MAX + HEADER_SIZE, self.scan.size - at))
        for place in range(GROUP_HEADER_SIZE + 8, len(block) - HEADER_SIZE + 1, 8):
            if bytes(block[place : place + 4]) == _BATCH_MAGIC and self._next_orphan(at + place, index, term):
                self.scan.holes.append(Hole(at, at + place, index, index, expected, found))
                return at + place
        return 0

    def _next_orphan(self, at: int, index: int, term: int | None) -> Batch | None:
        """Return the intact batch at ``at`` if it is the one at ``index`` after a record of ``term``."""
        try:
            view = self._window.peek(at, HEADER_SIZE)
            size = Batch.measure(view)
            if size > self.scan.size - at:
                return None
            batch = Batch.decode(self._window.peek(at, size))
        except FrameError:
            return None
        return batch if batch.first_index == index and batch.previous_term == term else None


def batches_from(window: Window, location: int, length: int) -> Iterator[tuple[int, Batch]]:
    """Yield the batches, with their places, of a segment that is intact up to ``length``, from a boundary on.

    Raises:
      FrameError: it is not.
    """
    at = location
    while at < length:
        view = window.peek(at, HEADER_SIZE)
        if view[:4] == GROUP_MAGIC:
            at += GroupHeader.measure(view)
            continue
        batch = Batch.decode(window.peek(at, Batch.measure(view)))
        yield at, batch
        at += batch.size


def rest_of(file: File, location: int, size: int) -> tuple[Rest, int]:
    """Return the content from ``location`` to byte ``size``, and the length up to the last byte that is not zero."""
    if location >= size:
        return Rest.NOTHING, 0
    used = 0
    for at in range(location, size, CHUNK_BYTES):
        chunk = file.read(at, min(CHUNK_BYTES, size - at))
        if chunk.count(0) != len(chunk):
            used = at + len(chunk.rstrip(b"\0")) - location
    return (Rest.BYTES, used) if used else (Rest.ZEROS, 0)


def read_segment_header(disk: Disk, path: str) -> SegmentHeader | None:
    """Return the header of a segment file, None = it is not readable; blocking.

    Raises:
      ConfigError: it has a newer format.
      StorageError, FileNotFoundError: the file cannot be read.
    """
    file = disk.open_read(path)
    try:
        return SegmentHeader.decode(file.read(0, SEGMENT_HEADER_SIZE), path)
    except FrameError:
        return None
    finally:
        file.close()


def _find_all(chunk: bytes, magic: bytes) -> Iterator[int]:
    at = chunk.find(magic)
    while at >= 0:
        yield at
        at = chunk.find(magic, at + 1)
