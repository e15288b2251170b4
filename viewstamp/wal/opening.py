"""Bringing a surveyed log in order for writing: what ``open`` does to the disk, once the verdict allows it.

Every step can be repeated: a death in between leaves a log of which the next survey says the same.
"""

from __future__ import annotations

from contextlib import suppress

from viewstamp.errors import StorageFullError
from viewstamp.host.seam import Disk, File
from viewstamp.wal.catalogue import Catalogue, Segment
from viewstamp.wal.format import PREPARED_NAME, SEGMENT_HEADER_SIZE, segment_name
from viewstamp.wal.preparation import find_prepared, prepare
from viewstamp.wal.recovery import Survey
from viewstamp.wal.truncation import carry_out
from viewstamp.wal.writer import Writer

__all__ = ["settle_names", "take_over"]


def settle_names(disk: Disk, directory: str, segment_bytes: int, found: Survey) -> bool:
    """Make the names durable, finish a truncation, see to a first segment; say whether the next one is ready.

    Raises:
      StorageFullError: there is no room even for the first segment.
      StorageError: final.
    """
    disk.sync_directory(directory)
    if found.mark is not None:
        carry_out(disk, directory, found.mark)
    is_prepared = find_prepared(disk, directory, segment_bytes)
    if not found.segments and found.unused is None and found.torn_number is None:
        if not is_prepared:
            prepare(disk, directory, segment_bytes)
        is_prepared = False
        found.unused = 1
        disk.rename(f"{directory}/{PREPARED_NAME}", f"{directory}/{segment_name(1)}")
        disk.sync_directory(directory)
    return is_prepared


def take_over(disk: Disk, directory: str, segment_bytes: int, found: Survey) -> Writer:
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
        _empty(disk, f"{directory}/{segment_name(found.torn_number)}")
    file = disk.open(segments[-1].path)
    if found.segments:
        _settle(file, segments[-1], found)
    writer = Writer(
        disk,
        directory,
        segment_bytes,
        Catalogue(segments, found.end),
        file,
        allocated=file.size(),
        group=found.chain.number,
        generation=generation,
        end=found.end,
        term=(found.chain.term or 0) if found.segments else found.previous_term,
        closed=True,
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


def _empty(disk: Disk, path: str) -> None:
    file = disk.open(path)
    try:
        file.truncate(0)
        file.sync()
    finally:
        file.close()


def _settle(file: File, segment: Segment, found: Survey) -> None:
    """Cut what is torn off the last written segment, and make sure that the rest is on the device.

    The last group is the only one that may never have been synced, or whose sync failed: the page cache can then
    show bytes, as clean ones, that the device does not have, and a sync alone would do nothing. So it is written again.
    """
    if segment.sealed or (found.verdict == "torn-tail" and found.torn_number is None):
        file.truncate(segment.length)
    start = found.last_group.location if found.last_group is not None else 0
    if start == SEGMENT_HEADER_SIZE:
        start = 0
    file.write(start, [file.read(start, segment.length - start)])
    file.sync()
