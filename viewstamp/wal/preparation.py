"""Making the next segment ready: a zero-filled, synced file with a name of its own.

Overwriting blocks that were written before makes a sync cost 0.15 ms; growing a file 0.24 ms; ``fallocate``
alone lies half-way, as its unwritten extents are converted at the sync. So the zeros are written, in the
background, while appends go on in the old segment.
"""

from __future__ import annotations

from viewstamp.errors import StorageFullError
from viewstamp.host.seam import Disk, File
from viewstamp.wal.format import PREPARED_NAME, TEMPORARY_NAME

__all__ = ["fill_with_zeros", "find_prepared", "prepare"]

_PIECE_BYTES = 1024 * 1024
_PIECE = memoryview(bytes(_PIECE_BYTES))


def prepare(disk: Disk, directory: str, size: int) -> None:
    """Create ``next.prepared`` with ``size`` bytes of zeros, durable on return; the name is not. Blocking.

    Temporary name → zeros → sync → rename: whoever finds the final name finds synced zeros. The directory is synced
    when the file gets its name as a segment, before anything in it is called durable.

    Raises:
      StorageFullError: the space is not there; nothing of it is left on the disk.
      StorageError: final.
    """
    temporary = f"{directory}/{TEMPORARY_NAME}"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        fill_with_zeros(file, 0, size)
    except StorageFullError:
        file.close()
        disk.remove(temporary)
        raise
    finally:
        file.close()
    disk.rename(temporary, f"{directory}/{PREPARED_NAME}")


def fill_with_zeros(file: File, start: int, end: int) -> None:
    """Overwrite bytes ``start`` to ``end`` with zeros; synced piece by piece, so that no burst holds up others."""
    for at in range(start, end, _PIECE_BYTES):
        file.write(at, [_PIECE[: min(_PIECE_BYTES, end - at)]])
        file.sync()


def find_prepared(disk: Disk, directory: str, size: int) -> bool:
    """Look what a run before left: drop what is incomplete or has another size; say whether a segment is ready."""
    names = disk.list_directory(directory)
    if TEMPORARY_NAME in names:
        disk.remove(f"{directory}/{TEMPORARY_NAME}")
    if PREPARED_NAME not in names:
        return False
    path = f"{directory}/{PREPARED_NAME}"
    file = disk.open_read(path)
    found = file.size()
    file.close()
    if found == size:
        return True
    disk.remove(path)
    return False
