"""The files of stopped nodes as the source of a backup, because a disaster may have stopped the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from viewstamp.backup.source import LogPoint, OfferedSnapshot
from viewstamp.errors import CorruptionError, NoQuorumError, TrimmedError
from viewstamp.fork import Basis, ForkSource, judge_source
from viewstamp.host.blocking import in_thread
from viewstamp.host.interfaces import Disk
from viewstamp.node.copying import ConcealedSnapshot, conceal_batch
from viewstamp.node.snapshots.file import read_header, read_trailer
from viewstamp.node.snapshots.store import StoredSnapshot
from viewstamp.replay.read import ExtentReader
from viewstamp.replay.replica import Snapshot
from viewstamp.wire.batch import Batch

__all__ = ["FilesSource"]


class FilesSource:
    """The log that a majority of directories elects; without a majority, the records known to be committed."""

    def __init__(self, disk: Disk, source: ForkSource, *, is_majority: bool) -> None:
        """Made by :meth:`open`."""
        self.is_majority = is_majority
        """Whether the log is that of a majority."""
        self.has_lost_power = source.has_lost_power
        """Whether acknowledged records may be missing all the same, because of interval mode."""
        self._disk = disk
        self._source = source
        self._reader = ExtentReader(disk)
        self._batches: Iterator[Batch] = iter(())
        self._next: Batch | None = None
        self._end = 0
        """The index from which ``_batches`` goes on."""

    @classmethod
    def open(cls, disk: Disk, directories: Sequence[str]) -> FilesSource:
        """Read and judge the files of stopped nodes; blocking.

        Raises:
          ConfigError: a directory has no log, or a process uses it.
          CorruptionError: records are missing or damaged in all directories.
        """
        try:
            return cls(disk, judge_source(disk, directories, basis=Basis.ELECTED), is_majority=True)
        except NoQuorumError:
            return cls(disk, judge_source(disk, directories, basis=Basis.COMMITTED), is_majority=False)

    async def describe(self) -> LogPoint:
        """Describe the log; as ``BackupSource``.

        The checksums of the state, sinks and actors are unknown, because nothing runs; the topics only with a majority.
        """
        source = self._source
        snapshots = await in_thread(self._offers)
        return LogPoint(
            cluster=source.cluster,
            node=source.replicas[0].name,
            first_index=source.start,
            end=source.end,
            term=source.last_term,
            log_time=source.last_log_time,
            history=source.history(source.snapshots[-1] if source.snapshots else None),
            snapshots=snapshots,
            topics=tuple(source.plan.described) if source.plan is not None else (),
        )

    async def read_log(self, point: LogPoint, start: int, bytes_max: int) -> list[Batch]:
        """Return batches; as ``BackupSource``."""
        return await in_thread(self._read, start, bytes_max)

    async def read_snapshot(
        self, point: LogPoint, snapshot: OfferedSnapshot, offset: int, bytes_max: int
    ) -> tuple[int, int, bytes]:
        """Return a piece of a snapshot; as ``BackupSource``."""
        found = next(each for each in self._source.snapshots if each.meta.end == snapshot.end)
        return await in_thread(self._read_snapshot, found, offset, bytes_max)

    def failed(self, node: str) -> None:
        """Do nothing, because all directories are read as one log."""

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

    def _read(self, start: int, bytes_max: int) -> list[Batch]:
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

    def _read_snapshot(self, snapshot: Snapshot, offset: int, bytes_max: int) -> tuple[int, int, bytes]:
        file = self._disk.open_read(snapshot.path)
        try:
            size = file.size()
            identity = read_header(file).identity
            data = file.read(offset, bytes_max)
        finally:
            file.close()
        concealed = ConcealedSnapshot.open(self._disk, StoredSnapshot(snapshot.meta, snapshot.path, size, identity))
        return size, concealed.identity, concealed.patched(offset, data)
