"""Files that are not needed any more: a removal that fails is retried later and never stops the node.

A file is garbage if every reader ignores it or removes it at the next start: for example leftovers of a crash, spares,
old snapshots. A garbage file that cannot be removed (EBUSY, EACCES, a network file system that still holds it) only
takes space. The segments after a truncation are not garbage. There a failed removal stays final, because otherwise the
truncated records would be in the log again after a restart.

Only errors of ``Disk.remove`` are tolerated. A failed sync of a directory may have lost other names too, and is final.
"""

from __future__ import annotations

from viewstamp.errors import StorageError
from viewstamp.host.interfaces import Disk, File

__all__ = ["Garbage", "create_anew"]


class Garbage:
    """Removes files and keeps a list of those that could not be removed. Blocking; one owner, any thread.

    Invariants:
      * ``stuck`` maps each garbage file that could not be removed to the reason of the last failure
    """

    def __init__(self, disk: Disk) -> None:
        self.stuck: dict[str, str] = {}
        self._disk = disk

    def remove(self, path: str) -> bool:
        """Remove a file if it is there. Returns False if that failed; then the file is in ``stuck``."""
        try:
            if self._disk.exists(path):
                self._disk.remove(path)
        except StorageError as error:
            self.stuck[path] = error.message
            return False
        self.stuck.pop(path, None)
        return True

    def retry(self) -> list[str]:
        """Try again to remove the files in ``stuck``. Returns the paths that were removed."""
        return [path for path in list(self.stuck) if self.remove(path)]


def create_anew(disk: Disk, path: str) -> File:
    """Open an empty file for writing; a leftover of that name is removed, or emptied if it cannot be removed.

    Blocks. A process that dies here leaves an empty file, or no file, under a name that is never read.

    Raises:
      StorageError: the disk failed.
    """
    if disk.exists(path):
        try:
            disk.remove(path)
        except StorageError:
            file = disk.open(path)
            try:
                file.truncate(0)
            except StorageError:
                file.close()
                raise
            return file
    return disk.open(path, create=True)
