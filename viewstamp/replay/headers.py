"""Pass 1: reads the header of every readable batch into a table; ``replica.py`` interprets the files."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from viewstamp.host.interfaces import Disk
from viewstamp.wal.format import GroupHeader
from viewstamp.wal.scan import ScanState, SegmentScan, SegmentScanner, UnreadableBatch
from viewstamp.wire.batch import HEADER_SIZE, Batch, Kind

__all__ = ["HEADER_ONLY", "BatchLink", "BatchTable", "SegmentTable", "scan_segment"]

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one read. A batch that reaches over the end of a piece is read again with the next piece."""

_LINK = struct.Struct("<8xQQQ28xI")
_LENGTH = struct.Struct("<I")
HEADER_ONLY: Final = frozenset({Kind.RECORDS, Kind.STAGED, Kind.COMMANDS, Kind.OPEN_SESSION, Kind.FENCE})
"""Kinds of batches whose body a replay needs only when it returns the records, or never."""


class BatchLink(NamedTuple):
    """The fields that link a batch to the one before it; ``first_index`` to ``end`` is half-open."""

    term: int
    first_index: int
    previous_term: int
    end: int


class BatchTable:
    """The headers of batches as they are on disk, with their places: 108 bytes each, in order of their index.

    Invariants:
      * ``first_index`` increases from row to row, and no two rows overlap
      * ``bodies`` holds the whole batch of each readable row that is a small command to the state
    """

    __slots__ = ("bodies", "files", "headers", "locations", "unreadable")

    def __init__(self) -> None:
        self.headers = bytearray()
        self.locations = array("Q")
        self.files = array("I")
        """The file of each row, as an index into the replica's files."""
        self.unreadable: set[int] = set()
        """Rows with an intact header and a damaged body."""
        self.bodies: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.locations)

    def __getstate__(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        for name, value in zip(self.__slots__, state, strict=True):
            setattr(self, name, value)

    def link(self, row: int) -> BatchLink:
        """Return the row's place in the log."""
        term, first_index, previous_term, count = _LINK.unpack_from(self.headers, row * HEADER_SIZE)
        return BatchLink(term, first_index, previous_term, first_index + count)

    def size(self, row: int) -> int:
        """Return the bytes of a batch, header included."""
        return HEADER_SIZE + int(_LENGTH.unpack_from(self.headers, row * HEADER_SIZE + 80)[0])

    def header(self, row: int) -> bytes:
        """Return the header's bytes. Copies of one batch have equal headers, which contain the checksums."""
        return bytes(self.headers[row * HEADER_SIZE : (row + 1) * HEADER_SIZE])

    def batch(self, row: int) -> Batch:
        """Return the batch, with its body if that is kept, else with its header only."""
        body = self.bodies.get(row)
        if body is not None:
            return Batch.decode(body, verify=False)
        return Batch.decode_header(self.header(row))

    def add(self, batch: Batch, location: int, *, file: int = 0, readable: bool = True) -> None:
        """Append a row."""
        row = len(self.locations)
        self.headers += batch.buffer[:HEADER_SIZE]
        self.locations.append(location)
        self.files.append(file)
        if not readable:
            self.unreadable.add(row)
        elif batch.kind not in HEADER_ONLY:
            self.bodies[row] = bytes(batch.buffer)

    def extend(self, other: BatchTable, file: int, start: int, end: int) -> None:
        """Append rows ``[start, end)`` of another table, all of which are in one file."""
        shift = len(self.locations) - start
        self.headers += other.headers[start * HEADER_SIZE : end * HEADER_SIZE]
        self.locations += other.locations[start:end]
        self.files += array("I", [file]) * (end - start)
        self.unreadable.update(row + shift for row in other.unreadable if start <= row < end)
        self.bodies.update((row + shift, body) for row, body in other.bodies.items() if start <= row < end)


@dataclass(slots=True)
class SegmentTable:
    """The content of one segment file: the scan, the rows, and the (term, first index) of each change of term."""

    scan: SegmentScan
    rows: BatchTable = field(default_factory=BatchTable)
    term_starts: list[tuple[int, int]] = field(default_factory=list)

    @property
    def first_index(self) -> int | None:
        """The index of the first record that is, or should be, in this file; None = unknown."""
        if self.scan.header is not None:
            return self.scan.header.first_index
        return self.rows.link(0).first_index if len(self.rows) else None

    def add(self, batch: Batch, location: int, *, readable: bool) -> None:
        """Append a row."""
        if not self.term_starts or self.term_starts[-1][0] != batch.term:
            self.term_starts.append((batch.term, batch.first_index))
        self.rows.add(batch, location, readable=readable)


def scan_segment(
    disk: Disk, path: str, number: int, *, limit: int | None = None, on_bytes: Callable[[int], None] = lambda _: None
) -> SegmentTable:
    """Read one segment file once, forward, and verify every checksum; blocking.

    Args:
      disk: the disk with the file.
      path: the file.
      number: the segment number in its name.
      limit: treat the file as if it ended at this byte, because a truncation was decided there; None = its real end.
      on_bytes: called now and then with the number of bytes read since the last call.

    Raises:
      ConfigError: the file has a newer format.
      StorageError, FileNotFoundError: the file cannot be read.
    """
    file = disk.open_read(path)
    try:
        scanner = SegmentScanner(
            file, number, ScanState(), limit=limit, is_tolerant=True, chunk_bytes=CHUNK_BYTES, on_bytes=on_bytes
        )
        table = SegmentTable(scanner.scan)
        scanner.read_header()
        for item in scanner.items():
            if not isinstance(item, GroupHeader):
                location, batch = item
                table.add(batch, location, readable=not isinstance(item, UnreadableBatch))
        return table
    finally:
        file.close()
