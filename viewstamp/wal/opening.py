"""Bringing a surveyed log in order for writing: what ``open`` does to the disk, once the verdict allows it.

Every step can be repeated: a death in between leaves a log of which the next survey says the same.
"""

from __future__ import annotations

from contextlib import suppress

from viewstamp.errors import StorageFullError
from viewstamp.host.interfaces import Disk
from viewstamp.wal.catalogue import Catalogue, Segment
from viewstamp.wal.format import segment_name
from viewstamp.wal.recovery import Survey
from viewstamp.wal.spares import Spares
from viewstamp.wal.truncation import carry_out
from viewstamp.wal.writer import Writer

__all__ = ["settle_names", "take_over"]


def settle_names(
    disk: Disk, directory: str, segment_bytes: int, bytes_max: int, found: Survey, log_id: bytes
) -> Spares:
    """Make the names durable, finish a truncation or reset, see to a first segment; return the spares.

    Raises:
      StorageFullError: there is no room even for the first segment.
      StorageError: final.
    """
    disk.sync_directory(directory)
    if found.mark is not None:
        carry_out(disk, directory, found.mark, log_id)
    spares = Spares.open(disk, directory, segment_bytes, bytes_max)
    if not found.segments and found.unused is None and found.torn_number is None:
        path = spares.pop()
        while path is None:
            if not spares.prepare().is_made:
                raise StorageFullError(
                    f"the disk has {disk.free_bytes(directory)} bytes left, a segment takes {segment_bytes}",
                    remedy="free space on the disk, or set a smaller [wal] segment_bytes",
                )
            path = spares.pop()
        found.unused = 1
        disk.rename(path, f"{directory}/{segment_name(1)}")
        disk.sync_directory(directory)
    return spares


def take_over(
    disk: Disk,
    directory: str,
    segment_bytes: int,
    sync_seconds: float,
    found: Survey,
    spares: Spares,
    log_id: bytes,
) -> Writer:
    """Cut what is torn, make the rest durable, and return a writer that goes on behind it."""
    fresh = found.unused if found.unused is not None else found.torn_number
    generation = found.chain.generation
    segments = list(found.segments)
    if not segments:
        assert fresh is not None, "a log has a segment"
        generation += 1
        path = f"{directory}/{segment_name(fresh)}"
        segments.append(Segment(number=fresh, generation=generation, path=path, first_index=found.end, length=0))
    if found.torn_number is not None:
        spares.give(_cut(disk, f"{directory}/{segment_name(found.torn_number)}", 0))
    if found.segments:
        spares.give(_settle(disk, segments[-1], found))
    file = disk.open(segments[-1].path)
    writer = Writer(
        disk,
        directory,
        segment_bytes,
        sync_seconds,
        Catalogue(segments, found.end),
        spares,
        file,
        allocated=file.size(),
        group=found.chain.number,
        generation=generation,
        end=found.end,
        term=(found.chain.term or 0) if found.segments else found.previous_term,
        closed=True,
        log_id=log_id,
    )
    writer.commit_hint = found.chain.commit_hint
    if found.segments and fresh is not None:
        writer.enter(fresh)
    elif found.segments and (found.last_group is None or not found.last_group.is_empty or found.verdict != "clean"):
        writer.close_group()
    _fill(disk, directory, segment_bytes, writer)
    return writer


def _fill(disk: Disk, directory: str, segment_bytes: int, writer: Writer) -> None:
    """Bring the open segment to its full length; on a full disk the log starts without room, to be read."""
    if disk.free_bytes(directory) >= segment_bytes:
        with suppress(StorageFullError):
            writer.fill()


def _cut(disk: Disk, path: str, size: int) -> int:
    """Cut a file to ``size`` bytes, durably; return by how many it is shorter now."""
    file = disk.open(path)
    try:
        before = file.size()
        file.truncate(size)
        file.sync()
        return before - size
    finally:
        file.close()


def _settle(disk: Disk, segment: Segment, found: Survey) -> int:
    """Cut what is torn off the last written segment, and make sure that the rest is on the device.

    Where no group calls a byte durable, it may never have been synced, or its sync failed: the page cache can then
    show bytes, as clean ones, that the device does not have, and a sync alone would do nothing. So from there on all
    is written again. Returns by how many bytes the file is shorter now.
    """
    file = disk.open(segment.path)
    try:
        before = file.size()
        if segment.sealed or (found.verdict == "torn-tail" and found.torn_number is None):
            file.truncate(segment.length)
        start = found.last_group.durable if found.last_group is not None else 0
        file.write(start, [file.read(start, segment.length - start)])
        file.sync()
        return before - file.size()
    finally:
        file.close()
