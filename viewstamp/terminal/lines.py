"""Reads lines of a file or of stdin as bytes, in bounded memory, without blocking the event loop on a slow pipe."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from viewstamp.errors import ConfigError, RecordTooLargeError

__all__ = ["read_all", "read_lines"]

READ_BYTES: Final = 256 * 1024


async def read_lines(descriptor: int, line_bytes_max: int) -> AsyncIterator[tuple[list[bytes], int]]:
    """Yield lists of lines without their newlines, with the bytes read so far, as soon as they are read.

    A last line without a newline counts, and so does an empty line. Holds at most one line and one read in memory.

    Raises:
      RecordTooLargeError: a line is longer than ``line_bytes_max``. All lines before it have been yielded.
    """
    rest = b""
    taken = number = 0
    while data := await _read(descriptor):
        taken += len(data)
        lines = (rest + data).split(b"\n") if b"\n" in data else [rest + data]
        rest = lines.pop()
        fitting = _fitting(lines, line_bytes_max)
        number += fitting
        if fitting:
            yield lines[:fitting], taken
        if fitting < len(lines) or len(rest) > line_bytes_max:
            raise RecordTooLargeError(
                f"line {number + 1} is longer than the limit of {line_bytes_max:,} bytes for a record; it and all "
                "lines after it were not appended",
                remedy="split the line, or raise [limits] record_bytes_max on every node",
            )
    if rest:
        yield [rest], taken


async def read_all(descriptor: int, bytes_max: int) -> bytes:
    """Return the whole input.

    Raises:
      RecordTooLargeError: it is longer than ``bytes_max``. Reading stops there.
    """
    data = bytearray()
    while more := await _read(descriptor):
        data += more
        if len(data) > bytes_max:
            raise RecordTooLargeError(
                f"the input is longer than the limit of {bytes_max:,} bytes for a record; nothing was appended",
                remedy="leave out --raw to append it line by line, or raise [limits] record_bytes_max on every node",
            )
    return bytes(data)


def _fitting(lines: list[bytes], bytes_max: int) -> int:
    """Return how many of the first lines are within the limit."""
    if not lines or max(map(len, lines)) <= bytes_max:
        return len(lines)
    return next(at for at, line in enumerate(lines) if len(line) > bytes_max)


async def _read(descriptor: int) -> bytes:
    """Read the available bytes; if there are none, wait without blocking the loop. Cancelling loses no bytes."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except (OSError, ValueError):
        # A regular file is always ready, and selectors do not accept it.
        await asyncio.sleep(0)
        return os.read(descriptor, READ_BYTES)
    try:
        await readable.wait()
        return os.read(descriptor, READ_BYTES)
    finally:
        loop.remove_reader(descriptor)


CHUNK_BYTES: Final = 64 * 1024


CHUNK_RECORDS: Final = 2000


async def chunks_of(
    lines: AsyncIterator[tuple[list[bytes], int]], advance: Callable[[int], None]
) -> AsyncIterator[list[bytes]]:
    """Cut lists of lines into chunks that are appended atomically: 64 KiB or 2,000 records at most."""
    async for found, taken in lines:
        chunk: list[bytes] = []
        size = 0
        for line in found:
            chunk.append(line)
            size += len(line)
            if size >= CHUNK_BYTES or len(chunk) >= CHUNK_RECORDS:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk
        advance(taken)


@contextlib.contextmanager
def opened(file: str) -> Iterator[int]:
    """Yield the descriptor of a file, or of stdin for ``-``. Raises ConfigError if it cannot be read."""
    if file == "-":
        yield sys.stdin.fileno()
        return
    try:
        if os.path.isdir(file):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}", remedy="name a file of lines, or - for stdin"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
