"""The bytes of the WAL: segment header, group header, file names. Pure; ``docs/wal-format.md`` draws them."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from enum import Enum

from viewstamp.enums import fast_members
from viewstamp.errors import ConfigError, FrameError
from viewstamp.value_class import value_class
from viewstamp.wire.batch import Batch, Buffer, pad
from viewstamp.wire.checksum import crc32c

__all__ = [
    "FORMAT_VERSION",
    "GROUP_BATCHES_MAX",
    "GROUP_HEADER_SIZE",
    "GROUP_MAGIC",
    "NO_LOG_ID",
    "SEGMENT_HEADER_SIZE",
    "TEMPORARY_NAME",
    "GroupHeader",
    "SegmentHeader",
    "SpareKind",
    "batch_checksum",
    "encode_group",
    "is_replaced_name",
    "parse_segment_name",
    "parse_spare_name",
    "replaced_name",
    "segment_name",
    "spare_name",
]

FORMAT_VERSION = 1

_SEGMENT_MAGIC = b"VSS"
_SEGMENT_MAGIC_NOW = _SEGMENT_MAGIC + bytes([FORMAT_VERSION])
GROUP_MAGIC = b"VSG" + bytes([FORMAT_VERSION])

_SEGMENT = struct.Struct("<4sI QQQQQ 16s")
_GROUP = struct.Struct("<4sI QQQQQQ II IB3x")
_U32 = struct.Struct("<I")
_SEALS = 1
_GROUP_MAGIC_CHECKSUM = crc32c(GROUP_MAGIC)

SEGMENT_HEADER_SIZE = _SEGMENT.size
GROUP_HEADER_SIZE = _GROUP.size
"""The fixed part; four bytes for each batch follow, padded to a multiple of 8."""

GROUP_BATCHES_MAX = 999
"""Batches of one group: with its header at most 1,000 buffers, so that one ``pwritev`` takes it whole."""

_GROUP_BODY_BYTES_MAX = 1 << 32

NO_LOG_ID = bytes(16)
"""The log id in a segment that a version wrote which had none."""

TEMPORARY_NAME = "next.temporary"
"""A new spare before it is complete; left over only by a crash, never read."""

_SEGMENT_NAME = re.compile(r"(\d{20})\.segment", re.ASCII)
_REPLACED = ".replaced"
_SPARE_NAME = re.compile(r"(\d{20})\.(prepared|dropped)", re.ASCII)

assert SEGMENT_HEADER_SIZE == 64
assert GROUP_HEADER_SIZE == 72


def segment_name(number: int) -> str:
    """Return the file name of segment ``number``: 20 digits, so that names sort as numbers do."""
    return f"{number:020d}.segment"


def parse_segment_name(name: str) -> int | None:
    """Return the number in a segment's file name; None for any other name."""
    match = _SEGMENT_NAME.fullmatch(name)
    return int(match[1]) if match else None


def replaced_name(number: int) -> str:
    """Return the file name of segment ``number`` of a log that a snapshot has replaced."""
    return f"{number:020d}{_REPLACED}"


def is_replaced_name(name: str) -> bool:
    """Return whether a file is a segment of a log that a snapshot has replaced."""
    return name.endswith(_REPLACED)


@fast_members
class SpareKind(Enum):
    """The content of a file that waits to become a segment; the last part of its name."""

    PREPARED = "prepared"
    """Zeros, synced, in full length."""
    DROPPED = "dropped"
    """The bytes of the segment that it was before it was trimmed."""


def spare_name(number: int, kind: SpareKind) -> str:
    """Return the file name of a spare; the number has no other meaning than to make it unique."""
    return f"{number:020d}.{kind.value}"


def parse_spare_name(name: str) -> tuple[int, SpareKind] | None:
    """Return the number and the kind in a spare's file name; None for any other name."""
    match = _SPARE_NAME.fullmatch(name)
    return (int(match[1]), SpareKind(match[2])) if match else None


def batch_checksum(batch: Batch) -> int:
    """Return the header checksum of a batch: through the body checksum in its header it covers all of the batch."""
    return int(_U32.unpack_from(batch.buffer, 4)[0])


@value_class
class SegmentHeader:
    """The first bytes of a segment, written together with its first group.

    ``generation`` is new for every file that becomes a segment, also where a truncated number is used again.
    ``first_index`` is that of the first record that goes in; ``previous_term`` that of the record before it;
    ``first_group`` the lowest number that a group in here can have. ``log_id``, 16 bytes, is drawn when a log is made:
    all its segments carry it, and the control file; ``NO_LOG_ID`` = an older version wrote it.
    """

    number: int
    generation: int
    first_index: int
    previous_term: int
    first_group: int
    log_id: bytes = NO_LOG_ID

    def encode(self) -> bytes:
        """Return the ``SEGMENT_HEADER_SIZE`` bytes."""
        assert len(self.log_id) == len(NO_LOG_ID), f"a log id of {len(self.log_id)} bytes"
        packed = bytearray(
            _SEGMENT.pack(
                _SEGMENT_MAGIC_NOW,
                0,
                self.number,
                self.generation,
                self.first_index,
                self.previous_term,
                self.first_group,
                self.log_id,
            )
        )
        _U32.pack_into(packed, 4, _checksum(packed))
        return bytes(packed)

    @classmethod
    def decode(cls, buffer: Buffer, path: str) -> SegmentHeader:
        """Read the header at the start of ``buffer``.

        Raises:
          FrameError: no intact segment header.
          ConfigError: an intact one of a newer format; ``path`` names the file in the message.
        """
        if len(buffer) < SEGMENT_HEADER_SIZE:
            raise FrameError(f"a segment header takes {SEGMENT_HEADER_SIZE} bytes, {len(buffer)} are there")
        view = memoryview(buffer)[:SEGMENT_HEADER_SIZE]
        magic, checksum, *fields = _SEGMENT.unpack(view)
        if magic[:3] != _SEGMENT_MAGIC:
            raise FrameError(f"no segment header: it starts with {magic!r}, not {_SEGMENT_MAGIC_NOW!r}")
        found = _checksum(view)
        if found != checksum:
            raise FrameError(f"segment header checksum {found:#010x}, expected {checksum:#010x}")
        if magic != _SEGMENT_MAGIC_NOW:
            # Layout and checksum of these 64 bytes are the same in every version, so the version can be believed.
            raise ConfigError(
                f"{path} has WAL format {magic[3]}, this version of viewstamp reads {FORMAT_VERSION}",
                remedy="run the version of viewstamp that wrote this data directory, or a newer one",
            )
        number, generation, first_index, previous_term, first_group, log_id = fields
        return cls(
            number=number,
            generation=generation,
            first_index=first_index,
            previous_term=previous_term,
            first_group=first_group,
            log_id=log_id,
        )


@value_class
class GroupHeader:
    """The header before the batches of one write and one sync.

    ``location`` is its own byte in the segment; ``durable`` the byte of the segment below which all was
    durable when this group was written (0 in a segment's first group: not even the segment header was).
    ``commit_hint`` is an end: all below it was committed. ``first_index`` is that of the first record; in
    an empty group it is the end of the log. ``checksums`` are the header checksums of the batches: they tie
    exactly these batches to this group. ``body_size`` counts the bytes of the batches.

    Invariants:
      * ``durable <= location``
      * an empty group has no body; only an empty one seals
    """

    generation: int
    number: int
    location: int
    durable: int
    commit_hint: int
    first_index: int
    body_size: int
    seals: bool
    checksums: Sequence[int]

    @classmethod
    def empty_first(cls, segment: SegmentHeader, *, seals: bool = False) -> GroupHeader:
        """Return the empty group that is the first of a segment, and all of it for now."""
        return cls(
            generation=segment.generation,
            number=segment.first_group,
            location=SEGMENT_HEADER_SIZE,
            durable=0,
            commit_hint=0,
            first_index=segment.first_index,
            body_size=0,
            seals=seals,
            checksums=(),
        )

    @property
    def size(self) -> int:
        """The size of this header in bytes."""
        return GROUP_HEADER_SIZE + pad(4 * len(self.checksums))

    @property
    def is_empty(self) -> bool:
        """Whether it only closes the group before it."""
        return not self.checksums

    def encode(self) -> bytes:
        """Return the header's bytes, ``size`` of them."""
        packed = encode_group(
            generation=self.generation,
            number=self.number,
            location=self.location,
            durable=self.durable,
            commit_hint=self.commit_hint,
            first_index=self.first_index,
            body_size=self.body_size,
            seals=self.seals,
            checksums=struct.pack(f"<{len(self.checksums)}I", *self.checksums),
        )
        return bytes(packed)

    @staticmethod
    def measure(buffer: Buffer) -> int:
        """Return the size of the group header at the start of ``buffer``; only the magic and the count are checked.

        Raises:
          FrameError: fewer than ``GROUP_HEADER_SIZE`` bytes, or no group header.
        """
        if len(buffer) < GROUP_HEADER_SIZE:
            raise FrameError(f"a group header takes {GROUP_HEADER_SIZE} bytes, {len(buffer)} are there")
        magic = bytes(buffer[:4])
        if magic != GROUP_MAGIC:
            raise FrameError(f"no group header: it starts with {magic!r}, not {GROUP_MAGIC!r}")
        count = int(_U32.unpack_from(buffer, 60)[0])
        if count > GROUP_BATCHES_MAX:
            raise FrameError(f"a group of {count} batches, at most {GROUP_BATCHES_MAX} are possible")
        return GROUP_HEADER_SIZE + pad(4 * count)

    @classmethod
    def decode(cls, buffer: Buffer) -> GroupHeader:
        """Read the header that fills ``buffer`` exactly.

        Raises:
          FrameError: no intact group header.
        """
        size = cls.measure(buffer)
        if len(buffer) != size:
            raise FrameError(f"the group header takes {size} bytes, {len(buffer)} are there")
        view = memoryview(buffer)
        _, checksum, generation, number, location, durable, hint, first_index, body, count, _, flags = _GROUP.unpack(
            view[:GROUP_HEADER_SIZE]
        )
        found = _checksum(view)
        if found != checksum:
            raise FrameError(f"group header checksum {found:#010x}, expected {checksum:#010x}")
        return cls(
            generation=generation,
            number=number,
            location=location,
            durable=durable,
            commit_hint=hint,
            first_index=first_index,
            body_size=body,
            seals=bool(flags & _SEALS),
            checksums=struct.unpack_from(f"<{count}I", view, GROUP_HEADER_SIZE),
        )


def encode_group(
    *,
    generation: int,
    number: int,
    location: int,
    durable: int,
    commit_hint: int,
    first_index: int,
    body_size: int,
    seals: bool,
    checksums: bytes,
) -> bytearray:
    """Return the bytes of a group header; the arguments are the fields of :class:`GroupHeader`.

    ``checksums`` holds those of the batches one behind the other, as they stand in the batches: bytes 4 to 8 of each.
    The writer uses this function without a :class:`GroupHeader`, because each group pays for every call.
    """
    count = len(checksums) // 4
    assert count <= GROUP_BATCHES_MAX, f"{count} batches, at most {GROUP_BATCHES_MAX}"
    assert body_size < _GROUP_BODY_BYTES_MAX, f"a group of {body_size} bytes"
    flags = _SEALS if seals else 0
    packed = bytearray(GROUP_HEADER_SIZE + 4 * (count + count % 2))  # Padded to a multiple of 8.
    _GROUP.pack_into(
        packed,
        0,
        GROUP_MAGIC,
        0,
        generation,
        number,
        location,
        durable,
        commit_hint,
        first_index,
        body_size,
        count,
        0,
        flags,
    )
    packed[GROUP_HEADER_SIZE : GROUP_HEADER_SIZE + len(checksums)] = checksums
    _U32.pack_into(packed, 4, crc32c(memoryview(packed)[8:], _GROUP_MAGIC_CHECKSUM))
    return packed


def _checksum(header: Buffer) -> int:
    """Return the crc32c of a header without its checksum field (bytes 4 to 8)."""
    view = memoryview(header)
    return crc32c(view[8:], crc32c(view[:4]))
