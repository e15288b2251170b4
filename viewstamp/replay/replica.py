"""Assembles one member's files: its log with its holes, its identity, and its claim in an election.

A *finding* is a deviation from a healthy directory; no finding ends a replay by itself. A replica is ``certain`` if its
identity and the end of its log are known, because an election needs both. A hole in the middle does not change that; a
lost last segment or control file does. A replica that is not certain still provides its batches.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.standing import Claim, Pair
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import ConfigError, CorruptionError, PeerError, StorageError
from viewstamp.host.clock import read_boot_id
from viewstamp.host.interfaces import Disk
from viewstamp.ids import GroupId, Index, NodeId, Term
from viewstamp.node.data_dir import GROUPS_NAME, directories_of_groups
from viewstamp.node.running_mark import UNKNOWN_END, mark_started
from viewstamp.node.snapshots.file import SnapshotMeta, read_header, read_trailer
from viewstamp.replay.headers import BatchTable, SegmentTable, scan_segment
from viewstamp.wal.control_file import CONTROL_NAMES, ControlState, read_control_state
from viewstamp.wal.format import parse_segment_name, segment_name
from viewstamp.wal.scan import Hole, Rest, ScanState, SegmentScan, Stop
from viewstamp.wal.verdict import Corruption, Fact, Known, LogScan, is_being_installed, judge, reached_end
from viewstamp.wire.batch import Kind

__all__ = [
    "ReplicaFiles",
    "ReplicaFinding",
    "SegmentFile",
    "Snapshot",
    "assemble",
    "describe_loss",
    "find_replicas",
    "list_segments",
    "read_replica",
    "scan",
]

WAL = "wal"
_SNAPSHOT = re.compile(r"\d{20}-\d+\.snapshot", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReplicaFinding:
    """A deviation from a healthy directory: its ``kind`` in a word or two, the file and byte, and a description."""

    kind: str
    path: str
    location: int
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.path} at byte {self.location}: {self.text}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot with an intact header and trailer; its pieces are verified when they are loaded."""

    path: str
    meta: SnapshotMeta


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment to scan; for ``limit`` see :func:`viewstamp.replay.headers.scan_segment`."""

    path: str
    number: int
    limit: int | None = None


@dataclass(slots=True, kw_only=True)
class ReplicaFiles:
    """The content of one directory.

    ``name`` is for messages: the node's id, or the directory. ``paths`` are the segments to which ``rows.files``
    refers. ``state`` None = the control file is lost. ``first_index`` and ``end`` are those of the log as a node would
    recover it; ``pair`` is what it would advertise in an election: (last term of its history, end). ``memberships`` are
    those in its log, oldest first; the last one is in force. All records below ``commit_hint`` were committed; this log
    held those below ``log_hint``.
    """

    directory: str
    name: str
    state: ControlState | None
    history: TermHistory | None
    rows: BatchTable
    paths: list[str]
    first_index: int
    end: int
    is_certain: bool
    pair: tuple[int, int]
    log_hint: int
    commit_hint: int
    memberships: tuple[MembershipEntry, ...]
    snapshots: list[Snapshot]
    holes: list[Hole] = field(default_factory=list)
    findings: list[ReplicaFinding] = field(default_factory=list)

    @property
    def member(self) -> NodeId:
        """The id of the member in its group: the node's name, or another id since the node lost its disk."""
        return NodeId((self.state.member_id or self.state.node_id) if self.state is not None else self.name)

    @property
    def claim(self) -> Claim | None:
        """The claim of this member in an election; None = its identity or the end of its log is unknown.

        A directory of a node in interval mode that did not stop cleanly may lack acknowledged records, unless it is
        read on the machine that wrote it, in the same boot.
        """
        if self.state is None or not self.is_certain:
            return None
        state = mark_started(self.state, read_boot_id(), is_interval=False)
        return Claim(
            member=self.member,
            incarnation=state.incarnation,
            pair=(Term(self.pair[0]), Index(self.pair[1])),
            recovering_until=_pair(state.recovering_until),
            lost_power=state.lost_power,
            memberships=self.memberships,
            met={NodeId(node): incarnation for node, incarnation in state.peers},
        )

    def term_at(self, index: int) -> int | None:
        """Return the term of the record at ``index`` by the stored history; None = the history does not cover it."""
        history = self.history
        if history is None or index < history.starts[0].begin or index >= self.end:
            return None
        return history.term_at(Index(index))


def find_replicas(disk: Disk, paths: Sequence[str]) -> list[str]:
    """Return the data directories that ``paths`` name: each itself, or all those in the directory of a cluster.

    Raises:
      ConfigError: a path is not a data directory and contains none, or one is named twice.
    """
    found: list[str] = []
    for given in paths:
        path = posixpath.normpath(given)
        if posixpath.basename(path) == WAL and _is_data_directory(disk, posixpath.dirname(path)):
            path = posixpath.dirname(path)
        inside = [f"{path}/{name}" for name in disk.list_directory(path)]
        members = [path] if _is_replica(disk, path) else [each for each in inside if _is_data_directory(disk, each)]
        if not members:
            raise ConfigError(
                f"{given} has no log",
                remedy="name the data directories of nodes (each has control-a, control-b and wal), or the directory of"
                " a local cluster",
            )
        found += members
    for path in found:
        if found.count(path) > 1:
            raise ConfigError(f"{path} is named twice", remedy="name each replica once, because replicas are counted")
    return found


def _is_data_directory(disk: Disk, path: str) -> bool:
    return any(disk.exists(f"{path}/{name}") for name in (*CONTROL_NAMES, WAL))


def _is_replica(disk: Disk, path: str) -> bool:
    return _is_data_directory(disk, path) or any(parse_segment_name(name) for name in disk.list_directory(path))


def list_segments(disk: Disk, directory: str) -> list[SegmentFile]:
    """Return the segments of a replica in order, without those that a truncation has decided to drop."""
    log = _log_directory(disk, directory)
    found = LogScan.of(disk, log)
    if found.mark is not None and found.mark.resets:
        return []
    return [SegmentFile(f"{log}/{segment_name(n)}", n, found.limit(n)) for n in found.numbers]


def read_replica(disk: Disk, directory: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> ReplicaFiles:
    """Read all of a replica once: its segments, its control file, the frames of its snapshots; blocking.

    Raises:
      ConfigError: one of its files has a newer format.
    """
    return assemble(disk, directory, [scan(disk, file, on_bytes) for file in list_segments(disk, directory)])


def scan(disk: Disk, file: SegmentFile, on_bytes: Callable[[int], None] = lambda _: None) -> SegmentTable:
    """Scan one segment. A file that cannot be read is treated as one hole."""
    try:
        return scan_segment(disk, file.path, file.number, limit=file.limit, on_bytes=on_bytes)
    except (StorageError, FileNotFoundError) as error:
        scan = SegmentScan(number=file.number, path=file.path, size=0, rest=Rest.BYTES, tail=Rest.BYTES)
        scan.stop = Stop(0, False, True, "a segment", str(error), None, None, 0)
        scan.holes.append(Hole(0, 0, None, None, "a segment", str(error)))
        return SegmentTable(scan)


def assemble(disk: Disk, directory: str, tables: Sequence[SegmentTable]) -> ReplicaFiles:
    """Assemble a replica from the tables of its segments, in their order.

    Raises:
      ConfigError: one of its files has a newer format.
    """
    return _Assembly(disk, directory, tables).replica()


def _log_directory(disk: Disk, directory: str) -> str:
    log = f"{directory}/{WAL}"
    return log if disk.exists(log) or not _is_replica(disk, directory) else directory


class _Assembly:
    """Interprets the scans of one directory. The order of the steps matters, because each builds on the ones before."""

    def __init__(self, disk: Disk, directory: str, tables: Sequence[SegmentTable]) -> None:
        self._disk = disk
        self._directory = directory
        self._log = _log_directory(disk, directory)
        self._tables = tables
        self._scan = LogScan.of(disk, self._log)
        self._findings: list[ReplicaFinding] = []
        self._is_certain = True
        self._holes: list[Hole] = []
        self._rows = BatchTable()

    def replica(self) -> ReplicaFiles:
        state, history = self._read_control()
        self._check_log_ids(state)
        mark = self._scan.mark
        snapshots = list(self._read_snapshots(state))
        known = Known.of(self._disk, self._directory, state)
        if state is None:
            known = replace(known, first_index_max=None)
        hint = max([known.end, *(table.scan.commit_hint for table in self._tables)])
        end = self._take_segments(known)
        first_index = self._first_index(end)
        if mark is not None and mark.resets:
            first_index = end = mark.end
        elif not self._tables:
            self._find("missing", self._log, 0, "there is no segment")
            self._is_certain = False
        if history is not None and not self._describes(history):
            self._is_certain = False
        newest = snapshots[0] if snapshots else None
        is_reset = newest is not None and not self._holds(newest, end, history)
        if newest is not None and is_reset:
            if not is_being_installed(state, newest.meta.end, newest.meta.term):
                text = f"the log does not hold the last record of {newest.path}, and that was not being installed"
                self._find("contradiction", self._log, 0, text)
                self._is_certain = False
            # The snapshot's records are committed in either case; a node that was installing it resets its log to it.
            first_index = end = newest.meta.end
            history = TermHistory(newest.meta.history)
        if newest is None and first_index > 1:
            self._find("missing", self._log, 0, f"the log begins at index {first_index}, and there is no snapshot")
        replica = ReplicaFiles(
            directory=self._directory,
            name=state.node_id if state is not None else self._directory,
            state=state,
            history=history,
            rows=self._rows,
            paths=[table.scan.path for table in self._tables],
            first_index=first_index,
            end=end,
            is_certain=self._is_certain,
            pair=(self._last_term(history, end), end),
            log_hint=hint,
            commit_hint=max([hint, *(each.meta.end for each in snapshots)]),
            memberships=tuple(self._memberships(state, newest, 0 if is_reset else end)),
            snapshots=snapshots,
            holes=self._holes,
            findings=self._findings,
        )
        if holder := self._disk.lock_holder(self._directory):
            text = f"{holder} has it open: records that it writes from now on may be missing, and files may change"
            self._find("running", f"{self._directory}/lock", 0, text)
        if groups := directories_of_groups(self._disk, self._directory):
            names = ", ".join(groups)
            text = f"the records of the groups {names} are not read; to read a group, name its directories"
            self._find("other groups", f"{self._directory}/{GROUPS_NAME}", 0, text)
        claim = replica.claim
        if claim is not None and claim.recovering is not None:
            text = describe_loss(replica.member, claim.recovering)
            self._find("recovering", f"{self._directory}/{CONTROL_NAMES[0]}", 0, f"{text}; it cannot vote")
        return replica

    def _check_log_ids(self, state: ControlState | None) -> None:
        """Reject segments of another log; raises ConfigError."""
        chain = ScanState(log_id=state.log_id if state is not None else None)
        for table in self._tables:
            if table.scan.header is not None:
                chain.check_log_id(table.scan.header, table.scan.path)

    def _find(self, kind: str, path: str, location: int, text: str) -> None:
        self._findings.append(ReplicaFinding(kind, path, location, text))

    # Control file and snapshots.

    def _read_control(self) -> tuple[ControlState | None, TermHistory | None]:
        path = f"{self._directory}/{CONTROL_NAMES[0]}"
        try:
            state = read_control_state(self._disk, self._directory)
            if state is not None:
                return state, TermHistory(state.history)
            problem = "there is no control file"
        except (CorruptionError, StorageError, PeerError) as error:
            problem = error.message
        text = f"{problem}: the owner of this log and its promises are unknown, so it takes no part in the election"
        self._find("no control file", path, 0, text)
        self._is_certain = False
        return None, None

    def _read_snapshots(self, state: ControlState | None) -> Iterator[Snapshot]:
        """Yield the snapshots with an intact frame, newest first, without those of another group."""
        directory = f"{self._directory}/snapshots"
        for name in sorted(self._disk.list_directory(directory), reverse=True):
            if not _SNAPSHOT.fullmatch(name):
                continue
            path = f"{directory}/{name}"
            try:
                file = self._disk.open_read(path)
                try:
                    header = read_header(file)
                    read_trailer(file, header)
                finally:
                    file.close()
            except (CorruptionError, StorageError, FileNotFoundError) as error:
                self._find("damaged snapshot", path, getattr(error, "location", 0), str(error))
                continue
            if state is not None and not header.meta.is_of(GroupId(state.group)):
                text = f"the snapshot is of group {header.meta.group}, the directory of group {state.group}"
                self._find("contradiction", path, 0, text)
                continue
            yield Snapshot(path, header.meta)

    # The log.

    def _take_segments(self, known: Known) -> int:
        """Add the rows of all segments; return the end of the log, as ``viewstamp.wal.verdict`` decides it."""
        scan = self._scan
        scan.segments = [table.scan for table in self._tables]
        if scan.segments and scan.segments[-1].is_blank and scan.mark is None:
            scan.unused = scan.segments.pop().number
        judged = judge(scan, known)
        reached = reached_end(scan, judged, known)
        if judged.verdict == "torn-tail":
            self._cut_torn_tail(self._tables[len(scan.segments) - 1], judged.end)
        for number, table in enumerate(self._tables):
            segment = table.scan
            if number and segment.number != (expected := self._tables[number - 1].scan.number + 1):
                self._find("missing", f"{self._log}/{segment_name(expected)}", 0, f"before segment {segment.number}")
            self._findings += [
                ReplicaFinding("damage", segment.path, hole.location, _text(hole)) for hole in segment.holes
            ]
            self._holes += segment.holes
            self._take_rows(number, table)
        if judged.corruption is not None:
            self._find_corruption(judged.decision.facts, judged.corruption)
        self._is_certain &= reached is not None and not any(segment.contradiction for segment in scan.segments)
        ends = [judged.end, self._rows_end, *(table.scan.end or 0 for table in self._tables)]
        return reached if reached is not None else max(ends)

    def _cut_torn_tail(self, table: SegmentTable, end: int) -> None:
        """Leave out the bytes of the last written segment from the first place on that cannot be decoded."""
        stop, rows = table.scan.stop, table.rows
        assert stop is not None, "a pass ends with a reason"
        text = f"expected {stop.expected}, found {stop.found}"
        text = f"{text}; the log ends at index {end}, and this node acknowledged nothing behind it"
        self._find("torn tail", table.scan.path, stop.location, text)
        kept = next((row for row in range(len(rows)) if rows.locations[row] >= stop.location), len(rows))
        table.rows = BatchTable()
        table.rows.extend(rows, 0, 0, kept)
        table.scan.holes = []

    def _take_rows(self, number: int, table: SegmentTable) -> None:
        rows, start = table.rows, 0
        while start < len(rows) and len(self._rows) and rows.link(start).first_index < self._rows_end:
            start += 1
        if start:
            text = f"it begins below index {self._rows_end}, which the segment before it reaches"
            self._find("contradiction", table.scan.path, 0, text)
            self._is_certain = False
        self._rows.extend(rows, number, start, len(rows))

    def _find_corruption(self, facts: frozenset[Fact], damage: Corruption) -> None:
        path = f"{self._log}/{damage.segment}"
        if any(found.path == path and found.location == damage.location for found in self._findings):
            return
        kinds = {Fact.MISSING: "missing", Fact.BELOW_HINT: "missing", Fact.CONTRADICTS: "contradiction"}
        kind = next((kind for fact, kind in kinds.items() if fact in facts), "damage")
        self._find(kind, path, damage.location, f"expected {damage.expected}, found {damage.found}")

    @property
    def _rows_end(self) -> int:
        return self._rows.link(len(self._rows) - 1).end if len(self._rows) else 1

    def _first_index(self, end: int) -> int:
        if not self._tables:
            return end
        first = self._tables[0].first_index
        return first if first is not None else (self._rows.link(0).first_index if len(self._rows) else end)

    def _describes(self, history: TermHistory) -> bool:
        """Check the stored history against the terms in the headers (protocol rule 20)."""
        begin = history.starts[0].begin
        taken = self._rows_end
        for table in self._tables:
            for term, first in table.term_starts:
                if begin <= first < taken and history.term_at(Index(first)) != term:
                    stored = history.term_at(Index(first))
                    text = f"index {first} has term {term}, but {stored} in the control file, which is of another log"
                    self._find("contradiction", table.scan.path, 0, text)
                    return False
        return True

    def _holds(self, snapshot: Snapshot, end: int, history: TermHistory | None) -> bool:
        """Return whether the log holds the snapshot's last record: its header and the history have the same term."""
        meta = snapshot.meta
        if end < meta.end:
            return False
        last = meta.end - 1
        if history is not None and (history.starts[0].begin > last or history.term_at(Index(last)) != meta.term):
            return False
        row = self._row_at(last)
        return row is None or self._rows.link(row).term == meta.term

    def _row_at(self, index: int) -> int | None:
        """Return the row that holds ``index``."""
        low, high = 0, len(self._rows)
        while low < high:
            middle = (low + high) // 2
            if self._rows.link(middle).end <= index:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self._rows) and self._rows.link(low).first_index <= index else None

    def _last_term(self, history: TermHistory | None, end: int) -> int:
        if history is not None:
            return history.advertised(Index(end)).last_term
        return self._rows.link(len(self._rows) - 1).term if len(self._rows) else 0

    def _memberships(self, state: ControlState | None, snapshot: Snapshot | None, end: int) -> list[MembershipEntry]:
        """Return the memberships that this member stores, oldest first; from its log those that end by ``end``.

        The membership at the trimmed prefix is in the control file, or in the newest snapshot.
        """
        found: list[MembershipEntry] = []
        if state is not None and state.membership:
            found.append(MembershipEntry(Index(0), Term(0), Membership.decode(state.membership)))
        if snapshot is not None:
            meta = snapshot.meta
            at, term = Index(meta.membership_index), Term(meta.membership_term)
            found.append(MembershipEntry(at, term, Membership.decode(meta.membership)))
        for row in self._rows.bodies:
            batch = self._rows.batch(row)
            if batch.kind is Kind.MEMBERSHIP and batch.end <= end:
                found.append(MembershipEntry(batch.first_index, batch.term, Membership.decode(batch.values()[0])))
        return sorted(found, key=lambda each: each.index)


def describe_loss(member: NodeId, pair: Pair) -> str:
    """Return the sentence for a member that has to regain ``pair`` before it counts (protocol rule 17)."""
    reach = f"up to index {pair[1] - 1}" if pair[1] < UNKNOWN_END else "up to an unknown index"
    lost = f"term {pair[0]}, {reach}"
    return (
        f"{member} lost a part of its log, and has not yet regained the records that it may have acknowledged: {lost}"
    )


def _pair(stored: tuple[int, int] | None) -> Pair | None:
    return None if stored is None else (Term(stored[0]), Index(stored[1]))


def _text(hole: Hole) -> str:
    lost = f", indices {hole.first or '?'} to {hole.end - 1 if hole.end else '?'}" if hole.first != hole.end else ""
    return f"expected {hole.expected}, found {hole.found}{lost}"
