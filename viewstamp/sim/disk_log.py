"""The logs and memberships on the machines' disks, read from the bytes themselves.

Neither the log's nor the core's own account of the synced end is trusted. Only bytes that changed since the last look
are read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from viewstamp.errors import CorruptionError, FrameError
from viewstamp.host.interfaces import Buffer, File
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.node.snapshots.file import read_header, read_pieces
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.volume import Inode, Volume
from viewstamp.wal.format import (
    GROUP_MAGIC,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    SegmentHeader,
    batch_checksum,
    parse_segment_name,
    segment_name,
)
from viewstamp.wal.truncation import MARK_NAME, Mark
from viewstamp.wire.batch import HEADER_SIZE, Batch

if TYPE_CHECKING:
    from viewstamp.consensus.invariants import Facts
    from viewstamp.consensus.membership import Membership, MembershipEntry
    from viewstamp.consensus.state import Core

__all__ = ["DiskLog", "DiskLogs", "Terms", "core_of"]

Terms = Sequence[tuple[int, int]]
"""(term, index of its first record), rising in both."""


@dataclass(slots=True)
class _Segment:
    """The part of one segment file that has been read. ``at`` is the byte behind it, ``end`` the index."""

    inode: Inode
    is_cached: bool
    header: SegmentHeader | None = None
    at: int = 0
    end: int = 0
    group: int = 0
    checksums: Sequence[int] = ()
    taken: int = 0
    terms: list[tuple[int, int]] = field(default_factory=list)
    version: int = -1
    durable: int = 0
    """The ``durable`` field of its last group, a byte offset."""

    def read_on(self) -> bool:
        """Read the bytes that have become certain since the last look; from the start if read bytes have changed.

        Return whether anything was read, or must be read again.
        """
        inode = self.inode
        is_again = inode.lowest_change < self.at
        if is_again:
            self.header, self.at, self.end, self.group, self.taken = None, 0, 0, 0, 0
            self.checksums, self.terms = (), []
        inode.lowest_change = len(inode.data) + 1
        self.version = inode.version
        size = len(inode.data) if self.is_cached else inode.certain_size()
        start = self.at
        if size <= start:
            return is_again
        view = bytes(inode.data[start:size])
        try:
            if self.header is None:
                header = self.header = SegmentHeader.decode(view, "")
                self.at, self.end, self.group = SEGMENT_HEADER_SIZE, header.first_index, header.first_group - 1
            while self._read_next(memoryview(view)[self.at - start :]):
                pass
        except FrameError:
            pass  # The log ends here, for now.
        return is_again or self.at > start

    def _read_next(self, view: memoryview) -> bool:
        """Read the next group header or batch at the start of ``view``; return whether there was one."""
        assert self.header is not None, "it is read first"
        if self.taken < len(self.checksums) and view[:4] != GROUP_MAGIC:
            size = Batch.measure(view[:HEADER_SIZE])
            if size > len(view):
                return False
            batch = Batch.decode(view[:size])
            if batch_checksum(batch) != self.checksums[self.taken] or batch.first_index != self.end:
                return False
            if not self.terms or self.terms[-1][0] != batch.term:
                self.terms.append((batch.term, batch.first_index))
            self.taken += 1
            self.end = batch.end
            self.at += size
            return True
        size = GroupHeader.measure(view)
        if size > len(view):
            return False
        group = GroupHeader.decode(view[:size])
        if group.generation != self.header.generation or group.location != self.at or group.number <= self.group:
            return False
        if group.first_index != self.end:
            return False
        self.group, self.checksums, self.taken, self.durable = group.number, group.checksums, 0, group.durable
        self.at += size
        return True


class DiskLog:
    """The certain contents of one disk: the end of its log, and the terms.

    Invariants:
      * ``end`` and ``terms`` are those of the latest :meth:`look`; ``end`` 1 = nothing
      * an intact snapshot covers the records below the log's first one
    """

    def __init__(self, data_dir: str, *, is_cached: bool = False) -> None:
        """Prepare to read ``data_dir``; with ``is_cached``, as a reader sees it instead of as a power cut leaves it."""
        self._is_cached = is_cached
        self.end = 1
        self.first = 1
        """The first record in the log; equal to the end if there is none."""
        self.reached = 1
        """The end of the segments alone, without snapshots."""
        self.has_gap = False
        """Whether records that topics keep are missing in the log below its newest snapshot."""
        self.terms: Terms = ()
        self._wal = f"{data_dir}/wal"
        self._snapshots = f"{data_dir}/snapshots"
        self._segments: dict[int, _Segment] = {}
        self._whole: dict[Inode, tuple[int, bool]] = {}
        """By snapshot file: the version that was checked, and whether it was intact."""
        self._listed: tuple[Mapping[str, Inode], Mapping[str, Inode]] | None = None
        """The names of segments and snapshots at the latest look ..."""
        self._others: list[tuple[Inode, int]] = []
        """... and the files besides segments that it read, with their versions."""

    @property
    def pair(self) -> tuple[int, int]:
        """(last term, end)."""
        return (self.terms[-1][0] if self.terms else 0, self.end)

    def look(self, volume: Volume) -> bool:
        """Read the disk; return whether something has changed."""
        listed = self._names(volume, self._wal), self._names(volume, self._snapshots)
        if not self._is_different(*listed):
            return False
        before = self.end, self.has_gap, self.terms
        self._look(volume, *listed)
        self._listed = listed
        return before != (self.end, self.has_gap, self.terms)

    def _is_different(self, names: Mapping[str, Inode], snapshots: Mapping[str, Inode]) -> bool:
        """Return whether a file or a name has changed since the latest look; a volume never changes a mapping."""
        if self._listed is None or self._listed[0] is not names or self._listed[1] is not snapshots:
            return True
        is_read = False
        for segment in self._segments.values():
            if segment.version != segment.inode.version:
                is_read |= segment.read_on()
        return is_read or any(inode.version != version for inode, version in self._others)

    def _look(self, volume: Volume, names: Mapping[str, Inode], snapshots: Mapping[str, Inode]) -> None:
        self._others = [(inode, inode.version) for inode in snapshots.values()]
        snapshot_end, snapshot_term = self._snapshot(snapshots)
        numbers = {number: name for name in names if (number := parse_segment_name(name)) is not None}
        segments: dict[int, _Segment] = {}
        for number in sorted(numbers):
            inode = names[numbers[number]]
            segment = self._segments.get(number)
            if segment is None or segment.inode is not inode:
                segment = _Segment(inode, self._is_cached)
                inode.lowest_change = 0
            if segment.version != inode.version:
                segment.read_on()
            segments[number] = segment
        self._segments = segments
        self.first, self.has_gap = 0, False
        terms: list[tuple[int, int]] = [(snapshot_term, snapshot_end - 1)] if snapshot_end > 1 else []
        reached = 0
        is_unread = False
        for number, segment in segments.items():
            header = segment.header
            if header is None or header.number != number:
                is_unread = True
                continue
            self.has_gap |= is_unread
            self.first = self.first or header.first_index
            if header.first_index != reached:
                if header.first_index > snapshot_end:
                    break
                # The log is read from a snapshot on, even if records before it are missing.
                self.has_gap |= reached > 0
                terms = []
            reached = segment.end
            terms += [run for run in segment.terms if not terms or run[0] != terms[-1][0]]
        if reached < snapshot_end and reached:
            self.has_gap, terms = True, [(snapshot_term, snapshot_end - 1)]
        self.reached = max(1, reached)
        self.end = max(reached, snapshot_end)
        self.first = self.first or self.end
        self.terms = tuple(terms)
        self._end_at_mark(volume, snapshot_end)

    def _end_at_mark(self, volume: Volume, snapshot_end: int) -> None:
        """Let the log end at the mark of a truncation that has been decided, or may have been."""
        path = f"{self._wal}/{MARK_NAME}"
        if not self._is_cached:
            marks = volume.possible(path)
        else:
            marks = [volume.find(path)] if volume.exists(path) else []
        for inode in marks:
            self._others.append((inode, inode.version))
            try:
                mark = Mark.decode(bytes(inode.data))
            except FrameError:
                continue
            end = min(mark.end, snapshot_end) if mark.resets else mark.end
            if end < self.end:
                self.end = end
                self.terms = tuple(run for run in self.terms if run[1] < end)

    def _snapshot(self, files: Mapping[str, Inode]) -> tuple[int, int]:
        """Return the end and the last term of the newest intact snapshot; (1, 0) = there is none."""
        newest = (1, 0)
        for name, inode in files.items():
            if not name.endswith(".snapshot"):
                continue
            known = self._whole.get(inode)
            if known is None or known[0] != inode.version:
                known = self._whole[inode] = inode.version, self._is_whole(inode)
            if known[1]:
                end, _, term = posixpath.splitext(name)[0].partition("-")
                newest = max(newest, (int(end), int(term)))
        return newest

    def _names(self, volume: Volume, directory: str) -> Mapping[str, Inode]:
        return volume.names(directory) if self._is_cached else volume.certain_names(directory)

    def _is_whole(self, inode: Inode) -> bool:
        return (self._is_cached or inode.certain_size() >= len(inode.data)) and _is_whole(inode)

    def paths(self) -> list[str]:
        """Return the paths of the written segments, in order."""
        return [f"{self._wal}/{segment_name(number)}" for number, each in self._segments.items() if each.header]

    def log_id(self, path: str) -> bytes:
        """Return the log id in a segment of :meth:`paths`."""
        number = parse_segment_name(posixpath.basename(path))
        header = self._segments[number].header if number is not None else None
        assert header is not None, "the path is one of ``paths``"
        return header.log_id

    @property
    def newest(self) -> tuple[str, int] | None:
        """The last written segment, and the number of its bytes that hold groups; None = there is none."""
        paths = self.paths()
        if not paths:
            return None
        number = parse_segment_name(posixpath.basename(paths[-1]))
        assert number is not None, "the path is one of ``paths``"
        return paths[-1], self._segments[number].at

    def written(self, path: str) -> int:
        """Return the byte up to which a later write shows that a segment was durable."""
        numbers = list(self._segments)
        number = parse_segment_name(posixpath.basename(path))
        assert number is not None, "the path is one of ``paths``"
        segment = self._segments[number]
        return segment.durable if number == numbers[-1] else segment.at


def _is_whole(inode: Inode) -> bool:
    file = _Bytes(bytes(inode.data))
    try:
        for _ in read_pieces(file, read_header(file)):
            pass
    except CorruptionError:
        return False
    return True


def core_of(member: Member, group: GroupId) -> Core | None:
    """Return the core of a group on a running node; None = it does not run."""
    hosted = member.node.groups.get(group) if member.node is not None else None
    return hosted.replica.raft.core if hosted is not None and hosted.replica is not None else None


class _Bytes(File):
    """A readable file of given bytes."""

    path = "a snapshot"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        pass

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        raise NotImplementedError

    sync = sync_data = truncate = write  # type: ignore[assignment]


class DiskLogs:
    """The logs of a group on all machines, and its newest committed membership."""

    def __init__(self, cluster: Cluster, facts: Facts, group: GroupId = GROUP_0) -> None:
        self.by_name: dict[str, DiskLog] = {}
        """The log on each machine's disk."""
        self.entry: MembershipEntry | None = None
        """The newest committed membership and its place; None = no node has run yet."""
        self._cluster = cluster
        self._facts = facts
        self._group = group
        self._seen: dict[str, int] = {}
        self._commit_end = 0

    @property
    def membership(self) -> Membership | None:
        """The newest committed one; None = no node has run yet."""
        return self.entry.membership if self.entry is not None else None

    def look(self, written: Iterable[Member] | None = None) -> bool:
        """Read the disks that were written since the last look; return whether the log on one of them changed.

        ``written``: the members whose disks may have been written since; None = all.
        """
        is_changed = False
        for member in self._cluster.members if written is None else written:
            changes = member.disk.changes
            if self._seen.get(member.name) != changes:
                self._seen[member.name] = changes
                log = self.by_name.get(member.name)
                if log is None:
                    is_cached = self._cluster.swarm.sync_seconds > 0
                    log = self.by_name[member.name] = DiskLog(member.directory_of(self._group), is_cached=is_cached)
                is_changed |= log.look(member.disk.volume)
        return is_changed

    def learn_membership(self) -> None:
        """Store the newest committed membership, as the node with the highest commit end has it."""
        if self._facts.committed_end == self._commit_end and self.entry is not None:
            return
        self._commit_end = self._facts.committed_end
        for member in self._cluster.members:
            core = core_of(member, self._group)
            if core is None:
                continue
            if self.entry is None or core.log.commit_end == self._facts.committed_end:
                committed = [entry for entry in core.memberships if entry.index < core.log.commit_end]
                self.entry = (committed or core.memberships)[-1 if committed else 0]
