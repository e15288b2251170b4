"""Frames: length-delimited, checksummed bytes on a connection. Pure; knows nothing of sockets.

A frame, little-endian::

     0  magic "VSF" + format version (1)   4 bytes
     4  checksum, crc32c of bytes 8..20 and of the body   u32
     8  kind                               u8
     9  reserved                           3 bytes, 0
    12  body length                        u32  (msgpack)
    16  payload length                     u32  (batches one behind the other, each with checksums of its own)
    20  body, then payload

The length fields are covered by the checksum, so that a damaged one is found before it is believed for
longer than one frame; a limit bounds what a decoder holds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

from viewstamp.errors import FrameError
from viewstamp.wire.batch import Buffer

__all__ = ["FRAME_BYTES_MAX", "FRAME_HEADER_SIZE", "Frame", "FrameDecoder", "encode_frame"]

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""The default limit of one frame, header included."""

_MAGIC = b"VSF\x01"
_HEADER = struct.Struct("<4sI B3x II")
_CHECKED = struct.Struct("<B3x II")
FRAME_HEADER_SIZE = _HEADER.size
assert FRAME_HEADER_SIZE == 20


class Frame(NamedTuple):
    """One decoded frame: its kind, its unpacked msgpack body, and the raw payload (not copied)."""

    kind: int
    body: Any
    payload: memoryview


def encode_frame(kind: int, body: object, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return the buffers of a frame, in order; those of ``payload`` are passed on and not copied."""
    packed = msgpack.packb(body)
    checked = _CHECKED.pack(kind, len(packed), sum(map(len, payload)))
    checksum = crc32c(packed, crc32c(checked))
    return [b"".join((_MAGIC, checksum.to_bytes(4, "little"), checked, packed)), *payload]


class FrameDecoder:
    """Turns the bytes of one connection into frames.

    Whole frames inside one chunk are views of that chunk (a view keeps its chunk alive); a frame that
    spans chunks is joined once.

    Invariants:
      * at most ``frame_bytes_max`` bytes plus one chunk are held
      * after a FrameError the decoder is finished: the connection must end
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._chunks: list[Buffer] = []
        self._held = 0
        self._wanted = 0
        """Bytes that must be held before looking again is worth it; 0 while the next frame's header is incomplete."""

    def feed(self, chunk: Buffer) -> list[Frame]:
        """Take the next bytes, which must not change afterwards; return the frames that are complete now.

        Raises:
          FrameError: not a frame of ours, damaged, or over the limit; the connection must be closed.
        """
        self._chunks.append(chunk)
        self._held += len(chunk)
        if self._held < self._wanted:
            return []
        view = memoryview(chunk if len(self._chunks) == 1 else b"".join(self._chunks))
        frames = []
        at = 0
        while True:
            size = self._frame_size(view, at)
            if size is None or len(view) - at < size:
                break
            frames.append(self._decode(view[at : at + size]))
            at += size
        rest = view[at:]
        self._chunks = [rest] if len(rest) else []
        self._held = len(rest)
        self._wanted = size if size is not None else 0
        return frames

    def _frame_size(self, view: memoryview, at: int) -> int | None:
        """Return the size of the frame at ``at``, or None while its header is incomplete."""
        magic = bytes(view[at : at + len(_MAGIC)])
        if not _MAGIC.startswith(magic):  # at the first wrong byte: who speaks another protocol may wait for an answer
            raise FrameError(
                f"not a viewstamp frame: it starts with {magic!r}, not {_MAGIC!r}",
                remedy="check that the address is one of a viewstamp node, and that both sides run compatible versions",
            )
        if len(view) - at < FRAME_HEADER_SIZE:
            return None
        _, _, _, body_size, payload_size = _HEADER.unpack_from(view, at)
        size = FRAME_HEADER_SIZE + int(body_size) + int(payload_size)
        if size > self._frame_bytes_max:
            raise FrameError(
                f"a frame of {size} bytes is over the limit of {self._frame_bytes_max}",
                remedy="send smaller batches, or raise [limits] frame_bytes_max on every node",
            )
        return size

    @staticmethod
    def _decode(view: memoryview) -> Frame:
        _, checksum, kind, body_size, _ = _HEADER.unpack_from(view)
        body_end = FRAME_HEADER_SIZE + body_size
        packed = view[FRAME_HEADER_SIZE:body_end]
        found = crc32c(packed, crc32c(view[8:FRAME_HEADER_SIZE]))
        if found != checksum:
            raise FrameError(f"frame checksum {found:#010x}, expected {checksum:#010x}: damaged on the way")
        try:
            body = msgpack.unpackb(packed)
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            raise FrameError(f"the body of a frame of kind {kind} is no msgpack: {error}") from error
        return Frame(kind, body, view[body_end:])
