"""Checking every byte of one sealed segment of a log that is open, a small piece at a time."""

from __future__ import annotations

from collections.abc import Generator

from viewstamp.errors import CorruptionError
from viewstamp.host.interfaces import Disk
from viewstamp.wal.catalogue import Segment
from viewstamp.wal.format import GroupHeader
from viewstamp.wal.segment import Chain, Pass, Rest, rest_of

__all__ = ["scrub_segment"]

_PIECE_BYTES = 64 * 1024


def scrub_segment(disk: Disk, segment: Segment) -> Generator[int, None, None]:
    """Read a sealed segment; yield now and then how many bytes were checked since the last time. Blocks in between.

    Raises:
      CorruptionError: a byte is not what it was; or the segment was trimmed or cut meanwhile, which the caller knows.
      FileNotFoundError: there is no such file any more.
      StorageError: it cannot be read.
    """
    file = disk.open_read(segment.path)
    try:
        chain = Chain(generation=segment.generation - 1)
        reading = Pass(file, chain)
        checked = 0
        if reading.read_header(segment.number):
            for item in reading.items():
                at = item.location if isinstance(item, GroupHeader) else item[0]
                if at - checked >= _PIECE_BYTES:
                    yield at - checked
                    checked = at
        stop, last = reading.stop, reading.last_group
        assert stop is not None, "a pass ends with a reason"
        rest = rest_of(file, stop.location)[0]
        if not stop.complete or rest is not Rest.NOTHING or reading.header is None or last is None or not last.seals:
            raise CorruptionError(
                f"{segment.path} is damaged at byte {stop.location}: expected {stop.expected}, found {stop.found}",
                path=segment.path,
                location=stop.location,
                expected=stop.expected,
                found=stop.found,
                remedy="nothing: it is repaired from the other members, if there are any",
            )
        yield stop.location - checked
    finally:
        file.close()
