"""The messages between a node and its archive process: a map and bytes, over a pair of sockets.

A message is the size of its map and the size of its bytes (4 bytes each, little-endian), the map in msgpack, and the
bytes. The node sends a request and waits for its answer, so at most one message is under way in each direction.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from viewstamp.wire.batch import Buffer

__all__ = ["receive", "send"]

_SIZES = struct.Struct("<II")


def send(pipe: socket.socket, fields: Mapping[str, object], pieces: Sequence[Buffer] = ()) -> None:
    """Send a message. Raises OSError, also where the other side has ended; TimeoutError as the socket is set."""
    body, data = msgpack.packb(fields), b"".join(pieces)
    pipe.sendall(_SIZES.pack(len(body), len(data)) + body)
    pipe.sendall(data)


def receive(pipe: socket.socket) -> tuple[dict[str, Any], bytearray] | None:
    """Return the next message; None = the other side has ended.

    Raises:
      OSError, TimeoutError: as :func:`send`.
      ValueError: it is no message.
    """
    sizes = _receive(pipe, _SIZES.size)
    if sizes is None:
        return None
    fields_size, bytes_size = _SIZES.unpack(sizes)
    packed, data = _receive(pipe, fields_size), _receive(pipe, bytes_size)
    if packed is None or data is None:
        return None
    try:
        fields = msgpack.unpackb(packed)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise ValueError(f"a message cannot be read: {error!r}") from error
    if type(fields) is not dict:
        raise ValueError("a message has no map")
    return fields, data


def _receive(pipe: socket.socket, size: int) -> bytearray | None:
    found = bytearray(size)
    view, at = memoryview(found), 0
    while at < size:
        count = pipe.recv_into(view[at:])
        if not count:
            return None
        at += count
    return found
