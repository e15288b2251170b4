"""A snapshot as a file: its bytes, a writer that never blocks the loop, a reader that verifies every byte.

``docs/snapshot-format.md`` draws the bytes and has the promises of the format. Two of them bind this module:

* The error for a wrong bit names the byte at which the damaged frame begins; all pieces before it were intact.
* Magic, version, checksum and body length keep their places in all versions, so that a newer file is not taken for a
  damaged one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgpack

from viewstamp.errors import ConfigError, CorruptionError
from viewstamp.host.interfaces import AsyncFile, Buffer, File
from viewstamp.ids import GroupId, Index, Term
from viewstamp.value_class import value_class
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.checksum import crc32c

__all__ = [
    "FORMAT_VERSION",
    "SYNC_BYTES",
    "TRAILER_SIZE",
    "SnapshotHeader",
    "SnapshotMeta",
    "SnapshotScanner",
    "SnapshotWriter",
    "adapt_piece",
    "adapt_trailer",
    "copy_snapshot",
    "encode_header",
    "encode_piece",
    "first_piece_end",
    "intact_bytes",
    "read_first_piece",
    "read_header",
    "read_pieces",
    "read_trailer",
]

FORMAT_VERSION = 1

_MAGIC = b"VSN"
_END_MAGIC = b"VSNEND\0\0"
_HEADER = struct.Struct("<4sI II")
_PIECE = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
_TRAILER = struct.Struct("<II QQ II 8s")
TRAILER_SIZE = _TRAILER.size

_GROUPS = 2**32 - 1
"""The header has 1 + the id of the group modulo this number. 0 is in the files of releases that did not write it."""
_META_BYTES_MAX = 16 * 1024 * 1024
"""A header that gives a larger size is damaged."""
_WRITE_BYTES = 256 * 1024
"""Bytes of one write. Small pieces are joined, large ones divided."""
SYNC_BYTES = 4 * 1024 * 1024
"""Limit of unsynced bytes, because a sync of the log waits for all bytes that the device got before it.

Measured on ext4, two busy cores, appends of 4 KiB beside a snapshot of 1 GB: never synced, the longest append took
189 ms; every 32 MiB 44 ms; every 8 MiB 17 ms with a p99 of 11-13 ms; every 4 MiB a p99 of 5 ms. Below that the
snapshot takes twice as long. Above it the write rate of a snapshot, about 300 MB per second, hardly differs.
"""


@value_class
class SnapshotMeta:
    """The description of a snapshot: the state after all records below ``end``, the last of which has ``term``.

    ``history`` is the term history up to ``end``, (term, first index) pairs (protocol rule 19). ``membership`` is the
    packed one in force at ``end``; the record it came from has ``membership_index`` and ``membership_term`` (0 = none).
    ``log_time`` is that of the last record; ``created_us`` is the wall clock when the file was begun. ``group`` is in
    the header and not in the body, because earlier releases refuse a body with another key; None = one of them wrote
    the file. A reader gets the remainder of an id from 4,294,967,295 on.
    """

    cluster: str
    group: int | None
    end: Index
    term: Term
    history: tuple[tuple[int, int], ...]
    membership: bytes
    membership_index: int
    membership_term: int
    log_time: int
    created_us: int

    def is_of(self, group: GroupId) -> bool:
        """Return whether the snapshot may be one of ``group``: its file names this group, or none."""
        return self.group is None or self.group % _GROUPS == group % _GROUPS

    def encode(self) -> bytes:
        """Return the body of a header."""
        packed: bytes = msgpack.packb(
            {
                "cluster": self.cluster,
                "end": self.end,
                "term": self.term,
                "history": self.history,
                "membership": self.membership,
                "membership_index": self.membership_index,
                "membership_term": self.membership_term,
                "log_time": self.log_time,
                "created_us": self.created_us,
            }
        )
        return packed

    @classmethod
    def decode(cls, body: bytes, group: int | None) -> SnapshotMeta:
        """Read the body of an intact header. Raises ValueError or TypeError if it is not a description."""
        fields: Any = msgpack.unpackb(body)
        if type(fields) is not dict or {name: type(value) for name, value in fields.items()} != _TYPES:
            raise TypeError(f"{brief_repr(fields)} is no description of a snapshot")
        if not all([*map(type, pair)] == [int, int] for pair in fields["history"]):
            raise TypeError(f"{brief_repr(fields['history'])} is no term history")
        fields["history"] = tuple(map(tuple, fields["history"]))
        return cls(group=group, **fields)


_TYPES = {
    "cluster": str,
    "end": int,
    "term": int,
    "history": list,
    "membership": bytes,
    "membership_index": int,
    "membership_term": int,
    "log_time": int,
    "created_us": int,
}
"""The msgpack types of a description's fields."""


@value_class(kw_only=False)
class SnapshotHeader:
    """An intact header: its description, the file's identity, and the byte at which the first piece begins."""

    meta: SnapshotMeta
    identity: int
    size: int


@dataclass(slots=True)
class _Sum:
    """The trailer's count, size and checksum of the pieces so far."""

    identity: int
    pieces: int = 0
    size: int = 0
    checksum: int = 0

    def add(self, size: int, checksum: int) -> None:
        self.pieces += 1
        self.size += size
        self.checksum = crc32c(_LENGTH.pack(checksum), self.checksum)

    def trailer(self) -> bytes:
        fields = (self.pieces, self.size, self.identity, self.checksum, _END_MAGIC)
        unchecked = _TRAILER.pack(0, 0, *fields)
        return _TRAILER.pack(0, crc32c(unchecked[8:], crc32c(unchecked[:4])), *fields)


def encode_header(meta: SnapshotMeta) -> bytes:
    """Return the header of a file."""
    body = meta.encode()
    magic = _MAGIC + bytes([FORMAT_VERSION])
    group = 0 if meta.group is None else 1 + meta.group % _GROUPS
    unchecked = _HEADER.pack(magic, 0, len(body), group) + body
    return _HEADER.pack(magic, _header_checksum(unchecked), len(body), group) + body


def adapt_trailer(trailer: bytes, header: bytes) -> tuple[bytes, int]:
    """Return the trailer for the same pieces after another ``header``, and the identity of that file."""
    _, _, pieces, size, _, checksum, _ = _TRAILER.unpack(trailer)
    identity: int = _HEADER.unpack_from(header)[1]
    return _Sum(identity, pieces, size, checksum).trailer(), identity


def adapt_piece(trailer: bytes, old: bytes, new: bytes) -> bytes:
    """Return the trailer of a file whose first piece is ``new`` in place of ``old``, which has the same length.

    A CRC is linear: those of two texts of one length differ by that of the texts' difference. Here this is in the
    checksum of the first piece, behind which those of the other pieces follow.
    """
    assert len(old) == len(new), f"a piece of {len(old)} bytes became one of {len(new)}"
    if old == new:
        return trailer
    _, _, pieces, size, identity, checksum, _ = _TRAILER.unpack(trailer)
    difference = _piece_checksum(old) ^ _piece_checksum(new)
    rest = bytes(_LENGTH.size * (pieces - 1))
    checksum ^= crc32c(_LENGTH.pack(difference) + rest) ^ crc32c(_LENGTH.pack(0) + rest)
    return _Sum(identity, pieces, size, checksum).trailer()


def encode_piece(piece: bytes) -> bytes:
    """Return a piece as it is in a file."""
    return _PIECE.pack(len(piece), _piece_checksum(piece)) + piece


def first_piece_end(file: File, header: SnapshotHeader) -> int:
    """Return the byte after the first piece, by its length, which is not verified. Blocks."""
    head = file.read(header.size, _PIECE.size)
    return header.size + _PIECE.size + (int(_PIECE.unpack(head)[0]) if len(head) == _PIECE.size else 0)


def read_first_piece(file: File, header: SnapshotHeader) -> bytes:
    """Return the first piece; b"" = there is none. Blocks.

    Raises:
      CorruptionError: it is not intact.
    """
    return _read_piece(file, header.size, file.size())[0] or b""


def _piece_checksum(piece: bytes) -> int:
    checksum: int = crc32c(piece, crc32c(_LENGTH.pack(len(piece))))
    return checksum


def read_header(file: _Readable) -> SnapshotHeader:
    """Read and verify the header; blocking.

    Raises:
      CorruptionError: it is not intact, or not whole.
      ConfigError: it is intact, of a newer format than this version can read.
    """
    start = file.read(0, _HEADER.size)
    if len(start) < _HEADER.size or start[: len(_MAGIC)] != _MAGIC:
        raise _damage(file, 0, "a snapshot's header", start[:4].hex(" ") or "nothing")
    magic, checksum, length, group = _HEADER.unpack(start)
    size = _HEADER.size + length
    # The length is not verified yet, so it must not cause a read beyond the end of the file.
    data = start + file.read(_HEADER.size, length) if size <= file.size() else start
    if len(data) < size or _header_checksum(data) != checksum:
        raise _damage(file, 0, "an intact header", "another checksum")
    if magic[-1] != FORMAT_VERSION:
        raise ConfigError(
            f"{file.path} has format {magic[-1]}, this version of viewstamp reads {FORMAT_VERSION}",
            remedy="run the version of viewstamp that wrote it, or a newer one",
        )
    try:
        meta = SnapshotMeta.decode(data[_HEADER.size :], group - 1 if group else None)
    except (ValueError, TypeError) as error:
        raise _damage(file, _HEADER.size, "a snapshot's description", repr(error)) from error
    return SnapshotHeader(meta, checksum, size)


def read_trailer(file: File, header: SnapshotHeader) -> None:
    """Check that the file ends with an intact trailer for this header, without reading the pieces.

    Raises:
      CorruptionError: it does not.
    """
    at = file.size() - _TRAILER.size
    data = file.read(at, _TRAILER.size) if at >= header.size else b""
    if not _is_trailer(data):
        raise _damage(file, max(at, header.size), "an intact trailer", "none")
    _, _, pieces, size, identity, _, _ = _TRAILER.unpack(data)
    expected = header.size + size + pieces * _PIECE.size + _TRAILER.size
    if identity != header.identity or expected != file.size():
        raise _damage(file, at, f"the trailer of {header.identity:08x}, {expected} bytes", f"{file.size()} bytes")


def read_pieces(file: File, header: SnapshotHeader) -> Iterator[bytes]:
    """Yield the verified pieces. Blocks. They are complete only if the iteration ends without an error.

    Raises:
      CorruptionError: a piece or the trailer is not intact, or something follows.
    """
    size = file.size()
    found = _Sum(header.identity)
    at = header.size
    while True:
        piece, checksum = _read_piece(file, at, size)
        if piece is None:
            break
        found.add(len(piece), checksum)
        at += _PIECE.size + len(piece)
        yield piece
    trailer = found.trailer()
    if file.read(at, _TRAILER.size + 1) != trailer:
        raise _damage(file, at, f"the trailer of {found.pieces} pieces, {found.size} bytes", "something else")


def intact_bytes(file: File) -> int:
    """Return the byte up to which header and pieces are intact, from which a transfer may go on. Blocks.

    Raises:
      ConfigError: the header is of a newer format.
    """
    at = 0
    try:
        at = read_header(file).size
        size = file.size()
        while (piece := _read_piece(file, at, size)[0]) is not None:
            at += _PIECE.size + len(piece)
    except CorruptionError:
        pass
    return at


def copy_snapshot(source: File, target: File, meta: SnapshotMeta) -> None:
    """Write the pieces of a snapshot behind another description into the empty file ``target``; blocking, synced.

    Raises:
      CorruptionError: ``source`` is damaged; ``target`` is useless.
      StorageError: the disk failed.
    """
    header = encode_header(meta)
    found = _Sum(_HEADER.unpack_from(header)[1])
    target.write(0, [header])
    at = len(header)
    for piece in read_pieces(source, read_header(source)):
        length = _LENGTH.pack(len(piece))
        checksum = crc32c(piece, crc32c(length))
        found.add(len(piece), checksum)
        target.write(at, [_PIECE.pack(len(piece), checksum), piece])
        at += _PIECE.size + len(piece)
    target.write(at, [found.trailer()])
    target.sync()


class SnapshotWriter:
    """Writes one file, from its header on; awaits only the disk.

    Pieces of up to a megabyte or so are best: each is checksummed at once, on the event loop.

    Invariants:
      * ``size`` bytes were added; all but the last few 256 KiB are written, all but the last 4 MiB synced
      * after an error, or a cancellation, the file is useless
    """

    def __init__(self, file: AsyncFile, meta: SnapshotMeta) -> None:
        header = encode_header(meta)
        self.header = SnapshotHeader(meta, _HEADER.unpack_from(header)[1], len(header))
        self.size = len(header)
        self._file = file
        self._sum = _Sum(self.header.identity)
        self._gathered: list[Buffer] = [header]
        self._written = 0
        self._synced = 0

    async def add(self, piece: bytes) -> None:
        """Append a piece, which is not empty."""
        assert piece, "an empty piece would read as the trailer"
        length = _LENGTH.pack(len(piece))
        checksum = crc32c(piece, crc32c(length))
        self._sum.add(len(piece), checksum)
        self._gathered += (_PIECE.pack(len(piece), checksum), piece)
        self.size += _PIECE.size + len(piece)
        if self.size - self._written >= _WRITE_BYTES:
            await self._write()

    async def finish(self) -> None:
        """Append the trailer and make all bytes durable. The name is not durable yet."""
        trailer = self._sum.trailer()
        self._gathered.append(trailer)
        self.size += len(trailer)
        await self._write()
        await self._file.sync()

    async def _write(self) -> None:
        data = memoryview(b"".join(self._gathered))
        self._gathered.clear()
        for start in range(0, len(data), _WRITE_BYTES):
            part = data[start : start + _WRITE_BYTES]
            await self._file.write(self._written, part)
            self._written += len(part)
            if self._written - self._synced >= SYNC_BYTES:
                await self._file.sync()
                self._synced = self._written


class SnapshotScanner:
    """Verifies a snapshot's file whose bytes arrive in order, for example in parts of a backup. Never awaits.

    Invariants:
      * ``header`` is None until it has arrived and is intact
      * all pieces before the bytes that wait for their end are intact
    """

    def __init__(self, path: str) -> None:
        """Begin; ``path`` names the file in errors."""
        self.header: SnapshotHeader | None = None
        self._path = path
        self._at = 0
        self._waiting = bytearray()
        self._sum = _Sum(0)
        self._is_whole = False

    def feed(self, data: Buffer) -> None:
        """Take the next bytes.

        Raises:
          CorruptionError: a byte is wrong, or some follow the trailer.
          ConfigError: the header is of a newer format.
        """
        self._waiting += data
        if self.header is None and not self._take_header():
            return
        at, waiting = 0, memoryview(self._waiting)
        try:
            while (size := self._next_size(waiting[at:])) is not None:
                at += size
        finally:
            waiting.release()
        del self._waiting[:at]
        self._at += at

    def finish(self) -> None:
        """Check that the file is complete. Raises CorruptionError."""
        if not self._is_whole or self._waiting:
            raise _damage(_Bytes(self._path, b""), self._at, "the trailer, and then the end", "something else")

    def _take_header(self) -> bool:
        if len(self._waiting) < _HEADER.size:
            return False
        size = _HEADER.size + int(_HEADER.unpack_from(self._waiting)[2])
        if len(self._waiting) < size <= _META_BYTES_MAX:
            return False
        self.header = read_header(_Bytes(self._path, bytes(self._waiting[:size])))
        self._sum.identity = self.header.identity
        self._at = size
        del self._waiting[:size]
        return True

    def _next_size(self, data: memoryview) -> int | None:
        """Verify the piece or the trailer at the start of ``data``, and return its size; None = it is not complete."""
        if self._is_whole or len(data) < _PIECE.size:
            return None
        length, checksum = _PIECE.unpack_from(data)
        if length == 0:
            if len(data) < _TRAILER.size:
                return None
            if data[: _TRAILER.size] != self._sum.trailer():
                raise _damage(_Bytes(self._path, b""), self._at, "the trailer of these pieces", "something else")
            self._is_whole = True
            return _TRAILER.size
        size = _PIECE.size + int(length)
        if len(data) < size:
            return None
        if crc32c(data[_PIECE.size : size], crc32c(data[:4])) != checksum:
            raise _damage(_Bytes(self._path, b""), self._at, "an intact piece", "another checksum")
        self._sum.add(length, checksum)
        return size


class _Bytes:
    """Bytes with the calls of a file that :func:`read_header` uses."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def size(self) -> int:
        return len(self._data)


class _Readable(Protocol):
    """The calls of a file that reading a header needs."""

    path: str

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...


def _read_piece(file: File, at: int, size: int) -> tuple[bytes | None, int]:
    """Return the piece whose head is at ``at``, and its checksum; None = an intact trailer may be there."""
    head = file.read(at, _PIECE.size)
    if len(head) < _PIECE.size:
        raise _damage(file, at, "a piece or the trailer", "the end of the file")
    length, checksum = _PIECE.unpack(head)
    if length == 0:
        return None, 0
    # The length is not verified yet, so it must not cause a read beyond the end of the file.
    if length > size - at - _PIECE.size:
        raise _damage(file, at, "a piece", f"one of {length} bytes, more than there are")
    piece = file.read(at + _PIECE.size, length)
    if crc32c(piece, crc32c(head[:4])) != checksum:
        raise _damage(file, at, "an intact piece", "another checksum")
    return piece, checksum


def _is_trailer(data: bytes) -> bool:
    if len(data) != _TRAILER.size or data[-len(_END_MAGIC) :] != _END_MAGIC:
        return False
    length, checksum = _PIECE.unpack_from(data)
    return bool(length == 0 and checksum == crc32c(data[8:], crc32c(data[:4])))


def _header_checksum(header: bytes) -> int:
    checksum: int = crc32c(header[8:], crc32c(header[:4]))
    return checksum


def _damage(file: _Readable, location: int, expected: str, found: str) -> CorruptionError:
    return CorruptionError(
        f"the snapshot {file.path} is damaged at byte {location}: expected {expected}, found {found}",
        path=file.path,
        location=location,
        expected=expected,
        found=found,
        remedy="if an older snapshot is there and the log reaches back to it, it is used; else give this node an empty "
        "data directory, and it fetches all from the others",
    )
