"""The target of a backup: a flat set of named, immutable objects, in a directory or behind an fsspec URL.

All calls block, and belong in a thread. An object appears whole or not at all: a crash during :meth:`BackupStore.write`
leaves the old state, and perhaps a ``.temporary`` file that nothing reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from viewstamp.archive.store import DirectoryObjects
from viewstamp.errors import ConfigError, StorageError, StorageFullError

__all__ = ["BackupStore", "DirectoryStore"]


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


class DirectoryStore(DirectoryObjects):
    """A directory of a disk, as a target of backups: ``DirectoryObjects``, in which an object may be replaced."""

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
        self.prepare(name.rpartition("/")[0])
        path = f"{self.where}/{name}"
        self._write(path, [data])
        self._rename(path)

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
