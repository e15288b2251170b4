"""Writes the files of a stopped member from a backup, from which a fork then makes a new cluster.

The directory is a data directory of the old cluster: a control file, a snapshot and a log with committed records only.
Nothing but a fork may use it: its member id names no member, so no node starts on it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.manifest import LogCopy, Manifest, SnapshotCopy
from viewstamp.backup.objects import LogPiece
from viewstamp.backup.verify import BackupReader
from viewstamp.errors import CorruptionError, RequestError
from viewstamp.fork.build import remove_files
from viewstamp.host.garbage import create_anew
from viewstamp.host.interfaces import Disk
from viewstamp.ids import GroupId, Index, Term
from viewstamp.node.data_dir import GROUPS_NAME
from viewstamp.node.snapshots.file import read_header, read_pieces
from viewstamp.streams.cut import load_state
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.log import Wal, WalOptions
from viewstamp.wire.batch import Batch

__all__ = ["BackupChoice", "choose", "format_time", "write_directories"]

_NODE: Final = "backup"
"""The node id of the written files; no member can have it, because it is not one of the membership's."""
_SEGMENT_BYTES: Final = 16 * 1024 * 1024
_GROUP_BYTES: Final = 4 * 1024 * 1024
_LOG_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupChoice:
    """The objects that a restore needs.

    ``until`` and ``until_time`` are the cut, as given; both None = all of ``manifest``. ``pieces`` and ``snapshot`` are
    those of group 0. The other groups are restored as the manifest has them, because there is no cut then.
    """

    manifest: Manifest
    pieces: tuple[LogPiece, ...]
    snapshot: SnapshotCopy | None
    until: int | None
    until_time: int | None

    @property
    def begin(self) -> int:
        """The first index of the log."""
        return _begin_of(self.logs[0])

    @property
    def is_early(self) -> bool:
        """Whether the restored state may be older than that of the backup."""
        return self.until is not None or self.until_time is not None

    @property
    def size(self) -> int:
        """The bytes of all objects."""
        home = [*self.pieces, *(self.snapshot.parts if self.snapshot is not None else ())]
        return sum(each.size for each in [*home, *(found for log in self.manifest.groups for found in log.objects)])

    @property
    def logs(self) -> Sequence[LogCopy]:
        """The logs of all groups that are restored, that of group 0 first."""
        home = replace(self.manifest.group_0, log=self.pieces, snapshot=self.snapshot)
        return [home, *self.manifest.groups]


def choose(
    catalogue: BackupCatalogue, backup: str | None = None, *, until: int | None = None, until_time: int | None = None
) -> BackupChoice:
    """Choose the backup, and the pieces of the log, for a restore.

    Without a cut it is the named backup, or the newest. With one it is the oldest backup that was taken at or after the
    cut; its log begins as early as the pieces of earlier backups join it, and it starts from the newest snapshot of any
    backup that ends before the cut.

    Args:
      catalogue: of the target.
      backup: the id of a backup; None = see above.
      until: the last index to restore. A batch is restored as a whole, if all of it is at or below the index.
      until_time: restore records up to this log time, in microseconds since 1970.

    Raises:
      ConfigError: there is no such backup.
      RequestError: no backup reaches to the cut, or none begins before it; or the backup has several groups.
    """
    if until is None and until_time is None:
        manifest = catalogue.find(backup)
        return BackupChoice(
            manifest=manifest, pieces=manifest.log, snapshot=manifest.snapshot, until=None, until_time=None
        )
    newest = catalogue.find(backup)
    known = [each for each in catalogue.manifests if each.cluster == newest.cluster and each.end <= newest.end]
    reaching = [each for each in known if _reaches(each, until, until_time)]
    if not reaching:
        raise RequestError(
            f"the backups in {catalogue.where} end at index {newest.end - 1}, log time"
            f" {format_time(newest.log_time)}, and the cut is after that",
            remedy="leave --until out, which restores all of the newest backup",
        )
    manifest = newest if backup is not None else reaching[0]
    if manifest.groups:
        raise RequestError(
            f"backup {manifest.id} has the groups {', '.join(str(each.group) for each in manifest.groups)}, and an"
            " index or a time cuts group 0 only: topics with streams would lose the order of their records",
            remedy="leave --until out, and name the backup of that time by --backup: `viewstamp backup list`",
        )
    pieces = tuple(
        piece
        for piece in catalogue.pieces_up_to(manifest)
        if (until is None or piece.start <= until) and (until_time is None or piece.first_time <= until_time)
    )
    begin = pieces[0].start if pieces else manifest.begin
    snapshots = [
        snapshot
        for each in known
        if (snapshot := each.snapshot) is not None
        and snapshot.end >= begin
        and (until is None or snapshot.end - 1 <= until)
        and (until_time is None or snapshot.log_time <= until_time)
        and not catalogue.lacks(snapshot.parts)
    ]
    if not snapshots and begin > 1:
        oldest = min((each.snapshot.end for each in known if each.snapshot is not None), default=newest.end)
        raise RequestError(
            f"the backups in {catalogue.where} do not reach back to the cut: the oldest state in them ends at index"
            f" {oldest - 1}",
            remedy=f"choose an index from {oldest - 1} on, or a later time",
        )
    snapshot = max(snapshots, key=lambda each: each.end, default=None)
    return BackupChoice(manifest=manifest, pieces=pieces, snapshot=snapshot, until=until, until_time=until_time)


def write_directories(
    disk: Disk, directory: str, reader: BackupReader, choice: BackupChoice, entropy: random.Random
) -> None:
    """Write the files of a stopped member of the old cluster into ``directory``, with all groups of the backup.

    Blocking, durable on return. All objects are verified. The control file of each group is written behind its log,
    and that of group 0 last; leftovers of an interrupted attempt are removed first.

    Raises:
      CorruptionError: an object is missing or damaged.
      RequestError: records that topics kept at the time of the cut are in no backup.
      StorageError: the disk or the target failed; StorageFullError: the disk is full. Repeat it then.
    """
    home, *groups = choice.logs
    disk.make_directory(directory)
    remove_files(disk, directory)
    for log in groups:
        _write_directory(disk, f"{directory}/{GROUPS_NAME}/{log.group}", reader, choice, log, entropy)
    _write_directory(disk, directory, reader, choice, home, entropy)


def _write_directory(
    disk: Disk, directory: str, reader: BackupReader, choice: BackupChoice, log: LogCopy, entropy: random.Random
) -> None:
    disk.make_directory(directory)
    if log.snapshot is not None:
        path = _write_snapshot(disk, f"{directory}/snapshots", reader, log.snapshot, choice.manifest)
        if choice.is_early:
            _check_kept(disk, path, choice)
    log_id = entropy.randbytes(_LOG_ID_BYTES)
    history = _write_log(disk, f"{directory}/wal", reader, log, log_id)
    control = ControlFile.open(disk, directory)
    control.write(
        ControlState(
            cluster_id=choice.manifest.cluster,
            node_id=_NODE,
            incarnation=f"{entropy.getrandbits(64):016x}",
            term=max(history[-1][0], log.term),
            history=tuple(history),
            commit_hint=log.log[-1].end if log.log else _begin_of(log),
            log_id=log_id,
            group=GroupId(log.group),
        )
    )


def format_time(time_us: int) -> str:
    """Return a log time as text, in UTC."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(sep=" ", timespec="milliseconds")


def _reaches(manifest: Manifest, until: int | None, until_time: int | None) -> bool:
    """Return whether a backup has all records up to the cut.

    Only a record behind the cut proves that. The clock of the machine that took the backup proves nothing, because
    records are written during a copy, and log time follows other clocks.
    """
    if until is not None and manifest.end <= until:
        return False
    return until_time is None or manifest.log_time > until_time


def _begin_of(log: LogCopy) -> int:
    """Return the first index of a log."""
    if log.log:
        return log.log[0].start
    return log.snapshot.end if log.snapshot is not None else 1


def _write_snapshot(
    disk: Disk, directory: str, reader: BackupReader, snapshot: SnapshotCopy, manifest: Manifest
) -> str:
    disk.make_directory(directory)
    path = f"{directory}/{snapshot.end:020d}-{snapshot.term}.snapshot"
    file = create_anew(disk, f"{path}.temporary")
    at = 0

    def take(data: bytes) -> None:
        nonlocal at
        file.write(at, [data])
        file.sync()
        at += len(data)

    try:
        found = reader.scan_snapshot(snapshot.parts, f"the snapshot of backup {manifest.id}", take)
    finally:
        file.close()
    if found != (manifest.cluster, snapshot.end, snapshot.term):
        raise CorruptionError(
            f"the snapshot of backup {manifest.id} is {found}, expected is"
            f" {(manifest.cluster, snapshot.end, snapshot.term)}",
            path=path,
            remedy="restore another backup",
        )
    disk.rename(f"{path}.temporary", path)
    disk.sync_directory(directory)
    return path


def _check_kept(disk: Disk, path: str, choice: BackupChoice) -> None:
    """Check that the chosen log has every record that the topics of the snapshot keep. Raises RequestError."""
    file = disk.open_read(path)
    try:
        # Not that of the log then: a node deletes records of committed runs when their archive delay is over, and that
        # may have been between the cut and the backup.
        keep_from = load_state(read_pieces(file, read_header(file))).unarchived_from
    finally:
        file.close()
    if keep_from is not None and keep_from < choice.begin:
        raise RequestError(
            f"at the time of the cut, topics kept records from index {keep_from} on, and the backups have the log from"
            f" {choice.begin} on: the records between were deleted before a backup was taken",
            remedy="restore all of a backup, without --until, or choose a later cut",
        )


def _write_log(disk: Disk, directory: str, reader: BackupReader, log: LogCopy, log_id: bytes) -> list[tuple[int, int]]:
    """Write the log, and return its term history."""
    begin = _begin_of(log)
    before = log.snapshot.term if log.snapshot is not None and not log.log else 0
    previous_term = log.log[0].previous_term if log.log else before
    history = [(0, 1)] if begin == 1 else [(previous_term, begin - 1)]
    wal = Wal.open(
        disk,
        directory,
        WalOptions(segment_bytes=_SEGMENT_BYTES, reserve_bytes=0, margin_bytes=0),
        on_batch=lambda batch, commit_end: None,
        first_index=Index(begin),
        previous_term=Term(previous_term),
        log_id=log_id,
    )
    try:
        for piece in log.log:
            waiting: list[Batch] = []
            size = 0
            for batch in reader.read_piece(piece):
                if batch.term != history[-1][0]:
                    history.append((int(batch.term), int(batch.first_index)))
                waiting.append(batch)
                size += batch.size
                if size >= _GROUP_BYTES:
                    wal.append_now(waiting)
                    waiting, size = [], 0
            if waiting:
                wal.append_now(waiting)
    finally:
        wal.abandon()  # Every append is synced.
    return history
