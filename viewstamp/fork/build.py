"""Writes the files of one member of a new cluster into an empty directory. Blocking."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgpack

from viewstamp.consensus.membership import Membership
from viewstamp.errors import CorruptionError
from viewstamp.fork.judge import ForkSource
from viewstamp.host.garbage import create_anew
from viewstamp.host.interfaces import Disk
from viewstamp.ids import GROUP_0, GroupId, Index, NodeId, Position, Term
from viewstamp.node.data_dir import directories_of_groups
from viewstamp.node.snapshots.file import copy_snapshot
from viewstamp.replay.read import ExtentReader
from viewstamp.replay.replica import Snapshot
from viewstamp.wal.control_file import CONTROL_NAMES, ControlFile, ControlState
from viewstamp.wal.format import parse_spare_name
from viewstamp.wal.log import Wal, WalOptions
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.placing import encode_hosted, encode_place

__all__ = ["FORK_RECORDS", "Blueprint", "build", "remove_files"]

FORK_RECORDS: Final = 2
"""The records that a fork writes behind each log: those of ``Blueprint.records``."""

_GROUP_BYTES: Final = 4 * 1024 * 1024
"""The bytes of one write and one sync."""
_SNAPSHOTS_MAX: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """The contents that the directories of all members of a new cluster share."""

    cluster: str
    membership: Membership
    term: Term
    """The term of the two records behind the old ones."""
    origin: str = ""
    """A text behind the id of the old cluster, for the audit log."""
    group: GroupId = GROUP_0
    groups: Sequence[Blueprint] = ()
    """Of group 0: the other groups of the new cluster."""
    streams: tuple[str, ...] = ()
    """Of a group that the old cluster does not have: the names that it is placed with."""

    @property
    def placement(self) -> list[object]:
        """The group in the record of the fork in group 0: its id, and the address and the disk of each founder."""
        disks = self.membership.incarnations
        return [int(self.group), {node: [address, disks[node]] for node, address in self.membership.addresses.items()}]

    def records(self, source: ForkSource) -> Iterator[Batch]:
        """Yield the records behind the log of ``source``.

        They are the new membership; the end of all sessions; the new groups, each with its disks; and what the source
        wants behind them.
        """
        index, before = Index(source.end), source.last_term
        log_time = max(source.last_log_time, source.begin_time)
        for batch in self._unstamped(source):
            batch.stamp(
                term=self.term, first_index=index, previous_term=before, log_time=log_time, first_position=Position(0)
            )
            index, before = batch.end, self.term
            yield batch

    def _unstamped(self, source: ForkSource) -> Iterator[Batch]:
        said = f"{source.cluster}, {self.origin}" if self.origin else source.cluster
        origin: dict[str, object] = {"from": said, "cluster": self.cluster, "end": source.end}
        if source.start > 1:
            origin["begin"] = source.start
        kept = [each.placement for each in self.groups if not each.streams]
        if kept:
            origin["groups"] = kept
        yield build_batch([self.membership.encode()], kind=Kind.MEMBERSHIP)
        yield build_batch([msgpack.packb(origin)], kind=Kind.FORK_GROUPS if kept else Kind.FORK)
        for each in self.groups:
            if each.streams:
                yield from each.founding()
        yield from source.behind()

    def founding(self) -> list[Batch]:
        """Return the records in group 0 that place a new group and name its disks; the first one's index is its id."""
        disks = self.membership.incarnations
        placing = encode_place(self.membership.addresses, self.streams, since=self.group)
        return [placing, *(encode_hosted(self.group, node, disks[node]) for node in self.membership.addresses)]


def build(
    disk: Disk,
    directory: str,
    source: ForkSource,
    blueprint: Blueprint,
    *,
    node: NodeId,
    log_id: bytes,
    segment_bytes: int,
    on_bytes: Callable[[int], None],
) -> None:
    """Write control file, snapshots and log; durable on return. Leftovers of an earlier attempt are removed.

    Raises:
      CorruptionError: the source is damaged.
      StorageError: the disk failed; StorageFullError: it is full.
    """
    disk.make_directory(directory)
    remove_files(disk, directory)
    base = _copy_snapshots(disk, directory, source, blueprint)
    end = _write_log(disk, f"{directory}/wal", source, blueprint.records(source), log_id, segment_bytes, on_bytes)
    history = source.history(base).extended(blueprint.term, Index(source.end))
    control = ControlFile.open(disk, directory)
    control.write(
        ControlState(
            cluster_id=blueprint.cluster,
            node_id=node,
            incarnation=blueprint.membership.incarnations[node],
            term=blueprint.term,
            history=history.starts,
            commit_hint=end,
            log_id=log_id,
            group=blueprint.group,
        )
    )


def remove_files(disk: Disk, directory: str) -> None:
    """Remove the files of an attempt that was interrupted, also those of groups; the directories stay."""
    for group in directories_of_groups(disk, directory).values():
        remove_files(disk, group)
    for path in (directory, f"{directory}/snapshots", f"{directory}/wal"):
        for name in disk.list_directory(path):
            if path != directory or name.startswith(CONTROL_NAMES):
                disk.remove(f"{path}/{name}")
        if disk.exists(path):
            disk.sync_directory(path)


def _copy_snapshots(disk: Disk, directory: str, source: ForkSource, blueprint: Blueprint) -> Snapshot | None:
    """Copy the newest intact snapshots; return the oldest copied one.

    They name the new membership, so that a member which falls back to one never counts members of the old cluster.

    Raises:
      CorruptionError: the log does not begin at index 1, and no snapshot is intact.
    """
    target = f"{directory}/snapshots"
    disk.make_directory(target)
    copied: list[Snapshot] = []
    damage: CorruptionError | None = None
    for snapshot in source.snapshots:
        meta = replace(
            snapshot.meta,
            cluster=blueprint.cluster,
            membership=blueprint.membership.encode(),
            membership_index=0,
            membership_term=0,
        )
        temporary = f"{target}/{posixpath.basename(snapshot.path)}.temporary"
        file, old = create_anew(disk, temporary), disk.open_read(snapshot.path)
        try:
            copy_snapshot(old, file, meta)
        except CorruptionError as error:
            damage = error
            disk.remove(temporary)
            continue
        finally:
            file.close()
            old.close()
        disk.rename(temporary, temporary.removesuffix(".temporary"))
        copied.append(snapshot)
        if len(copied) == _SNAPSHOTS_MAX:
            break
    disk.sync_directory(target)
    if source.start > 1 and not copied:
        assert damage is not None, "a log that begins above index 1 is judged with its snapshot"
        raise damage
    return copied[-1] if copied else None


def _write_log(
    disk: Disk,
    directory: str,
    source: ForkSource,
    records: Iterator[Batch],
    log_id: bytes,
    segment_bytes: int,
    on_bytes: Callable[[int], None],
) -> Index:
    """Write the batches of ``source`` and the records behind them; return the index after the last one."""
    wal = Wal.open(
        disk,
        directory,
        WalOptions(segment_bytes=segment_bytes, reserve_bytes=0, margin_bytes=0),
        on_batch=lambda batch, commit_end: None,
        first_index=Index(source.start),
        previous_term=source.previous_term,
        log_id=log_id,
    )
    try:
        with ExtentReader(disk) as reader:
            waiting: list[Batch] = []
            size, end = 0, Index(source.end)
            for batch in itertools.chain(source.batches(reader), records):
                waiting.append(batch)
                size += batch.size
                end = batch.end
                if size >= _GROUP_BYTES:
                    _append(wal, waiting)
                    on_bytes(size)
                    waiting, size = [], 0
            if waiting:
                _append(wal, waiting)
                on_bytes(size)
    finally:
        wal.abandon()  # Every append is synced. The node finds the log as after a kill.
    for name in disk.list_directory(directory):
        if parse_spare_name(name) is not None:  # The node makes its own; these would only be copied between machines.
            disk.remove(f"{directory}/{name}")
    disk.sync_directory(directory)
    return end


def _append(wal: Wal, batches: list[Batch]) -> None:
    # All records below are committed in the new cluster, because each member begins with them.
    wal.commit_hint = batches[0].first_index
    wal.append_now(batches)
