"""Files that nothing needs any more: a removal that fails is retried later and never stops the node.

A file is garbage when every reader ignores it or removes it again at the next start: leftovers of a crash, spares, old
snapshots. A name that cannot be removed (EBUSY, EACCES, a network file system that still holds it) costs space and
nothing else. What a *decision* removes, such as the segments behind a truncation, is no garbage: there a failed removal
stays final, because the log would read otherwise than was decided.

Only ``Disk.remove`` is forgiven. A failed sync of a directory may have lost other names too, and stays final.
"""

from __future__ import annotations

from viewstamp.errors import StorageError
from viewstamp.host.interfaces import Disk, File

__all__ = ["Garbage", "create_anew"]


class Garbage:
    """Removes files and keeps a list of those that could not be removed. Blocking; one owner, any thread.

    Invariants:
      * ``stuck`` maps each file that is garbage and still has its name to the reason of the last failure
    """

    def __init__(self, disk: Disk) -> None:
        self.stuck: dict[str, str] = {}
        self._disk = disk

    def remove(self, path: str) -> bool:
        """Remove a file if it is there; return False where that failed, and the file is listed in ``stuck``."""
        try:
            if self._disk.exists(path):
                self._disk.remove(path)
        except StorageError as error:
            self.stuck[path] = error.message
            return False
        self.stuck.pop(path, None)
        return True

    def retry(self) -> list[str]:
        """Try again to remove what is stuck; return the paths that are gone now."""
        return [path for path in list(self.stuck) if self.remove(path)]


def create_anew(disk: Disk, path: str) -> File:
    """Open an empty file for writing; a leftover of that name is removed, or emptied where it cannot be removed.

    Blocking. Whoever dies here leaves an empty file, or none, under a name that is never read.

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
