"""The target of a backup: a flat set of named, immutable objects, in a directory or behind an fsspec URL.

All calls block, and belong in a thread. An object appears whole or not at all: a crash during :meth:`BackupStore.write`
leaves the old state, and perhaps a ``.temporary`` file that nothing reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from viewstamp.errors import ConfigError, StorageError, StorageFullError
from viewstamp.host.garbage import create_anew
from viewstamp.host.interfaces import Disk

__all__ = ["BackupStore", "DirectoryStore"]

_SYNC_BYTES = 4 * 1024 * 1024
"""Limit of unsynced bytes: the syncs of a log on the same device wait for all bytes that the device got before."""
_WRITE_BYTES = 1024 * 1024
_TEMPORARY = ".temporary"


class BackupStore(Protocol):
    """Named objects. Names have the form ``folder/file``; ``where`` is the target as its user wrote it.

    Every call raises StorageError if the target refuses it (rights, a full target: StorageFullError), and
    UnavailableError if the target does not answer after a bounded number of attempts.
    """

    where: str

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Return the size in bytes of each object in a folder such as ``log/``; {} if there is none."""
        ...

    def read(self, name: str) -> bytes:
        """Return an object. Raises FileNotFoundError if there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Store an object, durably, in place of one with the same name."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Prevent other processes from writing and pruning here meanwhile.

        Raises:
          DirectoryInUseError: another process does so now.
        """
        ...

    def check_held(self) -> None:
        """Check that no other process has taken over; called before a manifest is written. Raises UnavailableError."""
        ...


class DirectoryStore:
    """A directory of a disk. Its files are readable for their owner only, because they hold the cluster's records."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Use ``path``, which is created by the first write."""
        self.where = path
        self._disk = disk
        self._folders: set[str] = set()

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each object in a folder; as :class:`BackupStore`."""
        sizes: dict[str, int] = {}
        with self._errors():
            for name in self._disk.list_directory(f"{self.where}/{folder.rstrip('/')}"):
                if not name.endswith(_TEMPORARY):
                    file = self._disk.open_read(f"{self.where}/{folder}{name}")
                    try:
                        sizes[f"{folder}{name}"] = file.size()
                    finally:
                        file.close()
        return sizes

    def read(self, name: str) -> bytes:
        """Return an object; as :class:`BackupStore`."""
        with self._errors():
            file = self._disk.open_read(f"{self.where}/{name}")
            try:
                return file.read(0, file.size())
            finally:
                file.close()

    def write(self, name: str, data: bytes) -> None:
        """Store an object; as :class:`BackupStore`."""
        path = f"{self.where}/{name}"
        folder = path.rpartition("/")[0]
        with self._errors():
            if folder not in self._folders:
                self._disk.make_directory(folder)
                self._folders.add(folder)
            file = create_anew(self._disk, path + _TEMPORARY)
            try:
                view = memoryview(data)
                for at in range(0, len(view), _WRITE_BYTES):
                    file.write(at, [view[at : at + _WRITE_BYTES]])
                    if (at + _WRITE_BYTES) % _SYNC_BYTES == 0:
                        file.sync()
                file.sync()
            except StorageError:
                file.close()
                with suppress(StorageError):  # A full disk gets its room back.
                    self._disk.remove(path + _TEMPORARY)
                raise
            file.close()
            self._disk.rename(path + _TEMPORARY, path)
            self._disk.sync_directory(folder)

    def remove(self, name: str) -> None:
        """Remove an object; as :class:`BackupStore`."""
        path = f"{self.where}/{name}"
        with self._errors():
            if self._disk.exists(path):
                self._disk.remove(path)
                self._disk.sync_directory(path.rpartition("/")[0])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the directory; as :class:`BackupStore`. The end of the process releases it, too."""
        with self._errors():
            self._disk.make_directory(self.where)
            lock = self._disk.lock(self.where)
        try:
            yield
        finally:
            lock.release()

    def check_held(self) -> None:
        """Do nothing, because the operating system keeps the lock as long as the process runs."""

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Give errors of the disk a remedy for this target, because their own remedies are about a node's directory."""
        try:
            yield
        except ConfigError:
            raise
        except StorageFullError as error:
            raise StorageFullError(
                f"the target of the backup is full: {error.message}",
                remedy="free space there, or remove old backups with `viewstamp backup prune`, and run it again; the"
                " earlier backups are unchanged",
            ) from error
        except StorageError as error:
            if type(error) is not StorageError:
                raise
            raise StorageError(
                f"the target of the backup cannot be used: {error.message}",
                remedy="let this user read and write there, or name another target; the earlier backups are unchanged",
            ) from error
