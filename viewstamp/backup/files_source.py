"""The files of stopped nodes as the source of a backup, because a disaster may have stopped the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from viewstamp.backup.source import LogPoint, OfferedSnapshot
from viewstamp.errors import CorruptionError, NoQuorumError, TrimmedError
from viewstamp.fork import Basis, ForkSource, has_groups, judge_source
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Disk
from viewstamp.node.copying import ConcealedSnapshot, conceal_batch
from viewstamp.node.snapshots.file import read_header, read_trailer
from viewstamp.node.snapshots.store import StoredSnapshot
from viewstamp.replay.read import ExtentReader
from viewstamp.streams.cut import founders_in
from viewstamp.wire.batch import Batch

__all__ = ["FilesSource"]


class FilesSource:
    """The log that a majority of directories elects; without a majority, the records known to be committed.

    A cluster with other groups needs a majority of the members of each group: the logs that majorities elect never
    contradict each other, and logs up to their known committed ends may.
    """

    def __init__(self, disk: Disk, source: ForkSource, *, is_majority: bool) -> None:
        """Made by :meth:`open`."""
        self.is_majority = is_majority
        """Whether the log is that of a majority."""
        self.has_lost_power = any(each.has_lost_power for each in source.logs.values())
        """Whether acknowledged records may be missing all the same, because of interval mode."""
        self.left_out = source.left_out
        """The established groups whose directories are not there, so that the backup lacks them."""
        self._logs = {group: _FilesLog(disk, group, each) for group, each in source.logs.items()}

    @classmethod
    def open(cls, disk: Disk, directories: Sequence[str]) -> FilesSource:
        """Read and judge the files of stopped nodes; blocking.

        Raises:
          ConfigError: a directory has no log, or a process uses it.
          NoQuorumError: there are directories of other groups, and no majority of group 0 or of a group.
          CorruptionError: records are missing or damaged in all directories.
        """
        try:
            return cls(disk, judge_source(disk, directories, basis=Basis.ELECTED, with_groups=True), is_majority=True)
        except NoQuorumError as error:
            if has_groups(disk, directories):
                raise NoQuorumError(
                    f"{error.message}; no backup was taken",
                    remedy="name the directories of more nodes: a cluster with groups needs a majority of group 0 and"
                    " of each group, because logs up to their known committed ends can contradict each other",
                ) from error
            return cls(disk, judge_source(disk, directories, basis=Basis.COMMITTED), is_majority=False)

    async def describe(self) -> LogPoint:
        """Describe the log of group 0; as ``BackupSource``.

        The checksums of the state, sinks and actors are unknown, because nothing runs; the topics only with a majority.
        """
        point = await in_thread(self._logs[0].describe)
        return replace(point, groups=tuple(group for group in self._logs if group))

    async def describe_group(self, group: int) -> LogPoint:
        """Describe the log of another group; as ``BackupSource``."""
        return await in_thread(self._logs[group].describe)

    async def placement(self) -> object:
        """Return nothing, because nothing changes in files; as ``BackupSource``."""
        return None

    async def read_log(self, point: LogPoint, start: int, bytes_max: int) -> list[Batch]:
        """Return batches; as ``BackupSource``."""
        return await in_thread(self._logs[point.group].read, start, bytes_max)

    async def read_snapshot(
        self, point: LogPoint, snapshot: OfferedSnapshot, offset: int, bytes_max: int
    ) -> tuple[int, int, bytes]:
        """Return a piece of a snapshot; as ``BackupSource``."""
        return await in_thread(self._logs[point.group].read_snapshot, snapshot, offset, bytes_max)

    def failed(self, node: str) -> None:
        """Do nothing, because all directories are read as one log."""


class _FilesLog:
    """The log of one group in files; blocking."""

    def __init__(self, disk: Disk, group: int, source: ForkSource) -> None:
        self._disk = disk
        self._group = group
        self._source = source
        self._reader = ExtentReader(disk)
        self._batches: Iterator[Batch] = iter(())
        self._next: Batch | None = None
        self._end = 0
        """The index from which ``_batches`` goes on."""

    def describe(self) -> LogPoint:
        source = self._source
        return LogPoint(
            cluster=source.cluster,
            node=source.replicas[0].name,
            first_index=source.start,
            end=source.end,
            term=source.last_term,
            log_time=source.last_log_time,
            history=source.history(source.snapshots[-1] if source.snapshots else None),
            snapshots=self._offers(),
            topics=tuple(source.plan.described) if source.plan is not None else (),
            group=self._group,
        )

    def _offers(self) -> tuple[OfferedSnapshot, ...]:
        found = []
        for snapshot in self._source.snapshots:
            file = self._disk.open_read(snapshot.path)
            try:
                read_trailer(file, read_header(file))
                found.append(OfferedSnapshot(snapshot.meta.end, snapshot.meta.term, file.size()))
            except CorruptionError:
                continue  # The next older one will do.
            finally:
                file.close()
        return tuple(found)

    def read(self, start: int, bytes_max: int) -> list[Batch]:
        if start != self._end:
            self._batches = (conceal_batch(each) for each in self._source.batches(self._reader))
            self._next = next((each for each in self._batches if each.end > start), None)
        found: list[Batch] = []
        size = 0
        while self._next is not None and size < bytes_max:
            # A copy, because the reader reuses its window.
            found.append(Batch.decode(bytes(self._next.buffer), verify=False))
            size += self._next.size
            self._next = next(self._batches, None)
        if not found or found[0].first_index != start:
            raise TrimmedError(
                f"the files have no batch that begins at index {start}",
                first=self._source.start,
                remedy="take the backup again",
            )
        self._end = int(found[-1].end)
        return found

    def read_snapshot(self, offered: OfferedSnapshot, offset: int, bytes_max: int) -> tuple[int, int, bytes]:
        snapshot = next(each for each in self._source.snapshots if each.meta.end == offered.end)
        file = self._disk.open_read(snapshot.path)
        try:
            size = file.size()
            identity = read_header(file).identity
            data = file.read(offset, bytes_max)
        finally:
            file.close()
        stored = StoredSnapshot(snapshot.meta, snapshot.path, size, identity)
        concealed = ConcealedSnapshot.open(self._disk, stored, founders_in, offset, offset + bytes_max)
        return size, concealed.identity, concealed.patched(offset, data)
