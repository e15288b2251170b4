"""Reading durable batches back from an open log, by index; blocking, beside a writer that may be at work."""

from __future__ import annotations

from viewstamp.errors import FrameError
from viewstamp.host.interfaces import Disk
from viewstamp.wal.catalogue import Catalogue, Place
from viewstamp.wal.format import GROUP_MAGIC, GroupHeader
from viewstamp.wal.segment import CHUNK_BYTES, Window
from viewstamp.wire.batch import HEADER_SIZE, Batch

__all__ = ["read"]


def read(disk: Disk, catalogue: Catalogue, start: int, bytes_max: int) -> list[Batch]:
    """Return batches from the one that holds index ``start``, about ``bytes_max`` bytes, at least one if it is durable.

    Raises:
      TrimmedError: ``start`` is below the first index kept.
      FrameError, FileNotFoundError: the files are not what the catalogue says; they may just be cut or trimmed.
      StorageError: the disk failed.
    """
    found: list[Batch] = []
    truncations = catalogue.truncations
    place = catalogue.find(start)
    held = 0
    while place is not None:
        passed: list[tuple[int, int]] = []
        held = _read_segment(disk, place, start, bytes_max, held, found, passed)
        catalogue.learn(place.number, passed, truncations)
        if found and (held >= bytes_max or found[-1].end >= place.end):
            break
        place = catalogue.after(place.number)
    return found


def _read_segment(
    disk: Disk,
    place: Place,
    start: int,
    bytes_max: int,
    held: int,
    found: list[Batch],
    passed: list[tuple[int, int]],
) -> int:
    """Add the batches of one segment to ``found``; return the bytes that it holds now.

    ``passed`` gets the (index, location) of each batch before ``start``: what the sparse index could have spared.
    """
    file = disk.open_read(place.path)
    try:
        window = Window(file, min(CHUNK_BYTES, max(bytes_max, 64 * 1024)))
        at = place.location
        while at < place.length and not (found and (held >= bytes_max or found[-1].end >= place.end)):
            view = window.peek(at, HEADER_SIZE)
            if view[:4] == GROUP_MAGIC:
                at += GroupHeader.measure(view)
                continue
            batch = Batch.decode(window.peek(at, Batch.measure(view)))
            if batch.end <= start:
                passed.append((batch.first_index, at))
            at += batch.size
            if batch.end > start:
                if batch.first_index != (found[-1].end if found else batch.first_index):
                    raise FrameError(f"{batch!r} follows {found[-1]!r}")
                found.append(batch)
                held += batch.size
        return held
    finally:
        file.close()
