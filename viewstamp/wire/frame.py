"""Frames: length-delimited, checksummed bytes on a connection. Pure; independent of sockets.

A frame, little-endian::

     0  magic "VSF" + format version (1)   4 bytes
     4  checksum, crc32c of bytes 8..20 and of the body   u32
     8  kind                               u8
     9  reserved                           3 bytes, 0
    12  body length                        u32  (msgpack)
    16  payload length                     u32  (batches one after the other, each with checksums of its own)
    20  body, then payload

The checksum covers the length fields, so a damaged length is found at the next frame at the latest. A limit bounds the
memory of a decoder.

Bodies are msgpack maps with short string keys, so that a reader of a capture understands them and a newer release may
add keys. The bodies of PEER and BEATS frames are lists instead (``node/peers/codec.py``, ``node/beats.py``).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum, unique
from typing import Any, NamedTuple

import msgpack

from viewstamp.enums import fast_members
from viewstamp.errors import FrameError, RequestError
from viewstamp.wire.batch import Buffer
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.checksum import crc32c

__all__ = [
    "FRAME_BYTES_MAX",
    "FRAME_HEADER_SIZE",
    "GROUPS_VERSION",
    "PROTOCOL_VERSION",
    "Frame",
    "FrameDecoder",
    "FrameKind",
    "TooLarge",
    "encode_frame",
]

PROTOCOL_VERSION = 2

GROUPS_VERSION = 3
"""The version in a HELLO that names another group than 0, because releases without groups have to refuse it."""

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""The default limit of one frame, header included."""

_MAGIC = b"VSF\x01"
_HEADER = struct.Struct("<4sI B3x II")
_CHECKED = struct.Struct("<B3x II")
_CHECKED_START = 8
FRAME_HEADER_SIZE = _HEADER.size
assert FRAME_HEADER_SIZE == 20


_make = tuple.__new__
"""Makes a frame without the call of a Python function that ``Frame(...)`` costs, because each message is a frame."""

_LARGE = 1024 * 1024
"""A frame gets memory of its own when this number of its bytes is held."""
_PAGE = 2 * 1024 * 1024
"""The size of a huge page. To get 512 small pages instead takes ten times as long as to copy bytes into them."""
_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)
"""None = this operating system has none."""
_KEYS_MAX = 64
"""A map with more keys is no request of ours."""
_PLAIN = frozenset((*range(0xA0, 0xC0), 0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB))
"""The first bytes of texts and bytes in msgpack."""
_HEAD = 64
"""Bytes that are read of the body of a frame that is too large. The request's id is the first field in it."""


@unique
@fast_members
class FrameKind(IntEnum):
    """The kinds of frames; a number never changes its meaning.

    ``wire/handshake.py`` describes HELLO, WELCOME, REFUSED and MEMBERS, ``node/peers/codec.py`` PEER,
    ``node/health/digests.py`` DIGEST and ``node/beats.py`` BEATS. OK and ERROR answer a request. All other kinds are
    requests, which ``wire/requests.py`` describes with the fields of their OK.
    """

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    PEER = 4
    DIGEST = 5
    BEATS = 6
    APPEND = 10
    OPEN_SESSION = 11
    OUTCOME = 12
    CREATE_TOPIC = 13
    LIST_TOPICS = 14
    DESCRIBE_TOPIC = 15
    READ = 16
    STATUS = 17
    CALL = 18
    QUERY = 19
    WATCH = 20
    LIST_ACTORS = 21
    DESCRIBE_ACTOR = 22
    TRIM_TOPIC = 23
    CONFIGURE_TOPIC = 24
    CREATE_SNAPSHOT = 25
    LIST_SNAPSHOTS = 26
    READ_SNAPSHOT = 27
    STAGE = 40
    BEGIN_ATTEMPT = 41
    SEAL_ATTEMPT = 42
    ABORT_ATTEMPTS = 43
    COMMIT = 44
    LIST_SINKS = 45
    DESCRIBE_SINK = 46
    FORGET_SINK = 47
    SPLIT_TOPIC = 48
    FIND_TIME = 49
    CHANGE_MEMBERS = 50
    TRANSFER_LEADERSHIP = 51
    READ_LOG = 52
    JOIN = 53
    APPEND_AT = 54
    MEMBERS = 55
    PROVE_DIRECTORY = 60
    CREATE_TOKEN = 61
    ROTATE_TOKEN = 62
    REVOKE_TOKEN = 63
    LIST_TOKENS = 64
    LIST_AUDIT = 65
    DESCRIBE_LOG = 66
    COPY_LOG = 67
    COPY_SNAPSHOT = 68
    HOSTED = 69
    PLACE_GROUP = 70
    CANCEL_GROUP = 71
    LIST_GROUPS = 72
    ARCHIVE_TOPIC = 73
    CHECK_RUN = 74
    FIND_ORPHANS = 75
    LIST_RUNS = 76
    SPREAD_TOPIC = 77
    DESCRIBE_SPREAD = 78
    LIST_SPREADS = 79
    REPORT_STREAMS = 80
    CONFIGURE_ARCHIVE = 81
    READ_ORDERED = 82
    CONFIGURE_SPREAD = 84
    TRIM_SPREAD = 85
    SEAL_STREAM = 86
    SPREAD_ACTOR = 88
    LIST_SPREAD_ACTORS = 89
    WAIT_ORDERED = 90
    CONFIGURE_SCHEMA = 93
    CONFIGURE_SPREAD_SCHEMA = 116
    ADD_STREAM = 117
    GONE_STREAM = 118
    CONFIGURE_SPREAD_ARCHIVE = 120
    CONFIGURE_KEYED = 95
    GET_KEY = 96
    SCAN_KEYS = 97
    NOTE_TRANSFER = 100
    LOSE_STREAM = 103
    BEGIN_PART = 107
    COMMIT_PARTS = 108
    HOST_GROUP = 121
    UNHOST_GROUP = 122
    LEFT_GROUP = 123
    REMOVE_GROUP = 124
    OK = 30
    ERROR = 31


_TLS_START = b"\x16\x03"
"""The first bytes of a TLS connection: its record type and version."""


class TooLarge(NamedTuple):
    """Takes the place of the body of a frame over the limit, which was dropped. ``request`` None = it has no id."""

    size: int
    request: int | None


class Frame(NamedTuple):
    """One decoded frame: its kind, its unpacked msgpack body, and the raw payload (not copied)."""

    kind: int
    body: Any
    payload: memoryview


def encode_frame(kind: int, body: object, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return the buffers of a frame, in order; those of ``payload`` are passed on and not copied.

    Raises:
      RequestError: ``body`` holds text that has no encoding.
    """
    try:
        packed = msgpack.packb(body)
    except UnicodeEncodeError as error:
        raise RequestError(
            f"text that cannot be encoded as UTF-8: {brief_repr(error.object)}", remedy="give text of whole characters"
        ) from error
    checked = _CHECKED.pack(kind, len(packed), sum(map(len, payload)))
    checksum = crc32c(packed, crc32c(checked))
    return [b"".join((_MAGIC, checksum.to_bytes(4, "little"), checked, packed)), *payload]


class FrameDecoder:
    """Turns the bytes of one connection into frames.

    Whole frames inside one chunk are views of that chunk (a view keeps its chunk alive); a frame that
    spans chunks is joined once. A frame of over a MiB is collected in memory that belongs to it alone, so that it is
    never held twice, and is freed when its last view is gone.

    Invariants:
      * at most ``frame_bytes_max`` bytes plus the chunks since the last decoded one are held
      * the memory of the held bytes is at most twice ``held``, plus a page
      * after a FrameError the decoder is finished and holds nothing: the connection must end
    """

    def __init__(
        self,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        *,
        first_bytes_max: int = 0,
        body_bytes_max: int = 0,
        skips_too_large: bool = False,
    ) -> None:
        """Create a decoder for frames of up to ``frame_bytes_max`` bytes.

        ``first_bytes_max``: the limit of the first frame. ``feed`` returns that frame alone, and keeps the bytes after
        it undecoded until :meth:`believe`.

        ``body_bytes_max``: the limit of a body, 0 = none.

        ``skips_too_large``: drop a larger frame, and return it from ``feed`` with the body :class:`TooLarge`. Otherwise
        it is an error.
        """
        self._frame_bytes_max = frame_bytes_max
        self._first_bytes_max = first_bytes_max
        self._body_bytes_max = body_bytes_max or frame_bytes_max
        self._structure_bytes_max = 0
        self._skips = skips_too_large
        self._to_skip = 0
        """Bytes still to come of a frame that is too large."""
        self._chunks: list[Buffer] = []
        self._large: mmap.mmap | bytearray | None = None
        """The memory for the whole next frame, filled up to ``held``; then there are no chunks. None = not needed."""
        self._is_over = False
        self.held = 0
        """Bytes that are not decoded."""
        self.has_more = False
        """Whether ``feed`` has returned as many frames as it was asked for, so that there may be more whole ones."""
        self._wanted = 0
        """Bytes that have to be held before the next frame is complete; 0 while its header is incomplete."""

    def believe(self, *, frame_bytes_max: int | None = None, structure_bytes_max: int = 0) -> None:
        """Go on behind the first frame, with these limits; None = the limit of the constructor.

        ``structure_bytes_max``: the limit of a body without the texts and bytes that are direct values of its map,
        0 = none. A byte of msgpack can become a map of 64 bytes, but a text or bytes take no more than they have.
        """
        self._first_bytes_max = 0
        if frame_bytes_max is not None:
            self._frame_bytes_max = frame_bytes_max
        self._structure_bytes_max = structure_bytes_max

    def drop(self) -> None:
        """Give up all held bytes, because the connection has ended."""
        self._chunks, self._large = [], None
        self.held = 0
        self.has_more = False
        self._is_over = True

    def feed(self, chunk: Buffer, frames_max: int = -1) -> list[Frame]:
        """Take the next bytes, which must not change afterwards; return the frames that are complete now.

        Args:
          chunk: the bytes; b"" = look at the held ones again.
          frames_max: return at most this many frames, and set ``has_more`` if whole ones may be left; -1 = no limit;
            0 = only take the bytes, and return none but a frame of over a MiB that they complete.

        Raises:
          FrameError: not a frame of ours, damaged, or over the limit; the connection must be closed.
        """
        if self._is_over:
            raise FrameError("bytes after the end of the stream")
        rest: Buffer = b""
        if self._to_skip:
            skipped = min(self._to_skip, len(chunk))
            self._to_skip -= skipped
            chunk = memoryview(chunk)[skipped:]
        large = self._large
        if large is not None:
            rest = self._fill(large, chunk)
            if self._large is not None:
                return []
        elif chunk:
            self._chunks.append(chunk)
            self.held += len(chunk)
        if self.held < self._wanted:
            if self.held >= _LARGE:
                self._begin_large()
            return []
        if not self._chunks or (not frames_max and large is None):
            self.has_more = bool(self._chunks)
            return []
        room = 1 if self._first_bytes_max else frames_max
        try:
            view = memoryview(self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks))
            frames: list[Frame] = []
            at = 0
            self.has_more = False
            while self.held - at >= FRAME_HEADER_SIZE:
                magic, checksum, kind, body_size, payload_size = _HEADER.unpack_from(view, at)
                if magic != _MAGIC:
                    raise _not_ours(magic)
                body_end = at + FRAME_HEADER_SIZE + body_size
                end = body_end + payload_size
                if self._first_bytes_max and end - at > self._first_bytes_max:
                    raise FrameError(
                        f"a frame of {end - at} bytes, where a HELLO of at most {self._first_bytes_max}"
                        " has to come first"
                    )
                if end - at > self._frame_bytes_max and self._skips:
                    head_end = at + FRAME_HEADER_SIZE + min(body_size, _HEAD)
                    if head_end > self.held:
                        self._wanted = head_end - at
                        break
                    request = _request_of(view[at + FRAME_HEADER_SIZE : head_end])
                    frames.append(Frame(kind, TooLarge(end - at, request), view[:0]))
                    self._to_skip = max(0, end - self.held)
                    at = min(end, self.held)
                    continue
                if end - at > self._frame_bytes_max:
                    raise FrameError(
                        f"a frame of {end - at} bytes is over the limit of {self._frame_bytes_max}",
                        remedy="send smaller batches, or raise [limits] frame_bytes_max on every node",
                    )
                if body_size > self._body_bytes_max:
                    raise FrameError(
                        f"the body of a frame has {body_size} bytes, over the limit of {self._body_bytes_max}",
                        remedy="send smaller requests, or raise [limits] batch_bytes_max on every node",
                    )
                if end > self.held:
                    self._wanted = end - at
                    break
                found = crc32c(view[at + _CHECKED_START : body_end])
                if found != checksum:
                    raise FrameError(f"frame checksum {found:#010x}, expected {checksum:#010x}: damaged on the way")
                packed = view[at + FRAME_HEADER_SIZE : body_end]
                if body_size > self._structure_bytes_max > 0:
                    self._check_structure(kind, packed)
                try:
                    body = msgpack.unpackb(packed)
                except (ValueError, msgpack.exceptions.UnpackException) as error:
                    raise FrameError(f"the body of a frame of kind {kind} is no msgpack: {error}") from error
                frames.append(_make(Frame, (kind, body, view[body_end:end])))
                at = end
                room -= 1
                if not room:
                    self._wanted = 0
                    self.has_more = self.held > at
                    break
            else:
                self._wanted = 0
                start = bytes(view[at : at + len(_MAGIC)])
                if not _MAGIC.startswith(start):  # at the first wrong byte: another protocol may wait for an answer
                    raise _not_ours(start)
            left = view[at:]
            # A view keeps its whole chunk in memory, so a small rest is copied.
            self._chunks = [left if 2 * len(left) >= self.held else bytes(left)] if left else []
            self.held -= at
            if rest:
                frames += self.feed(rest, max(frames_max - 1, 0) if frames_max >= 0 else -1)
            return frames
        except FrameError:
            self.drop()
            raise

    def _begin_large(self) -> None:
        """Move the bytes of an unfinished large frame into memory of its final size."""
        try:
            large = _memory(self._wanted)
        except (OSError, MemoryError):
            return  # For example a limit of the address space: then its chunks are joined.
        at = 0
        for chunk in self._chunks:
            large[at : at + len(chunk)] = chunk
            at += len(chunk)
        self._chunks, self._large = [], large

    def _fill(self, large: mmap.mmap | bytearray, chunk: Buffer) -> Buffer:
        """Take the bytes of a large frame from a chunk, and return the others. A frame that is whole is a chunk."""
        taken = min(len(chunk), self._wanted - self.held)
        view = memoryview(chunk)
        large[self.held : self.held + taken] = view[:taken]
        self.held += taken
        if self.held == self._wanted:
            self._chunks, self._large = [memoryview(large)[: self.held].toreadonly()], None
        return view[taken:]

    def _check_structure(self, kind: int, packed: memoryview) -> None:
        size = _structure_bytes(packed)
        if size > self._structure_bytes_max:
            raise FrameError(
                f"the body of a frame of kind {kind} has {size} bytes of lists, maps and numbers, over the limit of"
                f" {self._structure_bytes_max}"
            )


def _memory(size: int) -> mmap.mmap | bytearray:
    """Return memory for ``size`` bytes or a little more. Raises OSError, MemoryError.

    Less than a huge page comes from the memory of the process, which uses again what was freed. Of more, only the pages
    that are written to are used, and the operating system gets them back.
    """
    if size < _PAGE:
        return bytearray(size)
    # The kernel puts it at the start of a huge page only if its length is a multiple of one.
    large = mmap.mmap(-1, -(-size // _PAGE) * _PAGE, flags=mmap.MAP_PRIVATE)
    if _HUGE_PAGES is not None:
        with suppress(OSError):  # A kernel may be built without them.
            # If less than half of the last one is needed, it is left to small pages.
            large.madvise(_HUGE_PAGES, 0, (size + _PAGE // 2) // _PAGE * _PAGE)
    return large


def _structure_bytes(packed: memoryview) -> int:
    """Return the size of a body without the texts and bytes that are direct values of its map."""
    size = len(packed)
    fields = msgpack.Unpacker(max_buffer_size=size)
    fields.feed(packed)
    try:
        count = fields.read_map_header()
        if count > _KEYS_MAX:
            return size
        for _ in range(count):
            fields.skip()
            start = fields.tell()
            fields.skip()
            if packed[start] in _PLAIN:
                size -= fields.tell() - start
    except (ValueError, IndexError, msgpack.exceptions.UnpackException):
        pass  # It is no map, or is cut off. If the rest is small enough, unpacking it gives the error.
    return size


def _request_of(head: memoryview) -> int | None:
    """Return the ``id`` with which the body of an answer begins; None = it does not."""
    fields = msgpack.Unpacker(max_buffer_size=_HEAD)
    fields.feed(head)
    try:
        if fields.read_map_header() and fields.unpack() == "id" and type(request := fields.unpack()) is int:
            return request
    except (ValueError, msgpack.exceptions.UnpackException):
        pass
    return None


def _not_ours(start: bytes) -> FrameError:
    if start[:2] == _TLS_START:
        return FrameError(
            "the other side speaks TLS, and this one does not",
            remedy="set [tls] on every node and in every client, or on none",
        )
    return FrameError(
        f"not a viewstamp frame: it starts with {start!r}, not {_MAGIC!r}",
        remedy="check that the address is one of a viewstamp node, and that both sides run compatible versions",
    )
