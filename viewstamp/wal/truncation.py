"""The truncation mark: a small file by which a crash finds the log either uncut, or cut as a whole.

``docs/wal-format.md``, "Truncation", has the steps of a truncation and of a reset, and the bytes of the mark. The files
``.replaced`` of a reset are removed by ``Spares``: before the next reset, when a spare needs the room, and when the
owner declares that they are not needed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from viewstamp.errors import FrameError
from viewstamp.host.garbage import create_anew
from viewstamp.host.interfaces import Disk
from viewstamp.wal.format import NO_LOG_ID, GroupHeader, SegmentHeader, parse_segment_name, replaced_name, segment_name
from viewstamp.wire.checksum import crc32c

__all__ = ["MARK_NAME", "Mark", "carry_out", "place_mark", "read_mark"]

MARK_NAME = "truncation.mark"
_ROOM_BYTES = 1024 * 1024
"""With less free space on the disk than this, a replaced log is removed at once, because the new one needs the room."""
_MAGIC = b"VST\x02"
_MAGICS = (b"VST\x01", _MAGIC)
_MARK = struct.Struct("<4sI QQQQQ I4xQ")
assert _MARK.size == 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A truncation that has been decided: the log ends at index ``end``, byte ``length`` of segment ``segment``.

    With ``resets`` it is a reset: the log is empty and begins at ``end``, in the new segment ``segment``; the record
    before it had ``term``. ``group`` and ``generation`` are the highest that were used before: they go on rising.
    """

    end: int
    segment: int
    length: int
    group: int
    generation: int
    resets: bool = False
    term: int = 0

    def first_segment(self, log_id: bytes = NO_LOG_ID) -> tuple[SegmentHeader, GroupHeader]:
        """Return the content of the new segment of a reset: its header, and an empty group."""
        header = SegmentHeader(
            number=self.segment,
            generation=self.generation + 1,
            first_index=self.end,
            previous_term=self.term,
            first_group=self.group + 1,
            log_id=log_id,
        )
        return header, GroupHeader.empty_first(header)

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        fields = (self.end, self.segment, self.length, self.group, self.generation, int(self.resets), self.term)
        packed = bytearray(_MARK.pack(_MAGIC, 0, *fields))
        struct.pack_into("<I", packed, 4, _checksum(packed))
        return bytes(packed)

    @classmethod
    def decode(cls, packed: bytes) -> Mark:
        """Read the bytes of the file. Raises FrameError: they are no mark."""
        if len(packed) != _MARK.size:
            raise FrameError(f"{len(packed)} bytes")
        magic, checksum, end, segment, length, group, generation, kind, term = _MARK.unpack(packed)
        found = _checksum(packed)
        if magic not in _MAGICS or found != checksum or kind > 1:
            raise FrameError(f"bytes that start with {magic!r}, checksum {found:#010x} instead of {checksum:#010x}")
        return cls(
            end=end,
            segment=segment,
            length=length,
            group=group,
            generation=generation,
            resets=bool(kind),
            term=term,
        )


def place_mark(disk: Disk, directory: str, mark: Mark) -> None:
    """Step 1; durable on return."""
    temporary = f"{directory}/{MARK_NAME}.temporary"
    file = create_anew(disk, temporary)
    try:
        file.write(0, [mark.encode()])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, f"{directory}/{MARK_NAME}")
    disk.sync_directory(directory)


def read_mark(disk: Disk, directory: str) -> Mark | None:
    """Return the mark of an unfinished step, None = there is none. Raises FrameError: it is not readable."""
    try:
        file = disk.open_read(f"{directory}/{MARK_NAME}")
    except FileNotFoundError:
        return None
    try:
        return Mark.decode(file.read(0, file.size()))
    finally:
        file.close()


def carry_out(
    disk: Disk, directory: str, mark: Mark, log_id: bytes = NO_LOG_ID, closing: GroupHeader | None = None
) -> None:
    """Steps 2 to 4, as far as they have not been done; durable on return. No file may be open for writing.

    The first segment that a reset makes carries ``log_id``. ``closing`` is written where a truncation has cut.
    """
    numbers = sorted(n for n in map(parse_segment_name, disk.list_directory(directory)) if n is not None)
    has_room = mark.resets and disk.free_bytes(directory) >= _ROOM_BYTES
    for number in reversed(numbers):
        if number > mark.segment or mark.resets:
            old = f"{directory}/{segment_name(number)}"
            if mark.resets and has_room:
                disk.rename(old, f"{directory}/{replaced_name(number)}")
            else:
                disk.remove(old)
            disk.sync_directory(directory)
    path = f"{directory}/{segment_name(mark.segment)}"
    if mark.resets:
        _begin_anew(disk, directory, path, mark.first_segment(log_id))
    else:
        file = disk.open(path)
        try:
            file.truncate(mark.length)
            if closing is not None:
                file.write(mark.length, [closing.encode()])
            file.sync()
        finally:
            file.close()
    disk.remove(f"{directory}/{MARK_NAME}")
    disk.sync_directory(directory)


def _begin_anew(disk: Disk, directory: str, path: str, headers: tuple[SegmentHeader, GroupHeader]) -> None:
    """Write the first segment of an empty log, so that a file with its name is always whole."""
    temporary = f"{path}.temporary"
    file = create_anew(disk, temporary)
    try:
        file.write(0, [header.encode() for header in headers])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(directory)


def _checksum(packed: bytes | bytearray) -> int:
    view = memoryview(packed)
    return crc32c(view[8:], crc32c(view[:4]))
