"""Calls one method of a gRPC server with as little Python as possible: HTTP/2 by hand, on asyncio.

The frames of a call have nearly the same bytes each time. A response is three frames, which are not decoded, because
the last one has the same bytes after every successful call. All calls of one turn of the loop are sent in one write.
Only the parts of RFC 9113 and RFC 7541 for such calls are here: no TLS, no second method, and no more flow control
window for the server than at the start, which is enough for some fifty million short responses.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import ClassVar, Self

from benchmarks.peers.gathered import PeerConnection
from viewstamp.errors import UnavailableError

__all__ = ["MESSAGE_BYTES_MAX", "GrpcCall"]

MESSAGE_BYTES_MAX = 16 * 1024 - 5
"""Largest message: a DATA frame less the five bytes before the message, because calls are not divided."""

_CONNECT_SECONDS = 2.0
_SILENCE_SECONDS = 10.0
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_WINDOW_BYTES = 65_535
_WINDOW_BYTES_MAX = 2**31 - 1
_STATUS = b"\x00\x88" + bytes.fromhex("9acac8b21234da8f")
"""``grpc-status`` as a literal of RFC 7541. Its value follows as text, because Huffman coding shortens no number."""
_WENT_WELL = _STATUS + b"\x010"
_FRAME = struct.Struct(">BHBBL")
"""Length (in two parts), type, flags, stream."""


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return _FRAME.pack(len(body) >> 16, len(body) & 0xFFFF, kind, flags, stream) + body


def _literal(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


_PREFACE = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(_SETTINGS, 0, 0, struct.pack(">HL", 1, 0))  # HEADER_TABLE_SIZE 0, so that equal headers are equal bytes.
    + _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">L", _WINDOW_BYTES_MAX - _WINDOW_BYTES))
)


class GrpcCall(PeerConnection):
    """A connection for calls of one method."""

    method: ClassVar[str]

    def __init__(self, address: str) -> None:
        self._loop = asyncio.get_running_loop()
        # POST, http; then four headers that the server stores under the numbers 65, 64, 63 and 62.
        self._headers = b"\x83\x86\x44%b\x41%b\x5f%b\x40%b%b" % (
            *map(_literal, (self.method, address, "application/grpc", "te", "trailers")),
        )
        self._stream = -1
        self._calls: dict[int, asyncio.Future[None]] = {}
        self._out: list[bytes] = []
        self._held: deque[tuple[int, bytes]] = deque()
        """Frames that are not sent yet because the flow control window is full, and their sizes in this window."""
        self._room = _WINDOW_BYTES
        self._tail = b""
        self._closed = False
        self._oldest: int | None = None
        self._watch = self._loop.call_later(_SILENCE_SECONDS, self._check_progress)

    @classmethod
    async def open(cls, address: str) -> Self:
        """Connect; raises OSError if no server answers."""
        host, _, port = address.rpartition(":")
        opening = asyncio.get_running_loop().create_connection(lambda: cls(address), host, int(port))
        _, connection = await asyncio.wait_for(opening, _CONNECT_SECONDS)
        return connection

    def call(self, message: bytes) -> asyncio.Future[None]:
        """Call the method; the future is done when the server has reported success, or has UnavailableError."""
        answer: asyncio.Future[None] = self._loop.create_future()
        if self._closed:
            answer.set_exception(ConnectionResetError("the connection is closed"))
            return answer
        size = len(message) + 5
        assert size <= MESSAGE_BYTES_MAX + 5, size
        self._stream = stream = self._stream + 2
        self._calls[stream] = answer
        headers = self._headers
        self._headers = b"\x83\x86\xc1\xc0\xbf\xbe"
        pack = _FRAME.pack
        frames = b"%b%b%b\0%b%b" % (
            pack(0, len(headers), _HEADERS, _END_HEADERS, stream),
            headers,
            pack(0, size, _DATA, _END_STREAM, stream),
            len(message).to_bytes(4, "big"),
            message,
        )
        self._held.append((size, frames))
        if len(self._held) == 1:
            self._loop.call_soon(self._flush)
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface with our settings."""
        super().connection_made(transport)
        self._transport.write(_PREFACE)

    def data_received(self, data: bytes) -> None:
        """Handle each complete frame."""
        if self._tail:
            data = self._tail + data
        at, end = 0, len(data)
        unpack = _FRAME.unpack_from
        while end - at >= 9:
            high, low, kind, flags, stream = unpack(data, at)
            start = at + 9
            after = start + (high << 16) + low
            if after > end:
                break
            at = after
            if kind == _HEADERS:
                if flags & _END_STREAM:
                    self._settle(stream, data[start:after])
            elif kind != _DATA:
                self._on_frame(kind, flags, stream, data[start:after])
        self._tail = data[at:]

    def connection_lost(self, exception: Exception | None) -> None:
        """Fail all unanswered calls."""
        self._closed = True
        self._watch.cancel()
        self._fail(exception or ConnectionResetError("the connection was closed"))

    def _settle(self, stream: int, trailers: bytes) -> None:
        answer = self._calls.pop(stream, None)
        if answer is None or answer.done():
            return
        if _WENT_WELL in trailers:
            answer.set_result(None)
        else:
            _, _, status = trailers.partition(_STATUS)
            code = status[1 : 1 + status[0]].decode() if status else "unknown"
            answer.set_exception(UnavailableError(f"the server refuses a call: gRPC status {code}"))

    def _on_frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _WINDOW_UPDATE and stream == 0:
            self._room += int.from_bytes(body, "big")
            self._flush()
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            self._transport.write(_frame(kind, _ACK, 0, body if kind == _PING else b""))
        elif kind == _RST_STREAM:
            self._settle(stream, body)
        elif kind == _GOAWAY:
            self._fail(ConnectionResetError("the server takes no more calls"))

    def _flush(self) -> None:
        """Send held frames as far as the server's flow control window permits."""
        held, out = self._held, []
        while held and held[0][0] <= self._room:
            size, frames = held.popleft()
            self._room -= size
            out.append(frames)
        if out:
            self._transport.write(b"".join(out))

    def _check_progress(self) -> None:
        """Fail all unanswered calls if the oldest one has been unanswered since the last check."""
        oldest = next(iter(self._calls), None)
        if oldest is not None and oldest == self._oldest:
            self._fail(UnavailableError(f"nothing was answered for {_SILENCE_SECONDS:g} s"))
        self._oldest = oldest
        self._watch = self._loop.call_later(_SILENCE_SECONDS, self._check_progress)

    def _fail(self, error: Exception) -> None:
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(error)
        self._calls.clear()
