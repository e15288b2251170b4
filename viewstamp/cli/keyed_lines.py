"""Records with keys from lines, for the command ``append``."""

from __future__ import annotations

from collections.abc import AsyncIterator

from viewstamp.errors import RequestError
from viewstamp.terminal.bulk import KeyedChunk
from viewstamp.wire.brief_repr import brief_repr

__all__ = ["single_records", "split_lines", "with_key"]


async def with_key(key: bytes, chunks: AsyncIterator[list[bytes]]) -> AsyncIterator[KeyedChunk]:
    """Give every record the same key."""
    async for chunk in chunks:
        yield KeyedChunk([key] * len(chunk), chunk)


async def split_lines(chunks: AsyncIterator[list[bytes]]) -> AsyncIterator[KeyedChunk]:
    """Split each line into its key and its value at the first tab. Raises RequestError with the line."""
    number = 0
    async for chunk in chunks:
        made = KeyedChunk([], [])
        for line in chunk:
            number += 1
            key, tab, value = line.partition(b"\t")
            if not tab:
                raise RequestError(
                    f"line {number}: {brief_repr(line)} has no tab between its key and its value",
                    remedy="write KEY, a tab and VALUE; to give all lines one key, use --key",
                )
            made.keys.append(key)
            made.values.append(value)
        yield made


async def single_records(chunks: AsyncIterator[KeyedChunk]) -> AsyncIterator[KeyedChunk]:
    """Yield one record at a time: a chunk is appended as a whole, and its keys may belong to different streams."""
    async for keys, values in chunks:
        for key, value in zip(keys, values, strict=True):
            yield KeyedChunk([key], [value])
