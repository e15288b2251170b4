"""The batch: an atomic, immutable run of records with one header; the unit of wire, WAL and recovery.

Bytes of a batch, little-endian, 96 bytes of header and a body::

     0  magic "VSB" + format version (1)        4 bytes
     4  header checksum, crc32c of bytes 8..96  u32
     8  term                                    u64   |
    16  first index                             u64   | filled in by the leader, in place;
    24  previous term                           u64   | only the header checksum covers them
    32  log time, microseconds since 1970       i64   |
    40  first position, 0 = none yet            u64   |
    48  body checksum, crc32c of bytes 52..end  u32
    52  kind                                    u8
    53  flags                                   u8    1 = keys, 2 = headers
    54  codec                                   u8    0 = the body is not compressed
    55  reserved                                u8    0
    56  topic id, 0 = none                      u32
    60  record count, at least 1                u32
    64  session id, 0 = none                    u64
    72  sequence in the session, 0 = none       u64
    80  body length                             u32
    84  attempt of a STAGED batch, 0 = none     u64
    92  reserved                                4 bytes, 0
    96  body

The body is columns, each padded to a multiple of 8 bytes: the values; then, where the flags say so,
the keys and the headers. A column is Arrow's binary layout: ``count + 1`` int32 offsets (from 0), the
padding, then the bytes. Keys are nullable: their column begins with a validity bitmap (bit i, least
significant first, = record i has a key). A record's headers are one msgpack map, empty bytes = none.

Servers never decode the body: only the client that builds a batch and the reader that decodes it spend time on each
record.

Of a batch of COMMANDS, "first position" is the limit of each result in bytes, as set by the leader that admitted it;
0 = no limit, as in batches of releases that had none.

A STAGED batch holds records that have no position yet: a COMMIT, later in the log, assigns their positions. Its stored
first position is always 0. Readers get it with another header, which has the position and the COMMIT's log time
(:meth:`Batch.placed`), before the same body.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from enum import IntEnum
from typing import NamedTuple

import msgpack

from viewstamp.enums import fast_members
from viewstamp.errors import FrameError
from viewstamp.ids import Index, Position, Sequence, SessionId, Term, TopicId
from viewstamp.wire.checksum import crc32c

__all__ = [
    "FORMAT_VERSION",
    "HEADER_SIZE",
    "Batch",
    "Buffer",
    "Column",
    "Columns",
    "Kind",
    "Record",
    "build_batch",
    "build_columns",
    "encode_batch",
    "pad",
]

Buffer = bytes | bytearray | memoryview

FORMAT_VERSION = 1
HEADER_SIZE = 96
_MAGIC = b"VSB" + bytes([FORMAT_VERSION])
_HEADER = struct.Struct("<4sI QQQqQ IBBBBIIQQIQ 4x")
_LEADER_PART = struct.Struct("<QQQqQ")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_LEADER_START = 8
_BODY_CHECKSUM_AT = 48
_CLIENT_START = 52
_FLAG_KEYS = 1
_FLAG_HEADERS = 2
assert _HEADER.size == HEADER_SIZE


@fast_members
class Kind(IntEnum):
    """The content of a batch.

    RECORDS of a topic, COMMANDS of actors, STAGED records of a sink's attempt, or else one command to the node's state.
    """

    RECORDS = 1
    MEMBERSHIP = 2
    CREATE_TOPIC = 3
    OPEN_SESSION = 4
    FENCE = 5
    COMMANDS = 6
    TRIM_TOPIC = 7
    CONFIGURE_TOPIC = 8
    STAGED = 9
    BEGIN_ATTEMPT = 10
    SEAL_ATTEMPT = 11
    ABORT_ATTEMPTS = 12
    COMMIT = 13
    FORGET_SINK = 14
    EXPIRE_SESSIONS = 15
    FORK = 16
    CREATE_TOKEN = 17
    ROTATE_TOKEN = 18
    REVOKE_TOKEN = 19
    AUDIT = 20
    PLACE_GROUP = 21
    HOSTED = 22
    CANCEL_GROUP = 23
    PREPARE_RUN = 24
    COMMIT_RUN = 25
    DROP_RUN = 26
    FORGET_RUN = 27
    SPREAD_TOPIC = 28
    ORDER = 29
    CONTEXT = 30
    CONFIGURE_ARCHIVE = 31
    CONFIGURE_SPREAD = 32
    TRIM_SPREAD = 33
    SPREAD_ACTOR = 34
    RESHARD_ACTOR = 60
    INSTANCES = 61
    CONFIGURE_SCHEMA = 39
    CONFIGURE_SPREAD_SCHEMA = 69
    ADD_STREAM = 70
    GONE_STREAM = 71
    DROP_STREAM = 72
    CONFIGURE_KEYED = 40
    PREPARE_KEYS = 41
    COMMIT_KEYS = 42
    DROP_KEYS = 43
    FORGET_KEYS = 44
    FORK_GROUPS = 45
    BEGIN_PART = 50
    COMMIT_PARTS = 51
    CLOSE_STREAM = 35
    SEALED_STREAM = 36
    SEAL_STREAM = 38
    LOSE_STREAM = 46
    RECOVER_ORDER = 80
    SET_ASIDE = 81
    CONFIGURE_SPREAD_ARCHIVE = 73
    LOSE_SEALED_STREAM = 74
    REMOVE_GROUP = 75
    HOST_GROUP = 76
    UNHOST_GROUP = 77
    LEFT_GROUP = 78


_KINDS = {int(kind): kind for kind in Kind}


class Record(NamedTuple):
    """One record of a topic, as ``client.read`` yields it.

    Attributes:
      position: the record's place in its topic, from 1.
      term: the term in which the record was appended.
      index: the record's place in the log.
      timestamp: the log time of its batch, in microseconds since 1970.
      value: the appended bytes.
      key: the key in bytes; None = appended without one.
      headers: names and bytes; None = appended without headers.
    """

    position: Position
    term: Term
    index: Index  # type: ignore[assignment]  # replaces tuple.index(), which is of no use for a record
    timestamp: int
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes] | None


class Column(NamedTuple):
    """Byte strings as Arrow lays them out: ``count + 1`` little-endian int32 offsets from 0, and the bytes."""

    offsets: Buffer
    data: Buffer


class Columns(NamedTuple):
    """The records of a batch as undecoded columns, in the layout that Arrow and a batch's body share.

    ``validity``: a bit for each key, least significant first, 1 = there is one; None = there are no keys at all, and
    then ``keys`` is None too. ``headers``: each a msgpack map, or empty.
    """

    count: int  # type: ignore[assignment]  # replaces tuple.count(), which is of no use for columns
    values: Column
    validity: Buffer | None = None
    keys: Column | None = None
    headers: Column | None = None

    @property
    def size(self) -> int:
        """The bytes of a batch of these columns, header included."""
        size = HEADER_SIZE
        for column in (self.values, self.keys, self.headers):
            if column is not None:
                size += pad(4 * (self.count + 1)) + pad(len(column.data))
        return size + (pad((self.count + 7) // 8) if self.keys is not None else 0)


class Batch:
    """A batch and the buffer that holds it.

    The fields are parsed once; the bytes are never copied. A batch that has an index is immutable.

    Invariants:
      * ``size == HEADER_SIZE + body length == len(buffer)``
      * ``end == first_index + count``
    """

    __slots__ = (
        "attempt",
        "buffer",
        "count",
        "end",
        "first_index",
        "first_position",
        "flags",
        "kind",
        "log_time",
        "previous_term",
        "sequence",
        "session",
        "size",
        "term",
        "topic",
    )

    term: Term
    first_index: Index
    end: Index
    """The index after the last record."""
    previous_term: Term
    first_position: Position
    topic: TopicId
    session: SessionId
    sequence: Sequence

    def __init__(self, buffer: Buffer, fields: tuple[int, ...]) -> None:
        """Take ``buffer`` and its unpacked header; use :meth:`decode` or :func:`build_batch`."""
        self.buffer = buffer
        self.size = len(buffer)
        # A NewType is a call at run time, and this is done for every batch on every member.
        (
            self.term,
            self.first_index,
            self.previous_term,
            self.log_time,
            self.first_position,
            _,
            kind,
            self.flags,
            _,
            _,
            self.topic,
            self.count,
            self.session,
            self.sequence,
            _,
            self.attempt,
        ) = fields  # type: ignore[assignment]
        self.kind = _KINDS[kind]
        self.end = self.first_index + self.count  # type: ignore[assignment]

    @property
    def last_index(self) -> Index:
        """The index of the last record."""
        return Index(self.first_index + self.count - 1)

    def __repr__(self) -> str:
        return (
            f"<Batch {self.kind.name} {self.term}.{self.first_index}..{self.last_index}"
            f" topic={self.topic} session={self.session}#{self.sequence} {self.size} bytes>"
        )

    @staticmethod
    def measure(buffer: Buffer, offset: int = 0) -> int:
        """Return the size in bytes of the batch whose header is at ``offset``; nothing is verified but the magic.

        Raises:
          FrameError: fewer than ``HEADER_SIZE`` bytes are there, or they are no batch header.
        """
        if len(buffer) - offset < HEADER_SIZE:
            raise FrameError(f"a batch header takes {HEADER_SIZE} bytes, {len(buffer) - offset} are there")
        if buffer[offset : offset + 4] != _MAGIC:
            raise FrameError(f"not a batch: it starts with {bytes(buffer[offset : offset + 4])!r}, not {_MAGIC!r}")
        return HEADER_SIZE + int(_U32.unpack_from(buffer, offset + 80)[0])

    @classmethod
    def decode(cls, buffer: Buffer, *, verify: bool = True) -> Batch:
        """Read one batch that fills ``buffer`` exactly; the batch keeps the buffer.

        Args:
          buffer: header + body. A writable one lets the leader stamp the batch in place.
          verify: check both checksums; False only for bytes that this process has checked before.

        Raises:
          FrameError: too short, wrong magic or version, wrong length, an unknown kind or codec, or a
            checksum that does not match. Nothing was changed; the sender is at fault.
        """
        if len(buffer) < HEADER_SIZE:
            raise FrameError(f"a batch header takes {HEADER_SIZE} bytes, {len(buffer)} are there")
        magic, header_checksum, *rest = _HEADER.unpack_from(buffer)
        if magic != _MAGIC:
            raise FrameError(f"no batch: it starts with {magic!r}, not {_MAGIC!r}")
        fields = tuple(rest)
        size = HEADER_SIZE + fields[14]
        if len(buffer) != size:
            raise FrameError(f"the batch header gives {size} bytes, but there are {len(buffer)}")
        if verify:
            view = memoryview(buffer)
            found = crc32c(view[_LEADER_START:HEADER_SIZE])
            if found != header_checksum:
                raise FrameError(f"batch header checksum {found:#010x}, expected {header_checksum:#010x}")
            found = crc32c(view[_CLIENT_START:])
            if found != fields[5]:
                raise FrameError(f"batch body checksum {found:#010x}, expected {fields[5]:#010x}")
        if fields[6] not in _KINDS or fields[8] != 0 or fields[11] < 1:
            raise _unknown(fields)
        return cls(buffer, fields)

    @classmethod
    def decode_listed(cls, buffer: memoryview, offset: int, checksum: int) -> Batch | None:
        """Read the batch at ``offset`` if it is intact and has this header checksum; None = it is not.

        Unlike :meth:`decode` it gives no reason for a damaged batch. That makes it faster, which matters because
        recovery reads many batches and nearly all of them are intact.
        """
        if len(buffer) - offset < HEADER_SIZE:
            return None
        head = _HEADER.unpack_from(buffer, offset)
        size = HEADER_SIZE + head[16]
        view = buffer[offset : offset + size]
        if head[0] != _MAGIC or head[1] != checksum or len(view) != size:
            return None
        if crc32c(view[_LEADER_START:HEADER_SIZE]) != checksum or crc32c(view[_CLIENT_START:]) != head[7]:
            return None
        if head[8] not in _KINDS or head[10] != 0 or head[13] < 1:
            return None
        return cls(view, head[2:])

    @classmethod
    def decode_all(cls, buffer: Buffer, *, verify: bool = True) -> list[Batch]:
        """Read the batches that stand one behind the other in ``buffer``, as views of it.

        Raises:
          FrameError: as :meth:`decode`.
        """
        view = memoryview(buffer)
        batches = []
        offset = 0
        while offset < len(view):
            # As `measure`, without a further call for each batch: `decode` checks the magic.
            if len(view) - offset < HEADER_SIZE:
                raise FrameError(f"a batch header takes {HEADER_SIZE} bytes, {len(view) - offset} are there")
            size = HEADER_SIZE + int(_U32.unpack_from(view, offset + 80)[0])
            batches.append(cls.decode(view[offset : offset + size], verify=verify))
            offset += size
        return batches

    def stamp(
        self,
        *,
        term: Term,
        first_index: Index,
        previous_term: Term,
        log_time: int,
        first_position: Position,
    ) -> None:
        """Write the leader's fields and the header checksum into the buffer, which must be writable.

        Never awaits. Called once, by the leader, before other code gets the batch.
        """
        assert self.first_index == 0, f"{self!r} has an index already"
        buffer = self.buffer
        assert not isinstance(buffer, bytes), "a batch is stamped in place: the buffer must be writable"
        _LEADER_PART.pack_into(buffer, _LEADER_START, term, first_index, previous_term, log_time, first_position)
        _U32.pack_into(buffer, 4, crc32c(memoryview(buffer)[_LEADER_START:HEADER_SIZE]))
        self.term = term
        self.first_index = first_index
        self.end = first_index + self.count  # type: ignore[assignment]
        self.previous_term = previous_term
        self.log_time = log_time
        self.first_position = first_position

    def placed(self, first_position: Position, log_time: int) -> tuple[Buffer, Buffer]:
        """Return the batch as a reader gets it, with the position and the log time of its COMMIT: header and body.

        The body is a view of this buffer. This batch does not change, because it is in the log.
        """
        header = bytearray(self.buffer[:HEADER_SIZE])
        _LEADER_PART.pack_into(
            header, _LEADER_START, self.term, self.first_index, self.previous_term, log_time, first_position
        )
        _U32.pack_into(header, 4, crc32c(memoryview(header)[_LEADER_START:HEADER_SIZE]))
        return header, memoryview(self.buffer)[HEADER_SIZE:]

    @classmethod
    def decode_header(cls, buffer: Buffer) -> Batch:
        """Read the header at the start of ``buffer``. The body may be missing; ``size`` is the size of the whole batch.

        Raises:
          FrameError: as :meth:`decode`; the checksum of the header is verified, that of the body is not.
        """
        size = cls.measure(buffer)
        view = memoryview(buffer)[:HEADER_SIZE]
        _, header_checksum, *rest = _HEADER.unpack(view)
        found = crc32c(view[_LEADER_START:])
        if found != header_checksum:
            raise FrameError(f"batch header checksum {found:#010x}, expected {header_checksum:#010x}")
        fields = tuple(rest)
        if fields[6] not in _KINDS or fields[8] != 0 or fields[11] < 1:
            raise _unknown(fields)
        batch = cls(view, fields)
        batch.size = size
        return batch

    def columns(self) -> Columns:
        """Return the records as views of the buffer: nothing is copied, nothing is looked at but where columns end.

        Raises:
          FrameError: a column reaches beyond the body.
        """
        values, at = self._view(HEADER_SIZE)
        validity, keys, headers = None, None, None
        if self.flags & _FLAG_KEYS:
            size = pad((self.count + 7) // 8)
            validity = memoryview(self.buffer)[at : at + size]
            keys, at = self._view(at + size)
        if self.flags & _FLAG_HEADERS:
            headers, at = self._view(at)
        return Columns(self.count, values, validity, keys, headers)

    def _view(self, at: int) -> tuple[Column, int]:
        """Return the column that starts at ``at``, and where the next one starts."""
        table = 4 * (self.count + 1)
        start = at + pad(table)
        view = memoryview(self.buffer)
        if start > len(view):
            raise FrameError(f"the column at byte {at} of {self!r} ends inside its offsets")
        (first,), (last,) = _I32.unpack_from(view, at), _I32.unpack_from(view, at + table - 4)
        if first != 0 or last < 0 or start + last > len(view):
            raise FrameError(f"the offsets of the column at byte {at} of {self!r} are not a rising run inside it")
        return Column(view[at : at + table], view[start : start + last]), start + pad(last)

    def values(self) -> list[bytes]:
        """Copy the values out, in order. Raises FrameError as :meth:`records` does."""
        values, _ = self._column(HEADER_SIZE)
        return values

    def column(self) -> tuple[tuple[int, ...], bytes]:
        """Copy the values as one run of bytes, and return their offsets too: one more than there are values.

        Raises FrameError as :meth:`records` does.
        """
        offsets, data, start = self._layout(HEADER_SIZE)
        return offsets, data[start : start + offsets[-1]]

    def records(self) -> list[Record]:
        """Decode every record, in order. For readers and clients only; a server never calls it.

        Raises:
          FrameError: the body does not have the layout of a batch, although its checksum is right: the program that
            built it is wrong.
        """
        values, at = self._column(HEADER_SIZE)
        keys: SequenceOf[bytes | None] = [None] * self.count
        headers: SequenceOf[Mapping[str, bytes] | None] = [None] * self.count
        if self.flags & _FLAG_KEYS:
            valid = bytes(self.buffer[at : at + pad((self.count + 7) // 8)])
            if len(valid) * 8 < self.count:
                raise FrameError(f"the column at byte {at} of {self!r} ends inside its validity bitmap")
            column, at = self._column(at + len(valid))
            keys = [key if valid[i >> 3] >> (i & 7) & 1 else None for i, key in enumerate(column)]
        if self.flags & _FLAG_HEADERS:
            column, at = self._column(at)
            headers = [_unpack_headers(packed) if packed else None for packed in column]
        return [
            Record(
                Position(self.first_position + i),
                self.term,
                Index(self.first_index + i),
                self.log_time,
                values[i],
                keys[i],
                headers[i],
            )
            for i in range(self.count)
        ]

    def _column(self, at: int) -> tuple[list[bytes], int]:
        """Return the byte strings of the column at ``at``, and the start of the next column."""
        offsets, data, start = self._layout(at)
        column = [data[start + a : start + b] for a, b in itertools.pairwise(offsets)]
        return column, at + pad(start + offsets[-1])

    def _layout(self, at: int) -> tuple[tuple[int, ...], bytes, int]:
        """Return the offsets of the column at ``at``, the buffer from there on, and the start of the bytes in it."""
        data = bytes(self.buffer[at:])
        try:
            offsets = struct.unpack_from(f"<{self.count + 1}i", data)
        except struct.error:
            raise FrameError(f"the column at byte {at} of {self!r} ends inside its offsets") from None
        start = pad(4 * (self.count + 1))
        if offsets[0] != 0 or start + offsets[-1] > len(data) or list(offsets) != sorted(offsets):
            raise FrameError(f"the offsets of the column at byte {at} of {self!r} are not a rising run inside it")
        return offsets, data, start


def build_batch(
    values: SequenceOf[Buffer],
    *,
    kind: Kind = Kind.RECORDS,
    topic: TopicId = TopicId(0),
    session: SessionId = SessionId(0),
    sequence: Sequence = Sequence(0),
    attempt: int = 0,
    keys: SequenceOf[bytes | None] | None = None,
    headers: SequenceOf[Mapping[str, bytes] | None] | None = None,
) -> Batch:
    """Build a batch without index from ``values`` (at least one) in one writable buffer.

    ``keys`` and ``headers``, where given, are as long as ``values``. The leader's fields are zero.
    """
    buffer = encode_batch(
        values,
        kind=kind,
        topic=topic,
        session=session,
        sequence=sequence,
        attempt=attempt,
        keys=keys,
        headers=headers,
    )
    return Batch(buffer, _HEADER.unpack_from(buffer)[2:])


def encode_batch(
    values: SequenceOf[Buffer],
    *,
    kind: Kind = Kind.RECORDS,
    topic: TopicId = TopicId(0),
    session: SessionId = SessionId(0),
    sequence: Sequence = Sequence(0),
    attempt: int = 0,
    keys: SequenceOf[bytes | None] | None = None,
    headers: SequenceOf[Mapping[str, bytes] | None] | None = None,
) -> bytearray:
    """Return the bytes of the batch that :func:`build_batch` would build, for a sender that needs nothing else."""
    assert values, "a batch holds at least one record"
    flags = 0
    # As `_add_column`, because nearly every batch has this column only.
    offsets = list(itertools.accumulate(map(len, values), initial=0))
    table = struct.pack(f"<{len(offsets)}i", *offsets)
    parts: list[Buffer] = [b"", table, bytes(-len(table) % 8), *values, bytes(-offsets[-1] % 8)]
    if keys is not None and any(key is not None for key in keys):
        flags |= _FLAG_KEYS
        bitmap = bytearray(pad((len(keys) + 7) // 8))
        for i, key in enumerate(keys):
            if key is not None:
                bitmap[i >> 3] |= 1 << (i & 7)
        parts.append(bitmap)
        _add_column(parts, [key or b"" for key in keys])
    if headers is not None and any(headers):
        flags |= _FLAG_HEADERS
        _add_column(parts, [msgpack.packb(dict(h)) if h else b"" for h in headers])
    return _join(parts, flags, kind, topic, len(values), session, sequence, attempt)


def build_columns(
    columns: Columns,
    *,
    kind: Kind = Kind.RECORDS,
    topic: TopicId = TopicId(0),
    session: SessionId = SessionId(0),
    sequence: Sequence = Sequence(0),
    attempt: int = 0,
) -> Batch:
    """Build a batch without index from columns of at least one record. Each is copied once, and none is checked."""
    assert columns.count >= 1, "a batch holds at least one record"
    flags = 0
    parts: list[Buffer] = [b""]
    _add_buffers(parts, columns.values)
    if columns.keys is not None:
        assert columns.validity is not None, "keys and their validity bitmap belong together"
        flags |= _FLAG_KEYS
        _add_padded(parts, memoryview(columns.validity)[: (columns.count + 7) // 8])
        _add_buffers(parts, columns.keys)
    if columns.headers is not None:
        flags |= _FLAG_HEADERS
        _add_buffers(parts, columns.headers)
    buffer = _join(parts, flags, kind, topic, columns.count, session, sequence, attempt)
    return Batch(buffer, _HEADER.unpack_from(buffer)[2:])


def _join(
    parts: list[Buffer],
    flags: int,
    kind: Kind,
    topic: TopicId,
    count: int,
    session: SessionId,
    sequence: Sequence,
    attempt: int,
) -> bytearray:
    """Join the body's ``parts`` behind a header, which takes the place of the first one."""
    body_size = sum(map(len, parts))
    fields = (0, 0, 0, 0, 0, 0, kind, flags, 0, 0, topic, count, session, sequence, body_size, attempt)
    parts[0] = _HEADER.pack(_MAGIC, 0, *fields)
    buffer = bytearray().join(parts)
    _U32.pack_into(buffer, _BODY_CHECKSUM_AT, crc32c(memoryview(buffer)[_CLIENT_START:]))
    _U32.pack_into(buffer, 4, crc32c(memoryview(buffer)[_LEADER_START:HEADER_SIZE]))
    return buffer


def _add_buffers(parts: list[Buffer], column: Column) -> None:
    _add_padded(parts, column.offsets)
    _add_padded(parts, column.data)


def _add_padded(parts: list[Buffer], buffer: Buffer) -> None:
    parts.append(buffer)
    parts.append(bytes(pad(len(buffer)) - len(buffer)))


def _unknown(fields: tuple[int, ...]) -> FrameError:
    """Return the error for a header that is intact, and that this version cannot read."""
    if fields[6] not in _KINDS:
        return FrameError(f"unknown batch kind {fields[6]}; this version knows {sorted(_KINDS)}")
    if fields[8] != 0:
        return FrameError(f"unknown compression codec {fields[8]}; this version knows 0 (none)")
    return FrameError("a batch holds at least one record")


def pad(size: int) -> int:
    """Round ``size`` up to a multiple of 8 bytes."""
    return (size + 7) & ~7


def _unpack_headers(packed: bytes) -> dict[str, bytes]:
    try:
        headers = msgpack.unpackb(packed)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise FrameError(f"the headers of a record are no msgpack: {error}") from error
    if type(headers) is not dict or not all(type(k) is str and type(v) is bytes for k, v in headers.items()):
        raise FrameError("the headers of a record are no map of strings to bytes")
    return headers


def _add_column(parts: list[Buffer], items: SequenceOf[Buffer]) -> None:
    offsets = list(itertools.accumulate(map(len, items), initial=0))
    total = offsets[-1]
    table = struct.pack(f"<{len(offsets)}i", *offsets)
    parts.append(table)
    parts.append(bytes(pad(len(table)) - len(table)))
    parts.extend(items)
    parts.append(bytes(pad(total) - total))
